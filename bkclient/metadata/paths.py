"""Names of znodes: where each ledger manager keeps a ledger, and which bookie ids are valid.

A ledger manager is a rule from a ledger id to a path below the root. Three rules exist in clusters of today:

* flat: one directory, ten digits; ids of at most ten digits;
* short tree (``LEGACY_HIERARCHICAL``): ten digits cut 2/4/4; ids of at most 31 bits;
* long tree (``LONG_HIERARCHICAL``): nineteen digits cut 3/4/4/4/4; every id.

``HIERARCHICAL``, the default, is the short tree below 2147483647 and the long tree from there on. Ids outside a
manager's range are refused, because other programs would cut or overlook the name. Everything here is a pure function
of its arguments.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from bkclient.errors import ArgumentError
from bkclient.ledger import BookieId

__all__ = [
    "BOOKIE_ID_LENGTH_MAX",
    "LEDGER_ID_MAX",
    "SHORT_LEDGER_ID_LIMIT",
    "LedgerManager",
    "check_bookie_id",
    "check_ledger_id",
    "is_valid_bookie_id",
    "ledger_path",
    "parse_ledger_path",
    "sequence_number",
    "shortened",
    "under_replicated_ledger_path",
]

LEDGER_ID_MAX: Final = 2**63 - 1
SHORT_LEDGER_ID_LIMIT: Final = 2**31 - 1
"""Short generated ids, and short paths of the default manager, stay below this."""

BOOKIE_ID_LENGTH_MAX: Final = 512
"""Characters of a bookie id. BookKeeper sets no limit; the longest name of a host has 253 characters."""

_FLAT_LEDGER_ID_MAX: Final = 10**10 - 1
_BOOKIE_ID: Final = re.compile(r"[A-Za-z0-9.:;<=>?@\[\\\]^_-]+")
_DIGITS_OF_PARTS: Final = {1: (10,), 3: (2, 4, 4), 5: (3, 4, 4, 4, 4)}
_QUOTED_MAX: Final = 100
_SEQUENCE_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")


class LedgerManager(Enum):
    """The rule by which a cluster names its ledgers, fixed in LAYOUT when the cluster is made."""

    FLAT = "flat"
    HIERARCHICAL = "hierarchical"
    LONG_HIERARCHICAL = "longhierarchical"
    LEGACY_HIERARCHICAL = "legacyhierarchical"

    @property
    def ledger_id_max(self) -> int:
        """The greatest ledger id this manager can name."""
        if self is LedgerManager.FLAT:
            return _FLAT_LEDGER_ID_MAX
        return SHORT_LEDGER_ID_LIMIT if self is LedgerManager.LEGACY_HIERARCHICAL else LEDGER_ID_MAX

    @property
    def has_short_tree(self) -> bool:
        """Whether ledgers may lie in the 2/4/4 tree."""
        return self in {LedgerManager.HIERARCHICAL, LedgerManager.LEGACY_HIERARCHICAL}

    @property
    def has_long_tree(self) -> bool:
        """Whether ledgers may lie in the 3/4/4/4/4 tree."""
        return self in {LedgerManager.HIERARCHICAL, LedgerManager.LONG_HIERARCHICAL}


def check_ledger_id(ledger_id: int) -> int:
    """``ledger_id`` itself; :class:`~bkclient.errors.ArgumentError` if no ledger can have it."""
    if isinstance(ledger_id, bool) or not isinstance(ledger_id, int):
        raise ArgumentError(f"ledger_id must be an int, got {ledger_id!r}")
    if not 0 <= ledger_id <= LEDGER_ID_MAX:
        raise ArgumentError(f"ledger_id must be between 0 and {LEDGER_ID_MAX}, got {ledger_id}", ledger_id=ledger_id)
    return ledger_id


def ledger_path(root: str, manager: LedgerManager, ledger_id: int) -> str:
    """The znode of ``ledger_id`` below ``root``.

    :class:`~bkclient.errors.ArgumentError` for an id that is negative or above the manager's greatest.
    """
    if not 0 <= ledger_id <= manager.ledger_id_max:
        raise ArgumentError(
            f"ledger_id must be between 0 and {manager.ledger_id_max} with the {manager.value} ledger manager, got {ledger_id}",
            ledger_id=ledger_id,
        )
    if manager is LedgerManager.FLAT:
        return f"{root}/L{ledger_id:010d}"
    if manager.has_short_tree and (ledger_id < SHORT_LEDGER_ID_LIMIT or not manager.has_long_tree):
        digits = f"{ledger_id:010d}"
        return f"{root}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019d}"
    return f"{root}/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def parse_ledger_path(root: str, path: str) -> int:
    """The ledger id whose znode is ``path``, under whichever manager; ``ValueError`` if it is no ledger's."""
    prefix = f"{root}/"
    parts = path.removeprefix(prefix).split("/") if path.startswith(prefix) else []
    widths = _DIGITS_OF_PARTS.get(len(parts))
    if widths is None or not parts[-1].startswith("L"):
        raise ValueError(f"{path!r} is not a ledger below {root!r}")
    parts[-1] = parts[-1][1:]
    if any(not is_digits(part, width) for part, width in zip(parts, widths, strict=True)):
        raise ValueError(f"{path!r} is not a ledger below {root!r}")
    ledger_id = int("".join(parts))
    if ledger_id > LEDGER_ID_MAX:
        raise ValueError(f"{path!r} names a ledger id above {LEDGER_ID_MAX}")
    return ledger_id


def is_digits(name: str, width: int) -> bool:
    """Whether ``name`` is exactly ``width`` ASCII digits, as every directory of a ledger tree is."""
    return len(name) == width and name.isascii() and name.isdigit()


def under_replicated_ledger_path(root: str, ledger_id: int) -> str:
    """The znode that marks ``ledger_id`` as under-replicated."""
    digits = f"{check_ledger_id(ledger_id):016x}"
    directory = "/".join(digits[start : start + 4] for start in range(0, 16, 4))
    return f"{root}/underreplication/ledgers/{directory}/urL{ledger_id:010d}"


def sequence_number(path: str, prefix: str) -> int:
    """The number ZooKeeper appended to ``prefix`` when it named the sequential znode ``path``; may be negative.

    ``ValueError`` if ``path`` does not consist of the prefix and a number.
    """
    text = path.removeprefix(prefix)
    if not path.startswith(prefix) or _SEQUENCE_NUMBER.fullmatch(text) is None:
        raise ValueError(f"{path!r} is not {prefix!r} and a number")
    return int(text)


def is_valid_bookie_id(bookie_id: object) -> bool:
    """Whether ``bookie_id`` may name a bookie.

    The characters are those BookKeeper's own pattern admits, including the range between ``:`` and ``_``;
    ``readonly``, in any case, is the name of a directory beside the bookies. The names ``.`` and ``..`` are refused
    too: no path can hold them. An id has at most :data:`BOOKIE_ID_LENGTH_MAX` characters.
    """
    return (
        isinstance(bookie_id, str)
        and len(bookie_id) <= BOOKIE_ID_LENGTH_MAX
        and _BOOKIE_ID.fullmatch(bookie_id) is not None
        and bookie_id.lower() != "readonly"
        and bookie_id not in {".", ".."}
    )


def shortened(name: object) -> str:
    """``name``, which may be anything and of any length, as a message quotes it."""
    text = repr(name)
    return text if len(text) <= _QUOTED_MAX else f"{text[:_QUOTED_MAX]}... ({len(text)} characters)"


def check_bookie_id(bookie_id: str) -> BookieId:
    """``bookie_id`` itself; :class:`~bkclient.errors.ArgumentError` if it is not valid."""
    if not is_valid_bookie_id(bookie_id):
        raise ArgumentError(
            f"{shortened(bookie_id)} is not a valid bookie id: letters, digits and . - _ : are allowed, at most "
            f"{BOOKIE_ID_LENGTH_MAX} of them; the word readonly is not"
        )
    return bookie_id

"""Checks of what applications pass in: types first, so that a mistake is named as what it is and nothing is sent.

Python lets anything be passed for anything, and a wrong type that gets through surfaces far from its cause: a ``str`` for a
password as a failing digest, ``True`` as ledger 1.
"""

from __future__ import annotations

from typing import Final, TypeVar

from bkclient.config import ClientConfig
from bkclient.errors import ArgumentError
from bkclient.ledger import DigestType
from bkclient.protocol.quorum import QuorumSizes

__all__ = [
    "LARGEST_ID",
    "check_callable",
    "check_count",
    "check_duration",
    "check_flag",
    "check_ledger_id",
    "check_password",
    "check_sizes",
    "checked_config",
    "checked_digest_type",
    "checked_settings",
]

C = TypeVar("C")

#: Ledger and entry ids are 64 bits wide, signed.
LARGEST_ID: Final = 2**63 - 1


def checked_config(config: ClientConfig | None) -> ClientConfig:
    """A configuration, not a mapping of one; that of all defaults if there is none."""
    return checked_settings(ClientConfig, config, "from_properties() and from_file() make one")


def checked_settings(kind: type[C], config: C | None, how: str) -> C:
    """A configuration of ``kind``, whose defaults are all there is to it if there is none; ``how`` one is made."""
    if config is not None and not isinstance(config, kind):
        raise ArgumentError(f"config is a {kind.__name__}, not {type(config).__name__}; its {how}")
    return kind() if config is None else config


def check_sizes(ensemble_size: int, write_quorum_size: int, ack_quorum_size: int) -> None:
    """Ensemble >= write quorum >= ack quorum >= 1 (API-3)."""
    for value in (ensemble_size, write_quorum_size, ack_quorum_size):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ArgumentError(f"ensemble and quorum sizes are ints, not {value!r}")
    QuorumSizes(ensemble_size, write_quorum_size, ack_quorum_size)


def check_ledger_id(ledger_id: int, *, may_be_negative: bool = True) -> None:
    """An int that fits the field on the wire; whether negative ids are an error or just unknown is the caller's matter."""
    if isinstance(ledger_id, bool) or not isinstance(ledger_id, int):
        raise ArgumentError(f"a ledger id is an int, not {ledger_id!r}")
    if ledger_id > LARGEST_ID:
        raise ArgumentError(f"ledger ids end at {LARGEST_ID}, {ledger_id} is beyond")
    if ledger_id < 0 and not may_be_negative:
        raise ArgumentError("ledger ids are not negative", ledger_id=ledger_id)


def check_password(password: bytes) -> None:
    """Bytes; the empty password is one (H-35)."""
    if not isinstance(password, bytes):
        raise ArgumentError(f"a password is bytes, not {type(password).__name__}")


def checked_digest_type(digest_type: DigestType) -> DigestType:
    """A member of :class:`~bkclient.DigestType`, not its number or name."""
    if not isinstance(digest_type, DigestType):
        raise ArgumentError(f"digest_type is a DigestType, not {digest_type!r}")
    return digest_type


def check_flag(name: str, value: bool) -> None:  # noqa: FBT001 - the value to check
    """True or False, and nothing that merely counts as it."""
    if not isinstance(value, bool):
        raise ArgumentError(f"{name} is True or False, not {value!r}")


def check_count(name: str, value: int) -> None:
    """How many there are to be, 1 at least."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError(f"{name} is an int, not {value!r}")
    if value < 1:
        raise ArgumentError(f"{name} must be at least 1, not {value}")


def check_duration(name: str, value: float, longest_s: float, shortest_s: float = 0) -> None:
    """A number of seconds between the two, which no NaN is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentError(f"{name} is a number of seconds, not {value!r}")
    if not shortest_s <= value <= longest_s:
        raise ArgumentError(f"{name} is between {shortest_s} and {longest_s} seconds, {value!r} is not")


def check_callable(name: str, value: object) -> None:
    """Something to call."""
    if not callable(value):
        raise ArgumentError(f"{name} is something to call, not {value!r}")

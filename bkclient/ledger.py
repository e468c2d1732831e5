"""Ledger metadata: immutable values, and the pure changes the protocol makes to them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, Self

from bkclient._frozen import NO_ITEMS, FrozenDict

__all__ = ["BookieId", "DigestType", "Ensemble", "Fragment", "LedgerMetadata", "LedgerState", "Versioned"]

BookieId = str
Ensemble = tuple[BookieId, ...]

INVALID_ENTRY_ID: Final = -1


class LedgerState(IntEnum):
    """States of a ledger, numbered as stored."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


#: Every look at metadata asks for it, and members of an enumeration take longer to find.
_CLOSED: Final = LedgerState.CLOSED


class DigestType(IntEnum):
    """How entries are protected, numbered as stored in metadata."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


@dataclass(frozen=True, slots=True)
class Fragment:
    """The entries from ``first_entry_id`` up to the next fragment, or the end, are stored by ``ensemble``."""

    first_entry_id: int
    ensemble: Ensemble


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """Everything the metadata store holds about one ledger.

    ``last_entry_id`` is -1 and ``length`` (bytes of all payloads) 0 unless the state is CLOSED. ``fragments`` are in
    ascending order of their first entry id, the first one starting at 0. ``ctime_ms`` is the creation time only where
    it is part of the stored value. ``unknown_fields`` are fields of a newer writer, as encoded, kept so that a rewrite
    does not lose them. Construction checks the shape and raises ``ValueError``: wrong shapes are
    defects of the program, never of its input. ``custom_metadata`` is copied into a dict that cannot be changed, so metadata
    can be hashed, pickled, copied and passed to ``dataclasses.asdict``.
    """

    ledger_id: int
    ensemble_size: int
    write_quorum_size: int
    ack_quorum_size: int
    fragments: tuple[Fragment, ...]
    state: LedgerState = LedgerState.OPEN
    last_entry_id: int = INVALID_ENTRY_ID
    length: int = 0
    digest_type: DigestType | None = DigestType.CRC32C
    password: bytes = field(default=b"", repr=False)
    has_password: bool = True
    custom_metadata: Mapping[str, bytes] = NO_ITEMS
    format_version: int = 3
    ctime_ms: int | None = None
    creator_token: int = 0
    unknown_fields: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if type(self.custom_metadata) is not FrozenDict:
            custom_metadata = FrozenDict(self.custom_metadata) if self.custom_metadata else NO_ITEMS
            object.__setattr__(self, "custom_metadata", custom_metadata)
        if not self.ensemble_size >= self.write_quorum_size >= self.ack_quorum_size >= 1:
            raise ValueError(
                f"ledger {self.ledger_id}: sizes must satisfy ensemble {self.ensemble_size} >= write quorum "
                f"{self.write_quorum_size} >= ack quorum {self.ack_quorum_size} >= 1"
            )
        if not self.fragments:
            raise ValueError(f"ledger {self.ledger_id}: metadata without a fragment")
        previous = None
        for fragment in self.fragments:
            if len(fragment.ensemble) != self.ensemble_size:
                raise ValueError(
                    f"ledger {self.ledger_id}: fragment {fragment.first_entry_id} has {len(fragment.ensemble)} "
                    f"bookies, not {self.ensemble_size}"
                )
            if previous is not None and fragment.first_entry_id <= previous:
                raise ValueError(
                    f"ledger {self.ledger_id}: fragment {fragment.first_entry_id} does not start above {previous}"
                )
            previous = fragment.first_entry_id
        if self.fragments[0].first_entry_id != 0:
            raise ValueError(
                f"ledger {self.ledger_id}: the first fragment starts at entry {self.fragments[0].first_entry_id}, not 0"
            )
        if self.has_password != (self.digest_type is not None) or (self.password and not self.has_password):
            raise ValueError(f"ledger {self.ledger_id}: password and digest type are both there or both missing")
        if self.last_entry_id < INVALID_ENTRY_ID or self.length < 0:
            raise ValueError(
                f"ledger {self.ledger_id}: it cannot end at entry {self.last_entry_id} with {self.length} bytes"
            )
        if self.state is not _CLOSED and (self.last_entry_id, self.length) != (INVALID_ENTRY_ID, 0):
            raise ValueError(f"ledger {self.ledger_id}: only a closed ledger has an end, this one is {self.state.name}")

    @property
    def is_closed(self) -> bool:
        """Whether the end is final."""
        return self.state is _CLOSED

    @property
    def last_fragment(self) -> Fragment:
        """The fragment new entries belong to."""
        return self.fragments[-1]

    def ensemble_at(self, entry_id: int) -> Ensemble:
        """The ensemble that stores ``entry_id``: that of the greatest first entry id not above it."""
        index = bisect_right(self.fragments, entry_id, key=lambda fragment: fragment.first_entry_id)
        if index == 0:
            raise ValueError(f"ledger {self.ledger_id}: no fragment holds entry {entry_id}")
        return self.fragments[index - 1].ensemble

    def with_ensemble(self, first_entry_id: int, ensemble: Ensemble) -> Self:
        """Entries from ``first_entry_id`` on go to ``ensemble``; replaces the last fragment if it starts there too.

        ``ValueError`` if the last fragment starts above ``first_entry_id``.
        """
        last = self.last_fragment
        if last.first_entry_id > first_entry_id:
            raise ValueError(
                f"ledger {self.ledger_id}: a fragment cannot start at entry {first_entry_id}, "
                f"below the last one at {last.first_entry_id}"
            )
        kept = self.fragments[:-1] if last.first_entry_id == first_entry_id else self.fragments
        return replace(self, fragments=(*kept, Fragment(first_entry_id, ensemble)))

    def with_state(self, state: LedgerState) -> Self:
        """The same ledger in another open state; use :meth:`closed` to close."""
        return replace(self, state=state)

    def closed(self, last_entry_id: int, length: int) -> Self:
        """The same ledger, closed after ``last_entry_id`` with ``length`` bytes of payload."""
        return replace(self, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=length)


@dataclass(frozen=True, slots=True)
class Versioned:
    """Metadata as of one version of the store. Versions compare numerically.

    ``created_ms`` is the store's own record of when the ledger was registered, in milliseconds since 1970, where it has
    one; it stands in for ``metadata.ctime_ms`` and takes no part in comparison.
    """

    metadata: LedgerMetadata
    version: int
    created_ms: int | None = field(default=None, compare=False)

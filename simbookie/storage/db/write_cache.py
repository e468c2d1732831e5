"""Entries in memory that wait to be flushed.

BookKeeper keeps them in one block of memory that is only ever appended to: an entry takes its size, rounded up to 64 bytes, a
later copy takes as much again, and nothing gives room back but a flush.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simbookie.storage.quirks import REPAIRED, Quirk

__all__ = ["WriteCache", "aligned"]

_ALIGNMENT: Final = 64


def aligned(size: int) -> int:
    """What an entry of ``size`` bytes takes."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class WriteCache:
    """Entries of all ledgers, ``bytes_max`` at most. The last copy of an entry counts."""

    def __init__(self, bytes_max: int, quirks: frozenset[Quirk] = REPAIRED) -> None:
        self._bytes_max = bytes_max
        self._failures_take_room = Quirk.FAILED_ADD_TAKES_ROOM in quirks
        self._deletions_stick = Quirk.RECREATED_ENTRIES_DROPPED in quirks
        self.clear()

    def __bool__(self) -> bool:
        return self.size > 0

    def clear(self) -> None:
        """Forget everything."""
        self._taken = 0
        #: Bytes of the entries, earlier copies and those of deleted ledgers included.
        self.size = 0
        #: Entries that came, likewise.
        self.count = 0
        self._ledgers: dict[int, dict[int, bytes]] = {}
        self._lasts: dict[int, int] = {}
        self._deleted: set[int] = set()

    def put(self, ledger_id: int, entry_id: int, entry: bytes) -> bool:
        """Put an entry; false if it does not fit."""
        size = len(entry)
        fits = self._taken + size <= self._bytes_max
        if fits or self._failures_take_room:
            self._taken += aligned(size)
        if not fits:
            return False
        self._ledgers.setdefault(ledger_id, {})[entry_id] = entry
        if entry_id > self._lasts.get(ledger_id, -1):
            self._lasts[ledger_id] = entry_id
        self.size += size
        self.count += 1
        return True

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """An entry, if it is here."""
        entries = self._ledgers.get(ledger_id)
        return entries.get(entry_id) if entries is not None else None

    def last(self, ledger_id: int) -> int:
        """The highest entry of a ledger; -1 without one."""
        return self._lasts.get(ledger_id, -1)

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """The entries of a ledger, in no order."""
        return iter(self._ledgers.get(ledger_id, ()))

    def drop(self, ledger_id: int) -> None:
        """Forget a ledger, whose room stays taken."""
        self._ledgers.pop(ledger_id, None)
        self._lasts.pop(ledger_id, None)
        if self._deletions_stick:
            self._deleted.add(ledger_id)

    def in_order(self) -> Iterator[tuple[int, int, bytes]]:
        """``(ledger id, entry id, entry)``, by ledger and entry. Ledgers that are dropped meanwhile are left out."""
        for ledger_id in sorted(self._ledgers):
            if ledger_id in self._deleted:
                continue
            for entry_id in sorted(self._ledgers.get(ledger_id, ())):
                entry = self.get(ledger_id, entry_id)
                if entry is not None:
                    yield ledger_id, entry_id, entry

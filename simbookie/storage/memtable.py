"""Entries in memory that wait to be written in order: by ledger, then by entry."""

from __future__ import annotations

from collections.abc import Iterator

from simbookie.storage.ledger_store import Checkpoint

__all__ = ["MemTable"]


class MemTable:
    """Entries of all ledgers. The first copy of an entry stays.

    ``checkpoint`` is how far the journals were synced when the table was made: everything in it was journalled later.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        #: Bytes of the entries.
        self.size = 0
        self._ledgers: dict[int, dict[int, bytes]] = {}
        self._lasts: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._ledgers)

    def add(self, ledger_id: int, entry_id: int, entry: bytes) -> bool:
        """Put an entry; returns whether there was none before."""
        entries = self._ledgers.setdefault(ledger_id, {})
        if entry_id in entries:
            return False
        entries[entry_id] = entry
        self.size += len(entry)
        if entry_id > self._lasts.get(ledger_id, -1):
            self._lasts[ledger_id] = entry_id
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

    def drop(self, ledger_id: int) -> int:
        """Forget a ledger; returns the bytes of its entries."""
        freed = sum(map(len, self._ledgers.pop(ledger_id, {}).values()))
        self._lasts.pop(ledger_id, None)
        self.size -= freed
        return freed

    def in_order(self) -> Iterator[tuple[int, int, bytes]]:
        """``(ledger id, entry id, entry)``, by ledger and entry. Ledgers that are dropped meanwhile are left out."""
        for ledger_id in sorted(self._ledgers):
            for entry_id in sorted(self._ledgers.get(ledger_id, ())):
                entry = self.get(ledger_id, entry_id)
                if entry is not None:
                    yield ledger_id, entry_id, entry

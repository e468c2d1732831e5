"""What a start does with the records of its journals: each is applied to the ledger store, in order.

A record of a ledger without a key is skipped: the ledger was deleted. Keys are in the journals, or in the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from simbookie.storage.base import WriteCacheFull
from simbookie.storage.journal.records import JournalRecord, JournalRecordKind
from simbookie.storage.journal.replay import JournalReplay, sync_files
from simbookie.storage.known import PACKET_BYTES_MIN, lac_of_packet
from simbookie.storage.ledger_store import LedgerStore
from simbookie.storage.quirks import Quirk
from simbookie.storage.sequence import WaitingStep

__all__ = ["REPLAY_WAIT_S", "Replayer"]

#: Of an entry: ledger id, entry id, LAC, length. Entry 0 has the LAC -1, so nobody writes zeros from the entry id on; a power
#: loss may, where it kept the sector with the beginning of a record and not the next.
_ENTRY_HEAD_BYTES: Final = 32
_ZEROS_FROM: Final = 8
_ENTRY_BYTES_MIN: Final = 24
#: How long BookKeeper has a replay wait for room in the store: as long as an add by default.
REPLAY_WAIT_S: Final = 10.0


class Replayer:
    """Applies ``replays``, one after the other, to ``store``."""

    def __init__(self, replays: Sequence[JournalReplay], store: LedgerStore, quirks: frozenset[Quirk]) -> None:
        self.replays = replays
        #: Ledgers whose keys are in the journals.
        self.keyed: set[int] = set()
        self._known: set[int] = set()
        self._store = store
        self._quirks = quirks
        self._records: Iterator[JournalRecord] = chain.from_iterable(replays)
        self._waiting: JournalRecord | None = None

    @property
    def waits_for_room(self) -> bool:
        """Whether the store was full; then :meth:`go_on` has to be called again."""
        return self._waiting is not None

    def go_on(self) -> bool:
        """Apply records; false if the store is full, true at the end.

        :class:`~simbookie.storage.base.StorageIOError` if a journal cannot be read.
        """
        while True:
            record = self._waiting if self._waiting is not None else next(self._records, None)
            self._waiting = None
            if record is None:
                return True
            try:
                self._apply(record)
            except WriteCacheFull:
                self._waiting = record
                return False

    def syncs(self) -> Iterator[WaitingStep]:
        """Make durable what was replayed."""
        return chain.from_iterable(sync_files(replay.folder, replay.files) for replay in self.replays)

    def _apply(self, record: JournalRecord) -> None:
        store, ledger_id = self._store, record.ledger_id
        if record.kind is JournalRecordKind.KEY:
            self.keyed.add(ledger_id)
            self._apply_key(ledger_id, record.content)
        elif record.kind is not JournalRecordKind.UNKNOWN and self._has_key(ledger_id):
            if record.kind is JournalRecordKind.FENCE:
                store.set_fenced(ledger_id)
            elif record.kind is JournalRecordKind.EXPLICIT_LAC:
                self._apply_explicit_lac(ledger_id, record.content)
            elif len(record.content) < _ENTRY_BYTES_MIN:
                return  # no bookie takes such an entry: what a power loss left of a length
            elif any(record.content[_ZEROS_FROM:_ENTRY_HEAD_BYTES]) or Quirk.ZERO_RECORDS_REPLAYED in self._quirks:
                store.add_entry(ledger_id, record.entry_id, record.content)

    def _apply_key(self, ledger_id: int, key: bytes) -> None:
        """A ledger never gets another key, so one that is another was torn by a power loss, and must not replace the first.

        That is set once more: a bookie that was killed may have written it and not synced it. A key of zeros is none: its ledger
        takes the key that comes next.
        """
        if Quirk.ZERO_RECORDS_REPLAYED not in self._quirks:
            info = self._store.ledger(ledger_id)
            known = None if info is None else info.master_key
            if known is not None and any(known):
                key = known
            elif not any(key):
                self._store.set_limbo(ledger_id, in_limbo=info is not None and info.in_limbo)
                return
        self._store.set_master_key(ledger_id, key)

    def _apply_explicit_lac(self, ledger_id: int, packet: bytes) -> None:
        """Explicit LACs rise, so a lower one was torn by a power loss, and must not replace one that was acknowledged.

        What the store has already is set once more: a bookie that was killed may have written it and not synced it.
        """
        if len(packet) < PACKET_BYTES_MIN:
            return
        known = self._store.explicit_lac(ledger_id)
        if known is not None and Quirk.ZERO_RECORDS_REPLAYED not in self._quirks:
            packet = max(packet, known, key=lac_of_packet)
        self._store.set_explicit_lac(ledger_id, lac_of_packet(packet), packet)

    def _has_key(self, ledger_id: int) -> bool:
        if ledger_id not in self.keyed and ledger_id not in self._known:
            info = self._store.ledger(ledger_id)
            if info is None or info.master_key is None:
                return False
            self._known.add(ledger_id)
            if Quirk.EXPLICIT_LAC_REPLACED in self._quirks:
                # BookKeeper reads the key from the index, which opens its file; so does this, and changes nothing else
                self._store.set_limbo(ledger_id, in_limbo=info.in_limbo)
        return True

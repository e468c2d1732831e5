"""Emptying one entry log into another, a little at a time, and what makes the copies count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Final

from simbookie.storage.base import DurableCallback, StorageError, StorageIOError
from simbookie.storage.compaction.plan import LogUsage
from simbookie.storage.entry_logs.compaction_log import CompactionLog
from simbookie.storage.entry_logs.format import SIZE_BYTES, location_of
from simbookie.storage.entry_logs.scan import LogRecord
from simbookie.storage.ledger_store import CollectedStore
from simbookie.storage.sequence import Sequence, WaitingStep

__all__ = ["CompactionTransaction", "Copying", "Moved", "entry_id_of"]

#: Entries that are copied in one turn of the loop.
_ENTRIES_PER_TURN: Final = 100

Moved = tuple[int, int, int]
"""``(ledger id, entry id, location)`` of a copy."""


def entry_id_of(record: LogRecord) -> int:
    """The id of the entry in a record."""
    return int.from_bytes(record.entry[8:16], signed=True)


class Copying:
    """Copies what is alive in ``log`` with ``add``, and hands the copies to ``deliver``, ``moved_max`` at a time.

    Alive is what the index points at. What else a log holds, copies that a replay has replaced, and records that a power loss has
    torn and that look like entries, is left behind.

    ``take`` says how long a copy of so many bytes has to wait. ``on_failed`` is called before ``on_done`` gets an error.
    """

    def __init__(
        self,
        store: CollectedStore,
        log: LogUsage,
        add: Callable[[int, bytes], int],
        take: Callable[[int], float],
        moved_max: int | None,
        deliver: Callable[[list[Moved], DurableCallback], None],
        on_done: DurableCallback,
        *,
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._log_id = log.log_id
        self._places = store.places
        self._add = add
        self._take = take
        self._moved_max = moved_max
        self._deliver = deliver
        self._on_done = on_done
        self._on_failed = on_failed
        self._moved: list[Moved] = []
        self._is_cancelled = False
        self._scan = partial(store.logger.scan, log.log_id, log.ledgers.__contains__)
        self._records: Iterator[LogRecord] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle = self._loop.call_soon(self._copy_on)

    def cancel(self) -> None:
        """Do nothing any more."""
        self._is_cancelled = True
        self._timer.cancel()

    def _copy_on(self) -> None:
        try:
            if self._records is None:
                self._records = iter(self._scan())
            for _ in range(_ENTRIES_PER_TURN):
                if self._moved_max is not None and len(self._moved) >= self._moved_max:
                    self._hand_over(self._go_on_after)
                    return
                record = next(self._records, None)
                if record is None:
                    self._hand_over(self._end)
                    return
                if not self._is_alive(record):
                    continue
                wait = self._take(len(record.entry))
                if wait > 0:
                    self._timer = self._loop.call_later(wait, self._copy_late, record)
                    return
                self._copy(record)
        except StorageError as error:
            self._end(None, error)
            return
        self._timer = self._loop.call_soon(self._copy_on)

    def _copy_late(self, record: LogRecord) -> None:
        try:
            self._copy(record)
        except StorageError as error:
            self._end(None, error)
        else:
            self._copy_on()

    def _is_alive(self, record: LogRecord) -> bool:
        here = location_of(self._log_id, record.offset + SIZE_BYTES)
        return here in self._places(record.ledger_id, entry_id_of(record))

    def _copy(self, record: LogRecord) -> None:
        self._moved.append((record.ledger_id, entry_id_of(record), self._add(record.ledger_id, record.entry)))

    def _hand_over(self, on_done: DurableCallback) -> None:
        moved, self._moved = self._moved, []
        self._deliver(moved, on_done)

    def _go_on_after(self, _token: object, error: StorageError | None) -> None:
        if self._is_cancelled:
            return
        if error is not None:
            self._end(None, error)
        else:
            self._copy_on()

    def _end(self, _token: object, error: StorageError | None) -> None:
        if self._is_cancelled:
            return
        if error is not None:
            self._on_failed()
        self._on_done(None, error)


class CompactionTransaction:
    """A log compacted into one of its own. Every step may be the last before a crash; the next run ends what began.

    ``ledger_ids`` are those with entries in the log that is compacted.
    """

    #: All entries are moved at once.
    moved_max = None

    def __init__(
        self, store: CollectedStore, log: CompactionLog, ledger_ids: Collection[int], step: Callable[[str], None]
    ) -> None:
        self._store = store
        self._log = log
        self._ledger_ids = ledger_ids
        self._step = step
        self._is_compacted = False
        self._running: list[Sequence] = []

    def cancel(self) -> None:
        """Do nothing any more."""
        for sequence in self._running:
            sequence.cancel()

    def add(self, ledger_id: int, entry: bytes) -> int:
        """Copy an entry."""
        return self._log.add(ledger_id, entry)

    def commit(self, moved: list[Moved], on_done: DurableCallback) -> None:
        """Make the log complete and durable, then available, then set the locations."""
        if not moved:
            # What led to the source before does not in memory; on disk it has to stop, too, before the source may go.
            self._log.abort()
            self._store.move_entries(self._log.source_id, self._ledger_ids, [], on_done, None, are_durable=True)
            return

        def set_locations(go_on: DurableCallback) -> None:
            self.set_locations(moved, go_on)

        steps: list[WaitingStep] = [
            self._flush,
            self._named("transaction.compacted", self._mark_compacted),
            self._log.folder.sync,
            self._named("transaction.available", self._log.make_available),
            set_locations,
        ]
        self._running.append(Sequence(steps, on_done, None))

    def set_locations(self, moved: list[Moved], on_done: DurableCallback) -> None:
        """Make the name of the log durable, then the locations; the source may go after that."""

        def move(go_on: DurableCallback) -> None:
            self._store.move_entries(self._log.source_id, self._ledger_ids, moved, go_on, None, are_durable=True)

        steps: list[WaitingStep] = [self._log.folder.sync, move, self._named("transaction.finish", self._log.finish)]
        self._running.append(Sequence(steps, on_done, None))

    def abort(self) -> None:
        """Remove the log if it does not count yet."""
        if not self._is_compacted:
            self._log.abort()

    def _flush(self, go_on: DurableCallback) -> None:
        self._step("transaction.flush")
        self._log.flush(go_on)

    def _mark_compacted(self) -> None:
        self._log.mark_compacted()
        self._is_compacted = True

    def _named(self, name: str, action: Callable[[], None]) -> WaitingStep:
        def run(go_on: DurableCallback) -> None:
            self._step(name)
            try:
                action()
            except StorageIOError as error:
                go_on(None, error)
            else:
                go_on(None, None)

        return run

"""One journal: records are queued, written in groups, synced in groups of groups, acknowledged, and rolled into files.

Two actors stand for BookKeeper's two threads. The *writer* takes what is queued, appends it to the file's buffer, and decides
when to flush the group it has; the *syncer* takes all flushes that wait, syncs once, moves the mark, and runs the callbacks in
order. Nothing here takes time but the disk and the waiting of groups.

A group is flushed

* when its oldest record has waited for ``group_wait_max_s``. That takes two rounds: the first notes that the time is over, and
  goes on as long as the records at hand have waited so long too, as they have after a slow write; then the group is flushed;
* when a further record comes and the group has more bytes, or records, than the limits;
* when nothing more is queued, if the settings say so, or if the journal is to end.

A disk that fails ends the journal: what waits, and what comes, fails. Steps: ``journal.create``, ``journal.header``,
``journal.flush``, ``journal.written``, ``journal.sync``, ``journal.synced``, ``journal.acknowledge``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from simbookie.storage.base import DurableCallback, StorageError
from simbookie.storage.folders import Folder
from simbookie.storage.journal.file import JournalFile
from simbookie.storage.journal.mark import LogMark
from simbookie.storage.journal.queue import JournalQueue, QueuedRecord
from simbookie.storage.journal.records import EXPLICIT_LAC_ID, FORCE_ID
from simbookie.storage.journal.replay import file_ids
from simbookie.storage.journal.settings import JournalSettings
from simbookie.storage.journal.watching import FlushCause, JournalStats, JournalWatcher
from simbookie.storage.ledger_store import OnStep, no_step
from simbookie.storage.quirks import REPAIRED, Quirk

__all__ = ["Journal"]

_EXPLICIT_LAC_SINCE: Final = 6


class _Flush:
    """A group that was flushed, on its way to the syncer."""

    __slots__ = ("file", "is_last", "mark", "records")

    def __init__(self, file: JournalFile, mark: LogMark, records: list[QueuedRecord], *, is_last: bool) -> None:
        self.file = file
        self.mark = mark
        self.records = records
        self.is_last = is_last


class Journal:
    """The journal in ``folder``, from one start of a bookie to its end.

    ``mark`` is what the replay came to; ``clock_ms`` tells the time for the id of the very first file. ``memory_bytes_max`` is
    this journal's share. ``watcher`` hears of syncs.
    ``on_failure`` is told once when the journal ends for an error, before anything fails.
    Must be created inside a running loop.
    """

    def __init__(
        self,
        folder: Folder,
        settings: JournalSettings,
        *,
        mark: LogMark,
        clock_ms: Callable[[], int],
        memory_bytes_max: int = 0,
        quirks: frozenset[Quirk] = REPAIRED,
        on_failure: Callable[[StorageError], None] | None = None,
        on_step: OnStep = no_step,
        watcher: JournalWatcher | None = None,
    ) -> None:
        self.folder = folder
        self.stats = JournalStats(dict.fromkeys(FlushCause, 0))
        #: Everything before it is synced.
        self.mark = mark
        #: Bytes that may wait to be written; 0: any number [JOURNAL_MEMORY_MAX].
        self.memory_bytes_max = memory_bytes_max
        self._watcher = watcher
        self._settings = settings
        self._clock_ms = clock_ms
        self._quirks = quirks
        self._on_failure = on_failure
        self._step = on_step
        self._loop = asyncio.get_running_loop()
        self._is_alive = True
        self._failure: StorageError | None = None
        self._on_drained: Callable[[], None] | None = None
        self._queue = JournalQueue(settings.queue_size, memory_bytes_max)
        # writer
        self._group: list[QueuedRecord] = []
        self._group_is_late = False
        self._file: JournalFile | None = None
        self._next_id = 0
        self._flushed_to = 0
        self._last_sync_asked = self._loop.time()
        self._is_opening = False
        self._timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None
        self._held_up: _Flush | None = None
        # syncer
        self._flushes: deque[_Flush] = deque()
        self._syncing: list[_Flush] = []
        self._sync_began = 0.0
        self._called_back: list[tuple[DurableCallback, object]] = []
        self._unsynced: deque[tuple[LogMark, int, int]] = deque()

    # ---------------------------------------------------------------------------------------------------- from outside

    @property
    def queued(self) -> int:
        """Records that wait to be written, the line before the queue left out [JOURNAL_QUEUE_SIZE]."""
        return len(self._queue.records) + len(self._queue.taken)

    @property
    def in_line(self) -> int:
        """Records whose senders BookKeeper would have wait."""
        return len(self._queue.line)

    @property
    def memory_used(self) -> int:
        """Bytes of records that wait to be written [JOURNAL_MEMORY_USED]."""
        return self._queue.memory_used

    @property
    def flushes_waiting(self) -> int:
        """Flushes that wait for a sync [JOURNAL_FORCE_WRITE_QUEUE_SIZE]."""
        return len(self._flushes)

    def start(self) -> None:
        """Open the first file; the ids go on from what is there."""
        ids = file_ids(self.folder)
        self._next_id = (ids[-1] if ids else self._clock_ms()) + 1
        self._wake()

    def append(
        self,
        ledger_id: int,
        entry_id: int,
        body: bytes,
        on_durable: DurableCallback | None,
        token: object,
        on_written: DurableCallback | None = None,
    ) -> None:
        """Queue a record; ``on_written`` runs when the page cache has it, ``on_durable`` when it is synced."""
        record = QueuedRecord(ledger_id, entry_id, body, on_durable, token, on_written)
        if self._failure is not None:
            self._fail_records([record], self._failure)
            return
        assert self._on_drained is None, "the journal is being closed"
        self._queue.put(record, self._loop.time())
        self._wake()

    def force(self, ledger_id: int, on_durable: DurableCallback, token: object) -> bool:
        """Call back when everything queued so far is synced; false, and nothing happens, if the queue is full."""
        record = QueuedRecord(ledger_id, FORCE_ID, None, on_durable, token)
        if self._failure is not None:
            self._fail_records([record], self._failure)
            return True
        if self._queue.is_full:
            return False
        self._queue.put(record, self._loop.time())
        self._wake()
        return True

    def drain(self, on_drained: Callable[[], None]) -> None:
        """Write and sync everything, run its callbacks, then ``on_drained``, never before this returns.

        After a failure there is nothing to do but the latter.
        """
        assert self._on_drained is None, "the journal is being closed"
        self._on_drained = on_drained
        if self._failure is not None:
            self._loop.call_soon(self._tell_drained)
        self._wake()

    def crash(self) -> list[tuple[int, int]]:
        """Stop dead; returns what was not synced, as pairs of ledger and entry, in order. The disk's crash is the caller's."""
        self._stop()
        self._failure = self._on_drained = None
        return [
            *((ledger_id, entry_id) for _, ledger_id, entry_id in self._unsynced),
            *((record.ledger_id, record.entry_id) for record in self._queue.unwritten() if record.body is not None),
        ]

    def _wake(self) -> None:
        """Have the writer look again; not at once, so that no callback runs inside the call that queued it."""
        is_held_up = self._is_opening or self._held_up is not None
        if self._turn is None and not is_held_up and self._is_alive:
            self._turn = self._loop.call_soon(self._write)

    # ---------------------------------------------------------------------------------------------------- the writer

    def _write(self) -> None:
        """Go on until there is something to wait for."""
        for handle in (self._turn, self._timer):
            if handle is not None:
                handle.cancel()
        self._turn = self._timer = None
        try:
            while self._is_alive and self._write_once():
                pass
        except StorageError as error:
            self._fail(error)

    def _write_once(self) -> bool:
        """One round; false if there is something to wait for."""
        if self._file is None:
            self._open_next()
            return False
        current = self._queue.take(self._loop.time())
        if current is None and not self._may_poll():
            return False
        if self._group:
            cause = self._cause(current)
            if cause is not None:
                return self._flush(self._file, cause)
        if current is not None:
            self._queue.taken.popleft()
            self._append(self._file, current)
        return True

    def _may_poll(self) -> bool:
        """With nothing at hand: whether there is something to decide, and if not, see to it that somebody wakes the writer."""
        if not self._group:
            if self._on_drained is not None:
                self._finish_if_idle()
            return False
        if self._settings.flushes_when_queue_empty or self._on_drained is not None:
            return True
        deadline = self._deadline(self._group[0])
        if self._loop.time() >= deadline:
            return True
        self._timer = self._loop.call_at(deadline, self._write)
        return False

    def _deadline(self, record: QueuedRecord) -> float:
        return record.enqueued + self._settings.group_wait_max_s

    def _cause(self, current: QueuedRecord | None) -> FlushCause | None:
        """Why the group is to be flushed now, if it is."""
        settings, now = self._settings, self._loop.time()
        if settings.group_wait_max_s > 0:
            if not self._group_is_late and now >= self._deadline(self._group[0]):
                self._group_is_late = True
                return None
            if self._group_is_late and (current is None or now < self._deadline(current)):
                return FlushCause.MAX_WAIT
        if current is None:
            is_wanted = settings.flushes_when_queue_empty or self._on_drained is not None
            return FlushCause.EMPTY_QUEUE if is_wanted else None
        assert self._file is not None
        is_large = self._file.position > self._flushed_to + settings.buffered_bytes_max
        are_many = 0 < settings.buffered_entries_max < len(self._group)
        return FlushCause.MAX_OUTSTANDING_BYTES if is_large or are_many else None

    def _append(self, file: JournalFile, record: QueuedRecord) -> None:
        body = record.body
        if body is not None:
            # a kind of record that the format does not have is acknowledged all the same
            if record.entry_id != EXPLICIT_LAC_ID or self._settings.format_version >= _EXPLICIT_LAC_SINCE:
                file.append(body)
                self.stats.bytes_written += len(body)
                self._unsynced.append((LogMark(file.file_id, file.position), record.ledger_id, record.entry_id))
            self._queue.release(record, self._loop.time())
        self._group.append(record)

    def _flush(self, file: JournalFile, cause: FlushCause) -> bool:
        """Hand the group to the page cache and the syncer; false if the syncer's queue is full."""
        settings = self._settings
        self._step("journal.flush")
        file.flush()
        self._step("journal.written")
        self.stats.flushes[cause] += 1
        self._flushed_to = file.position
        self._group_is_late = False
        group, self._group = self._group, []
        if not self._acknowledge_written(group):
            return False
        is_last = file.position > settings.file_bytes_max
        now = self._loop.time()
        must_sync = settings.sync_data or is_last or any(record.on_durable is not None for record in group)
        if must_sync or now - self._last_sync_asked >= settings.page_cache_flush_interval_s:
            self._last_sync_asked = now
            flush = _Flush(file, LogMark(file.file_id, file.position), group, is_last=is_last)
            if is_last:
                self._file = None
            if len(self._flushes) >= settings.queue_size:
                self._held_up = flush
                return False
            self._flushes.append(flush)
            self._sync_next()
        return True

    def _acknowledge_written(self, group: list[QueuedRecord]) -> bool:
        """Run the callbacks that wait for no sync; false if one of them ended the journal."""
        due: list[tuple[DurableCallback, object]] = []
        for record in group:
            if record.on_written is not None:
                due.append((record.on_written, record.token))
                record.on_written = None
            if not self._settings.sync_data and record.on_durable is not None:
                if record.body is None and Quirk.FORCE_WITHOUT_SYNC not in self._quirks:
                    continue
                due.append((record.on_durable, record.token))
                record.on_durable = None
        return self._call_back(due)

    # ------------------------------------------------------------------------------------------------------ the file

    def _open_next(self) -> None:
        self._step("journal.create")
        file = JournalFile(self.folder, self._next_id, self._settings)
        self._next_id += 1
        self.stats.files += 1
        self._is_opening = True
        self._step("journal.header")
        file.sync(self._header_synced, file)

    def _header_synced(self, file: JournalFile, error: StorageError | None) -> None:
        if not self._is_alive:
            return
        if error is not None or Quirk.FOLDERS_UNSYNCED in self._quirks:
            self._opened(file, error)
        else:
            self.folder.sync(self._opened, file)

    def _opened(self, file: JournalFile, error: StorageError | None) -> None:
        self._is_opening = False
        if not self._is_alive:
            return
        if error is not None:
            self._fail(error)
            return
        try:
            file.allocate()
        except StorageError as failure:
            self._fail(failure)
            return
        self._file = file
        self._flushed_to = file.position
        self._wake()

    # ---------------------------------------------------------------------------------------------------- the syncer

    def _sync_next(self) -> None:
        """Take every flush that waits, unless a sync is under way."""
        if self._syncing or not self._flushes:
            return
        self._syncing = list(self._flushes)
        self.stats.groups += 1
        self._flushes.clear()
        if self._held_up is not None:
            self._flushes.append(self._held_up)
            self._held_up = None
            self._wake()
        if Quirk.ROLLED_FILE_SYNCED_LATE in self._quirks:
            files = [self._syncing[-1].file]
        else:
            files = list(dict.fromkeys(flush.file for flush in self._syncing))
        self._sync_files(files)

    def _sync_files(self, files: list[JournalFile]) -> None:
        self._step("journal.sync")
        self.stats.syncs += 1
        self._sync_began = self._loop.time()
        files[0].sync(self._file_synced, files)

    def _file_synced(self, files: list[JournalFile], error: StorageError | None) -> None:
        if not self._is_alive:
            return
        if error is not None:
            self._fail(error)
            return
        if self._watcher is not None:
            self._watcher.synced(self._loop.time() - self._sync_began)
        if len(files) > 1:
            self._sync_files(files[1:])
            return
        self._step("journal.synced")
        self.mark = self._syncing[-1].mark
        while self._unsynced and self._unsynced[0][0] <= self.mark:
            self._unsynced.popleft()
        self.stats.last_group = 0
        self._acknowledge(0)

    def _acknowledge(self, index: int) -> None:
        """Run the callbacks of the flushes that were synced, from one on, and close files that are done with."""
        flushes = self._syncing
        for number in range(index, len(flushes)):
            flush = flushes[number]
            if flush.is_last:
                if Quirk.ROLLED_FILE_SYNCED_LATE in self._quirks and flush.file is not flushes[-1].file:
                    self._step("journal.rolled")
                    flush.file.sync(self._rolled_file_synced, number)
                    return
                flush.file.close()
            if not self._acknowledge_one(flush):
                return
        self._syncing = []
        if self._flushes:
            self._sync_next()
        elif self._on_drained is not None:
            self._wake()

    def _rolled_file_synced(self, number: int, _error: StorageError | None) -> None:
        """BookKeeper logs an error here and acknowledges."""
        if not self._is_alive:
            return
        flush = self._syncing[number]
        flush.file.close()
        flush.is_last = False
        self._acknowledge(number)

    def _acknowledge_one(self, flush: _Flush) -> bool:
        self._step("journal.acknowledge")
        records, flush.records = flush.records, []
        self.stats.last_group += len(records)
        self.stats.records += len(records)
        if self._watcher is not None:
            self._watcher.acknowledged(records, self._loop.time())
        return self._call_back(
            [(record.on_durable, record.token) for record in records if record.on_durable is not None]
        )

    # --------------------------------------------------------------------------------------------------------- the end

    def _finish_if_idle(self) -> None:
        """Nothing is queued or grouped; close once everything is synced."""
        if self._syncing or self._flushes or self._held_up is not None:
            return
        file = self._file
        assert file is not None
        if self._unsynced:
            mark = LogMark(file.file_id, file.position)
            self._flushes.append(_Flush(file, mark, [], is_last=False))
            self._sync_next()
            return
        file.close()
        self._stop()
        self._tell_drained()

    def _tell_drained(self) -> None:
        if self._on_drained is not None:
            self._on_drained()

    def _stop(self) -> None:
        self._is_alive = False
        for handle in (self._timer, self._turn):
            if handle is not None:
                handle.cancel()
        self._called_back.clear()  # ends the loop over it, which may be further up the stack

    def _fail(self, error: StorageError) -> None:
        """The disk failed: no record can be trusted to it any more."""
        if not self._is_alive:
            return
        waiting = [record for flush in (*self._syncing, *self._flushes) for record in flush.records]
        if self._held_up is not None:
            waiting += self._held_up.records
        waiting += [*self._group, *self._queue.unwritten()]
        self._stop()
        self._failure = error
        if self._on_failure is not None:
            self._on_failure(error)
        self._fail_records(waiting, error)
        if self._on_drained is not None:
            self._loop.call_soon(self._tell_drained)

    def _fail_records(self, records: list[QueuedRecord], error: StorageError) -> None:
        for record in records:
            for callback in (record.on_written, record.on_durable):
                if callback is not None:
                    self._loop.call_soon(partial(self._tell_failure, callback, record.token, error))

    def _tell_failure(self, callback: DurableCallback, token: object, error: StorageError) -> None:
        if self._failure is error:  # not after a crash
            callback(token, error)

    def _call_back(self, due: list[tuple[DurableCallback, object]]) -> bool:
        """Call back everyone; false if one of them ended the journal."""
        self._called_back = due
        for callback, token in due:
            callback(token, None)
        return self._is_alive

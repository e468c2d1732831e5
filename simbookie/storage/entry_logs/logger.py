"""The entry logs of one store: what is appended, where it is found again, and when it is durable.

A log is *active* while entries are appended to it. When it is full it is *rotated*: its ledgers map is written, and it waits
to be synced. Then it is *flushed*, and never changes again.

One log is active at a time, or one for each ledger that was written lately (:mod:`.active_logs`). With one, a checkpoint syncs
the rotated logs, since what was stored before it was requested is in those, and a flush syncs the active log too. With one for
each ledger nothing rotates a log because others are full, so a checkpoint is a flush.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from simbookie.storage.base import CrashMode, DurableCallback, ReadCallback, StorageError, StorageIOError
from simbookie.storage.disk.base import DiskFile
from simbookie.storage.entry_logs.active_logs import ActiveLogs
from simbookie.storage.entry_logs.allocator import LogAllocator
from simbookie.storage.entry_logs.compaction_log import CompactionLog
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.entry_logs.format import RECORD_HEAD, SIZE_BYTES, log_id_of, log_ids, log_name, position_of
from simbookie.storage.entry_logs.log import WritableLog
from simbookie.storage.entry_logs.log_reads import LogEndsEarly, LogRead, checked_size
from simbookie.storage.entry_logs.readers import BlockReader, LogReaders
from simbookie.storage.entry_logs.scan import LogRecord, ledgers_of, scan
from simbookie.storage.folders import Folders
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.storage.sequence import Sequence, WaitingStep, ignore_outcome
from simbookie.storage.steps import OnStep, no_step

__all__ = ["EntryLogger"]


class EntryLogger:
    """All entry logs in ``folders``.

    ``on_rotate`` is called after a log was rotated. Errors of files are :class:`~simbookie.storage.base.StorageIOError`.
    """

    def __init__(
        self,
        folders: Folders,
        config: EntryLogConfig | None = None,
        *,
        on_rotate: Callable[[], None] = lambda: None,
        on_step: OnStep = no_step,
        quirks: frozenset[Quirk] = REPAIRED,
    ) -> None:
        self.config = config if config is not None else EntryLogConfig()
        self._folders = folders
        self._on_rotate = on_rotate
        self._step = on_step
        self._quirks = quirks
        self.active = ActiveLogs(self.config)
        crowd = self.active.count_in if self.config.per_ledger else None
        self.allocator = LogAllocator(folders, self.config, crowd, on_step, quirks)
        self.readers = LogReaders(folders, self.config)
        self._rotated: list[WritableLog] = []
        self._flushing: Sequence | None = None
        self._failed: StorageError | None = None
        #: Logs of this run that are not flushed, in the order made, and whether they are; all before ``_unflushed_from`` are.
        self._recent: dict[int, bool] = {}
        self._unflushed_from = 0
        self._held: frozenset[int] | None = None

    def open(self) -> None:
        """Find out which ids were given out."""
        self._unflushed_from = self.allocator.open() + 1

    def close(self) -> None:
        """Close all files. Flushes nothing."""
        prepared = self.allocator.forget()
        for log in (*self.active.all, *self._rotated, *([prepared] if prepared is not None else [])):
            log.file.close()
        self.readers.close_all()
        self._forget()

    def crash(self, _mode: CrashMode) -> None:
        """Forget everything in memory; the files died with the disk."""
        self.readers.forget()
        self.allocator.forget()
        self._forget()

    def _forget(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
        self._flushing = self._failed = self._held = None
        self.active.clear()
        self._rotated, self._recent = [], {}

    # ------------------------------------------------------------------------------------------------------- writing

    @property
    def active_id(self) -> int | None:
        """The log that is being written, where there is one for all ledgers."""
        log = self.active.get(self.active.slot(0))
        return log.log_id if log is not None else None

    @property
    def active_position(self) -> int:
        """Where in it the next record goes; 0 without one."""
        log = self.active.get(self.active.slot(0))
        return log.position if log is not None else 0

    def add(self, ledger_id: int, entry: bytes, *, rolls: bool = True) -> int:
        """Append an entry, which need not be durable before a flush; returns its location.

        Unless ``rolls``, a log grows beyond its limit, up to the hard one.
        """
        limit = self.config.log_size_max if rolls else self.config.log_size_hard_max
        slot = self.active.slot(ledger_id)
        log = self.active.get(slot)
        if log is None:
            log = self._begin(slot)
        elif self.active.is_unwanted(slot) or log.position + SIZE_BYTES + len(entry) > limit:
            if self.config.sync_after_bytes:
                self._start_sync(log)
            log = self._begin(slot)
        location = log.append(ledger_id, entry)
        if 0 < self.config.sync_after_bytes <= log.unsynced:
            self._start_sync(log)
        if self.config.per_ledger:
            now = self._now()
            self.active.use(slot, now)
            self._rotate_overdue(now)
        return location

    def _now(self) -> float:
        return asyncio.get_running_loop().time() if self.config.per_ledger else 0.0

    def _start_sync(self, log: WritableLog) -> None:
        log.flush()
        log.unsynced = 0
        log.file.sync(self._synced, (log, False, ignore_outcome))

    def want_new_log(self) -> None:
        """Rotate the active logs before their next entries: the disk is nearly full."""
        self.active.want_new()

    def roll(self) -> WritableLog:
        """Rotate the one active log, if there is one, and begin the next."""
        assert not self.config.per_ledger, "there is one for each ledger"
        return self._begin(self.active.slot(0))

    def roll_full(self) -> None:
        """Rotate the active logs that have grown beyond their limit, and begin others for their ledgers."""
        for slot in self.active.slots():
            log = self.active.get(slot)
            if log is not None and log.position > self.config.log_size_max:
                self._begin(slot)

    def _begin(self, slot: int) -> WritableLog:
        """Rotate the active log of a slot, if there is one, and begin the next."""
        full = self.active.get(slot)
        new = self.allocator.prepare()
        self._recent.setdefault(new.log_id, False)
        if full is not None:
            self._step("log.roll")
            full.seal()
            self._rotate(slot, full)
        self.active.put(slot, self.allocator.take(), self._now())
        prepared = self.allocator.prepare_in_advance()
        if prepared is not None:
            self._recent[prepared.log_id] = False
        if full is not None:
            self._on_rotate()
        return new

    def _rotate(self, slot: int, log: WritableLog) -> None:
        self.active.drop(slot)
        self._rotated.append(log)
        if self.config.direct is not None:  # which has nothing to wait for in the page cache
            self._start_sync(log)

    def _rotate_overdue(self, now: float) -> None:
        """Rotate the logs of ledgers that too many others were written since, or too long ago."""
        for slot in self.active.overdue(now):
            log = self.active.get(slot)
            assert log is not None, "it is active"
            self._step("log.roll")
            with suppress(StorageIOError):  # it is left without a map; what it buffers is written with the next flush
                log.seal()
            self._rotate(slot, log)

    def begin_compaction(self, source_id: int) -> CompactionLog:
        """A log for what is alive in another one, which is none of :meth:`ids` before it is complete."""
        return self.allocator.begin_compaction(source_id)

    def unfinished_compactions(self) -> list[CompactionLog]:
        """Those that were complete when their bookie died, ascending; what of others is left is removed."""
        return self.allocator.unfinished_compactions()

    # ------------------------------------------------------------------------------------------------------- flushing

    def checkpoint(self, on_done: DurableCallback, token: object) -> None:
        """Make durable what was stored before the checkpoint was asked for."""
        if self.config.per_ledger:
            self.flush(on_done, token)
        else:
            self._flush([], on_done, token)

    def flush(self, on_done: DurableCallback, token: object) -> None:
        """Make all logs durable, the active ones first."""
        self._rotate_overdue(self._now())
        self._flush(self.active.all, on_done, token)

    def _flush(self, active: list[WritableLog], on_done: DurableCallback, token: object) -> None:
        rotated = list(self._rotated)
        if self._failed is not None:
            asyncio.get_running_loop().call_soon(on_done, token, self._failed)
            return
        steps: list[WaitingStep] = [
            partial(self._sync_log, log, is_complete=log in rotated) for log in (*active, *rotated)
        ]
        if Quirk.FOLDERS_UNSYNCED not in self._quirks:
            steps += [
                folder.sync for folder in self._folders.all if any(log.folder is folder for log in (*active, *rotated))
            ]
        self._flushing = Sequence(steps, on_done, token)

    def _sync_log(self, log: WritableLog, on_done: DurableCallback, *, is_complete: bool) -> None:
        try:
            self._step("log.write")
            log.flush()
        except StorageIOError as error:
            on_done(None, error)
            return
        self._step("log.sync")
        log.unsynced = 0
        log.file.sync(self._synced, (log, is_complete, on_done))

    def _synced(self, token: tuple[WritableLog, bool, DurableCallback], error: StorageError | None) -> None:
        log, is_complete, on_done = token
        if error is not None and Quirk.FAILED_SYNC_RETRIED not in self._quirks:
            self._failed = error
        if error is None and is_complete:
            self._rotated.remove(log)
            log.file.close()
            self._mark_flushed(log.log_id)
        on_done(None, error)

    def _mark_flushed(self, log_id: int) -> None:
        self._recent[log_id] = True
        for recent, is_flushed in list(self._recent.items()):
            if not is_flushed:
                return
            del self._recent[recent]
            self._unflushed_from = recent + 1

    # ------------------------------------------------------------------------------------------------------- reading

    def read(self, ledger_id: int, entry_id: int, location: int, on_read: ReadCallback, token: object) -> None:
        """Read the entry at ``location``; an error if another one, or none, is there."""
        if self.config.direct is not None and Quirk.END_OF_LOG_DENIES in self._quirks:
            on_read = partial(_denied_at_end, on_read)
        head = self._buffered(location, -SIZE_BYTES, RECORD_HEAD.size)
        if head is None:
            head_bytes = self.config.read_buffer_bytes if self.config.direct is None else RECORD_HEAD.size
            LogRead(self, ledger_id, entry_id, location, on_read, token).start(head_bytes)
            return
        try:
            entry = self.buffered_tail(location, checked_size(head, ledger_id, entry_id, location))
        except StorageIOError as error:
            on_read(token, None, error)
        else:
            on_read(token, entry, None)

    def read_now(self, ledger_id: int, entry_id: int, location: int) -> bytes:
        """The same at once and free of charge, for what is asked once."""
        log_id, position = log_id_of(location), position_of(location)
        head = self._buffered(location, -SIZE_BYTES, RECORD_HEAD.size)
        if head is None:
            head = self.readers.get(log_id).read_now(position - SIZE_BYTES, RECORD_HEAD.size)
        size = checked_size(head, ledger_id, entry_id, location)
        entry = self.buffered_tail(location, size)
        if entry is None:
            entry = self.readers.get(log_id).read_now(position, size)
        if len(entry) != size:
            raise LogEndsEarly(f"entry {entry_id} of ledger {ledger_id} in entry log {log_id:x} is cut short")
        return entry

    def buffered_tail(self, location: int, size: int) -> bytes | None:
        """The entry at ``location``, of ``size`` bytes, if its end is in the buffer of a log."""
        return self._buffered(location, 0, size)

    def _buffered(self, location: int, offset: int, size: int) -> bytes | None:
        log = self.active.by_id(log_id_of(location))
        if log is None and self._rotated:  # one that could not be sealed has a buffer still
            log = next((each for each in self._rotated if each.log_id == log_id_of(location)), None)
        return log.buffered(position_of(location) + offset, size) if log is not None else None

    def open_reader(self, log_id: int) -> DiskFile | BlockReader:
        """A log to read from at once."""
        return self.readers.get(log_id)

    def ids(self) -> list[int]:
        """All logs, ascending."""
        return sorted({log_id for folder in self._folders.all for log_id in log_ids(folder.names())})

    def flushed_ids(self) -> list[int]:
        """The logs that never change again, ascending; those that were so at :meth:`hold` until :meth:`release`."""
        flushed = [log_id for log_id in self.ids() if log_id < self._unflushed_from or self._recent.get(log_id, False)]
        return flushed if self._held is None else [log_id for log_id in flushed if log_id in self._held]

    def hold(self) -> None:
        """No further log counts as flushed: entries are about to be written whose locations are set later.

        Who looked at such a log in between would find that nothing leads to its entries, and take them for dead.
        """
        if self._held is None:
            self._held = frozenset(self.flushed_ids())

    def release(self) -> None:
        """The locations of everything that was written are set."""
        self._held = None

    def scan(self, log_id: int, accepts: Callable[[int], bool]) -> Iterator[LogRecord]:
        """The entries of a flushed log, of the ledgers that ``accepts`` is true of."""
        file = self.readers.open_alone(log_id)
        try:
            yield from scan(file, accepts)
        finally:
            file.close()

    def ledgers_of(self, log_id: int) -> dict[int, int]:
        """Bytes by ledger in a flushed log."""
        believes_empty = self.config.direct is not None and Quirk.EMPTY_MAP_BELIEVED in self._quirks
        return ledgers_of(self.readers.get(log_id), believes_empty=believes_empty)

    def size_of(self, log_id: int) -> int:
        """Bytes of the file of a log."""
        return self.readers.get(log_id).size

    def remove(self, log_id: int) -> None:
        """Remove a flushed log; nothing happens if it does not exist."""
        self.readers.close(log_id)
        folder = self._folders.find(log_name(log_id))
        if folder is not None:
            self._step("log.remove")
            folder.remove(log_name(log_id))


def _denied_at_end(on_read: ReadCallback, token: object, entry: bytes | None, error: StorageError | None) -> None:
    """Have the end of a log, where an entry should be, stand for its absence."""
    on_read(token, entry, None if isinstance(error, LogEndsEarly) else error)

"""The entry logs of one store: what is appended, where it is found again, and when it is durable.

A log is *active* while entries are appended to it. When it is full it is *rotated*: its ledgers map is written, and it waits
to be synced. Then it is *flushed*, and never changes again. The next log is there before it is needed; its file is empty until
then.

A checkpoint syncs the rotated logs, since what was stored before it was requested is in those; a flush syncs the active log too.
Ids count up from one start of a bookie to the next; an id that has a file is never given out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from simbookie.storage.base import CrashMode, DurableCallback, ReadCallback, StorageError, StorageIOError
from simbookie.storage.disk.base import DiskFile
from simbookie.storage.entry_logs.compaction_log import CompactionLog
from simbookie.storage.entry_logs.format import (
    LAST_ID_FILE,
    LOG_SIZE_MAX,
    RECORD_HEAD,
    SIZE_BYTES,
    EntryLogDamaged,
    compacted_ids,
    compacting_name,
    decode_last_id,
    encode_last_id,
    id_after,
    is_compacting,
    last_id_in,
    log_id_of,
    log_ids,
    log_name,
    parse_compacted_name,
    position_of,
)
from simbookie.storage.entry_logs.log import WritableLog
from simbookie.storage.entry_logs.scan import LogRecord, ledgers_of, scan
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.storage.sequence import Sequence, WaitingStep, ignore_outcome
from simbookie.storage.steps import OnStep, no_step

__all__ = ["EntryLogConfig", "EntryLogger"]

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
#: An entry has at least the ids of its ledger and itself.
_ENTRY_SIZE_MIN: Final = 16


@dataclass(frozen=True, slots=True)
class EntryLogConfig:
    """Sizes in bytes; the defaults are BookKeeper's."""

    #: A log that would grow beyond this is rotated first (``logSizeLimit``).
    log_size_max: int = _GIB
    #: A log never grows beyond this, not even within the flush of a memtable.
    log_size_hard_max: int = LOG_SIZE_MAX
    #: What is written to the file at a time (``writeBufferSizeBytes``).
    write_buffer_bytes: int = 65_536
    #: What is read from the file at a time, at least (``readBufferSizeBytes``).
    read_buffer_bytes: int = 512
    #: So much unsynced starts a sync of the active log, 0 for never (``flushEntrylogBytes``).
    sync_after_bytes: int = 0
    #: Whether the next log's file is made in advance (``entryLogFilePreallocationEnabled``).
    preallocates: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.log_size_max <= _GIB:
            raise ValueError(f"entry log: log_size_max must be from 1 to {_GIB}, got {self.log_size_max}")
        if not self.log_size_max <= self.log_size_hard_max <= LOG_SIZE_MAX:
            raise ValueError(
                f"entry log: log_size_hard_max must be from log_size_max to {LOG_SIZE_MAX}, got {self.log_size_hard_max}"
            )
        if self.write_buffer_bytes < 1 or self.read_buffer_bytes < RECORD_HEAD.size:
            raise ValueError(
                f"entry log: write_buffer_bytes must be >= 1 and read_buffer_bytes >= {RECORD_HEAD.size}, "
                f"got {self.write_buffer_bytes} and {self.read_buffer_bytes}"
            )
        if self.sync_after_bytes < 0:
            raise ValueError(f"entry log: sync_after_bytes must be >= 0, got {self.sync_after_bytes}")


class EntryLogger:
    """All entry logs in ``folders``, of which one is written at a time.

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
        self._active: WritableLog | None = None
        self._preallocated: WritableLog | None = None
        self._rotated: list[WritableLog] = []
        self._readers: dict[int, DiskFile] = {}
        self._wants_new_log = False
        self._flushing: Sequence | None = None
        self._failed: StorageError | None = None
        #: Logs of this run that are not flushed, in the order made, and whether they are; all before ``_unflushed_from`` are.
        self._recent: dict[int, bool] = {}
        self._last_id = -1
        self._unflushed_from = 0

    def open(self) -> None:
        """Find out which ids were given out."""
        self._last_id = max(map(_last_id_of, self._folders.all))
        self._unflushed_from = self._last_id + 1

    def close(self) -> None:
        """Close all files. Flushes nothing."""
        logs = [log for log in (self._active, self._preallocated, *self._rotated) if log is not None]
        for file in (*(log.file for log in logs), *self._readers.values()):
            file.close()
        self._forget()

    def crash(self, _mode: CrashMode) -> None:
        """Forget everything in memory; the files died with the disk."""
        self._forget()

    def _forget(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
        self._flushing = self._failed = None
        self._active = self._preallocated = None
        self._rotated, self._readers, self._recent = [], {}, {}
        self._wants_new_log = False

    # ------------------------------------------------------------------------------------------------------- writing

    @property
    def active_id(self) -> int | None:
        """The log that is being written."""
        return self._active.log_id if self._active is not None else None

    @property
    def active_position(self) -> int:
        """Where in it the next record goes; 0 without one."""
        return self._active.position if self._active is not None else 0

    def active_content(self) -> bytes:
        """All of it, written to its file or not."""
        log = self._active
        if log is None:
            return b""
        content = log.buffered(0, log.position)
        return content if content is not None else log.file.read_now(0, log.position)

    def add(self, ledger_id: int, entry: bytes, *, rolls: bool = True) -> int:
        """Append an entry, which need not be durable before a flush; returns its location.

        Unless ``rolls``, a log grows beyond its limit, up to the hard one.
        """
        limit = self.config.log_size_max if rolls else self.config.log_size_hard_max
        log = self._active
        if log is None:
            log = self.roll()
        elif self._wants_new_log or log.position + SIZE_BYTES + len(entry) > limit:
            if self.config.sync_after_bytes:
                self._start_sync(log)
            log = self.roll()
        location = log.append(ledger_id, entry)
        if 0 < self.config.sync_after_bytes <= log.unsynced:
            self._start_sync(log)
        return location

    def _start_sync(self, log: WritableLog) -> None:
        log.flush()
        log.unsynced = 0
        log.file.sync(self._synced, (log, False, ignore_outcome))

    def want_new_log(self) -> None:
        """Rotate the active log before the next entry: its disk is nearly full."""
        self._wants_new_log = self._active is not None

    def roll(self) -> WritableLog:
        """Rotate the active log, if there is one, and begin the next."""
        full = self._active
        new = self._preallocated = self._preallocated if self._preallocated is not None else self._allocate()
        if full is not None:
            self._step("log.roll")
            full.seal()
            self._rotated.append(full)
        self._active, self._preallocated = new, None
        self._wants_new_log = False
        if self.config.preallocates:
            with suppress(StorageIOError):  # tried again when it is needed
                self._preallocated = self._allocate()
        if full is not None:
            self._on_rotate()
        return new

    def _allocate(self) -> WritableLog:
        folder, log_id = self._next_id()
        log = self._new_log(folder, log_id, log_name(log_id))
        self._recent[log_id] = False
        return log

    def _next_id(self) -> tuple[Folder, int]:
        """An id that has no file, given out now, and the folder for its log."""
        folder = self._folders.choose()
        log_id = id_after(self._last_id)
        while self._folders.find(log_name(log_id)) is not None:
            log_id = id_after(log_id)
        self._last_id = log_id
        return folder, log_id

    def _new_log(self, folder: Folder, log_id: int, name: str) -> WritableLog:
        file = folder.create(name)
        self._step("log.allocated")
        try:
            for each in self._folders.all:
                each.write_small(LAST_ID_FILE, encode_last_id(log_id))
            return WritableLog(
                log_id,
                folder,
                file,
                buffer_bytes=self.config.write_buffer_bytes,
                shifts=Quirk.SHIFTED_AFTER_PARTIAL_WRITE in self._quirks,
            )
        except StorageIOError:
            file.close()
            with suppress(StorageIOError):  # the error told is the first
                folder.discard(name)
            raise

    def begin_compaction(self, source_id: int) -> CompactionLog:
        """A log for what is alive in another one, which is none of :meth:`ids` before it is complete."""
        folder, log_id = self._next_id()
        log = self._new_log(folder, log_id, compacting_name(log_id))
        return CompactionLog(log_id, source_id, folder, log)

    def unfinished_compactions(self) -> list[CompactionLog]:
        """Those that were complete when their bookie died, ascending; what of others is left is removed."""
        found = []
        for folder in self._folders.all:
            for name in folder.names():
                if is_compacting(name):
                    folder.remove(name)
                ids = parse_compacted_name(name)
                if ids is not None:
                    in_decimal = Quirk.DECIMAL_LOG_NAMES in self._quirks
                    found.append(CompactionLog(*ids, folder, None, final_name=f"{ids[0]}.log" if in_decimal else None))
        return sorted(found, key=lambda log: log.log_id)

    # ------------------------------------------------------------------------------------------------------- flushing

    def checkpoint(self, on_done: DurableCallback, token: object) -> None:
        """Make the rotated logs durable."""
        self._flush([], on_done, token)

    def flush(self, on_done: DurableCallback, token: object) -> None:
        """Make all logs durable, the active one first."""
        self._flush([self._active] if self._active is not None else [], on_done, token)

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
        log_id, offset = log_id_of(location), position_of(location) - SIZE_BYTES
        active = self._active
        if active is not None and active.log_id == log_id:
            head = active.buffered(offset, RECORD_HEAD.size)
            if head is not None:
                try:
                    entry = active.buffered(offset + SIZE_BYTES, _checked_size(head, ledger_id, entry_id, location))
                except StorageIOError as error:
                    on_read(token, None, error)
                else:
                    on_read(token, entry, None)
                return
        try:
            file = self._reader(log_id)
        except StorageIOError as error:
            on_read(token, None, error)
            return
        reading = _Reading(self, ledger_id, entry_id, location, on_read, token)
        file.read(offset, self.config.read_buffer_bytes, reading.head_read, file)

    def read_now(self, ledger_id: int, entry_id: int, location: int) -> bytes:
        """The same at once and free of charge, for what is asked once."""
        log_id, offset = log_id_of(location), position_of(location) - SIZE_BYTES
        active = self._active
        head = active.buffered(offset, RECORD_HEAD.size) if active is not None and active.log_id == log_id else None
        if head is None:
            head = self._reader(log_id).read_now(offset, RECORD_HEAD.size)
        size = _checked_size(head, ledger_id, entry_id, location)
        entry = self.buffered_tail(location, size)
        if entry is None:
            entry = self._reader(log_id).read_now(position_of(location), size)
        if len(entry) != size:
            raise EntryLogDamaged(f"entry {entry_id} of ledger {ledger_id} in entry log {log_id:x} is cut short")
        return entry

    def buffered_tail(self, location: int, size: int) -> bytes | None:
        """The entry at ``location``, of ``size`` bytes, if its end is in the buffer of the active log."""
        active = self._active
        if active is None or active.log_id != log_id_of(location):
            return None
        return active.buffered(position_of(location), size)

    def _reader(self, log_id: int) -> DiskFile:
        file = self._readers.get(log_id)
        if file is None:
            folder = self._folders.find(log_name(log_id))
            if folder is None:
                raise EntryLogDamaged(f"entry log {log_id:x} does not exist")
            file = self._readers[log_id] = folder.open(log_name(log_id))
        return file

    def ids(self) -> list[int]:
        """All logs, ascending."""
        return sorted({log_id for folder in self._folders.all for log_id in log_ids(folder.names())})

    def flushed_ids(self) -> list[int]:
        """The logs that never change again, ascending."""
        return [log_id for log_id in self.ids() if log_id < self._unflushed_from or self._recent.get(log_id, False)]

    def scan(self, log_id: int, accepts: Callable[[int], bool]) -> Iterable[LogRecord]:
        """The entries of a flushed log, of the ledgers that ``accepts`` is true of."""
        return scan(self._reader(log_id), accepts)

    def ledgers_of(self, log_id: int) -> dict[int, int]:
        """Bytes by ledger in a flushed log."""
        return ledgers_of(self._reader(log_id))

    def size_of(self, log_id: int) -> int:
        """Bytes of the file of a log."""
        return self._reader(log_id).size

    def remove(self, log_id: int) -> None:
        """Remove a flushed log; nothing happens if it does not exist."""
        file = self._readers.pop(log_id, None)
        if file is not None:
            file.close()
        folder = self._folders.find(log_name(log_id))
        if folder is not None:
            self._step("log.remove")
            folder.remove(log_name(log_id))


class _Reading:
    """An entry that is being read."""

    __slots__ = ("_entry_id", "_ledger_id", "_location", "_logger", "_on_read", "_size", "_token")

    def __init__(
        self, logger: EntryLogger, ledger_id: int, entry_id: int, location: int, on_read: ReadCallback, token: object
    ) -> None:
        self._logger = logger
        self._ledger_id = ledger_id
        self._entry_id = entry_id
        self._location = location
        self._on_read = on_read
        self._token = token
        self._size = 0

    def head_read(self, file: DiskFile, data: bytes | None, error: StorageError | None) -> None:
        """The beginning is there, and all of a small entry."""
        if data is None:
            self._on_read(self._token, None, error)
            return
        try:
            self._size = _checked_size(data, self._ledger_id, self._entry_id, self._location)
        except EntryLogDamaged as damage:
            self._on_read(self._token, None, damage)
            return
        entry = data[SIZE_BYTES : SIZE_BYTES + self._size]
        if len(entry) == self._size:
            self._on_read(self._token, entry, None)
            return
        tail = self._logger.buffered_tail(self._location, self._size)
        if tail is not None:
            self.entry_read(None, tail, None)
        else:
            file.read(position_of(self._location), self._size, self.entry_read, None)

    def entry_read(self, _token: object, data: bytes | None, error: StorageError | None) -> None:
        """All of it is there."""
        if data is not None and len(data) != self._size:
            where = f"entry {self._entry_id} of ledger {self._ledger_id} in entry log {log_id_of(self._location):x}"
            data, error = None, EntryLogDamaged(f"{where} is cut short: {self._size} bytes were expected")
        self._on_read(self._token, data, error)


def _checked_size(head: bytes, ledger_id: int, entry_id: int, location: int) -> int:
    """The length of the entry whose record begins with ``head``; :class:`EntryLogDamaged` if it is not the one meant."""
    where = f"entry log {log_id_of(location):x} at {position_of(location)}"
    if len(head) < RECORD_HEAD.size:
        raise EntryLogDamaged(f"{where}: the log ends before entry {entry_id} of ledger {ledger_id}")
    size, found_ledger, found_entry = RECORD_HEAD.unpack_from(head)
    if size < _ENTRY_SIZE_MIN:
        raise EntryLogDamaged(f"{where}: no entry has {size} bytes")
    if (found_ledger, found_entry) != (ledger_id, entry_id):
        raise EntryLogDamaged(
            f"{where}: expected entry {entry_id} of ledger {ledger_id}, found entry {found_entry} of ledger {found_ledger}"
        )
    checked: int = size
    return checked


def _last_id_of(folder: Folder) -> int:
    """The id given out last in a folder: what its ``lastId`` says, unless a file there has a higher one."""
    names = folder.names()
    said = decode_last_id(folder.read_small(LAST_ID_FILE) or b"")
    if not said:
        said = max(log_ids(names), default=-1)
    return max(said, last_id_in([*log_ids(names), *compacted_ids(names)]))

"""A ledger store that sorts entries before it writes them: BookKeeper's ``SortedLedgerStorage``, its default.

Entries go into a memtable. When that has its size it becomes the *snapshot*, an empty one takes its place, and the snapshot is
written in order to an interleaved store behind it. There is one snapshot at a time, and room for two memtables in all; what
does not fit is refused until the snapshot is written.

Writing a snapshot syncs nothing. Only when it has filled an entry log, or begun a new one, the log is rotated and the store
asks for a checkpoint, up to where the memtable begins that is filled now. So with little traffic journals are kept for long.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bkclient.wire.messages import LAST_ENTRY
from simbookie.storage.base import (
    CrashMode,
    DurableCallback,
    LedgerInfo,
    ReadCallback,
    StorageError,
    StorageIOError,
    WriteCacheFull,
)
from simbookie.storage.folders import Folders
from simbookie.storage.interleaved import InterleavedConfig, InterleavedLedgerStore
from simbookie.storage.known import KnownRuns
from simbookie.storage.ledger_store import LATEST, Checkpoint, OnStep, StoreOwner, no_step
from simbookie.storage.memtable import MemTable
from simbookie.storage.quirks import REPAIRED, Quirk

__all__ = ["SortedConfig", "SortedLedgerStore"]

_MIB: Final = 1 << 20
#: Bytes of a snapshot that are written in one turn of the loop.
_SLICE_BYTES: Final = _MIB
_MEMTABLE_BYTES_MAX: Final = ((1 << 31) - 2) // 2

_OnWritten = Callable[[StorageError | None], None]
"""Called when memtables are written, or could not be."""


@dataclass(frozen=True, slots=True)
class SortedConfig:
    """Limits of a :class:`SortedLedgerStore`."""

    #: Bytes that make a memtable full (``skipListSizeLimit``); twice as many are taken at most.
    memtable_bytes: int = 64 * _MIB
    interleaved: InterleavedConfig = field(default_factory=InterleavedConfig)

    def __post_init__(self) -> None:
        if not 0 < self.memtable_bytes <= _MEMTABLE_BYTES_MAX:
            raise ValueError(
                f"sorted store: memtable_bytes must be from 1 to {_MEMTABLE_BYTES_MAX}, got {self.memtable_bytes}"
            )


class SortedLedgerStore:
    """Implements :class:`simbookie.storage.ledger_store.LedgerStore`; see there for the meaning of the methods."""

    def __init__(
        self,
        folders: Folders,
        config: SortedConfig | None = None,
        *,
        index_folders: Folders | None = None,
        on_step: OnStep = no_step,
        quirks: frozenset[Quirk] = REPAIRED,
    ) -> None:
        self.config = config if config is not None else SortedConfig()
        self.interleaved = InterleavedLedgerStore(
            folders,
            self.config.interleaved,
            index_folders=index_folders,
            on_rotate=lambda: None,  # a checkpoint is due when a memtable is written, not when a log happens to be full
            on_step=on_step,
            quirks=quirks,
        )
        self._step = on_step
        self._quirks = quirks
        self._owner: StoreOwner | None = None
        self._timer: asyncio.Handle | None = None
        #: Entries that found no room in memory, and bytes written from there, since the store was made.
        self.refusals = self.written_bytes = 0
        self._forget()

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._owner = None
        self._table = MemTable(LATEST)
        self._snapshot: MemTable | None = None
        #: Where the first memtable began of those that were written to the log that is active now.
        self._written_since: Checkpoint | None = None
        #: Bytes that are taken of those that memtables may have.
        self._taken = 0
        #: Bytes of deleted ledgers that were in memory, and so make no log full, since they last had a checkpoint made.
        self._dropped = 0
        self._was_refused = False
        self._last_write_failed = False
        self._runs = KnownRuns()
        #: What is to be done with snapshots, one after the other; the first is under way.
        self._jobs: deque[Callable[[], None]] = deque()

    @property
    def asks_for_checkpoints(self) -> bool:
        """It does, where ledgers share their logs."""
        return self.interleaved.asks_for_checkpoints

    @property
    def taken_bytes(self) -> int:
        """Bytes in the memtable and the snapshot."""
        return self._taken

    @property
    def collected(self) -> tuple[InterleavedLedgerStore]:
        """The store behind the memtables."""
        return (self.interleaved,)

    # ----------------------------------------------------------------------------------------------------------- life

    def open(self, owner: StoreOwner) -> None:
        """List logs and index files."""
        self._owner = owner
        self._table = MemTable(owner.take_checkpoint())
        self.interleaved.open(owner)

    def close(self) -> None:
        """Let go of all files."""
        self.interleaved.close()
        self._forget()

    def crash(self, mode: CrashMode) -> None:
        """Forget what is in memory."""
        self.interleaved.crash(mode)
        self._forget()

    def _opened(self) -> StoreOwner:
        assert self._owner is not None, "the store is not open"
        return self._owner

    # -------------------------------------------------------------------------------------------------------- ledgers

    def ledger(self, ledger_id: int) -> LedgerInfo | None:
        """What is known of a ledger."""
        return self.interleaved.info(ledger_id, self._last_entry)

    def _last_entry(self, ledger_id: int) -> bytes | None:
        return self._in_memory(ledger_id, self._last_in_memory(ledger_id)) or self.interleaved.last_entry(ledger_id)

    def _last_in_memory(self, ledger_id: int) -> int:
        """The entry in memory that is the ledger's last; -1 if it has none there, or a higher one elsewhere."""
        newest = self._table.last(ledger_id)
        older = self._snapshot.last(ledger_id) if self._snapshot is not None else -1
        if Quirk.LAST_ENTRY_OF_NEWEST in self._quirks:
            return newest if newest >= 0 else older
        last = max(newest, older)
        return last if last >= self.interleaved.cache.last_entry(ledger_id) else -1

    def _in_memory(self, ledger_id: int, entry_id: int) -> bytes | None:
        entry = self._table.get(ledger_id, entry_id)
        if entry is None and self._snapshot is not None:
            entry = self._snapshot.get(ledger_id, entry_id)
        return entry

    def set_master_key(self, ledger_id: int, master_key: bytes) -> None:
        """Create the ledger, or give it its key."""
        self.interleaved.set_master_key(ledger_id, master_key)

    def set_fenced(self, ledger_id: int) -> bool:
        """Fence the ledger."""
        return self.interleaved.set_fenced(ledger_id)

    def set_limbo(self, ledger_id: int, *, in_limbo: bool) -> None:
        """Note whether the ledger's content is uncertain."""
        self.interleaved.set_limbo(ledger_id, in_limbo=in_limbo)

    def set_explicit_lac(self, ledger_id: int, lac: int, body: bytes) -> None:
        """Keep the packet."""
        self.interleaved.set_explicit_lac(ledger_id, lac, body)

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        """The packet kept last."""
        return self.interleaved.explicit_lac(ledger_id)

    def ledger_ids(self) -> list[int]:
        """All ledgers, ascending."""
        return self.interleaved.ledger_ids()

    def delete_ledger(self, ledger_id: int) -> None:
        """Forget the ledger, in memory too."""
        dropped = self._table.drop(ledger_id)
        if self._snapshot is not None:
            dropped += self._snapshot.drop(ledger_id)
        self._taken -= dropped
        self.interleaved.delete_ledger(ledger_id)
        self._runs.drop(ledger_id)
        self._count_dropped(dropped)

    def _count_dropped(self, size: int) -> None:
        """Journals have what was never written to a log, and would keep it until a log is full."""
        self._dropped += size
        if self.asks_for_checkpoints and self._dropped >= self.interleaved.logger.config.log_size_max:
            self._dropped = 0
            owner = self._opened()
            owner.request_checkpoint(owner.take_checkpoint())

    # -------------------------------------------------------------------------------------------------------- entries

    def add_entry(self, ledger_id: int, entry_id: int, body: bytes) -> None:
        """Put an entry into the memtable, unless it has a copy."""
        if self._table.size >= self.config.memtable_bytes or self._last_write_failed:
            due = self._take_snapshot(LATEST)
            if due is not None or self._last_write_failed:
                self._last_write_failed = False
                self._start_job(partial(self._write_snapshot_of_size, due))
        self._make_room(len(body))
        if self._table.add(ledger_id, entry_id, body):
            self._taken += len(body)
        self.interleaved.cache.needs_file(ledger_id)  # for the fence
        self.interleaved.came(ledger_id, entry_id, body)
        self._runs.came(ledger_id, entry_id)

    def _make_room(self, size: int) -> None:
        """Refuse an entry that does not fit, after having seen to it that it will."""
        if self._taken + size <= 2 * self.config.memtable_bytes:
            return
        if size > 2 * self.config.memtable_bytes:
            raise StorageIOError(f"an entry of {size} bytes never fits into memtables of {self.config.memtable_bytes}")
        if not self._jobs:  # a large entry, and a memtable that is not full yet
            self._start_job(partial(self._write_snapshot_of_size, self._take_snapshot(LATEST)))
        self._was_refused = True
        self.refusals += 1
        raise WriteCacheFull(f"{size} bytes do not fit: memtables have {self._taken} bytes that are not written")

    def read_entry(self, ledger_id: int, entry_id: int, on_read: ReadCallback, token: object) -> None:
        """Look an entry up in memory, where its newest copy is, then in the store behind."""
        if entry_id == LAST_ENTRY:
            try:
                entry = self._in_memory(ledger_id, self._last_in_memory(ledger_id))
            except StorageIOError as error:
                on_read(token, None, error)
                return
            if entry is not None:
                on_read(token, entry, None)
            else:
                self.interleaved.read_entry(ledger_id, entry_id, on_read, token)
            return
        entry = self._in_memory(ledger_id, entry_id)
        if entry is not None:
            on_read(token, entry, None)
        else:
            self.interleaved.read_entry(ledger_id, entry_id, on_read, token)

    def entry_ids(self, ledger_id: int) -> list[int]:
        """The ids of entries in memory and behind."""
        ids = dict.fromkeys(self.interleaved.entry_ids(ledger_id))
        ids.update(dict.fromkeys(self._table.entry_ids(ledger_id)))
        if self._snapshot is not None:
            ids.update(dict.fromkeys(self._snapshot.entry_ids(ledger_id)))
        return sorted(ids)

    def count_runs(self, ledger_id: int) -> int:
        """How many runs there are."""
        return self._runs.count(ledger_id, partial(self.entry_ids, ledger_id))

    def entry_runs(self, ledger_id: int) -> tuple[array[int], array[int]]:
        """The first and the last ids of the runs."""
        return self._runs.runs(ledger_id, partial(self.entry_ids, ledger_id))

    # ----------------------------------------------------------------------------------------------------- memtables

    def _take_snapshot(self, before: Checkpoint) -> Checkpoint | None:
        """Begin a new memtable, unless there is a snapshot or nothing is from before ``before``; returns where it begins."""
        if self._snapshot is not None or not self._table or self._table.checkpoint >= before:
            return None
        self._snapshot = self._table
        self._table = MemTable(self._opened().take_checkpoint())
        return self._table.checkpoint

    def _start_job(self, job: Callable[[], None]) -> None:
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._next_job_soon()

    def _next_job_soon(self) -> None:
        self._timer = asyncio.get_running_loop().call_soon(self._jobs[0])

    def _end_job(self) -> None:
        self._jobs.popleft()
        if self._jobs:
            self._next_job_soon()

    def _write_snapshot_of_size(self, checkpoint: Checkpoint | None) -> None:
        """A memtable was full, or could not be written before."""
        logger, owner = self.interleaved.logger, self._opened()
        active_before = logger.active_id
        is_shared = not logger.config.per_ledger

        def written(error: StorageError | None) -> None:
            try:
                if error is not None:
                    raise error
                if not is_shared:
                    logger.roll_full()
                elif logger.active_position > logger.config.log_size_max or logger.active_id != active_before:
                    self._roll()
                    if checkpoint is not None:
                        owner.request_checkpoint(checkpoint)
            except StorageError as failure:
                owner.flush_failed(failure)
            self._end_job()

        self._write_snapshot(LATEST, written)

    def _write_snapshot(self, before: Checkpoint, on_written: _OnWritten) -> None:
        """Write the snapshot if there is one, and if it is from before ``before``."""
        snapshot = self._snapshot
        if snapshot is None or snapshot.checkpoint >= before:
            self._last_write_failed = False
            on_written(None)
            return
        self._step("memtable.write")
        self._write_slice(snapshot, snapshot.in_order(), on_written)

    def _write_slice(
        self, snapshot: MemTable, entries: Iterator[tuple[int, int, bytes]], on_written: _OnWritten
    ) -> None:
        left = _SLICE_BYTES
        try:
            for ledger_id, entry_id, entry in entries:
                self.interleaved.process(ledger_id, entry_id, entry, rolls=False)
                left -= len(entry)
                if left <= 0:
                    self._timer = asyncio.get_running_loop().call_soon(self._write_slice, snapshot, entries, on_written)
                    return
        except StorageError as error:
            self._last_write_failed = True  # the snapshot stays, and is written from its beginning
            on_written(error)
            return
        self._step("memtable.written")
        if self._written_since is None:
            self._written_since = snapshot.checkpoint
        size = snapshot.size
        self.written_bytes += size
        self._snapshot = None
        self._taken -= size
        self._last_write_failed = False
        if self._was_refused:
            self._was_refused = False
            self._opened().room_was_made()
        on_written(None)

    def _roll(self) -> None:
        """Rotate the log that memtables were written to."""
        self._step("memtable.roll")
        self.interleaved.logger.roll()
        self._written_since = None

    def _write_memtables(self, before: Checkpoint, on_written: _OnWritten) -> None:
        """Write the snapshot and then the memtable, as far as they are from before ``before``."""

        def snapshot_written(error: StorageError | None) -> None:
            if error is not None or self._take_snapshot(before) is None:
                on_written(error)
            else:
                self._write_snapshot(before, on_written)

        self._write_snapshot(before, snapshot_written)

    # ------------------------------------------------------------------------------------------------------- flushing

    def checkpoint(self, checkpoint: Checkpoint, on_done: DurableCallback, token: object) -> None:
        """Write memtables, rotate the log they went to, then make index and rotated logs durable.

        So is the log rotated that earlier memtables went to, if they began before the checkpoint: one that was full, and filled
        no log, or one of ledgers that were deleted since.
        """

        def written(error: StorageError | None) -> None:
            since = self._written_since
            if error is None and self.asks_for_checkpoints and since is not None and since < checkpoint:
                try:
                    self._roll()
                except StorageError as failure:
                    error = failure
            self._end_job()
            if error is not None:
                on_done(token, error)
            else:
                self.interleaved.checkpoint(checkpoint, on_done, token)

        self._start_job(partial(self._write_memtables, checkpoint, written))

    def flush(self, on_done: DurableCallback, token: object) -> None:
        """Write everything, then make all of it durable."""

        def written(error: StorageError | None) -> None:
            self._end_job()
            if error is not None:
                on_done(token, error)
            else:
                self.interleaved.flush(on_done, token)

        self._start_job(partial(self._write_memtables, LATEST, written))

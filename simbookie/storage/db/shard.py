"""The part of a store with a database that has one folder: BookKeeper's ``SingleDirectoryDbLedgerStorage``.

Entries go into the *active* write cache. A flush makes that the *flushing* one, puts the other, which is empty, in its place,
and then in this order: writes the entries to the entry log, by ledger and entry; makes the log durable; writes their
locations; writes what is known of ledgers; and forgets the flushed cache. A location is never durable before its entry. One
flush runs at a time.

An entry that does not fit into the active cache is refused, and has a flush begun, unless one was begun that will make room
or has just made it. If that flush fails, entries stay in the flushing cache, and the next flush begins with them.

A read asks the active cache, the flushing one, the read cache, and only then the index and the log.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Collection, Generator, Iterator
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
from simbookie.storage.db.counts import ShardCounts
from simbookie.storage.db.disk_reads import DiskRead, StoredReadAhead
from simbookie.storage.db.key_value import OpenDatabase
from simbookie.storage.db.ledger_index import LedgerIndex
from simbookie.storage.db.location_compaction import LocationCompaction
from simbookie.storage.db.locations import LocationBatch, LocationIndex
from simbookie.storage.db.read_cache import ReadCache
from simbookie.storage.db.settings import DbConfig
from simbookie.storage.db.write_cache import WriteCache
from simbookie.storage.entry_logs.format import log_id_of
from simbookie.storage.entry_logs.logger import EntryLogger
from simbookie.storage.folders import Folders
from simbookie.storage.known import KnownLacs, KnownRuns, lac_of
from simbookie.storage.ledger_store import Checkpoint, OnStep, StoreOwner, no_step
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.storage.sequence import Sequence, WaitingStep

__all__ = ["DbShard"]

#: Bytes of a write cache that are written in one turn of the loop.
_SLICE_BYTES: Final = 1 << 20


class DbShard:
    """Has methods of :class:`simbookie.storage.ledger_store.LedgerStore`, and those of ``CollectedStore``; see there.

    ``folders`` is one folder, and ``config`` is the share of it. A shard that ``is_only`` one of its store has the marks
    written after a flush that it began itself; flushes of several do not come to one moment of the store.
    """

    def __init__(
        self,
        folders: Folders,
        config: DbConfig,
        open_database: OpenDatabase,
        *,
        is_only: bool = True,
        on_step: OnStep = no_step,
        quirks: frozenset[Quirk] = REPAIRED,
    ) -> None:
        self.config = config
        self.logger = EntryLogger(folders, config.entry_log, on_step=on_step, quirks=quirks)
        self._open_database = open_database
        self._is_only = is_only
        self._step = on_step
        self._quirks = quirks
        bytes_max = config.read_cache_bytes // 2
        if config.read_ahead_bytes > 0:
            bytes_max = min(bytes_max, config.read_ahead_bytes)
        self.read_ahead = StoredReadAhead(config.read_ahead_entries, bytes_max)
        self._opened: tuple[StoreOwner, LedgerIndex, LocationIndex] | None = None
        self._running: Sequence | None = None
        self._timer: asyncio.Handle | None = None
        self.counts = ShardCounts()
        self._forget()

    def _forget(self) -> None:
        for each in (self._running, self._timer):
            if each is not None:
                each.cancel()
        self._running = self._timer = None
        self._opened = None
        self.location_compaction: LocationCompaction | None = None
        #: What is to be done to logs and index, one after the other; the first is under way.
        self._jobs: deque[tuple[Iterator[WaitingStep], DurableCallback, object]] = deque()
        self._active = WriteCache(self.config.write_cache_bytes // 2, self._quirks)
        self._flushing = WriteCache(self.config.write_cache_bytes // 2, self._quirks)
        self.read_cache = ReadCache(self.config.read_cache_bytes)
        self._lacs = KnownLacs(self._quirks)
        self._runs = KnownRuns()
        #: A full cache has begun a flush, which has not made room yet; a flush has made room, and is not done.
        self._is_triggered = self._is_ongoing = False
        self._was_refused = False
        self._flush_error: StorageError | None = None
        #: The moment that the last flush covers, and one that only the marks are to be written for.
        self._covered: Checkpoint | None = None
        self._to_mark: Checkpoint | None = None

    # ----------------------------------------------------------------------------------------------------------- life

    def open(self, owner: StoreOwner) -> None:
        """Open the databases and list the logs."""
        self.logger.open()
        ledgers = self._open_database("ledgers")
        try:
            index = LedgerIndex(ledgers, self._quirks)
            locations = LocationIndex(self._open_database("locations"), self.config.batch_rows_max, self._quirks)
        except StorageError:
            ledgers.close()
            raise
        self._opened = owner, index, locations
        self.location_compaction = LocationCompaction("locations", locations.database)

    @property
    def _owner(self) -> StoreOwner:
        assert self._opened is not None, "the store is not open"
        return self._opened[0]

    @property
    def ledgers(self) -> LedgerIndex:
        """What is known of ledgers."""
        assert self._opened is not None, "the store is not open"
        return self._opened[1]

    @property
    def locations(self) -> LocationIndex:
        """Where entries are."""
        assert self._opened is not None, "the store is not open"
        return self._opened[2]

    def close(self) -> None:
        """Let go of all files."""
        self.logger.close()
        self.ledgers.close()
        self.locations.close()
        self._forget()

    def crash(self, mode: CrashMode) -> None:
        """Forget what is in memory."""
        self.logger.crash(mode)
        if self._opened is not None:
            self.ledgers.crash()
            self.locations.crash()
        self._forget()

    @property
    def write_caches(self) -> tuple[WriteCache, WriteCache]:
        """The active one, and the one that is being flushed."""
        return self._active, self._flushing

    # -------------------------------------------------------------------------------------------------------- ledgers

    def ledger(self, ledger_id: int) -> LedgerInfo | None:
        """What is known of a ledger; its LAC is that of its last entry, or a higher one that came since or is explicit."""
        record = self.ledgers.get(ledger_id)
        if record is None:
            return None

        return LedgerInfo(
            record.master_key,
            record.fenced,
            record.in_limbo,
            self._lacs.get(ledger_id, self._last_entry, record.explicit_lac),
        )

    def _last_entry(self, ledger_id: int) -> bytes | None:
        entry_id = self._last_id(ledger_id)
        if entry_id < 0:
            return None
        entry = self._in_memory(ledger_id, entry_id)
        if entry is None:
            entry = self.logger.read_now(ledger_id, entry_id, self.locations.get(ledger_id, entry_id))
        return entry

    def _last_id(self, ledger_id: int) -> int:
        newest, older = self._active.last(ledger_id), self._flushing.last(ledger_id)
        if Quirk.LAST_ENTRY_OF_NEWEST in self._quirks and max(newest, older) >= 0:
            return newest if newest >= 0 else older
        return max(newest, older, self.locations.last_entry(ledger_id))

    def _in_memory(self, ledger_id: int, entry_id: int) -> bytes | None:
        entry = self._active.get(ledger_id, entry_id)
        return entry if entry is not None else self._flushing.get(ledger_id, entry_id)

    def set_master_key(self, ledger_id: int, master_key: bytes) -> None:
        """Create the ledger, or give it its key."""
        self.ledgers.set_master_key(ledger_id, master_key)

    def set_fenced(self, ledger_id: int) -> bool:
        """Fence the ledger."""
        return self.ledgers.set_fenced(ledger_id)

    def set_limbo(self, ledger_id: int, *, in_limbo: bool) -> None:
        """Note whether the ledger's content is uncertain."""
        self.ledgers.set_limbo(ledger_id, in_limbo=in_limbo)

    def set_explicit_lac(self, ledger_id: int, lac: int, body: bytes) -> None:
        """Keep the packet."""
        self.ledgers.set_explicit_lac(ledger_id, body)
        self._lacs.load(ledger_id, body)
        self._lacs.rose(ledger_id, lac)

    def explicit_lac(self, ledger_id: int) -> bytes | None:
        """The packet kept last."""
        record = self.ledgers.get(ledger_id)
        assert record is not None, "the ledger exists"
        return self._lacs.load(ledger_id, record.explicit_lac)

    def ledger_ids(self) -> list[int]:
        """All ledgers, ascending."""
        return self.ledgers.ledger_ids()

    def delete_ledger(self, ledger_id: int) -> None:
        """Forget the ledger; the index does with the next flush, and the logs when they are compacted."""
        self._active.drop(ledger_id)
        if Quirk.RECREATED_LOCATIONS_REMOVED not in self._quirks:
            self._flushing.drop(ledger_id)
        self.locations.delete(ledger_id)
        self.ledgers.delete(ledger_id)
        self.read_cache.drop(ledger_id)
        self._lacs.drop(ledger_id)
        self._runs.drop(ledger_id)

    # -------------------------------------------------------------------------------------------------------- entries

    def add_entry(self, ledger_id: int, entry_id: int, body: bytes) -> None:
        """Put an entry into the active cache."""
        if not self._active.put(ledger_id, entry_id, body):
            self._refuse(len(body))
        if Quirk.OLD_COPIES_CACHED not in self._quirks:
            self.read_cache.drop_entry(ledger_id, entry_id)
        self._lacs.rose(ledger_id, lac_of(body))
        self._runs.came(ledger_id, entry_id)

    def _refuse(self, size: int) -> None:
        """An entry did not fit: see to it that it will."""
        cache_bytes = self.config.write_cache_bytes // 2
        if size > cache_bytes and Quirk.FAILED_ADD_TAKES_ROOM not in self._quirks:
            raise StorageIOError(f"an entry of {size} bytes never fits into a write cache of {cache_bytes}")
        self._was_refused = True
        self.counts.refusals += 1
        self._trigger_flush()
        error, self._flush_error = self._flush_error, None
        if error is not None:
            raise StorageIOError(f"the write cache is full and could not be flushed: {error}")
        raise WriteCacheFull(f"{size} bytes do not fit: the write cache has {self._active.size} of {cache_bytes}")

    def _trigger_flush(self) -> None:
        """Begin a flush that makes room, unless one does already, or has."""
        if not (self._is_triggered or self._is_ongoing):
            self._is_triggered = True
            self._queue(self._flush_steps(), self._flushed_by_itself, None)

    def _flushed_by_itself(self, _token: object, error: StorageError | None) -> None:
        if error is None and self._is_only and self._covered is not None:
            self._to_mark = self._covered
            self._owner.request_checkpoint(self._covered)

    def _make_room_known(self) -> None:
        if self._was_refused:
            self._was_refused = False
            self._owner.room_was_made()

    def read_entry(self, ledger_id: int, entry_id: int, on_read: ReadCallback, token: object) -> None:
        """Look an entry up, from the newest place to the oldest."""
        is_last = entry_id == LAST_ENTRY
        try:
            if is_last:
                entry_id = self._last_id(ledger_id)
            entry = self._in_memory(ledger_id, entry_id)
            self.counts.write_cache_reads[entry is not None] += 1
            if entry is None and not is_last:
                entry = self.read_cache.get(ledger_id, entry_id)
            location = self.locations.get(ledger_id, entry_id) if entry is None and entry_id >= 0 else 0
        except StorageIOError as error:
            on_read(token, None, error)
            return
        if location == 0:
            on_read(token, entry, None)
        elif is_last:
            self.logger.read(ledger_id, entry_id, location, on_read, token)
        else:
            DiskRead(self.logger, self.read_ahead, self._keep_read, ledger_id, on_read, token).start(entry_id, location)

    def _keep_read(self, ledger_id: int, entry_id: int, location: int, entry: bytes) -> None:
        """Put what was read into the read cache, if it is what a read would find now."""
        if Quirk.OLD_COPIES_CACHED not in self._quirks and (
            self._opened is None
            or self._in_memory(ledger_id, entry_id) is not None
            or self.locations.get(ledger_id, entry_id) != location
        ):
            return
        self.read_cache.put(ledger_id, entry_id, entry)

    def entry_ids(self, ledger_id: int) -> list[int]:
        """The ids of entries in memory and in the index."""
        ids = dict.fromkeys(self.locations.entry_ids(ledger_id))
        ids.update(dict.fromkeys(self._flushing.entry_ids(ledger_id)))
        ids.update(dict.fromkeys(self._active.entry_ids(ledger_id)))
        return sorted(ids)

    def count_runs(self, ledger_id: int) -> int:
        """How many runs there are."""
        return self._runs.count(ledger_id, partial(self.entry_ids, ledger_id))

    def entry_runs(self, ledger_id: int) -> tuple[array[int], array[int]]:
        """The first and the last ids of the runs."""
        return self._runs.runs(ledger_id, partial(self.entry_ids, ledger_id))

    # ------------------------------------------------------------------------------------------------------- flushing

    def checkpoint(self, checkpoint: Checkpoint, on_done: DurableCallback, token: object) -> None:
        """Flush, unless the last flush covers ``checkpoint``."""

        def steps() -> Iterator[WaitingStep]:
            if not self._is_covered(checkpoint):
                yield from self._flush_steps()

        self._queue(steps(), on_done, token)

    def _is_covered(self, checkpoint: Checkpoint) -> bool:
        if self._covered is None:
            return False
        if checkpoint == self._to_mark:
            self._to_mark = None
            return True
        if Quirk.CHECKPOINTS_COMPARED_BY_FIRST in self._quirks:
            return self._covered > checkpoint
        # not if they are equal: what is not journalled does not move a checkpoint
        return self._covered != checkpoint and all(
            covered >= wanted for covered, wanted in zip(self._covered, checkpoint, strict=False)
        )

    def flush(self, on_done: DurableCallback, token: object) -> None:
        """Make everything durable."""
        self._queue(self._flush_steps(), on_done, token)

    def _flush_steps(self) -> Iterator[WaitingStep]:
        moment, began = self._owner.take_checkpoint(), asyncio.get_running_loop().time()
        removed: list[int] = []
        if self._active or Quirk.IDLE_CHECKPOINT_SKIPPED not in self._quirks:
            has_failed = bool(self._flushing) and Quirk.FAILED_FLUSH_FORGOTTEN not in self._quirks
            if has_failed:
                removed += yield from self._flush_cache()
                self._flushing.clear()
            if self._active:
                self._swap()
                removed += yield from self._flush_cache()
            elif not has_failed:
                removed += yield from self._write_locations(self.locations.begin())
            self._step("flush.ledgers")
            yield self.ledgers.flush
            if self._is_ongoing:
                self._flushing.clear()
            self._covered = moment
            self.counts.flush_times.add(asyncio.get_running_loop().time() - began)
            self._step("flush.done")
        if Quirk.RECREATED_LOCATIONS_REMOVED in self._quirks:
            removed = self.locations.deleted()
            yield self.locations.remove_late
        self._step("flush.cleanup")
        yield partial(self.ledgers.remove_deleted, removed)

    def _swap(self) -> None:
        self._step("flush.swap")
        self.counts.flushed_bytes += self._active.size
        self._active, self._flushing = self._flushing, self._active
        self._is_ongoing = True
        self._is_triggered = False
        self._make_room_known()

    def _flush_cache(self) -> Generator[WaitingStep, None, list[int]]:
        """Make the entries of the flushing cache durable, then their locations; returns the ledgers that have none any more."""
        batch = self.locations.begin()
        self.logger.hold()
        self._step("flush.entries")
        yield partial(self._write_slice, self._flushing.in_order(), batch)
        self._step("flush.logs")
        yield lambda go_on: self.logger.flush(go_on, None)
        removed = yield from self._write_locations(batch)
        self.logger.release()
        return removed

    def _write_locations(self, batch: LocationBatch) -> Generator[WaitingStep, None, list[int]]:
        removed = batch.removed
        self._step("flush.locations")
        yield partial(self.locations.write, batch)
        return removed

    def _write_slice(
        self, entries: Iterator[tuple[int, int, bytes]], batch: LocationBatch, go_on: DurableCallback
    ) -> None:
        left = _SLICE_BYTES
        commits_early = Quirk.LOCATIONS_BEFORE_LOG in self._quirks
        try:
            for ledger_id, entry_id, entry in entries:
                batch.add(ledger_id, entry_id, self.logger.add(ledger_id, entry))
                if commits_early and batch.is_full:
                    self.locations.write(batch, partial(self._committed, entries, batch, go_on))
                    return
                left -= len(entry)
                if left <= 0:
                    self._timer = asyncio.get_running_loop().call_soon(self._write_slice, entries, batch, go_on)
                    return
        except StorageError as error:
            go_on(None, error)
            return
        go_on(None, None)

    def _committed(
        self,
        entries: Iterator[tuple[int, int, bytes]],
        batch: LocationBatch,
        go_on: DurableCallback,
        _token: object,
        error: StorageError | None,
    ) -> None:
        if error is not None:
            go_on(None, error)
        else:
            self._write_slice(entries, batch, go_on)

    def move_entries(
        self,
        log_id: int,
        ledger_ids: Collection[int],  # noqa: ARG002  a sync covers the whole database, and what was found in it
        moved: list[tuple[int, int, int]],
        on_done: DurableCallback,
        token: object,
        *,
        are_durable: bool = False,
    ) -> None:
        """Have entries of a log found where they were copied to: ``(ledger, entry, location)``.

        Not while a flush runs, which may be about to write older locations. The copies are made durable first, unless they
        are, then the locations, but for those that do not point to the log any more.
        """

        def steps() -> Iterator[WaitingStep]:
            if not are_durable:
                yield lambda go_on: self.logger.flush(go_on, None)
            self._step("move.locations")
            still = [row for row in moved if self._is_in(log_id, row)]
            yield partial(self.locations.move, still)

        self._queue(steps(), on_done, token)

    def has_ledger(self, ledger_id: int) -> bool:
        """Whether a ledger exists."""
        return ledger_id in self.ledgers

    def places(self, ledger_id: int, entry_id: int) -> tuple[int, ...]:
        """Where in the logs an entry is; what is only in a write cache is not there yet."""
        location = self.location(ledger_id, entry_id)
        return (location,) if location else ()

    def location(self, ledger_id: int, entry_id: int) -> int:
        """Where in the logs an entry is, 0 for nowhere."""
        return self.locations.get(ledger_id, entry_id) if entry_id >= 0 and ledger_id >= 0 else 0

    def _is_in(self, log_id: int, row: tuple[int, int, int]) -> bool:
        location = self.location(row[0], row[1])
        return location != 0 and log_id_of(location) == log_id

    def _queue(self, steps: Iterator[WaitingStep], on_done: DurableCallback, token: object) -> None:
        """Begin when what was asked for before is done."""
        self._jobs.append((steps, on_done, token))
        if len(self._jobs) == 1:
            self._running = Sequence(steps, self._ended, None)

    def _ended(self, _token: object, error: StorageError | None) -> None:
        self._is_ongoing = False
        _, on_done, token = self._jobs.popleft()
        if Quirk.FAILED_ADD_TAKES_ROOM not in self._quirks:
            self._is_triggered = any(job[1] == self._flushed_by_itself for job in self._jobs)
        self._running = Sequence(self._jobs[0][0], self._ended, None) if self._jobs else None
        on_done(token, error)
        if not self._was_refused or self._opened is None:
            return
        if error is None:
            self._trigger_flush()  # for what was refused while this one was under way
        elif not self._is_triggered:
            self._flush_error = error
            self._make_room_known()  # there is none, but who waits has to know

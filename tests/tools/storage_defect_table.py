"""The defects that ``tests.tools.storage_defects`` plants: what is replaced, by what, and in which mechanism of the storage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from simbookie.storage.checkpoints import Checkpoints
from simbookie.storage.compaction.collector import EntryLogCollector
from simbookie.storage.compaction.copying import Copying
from simbookie.storage.compaction.plan import CompactionSchedule, LogUsage
from simbookie.storage.entry_logs import logger as loggers
from simbookie.storage.entry_logs.allocator import LogAllocator
from simbookie.storage.entry_logs.compaction_log import CompactionLog
from simbookie.storage.entry_logs.direct_log import DirectLog
from simbookie.storage.entry_logs.log import WritableLog
from simbookie.storage.entry_logs.logger import EntryLogger
from simbookie.storage.entry_logs.scan import ledgers_of
from simbookie.storage.indexes.index_file import IndexHeader
from simbookie.storage.indexes.ledger_cache import LedgerCache
from simbookie.storage.interleaved import InterleavedLedgerStore
from simbookie.storage.journal import mark as marks
from simbookie.storage.journal import replay as replays
from simbookie.storage.journal.file import JournalFile
from simbookie.storage.journal.journal import Journal
from simbookie.storage.journal.records import file_name
from simbookie.storage.journal.replay import JournalReplay
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.known import KnownLacs
from simbookie.storage.memtable import MemTable
from simbookie.storage.replayer import Replayer
from simbookie.storage.sorted import SortedLedgerStore
from tests.tools.db_defect_table import DB_DEFECTS
from tests.tools.storage_defect import Change, StorageDefect


def _soon(on_done: Callable[[Any, Any], None], token: object = None) -> None:
    asyncio.get_running_loop().call_soon(on_done, token, None)


def _nothing(*_arguments: Any, **_options: Any) -> None:
    """Do nothing."""


# ------------------------------------------------------------------------------------------------------------- journal

_sync_files = Journal._sync_files
_journal_append = Journal.append
_apply = Replayer._apply


def _acknowledged_before_sync(self: Journal, files: list[JournalFile]) -> None:
    files.clear()
    self._file_synced(files, None)


def _only_newest_synced(self: Journal, files: list[JournalFile]) -> None:
    del files[:-1]
    _sync_files(self, files)


def _replay_from_next_file(self: JournalReplay) -> Iterator[Any]:
    start = self.mark
    for file_id in replays.file_ids(self.folder):
        if file_id > start.file_id:
            yield from self._file(file_id, 0)


def _apply_without(kind: str) -> Any:
    def apply(self: Replayer, record: Any) -> None:
        if record.kind.name != kind:
            _apply(self, record)

    return apply


def _append_without(entry_id: int) -> Any:
    def append(
        self: Journal, ledger_id: int, number: int, body: bytes, on_durable: Any, token: Any, *rest: Any
    ) -> None:
        if number == entry_id:
            if on_durable is not None:
                _soon(on_durable, token)
            return
        _journal_append(self, ledger_id, number, body, on_durable, token, *rest)

    return append


def _remove_all_but_newest(folder: Any, _mark: Any, _backups: int, on_step: Any = _nothing) -> list[int]:
    gone = replays.file_ids(folder)[:-1]
    for file_id in gone:
        on_step("journal.remove")
        folder.remove(file_name(file_id))
    return gone


def _stale_replayed(self: Replayer, ledger_id: int, packet: bytes) -> None:
    if len(packet) >= 16 and self._store.explicit_lac(ledger_id) is None:
        self._store.set_explicit_lac(ledger_id, int.from_bytes(packet[8:16]), packet)


# --------------------------------------------------------------------------------------------------- marks, checkpoints

_take_checkpoint = JournaledStorage.take_checkpoint


def _mark_unsynced(self: Any, folder: Any, on_done: Any) -> None:
    folder.write_small(self._name, self._data)
    self.written += 1
    on_done(None, None)


def _marks_before_store(self: Checkpoints) -> None:
    if self._running is not None or not self._jobs or not self._is_alive:
        return
    job = self._running = self._jobs.popleft()
    self._stored(job, None)


def _errors_forgotten(self: Checkpoints, job: Any, _error: Any) -> None:
    if self._is_alive:
        self._step("checkpoint.marks")
        self._write_mark(job, 0)


_write_mark = Checkpoints._write_mark


def _mark_moved_back(self: Checkpoints, job: Any, index: int) -> None:
    """Of every three checkpoints the first ends last."""
    if index == 0:
        taken = vars(self).setdefault("_taken", [])
        taken.append(job.checkpoint)
        if len(taken) % 3 == 0:
            job = replace(job, checkpoint=taken[-3])
            self.persisted = [type(mark)(0, 0) for mark in self.persisted]
    _write_mark(self, job, index)


def _checkpoint_of_now(self: JournaledStorage, checkpoint: Any) -> None:
    def run() -> None:
        assert self.checkpoints is not None
        self.checkpoints.request(self.take_checkpoint())
        self.checkpoints.run()

    if not self._is_closing:
        self._timers["late"] = asyncio.get_running_loop().call_later(0.004, run)


def _mark_of_end(self: JournaledStorage) -> Any:
    told = _take_checkpoint(self)
    return tuple((file_id, offset + 4_096) for file_id, offset in told)


# -------------------------------------------------------------------------------------------------------- logs, indexes

_put = LedgerCache.put
_encode_header = IndexHeader.encode


def _index_unsynced(self: LedgerCache, _ledger_id: int, on_done: Any) -> None:
    self._unsynced.pop(_ledger_id, None)
    _soon(on_done)


def _only_headers_written(self: LedgerCache, ledger_id: int) -> None:
    self._write_header(ledger_id, self._handle(ledger_id))
    self._dirty.pop(ledger_id, None)
    self._note_write(ledger_id)


def _shifted_location(self: LedgerCache, ledger_id: int, entry_id: int, location: int) -> None:
    _put(self, ledger_id, entry_id, location + (1 if entry_id == 3 else 0))


def _unflushed_sync(self: EntryLogger, log: WritableLog, on_done: Any, *, is_complete: bool) -> None:
    self._step("log.sync")
    log.unsynced = 0
    log.file.sync(self._synced, (log, is_complete, on_done))


def _never_synced(self: EntryLogger, log: WritableLog, on_done: Any, *, is_complete: bool) -> None:
    log.flush()
    self._synced((log, is_complete, on_done), None)


def _fence_of_headers_lost(self: IndexHeader) -> bytes:
    was, self.fenced = self.fenced, False
    try:
        return _encode_header(self)
    finally:
        self.fenced = was


def _ids_from_zero(self: EntryLogger) -> None:
    self._unflushed_from = 1 << 30


def _reuses_ids(self: LogAllocator) -> Any:
    folder = self._folders.choose()
    self._last_id += 1
    name = f"{self._last_id:x}.log"
    folder.discard(name)
    return folder, self._last_id


# --------------------------------------------------------------------------------- a log for each ledger, direct logs

_rotate_log = EntryLogger._rotate
_seal_direct = DirectLog.seal


def _actives_left(self: EntryLogger, on_done: Any, token: object) -> None:
    self._flush([], on_done, token)


def _evicted_forgotten(self: EntryLogger, slot: int, log: WritableLog) -> None:
    if len(self.active) > self.config.active_logs_max:
        self.active.drop(slot)
        log._buffer.clear()
    else:
        _rotate_log(self, slot, log)


def _one_of_two_flushed(self: EntryLogger, on_done: Any, token: object) -> None:
    self._flush(self.active.all[1:], on_done, token)


def _unaligned(self: DirectLog) -> None:
    size = -(-len(self._buffer) // 4096) * 4096
    self.file.write(self._buffer_start, self._buffer.ljust(size, b"\xf0"))
    self._buffer_start += size
    self._buffer.clear()


def _whole_blocks_only(self: DirectLog) -> None:
    whole = len(self._buffer) // 4096 * 4096
    if whole:
        self.file.write(self._buffer_start, self._buffer[:whole])
        self._buffer_start += whole
        del self._buffer[:whole]


def _map_believed(file: Any, *, believes_empty: bool) -> dict[int, int]:
    del believes_empty
    return ledgers_of(file, believes_empty=True)


def _told_first(self: DirectLog) -> None:
    self._tells_first = True
    _seal_direct(self)


# ----------------------------------------------------------------------------------------------------------- compaction

_move = InterleavedLedgerStore.move_entries
_usage_keep = LogUsage.keep


def _committed_before_sync(self: CompactionLog, on_done: Any) -> None:
    log, self._log = self._log, None
    assert log is not None
    log.seal()
    log.file.close()
    on_done(None, None)


def _half_written_taken(self: EntryLogger) -> list[CompactionLog]:
    from simbookie.storage.entry_logs import format as names  # noqa: PLC0415

    found = []
    for folder in self._folders.all:
        for name in folder.names():
            ids = names.parse_compacted_name(name)
            if names.is_compacting(name):
                log_id = int(name.partition(".")[0], 16)
                others = [each for each in self.flushed_ids() if each != log_id]
                if others:
                    folder.rename(name, names.compacted_name(log_id, others[0]))
                    found.append(CompactionLog(log_id, others[0], folder, None))
            elif ids is not None:
                found.append(CompactionLog(*ids, folder, None))
    return found


def _removed_before_index(
    self: InterleavedLedgerStore,
    log_id: int,
    _: Any,
    moved: Any,
    on_done: Any,
    token: object,
    *,
    are_durable: bool = False,
) -> None:
    def set_locations(_token: object, error: Any) -> None:
        for ledger_id, entry_id, location in moved:
            if ledger_id in self.cache:
                self.cache.move(ledger_id, entry_id, log_id, location)
        on_done(token, error)

    if are_durable:
        _soon(set_locations)
    else:
        self.logger.flush(set_locations, None)


def _moved_unsynced(self: InterleavedLedgerStore, *arguments: Any, are_durable: bool = False) -> None:
    del are_durable
    _move(self, *arguments, are_durable=True)


def _nothing_moved(
    self: InterleavedLedgerStore, log_id: int, ledger_ids: Any, _: Any, *arguments: Any, are_durable: bool = False
) -> None:
    _move(self, log_id, ledger_ids, [], *arguments, are_durable=are_durable)


def _found_is_durable(_self: LedgerCache, _ledger_ids: Any) -> None:
    return


def _synced_only(self: LedgerCache, ledger_id: int, _file: object) -> None:
    self._note_write(ledger_id)
    self._doubted.discard(ledger_id)


def _every_second(self: Copying, record: Any) -> bool:
    alive = here(self, record)
    return alive and record.entry[15] % 2 == 0  # the lowest byte of the entry id


here = Copying._is_alive


def _keeps_lowest(self: LogUsage, exists: Callable[[int], bool]) -> None:
    _usage_keep(self, lambda ledger_id: exists(ledger_id) and ledger_id % 4 != 3)


def _both_kinds(self: EntryLogCollector, *, is_forced: bool, kinds: Any = None) -> Iterator[Any]:
    yield from steps(self, is_forced=is_forced, kinds=kinds)
    if is_forced:
        yield from steps(self, is_forced=is_forced, kinds=kinds)


steps = EntryLogCollector._steps


def _minor_timer_kept(self: CompactionSchedule, kind: Any, now: float) -> None:
    if kind.name == "MAJOR":
        self.last_major = now
    else:
        self.last_minor = now


# -------------------------------------------------------------------------------------------------------------- stores

_memtable_order = MemTable.in_order
_drop_table = SortedLedgerStore._take_snapshot
_sorted_checkpoint = SortedLedgerStore.checkpoint
_fence_storage = JournaledStorage.fence


def _reversed(self: MemTable) -> Iterator[tuple[int, int, bytes]]:
    return iter(list(_memtable_order(self))[::-1])


def _first_only(self: MemTable) -> Iterator[tuple[int, int, bytes]]:
    return iter(list(_memtable_order(self))[:-1])


def _table_marked_late(self: SortedLedgerStore, before: Any) -> Any:
    due = _drop_table(self, before)
    return None if due is None else ((1 << 40, 0),) * len(due)


def _no_room_refused(self: SortedLedgerStore, size: int) -> None:
    del self, size


def _snapshot_unread(self: SortedLedgerStore, ledger_id: int, entry_id: int) -> bytes | None:
    return self._table.get(ledger_id, entry_id)


def _earlier_memtables_left(self: SortedLedgerStore, checkpoint: Any, on_done: Any, token: object) -> None:
    if not self._table and self._snapshot is None:
        self._written_since = None
    _sorted_checkpoint(self, checkpoint, on_done, token)


def _flush_without_memtable(self: SortedLedgerStore, on_done: Any, token: object) -> None:
    self.interleaved.flush(on_done, token)


def _fence_acknowledged_at_once(self: JournaledStorage, ledger_id: int, on_durable: Any, token: object) -> None:
    _fence_storage(self, ledger_id, lambda *_: None, None)
    _soon(on_durable, token)


def _lac_of_last(self: KnownLacs, _ledger_id: int, lac: int) -> None:
    self._lacs[_ledger_id] = lac


def _flush_index_only(self: InterleavedLedgerStore, on_done: Any, token: object) -> None:
    self._flush(_soon, on_done, token)


def _checkpoint_index_only(self: InterleavedLedgerStore, _checkpoint: Any, on_done: Any, token: object) -> None:
    self._flush(_soon, on_done, token)


def _flush_logs_only(self: InterleavedLedgerStore, on_done: Any, token: object) -> None:
    self.logger.flush(on_done, token)


def _collects_unlisted(self: Any) -> Any:
    async def collect() -> list[int]:
        return [each for each in self._bookie.ledger_ids() if self._bookie.delete_ledger(each)]

    return collect()


def _table() -> Mapping[str, tuple[str, tuple[Change, ...], str]]:
    from simbookie.garbage import GarbageCollector  # noqa: PLC0415

    i, s = "interleaved", "sorted"
    return {
        "acknowledged before the sync": ("journal", ((Journal, "_sync_files", _acknowledged_before_sync),), i),
        "only the newest file of a roll is synced": ("journal", ((Journal, "_sync_files", _only_newest_synced),), i),
        "replay begins behind the marked file": ("replay", ((JournalReplay, "__iter__", _replay_from_next_file),), i),
        "entries are not replayed": ("replay", ((Replayer, "_apply", _apply_without("ENTRY")),), i),
        "fences are not replayed": ("replay", ((Replayer, "_apply", _apply_without("FENCE")),), i),
        "keys are not replayed": ("replay", ((Replayer, "_apply", _apply_without("KEY")),), i),
        "explicit LACs are not replayed": ("replay", ((Replayer, "_apply", _apply_without("EXPLICIT_LAC")),), i),
        "an explicit LAC is replayed over none only": (
            "replay",
            ((Replayer, "_apply_explicit_lac", _stale_replayed),),
            i,
        ),
        "fences are not journalled": ("journal", ((Journal, "append", _append_without(-8192)),), i),
        "keys are not journalled": ("journal", ((Journal, "append", _append_without(-4096)),), i),
        "explicit LACs are not journalled": ("journal", ((Journal, "append", _append_without(-32768)),), i),
        "fences are acknowledged at once": ("journal", ((JournaledStorage, "fence", _fence_acknowledged_at_once),), i),
        "marked journals are removed": (
            "journal",
            (
                (replays, "remove_old_files", _remove_all_but_newest),
                (_checkpoints(), "remove_old_files", _remove_all_but_newest),
            ),
            i,
        ),
        "replayed files are not synced": ("replay", ((Replayer, "syncs", lambda _: iter(())),), i),
        "marks are not synced": ("marks", ((marks._Copies, "_write", _mark_unsynced),), i),
        "marks are written before the store is flushed": (
            "checkpoint",
            ((Checkpoints, "run", _marks_before_store),),
            i,
        ),
        "a failed flush moves the mark": ("checkpoint", ((Checkpoints, "_stored", _errors_forgotten),), i),
        "a checkpoint is taken when it is made": (
            "checkpoint",
            ((JournaledStorage, "request_checkpoint", _checkpoint_of_now),),
            i,
        ),
        "an older checkpoint moves the mark back": ("checkpoint", ((Checkpoints, "_write_mark", _mark_moved_back),), s),
        "marks are ahead": ("checkpoint", ((JournaledStorage, "take_checkpoint", _mark_of_end),), i),
        "index files are not synced": ("index", ((LedgerCache, "_start_sync", _index_unsynced),), i),
        "index pages are not written": ("index", ((LedgerCache, "_write", _only_headers_written),), i),
        "index headers lose the fence": ("index", ((IndexHeader, "encode", _fence_of_headers_lost),), i),
        "a location is off by one": ("index", ((LedgerCache, "put", _shifted_location),), i),
        "copies replace durable ones at once": ("index", ((LedgerCache, "put", _put_at_once),), i),
        "entry logs are synced without their buffers": ("entry log", ((EntryLogger, "_sync_log", _unflushed_sync),), i),
        "entry logs are not synced": ("entry log", ((EntryLogger, "_sync_log", _never_synced),), i),
        "ids of entry logs begin anew": (
            "entry log",
            ((LogAllocator, "_next_id", _reuses_ids), (EntryLogger, "open", _ids_from_zero)),
            i,
        ),
        "a checkpoint leaves the logs that are written": (
            "log per ledger",
            ((EntryLogger, "checkpoint", _actives_left),),
            "interleaved-per-ledger",
        ),
        "a log that others displace is forgotten": (
            "log per ledger",
            ((EntryLogger, "_rotate", _evicted_forgotten),),
            "sorted-per-ledger",
        ),
        "a flush leaves one log of those that are written": (
            "log per ledger",
            ((EntryLogger, "flush", _one_of_two_flushed),),
            "db-per-ledger",
        ),
        "locations do not count the padding of blocks": (
            "direct log",
            ((DirectLog, "flush", _unaligned),),
            "db-direct",
        ),
        "the last block is not written before it is full": (
            "direct log",
            ((DirectLog, "flush", _whole_blocks_only),),
            "db-direct",
        ),
        "a map that is not there is believed": (
            "direct log",
            (
                (DirectLog, "seal", _told_first),
                (loggers, "ledgers_of", _map_believed),
            ),
            "db-direct",
        ),
        "a checkpoint syncs the index only": (
            "flush",
            ((InterleavedLedgerStore, "checkpoint", _checkpoint_index_only),),
            i,
        ),
        "a flush syncs the index only": ("flush", ((InterleavedLedgerStore, "flush", _flush_index_only),), i),
        "a flush syncs the logs only": ("flush", ((InterleavedLedgerStore, "flush", _flush_logs_only),), i),
        "memtables are written backwards": ("memtable", ((MemTable, "in_order", _reversed),), s),
        "the last entry of a memtable is not written": ("memtable", ((MemTable, "in_order", _first_only),), s),
        "a memtable begins too late": ("memtable", ((SortedLedgerStore, "_take_snapshot", _table_marked_late),), s),
        "memtables grow without bound": ("memtable", ((SortedLedgerStore, "_make_room", _no_room_refused),), s),
        "snapshots are not read": ("memtable", ((SortedLedgerStore, "_in_memory", _snapshot_unread),), s),
        "a flush leaves the memtable": ("memtable", ((SortedLedgerStore, "flush", _flush_without_memtable),), s),
        "a checkpoint leaves what earlier memtables wrote": (
            "memtable",
            ((SortedLedgerStore, "checkpoint", _earlier_memtables_left),),
            s,
        ),
        "known LACs fall": ("LAC", ((KnownLacs, "rose", _lac_of_last),), i),
        "transaction: the index leads there before the sync": (
            "compaction",
            ((CompactionLog, "flush", _committed_before_sync),),
            i,
        ),
        "transaction: a half-written log is taken at restart": (
            "compaction",
            ((EntryLogger, "unfinished_compactions", _half_written_taken),),
            i,
        ),
        "transaction: the log is named as complete before the sync": (
            "compaction",
            ((CompactionLog, "flush", _complete_before_sync), (CompactionLog, "mark_compacted", _complete_already)),
            i,
        ),
        "the source goes before the index is durable": (
            "compaction",
            ((InterleavedLedgerStore, "move_entries", _removed_before_index),),
            i,
        ),
        "copies are not synced before the index leads there": (
            "compaction",
            ((InterleavedLedgerStore, "move_entries", _moved_unsynced),),
            i,
        ),
        "what was found at the start counts as durable": (
            "compaction",
            ((LedgerCache, "doubt", _found_is_durable),),
            i,
        ),
        "what was found at the start is synced, and not written again": (
            "compaction",
            ((LedgerCache, "_write_again", _synced_only),),
            i,
        ),
        "copies are not found": ("compaction", ((InterleavedLedgerStore, "move_entries", _nothing_moved),), i),
        "every second entry is copied": ("compaction", ((Copying, "_is_alive", _every_second),), i),
        "ledgers that exist count as dead": ("compaction", ((LogUsage, "keep", _keeps_lowest),), i),
        "a run compacts twice": ("compaction", ((EntryLogCollector, "_steps", _both_kinds),), i),
        "major compaction keeps the timer of minor": (
            "compaction",
            ((CompactionSchedule, "ran", _minor_timer_kept),),
            i,
        ),
        "ledgers with metadata are collected": ("garbage", ((GarbageCollector, "collect", _collects_unlisted),), i),
    }


def _checkpoints() -> Any:
    from simbookie.storage import checkpoints  # noqa: PLC0415

    return checkpoints


def _put_at_once(self: LedgerCache, ledger_id: int, entry_id: int, location: int) -> None:
    self._set(self._page(ledger_id, entry_id), entry_id, location)


def _complete_before_sync(self: CompactionLog, on_done: Any) -> None:
    log, self._log = self._log, None
    assert log is not None
    log.seal()
    self.folder.link(self._compacting, self._compacted)
    log.file.sync(on_done, None)
    log.file.close()


def _complete_already(self: CompactionLog) -> None:
    self.folder.discard(self._compacting)


DEFECTS = (
    *(StorageDefect(name, mechanism, changes, kind) for name, (mechanism, changes, kind) in _table().items()),
    *DB_DEFECTS,
)

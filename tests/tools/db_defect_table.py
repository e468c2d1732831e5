"""The defects among them that are those of a store with a database: its caches, its indexes, its parts, its database."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from functools import partial
from typing import Any, Final

from simbookie.storage.db import locations as location_rows
from simbookie.storage.db.ledger_index import LedgerIndex, ledger_key
from simbookie.storage.db.locations import LocationBatch, LocationIndex
from simbookie.storage.db.log_database import LogDatabase
from simbookie.storage.db.shard import DbShard
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.db.write_cache import WriteCache
from simbookie.storage.sequence import Sequence
from tests.tools.storage_defect import StorageDefect

__all__ = ["DB_DEFECTS"]

_swap = DbShard._swap
_in_order = WriteCache.in_order
_flush_locations = DbShard._write_locations
_take = LocationBatch.take
_keys_of = location_rows.keys_of
_begin_file = LogDatabase._begin_file
_make_shard = DbShard.__init__


def _soon(on_done: Any, token: object = None) -> None:
    asyncio.get_running_loop().call_soon(on_done, token, None)


def _active_lost(self: DbShard) -> None:
    _swap(self)
    self._flushing.clear()


def _flushing_unread(self: DbShard, ledger_id: int, entry_id: int) -> bytes | None:
    return self._active.get(ledger_id, entry_id)


def _forgotten_before_locations(self: DbShard, batch: LocationBatch) -> Generator[Any, None, list[int]]:
    self._flushing.clear()
    removed = yield from _flush_locations(self, batch)
    return removed


def _last_of_ledger_left(self: WriteCache) -> Iterator[tuple[int, int, bytes]]:
    for ledger_id, entry_id, entry in _in_order(self):
        if entry_id != self.last(ledger_id) or entry_id == 0:
            yield ledger_id, entry_id, entry


def _logs_unsynced(self: DbShard) -> Generator[Any, None, list[int]]:
    batch = self.locations.begin()
    yield partial(self._write_slice, self._flushing.in_order(), batch)
    removed = yield from self._write_locations(batch)
    return removed


def _unwritten(_self: LocationIndex, _batch: LocationBatch, on_done: Any) -> None:
    _soon(on_done)


def _last_batch_dropped(self: LocationBatch) -> Any:
    removed, batches = _take(self)
    return removed, batches[:-1] if len(batches) > 1 else batches


def _next_ledger_too(ledger_id: int) -> tuple[bytes, bytes]:
    return _keys_of(ledger_id)[0], _keys_of(ledger_id + 1)[1]


def _ledgers_unwritten(self: LedgerIndex, on_done: Any) -> None:
    self._changed.clear()
    _soon(on_done)


def _ledgers_unsynced(self: LedgerIndex, on_done: Any) -> None:
    for ledger_id, record in self._changed.items():
        self.database.put(ledger_key(ledger_id), record.encode())
    self._changed.clear()
    _soon(on_done)


def _all_rows_removed(self: LedgerIndex, ledger_ids: Any, on_done: Any) -> None:
    removed = list(ledger_ids)
    for ledger_id in [*removed, *(each + 1 for each in removed)]:
        self.database.delete(ledger_key(ledger_id))
        self._deleted.pop(ledger_id, None)
    self.database.sync(on_done, None)


def _covered_by_any(self: DbShard, _checkpoint: Any) -> bool:
    return self._covered is not None


def _marked_at_end(self: DbShard, _token: object, error: Any) -> None:
    if error is None:
        self._to_mark = self._owner.take_checkpoint()
        self._owner.request_checkpoint(self._to_mark)


def _errors_count_as_flushed(self: DbShard, checkpoint: Any, on_done: Any, token: object) -> None:
    def steps() -> Iterator[Any]:
        if not self._is_covered(checkpoint):
            yield from self._flush_steps()

    self._queue(steps(), lambda token, _error: on_done(token, None), token)


def _old_files_first(self: LogDatabase) -> None:
    old, self._old = self._old, []
    for name in old:
        self._folder.remove(name)
    _begin_file(self)


def _moved_unwritten(
    self: DbShard, _log_id: int, _ledgers: Any, _moved: Any, on_done: Any, token: Any, **_: Any
) -> None:
    self.logger.flush(on_done, token)


def _one_of_several(self: DbShard, *arguments: Any, is_only: bool = True, **options: Any) -> None:
    del is_only
    _make_shard(self, *arguments, is_only=True, **options)


def _first_part_only(self: DbLedgerStore, checkpoint: Any, on_done: Any, token: object) -> None:
    self._flushing = Sequence([lambda go_on: self.shards[0].checkpoint(checkpoint, go_on, None)], on_done, token)


def _last_part_first(self: DbLedgerStore, ledger_id: int) -> DbShard:
    return self.shards[(ledger_id + 1) % len(self.shards)]


_STORE_TESTS: Final = "tests/simbookie/storage/db/test_db_store.py"
_D: Final = "db"

DB_DEFECTS: Final = (
    StorageDefect("a swap loses the active cache", "write cache", ((DbShard, "_swap", _active_lost),), _D),
    StorageDefect("the flushing cache is not read", "write cache", ((DbShard, "_in_memory", _flushing_unread),), _D),
    StorageDefect(
        "the flushed cache is forgotten before locations are written",
        "write cache",
        ((DbShard, "_write_locations", _forgotten_before_locations),),
        _D,
    ),
    StorageDefect(
        "a flush leaves the last entry of a ledger",
        "write cache",
        ((WriteCache, "in_order", _last_of_ledger_left),),
        _D,
    ),
    StorageDefect("a flush does not sync its log", "flush", ((DbShard, "_flush_cache", _logs_unsynced),), _D),
    StorageDefect("a flush that failed counts", "flush", ((DbShard, "checkpoint", _errors_count_as_flushed),), _D),
    StorageDefect("any flush covers a checkpoint", "flush", ((DbShard, "_is_covered", _covered_by_any),), _D),
    StorageDefect(
        "a flush for room is marked at its end",
        "flush",
        ((DbShard, "_flushed_by_itself", _marked_at_end),),
        _D,
        f"{_STORE_TESTS}::test_a_flush_for_room_has_marks_written_if_there_is_one_folder",
    ),
    StorageDefect("locations are not written", "locations", ((LocationIndex, "write", _unwritten),), _D),
    StorageDefect(
        "the last batch of several is not written", "locations", ((LocationBatch, "take", _last_batch_dropped),), _D
    ),
    StorageDefect(
        "the removal of a ledger's locations takes those of the next",
        "clean-up",
        ((location_rows, "keys_of", _next_ledger_too),),
        _D,
    ),
    StorageDefect(
        "changes of ledgers are not written", "ledger index", ((LedgerIndex, "flush", _ledgers_unwritten),), _D
    ),
    StorageDefect(
        "changes of ledgers are not synced", "ledger index", ((LedgerIndex, "flush", _ledgers_unsynced),), _D
    ),
    StorageDefect(
        "the removal of a ledger takes the next", "clean-up", ((LedgerIndex, "remove_deleted", _all_rows_removed),), _D
    ),
    StorageDefect(
        "old files of the database go before the new one is durable",
        "database",
        ((LogDatabase, "_begin_file", _old_files_first),),
        _D,
    ),
    StorageDefect("locations of copies are not set", "compaction", ((DbShard, "move_entries", _moved_unwritten),), _D),
    StorageDefect(
        "a flush of one part for room moves the marks of all",
        "parts",
        ((DbShard, "__init__", _one_of_several),),
        _D,
        f"{_STORE_TESTS}::test_a_flush_for_room_has_marks_written_if_there_is_one_folder",
    ),
    StorageDefect(
        "a checkpoint leaves all parts but the first",
        "parts",
        ((DbLedgerStore, "checkpoint", _first_part_only),),
        f"{_D}-folders",
    ),
    StorageDefect(
        "a ledger belongs to the part of its neighbour",
        "parts",
        ((DbLedgerStore, "shard", _last_part_first),),
        _D,
        f"{_STORE_TESTS}::test_parts_are_full_each_for_itself",
    ),
)

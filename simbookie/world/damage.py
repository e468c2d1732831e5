"""Damage to copies of entries that no bookie does by itself, and that it does not notice: bits that flip, entries that get lost.

It strikes what a bookie has, wherever that is: in memory, in caches and memtables, in entry logs, in journals.
"""

# ruff: noqa: SLF001 - damage has no interface

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress

from simbookie.storage.base import LedgerStorage
from simbookie.storage.db.shard import DbShard
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.db.write_cache import WriteCache
from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.entry_logs.format import RECORD_HEAD, SIZE_BYTES, log_id_of, log_name, position_of
from simbookie.storage.entry_logs.log import WritableLog
from simbookie.storage.entry_logs.logger import EntryLogger
from simbookie.storage.folders import Folder
from simbookie.storage.indexes.index_file import SLOT_BYTES, page_position
from simbookie.storage.interleaved import InterleavedLedgerStore
from simbookie.storage.journal.reader import JournalScan
from simbookie.storage.journal.records import LENGTH, JournalFormatError, file_name, parse_body
from simbookie.storage.journal.replay import file_ids
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.ledger_store import LedgerStore
from simbookie.storage.memory import MemoryStorage
from simbookie.storage.memtable import MemTable
from simbookie.storage.sorted import SortedLedgerStore

__all__ = ["alter_entries", "lose_entries"]

#: The ids of ledger and entry that a record begins with.
_IDS_BYTES = 16


def alter_entries(storage: LedgerStorage, ledger_id: int, entry_ids: Collection[int], byte: int) -> None:
    """Flip a bit of stored entries, in every copy: in byte ``byte`` of an entry, counted round and round.

    A journal is spared where the byte is one of the first 16: what it says there is another entry's.
    """
    if isinstance(storage, MemoryStorage):
        for entry_id in entry_ids:
            storage.alter(ledger_id, entry_id, byte)
        return
    assert isinstance(storage, JournaledStorage), "a storage of the world"
    for entry_id in entry_ids:
        for table in _tables(storage.store, ledger_id):
            entry = table.get(ledger_id, entry_id)
            if entry is not None:
                table._ledgers[ledger_id][entry_id] = _flipped(entry, byte)
        for collected in storage.store.collected:
            for location in collected.places(ledger_id, entry_id):
                _flip_in_log(collected.logger, location, byte)
        if isinstance(storage.store, DbLedgerStore):
            storage.store.shard(ledger_id).read_cache.drop_entry(ledger_id, entry_id)
    for folder in storage.journal_folders:
        _flip_in_journals(folder, ledger_id, entry_ids, byte)


def lose_entries(storage: LedgerStorage, ledger_id: int, entry_ids: Collection[int]) -> None:
    """Lose stored entries, as with a damaged index; what a journal has comes back with a restart."""
    if isinstance(storage, MemoryStorage):
        for entry_id in entry_ids:
            storage.lose(ledger_id, entry_id)
        return
    assert isinstance(storage, JournaledStorage), "a storage of the world"
    store = storage.store
    for entry_id in entry_ids:
        for table in _tables(store, ledger_id):
            size = _take_out(table, ledger_id, entry_id)
            if isinstance(store, SortedLedgerStore):
                store._taken -= size
        if isinstance(store, DbLedgerStore):
            shard = store.shard(ledger_id)
            shard.locations.remove(ledger_id, entry_id)
            shard.read_cache.drop_entry(ledger_id, entry_id)
        else:
            _lose_location(_interleaved(store), ledger_id, entry_id)
    for known in _with_runs(store, ledger_id):
        known._runs.drop(ledger_id)


def _flipped(entry: bytes, byte: int) -> bytes:
    body = bytearray(entry)
    body[byte % len(body)] ^= 1
    return bytes(body)


# What is in memory -------------------------------------------------------------------------------------------------


def _tables(store: LedgerStore, ledger_id: int) -> list[MemTable] | list[WriteCache]:
    """Where a store has entries that are not in its logs."""
    if isinstance(store, SortedLedgerStore):
        return [store._table, *([store._snapshot] if store._snapshot is not None else [])]
    if isinstance(store, DbLedgerStore):
        return [*store.shard(ledger_id).write_caches]
    return []


def _take_out(table: MemTable | WriteCache, ledger_id: int, entry_id: int) -> int:
    """Take an entry out; returns the bytes that are not taken any more."""
    entries = table._ledgers.get(ledger_id, {})
    entry = entries.pop(entry_id, None)
    if entry is None:
        return 0
    table._lasts[ledger_id] = max(entries, default=-1)
    if isinstance(table, WriteCache):  # which gives no room back
        return 0
    table.size -= len(entry)
    return len(entry)


def _with_runs(store: LedgerStore, ledger_id: int) -> Iterator[InterleavedLedgerStore | SortedLedgerStore | DbShard]:
    if isinstance(store, DbLedgerStore):
        yield store.shard(ledger_id)
        return
    yield _interleaved(store)
    if isinstance(store, SortedLedgerStore):
        yield store


# What is in files --------------------------------------------------------------------------------------------------


def _interleaved(store: LedgerStore) -> InterleavedLedgerStore:
    inner = store.interleaved if isinstance(store, SortedLedgerStore) else store
    assert isinstance(inner, InterleavedLedgerStore), "a store of the world"
    return inner


def _lose_location(store: InterleavedLedgerStore, ledger_id: int, entry_id: int) -> None:
    cache = store.cache
    if entry_id in cache._unsettled.get(ledger_id, {}):
        cache._settled(ledger_id, entry_id)
    cache._set(cache._page(ledger_id, entry_id), entry_id, 0)
    file = cache._handle(ledger_id).file
    if file is not None and page_position(entry_id) < file.size:  # where the highest entry is looked for
        file.write(page_position(entry_id), bytes(SLOT_BYTES))


def _flip_in_log(logger: EntryLogger, location: int, byte: int) -> None:
    log_id, position = log_id_of(location), position_of(location)
    log = _written(logger, log_id)
    head_at = position - SIZE_BYTES
    head = log.buffered(head_at, RECORD_HEAD.size) if log is not None else None
    if head is None:
        head = logger.readers.get(log_id).read_now(head_at, RECORD_HEAD.size)
    at = position + byte % RECORD_HEAD.unpack(head)[0]
    if log is not None and at >= log._buffer_start:
        log._buffer[at - log._buffer_start] ^= 1
        return
    folder = logger._folders.find(log_name(log_id))
    assert folder is not None, "an index leads to it"
    _flip(folder, log_name(log_id), at)


def _written(logger: EntryLogger, log_id: int) -> WritableLog | None:
    """The log, if some of it may not be in its file yet."""
    return logger.active.by_id(log_id) or next((log for log in logger._rotated if log.log_id == log_id), None)


def _flip_in_journals(folder: Folder, ledger_id: int, entry_ids: Collection[int], byte: int) -> None:
    for name in map(file_name, file_ids(folder)):
        file = folder.open(name)
        with suppress(JournalFormatError):  # one that was just begun
            scan = JournalScan(file)
            for offset, body in scan:
                record, at = parse_body(body, scan.version), byte % len(body)
                if record.ledger_id == ledger_id and record.entry_id in entry_ids and at >= _IDS_BYTES:
                    _flip(folder, name, offset + LENGTH.size + at)
        file.close()


def _flip(folder: Folder, name: str, offset: int) -> None:
    disk = folder.disk
    assert isinstance(disk, SimulatedDisk), "a disk of the world"
    disk.flip(folder.file(name), offset)

"""The database in RocksDB, beside the one in a log: both do the same, and a store over it is whole when it is opened again."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simbookie.storage.base import CrashMode, LedgerInfo, StorageIOError
from simbookie.storage.db.key_value import KeyValueBatch
from simbookie.storage.db.log_database import LogDatabase
from simbookie.storage.db.rocks import RocksDatabase, RocksDbMissing, rocks_databases
from simbookie.storage.db.settings import DbConfig
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.directory import DirectoryDisk
from simbookie.storage.folders import Folder, Folders
from tests.simbookie.storage.stores import CountingDisk, Owner, add, done, entry, outcome, read_by

KEYS = st.sampled_from([b"\x00", b"a", b"a\x00", b"b", b"\xff\xff"])
CHANGES = st.lists(
    st.one_of(
        st.tuples(KEYS, st.sampled_from([None, b"", b"value"])),
        st.tuples(KEYS, KEYS, st.none()),
    ),
    max_size=6,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.booleans(), CHANGES), max_size=6), asked=KEYS)
def test_it_does_what_the_database_in_a_log_does(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, list[Any]]], asked: bytes
) -> None:
    path = tmp_path_factory.mktemp("rocks")

    async def story() -> None:
        rocks, log = RocksDatabase(path), LogDatabase(Folder(CountingDisk(), "locations"))
        for is_batch, changes in steps:
            for database in (rocks, log):
                batch = KeyValueBatch()
                for change in changes:
                    if len(change) == 3:
                        batch.delete_range(min(change[:2]), max(change[:2]))
                    elif change[1] is not None:
                        (batch if is_batch else database).put(change[0], change[1])
                    else:
                        (batch if is_batch else database).delete(change[0])
                await done(partial(database.write, batch))
            assert list(rocks.items()) == list(log.items())
        assert list(rocks.items(b"a", asked)) == list(log.items(b"a", asked))
        assert rocks.last_before(asked) == log.last_before(asked)
        assert rocks.get(asked) == log.get(asked)
        rows = list(rocks.items())
        rocks.close()
        again = RocksDatabase(path)
        assert list(again.items()) == rows
        again.close()

    asyncio.run(story())


def test_a_store_over_it_is_whole_when_it_is_opened_again(tmp_path: Path) -> None:
    def opened() -> DbLedgerStore:
        folder = Folder(DirectoryDisk(tmp_path), "current")
        store = DbLedgerStore(
            Folders([folder], Random(1)),
            DbConfig(write_cache_bytes=4096, read_cache_bytes=4096, batch_rows_max=7),
            databases=lambda each: rocks_databases(tmp_path / each.path),
        )
        store.open(Owner())
        return store

    async def story() -> None:
        store = opened()
        store.set_master_key(1, b"key")
        store.set_master_key(2, b"")
        for number in range(100):
            await add(store, 1, number, entry(1, number, b"x" * 90))
        store.set_fenced(1)
        store.set_limbo(3, in_limbo=True)
        await done(store.flush)
        store.set_explicit_lac(1, 7, bytes(15) + b"\x07")
        await done(store.flush)
        store.add_entry(1, 100, entry(1, 100))
        store.crash(CrashMode.PROCESS)
        again = opened()
        assert again.ledger_ids() == [1, 2, 3]
        assert again.ledger(1) == LedgerInfo(b"key", fenced=True, lac=7)
        assert again.ledger(3) == LedgerInfo(None, in_limbo=True)
        assert again.entry_ids(1) == list(range(100))
        for number in range(100):
            assert await read_by(partial(again.read_entry, 1, number)) == entry(1, number, b"x" * 90)
        again.delete_ledger(1)
        await done(again.flush)
        again.close()
        assert opened().ledger_ids() == [2, 3]

    asyncio.run(story())


def test_the_values_are_those_of_bookkeeper(tmp_path: Path) -> None:
    async def story() -> None:
        store = DbLedgerStore(
            Folders([Folder(DirectoryDisk(tmp_path), "current")], Random(1)),
            databases=lambda each: rocks_databases(tmp_path / each.path),
        )
        store.open(Owner())
        store.set_master_key(0x0102, b"KEY")
        store.set_fenced(0x0102)
        store.set_explicit_lac(0x0102, 7, bytes(16))
        store.set_limbo(0x0102, in_limbo=True)
        store.add_entry(0x0102, 0x0304, entry(0x0102, 0x0304))
        await done(store.flush)
        store.close()
        locations = RocksDatabase(tmp_path / "current/locations")
        ledgers = RocksDatabase(tmp_path / "current/ledgers", many_rows=False)
        assert dict(locations.items()) == {
            bytes.fromhex("0000000000000102 0000000000000304"): bytes.fromhex("00000000 00000404")
        }
        assert dict(ledgers.items()) == {
            bytes.fromhex("0000000000000102"): bytes.fromhex("0801 1001 1a03")
            + b"KEY"
            + b"\x22\x10"
            + bytes(16)
            + b"\x28\x01"
        }

    asyncio.run(story())


def test_a_database_that_another_one_has_open_or_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    first = RocksDatabase(tmp_path)
    with pytest.raises(StorageIOError, match="could not open the database"):
        RocksDatabase(tmp_path)
    first.close()
    (tmp_path / "CURRENT").write_text("garbage")
    with pytest.raises(StorageIOError, match="could not open the database"):
        RocksDatabase(tmp_path)


async def test_a_sync_that_fails_is_not_believed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = RocksDatabase(tmp_path)
    database.put(b"a", b"1")

    def fail() -> None:
        raise StorageIOError("the device is gone")

    monkeypatch.setattr(database, "_sync", fail)
    assert isinstance(await outcome(database.sync), StorageIOError)
    monkeypatch.undo()
    assert isinstance(await outcome(database.sync), StorageIOError)
    database.close()


async def test_nobody_is_called_back_after_the_end(tmp_path: Path) -> None:
    told = list[object]()
    database = RocksDatabase(tmp_path)
    database.sync(lambda token, _: told.append(token), "nothing to sync")
    database.put(b"a", b"1")
    database.sync(lambda token, _: told.append(token), "a sync")
    database.close()
    await asyncio.get_running_loop().shutdown_default_executor()  # waits for what runs there
    await asyncio.sleep(0)
    assert not told
    RocksDatabase(tmp_path).close()


def test_rows_are_gathered_in_a_buffer_as_large_as_is_granted(tmp_path: Path) -> None:
    def files_after_3_mib(config: DbConfig | None) -> int:
        path = tmp_path / str(config is not None)
        database = RocksDatabase(path, config=config)
        for number in range(3 << 10):
            database.put(number.to_bytes(8), Random(number).randbytes(1 << 10))
        database.close()
        RocksDatabase(path, config=config).close()
        return len(list(path.glob("*.sst")))

    small = DbConfig(rocksdb_write_buffer_bytes=1 << 20, rocksdb_block_cache_bytes=0)
    assert files_after_3_mib(small) >= 3
    assert files_after_3_mib(None) == 1, "when it was opened again"
    with pytest.raises(ValueError, match="rocksdb_write_buffer_bytes must be >= 1, got 0"):
        DbConfig(rocksdb_write_buffer_bytes=0)
    with pytest.raises(ValueError, match="rocksdb_block_cache_bytes must be >= 0, got -1"):
        DbConfig(rocksdb_block_cache_bytes=-1)


def test_without_the_package_one_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(RocksDbMissing, match=r"needs the package rocksdict.* pip install 'bkclient\[rocksdb\]'"):
        RocksDatabase(tmp_path)

"""A database in a log on a simulated disk: what is found again after crashes, and that no file stays for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simbookie.storage.base import CrashMode, StorageIOError
from simbookie.storage.db.key_value import KeyValueBatch
from simbookie.storage.db.log_database import LogDatabase
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskOperation
from simbookie.storage.folders import Folder
from simbookie.world.loop import VirtualTimeLoop
from tests.simbookie.storage.stores import CountingDisk, done, outcome

Virtually = Callable[[Callable[[], Any]], None]


def opened(disk: CountingDisk, **settings: Any) -> LogDatabase:
    return LogDatabase(Folder(disk, "current/locations"), **settings)


def rows(database: LogDatabase) -> dict[bytes, bytes]:
    return dict(database.items())


def batch(*changes: tuple[bytes, bytes | None]) -> KeyValueBatch:
    made = KeyValueBatch()
    for key, value in changes:
        if value is None:
            made.delete(key)
        else:
            made.put(key, value)
    return made


def test_keys_are_in_the_order_of_their_bytes(virtually: Virtually) -> None:
    async def story() -> None:
        database = opened(CountingDisk())
        for key in (b"b", b"\xff", b"a", b"ab"):
            database.put(key, key.upper())
        assert list(database.items()) == [(b"a", b"A"), (b"ab", b"AB"), (b"b", b"B"), (b"\xff", b"\xff")]
        assert list(database.items(b"ab", b"\xff")) == [(b"ab", b"AB"), (b"b", b"B")]
        assert database.last_before(b"b") == (b"ab", b"AB")
        assert database.last_before(b"a") is None
        database.delete(b"ab")
        database.delete(b"unknown")
        assert database.last_before(b"b") == (b"a", b"A")
        assert (database.get(b"ab"), database.get(b"b")) == (None, b"B")

    virtually(story)


def test_a_range_is_removed_up_to_before_its_end(virtually: Virtually) -> None:
    async def story() -> None:
        database = opened(CountingDisk())
        changes = batch(*((bytes([number]), b"x") for number in range(10)))
        changes.delete_range(b"\x02", b"\x08")
        changes.put(b"\x05", b"again")
        await done(partial(database.write, changes))
        assert [key[0] for key, _ in database.items()] == [0, 1, 5, 8, 9]

    virtually(story)


@pytest.mark.parametrize("covers", [False, True])
def test_a_power_loss_keeps_what_was_synced_and_a_killed_process_everything(
    virtually: Virtually, *, covers: bool
) -> None:
    async def story() -> None:
        disk = CountingDisk(sync_covers_names=covers)
        database = opened(disk)
        await done(partial(database.write, batch((b"a", b"1"))))
        database.put(b"b", b"2")
        await done(database.sync)
        database.put(b"c", b"3")
        disk.crash(CrashMode.PROCESS)
        database.crash()
        again = opened(disk)
        assert rows(again) == {b"a": b"1", b"b": b"2", b"c": b"3"}
        disk.crash(CrashMode.POWER_LOSS)
        assert rows(opened(disk)) == {b"a": b"1", b"b": b"2"}

    virtually(story)


def test_what_was_loaded_is_durable_after_a_sync(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk(sync_covers_names=False)
        opened(disk).put(b"a", b"1")
        disk.crash(CrashMode.PROCESS)
        await done(opened(disk).sync)
        disk.crash(CrashMode.POWER_LOSS)
        assert rows(opened(disk)) == {b"a": b"1"}

    virtually(story)


def test_a_sync_of_nothing_costs_nothing(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        database = opened(disk)
        await done(database.sync)
        assert not disk.syncs
        database.put(b"a", b"1")
        await done(database.sync)
        await done(database.sync)
        assert disk.syncs.total() == 1

    virtually(story)


def test_a_file_is_replaced_when_most_of_it_is_of_the_past(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        database = opened(disk, file_bytes_min=500)
        for number in range(200):
            database.put(b"key%d" % (number % 3), b"x" * 20)
            await done(database.sync)
        names = disk.names("current/locations")
        assert len(names) == 1
        assert int(names[0][:16], 16) > 5
        assert len(disk.content(f"current/locations/{names[0]}")) < 800
        assert rows(opened(disk)) == {b"key%d" % number: b"x" * 20 for number in range(3)}

    virtually(story)


def test_a_file_whose_beginning_is_torn_does_not_count(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        database = opened(disk)
        await done(partial(database.write, batch((b"a", b"1"))))
        for number, content in ((2, b""), (3, bytes(64)), (4, b"\x00\x00\x00\x10garbage")):
            disk.create(f"current/locations/{number:016x}.changes").write(0, content)
        again = opened(disk)
        assert rows(again) == {b"a": b"1"}
        again.put(b"b", b"2")
        await done(again.sync)
        assert disk.names("current/locations") == [f"{5:016x}.changes"]
        assert rows(opened(disk)) == {b"a": b"1", b"b": b"2"}

    virtually(story)


def test_a_write_that_fails_changes_nothing_and_may_be_tried_again(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        database = opened(disk)
        disk.faults.plant(DiskFault(DiskOperation.WRITE, path="*.changes"))
        with pytest.raises(StorageIOError):
            database.put(b"a", b"1")
        assert not disk.names("current/locations")
        database.put(b"a", b"1")
        disk.faults.plant(DiskFault(DiskOperation.WRITE, DiskFaultKind.PARTIAL, path="*.changes"))
        assert isinstance(await outcome(partial(database.write, batch((b"b", b"2"), (b"c", b"3")))), StorageIOError)
        assert rows(database) == {b"a": b"1"}
        database.put(b"d", b"4")
        await done(database.sync)
        assert rows(opened(disk)) == {b"a": b"1", b"d": b"4"}

    virtually(story)


def test_after_a_sync_that_failed_nothing_succeeds_until_the_database_is_opened_again(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        database = opened(disk)
        database.put(b"a", b"1")
        disk.faults.plant(DiskFault(DiskOperation.SYNC, path="*.changes"))
        assert isinstance(await outcome(database.sync), StorageIOError)
        assert isinstance(await outcome(database.sync), StorageIOError)
        with pytest.raises(StorageIOError):
            database.put(b"b", b"2")
        assert isinstance(await outcome(partial(database.write, batch((b"c", b"3")))), StorageIOError)

    virtually(story)


@pytest.mark.parametrize("ends", [LogDatabase.crash, LogDatabase.close])
def test_nobody_is_called_back_after_the_end(virtually: Virtually, ends: Callable[[LogDatabase], None]) -> None:
    async def story() -> None:
        disk, told = CountingDisk(), list[object]()
        database = opened(disk)
        database.sync(lambda token, _: told.append(token), "nothing to sync")
        database.put(b"a", b"1")
        database.sync(lambda token, _: told.append(token), "a sync")
        ends(database)
        await asyncio.sleep(1)
        assert not told

    virtually(story)


CHANGES = st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.sampled_from([None, b"", b"1", b"2" * 300]))
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), CHANGES),
        st.tuples(st.just("write"), st.lists(CHANGES, max_size=4)),
        st.tuples(st.just("sync"), st.none()),
        st.tuples(st.just("crash"), st.sampled_from(list(CrashMode))),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(actions=ACTIONS, seed=st.integers(0, 1 << 32), covers=st.booleans())
def test_after_any_crash_the_database_is_as_it_was_at_a_moment_not_before_the_last_sync(
    actions: list[tuple[str, Any]], seed: int, *, covers: bool
) -> None:
    async def tell() -> None:
        disk = CountingDisk(Random(seed), sync_covers_names=covers)
        database = opened(disk, file_bytes_min=400)
        states: list[dict[bytes, bytes]] = [{}]
        for action, argument in actions:
            now = dict(states[-1])
            for key, value in [argument] if action == "put" else argument if action == "write" else []:
                now.pop(key, None)
                if value is not None:
                    now[key] = value
            states.append(now)
            if action == "put" and argument[1] is None:
                database.delete(argument[0])
            elif action == "put":
                database.put(*argument)
            elif action == "write":
                await done(partial(database.write, batch(*argument)))
                states = [now]
            elif action == "sync":
                await done(database.sync)
                states = [now]
            elif action == "crash":
                database.crash()
                disk.crash(argument)
                database = opened(disk, file_bytes_min=400)
                if argument is CrashMode.PROCESS:
                    assert rows(database) == now
                assert rows(database) in states
                states = [each for each in states if each != rows(database)] + [rows(database)]

    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(tell())
    finally:
        loop.close()

"""A disk in memory: the page cache and what is durable, crashes, costs, and each kind of fault."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from simbookie.storage.base import CrashMode, NoSpace, StorageError, StorageIOError
from simbookie.storage.disk.base import DiskFile
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskOperation
from simbookie.storage.disk.pages import PAGE_SIZE, SECTOR_SIZE
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk

Virtually = Callable[[Callable[[], Any]], None]


class Calls(list[tuple[object, object, float]]):
    """Takes callbacks of syncs and reads: ``(token, outcome, time)``."""

    def synced(self, token: object, error: StorageError | None) -> None:
        self.append((token, error, asyncio.get_running_loop().time()))

    def read(self, token: object, data: bytes | None, error: StorageError | None) -> None:
        self.append((token, data if error is None else error, asyncio.get_running_loop().time()))


async def synced(file: DiskFile) -> None:
    done = asyncio.get_running_loop().create_future()
    file.sync(lambda _, error: done.set_exception(error) if error is not None else done.set_result(None), None)
    await done


def whole(disk: SimulatedDisk, path: str) -> bytes:
    file = disk.open(path)
    return file.read_now(0, file.size)


# ------------------------------------------------------------------------------------------------------- durability


def test_a_process_crash_keeps_what_was_written_and_a_power_loss_what_was_synced(virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk()
        file = disk.create("a")
        file.write(0, b"synced")
        await synced(file)
        file.write(6, b" and not")
        disk.crash(CrashMode.PROCESS)
        assert whole(disk, "a") == b"synced and not"
        disk.crash(CrashMode.POWER_LOSS)
        assert whole(disk, "a") == b"synced"

    virtually(story)


def test_what_is_written_after_the_call_is_not_part_of_the_sync(virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk(costs=DiskCosts(sync_s=1))
        file = disk.create("a")
        file.write(0, b"before")
        calls = Calls()
        file.sync(calls.synced, "x")
        file.write(0, b"AFTER!!")
        await asyncio.sleep(2)
        assert calls == [("x", None, 1.0)]
        assert whole(disk, "a") == b"AFTER!!"
        disk.crash(CrashMode.POWER_LOSS)
        assert whole(disk, "a") == b"before"

    virtually(story)


def test_a_sync_never_calls_back_before_it_returns_and_not_at_all_after_a_crash(virtually: Virtually) -> None:
    async def story() -> None:
        disk, calls = SimulatedDisk(), Calls()
        file = disk.create("a")
        file.sync(calls.synced, 1)
        assert calls == []
        disk.crash(CrashMode.PROCESS)
        await asyncio.sleep(1)
        assert calls == []

    virtually(story)


def test_a_process_crash_leaves_what_was_under_way_to_the_next_sync(virtually: Virtually) -> None:
    async def story() -> None:
        disk, calls = SimulatedDisk(costs=DiskCosts(sync_s=1)), Calls()
        file = disk.create("a")
        file.write(0, b"x")
        file.sync(calls.synced, 1)
        disk.crash(CrashMode.PROCESS)
        await synced(disk.open("a"))
        disk.crash(CrashMode.POWER_LOSS)
        assert whole(disk, "a") == b"x"

    virtually(story)


def test_a_power_loss_keeps_any_sectors_of_the_rest_and_never_touches_what_was_synced(virtually: Virtually) -> None:
    async def story() -> None:
        seen = set()
        for seed in range(60):
            disk = SimulatedDisk(Random(seed))
            file = disk.create("a")
            file.write(0, b"1" * PAGE_SIZE)
            await synced(file)
            file.write(PAGE_SIZE // 2, b"2" * (2 * PAGE_SIZE))
            disk.crash(CrashMode.POWER_LOSS)
            content = whole(disk, "a")
            assert content[: PAGE_SIZE // 2] == b"1" * (PAGE_SIZE // 2)
            assert set(content[PAGE_SIZE // 2 : PAGE_SIZE]) <= set(b"12")
            assert set(content[PAGE_SIZE:]) <= set(b"\x002")
            sectors = [content[start : start + SECTOR_SIZE] for start in range(0, len(content), SECTOR_SIZE)]
            assert all(len(set(sector)) == 1 for sector in sectors)
            seen.add(content)
        assert len(seen) > 10
        assert len({len(content) for content in seen}) > 3

    virtually(story)


def test_a_cut_that_was_not_synced_may_or_may_not_have_happened(virtually: Virtually) -> None:
    async def story() -> None:
        seen = set()
        for seed in range(40):
            disk = SimulatedDisk(Random(seed))
            file = disk.create("mark")
            file.write(0, b"old")
            await synced(file)
            file.truncate(0)
            file.write(0, b"new")
            disk.crash(CrashMode.POWER_LOSS)
            seen.add(whole(disk, "mark"))
        assert seen == {b"old", b"", b"new"}

    virtually(story)


def test_bytes_beyond_a_cut_do_not_come_back(virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk()
        file = disk.create("a")
        file.write(0, b"x" * 2 * PAGE_SIZE)
        await synced(file)
        file.truncate(10)
        file.truncate(20)
        assert whole(disk, "a") == b"x" * 10 + bytes(10)
        await synced(file)
        disk.crash(CrashMode.POWER_LOSS)
        assert whole(disk, "a") == b"x" * 10 + bytes(10)
        file = disk.open("a")
        file.write(PAGE_SIZE, b"y")
        assert whole(disk, "a") == b"x" * 10 + bytes(PAGE_SIZE - 10) + b"y"

    virtually(story)


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_cut_is_part_of_what_a_sync_makes_durable(virtually: Virtually, *, is_interrupted: bool) -> None:
    async def story() -> None:
        disk = SimulatedDisk()
        file = disk.create("a")
        file.write(0, b"x" * 3 * PAGE_SIZE)
        await synced(file)
        file.truncate(10)
        file.write(2 * PAGE_SIZE, b"y")
        if is_interrupted:
            file.sync(Calls().synced, None)
            disk.crash(CrashMode.PROCESS)
            file = disk.open("a")
        await synced(file)
        disk.crash(CrashMode.POWER_LOSS)
        assert whole(disk, "a") == b"x" * 10 + bytes(2 * PAGE_SIZE - 10) + b"y"

    virtually(story)


def test_files_opened_before_a_crash_are_dead(virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk()
        file = disk.create("a")
        disk.crash(CrashMode.PROCESS)
        with pytest.raises(AssertionError, match="before a crash"):
            file.write(0, b"x")

    virtually(story)


# ------------------------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize("sync_covers_names", [True, False])
def test_whether_a_sync_of_a_file_covers_its_name_depends_on_the_file_system(
    virtually: Virtually, *, sync_covers_names: bool
) -> None:
    async def story() -> None:
        disk = SimulatedDisk(sync_covers_names=sync_covers_names)
        await synced(disk.create("f/a"))
        disk.crash(CrashMode.POWER_LOSS)
        assert disk.exists("f/a") is sync_covers_names

    virtually(story)


def test_a_synced_folder_has_its_names_and_no_other_has(virtually: Virtually) -> None:
    async def story() -> None:
        disk, calls = SimulatedDisk(sync_covers_names=False), Calls()
        for path in ("f/gone", "f/old", "g/a"):
            disk.create(path)
        disk.sync_folder("f", calls.synced, 1)
        await asyncio.sleep(1)
        disk.remove("f/gone")
        disk.rename("f/old", "f/new")
        disk.sync_folder("f", calls.synced, 2)
        disk.create("f/late")
        await asyncio.sleep(1)
        disk.crash(CrashMode.POWER_LOSS)
        assert [call[0] for call in calls] == [1, 2]
        assert (disk.names("f"), disk.names("g")) == (["new"], [])

    virtually(story)


def test_a_second_name_costs_no_space_and_is_durable_like_any_other(virtually: Virtually) -> None:
    async def story() -> None:
        disk, calls = SimulatedDisk(Random(3), sync_covers_names=False), Calls()
        file = disk.create("f/a")
        file.write(0, b"x" * 5000)
        await synced(file)
        disk.sync_folder("f", calls.synced, 1)
        await asyncio.sleep(1)
        free = disk.capacity().free
        disk.link("f/a", "g/b")
        assert disk.capacity().free == free
        disk.sync_folder("g", calls.synced, 2)
        await asyncio.sleep(1)
        disk.link("f/a", "h/c")
        disk.crash(CrashMode.POWER_LOSS)
        assert (disk.names("f"), disk.names("g")) == (["a"], ["b"])
        assert whole(disk, "f/a") == whole(disk, "g/b") == b"x" * 5000

    virtually(story)


def test_a_power_loss_keeps_a_beginning_of_the_changes_of_names(virtually: Virtually) -> None:
    async def story() -> None:
        seen = set()
        for seed in range(40):
            disk = SimulatedDisk(Random(seed))
            disk.create("a")
            disk.create("b")
            disk.rename("a", "c")
            disk.crash(CrashMode.POWER_LOSS)
            seen.add(tuple(disk.names("")))
        assert seen == {(), ("a",), ("a", "b"), ("b", "c")}

    virtually(story)


# ------------------------------------------------------------------------------------------------------------ costs


def test_the_device_does_one_thing_at_a_time_in_order(virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk(costs=DiskCosts(sync_s=1, write_bandwidth=PAGE_SIZE))
        a, b, calls = disk.create("a"), disk.create("b"), Calls()
        a.write(0, bytes(3 * PAGE_SIZE))
        a.sync(calls.synced, "a")
        b.sync(calls.synced, "b")
        disk.sync_folder("", calls.synced, "folder")
        await asyncio.sleep(100)
        assert [(token, time) for token, _, time in calls] == [("a", 4.0), ("b", 5.0), ("folder", 6.0)]

    virtually(story)


def test_a_device_with_several_channels_keeps_the_order_of_each_file(virtually: Virtually) -> None:
    async def story() -> None:
        disk, calls = SimulatedDisk(costs=DiskCosts(sync_s=1, at_a_time=2)), Calls()
        a, b, c = (disk.create(name) for name in "abc")
        for file, token in ((a, "a1"), (a, "a2"), (b, "b1"), (c, "c1"), (b, "b2")):
            file.sync(calls.synced, token)
        await asyncio.sleep(100)
        assert [(token, time) for token, _, time in calls] == [
            ("a1", 1.0),
            ("b1", 1.0),
            ("a2", 2.0),
            ("c1", 2.0),
            ("b2", 3.0),
        ]

    virtually(story)


def test_reading_costs_what_is_not_in_the_page_cache_and_that_once(virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk(costs=DiskCosts(read_s=1, read_bandwidth=PAGE_SIZE))
        file, calls = disk.create("a"), Calls()
        file.write(0, b"x" * 2 * PAGE_SIZE)
        await synced(file)
        file.read(0, 2, calls.read, 1)
        assert calls == [(1, b"xx", 0.0)]
        disk.crash(CrashMode.POWER_LOSS)
        file = disk.open("a")
        file.read(0, 2 * PAGE_SIZE, calls.read, 2)
        await asyncio.sleep(10)
        file.read(PAGE_SIZE, 1, calls.read, 3)
        assert [(token, time) for token, _, time in calls] == [(1, 0.0), (2, 3.0), (3, 10.0)]

    virtually(story)


def test_space_is_what_was_written_not_where_the_file_ends(virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk(capacity_bytes=2 * PAGE_SIZE)
        file = disk.create("a")
        file.write(100 * PAGE_SIZE, b"x")
        assert (file.size, disk.capacity().free) == (100 * PAGE_SIZE + 1, PAGE_SIZE)
        with pytest.raises(NoSpace):
            file.write(0, bytes(PAGE_SIZE + 1))
        assert whole(disk, "a")[:1] == b"\0"
        file.write(0, b"y")
        disk.remove("a")
        assert disk.capacity().free == 2 * PAGE_SIZE

    virtually(story)


@pytest.mark.parametrize(
    "costs", [{"sync_s": -1}, {"read_s": -1}, {"write_bandwidth": 0}, {"read_bandwidth": -1}, {"at_a_time": 0}]
)
def test_costs_that_make_no_sense_are_refused(costs: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="disk"):
        DiskCosts(**costs)


def test_a_capacity_below_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity_bytes"):
        SimulatedDisk(capacity_bytes=-1)


# ----------------------------------------------------------------------------------------------------------- faults


def test_a_fault_strikes_the_operation_the_file_and_as_often_as_it_says(virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk()
        disk.faults.plant(DiskFault(DiskOperation.WRITE, path="logs/*", skip=1, times=2))
        log, other = disk.create("logs/0.log"), disk.create("mark")
        log.write(0, b"1")
        for _ in range(2):
            other.write(0, b"x")
            with pytest.raises(StorageIOError):
                log.write(1, b"2")
        log.write(1, b"3")
        assert whole(disk, "logs/0.log") == b"13"

    virtually(story)


@pytest.mark.parametrize(
    ("kind", "amount", "content"),
    [
        (DiskFaultKind.PARTIAL, 2, b"ab"),
        (DiskFaultKind.TORN, 3, b"abc"),
        (DiskFaultKind.FLIP, 5, b"accd"),
        (DiskFaultKind.MISDIRECTED, 2, b"\0\0abcd"),
        (DiskFaultKind.FULL, 0, b""),
        (DiskFaultKind.ERROR, 0, b""),
    ],
)
def test_a_write_goes_wrong_in_each_way(virtually: Virtually, kind: DiskFaultKind, amount: int, content: bytes) -> None:
    fails = {DiskFaultKind.PARTIAL: StorageIOError, DiskFaultKind.ERROR: StorageIOError, DiskFaultKind.FULL: NoSpace}

    async def story() -> None:
        disk = SimulatedDisk()
        disk.faults.plant(DiskFault(DiskOperation.WRITE, kind, amount=amount))
        file = disk.create("a")
        if kind in fails:
            with pytest.raises(fails[kind]):
                file.write(0, b"abcd")
        else:
            file.write(0, b"abcd")
        assert whole(disk, "a") == content

    virtually(story)


def test_after_a_failed_sync_a_later_one_does_not_make_up_for_it(virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk()
        disk.faults.plant(DiskFault(DiskOperation.SYNC))
        file = disk.create("a")
        file.write(0, b"lost")
        with pytest.raises(StorageIOError):
            await synced(file)
        file.write(PAGE_SIZE, b"kept")
        await synced(file)
        assert whole(disk, "a")[:4] == b"lost"
        disk.crash(CrashMode.POWER_LOSS)
        assert whole(disk, "a") == bytes(PAGE_SIZE) + b"kept"

    virtually(story)


def test_a_sync_that_lies_makes_nothing_durable(virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk()
        disk.faults.plant(DiskFault(DiskOperation.SYNC, DiskFaultKind.LIE))
        disk.create("b")
        file = disk.create("a")
        file.write(0, b"x")
        await synced(file)
        disk.crash(CrashMode.POWER_LOSS)
        assert disk.names("") == []

    virtually(story)


def test_a_stall_holds_up_what_waits_behind_it(virtually: Virtually) -> None:
    async def story() -> None:
        disk, calls = SimulatedDisk(), Calls()
        disk.faults.plant(DiskFault(DiskOperation.SYNC, DiskFaultKind.STALL, path="a", amount=5))
        disk.create("a").sync(calls.synced, "a")
        disk.create("b").sync(calls.synced, "b")
        await asyncio.sleep(10)
        assert [(token, time) for token, _, time in calls] == [("a", 5.0), ("b", 5.0)]

    virtually(story)


def test_a_read_fails_or_finds_a_rotten_medium(virtually: Virtually) -> None:
    async def story() -> None:
        disk, calls = SimulatedDisk(), Calls()
        file = disk.create("a")
        file.write(0, b"abcd")
        await synced(file)
        disk.faults.plant(DiskFault(DiskOperation.READ))
        file.read(0, 4, calls.read, 1)
        await asyncio.sleep(1)
        assert isinstance(calls[0][1], StorageIOError)
        disk.faults.heal()
        disk.faults.plant(DiskFault(DiskOperation.READ, DiskFaultKind.FLIP, amount=1))
        assert file.read_now(0, 4) == b"accd"
        disk.crash(CrashMode.POWER_LOSS)
        assert whole(disk, "a") == b"accd", "the medium stays as it is"

    virtually(story)


@pytest.mark.parametrize(
    "operation", [DiskOperation.CREATE, DiskOperation.OPEN, DiskOperation.RENAME, DiskOperation.REMOVE]
)
def test_names_can_fail_too(virtually: Virtually, operation: DiskOperation) -> None:
    async def story() -> None:
        disk = SimulatedDisk()
        disk.create("a")
        disk.faults.plant(DiskFault(operation))
        act: dict[DiskOperation, Callable[[], object]] = {
            DiskOperation.CREATE: lambda: disk.create("b"),
            DiskOperation.OPEN: lambda: disk.open("a"),
            DiskOperation.RENAME: lambda: disk.rename("a", "b"),
            DiskOperation.REMOVE: lambda: disk.remove("a"),
        }
        with pytest.raises(StorageIOError):
            act[operation]()
        assert disk.names("") == ["a"]

    virtually(story)


def test_a_folder_that_cannot_be_synced_says_so(virtually: Virtually) -> None:
    async def story() -> None:
        disk, calls = SimulatedDisk(), Calls()
        disk.create("a")
        disk.faults.plant(DiskFault(DiskOperation.SYNC_FOLDER))
        disk.sync_folder("", calls.synced, 1)
        await asyncio.sleep(1)
        assert isinstance(calls[0][1], StorageIOError)
        disk.crash(CrashMode.POWER_LOSS)
        assert disk.names("") == []

    virtually(story)


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        (DiskOperation.SYNC, {"kind": DiskFaultKind.TORN}),
        (DiskOperation.RENAME, {"kind": DiskFaultKind.FULL}),
        (DiskOperation.WRITE, {"skip": -1}),
        (DiskOperation.WRITE, {"times": 0}),
        (DiskOperation.WRITE, {"amount": -1}),
    ],
)
def test_faults_that_make_no_sense_are_refused(operation: DiskOperation, fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="disk fault"):
        DiskFault(operation, **fields)

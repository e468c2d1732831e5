"""Entry logs over a simulated disk: what is where, what is synced when, what a crash leaves."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simbookie.storage.base import CrashMode, NoSpace, StorageIOError
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskOperation
from simbookie.storage.disk.pages import PAGE_SIZE
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.entry_logs.format import (
    HEADER_SIZE,
    LOG_ID_MAX,
    LOG_SIZE_MAX,
    EntryLogDamaged,
    EntryLogHeader,
    encode_last_id,
    location_of,
    log_id_of,
    log_name,
    position_of,
)
from simbookie.storage.entry_logs.logger import EntryLogger
from simbookie.storage.entry_logs.scan import read_ledgers_map, scan
from simbookie.storage.folders import Folder
from simbookie.storage.ledger_store import CrashPoint
from simbookie.storage.quirks import Quirk
from simbookie.world.loop import VirtualTimeLoop
from tests.simbookie.storage.stores import CountingDisk, done, entry, folders, outcome, read_by, run_to_crash_point

Virtually = Callable[[Callable[[], Any]], None]
PATH = "ledgers/current"
SMALL = EntryLogConfig(log_size_max=2000, write_buffer_bytes=128)


def opened(disk: CountingDisk, config: EntryLogConfig = SMALL, **settings: Any) -> EntryLogger:
    logger = EntryLogger(folders(disk), config, **settings)
    logger.open()
    return logger


def read(logger: EntryLogger, ledger_id: int, entry_id: int, location: int) -> Any:
    return read_by(partial(logger.read, ledger_id, entry_id, location))


def fill(logger: EntryLogger, logs: int = 1) -> dict[tuple[int, int], int]:
    """Add entries until so many logs are rotated."""
    rotated, locations = 0, dict[tuple[int, int], int]()
    while rotated < logs:
        before, number = logger.active_id, len(locations)
        key = (number % 3, number // 3)
        locations[key] = logger.add(key[0], entry(*key, b"x" * 100))
        rotated += before is not None and before != logger.active_id
    return locations


def test_a_record_is_a_length_and_the_entry_and_its_location_is_behind_the_length(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk)
        first = logger.add(7, entry(7, 0, b"abc"))
        second = logger.add(7, entry(7, 1))
        assert first == location_of(0, HEADER_SIZE + 4)
        assert second == location_of(0, HEADER_SIZE + 4 + 35 + 4)
        await done(logger.flush)
        content = disk.content(f"{PATH}/0.log")
        assert content[HEADER_SIZE:] == struct.pack(">i", 35) + entry(7, 0, b"abc") + struct.pack(">i", 32) + entry(
            7, 1
        )
        assert content[:HEADER_SIZE] == EntryLogHeader().encode(), "the map's offset is 0 until the log is complete"

    virtually(story)


def test_entries_are_read_from_the_buffer_from_the_file_and_across_both(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk, EntryLogConfig(write_buffer_bytes=100))
        sizes = [0, 10, 300, 60, 1000, 5]
        locations = [logger.add(1, entry(1, number, bytes([number]) * size)) for number, size in enumerate(sizes)]
        written = disk.open(f"{PATH}/0.log").size
        assert written < position_of(locations[-1]) + 37, "something is in the buffer"
        for number, size in enumerate(sizes):
            assert await read(logger, 1, number, locations[number]) == entry(1, number, bytes([number]) * size)

    virtually(story)


@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_read_at_a_location_validates_ledger_and_entry(virtually: Virtually, is_flushed: bool) -> None:
    async def story() -> None:
        logger = opened(CountingDisk())
        location = logger.add(7, entry(7, 0))
        if is_flushed:
            await done(logger.flush)
        assert await read(logger, 7, 0, location) == entry(7, 0)
        for ledger_id, entry_id, where in [
            (7, 1, location),
            (8, 0, location),
            (7, 0, location + 1),
            (7, 0, location + 99),
        ]:
            assert isinstance(await read(logger, ledger_id, entry_id, where), EntryLogDamaged)
        assert isinstance(await read(logger, 7, 0, location_of(5, 1028)), EntryLogDamaged), "there is no log 5"

    virtually(story)


def test_an_entry_cut_short_is_an_error_and_no_entry(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk)
        location = logger.add(7, entry(7, 0, b"x" * 1000))
        await done(logger.flush)
        logger.close()
        file = disk.open(f"{PATH}/0.log")
        file.truncate(file.size - 1)
        assert isinstance(await read(opened(disk), 7, 0, location), EntryLogDamaged)

    virtually(story)


def test_a_log_rolls_when_the_next_record_would_pass_the_limit(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        rotations: list[str] = []
        logger = opened(disk, on_rotate=lambda: rotations.append(disk.names(PATH)[-2]))
        room = SMALL.log_size_max - HEADER_SIZE
        assert log_id_of(logger.add(1, entry(1, 0, b"x" * (room - 36)))) == 0, "exactly full"
        assert log_id_of(logger.add(1, entry(1, 1))) == 1
        assert rotations == ["2.log"], "the next log is there"
        assert log_id_of(logger.add(1, entry(1, 2, b"x" * 5000), rolls=False)) == 1, "a memtable is not cut in two"

    virtually(story)


def test_the_hard_limit_rolls_a_log_within_a_memtable(virtually: Virtually) -> None:
    async def story() -> None:
        logger = opened(CountingDisk(), EntryLogConfig(log_size_max=2000, log_size_hard_max=3000))
        logger.add(1, entry(1, 0, b"x" * (3000 - HEADER_SIZE - 2 * 36)))
        assert log_id_of(logger.add(1, entry(1, 1), rolls=False)) == 0
        assert log_id_of(logger.add(1, entry(1, 2), rolls=False)) == 1

    virtually(story)


@pytest.mark.parametrize(
    "wrong",
    [
        {"log_size_max": 0},
        {"log_size_max": (1 << 30) + 1},
        {"log_size_hard_max": LOG_SIZE_MAX + 1},
        {"log_size_max": 2000, "log_size_hard_max": 1999},
        {"write_buffer_bytes": 0},
        {"read_buffer_bytes": 19},
        {"sync_after_bytes": -1},
    ],
)
def test_sizes_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="entry log"):
        EntryLogConfig(**wrong)  # type: ignore[arg-type]


def test_ids_go_up_by_one_the_next_file_is_made_in_advance_and_last_id_tells(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk, EntryLogConfig())
        logger.add(1, entry(1, 0))
        assert disk.names(PATH) == ["0.log", "1.log", "lastId"]
        assert disk.content(f"{PATH}/1.log") == b""
        assert disk.content(f"{PATH}/lastId") == b"1\n"
        logger.roll()
        assert logger.active_id == 1
        assert disk.names(PATH) == ["0.log", "1.log", "2.log", "lastId"]
        logger.close()
        again = opened(disk)
        again.add(1, entry(1, 1))
        assert again.active_id == 3

    virtually(story)


def test_without_preallocation_a_log_is_made_when_it_is_needed(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk, EntryLogConfig(preallocates=False))
        logger.add(1, entry(1, 0))
        assert disk.names(PATH) == ["0.log", "lastId"]

    virtually(story)


@pytest.mark.parametrize(
    ("last_id", "files", "first"),
    [
        (b"", [], 0),
        (b"1f\n", ["3.log"], 32),
        (b"2\n", ["1f.log"], 32),
        (b"rubbish", ["1f.log", "2.log"], 32),
        (b"1\n", ["1f.log.3.compacted"], 32),
        (encode_last_id(LOG_ID_MAX), ["0.log", "1.log"], 2),
    ],
)
def test_ids_never_collide_with_files_and_wrap_around(
    virtually: Virtually, last_id: bytes, files: list[str], first: int
) -> None:
    async def story() -> None:
        disk = CountingDisk()
        folder = Folder(disk, PATH)
        for name in files:
            folder.create(name).close()
        if last_id:
            folder.write_small("lastId", last_id)
        logger = opened(disk)
        logger.add(1, entry(1, 0))
        assert logger.active_id == first

    virtually(story)


def test_a_full_log_has_a_map_of_its_ledgers_that_equals_a_scan(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk)
        fill(logger)
        file = disk.open(f"{PATH}/0.log")
        totals = read_ledgers_map(file)
        scanned: dict[int, int] = {}
        for record in scan(file):
            scanned[record.ledger_id] = scanned.get(record.ledger_id, 0) + 4 + len(record.entry)
        assert totals == scanned != {}
        assert sum(totals.values()) == EntryLogHeader.decode(disk.content(f"{PATH}/0.log")).map_offset - HEADER_SIZE

    virtually(story)


def test_a_log_without_a_map_is_scanned_instead(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk, EntryLogConfig(write_buffer_bytes=128))
        for number in range(9):
            logger.add(number % 2, entry(number % 2, number, b"x" * 100))
        await done(logger.flush)
        logger.crash(CrashMode.PROCESS)
        disk.crash(CrashMode.PROCESS)
        again = opened(disk)
        with pytest.raises(EntryLogDamaged):
            read_ledgers_map(disk.open(f"{PATH}/0.log"))
        assert again.ledgers_of(0) == {0: 5 * 136, 1: 4 * 136}

    virtually(story)


@pytest.mark.parametrize(
    ("offset", "data"),
    [(16, b"\0\0\0\x02"), (8, struct.pack(">q", 1 << 20)), (8, bytes(8)), (8, struct.pack(">qi", 1 << 20, 0))],
)
def test_a_map_that_is_not_what_the_header_says_is_not_believed(virtually: Virtually, offset: int, data: bytes) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk)
        fill(logger)
        await done(logger.flush)
        sizes = logger.ledgers_of(0)
        disk.open(f"{PATH}/0.log").write(offset, data)
        with pytest.raises(EntryLogDamaged):
            read_ledgers_map(disk.open(f"{PATH}/0.log"))
        assert logger.ledgers_of(0) == sizes, "scanned"

    virtually(story)


@pytest.mark.parametrize("is_faithful", [True, False])
def test_the_names_of_new_logs_are_durable_unless_bookkeeper_is_imitated(
    virtually: Virtually, is_faithful: bool
) -> None:
    async def story() -> None:
        disk = CountingDisk(sync_covers_names=False)
        logger = opened(disk, quirks=frozenset([Quirk.FOLDERS_UNSYNCED] if is_faithful else []))
        logger.add(1, entry(1, 0))
        await done(logger.flush)
        disk.crash(CrashMode.POWER_LOSS)
        assert ("0.log" in disk.names(PATH)) is not is_faithful

    virtually(story)


def test_a_scan_ends_quietly_where_the_log_is_cut_short_and_steps_over_zeros() -> None:
    loop = VirtualTimeLoop()
    disk = CountingDisk()
    file = disk.create("0.log")
    record = struct.pack(">i", 35) + entry(7, 0, b"abc")
    for cut in range(1, 39):
        file.truncate(0)
        file.write(0, EntryLogHeader().encode() + record + bytes(7) + record + record[:-cut])
        assert [found[:2] for found in scan(file)] == [(1024, 7), (1024 + 39 + 7, 7)]
    assert [found.entry for found in scan(file, lambda ledger_id: ledger_id == 8)] == []
    loop.close()


def test_rotated_logs_wait_for_the_next_checkpoint_and_only_flushed_ones_never_change(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk)
        fill(logger, 2)
        assert (logger.active_id, logger.flushed_ids(), disk.syncs) == (2, [], {})
        await done(logger.checkpoint)
        assert (logger.flushed_ids(), disk.syncs) == ([0, 1], {f"{PATH}/0.log": 1, f"{PATH}/1.log": 1})
        await done(logger.checkpoint)
        assert disk.syncs.total() == 2, "nothing was rotated since"
        await done(logger.flush)
        assert disk.syncs == {f"{PATH}/{log_name(log_id)}": 1 for log_id in range(3)}
        assert logger.flushed_ids() == [0, 1], "the active log is synced and goes on"

    virtually(story)


def test_logs_of_an_earlier_run_are_flushed(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        fill(opened(disk))
        again = opened(disk)
        again.add(1, entry(1, 0))
        assert again.flushed_ids() == [0, 1, 2]

    virtually(story)


def test_a_log_rotated_while_it_is_synced_is_synced_again(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk)
        logger.add(1, entry(1, 0))
        calls: list[object] = []
        logger.flush(lambda *call: calls.append(call), None)
        fill(logger)
        assert calls == []
        await done(logger.checkpoint)
        assert logger.flushed_ids() == [0]
        assert disk.syncs[f"{PATH}/0.log"] == 2

    virtually(story)


@pytest.mark.parametrize(("bound", "syncs"), [(0, 1), (512, 13)])
def test_a_byte_bound_flushes_and_syncs_the_active_log(virtually: Virtually, bound: int, syncs: int) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk, EntryLogConfig(sync_after_bytes=bound))
        for number in range(48):
            logger.add(1, entry(1, number, b"x" * 92))  # 128 bytes each
        await done(logger.flush)
        assert disk.syncs[f"{PATH}/0.log"] == syncs

    virtually(story)


@pytest.mark.parametrize("is_faithful", [True, False])
def test_a_failed_sync_is_not_tried_again_unless_bookkeeper_is_imitated(
    virtually: Virtually, is_faithful: bool
) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk, quirks=frozenset([Quirk.FAILED_SYNC_RETRIED] if is_faithful else []))
        locations = fill(logger)
        disk.faults.plant(DiskFault(DiskOperation.SYNC, DiskFaultKind.ERROR))
        assert isinstance(await outcome(logger.checkpoint), StorageIOError)
        assert logger.flushed_ids() == []
        assert (await outcome(logger.checkpoint) is None) is is_faithful
        assert logger.flushed_ids() == ([0] if is_faithful else [])
        logger.crash(CrashMode.POWER_LOSS)
        disk.crash(CrashMode.POWER_LOSS)
        found = await read(opened(disk), 0, 0, locations[0, 0])
        assert isinstance(found, StorageIOError), "the checkpoint that succeeded made nothing durable"

    virtually(story)


def test_a_nearly_full_disk_forces_a_new_log(virtually: Virtually) -> None:
    async def story() -> None:
        logger = opened(CountingDisk())
        logger.want_new_log()
        assert log_id_of(logger.add(1, entry(1, 0))) == 0, "there was no log to leave"
        logger.want_new_log()
        assert [log_id_of(logger.add(1, entry(1, number))) for number in (1, 2)] == [1, 1]

    virtually(story)


def test_new_logs_go_to_any_folder_with_room(virtually: Virtually) -> None:
    async def story() -> None:
        disks = [CountingDisk() for _ in range(3)]
        logger = EntryLogger(folders(*disks), SMALL)
        logger.open()
        locations = fill(logger, 12)
        assert all(len(disk.names(PATH)) > 2 for disk in disks)
        for (ledger_id, entry_id), location in locations.items():
            assert await read(logger, ledger_id, entry_id, location) == entry(ledger_id, entry_id, b"x" * 100)
        assert {disk.content(f"{PATH}/lastId") for disk in disks} == {b"d\n"}

    virtually(story)


@pytest.mark.parametrize("is_faithful", [True, False])
def test_a_new_log_on_a_full_disk_takes_room_for_a_log_and_a_fifth_unless_bookkeeper_is_imitated(
    virtually: Virtually, is_faithful: bool
) -> None:
    async def story() -> None:
        quirks = frozenset([Quirk.SMALLER_RESERVE] if is_faithful else [])
        config = EntryLogConfig(log_size_max=100 * PAGE_SIZE, preallocates=False)
        disk = CountingDisk(capacity_bytes=10_000 * PAGE_SIZE)
        disk.create("other").write(0, bytes(9_890 * PAGE_SIZE))
        if is_faithful:
            opened(disk, config, quirks=quirks).add(1, entry(1, 0))
        else:
            with pytest.raises(NoSpace, match=f"used above 95%, and none has {120 * PAGE_SIZE} bytes"):
                opened(disk, config).add(1, entry(1, 0))
        opened(disk, replace(config, usable_bytes_min=5 * PAGE_SIZE)).add(1, entry(1, 0))

    virtually(story)


def test_a_disk_that_is_not_full_takes_a_new_log_whatever_is_left(virtually: Virtually) -> None:
    async def story() -> None:
        config = EntryLogConfig(usable_bytes_min=2 << 30)
        disk = CountingDisk(capacity_bytes=1 << 20)
        opened(disk, config).add(1, entry(1, 0))
        with pytest.raises(NoSpace):
            opened(disk, replace(config, full_above=0.0)).add(1, entry(1, 0))

    virtually(story)


@pytest.mark.parametrize("is_faithful", [True, False])
def test_after_a_write_that_failed_half_way_locations_hold_unless_bookkeeper_is_imitated(
    virtually: Virtually, is_faithful: bool
) -> None:
    async def story() -> None:
        disk = CountingDisk()
        quirks = frozenset([Quirk.SHIFTED_AFTER_PARTIAL_WRITE]) if is_faithful else frozenset()
        logger = opened(disk, EntryLogConfig(write_buffer_bytes=2048), quirks=quirks)
        locations = {0: logger.add(1, entry(1, 0, b"x" * 100))}
        disk.faults.plant(DiskFault(DiskOperation.WRITE, DiskFaultKind.PARTIAL, amount=100))
        with pytest.raises(StorageIOError):
            logger.add(1, entry(1, 1, b"x" * 2000))
        for number in range(2, 6):
            locations[number] = logger.add(1, entry(1, number, b"x" * 100))
        await done(logger.flush)
        found = [await read(logger, 1, number, location) for number, location in locations.items()]
        wrong = [isinstance(each, StorageIOError) for each in found]
        assert wrong == [is_faithful] * 5

    virtually(story)


@pytest.mark.parametrize("step", ["log.allocated", "log.roll", "log.write", "log.sync", "log.remove"])
def test_a_bookie_may_die_at_every_step(virtually: Virtually, step: str) -> None:
    disk = CountingDisk()
    flushed: dict[tuple[int, int], int] = {}

    async def until_it_dies() -> None:
        def on_step(name: str) -> None:
            if name == step and flushed:
                disk.crash(CrashMode.PROCESS)
                raise CrashPoint(name)

        logger = opened(disk, on_step=on_step)
        locations = fill(logger)
        await done(logger.checkpoint)
        flushed.update((key, location) for key, location in locations.items() if log_id_of(location) == 0)
        if step == "log.remove":
            logger.remove(0)
        fill(logger)
        await done(logger.flush)

    async def afterwards() -> None:
        logger = opened(disk)
        logger.add(1, entry(1, 9))
        for (ledger_id, entry_id), location in flushed.items():
            assert await read(logger, ledger_id, entry_id, location) == entry(ledger_id, entry_id, b"x" * 100)

    assert run_to_crash_point(until_it_dies) == step
    virtually(afterwards)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 300)),
        st.tuples(st.sampled_from(["flush", "checkpoint", "roll"]), st.just(0)),
        st.tuples(st.just("crash"), st.sampled_from([0, 1])),
    ),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(ACTIONS, st.integers(0, 1 << 32), st.booleans())
def test_what_was_flushed_survives_every_crash_and_ids_are_never_used_twice(
    actions: list[tuple[str, int]], seed: int, covers: bool
) -> None:
    async def story() -> None:
        disk = CountingDisk(Random(seed), sync_covers_names=covers)
        logger, seen = opened(disk), set[int]()
        added, rotated, safe = dict[int, bytes](), dict[int, bytes](), dict[int, bytes]()
        for number, (action, amount) in enumerate(actions):
            if action == "add":
                before = logger.active_id
                body = entry(1, number, bytes([number % 250]) * amount)
                location = logger.add(1, body)
                assert location not in safe, "a location is never given out twice"
                if logger.active_id != before:
                    rotated |= added
                    added = {}
                added[location] = body
            elif action == "roll":
                logger.roll()
                rotated |= added
                added = {}
            elif action == "crash":
                mode = list(CrashMode)[amount]
                logger.crash(mode)
                disk.crash(mode)
                logger = opened(disk)
                added, rotated = {}, {}
            else:
                await done(logger.flush if action == "flush" else logger.checkpoint)
                safe |= rotated | (added if action == "flush" else {})
            seen.add(number)
        for location, body in safe.items():
            entry_id = int.from_bytes(body[8:16])
            assert await read(logger, 1, entry_id, location) == body

    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(story())
    finally:
        loop.close()

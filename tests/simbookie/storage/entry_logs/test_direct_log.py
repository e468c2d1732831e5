"""Entry logs in blocks, past the page cache: the bytes that BookKeeper's direct entry logger writes, and how they are read."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simbookie.storage.base import CrashMode, StorageIOError
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskOperation
from simbookie.storage.disk.simulated import SimulatedDisk, SimulatedFile
from simbookie.storage.entry_logs.config import DIRECT_WRITE_BUFFERS, DirectConfig, EntryLogConfig
from simbookie.storage.entry_logs.format import BLOCK_SIZE, EntryLogHeader, location_of, position_of
from simbookie.storage.entry_logs.logger import EntryLogger
from simbookie.storage.entry_logs.readers import BlockReader
from simbookie.storage.entry_logs.scan import read_header, read_ledgers_map, scan
from simbookie.storage.ledger_store import CrashPoint
from simbookie.storage.quirks import Quirk
from simbookie.world.loop import VirtualTimeLoop
from tests.simbookie.storage.stores import CountingDisk, done, entry, folders, outcome, read_by, run_to_crash_point

Virtually = Callable[[Callable[[], Any]], None]
PATH = "ledgers/current"
BLOCKS = 2
SMALL = EntryLogConfig(
    log_size_max=5 * BLOCK_SIZE,
    direct=DirectConfig(
        write_bytes=BLOCKS * BLOCK_SIZE * DIRECT_WRITE_BUFFERS,
        read_bytes=3 * BLOCK_SIZE,
        block_bytes=BLOCK_SIZE,
        idle_s=10.0,
    ),
)


@contextmanager
def watched(name: str) -> Iterator[list[tuple[str, int, int]]]:
    """Remembers of which file what is read or written begins where, and its size."""
    calls: list[tuple[str, int, int]] = []
    act = getattr(SimulatedFile, name)

    def watch(self: SimulatedFile, offset: int, what: Any, *rest: Any) -> None:
        calls.append((self.path, offset, what if isinstance(what, int) else len(what)))
        act(self, offset, what, *rest)

    with mock.patch.object(SimulatedFile, name, watch):
        yield calls


def opened(disk: SimulatedDisk, config: EntryLogConfig = SMALL, **options: Any) -> EntryLogger:
    logger = EntryLogger(folders(disk), config, **options)
    logger.open()
    return logger


def content(disk: SimulatedDisk, log_id: int = 0) -> bytes:
    file = disk.open(f"{PATH}/{log_id:x}.log")
    return file.read_now(0, file.size)


def test_the_file_is_that_of_bookkeepers_direct_entry_logger(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk)
        first = logger.add(7, entry(7, 0, b"abc"))
        await done(logger.flush)
        second = logger.add(8, entry(8, 0))
        assert (first, second) == (location_of(0, BLOCK_SIZE + 4), location_of(0, 2 * BLOCK_SIZE + 4)), (
            "a flush ends a block"
        )
        logger.roll()
        found = content(disk)
        assert len(found) == 4 * BLOCK_SIZE
        header = struct.pack(">4siqi", b"BKLO", 1, 3 * BLOCK_SIZE, 2).ljust(1024, b"\0")
        skipped = struct.pack(">iqq", BLOCK_SIZE - 1024 - 4, -1, 0)
        assert found[:BLOCK_SIZE] == (header + skipped).ljust(BLOCK_SIZE, b"\0")
        records = [struct.pack(">i", 35) + entry(7, 0, b"abc"), struct.pack(">i", 32) + entry(8, 0)]
        records.append(struct.pack(">iqqiqqqq", 52, -1, -2, 2, 7, 39, 8, 36))
        assert found[BLOCK_SIZE:] == b"".join(record.ljust(BLOCK_SIZE, b"\xf0") for record in records)

    virtually(story)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.one_of(st.integers(0, 2 * BLOCK_SIZE - 36), st.none()), min_size=1, max_size=25), st.integers(0, 99))
def test_whatever_is_stored_is_found_scanned_and_counted_and_only_whole_blocks_are_written(
    sizes: list[int | None], seed: int
) -> None:
    loop = VirtualTimeLoop()

    async def story() -> None:
        disk, rng = CountingDisk(), Random(seed)
        logger = opened(disk)
        places: dict[tuple[int, int], tuple[int, bytes]] = {}
        for number, size in enumerate(sizes):
            if size is None:
                await done(logger.flush)
                continue
            body = entry(number % 3, number, rng.randbytes(size))
            places[number % 3, number] = (logger.add(number % 3, body), body)
        for (ledger, number), (location, body) in places.items():  # of what is buffered, too
            assert await read_by(partial(logger.read, ledger, number, location)) == body
            assert logger.read_now(ledger, number, location) == body
        logger.roll()
        await done(logger.flush)
        scanned = {}
        for log_id in logger.flushed_ids():
            file = disk.open(f"{PATH}/{log_id:x}.log")
            counted: dict[int, int] = {}
            for record in scan(file):
                scanned[location_of(log_id, record.offset + 4)] = record.entry
                counted[record.ledger_id] = counted.get(record.ledger_id, 0) + 4 + len(record.entry)
            if counted:
                assert read_ledgers_map(file) == counted
        assert scanned == dict(places.values())
        for (ledger, number), (location, body) in places.items():
            assert await read_by(partial(logger.read, ledger, number, location)) == body

    with watched("write") as writes:
        loop.run_until_complete(story())
    loop.close()
    assert all(start % BLOCK_SIZE == size % BLOCK_SIZE == 0 for path, start, size in writes if path.endswith(".log"))


def test_an_entry_larger_than_the_write_buffer_is_refused_and_the_log_goes_on(virtually: Virtually) -> None:
    async def story() -> None:
        logger = opened(CountingDisk())
        room = BLOCKS * BLOCK_SIZE - 4 - 32
        fits = logger.add(1, entry(1, 0, b"x" * room))
        with pytest.raises(StorageIOError, match=f"never fits into a write buffer of {BLOCKS * BLOCK_SIZE}"):
            logger.add(1, entry(1, 1, b"x" * (room + 1)))
        after = logger.add(1, entry(1, 2))
        for number, location, size in ((0, fits, room), (2, after, 0)):
            assert await read_by(partial(logger.read, 1, number, location)) == entry(1, number, b"x" * size)

    virtually(story)


def test_a_flush_survives_a_power_loss_and_what_is_buffered_does_not_outlive_the_process(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk)
        durable = logger.add(1, entry(1, 0))
        await done(logger.flush)
        logger.add(1, entry(1, 1))
        disk.crash(CrashMode.PROCESS)
        assert [record.entry for record in scan(disk.open(f"{PATH}/0.log"))] == [entry(1, 0)]
        again = opened(disk)
        assert await read_by(partial(again.read, 1, 0, durable)) == entry(1, 0)
        assert again.flushed_ids() == [0]

    virtually(story)


def test_a_write_that_fails_is_made_again_at_its_place(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk)
        first = logger.add(1, entry(1, 0))
        disk.faults.plant(DiskFault(DiskOperation.WRITE, DiskFaultKind.PARTIAL, f"{PATH}/0.log", amount=100))
        assert await outcome(logger.flush) is not None
        second = logger.add(1, entry(1, 1))
        await done(logger.flush)
        for number, location in enumerate((first, second)):
            assert await read_by(partial(logger.read, 1, number, location)) == entry(1, number)

    virtually(story)


def test_reads_bring_whole_blocks_and_few_logs_stay_open(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk, replace(SMALL, log_size_max=2 * BLOCK_SIZE))
        places = [logger.add(1, entry(1, number, b"x" * 1000)) for number in range(12)]
        await done(logger.flush)
        assert len(logger.ids()) > 3
        for number, location in enumerate(places):
            assert await read_by(partial(logger.read, 1, number, location)) == entry(1, number, b"x" * 1000)
            assert len(logger.readers) <= 3, "as many as there is memory for"
        await asyncio.sleep(11)
        await read_by(partial(logger.read, 1, 0, places[0]))
        assert len(logger.readers) == 1, "the others were not read for ten seconds"

    virtually(story)


def test_a_block_is_read_once_until_it_grows(virtually: Virtually) -> None:
    async def story() -> None:
        file = CountingDisk().create("log")
        file.write(0, bytes(range(100)))
        reader = BlockReader(file, 1)
        with watched("read") as reads:
            for offset in (10, 20, 90):
                assert await read_by(partial(reader.read, offset, 10)) == bytes(range(offset, offset + 10))
            assert reads == [("log", 0, BLOCK_SIZE)]
            assert await read_by(partial(reader.read, 95, 10)) == bytes(range(95, 100)), "the end of the file"
            file.write(100, bytes(range(100, 200)))
            assert await read_by(partial(reader.read, 95, 10)) == bytes(range(95, 105))
            file.write(200, bytes(2 * BLOCK_SIZE))
            assert await read_by(partial(reader.read, BLOCK_SIZE - 5, 10)) == bytes(10), "across blocks"
            assert reads[-1] == ("log", 0, 2 * BLOCK_SIZE)
            assert await read_by(partial(reader.read, BLOCK_SIZE, 10)) == bytes(10)
            assert len(reads) == 4, "the last block was kept"

    virtually(story)


@pytest.mark.parametrize("is_faithful", [True, False])
def test_a_log_that_ends_before_an_entry_is_damaged_unless_bookkeeper_is_imitated(
    virtually: Virtually, is_faithful: bool
) -> None:
    async def story() -> None:
        disk = CountingDisk()
        quirks = frozenset([Quirk.END_OF_LOG_DENIES] if is_faithful else [])
        logger = opened(disk, quirks=quirks)
        location = logger.add(1, entry(1, 0, b"x" * 6000))
        await done(logger.flush)
        assert isinstance(await read_by(partial(logger.read, 1, 0, location + 1)), StorageIOError), (
            "other damage is told"
        )
        for size in (2 * BLOCK_SIZE, BLOCK_SIZE):
            disk.open(f"{PATH}/0.log").truncate(size)
            found = await read_by(partial(opened(disk, quirks=quirks).read, 1, 0, location))
            if is_faithful:
                assert found is None, "denied, as if it had never been there"
            else:
                assert isinstance(found, StorageIOError)
        assert isinstance(await read_by(partial(logger.read, 1, 0, location + 1)), StorageIOError), (
            "other damage is told"
        )

    virtually(story)


@pytest.mark.parametrize("is_faithful", [True, False])
def test_a_map_that_a_kill_kept_from_being_written_is_no_map_unless_bookkeeper_is_imitated(is_faithful: bool) -> None:
    disk = CountingDisk()
    quirks = frozenset([Quirk.EMPTY_MAP_BELIEVED] if is_faithful else [])

    def on_step(name: str) -> None:
        if name == "log.map":
            disk.crash(CrashMode.PROCESS)
            raise CrashPoint(name)

    async def fill() -> None:
        logger = opened(disk, quirks=quirks, on_step=on_step)
        logger.add(1, entry(1, 0))
        await done(logger.flush)
        logger.roll()

    assert run_to_crash_point(fill) == "log.map"
    assert read_header(disk.open(f"{PATH}/0.log")).has_map is is_faithful

    async def look() -> None:
        again = opened(disk, quirks=quirks)
        assert again.flushed_ids() == [0, 1], "the next one was there already"
        assert again.ledgers_of(0) == ({} if is_faithful else {1: 36}), "a log without ledgers is removed"

    assert run_to_crash_point(look) is None


def test_the_header_block_is_one_that_others_can_read() -> None:
    block = EntryLogHeader(4096, 3).encode_block()
    assert EntryLogHeader.decode(block) == EntryLogHeader(4096, 3)
    assert len(block) == BLOCK_SIZE


def test_the_next_log_is_not_made_in_advance(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        location = opened(disk).add(1, entry(1, 0))
        assert position_of(location) == BLOCK_SIZE + 4
        assert disk.names(PATH) == ["0.log", "lastId"]

    virtually(story)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"write_bytes": 0}, "write_bytes must be >= 1"),
        ({"block_bytes": 0}, "block_bytes must be >= 1"),
        ({"read_bytes": 5, "block_bytes": 10}, "read_bytes must be >= block_bytes, 10, got 5"),
        ({"idle_s": 0.0}, "idle_s must be > 0"),
    ],
)
def test_buffers_that_make_no_sense_are_refused(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        DirectConfig(**values)

"""Entry logs of which each ledger has its own: how many are written at a time, when they are rotated, what a flush covers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from simbookie.storage.base import CrashMode
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskOperation
from simbookie.storage.entry_logs.config import DirectConfig, EntryLogConfig
from simbookie.storage.entry_logs.format import HEADER_SIZE, EntryLogDamaged, log_id_of
from simbookie.storage.entry_logs.logger import EntryLogger
from simbookie.storage.entry_logs.scan import read_ledgers_map, scan
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.interleaved import InterleavedConfig
from simbookie.storage.sorted import SortedConfig, SortedLedgerStore
from tests.simbookie.storage.stores import CountingDisk, Owner, add, done, entry, folders, read_by

Virtually = Callable[[Callable[[], Any]], None]
PATH = "ledgers/current"
SMALL = EntryLogConfig(
    log_size_max=2000, write_buffer_bytes=128, per_ledger=True, active_logs_max=3, active_idle_s=10.0, open_logs_max=2
)


def opened(disk: CountingDisk, config: EntryLogConfig = SMALL) -> EntryLogger:
    logger = EntryLogger(folders(disk), config)
    logger.open()
    return logger


def written(logger: EntryLogger) -> list[int]:
    return [log.log_id for log in logger.active.all]


def test_entries_of_a_ledger_are_in_logs_that_have_no_others(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk)
        places = {(ledger, n): logger.add(ledger, entry(ledger, n, b"x" * 90)) for n in range(12) for ledger in (5, 6)}
        await done(logger.flush)
        ledgers: dict[int, set[int]] = {}
        for log_id in logger.ids():
            found = {record.ledger_id for record in logger.scan(log_id, lambda _: True)}
            assert len(found) <= 1
            for ledger_id in found:
                ledgers.setdefault(ledger_id, set()).add(log_id)
        assert {ledger_id: len(logs) for ledger_id, logs in ledgers.items()} == {5: 2, 6: 2}, (
            "each filled one and began one"
        )
        for (ledger, number), location in places.items():
            read = partial(logger.read, ledger, number, location)
            assert await read_by(read) == entry(ledger, number, b"x" * 90)
            assert log_id_of(location) in ledgers[ledger]

    virtually(story)


def test_the_log_used_longest_ago_is_rotated_when_there_are_too_many(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk)
        for ledger in (1, 2, 3, 1):
            logger.add(ledger, entry(ledger, 0))
        assert written(logger) == [1, 2, 0], "ledger 1 was written again"
        location = logger.add(4, entry(4, 0))
        assert written(logger) == [2, 0, log_id_of(location)]
        assert read_ledgers_map(disk.open(f"{PATH}/1.log")) == {2: 36}, "with its map"
        assert log_id_of(logger.add(2, entry(2, 1))) not in (1, 2), "its ledger gets another one"
        await done(logger.flush)
        assert 1 in logger.flushed_ids()

    virtually(story)


def test_an_idle_log_is_rotated_with_the_next_entry_of_any_ledger_or_the_next_flush(virtually: Virtually) -> None:
    async def story() -> None:
        logger = opened(CountingDisk())
        logger.add(1, entry(1, 0))
        await asyncio.sleep(6)
        logger.add(2, entry(2, 0))
        await asyncio.sleep(6)
        assert written(logger) == [0, 1], "nothing asks"
        logger.add(3, entry(3, 0))
        assert written(logger) == [1, 2], "ledger 1 got nothing for 12 seconds"
        await asyncio.sleep(20)
        await done(logger.flush)
        assert written(logger) == []
        assert logger.flushed_ids() == [0, 1, 2]

    virtually(story)


def test_a_checkpoint_makes_the_logs_that_are_written_durable_too(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk)
        places = {ledger: logger.add(ledger, entry(ledger, 0)) for ledger in (1, 2, 3, 4)}
        await done(logger.checkpoint)
        disk.crash(CrashMode.POWER_LOSS)
        again = opened(disk)
        for ledger, location in places.items():
            assert await read_by(partial(again.read, ledger, 0, location)) == entry(ledger, 0)
        assert again.flushed_ids() == again.ids()

    virtually(story)


def test_a_log_that_cannot_be_completed_keeps_its_entries(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk)
        places = {ledger: logger.add(ledger, entry(ledger, 0)) for ledger in (1, 2, 3)}
        disk.faults.plant(DiskFault(DiskOperation.WRITE, DiskFaultKind.ERROR, f"{PATH}/0.log"))
        places[4] = logger.add(4, entry(4, 0))
        assert 0 not in written(logger)
        for ledger, location in places.items():
            assert await read_by(partial(logger.read, ledger, 0, location)) == entry(ledger, 0)
        await done(logger.flush)
        file = disk.open(f"{PATH}/0.log")
        with pytest.raises(EntryLogDamaged, match="no ledgers map"):
            read_ledgers_map(file)
        assert [record.ledger_id for record in scan(file)] == [1]
        assert logger.ledgers_of(0) == {1: 36}

    virtually(story)


def test_a_full_disk_has_every_log_rotated_before_its_next_entry(virtually: Virtually) -> None:
    async def story() -> None:
        logger = opened(CountingDisk())
        first = {ledger: logger.add(ledger, entry(ledger, 0)) for ledger in (1, 2)}
        logger.want_new_log()
        second = {ledger: logger.add(ledger, entry(ledger, 1)) for ledger in (1, 2)}
        third = {ledger: logger.add(ledger, entry(ledger, 2)) for ledger in (1, 2)}
        for ledger in (1, 2):
            assert log_id_of(first[ledger]) != log_id_of(second[ledger]) == log_id_of(third[ledger])

    virtually(story)


def test_a_new_log_goes_to_the_folder_with_the_fewest(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        both = [Folder(disk, "a"), Folder(disk, "b")]
        logger = EntryLogger(Folders(both, Random(1)), replace(SMALL, active_logs_max=10, preallocates=False))
        logger.open()
        for ledger in range(6):
            logger.add(ledger, entry(ledger, 0))
        assert [logger.active.count_in(folder) for folder in both] == [3, 3]

    virtually(story)


def test_so_many_logs_are_open_to_be_read_at_most(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        logger = opened(disk)
        places = {ledger: logger.add(ledger, entry(ledger, 0, b"y" * 900)) for ledger in range(8)}
        await done(logger.flush)
        for _ in range(2):
            reads = [read_by(partial(logger.read, ledger, 0, where)) for ledger, where in places.items()]
            assert await asyncio.gather(*reads) == [entry(ledger, 0, b"y" * 900) for ledger in places]
            assert len(logger.readers) <= 2

    virtually(story)


def test_the_sorted_store_rotates_full_logs_and_waits_to_be_told_of_checkpoints(virtually: Virtually) -> None:
    async def story() -> None:
        disk, owner = CountingDisk(), Owner()
        store = SortedLedgerStore(folders(disk), SortedConfig(1500, InterleavedConfig(SMALL)))
        store.open(owner)
        assert not store.asks_for_checkpoints
        for ledger in (1, 2):
            store.set_master_key(ledger, b"key")
        for number in range(20):
            await add(store, 1, number, entry(1, number, b"x" * 200))
            await add(store, 2, number, entry(2, number))
        await done(store.flush)
        assert owner.requested == []
        logger = store.interleaved.logger
        assert len(logger.ids()) >= 4
        for log in logger.active.all:
            assert HEADER_SIZE < log.position <= SMALL.log_size_max, "the others were rotated"

    virtually(story)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"active_logs_max": 0}, "active_logs_max must be >= 1, got 0"),
        ({"open_logs_max": 0}, "open_logs_max must be >= 1, got 0"),
        ({"active_idle_s": 0.0}, "active_idle_s must be > 0"),
        ({"per_ledger": True, "direct": DirectConfig()}, "exclude each other"),
    ],
)
def test_limits_that_make_no_sense_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        EntryLogConfig(**settings)

"""Logs that go, logs that are compacted, and what a crash in the middle leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simbookie.storage.base import CrashMode
from simbookie.storage.compaction.collector import CollectorStats, EntryLogCollector
from simbookie.storage.compaction.plan import CompactionConfig, CompactionRule
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskOperation
from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.entry_logs.format import log_id_of
from simbookie.storage.entry_logs.scan import read_ledgers_map
from simbookie.storage.folders import Folder
from simbookie.storage.interleaved import InterleavedConfig, InterleavedLedgerStore
from simbookie.storage.ledger_store import CrashPoint
from simbookie.storage.quirks import Quirk
from simbookie.world.loop import VirtualTimeLoop
from tests.simbookie.storage.stores import CountingDisk, Owner, done, entry, folders, read_by, run_to_crash_point

Virtually = Callable[[Callable[[], Any]], None]
PATH = "ledgers/current"
CONFIG = InterleavedConfig(EntryLogConfig(log_size_max=3000, write_buffer_bytes=128))
#: Records of entries, lengths included.
RECORD = 4 + 32 + 100


def opened(disk: SimulatedDisk, **settings: Any) -> InterleavedLedgerStore:
    store = InterleavedLedgerStore(folders(disk), CONFIG, **settings)
    store.open(Owner())
    return store


async def fill(store: InterleavedLedgerStore, *ledgers: int, entries: int = 14) -> None:
    """A log with as many entries, one ledger after the other, and flushed."""
    for ledger_id in ledgers:
        if ledger_id not in store.ledger_ids():
            store.set_master_key(ledger_id, b"key")
    first = {ledger_id: len(store.entry_ids(ledger_id)) for ledger_id in ledgers}
    for number in range(entries):
        ledger_id = ledgers[number % len(ledgers)]
        entry_id = first[ledger_id] + number // len(ledgers)
        store.add_entry(ledger_id, entry_id, entry(ledger_id, entry_id, b"x" * 100))
    store.logger.roll()
    await done(store.flush)


async def all_readable(store: InterleavedLedgerStore) -> bool:
    for ledger_id in store.ledger_ids():
        for entry_id in store.entry_ids(ledger_id):
            found = await read_by(partial(store.read_entry, ledger_id, entry_id))
            if found != entry(ledger_id, entry_id, b"x" * 100):
                return False
    return True


def logs_of(store: InterleavedLedgerStore, ledger_id: int) -> set[int]:
    return {log_id_of(location) for _, location in store.cache.entries(ledger_id)}


def test_a_log_goes_when_none_of_its_ledgers_exists_and_one_with_a_live_ledger_stays(virtually: Virtually) -> None:
    async def story() -> None:
        store = opened(CountingDisk())
        collector = EntryLogCollector(store)
        await fill(store, 1)
        await fill(store, 1, 2)
        await fill(store, 2)
        size = store.logger.size_of(0)
        store.delete_ledger(1)
        await done(collector.collect)
        assert [log_id for log_id in store.logger.ids() if log_id < 3] == [1, 2]
        assert collector.stats == CollectorStats(bytes_of_deleted=size)
        assert collector.usages() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 1]
        assert await all_readable(store)
        store.delete_ledger(2)
        await done(collector.collect)
        assert [log_id for log_id in store.logger.ids() if log_id < 3] == []

    virtually(story)


def test_a_log_that_is_written_or_not_synced_stays(virtually: Virtually) -> None:
    async def story() -> None:
        store = opened(CountingDisk())
        store.set_master_key(1, b"key")
        store.add_entry(1, 0, entry(1, 0, b"x" * 100))
        store.logger.roll()
        store.add_entry(1, 1, entry(1, 1, b"x" * 100))
        store.delete_ledger(1)
        await done(EntryLogCollector(store).collect)
        assert {0, 1} <= set(store.logger.ids())

    virtually(story)


@pytest.mark.parametrize(
    ("waits_s", "is_compacted"), [(3600, [False, False]), (3601, [True, False]), (86_401, [True, True])]
)
def test_logs_below_a_fifth_are_compacted_each_hour_and_those_below_four_fifths_each_day(
    virtually: Virtually, waits_s: float, is_compacted: list[bool]
) -> None:
    async def story() -> None:
        store = opened(CountingDisk())
        collector = EntryLogCollector(store)
        await fill(store, *range(10, 20), entries=10)
        await fill(store, *range(20, 30), entries=10)
        for ledger_id in (*range(11, 20), *range(25, 30)):
            store.delete_ledger(ledger_id)
        await asyncio.sleep(waits_s)
        await done(collector.collect)
        assert [log_id not in store.logger.ids() for log_id in (0, 1)] == is_compacted
        assert await all_readable(store)
        assert logs_of(store, 10) == ({2} if is_compacted[0] else {0})
        expected = (9 * RECORD if is_compacted[0] else 0) + (5 * RECORD if is_compacted[1] else 0)
        assert collector.stats.bytes_of_compacted == expected

    virtually(story)


@pytest.mark.parametrize("config", [CompactionConfig(entries_per_s=10), CompactionConfig(bytes_per_s=1320.0)])
def test_compaction_copies_so_many_entries_or_bytes_a_second(virtually: Virtually, config: CompactionConfig) -> None:
    async def story() -> None:
        store = opened(CountingDisk())
        collector = EntryLogCollector(store, config)
        await fill(store, 1, 2, entries=14)
        store.delete_ledger(2)
        start = asyncio.get_running_loop().time()
        await done(partial(collector.collect, is_forced=True))
        assert asyncio.get_running_loop().time() - start == pytest.approx(0.6), "the first of seven waits for nobody"

    virtually(story)


def test_an_entry_that_came_again_meanwhile_stays_where_it_is(virtually: Virtually) -> None:
    async def story() -> None:
        store = opened(CountingDisk())
        collector = EntryLogCollector(store, CompactionConfig(entries_per_s=10))
        await fill(store, 1, 2, entries=14)
        store.delete_ledger(2)
        running = asyncio.ensure_future(done(partial(collector.collect, is_forced=True)))
        await asyncio.sleep(0.5)
        store.add_entry(1, 0, entry(1, 0, b"again"))
        where = store.cache.get(1, 0)
        store.set_master_key(3, b"key")
        await running
        assert store.cache.get(1, 0) == where
        assert await read_by(partial(store.read_entry, 1, 0)) == entry(1, 0, b"again")
        assert 0 not in store.logger.ids()

    virtually(story)


def test_locations_are_moved_in_portions(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        steps: list[str] = []
        store = opened(disk, on_step=steps.append)
        collector = EntryLogCollector(store, CompactionConfig(moved_max=3))
        await fill(store, 1, 2, entries=14)
        store.delete_ledger(2)
        steps.clear()
        await done(partial(collector.collect, is_forced=True))
        assert steps.count("move.index") == 3, "of 3, 3 and 1 entries"
        assert await all_readable(store)
        assert 0 not in store.logger.ids()

    virtually(story)


@pytest.mark.parametrize("is_faithful", [True, False])
@pytest.mark.parametrize("operation", [DiskOperation.WRITE, DiskOperation.SYNC])
def test_a_compaction_that_fails_leaves_the_log_and_brings_nothing_unless_bookkeeper_is_imitated(
    virtually: Virtually, operation: DiskOperation, is_faithful: bool
) -> None:
    async def story() -> None:
        disk = CountingDisk()
        quirks = frozenset([Quirk.FAILED_COMPACTIONS_COUNTED] if is_faithful else [])
        store = opened(disk)
        collector = EntryLogCollector(store, quirks=quirks)
        await fill(store, 1, 2)
        store.delete_ledger(2)
        disk.faults.plant(DiskFault(operation, DiskFaultKind.ERROR))
        await done(partial(collector.collect, is_forced=True))
        assert 0 in store.logger.ids()
        assert collector.stats.bytes_of_compacted == (7 * RECORD if is_faithful else 0)
        assert collector.stats.major_compactions == 1
        assert await all_readable(store)

    virtually(story)


def test_a_log_that_cannot_be_removed_or_read_is_left(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(disk)
        collector = EntryLogCollector(store)
        await fill(store, 1)
        await fill(store, 2)
        store.delete_ledger(1)
        store.delete_ledger(2)
        disk.faults.plant(DiskFault(DiskOperation.READ, path="*/1.log"))
        disk.faults.plant(DiskFault(DiskOperation.REMOVE))
        await done(collector.collect)
        assert collector.stats == CollectorStats(logs_not_removed=1)
        assert {0, 1} <= set(store.logger.ids())
        await done(collector.collect)
        assert not {0, 1} & set(store.logger.ids())

    virtually(story)


def test_no_further_log_is_begun_when_the_time_is_up(virtually: Virtually) -> None:
    async def story() -> None:
        store = opened(CountingDisk())
        config = CompactionConfig(major=CompactionRule(0.8, 86_400, time_max_s=1), entries_per_s=2)
        collector = EntryLogCollector(store, config)
        for _ in range(3):
            await fill(store, 1, 2)
        store.delete_ledger(2)
        await done(partial(collector.collect, is_forced=True))
        assert [log_id in store.logger.ids() for log_id in range(3)] == [False, True, True]

    virtually(story)


def test_a_run_that_is_stopped_does_nothing_any_more(virtually: Virtually) -> None:
    async def story() -> None:
        store = opened(CountingDisk())
        collector = EntryLogCollector(store, CompactionConfig(entries_per_s=10))
        await fill(store, 1, 2)
        store.delete_ledger(2)
        calls: list[object] = []
        collector.collect(lambda *call: calls.append(call), None, is_forced=True)
        assert collector.is_running
        await asyncio.sleep(0.3)
        position = store.logger.active_position
        collector.stop()
        await asyncio.sleep(10)
        assert (calls, store.logger.active_position, collector.is_running) == ([], position, False)

    virtually(story)


DEFAULT = CompactionConfig()
IN_TRANSACTIONS = CompactionConfig(in_transactions=True)
STEPS = [
    *("compaction.flush", "log.sync", "move.locations", "move.index", "index.pages", "index.sync"),
    *("compaction.remove", "log.remove"),
]
STEPS_OF_TRANSACTIONS = [
    *("log.allocated", "transaction.flush", "transaction.compacted", "transaction.available", "move.locations"),
    *("move.index", "index.pages", "index.sync", "transaction.finish", "compaction.remove", "log.remove"),
]


@pytest.mark.parametrize(
    ("config", "step"),
    [*((DEFAULT, step) for step in STEPS), *((IN_TRANSACTIONS, step) for step in STEPS_OF_TRANSACTIONS)],
)
@pytest.mark.parametrize("mode", list(CrashMode))
@pytest.mark.parametrize("covers", [True, False])
def test_a_bookie_may_die_at_every_step_of_a_compaction(
    virtually: Virtually, config: CompactionConfig, step: str, mode: CrashMode, covers: bool
) -> None:
    disk = CountingDisk(Random(2), sync_covers_names=covers)
    compacting: list[int] = []

    async def until_it_dies() -> None:
        def on_step(name: str) -> None:
            if name == step and compacting:
                disk.crash(mode)
                raise CrashPoint(name)

        store = opened(disk, on_step=on_step)
        await fill(store, 1, 2)
        store.delete_ledger(2)
        compacting.append(1)
        await done(partial(EntryLogCollector(store, config, on_step=on_step).collect, is_forced=True))

    async def afterwards() -> None:
        store = opened(disk)
        if 2 in store.ledger_ids():
            store.delete_ledger(2)
        assert store.entry_ids(1) == list(range(7))
        assert await all_readable(store)
        await done(partial(EntryLogCollector(store, config).collect, is_forced=True))
        assert await all_readable(store)
        for seed in range(12):
            other = disk.copy(Random(seed))
            other.crash(CrashMode.POWER_LOSS)
            assert await all_readable(opened(other)), "what the first life only wrote was synced before the log went"
        await done(partial(EntryLogCollector(store, config).collect, is_forced=True))
        assert 0 not in store.logger.ids(), "compacted again, or removed"
        assert await all_readable(store)
        assert all(name.endswith((".log", "lastId")) for name in disk.names(PATH))

    assert run_to_crash_point(until_it_dies) == step
    virtually(afterwards)


def test_in_transactions_a_log_is_replaced_by_one_of_its_own(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(disk)
        await fill(store, 1, 2)
        active = store.logger.active_id
        store.delete_ledger(2)
        await done(partial(EntryLogCollector(store, IN_TRANSACTIONS).collect, is_forced=True))
        (log_id,) = logs_of(store, 1)
        assert active is not None
        assert log_id > active
        assert store.logger.ledgers_of(log_id) == {1: 7 * RECORD}
        assert read_ledgers_map(disk.open(f"{PATH}/{log_id:x}.log")) == {1: 7 * RECORD}
        assert store.logger.active_id == active
        assert await all_readable(store)

    virtually(story)


@pytest.mark.parametrize(
    ("operation", "skip"),
    [(DiskOperation.WRITE, 0), (DiskOperation.WRITE, 9), (DiskOperation.SYNC, 0), (DiskOperation.LINK, 0)],
)
def test_a_transaction_that_fails_leaves_nothing_but_the_log(
    virtually: Virtually, operation: DiskOperation, skip: int
) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(disk)
        await fill(store, 1, 2)
        store.delete_ledger(2)
        before = disk.names(PATH)
        disk.faults.plant(DiskFault(operation, path="*.compacting", skip=skip))
        await done(partial(EntryLogCollector(store, IN_TRANSACTIONS).collect, is_forced=True))
        assert disk.names(PATH) == before
        assert await all_readable(store)

    virtually(story)


@pytest.mark.parametrize("is_faithful", [True, False])
def test_an_interrupted_transaction_ends_in_the_next_run_unless_bookkeeper_is_imitated(
    virtually: Virtually, is_faithful: bool
) -> None:
    disk = CountingDisk()
    Folder(disk, PATH).write_small("lastId", b"d\n")

    async def until_it_dies() -> None:
        def on_step(name: str) -> None:
            if name == "transaction.available":
                disk.crash(CrashMode.PROCESS)
                raise CrashPoint(name)

        store = opened(disk)
        await fill(store, 1, 2)
        store.delete_ledger(2)
        await done(partial(EntryLogCollector(store, IN_TRANSACTIONS, on_step=on_step).collect, is_forced=True))

    async def afterwards() -> None:
        assert "11.log.e.compacted" in disk.names(PATH)
        store = opened(disk, quirks=frozenset([Quirk.DECIMAL_LOG_NAMES] if is_faithful else []))
        for _ in range(2):
            await done(EntryLogCollector(store, IN_TRANSACTIONS).collect)
        assert ("11.log.e.compacted" in disk.names(PATH)) is is_faithful
        assert logs_of(store, 1) == ({0xE} if is_faithful else {0x11})
        assert ("17.log" in disk.names(PATH)) is is_faithful, "the id in decimal"
        assert await all_readable(store)

    run_to_crash_point(until_it_dies)
    virtually(afterwards)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["fill", "delete", "collect", "crash", "power"]), max_size=15),
    st.integers(0, 1 << 32),
    st.booleans(),
)
def test_what_was_flushed_is_readable_whatever_is_collected_and_compacted(
    actions: list[str], seed: int, in_transactions: bool
) -> None:
    async def story() -> None:
        rng = Random(seed)
        disk = CountingDisk(Random(seed))
        store = opened(disk)
        collector = EntryLogCollector(store, IN_TRANSACTIONS if in_transactions else DEFAULT)
        alive: dict[int, int] = {}
        for action in actions:
            if action == "fill":
                ledgers = [rng.randrange(6), 6 + rng.randrange(6)]
                await fill(store, *ledgers)
                alive |= {ledger_id: len(store.entry_ids(ledger_id)) for ledger_id in ledgers}
            elif action == "delete" and alive:
                ledger_id = rng.choice(sorted(alive))
                del alive[ledger_id]
                store.delete_ledger(ledger_id)
            elif action == "collect":
                await done(partial(collector.collect, is_forced=True))
            elif action in ("crash", "power"):
                mode = CrashMode.PROCESS if action == "crash" else CrashMode.POWER_LOSS
                store.crash(mode)
                disk.crash(mode)
                store = opened(disk)
                collector = EntryLogCollector(store, IN_TRANSACTIONS if in_transactions else DEFAULT)
                for ledger_id in set(store.ledger_ids()) - set(alive):
                    store.delete_ledger(
                        ledger_id
                    )  # its deletion was not durable; the next look at the metadata finds it
            assert {ledger_id: len(store.entry_ids(ledger_id)) for ledger_id in store.ledger_ids()} == alive
            assert await all_readable(store)

    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(story())
    finally:
        loop.close()


@pytest.mark.parametrize("in_transactions", [False, True])
def test_a_torn_record_does_not_take_the_place_of_the_entry_that_it_looks_like(
    virtually: Virtually, *, in_transactions: bool
) -> None:
    async def story() -> None:
        store = opened(CountingDisk())
        every = CompactionRule(0.9, 1000.0)
        config = CompactionConfig(CompactionRule(0, 0), every, in_transactions=in_transactions, force_always=True)
        collector = EntryLogCollector(store, config)
        for ledger_id in (1, 2):
            store.set_master_key(ledger_id, b"key")
            store.logger.add(
                ledger_id, entry(ledger_id, 0, bytes(100))
            )  # of one, a power loss left length and ledger id
            store.add_entry(ledger_id, 0, entry(ledger_id, 0, b"x" * 100))
        store.logger.roll()
        await done(store.flush)
        store.delete_ledger(2)
        await done(partial(collector.collect, is_forced=True))
        assert logs_of(store, 1) != {0}
        assert await all_readable(store)

    virtually(story)

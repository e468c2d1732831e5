"""Garbage collection of the logs of a store with a database: nothing that was flushed is lost, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simbookie.storage.base import CrashMode
from simbookie.storage.compaction.collector import EntryLogCollector
from simbookie.storage.compaction.plan import CompactionConfig
from simbookie.storage.compaction.runs import CollectorRuns
from simbookie.storage.db.settings import DbConfig
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.entry_logs.format import log_id_of
from simbookie.storage.ledger_store import CrashPoint, OnStep, no_step
from simbookie.world.loop import VirtualTimeLoop
from tests.simbookie.storage.stores import (
    CountingDisk,
    Owner,
    done,
    entry,
    folders,
    read_by,
    run_to_crash_point,
    small_databases,
)

Virtually = Callable[[Callable[[], Any]], None]
PATH = "ledgers/current"
IN_PLACE = CompactionConfig()
IN_TRANSACTIONS = CompactionConfig(in_transactions=True)


def opened(disk: CountingDisk, on_step: OnStep = no_step) -> DbLedgerStore:
    logs = EntryLogConfig(log_size_max=3000, write_buffer_bytes=128)
    config = DbConfig(write_cache_bytes=16_384, read_cache_bytes=1024, batch_rows_max=5, entry_log=logs)
    store = DbLedgerStore(folders(disk), config, databases=small_databases(on_step), on_step=on_step)
    store.open(Owner())
    return store


async def fill(store: DbLedgerStore, *ledgers: int, entries: int = 14) -> None:
    """A log with as many entries, of one ledger after the other, and flushed."""
    for ledger_id in ledgers:
        if ledger_id not in store.ledger_ids():
            store.set_master_key(ledger_id, b"key")
    first = {ledger_id: len(store.entry_ids(ledger_id)) for ledger_id in ledgers}
    for number in range(entries):
        ledger_id = ledgers[number % len(ledgers)]
        entry_id = first[ledger_id] + number // len(ledgers)
        store.add_entry(ledger_id, entry_id, entry(ledger_id, entry_id, b"x" * 100))
    await done(store.flush)
    store.shards[0].logger.roll()
    await done(store.shards[0].logger.flush)


def collect(store: DbLedgerStore, config: CompactionConfig, on_step: OnStep = no_step) -> Any:
    collector = EntryLogCollector(store.shards[0], config, on_step=on_step)
    return done(partial(collector.collect, is_forced=True))


async def all_readable(store: DbLedgerStore) -> bool:
    for ledger_id in store.ledger_ids():
        for entry_id in store.entry_ids(ledger_id):
            found = await read_by(partial(store.read_entry, ledger_id, entry_id))
            if found != entry(ledger_id, entry_id, b"x" * 100):
                return False
    return True


def test_what_comes_again_while_a_log_is_compacted_counts(virtually: Virtually) -> None:
    """Copies are written into the log that a flush writes to as well; the flush comes first, and then locations that stand."""

    async def story() -> None:
        store = opened(CountingDisk())
        await fill(store, 1, 2)
        store.delete_ledger(2)
        for entry_id in range(3):
            store.add_entry(1, entry_id, entry(1, entry_id, b"new"))
        compacting = asyncio.ensure_future(collect(store, IN_PLACE))
        await asyncio.gather(done(store.flush), compacting)
        assert 0 not in store.shards[0].logger.ids()
        bodies = [await read_by(partial(store.read_entry, 1, entry_id)) for entry_id in range(7)]
        assert bodies == [entry(1, entry_id, b"new" if entry_id < 3 else b"x" * 100) for entry_id in range(7)]
        assert {log_id_of(store.shards[0].location(1, entry_id)) for entry_id in range(7)} & {0} == set()

    virtually(story)


STEPS = [
    *("compaction.flush", "log.sync", "move.locations", "database.write", "database.sync"),
    *("compaction.remove", "log.remove"),
]
STEPS_OF_TRANSACTIONS = [
    *("log.allocated", "transaction.flush", "transaction.compacted", "transaction.available", "move.locations"),
    *("database.write", "database.sync", "transaction.finish", "compaction.remove", "log.remove"),
]


@pytest.mark.parametrize(
    ("config", "step"),
    [*((IN_PLACE, step) for step in STEPS), *((IN_TRANSACTIONS, step) for step in STEPS_OF_TRANSACTIONS)],
)
@pytest.mark.parametrize("mode", list(CrashMode))
@pytest.mark.parametrize("covers", [True, False])
def test_a_bookie_may_die_at_every_step_of_a_compaction(
    virtually: Virtually, config: CompactionConfig, step: str, mode: CrashMode, *, covers: bool
) -> None:
    disk = CountingDisk(Random(2), sync_covers_names=covers)
    compacting: list[int] = []

    async def until_it_dies() -> None:
        def on_step(name: str) -> None:
            if name == step and compacting:
                disk.crash(mode)
                raise CrashPoint(name)

        store = opened(disk, on_step)
        await fill(store, 1, 2)
        store.delete_ledger(2)
        await done(store.flush)
        compacting.append(1)
        await collect(store, config, on_step)

    async def afterwards() -> None:
        store = opened(disk)
        assert store.ledger_ids() == [1]
        assert store.entry_ids(1) == list(range(7))
        for _ in range(2):
            assert await all_readable(store)
            await collect(store, config)
        assert 0 not in store.shards[0].logger.ids(), "compacted again, or removed"
        assert await all_readable(store)

    assert run_to_crash_point(until_it_dies) == step
    virtually(afterwards)


@settings(max_examples=60, deadline=None)
@given(
    actions=st.lists(st.sampled_from(["fill", "add", "delete", "flush", "collect", "crash", "power"]), max_size=20),
    seed=st.integers(0, 1 << 32),
    in_transactions=st.booleans(),
)
def test_what_was_flushed_is_readable_whatever_is_collected_and_compacted(
    actions: list[str], seed: int, *, in_transactions: bool
) -> None:
    async def story() -> None:
        config = IN_TRANSACTIONS if in_transactions else IN_PLACE
        rng, disk = Random(seed), CountingDisk(Random(seed))
        store = opened(disk)
        alive: dict[int, int] = {}
        for action in actions:
            if action == "fill":
                ledgers = [rng.randrange(6), 6 + rng.randrange(6)]
                await fill(store, *ledgers)
                alive = {ledger_id: len(store.entry_ids(ledger_id)) for ledger_id in store.ledger_ids()}
            elif action == "add" and alive:
                ledger_id = rng.choice(sorted(alive))
                entry_id = len(store.entry_ids(ledger_id))
                store.add_entry(ledger_id, entry_id, entry(ledger_id, entry_id, b"x" * 100))
            elif action == "delete" and alive:
                ledger_id = rng.choice(sorted(alive))
                del alive[ledger_id]
                store.delete_ledger(ledger_id)
            elif action == "flush":
                await done(store.flush)
                alive = {ledger_id: len(store.entry_ids(ledger_id)) for ledger_id in store.ledger_ids()}
            elif action == "collect":
                await collect(store, config)
            elif action in ("crash", "power"):
                mode = CrashMode.PROCESS if action == "crash" else CrashMode.POWER_LOSS
                store.crash(mode)
                disk.crash(mode)
                store = opened(disk)
                for ledger_id in set(store.ledger_ids()) - set(alive):
                    store.delete_ledger(ledger_id)  # its deletion was not durable
            for ledger_id, count in alive.items():
                assert len(store.entry_ids(ledger_id)) >= count
            assert await all_readable(store)

    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(story())
    finally:
        loop.close()


def test_locations_are_compacted_when_an_interval_and_a_random_part_of_it_are_over(virtually: Virtually) -> None:
    async def story() -> None:
        disks = [CountingDisk(), CountingDisk()]
        store = DbLedgerStore(folders(*disks), DbConfig(write_cache_bytes=1 << 20))
        store.open(Owner())
        config = CompactionConfig(location_interval_s=10_000.0)
        runs = CollectorRuns(store.collected, config)
        loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        ended: list[list[float]] = [[], []]
        while loop.time() - began < 60_000:
            await asyncio.sleep(100)
            await done(runs.collect)
            await asyncio.sleep(0)
            for shard, times in zip(store.shards, ended, strict=True):
                compaction = shard.location_compaction
                assert compaction is not None
                assert not compaction.is_running
                if compaction.done > len(times):
                    times.append(loop.time() - began)
        for times in ended:
            waits = [later - earlier for earlier, later in itertools.pairwise([0.0, *times])]
            assert len(times) >= 3
            assert all(10_000 < wait <= 20_100 for wait in waits), waits
            assert len({round(wait, -3) for wait in waits}) > 1, "a random part is added each time"
        assert ended[0] != ended[1], "parts do so at different times"

    virtually(story)


def test_locations_are_left_alone_by_default(virtually: Virtually) -> None:
    async def story() -> None:
        store = DbLedgerStore(folders(CountingDisk()), DbConfig(write_cache_bytes=1 << 20))
        store.open(Owner())
        runs = CollectorRuns(store.collected, CompactionConfig())
        await asyncio.sleep(1e6)
        await done(partial(runs.collect, is_forced=True))
        await asyncio.sleep(1)
        (shard,) = store.shards
        assert shard.location_compaction is not None
        assert shard.location_compaction.done == 0

    virtually(story)

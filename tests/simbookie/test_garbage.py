"""Garbage collection: what is gone from the metadata store goes from the bookie, and nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

from bkclient.errors import MetadataStoreError
from bkclient.ledger import Fragment, LedgerMetadata, Versioned
from bkclient.metadata.memory import MemoryMetadataService, MemoryMetadataStore
from bkclient.wire.messages import Status
from simbookie.garbage import GarbageCollector, GarbageConfig

Virtually = Callable[[Callable[[], Any]], None]


def ledger(ledger_id: int) -> LedgerMetadata:
    return LedgerMetadata(ledger_id, 1, 1, 1, (Fragment(0, ("b0",)),))


@pytest.mark.rule("D12")
async def test_only_ledgers_without_metadata_are_removed(kit: Any) -> None:
    store = MemoryMetadataService().session(rng=Random(1))
    bench = kit.Bench()
    for ledger_id in (1, 2, 3, 4):
        await store.create_ledger(ledger(ledger_id))
        await bench.ask(kit.add(ledger_id, 0))
    await bench.ask(kit.fencing_read(3))
    for ledger_id in (1, 3):
        await store.delete_ledger(ledger_id)
    collector = GarbageCollector(bench.bookie, store)
    assert await collector.collect() == [1, 3]
    assert await collector.collect() == []
    assert bench.bookie.ledger_ids() == [2, 4]
    assert await bench.status(kit.add(3, 1)) is Status.FENCED
    await store.aclose()


@pytest.mark.rule("D12")
async def test_a_ledger_missed_by_the_listing_is_looked_up_before_it_goes(kit: Any) -> None:
    class Forgetful(MemoryMetadataStore):
        async def list_ledgers(self) -> AsyncIterator[int]:
            nothing: list[int] = []
            for ledger_id in nothing:
                yield ledger_id

    store = Forgetful(MemoryMetadataService(), rng=Random(1))
    bench = kit.Bench()
    await store.create_ledger(ledger(1))
    await bench.ask(kit.add(1, 0))
    assert await GarbageCollector(bench.bookie, store).collect() == []
    await store.aclose()


@pytest.mark.rule("D12")
async def test_a_bookie_that_does_not_run_has_no_garbage(kit: Any) -> None:
    store = MemoryMetadataService().session(rng=Random(1))
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0))
    collector = GarbageCollector(bench.bookie, store)
    bench.bookie.crash()
    assert await collector.collect() == []
    assert await collector.collect_overreplicated() == []
    await collector.run_once()
    bench.bookie.start()
    assert await collector.collect() == [1]
    await store.aclose()


def test_so_many_ledgers_are_looked_up_in_a_second(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        store = MemoryMetadataService().session(rng=Random(1))
        bench = kit.Bench()
        for ledger_id in range(31):
            await bench.ask(kit.add(ledger_id, 0))
        loop = asyncio.get_running_loop()
        for rate, seconds in ((10.0, 3.0), (None, 0.0)):
            began = loop.time()
            collector = GarbageCollector(bench.bookie, store, GarbageConfig(lookups_per_s=rate))
            assert len(await collector.collect()) == 31
            assert loop.time() - began == pytest.approx(seconds)
            for ledger_id in range(100, 131):
                await bench.ask(kit.add(ledger_id, 0))
        await store.aclose()

    virtually(story)


@pytest.mark.rule("D12")
async def test_a_store_that_fails_proves_nothing(kit: Any) -> None:
    class Broken(MemoryMetadataStore):
        async def read_ledger(self, ledger_id: int) -> Versioned:
            raise MetadataStoreError("injected", ledger_id=ledger_id)

    store = Broken(MemoryMetadataService(), rng=Random(1))
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0))
    with pytest.raises(MetadataStoreError):
        await GarbageCollector(bench.bookie, store).collect()
    assert bench.bookie.ledger_ids() == [1]
    await store.aclose()


def test_it_runs_at_its_interval_and_survives_failures_and_restarts(kit: Any, virtually: Virtually) -> None:
    class Flaky(MemoryMetadataStore):
        failures = 1

        async def read_ledger(self, ledger_id: int) -> Versioned:
            if self.failures:
                self.failures -= 1
                raise MetadataStoreError("injected", ledger_id=ledger_id)
            return await super().read_ledger(ledger_id)

    async def story() -> None:
        store = Flaky(MemoryMetadataService(), rng=Random(1))
        bench = kit.Bench()
        await bench.ask(kit.add(1, 0))
        running = asyncio.create_task(GarbageCollector(bench.bookie, store, GarbageConfig(10.0)).run())
        await asyncio.sleep(15)
        assert bench.bookie.ledger_ids() == [1]
        await asyncio.sleep(10)
        assert bench.bookie.ledger_ids() == []
        bench.bookie.crash()
        await asyncio.sleep(10)
        bench.bookie.start()
        await bench.ask(kit.add(2, 0))
        await asyncio.sleep(10)
        assert bench.bookie.ledger_ids() == []
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.aclose()

    virtually(story)


@pytest.mark.parametrize("fields", [{"interval_s": 0}, {"overreplicated_interval_s": -1}, {"lookups_per_s": 0}])
def test_intervals_and_rates_must_be_positive(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="garbage"):
        GarbageConfig(**fields)

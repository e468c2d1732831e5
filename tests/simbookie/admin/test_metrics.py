"""What a bookie counts, and that all of it is served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bkclient.ledger import Fragment, LedgerMetadata
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.wire.messages import (
    AddRequest,
    BookieInfoRequest,
    ForceLedgerRequest,
    LongPoll,
    ReadRequest,
    Request,
    Status,
)
from simbookie.admin.catalogue import BOOKIE_METRICS
from simbookie.admin.levels import bookie_readings
from simbookie.admin.metrics import BookieMetrics
from simbookie.bookie import Bookie
from simbookie.config import BookieConfig
from simbookie.garbage import GarbageCollector, GarbageConfig
from simbookie.measured import MeasuredBookie
from simbookie.storage.compaction.plan import CompactionConfig
from simbookie.storage.db.settings import DbConfig
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.interleaved import InterleavedConfig, InterleavedLedgerStore
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.journaled_config import JournaledConfig
from simbookie.storage.kinds import StoreKind
from simbookie.storage.ledger_store import LedgerStore
from simbookie.storage.memory import MemoryStorage
from simbookie.storage.sorted import SortedConfig, SortedLedgerStore
from tests.simbookie.admin.bench import operated

Virtually = Callable[[Callable[[], Any]], None]
Values = dict[tuple[str, frozenset[tuple[str, str]]], float]
#: Why a name need not be seen: nothing of what a test does brings it about.
SELDOM = {"bookkeeper_server_FAILED_REQUESTS"}


def storage_of(kind: str) -> JournaledStorage:
    disk = SimulatedDisk(costs=DiskCosts(sync_s=0.002))
    parts = [Folder(disk, "l0"), Folder(disk, "l1")]
    folders = Folders(parts, Random(1))
    store: LedgerStore
    if kind == "db":
        store = DbLedgerStore(folders, DbConfig())
    elif kind == "sorted":
        store = SortedLedgerStore(folders)
    else:
        store = InterleavedLedgerStore(folders)
    return JournaledStorage([Folder(disk, "j0"), Folder(disk, "j1")], parts, store)


def values(text: str) -> Values:
    families = text_string_to_metric_families(text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


async def started(bookie: Bookie) -> None:
    running: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bookie.start(lambda: running.set_result(None))
    await running


async def asked(bookie: Bookie, request: Request) -> Any:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    bookie.submit(request, done.set_result)
    return await done


def of(found: Values, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def test_requests_are_counted_by_kind_outcome_and_status(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bookie = MeasuredBookie("b0", storage_of("sorted"), BookieConfig(pending_adds_max=1))
        await started(bookie)
        body = kit.entry_body(1, 0)
        first = AddRequest(1, 0, kit.KEY, body[:32], body[32:])
        assert (await asked(bookie, first)).status is Status.OK
        ordinary: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        second = kit.add(1, 1)
        assert bookie.add(second, lambda token, error: ordinary.set_result(error), None, "")
        assert (await asked(bookie, kit.add(1, 2))).status is Status.TOO_MANY_REQUESTS
        assert await ordinary is None
        for request in (
            ReadRequest(1, 0),
            ReadRequest(1, 9),
            ReadRequest(1, 0, fence_key=kit.KEY),
            BookieInfoRequest(3),
        ):
            await asked(bookie, request)
        await asked(bookie, ReadRequest(1, 5, long_poll=LongPoll(-1, 10)))

        found = values(BookieMetrics(bookie).exposition().decode())

        def count(name: str, success: str) -> float:
            return of(found, f"bookkeeper_server_{name}_count", success=success)

        assert (count("ADD_ENTRY_REQUEST", "true"), count("ADD_ENTRY_REQUEST", "false")) == (2, 1)
        assert (count("READ_ENTRY_REQUEST", "true"), count("READ_ENTRY_REQUEST", "false")) == (1, 1)
        assert count("READ_ENTRY_FENCE_REQUEST", "true") == count("GET_BOOKIE_INFO_REQUEST", "true") == 1
        assert count("READ_ENTRY_LONG_POLL_REQUEST", "true") + count("READ_ENTRY_LONG_POLL_REQUEST", "false") == 1
        # an add takes a sync of two milliseconds, and the clock is virtual
        assert of(found, "bookkeeper_server_ADD_ENTRY_REQUEST_sum", success="true") >= 2 * 2
        failed = "bookkeeper_server_FAILED_REQUESTS"
        assert of(found, failed, operation="ADD_ENTRY_REQUEST", code="TOO_MANY_REQUESTS") == 1
        assert of(found, failed, operation="READ_ENTRY_REQUEST", code="NO_ENTRY") == 1
        assert of(found, "bookkeeper_server_ADD_ENTRY_REJECTED") == 1
        assert of(found, "bookkeeper_server_READ_ENTRY_REJECTED") == 0
        assert of(found, "bookie_WRITE_BYTES") == 2 * len(body)
        assert of(found, "bookie_READ_BYTES") == 2 * len(body)
        adds = sum(
            of(found, "bookie_journal_JOURNAL_ADD_ENTRY_count", journalIndex=each, success="true")
            for each in ("0", "1")
        )
        assert adds == 2
        assert of(found, "bookie_journal_JOURNAL_SYNC_sum", journalIndex="1", success="true") >= 2 * 2

    virtually(story)


@pytest.mark.parametrize("kind", ["interleaved", "sorted", "db"])
def test_every_level_is_one_of_the_catalogue_and_read_from_any_store(kind: str, kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bookie = MeasuredBookie("b0", storage_of(kind))
        assert {reading.name for reading in bookie_readings(bookie)} <= set(BOOKIE_METRICS)
        await started(bookie)
        for ledger_id in range(4):
            assert (await asked(bookie, kit.add(ledger_id, 0))).status is Status.OK
        readings = list(bookie_readings(bookie))
        assert {reading.name for reading in readings} <= set(BOOKIE_METRICS)
        assert len({(each.name, frozenset(each.labels.items())) for each in readings}) == len(readings)
        found = values(BookieMetrics(bookie).exposition().decode())
        assert of(found, "bookie_ledgers_count") == 4
        assert of(found, "bookie_JOURNAL_DIRS") == 2
        if kind == "sorted":
            assert of(found, "bookie_write_cache_size") == 4 * len(kit.entry_body(0, 0))
        elif kind == "db":
            assert of(found, "bookie_write_cache_size", ledgerDir="l1") == 2 * len(kit.entry_body(0, 0))
        bookie.set_read_only(True)
        assert of(values(BookieMetrics(bookie).exposition().decode()), "bookie_SERVER_STATUS") == 0
        bookie.crash()
        found = values(BookieMetrics(bookie).exposition().decode())
        assert of(found, "bookie_SERVER_STATUS") == -1
        assert of(found, "bookkeeper_server_ADD_ENTRY_IN_PROGRESS") == 0

    virtually(story)


async def test_every_metric_of_the_catalogue_can_be_seen(tmp_path: Path, virtually: Virtually) -> None:
    seen: set[str] = set(SELDOM)
    async with operated(tmp_path / "sorted") as it:
        seen |= {reading.name for reading in bookie_readings(it.server.bookie, it.subject.collector)}
        seen |= {family.name for family in BookieMetrics(it.server.bookie, it.subject.collector).collect()}
    async with operated(tmp_path / "db", ledgerStorageClass=StoreKind.DB.class_name) as it:
        seen |= {family.name for family in BookieMetrics(it.server.bookie, it.subject.collector).collect()}
    assert seen == set(BOOKIE_METRICS)


async def stored(bookie: Bookie, kit: Any, *keys: tuple[int, int], size: int = 400) -> None:
    for key in keys:
        assert (await asked(bookie, kit.add(*key, payload=bytes(size)))).status is Status.OK


async def flushed(bookie: Bookie) -> None:
    assert isinstance(bookie.storage, JournaledStorage)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bookie.storage.store.flush(lambda token, error: done.set_result(None), None)
    await done


def test_caches_of_a_store_with_a_database_count_what_they_had_and_had_not(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk(costs=DiskCosts(sync_s=0.002))
        parts = [Folder(disk, "l0")]
        config = DbConfig(write_cache_bytes=4_096, read_cache_bytes=8_192, read_ahead_entries=2)
        store = DbLedgerStore(Folders(parts, Random(1)), config)
        storage = JournaledStorage([Folder(disk, "j0")], parts, store)
        bookie = MeasuredBookie("b0", storage, BookieConfig(add_wait_max_s=0.0005))
        await started(bookie)
        await stored(bookie, kit, *((0, number) for number in range(4)))
        await asked(bookie, ReadRequest(0, 1))  # in the write cache
        await flushed(bookie)
        for number in (0, 1, 2, 3, 9):  # from the log, and two ahead; ahead, ahead; from the log; nowhere
            await asked(bookie, ReadRequest(0, number))
        await asked(bookie, ReadRequest(7, -1))
        await asked(bookie, ForceLedgerRequest(0))
        found = values(BookieMetrics(bookie).exposition().decode())

        def count(name: str, **labels: str) -> float:
            return of(found, f"bookie_{name}", ledgerDir="l0", **labels)

        assert (count("write_cache_hits"), count("write_cache_misses")) == (1, 5)
        assert (count("read_cache_hits"), count("read_cache_misses")) == (2, 3)
        assert (count("read_cache_count"), count("write_cache_count")) == (4, 0)
        assert count("readahead_batch_count_count", success="true") == 2
        assert count("readahead_batch_count_sum", success="true") == 2
        assert count("flush_count", success="true") == count("flushes") == 2, "one of them after the replay"
        assert count("flush_size_sum", success="true") == 4 * len(kit.entry_body(0, 0, payload=bytes(400)))
        assert of(found, "bookie_BOOKIE_FORCE_LEDGER") == 1
        requests = [kit.add(1, number, payload=bytes(400)) for number in range(12)]
        answers = await asyncio.gather(*(asked(bookie, request) for request in requests))
        refused = sum(answer.status is Status.TOO_MANY_REQUESTS for answer in answers)
        assert refused, "both caches are full, and the flush takes longer than an add waits"
        found = values(BookieMetrics(bookie).exposition().decode())
        assert of(found, "bookie_rejected_write_requests") == refused
        assert count("throttled_write_requests") > refused, "others found room in time"

    virtually(story)


def test_memtables_and_index_pages_count_what_found_no_room_and_what_was_there(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk(costs=DiskCosts(sync_s=0.002))
        parts = [Folder(disk, "l0")]
        store = SortedLedgerStore(Folders(parts, Random(1)), SortedConfig(memtable_bytes=1_000))
        bookie = MeasuredBookie("b0", JournaledStorage([Folder(disk, "j0")], parts, store), BookieConfig())
        await started(bookie)
        statuses = [kit.add(0, number, payload=bytes(400)) for number in range(6)]
        answers = await asyncio.gather(*(asked(bookie, request) for request in statuses))
        refused = sum(answer.status is Status.TOO_MANY_REQUESTS for answer in answers)
        assert refused
        await flushed(bookie)
        await asked(bookie, ReadRequest(0, 0))
        found = values(BookieMetrics(bookie).exposition().decode())
        assert of(found, "bookie_SKIP_LIST_THROTTLING") == refused
        size = len(kit.entry_body(0, 0, payload=bytes(400)))
        assert of(found, "bookie_SKIP_LIST_FLUSH_BYTES") == (6 - refused) * size
        assert of(found, "bookie_NUM_INDEX_PAGES") == of(found, "bookie_LEDGER_CACHE_MISS") == 1
        assert of(found, "bookie_LEDGER_CACHE_HIT") >= 6 - refused
        groups = of(found, "bookie_journal_JOURNAL_FORCE_WRITE_GROUPING_TOTAL_count", journalIndex="0", success="true")
        records = of(found, "bookie_journal_JOURNAL_FORCE_WRITE_GROUPING_TOTAL_sum", journalIndex="0", success="true")
        assert records == 7 - refused, "the entries, and the key of the ledger"
        assert 1 <= groups <= records

    virtually(story)


def test_runs_of_the_garbage_collector_are_timed_and_tell_what_they_compacted(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        disk = SimulatedDisk(costs=DiskCosts(sync_s=0.002))
        parts = [Folder(disk, "l0")]
        interleaved = InterleavedConfig(EntryLogConfig(log_size_max=4_000))
        store = InterleavedLedgerStore(Folders(parts, Random(1)), interleaved)
        config = JournaledConfig(compaction=CompactionConfig(entries_per_s=10.0, force_always=True))
        bookie = MeasuredBookie("b0", JournaledStorage([Folder(disk, "j0")], parts, store, config))
        await started(bookie)
        metadata = MemoryMetadataService().session(rng=Random(1))
        for ledger_id in (0, 1):
            await metadata.create_ledger(LedgerMetadata(ledger_id, 1, 1, 1, (Fragment(0, ("b0",)),)))
        await stored(bookie, kit, *((number % 2, number) for number in range(24)))
        await metadata.delete_ledger(1)
        collector = GarbageCollector(bookie, metadata, GarbageConfig(600.0, 0.0))
        await flushed(bookie)
        await collector.run_once(is_forced=True)
        found = values(BookieMetrics(bookie, collector).exposition().decode())
        assert of(found, "bookie_gc_MAJOR_COMPACTION_TOTAL") == 1
        assert of(found, "bookie_gc_ENTRY_LOG_COMPACT_RATIO") == 1
        assert of(found, "bookie_gc_ACTIVE_LEDGER_TOTAL") in (0, 1)
        for name in ("THREAD_RUNTIME", "GC_LEDGER_RUNTIME", "EXTRACT_META_RUNTIME", "COMPACT_RUNTIME"):
            assert of(found, f"bookie_gc_{name}_count", success="true") == 1
        taken = of(found, "bookie_gc_COMPACT_RUNTIME_sum", success="true")
        assert 100 <= taken <= of(found, "bookie_gc_THREAD_RUNTIME_sum", success="true"), "ten entries a second"
        await metadata.aclose()

    virtually(story)


def test_a_plain_bookie_has_levels_and_no_latencies(virtually: Virtually) -> None:
    async def story() -> None:
        bookie = Bookie("b0", MemoryStorage())
        await started(bookie)
        names = {family.name for family in BookieMetrics(bookie).collect()}
        assert "bookie_SERVER_STATUS" in names
        assert not any(name.endswith("_REQUEST") for name in names)

    virtually(story)

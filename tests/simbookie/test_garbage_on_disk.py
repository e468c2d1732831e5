"""Garbage on disk: a bookie gives back what was deleted, for as long as it runs, and keeps everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

import pytest

from bkclient.ledger import Fragment, LedgerMetadata, LedgerState
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.metadata.tree import tree_of
from bkclient.repair.underreplication.marks import UnderReplication
from bkclient.wire.messages import Status
from simbookie.bookie import Bookie
from simbookie.garbage import GarbageCollector, GarbageConfig
from simbookie.storage.base import CrashMode
from simbookie.storage.compaction.kinds import CompactionKind
from simbookie.storage.compaction.plan import CompactionConfig, CompactionRule
from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.interleaved import InterleavedConfig, InterleavedLedgerStore
from simbookie.storage.journal.settings import JournalSettings
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.journaled_config import JournaledConfig
from simbookie.storage.ledger_store import LedgerStore
from simbookie.storage.quirks import Quirk
from simbookie.storage.sorted import SortedConfig, SortedLedgerStore
from simbookie.storage.space import SpaceConfig, SpaceState
from simbookie.world.bookie_host import BookieHost
from simbookie.world.hosts import Host, World
from simbookie.world.metadata import SimulatedMetadataStore
from simbookie.world.transport import SimulatedTransport
from tests.simbookie.storage.stores import read_by

Virtually = Callable[[Callable[[], Any]], None]
KIB = 1 << 10
HOUR = 3_600.0
LOG_BYTES = 64 * KIB
MINOR = CompactionRule(0.2, HOUR)
MAJOR = CompactionRule(0.8, 6 * HOUR)


def storage_of(kind: str, disk: SimulatedDisk, compaction: CompactionConfig, **space: Any) -> JournaledStorage:
    ledgers = Folder(disk, "ledgers/current")
    folders = Folders([ledgers], Random(1))
    interleaved = InterleavedConfig(EntryLogConfig(log_size_max=LOG_BYTES, write_buffer_bytes=4_096))
    store: LedgerStore
    if kind == "interleaved":
        store = InterleavedLedgerStore(folders, interleaved)
    else:
        store = SortedLedgerStore(folders, SortedConfig(memtable_bytes=16 * KIB, interleaved=interleaved))
    journal = JournalSettings(file_bytes_max=64 * KIB, preallocation_bytes=16 * KIB, backups_max=1)
    config = JournaledConfig(journal=journal, compaction=compaction, space=SpaceConfig(**space))
    return JournaledStorage([Folder(disk, "journal/current")], [ledgers], store, config)


def metadata_of(ledger_id: int, *bookies: str, state: LedgerState = LedgerState.OPEN) -> LedgerMetadata:
    ensembles = [
        Fragment(0, (each,)) if number == 0 else Fragment(number, (each,)) for number, each in enumerate(bookies)
    ]
    last = len(bookies) if state is LedgerState.CLOSED else -1
    return LedgerMetadata(ledger_id, 1, 1, 1, tuple(ensembles), state=state, last_entry_id=last)


@dataclass
class Bench:
    """A bookie on a disk, its metadata store and its garbage collector."""

    kit: Any
    kind: str = "sorted"
    compaction: CompactionConfig = field(default_factory=lambda: CompactionConfig(MINOR, MAJOR))
    capacity_bytes: int = 1 << 30
    space: dict[str, float] = field(default_factory=dict)
    garbage: GarbageConfig = field(default_factory=GarbageConfig)
    quirks: frozenset[Quirk] = frozenset()
    bookie_is_alone: bool = True

    def __post_init__(self) -> None:
        self.disk = SimulatedDisk(capacity_bytes=self.capacity_bytes)
        self.storage = storage_of(self.kind, self.disk, self.compaction, **self.space)
        self.bookie = Bookie("b0", self.storage)
        self.service = MemoryMetadataService()
        self.store = self.service.session(rng=Random(1))
        self.collector = GarbageCollector(self.bookie, self.store, self.garbage, quirks=self.quirks)
        self.task: asyncio.Task[None] | None = None

    async def started(self) -> Bench:
        started = asyncio.get_running_loop().create_future()
        self.bookie.start(lambda: started.set_result(None))
        await started
        self.task = asyncio.create_task(self.collector.run())
        return self

    async def ended(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        await self.store.aclose()

    async def add(self, ledger_id: int, entry_id: int) -> Status:
        answers = self.kit.Answers()
        while True:
            self.bookie.submit(self.kit.add(ledger_id, entry_id, payload=bytes([ledger_id % 256]) * KIB), answers)
            await asyncio.sleep(0.1)
            status: Status = answers[-1].status
            if status is not Status.TOO_MANY_REQUESTS:
                return status

    @property
    def used(self) -> int:
        capacity = self.disk.capacity()
        return capacity.total - capacity.free

    def logs(self) -> list[int]:
        return self.storage.store.collected[0].logger.flushed_ids()

    async def write(self, *ledgers: int, entries: int) -> None:
        """Entries of ledgers in turn, each a new one."""
        for ledger_id in ledgers:
            await self.store.create_ledger(metadata_of(ledger_id, "b0"))
        for entry_id in range(entries):
            for ledger_id in ledgers:
                assert await self.add(ledger_id, entry_id) is Status.OK

    async def all_readable(self, ledgers: dict[int, int]) -> bool:
        for ledger_id, entries in ledgers.items():
            for entry_id in range(entries):
                found = await read_by(partial(self.storage.read_entry, ledger_id, entry_id))
                if found != self.kit.entry_body(ledger_id, entry_id, payload=bytes([ledger_id % 256]) * KIB):
                    return False
        return True


@pytest.mark.parametrize("in_transactions", [False, True])
@pytest.mark.parametrize("kind", ["interleaved", "sorted"])
def test_a_bookie_that_writes_and_deletes_for_days_needs_no_more_space_than_after_the_first(
    kit: Any, virtually: Virtually, kind: str, *, in_transactions: bool
) -> None:
    async def story() -> None:
        compaction = CompactionConfig(MINOR, MAJOR, in_transactions=in_transactions)
        bench = await Bench(kit, kind, compaction).started()
        entries, alive, used = 12, dict[int, int](), list[int]()
        for hour in range(72):
            new = [4 * hour + number for number in range(4)]
            await bench.write(*new, entries=entries)
            alive |= dict.fromkeys(new, entries)
            for old in [each for each in alive if each < 4 * (hour - 6) and each % 40]:  # a few stay for ever
                await bench.store.delete_ledger(old)
                del alive[old]
            await asyncio.sleep(HOUR - asyncio.get_running_loop().time() % HOUR)
            used.append(bench.used)
        kept_for_ever = (72 * 4 // 40 + 1) * entries * 2 * KIB
        assert max(used[48:]) <= max(used[12:24]) + kept_for_ever
        assert await bench.all_readable(alive)
        assert set(bench.bookie.ledger_ids()) == set(alive)
        assert bench.storage.garbage is not None
        stats = bench.storage.garbage.collectors[0].stats
        assert min(stats.major_compactions, stats.minor_compactions, stats.bytes_of_deleted) > 0
        assert stats.bytes_of_compacted > 0
        for ledger_id in alive:
            await bench.store.delete_ledger(ledger_id)
        await bench.write(9_999, entries=80)  # pushes what is left out of memory, and ends the log that it is in
        await asyncio.sleep(700)
        assert bench.logs() == [] or all(
            set(bench.storage.store.collected[0].logger.ledgers_of(log_id)) <= {9_999}
            or log_id >= max(bench.logs()) - 1
            for log_id in bench.logs()
        )
        await bench.ended()

    virtually(story)


def test_a_bookie_that_ends_during_a_run_does_not_hold_its_collector(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        slow = CompactionConfig(MINOR, MAJOR, entries_per_s=0.01, force_always=True)
        bench = await Bench(kit, "interleaved", slow, garbage=GarbageConfig(10.0)).started()
        await bench.write(1, 2, 3, 4, entries=20)
        for ledger_id in (2, 3, 4):
            await bench.store.delete_ledger(ledger_id)
        bench.collector.force()
        await asyncio.sleep(15)
        assert bench.storage.garbage is not None and bench.storage.garbage.is_running  # noqa: PT018
        bench.bookie.crash(CrashMode.PROCESS)
        await asyncio.sleep(15)
        started = asyncio.get_running_loop().create_future()
        bench.bookie.start(lambda: started.set_result(None))
        await started
        await bench.store.delete_ledger(1)
        await asyncio.sleep(25)
        assert bench.bookie.ledger_ids() == []
        await bench.ended()

    virtually(story)


def test_an_orderly_shutdown_ends_a_run(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        slow = CompactionConfig(MINOR, MAJOR, entries_per_s=0.01, force_always=True)
        bench = await Bench(kit, "sorted", slow, garbage=GarbageConfig(10.0)).started()
        await bench.write(1, 2, 3, 4, entries=40)
        for ledger_id in (2, 3, 4):
            await bench.store.delete_ledger(ledger_id)
        bench.collector.force()
        await asyncio.sleep(15)
        assert bench.storage.garbage is not None and bench.storage.garbage.is_running  # noqa: PT018
        stopped = asyncio.get_running_loop().create_future()
        bench.bookie.shutdown(lambda: stopped.set_result(None))
        await stopped
        started = asyncio.get_running_loop().create_future()
        bench.bookie.start(lambda: started.set_result(None))
        await started
        assert await bench.all_readable({1: 40})
        await bench.ended()

    virtually(story)


@pytest.mark.parametrize(("quirks", "first"), [(frozenset(), 600), (frozenset({Quirk.FIRST_COLLECTION_LATE}), 1_200)])
def test_the_first_run_comes_after_one_interval(
    kit: Any, virtually: Virtually, quirks: frozenset[Quirk], first: int
) -> None:
    async def story() -> None:
        bench = await Bench(kit, quirks=quirks).started()
        assert await bench.add(1, 0) is Status.OK
        await asyncio.sleep(first - 1)
        assert bench.bookie.ledger_ids() == [1]
        await asyncio.sleep(1)
        assert bench.bookie.ledger_ids() == []
        await bench.ended()

    virtually(story)


def test_a_closed_ledger_that_others_keep_goes_once_a_day_unless_a_worker_has_it(
    kit: Any, virtually: Virtually
) -> None:
    async def story() -> None:
        bench = await Bench(kit).started()
        closed = LedgerState.CLOSED
        ledgers = {
            1: metadata_of(1, "b1", state=closed),
            2: metadata_of(2, "b1"),
            3: metadata_of(3, "b0", state=closed),
        }
        ledgers |= {4: metadata_of(4, "b1", "b0", state=closed), 5: metadata_of(5, "b1", state=closed)}
        for ledger_id, metadata in ledgers.items():
            await bench.store.create_ledger(metadata)
            assert await bench.add(ledger_id, 0) is Status.OK
        worker = bench.service.session(rng=Random(2))  # another program's
        marks = UnderReplication(tree_of(worker), name="b1", wall_clock_ms=lambda: 0, rng=Random(1))
        await marks.open()
        await marks.mark(5, {"b9"})
        lock = await marks.try_lock(5)
        assert lock is not None
        await asyncio.sleep(86_400 - 600)
        assert bench.bookie.ledger_ids() == [1, 2, 3, 4, 5]
        await asyncio.sleep(1_200)
        assert bench.bookie.ledger_ids() == [2, 3, 4, 5]
        await marks.release(lock)
        await asyncio.sleep(86_400)
        assert bench.bookie.ledger_ids() == [2, 3, 4]
        assert await marks.holder(1) is None
        await worker.aclose()
        await bench.ended()

    virtually(story)


def test_a_disk_that_is_nearly_full_ends_its_log_and_suspends_major_compaction(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        space = {"little_above": 0.3, "writable_below": 0.8, "full_above": 0.8}
        bench = await Bench(kit, "interleaved", capacity_bytes=512 * KIB, space=space).started()
        await bench.write(1, entries=30)
        logger = bench.storage.store.collected[0].logger
        assert bench.storage.garbage is not None
        schedule = bench.storage.garbage.collectors[0].schedule
        entry_id = 30
        while schedule.space is SpaceState.PLENTY:
            assert await bench.add(1, entry_id) is Status.OK
            await asyncio.sleep(10)
            entry_id += 1
        before = logger.active_id
        assert await bench.add(1, entry_id) is Status.OK
        assert logger.active_id != before
        schedule.last_major = schedule.last_minor = -1e9
        assert schedule.choose(0.0) is CompactionKind.MINOR
        await bench.store.delete_ledger(1)
        await asyncio.sleep(2_000)
        assert schedule.choose(1e9) is CompactionKind.MAJOR
        await bench.ended()

    virtually(story)


@pytest.mark.parametrize("is_forced", [False, True])
def test_a_full_disk_starts_a_forced_run_where_that_is_allowed(
    kit: Any, virtually: Virtually, *, is_forced: bool
) -> None:
    async def story() -> None:
        compaction = replace(CompactionConfig(MINOR, MAJOR), forced_without_space=is_forced)
        space = {"little_above": 0.5, "writable_below": 0.8, "full_above": 0.8}
        bench = await Bench(kit, "interleaved", compaction, capacity_bytes=512 * KIB, space=space).started()
        await bench.write(1, entries=60)
        await bench.store.delete_ledger(1)
        await bench.write(2, entries=1)
        entry_id = 1
        while asyncio.get_running_loop().time() < 300 and entry_id < 250:
            if await bench.add(2, entry_id) is not Status.OK:
                break
            entry_id += 1
        await asyncio.sleep(15)
        assert (bench.bookie.ledger_ids() == [2]) is is_forced
        await bench.ended()

    virtually(story)


def test_a_bookie_of_the_simulated_world_collects_its_garbage(kit: Any) -> None:
    disk = SimulatedDisk()
    compaction = CompactionConfig(MINOR, MAJOR)
    with World(1) as world:
        storage = storage_of("sorted", disk, compaction)
        host = BookieHost(world, "b0", storage=storage, garbage=GarbageConfig(60.0))
        client = Host(world, "client")
        transport = SimulatedTransport(world, client)

        async def story() -> None:
            await host.registered()
            store = SimulatedMetadataStore(world, client)
            for ledger_id in (1, 2):
                await store.create_ledger(metadata_of(ledger_id, "b0"))
                answer = world.loop.create_future()
                transport.submit("b0", kit.add(ledger_id, 0), lambda *told, answer=answer: answer.set_result(told))
                await answer
            await store.delete_ledger(1)
            await asyncio.sleep(70)
            assert host.bookie.ledger_ids() == [2]
            host.crash()
            assert [host.collector] == [None]
            host.restart()
            await host.registered()
            assert host.collector is not None
            await store.delete_ledger(2)
            await asyncio.sleep(70)
            assert host.bookie.ledger_ids() == []
            await store.aclose()

        world.run(story)


@pytest.mark.parametrize("kind", ["interleaved", "sorted"])
def test_ledgers_that_are_deleted_before_they_are_written_leave_no_journals_behind(
    kit: Any, virtually: Virtually, kind: str
) -> None:
    """What is deleted while it is in a memtable makes no entry log full, and journals are collected when one is."""

    async def story() -> None:
        bench = await Bench(kit, kind).started()
        journals = []
        for ledger_id in range(60):
            await bench.write(ledger_id, entries=8)
            bench.storage.delete_ledger(ledger_id)
            await asyncio.sleep(1)
            folder = "journal/current"
            journals.append(sum(bench.disk.open(f"{folder}/{name}").size for name in bench.disk.names(folder)))
        await bench.ended()
        assert max(journals) <= 5 * LOG_BYTES, "a log's worth of entries, the file under way, and a backup"

    virtually(story)


def test_a_checkpoint_for_deleted_ledgers_covers_what_earlier_memtables_wrote(kit: Any, virtually: Virtually) -> None:
    """A full memtable goes to a log that is not full, so nothing syncs it; the journals that have its entries must not go."""

    async def story() -> None:
        bench = await Bench(kit, "sorted").started()
        await bench.write(1, entries=16)  # a memtable, whose log is the first and is rotated for that
        await bench.write(2, entries=16)  # and one in a log that is not full
        checkpoints = bench.storage.checkpoints
        assert checkpoints is not None, "it is started"
        for ledger_id in range(3, 30):
            await bench.write(ledger_id, entries=8)
            done = checkpoints.done
            await bench.store.delete_ledger(ledger_id)
            bench.collector.force()
            await asyncio.sleep(1)
            if checkpoints.done > done:
                break  # a log's worth of entries was deleted
        else:
            pytest.fail("no checkpoint was made for what was deleted")
        bench.bookie.crash(CrashMode.POWER_LOSS)
        await bench.started()
        assert await bench.all_readable({1: 16, 2: 16})
        await bench.ended()

    virtually(story)

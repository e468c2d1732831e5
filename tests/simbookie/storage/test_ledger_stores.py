"""All ledger stores over a simulated disk, with a journal that never loses anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simbookie.storage.base import CrashMode, LedgerInfo, StorageIOError, WriteCacheFull
from simbookie.storage.db.settings import DbConfig
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskOperation
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.entry_logs.format import log_id_of
from simbookie.storage.entry_logs.scan import scan
from simbookie.storage.indexes.ledger_cache import IndexConfig
from simbookie.storage.interleaved import InterleavedConfig, InterleavedLedgerStore
from simbookie.storage.ledger_store import CrashPoint, LedgerStore, OnStep, no_step
from simbookie.storage.quirks import Quirk
from simbookie.storage.sorted import SortedConfig, SortedLedgerStore
from simbookie.world.loop import VirtualTimeLoop
from tests.simbookie.storage.stores import (
    CountingDisk,
    Owner,
    add,
    done,
    entry,
    folders,
    outcome,
    read_by,
    run_to_crash_point,
    small_databases,
)

Virtually = Callable[[Callable[[], Any]], None]
FILES = ["interleaved", "sorted"]
KINDS = [*FILES, "db"]
PATH = "ledgers/current"
SMALL = InterleavedConfig(
    EntryLogConfig(log_size_max=3000, write_buffer_bytes=128), IndexConfig(pages_max=3, open_files_max=2)
)
LAC = bytes(15) + b"\x07" + b"l" * 16


def interleaved(disk: CountingDisk, owner: Owner | None = None, **settings: Any) -> InterleavedLedgerStore:
    store = InterleavedLedgerStore(folders(disk), settings.pop("config", SMALL), **settings)
    store.open(owner or Owner())
    return store


def sorted_store(disk: CountingDisk, owner: Owner | None = None, **settings: Any) -> SortedLedgerStore:
    config = SortedConfig(memtable_bytes=settings.pop("memtable_bytes", 1000), interleaved=SMALL)
    store = SortedLedgerStore(folders(disk), config, **settings)
    store.open(owner or Owner())
    return store


def db_store(disk: CountingDisk, owner: Owner | None = None, **settings: Any) -> DbLedgerStore:
    config = DbConfig(write_cache_bytes=2000, read_cache_bytes=1000, batch_rows_max=4, entry_log=SMALL.entry_log)
    databases = small_databases(settings.get("on_step", no_step))
    store = DbLedgerStore(folders(disk), config, databases=databases, **settings)
    store.open(owner or Owner())
    return store


def opened(kind: str, disk: CountingDisk, owner: Owner | None = None, **settings: Any) -> LedgerStore:
    if kind == "db":
        return db_store(disk, owner, **settings)
    return interleaved(disk, owner, **settings) if kind == "interleaved" else sorted_store(disk, owner, **settings)


def read(store: LedgerStore, ledger_id: int, entry_id: int) -> Any:
    return read_by(partial(store.read_entry, ledger_id, entry_id))


def crash(disk: CountingDisk, store: LedgerStore, mode: CrashMode = CrashMode.PROCESS) -> None:
    store.crash(mode)
    disk.crash(mode)


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_is_readable_at_once_and_the_last_one_is_that_with_the_highest_id(
    virtually: Virtually, kind: str
) -> None:
    async def story() -> None:
        store = opened(kind, CountingDisk())
        store.set_master_key(1, b"key")
        assert [await read(store, 1, -1), await read(store, 1, 0)] == [None, None]
        store.add_entry(1, 5, entry(1, 5))
        store.add_entry(1, 2, entry(1, 2))
        assert await read(store, 1, -1) == await read(store, 1, 5) == entry(1, 5)
        assert [await read(store, 1, entry_id) for entry_id in (3, 1 << 40)] == [None, None]
        assert store.entry_ids(1) == [2, 5]

    virtually(story)


@pytest.mark.rule("M40")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_faithful", [True, False])
def test_an_explicit_lac_counts_after_a_restart_unless_bookkeeper_is_imitated(
    virtually: Virtually, kind: str, is_faithful: bool
) -> None:
    async def story() -> None:
        disk = CountingDisk()
        quirks = frozenset([Quirk.EXPLICIT_LAC_UNLOADED] if is_faithful else [])
        store = opened(kind, disk, quirks=quirks)
        store.set_master_key(3, b"key")
        store.add_entry(3, 8, entry(3, 8, lac=6))
        store.set_explicit_lac(3, 7, LAC)
        assert lac_told(store) == 7, "while it runs"
        await done(store.flush)
        store.close()
        again = opened(kind, disk, quirks=quirks)
        assert lac_told(again) == (6 if is_faithful else 7)
        assert again.explicit_lac(3) == LAC
        assert lac_told(again) == 7, "now that it was asked for"

    virtually(story)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("use", ["read", "add", "fence", "flush", "replay"])
@pytest.mark.parametrize("is_faithful", [True, False])
def test_an_explicit_lac_is_not_replaced_by_that_of_its_file_unless_bookkeeper_is_imitated(
    virtually: Virtually, kind: str, use: str, is_faithful: bool
) -> None:
    """What uses the file of the index afterwards opens it; a replay that looks up the ledger's key there did so before."""
    newer = bytes(15) + b"\x08" + b"l" * 16

    async def story() -> None:
        disk = CountingDisk()
        quirks = frozenset([Quirk.EXPLICIT_LAC_REPLACED] if is_faithful else [])
        store = opened(kind, disk, quirks=quirks)
        for ledger_id, lac in ((3, LAC), (4, None)):
            store.set_master_key(ledger_id, b"key")
            store.add_entry(ledger_id, 0, entry(ledger_id, 0))
            if lac is not None:
                store.set_explicit_lac(ledger_id, 7, lac)
        await done(store.flush)
        store.close()
        store = opened(kind, disk, quirks=quirks)
        if use == "replay":
            store.set_limbo(3, in_limbo=False)
            store.set_limbo(4, in_limbo=False)
        assert lac_told(store) == 7
        for ledger_id in (3, 4):
            store.set_explicit_lac(ledger_id, 8, newer)
            assert store.explicit_lac(ledger_id) == newer, "the file is not open yet"
            if use == "add":
                store.add_entry(ledger_id, 1, entry(ledger_id, 1))
            elif use == "fence":
                store.set_fenced(ledger_id)
            elif use != "flush":
                assert await read(store, ledger_id, 0) == entry(ledger_id, 0)
        if use == "flush":
            store.add_entry(4, 1, entry(4, 1))
            await done(store.flush)
        is_replaced = is_faithful and use != "replay"
        assert store.explicit_lac(3) == (LAC if is_replaced else newer)
        assert store.explicit_lac(4) == (None if is_replaced else newer)
        assert lac_told(store) == 8, "which is in memory alone"
        for ledger_id in (3, 4):
            store.set_explicit_lac(ledger_id, 8, newer)
        await done(store.flush)
        assert [store.explicit_lac(ledger_id) for ledger_id in (3, 4)] == [newer, newer], "the file is open now"

    virtually(story)


def lac_told(store: LedgerStore) -> int:
    info = store.ledger(3)
    assert info is not None
    return info.lac


@pytest.mark.parametrize("kind", KINDS)
def test_a_flushed_store_is_whole_when_it_is_opened_again(virtually: Virtually, kind: str) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(kind, disk)
        for ledger_id in range(4):
            store.set_master_key(ledger_id, b"key%d" % ledger_id)
            for entry_id in range(20):
                await add(store, ledger_id, entry_id, entry(ledger_id, entry_id, b"x" * 90, lac=entry_id - 1))
        assert store.set_fenced(2)
        assert not store.set_fenced(2)
        store.set_explicit_lac(3, 7, LAC)
        store.set_limbo(9, in_limbo=True)
        await done(store.flush)
        crash(disk, store, CrashMode.POWER_LOSS)
        again = opened(kind, disk)
        assert again.ledger_ids() == [0, 1, 2, 3, 9]
        assert again.ledger(0) == LedgerInfo(b"key0", lac=18)
        assert again.ledger(2) == LedgerInfo(b"key2", fenced=True, lac=18)
        assert again.ledger(9) == LedgerInfo(None, in_limbo=True)
        assert again.ledger(5) is None
        assert again.explicit_lac(3) == LAC
        for ledger_id in range(4):
            assert again.entry_ids(ledger_id) == list(range(20))
            for entry_id in range(20):
                assert await read(again, ledger_id, entry_id) == entry(ledger_id, entry_id, b"x" * 90, lac=entry_id - 1)

    virtually(story)


@pytest.mark.parametrize("kind", KINDS)
def test_the_lac_is_that_of_the_last_entry_when_it_is_first_asked_for_and_rises_then(
    virtually: Virtually, kind: str
) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(kind, disk)
        store.set_master_key(1, b"key")
        store.add_entry(1, 0, entry(1, 0, lac=50))
        store.add_entry(1, 1, entry(1, 1, lac=3))
        assert store.ledger(1) == LedgerInfo(b"key", lac=3)
        store.add_entry(1, 2, entry(1, 2, lac=2))
        assert store.ledger(1) == LedgerInfo(b"key", lac=3)
        store.add_entry(1, 3, entry(1, 3, lac=4))
        assert store.ledger(1) == LedgerInfo(b"key", lac=4)
        store.set_explicit_lac(1, 7, LAC)
        assert store.ledger(1) == LedgerInfo(b"key", lac=7)
        await done(store.flush)
        assert opened(kind, disk).ledger(1) == LedgerInfo(b"key", lac=7)

    virtually(story)


@pytest.mark.parametrize("kind", KINDS)
def test_runs_are_known_while_entries_come_in_any_order(virtually: Virtually, kind: str) -> None:
    async def story() -> None:
        rng = Random(5)
        store = opened(kind, CountingDisk())
        store.set_master_key(1, b"key")
        ids = rng.sample(range(60), 40)
        for number, entry_id in enumerate(ids, 1):
            await add(store, 1, entry_id, entry(1, entry_id, b"x" * 30))
            firsts, lasts = store.entry_runs(1)
            found = [each for first, last in zip(firsts, lasts, strict=True) for each in range(first, last + 1)]
            assert found == sorted(ids[:number]) == store.entry_ids(1)
            assert store.count_runs(1) >= len(firsts)

    virtually(story)


@pytest.mark.parametrize("kind", KINDS)
def test_a_deleted_ledger_is_gone_and_its_id_can_be_used_again(virtually: Virtually, kind: str) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(kind, disk)
        for ledger_id in (1, 2):
            store.set_master_key(ledger_id, b"key")
            store.add_entry(ledger_id, 0, entry(ledger_id, 0))
        await done(store.flush)
        store.add_entry(1, 1, entry(1, 1, lac=0))
        assert store.ledger(1) == LedgerInfo(b"key", lac=0)
        store.delete_ledger(1)
        assert (store.ledger_ids(), store.ledger(1)) == ([2], None)
        store.set_master_key(1, b"new")
        assert store.ledger(1) == LedgerInfo(b"new")
        assert store.entry_ids(1) == []
        assert await read(store, 1, 1) is None
        await done(store.flush)
        assert opened(kind, disk).entry_ids(1) == []

    virtually(story)


def test_interleaved_entries_are_in_the_log_as_they_came_and_a_later_copy_counts(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = interleaved(disk)
        keys = [(2, 1), (1, 0), (2, 0), (1, 1), (1, 0)]
        for ledger_id in (1, 2):
            store.set_master_key(ledger_id, b"key")
        for number, key in enumerate(keys):
            store.add_entry(*key, entry(*key, b"%d" % number))
        await done(store.flush)
        bodies = [record.entry for record in scan(disk.open(f"{PATH}/0.log"))]
        assert bodies == [entry(*key, b"%d" % number) for number, key in enumerate(keys)]
        assert await read(store, 1, 0) == entry(1, 0, b"4")

    virtually(story)


def test_interleaved_stores_ask_for_a_checkpoint_when_a_log_is_rotated_and_make_the_index_durable_first(
    virtually: Virtually,
) -> None:
    async def story() -> None:
        disk, owner, steps = CountingDisk(), Owner(), list[str]()
        store = interleaved(disk, owner, on_step=steps.append)
        assert store.asks_for_checkpoints
        store.set_master_key(1, b"key")
        entry_id = 0
        while not owner.requested:
            store.add_entry(1, entry_id, entry(1, entry_id, b"x" * 100))
            owner.journal.append(lambda: None)
            entry_id += 1
        assert owner.requested == [((0, entry_id - 1),)], "the entry that made the log full is not in the journal"
        steps.clear()
        await owner.make_checkpoints(store)
        assert [step for step in steps if step.endswith((".sync", ".index", ".logs", ".done"))] == [
            *("flush.index", "index.sync", "flush.logs", "log.sync", "flush.done")
        ]
        assert disk.syncs[f"{PATH}/0.log"] == 1
        assert disk.syncs[f"{PATH}/1.log"] == 0, "the active log is not synced by a checkpoint"

    virtually(story)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_faithful", [False, True])
def test_a_full_flush_keeps_a_fence_though_no_entry_came_unless_bookkeeper_is_imitated(
    virtually: Virtually, kind: str, *, is_faithful: bool
) -> None:
    async def story() -> None:
        quirk = Quirk.IDLE_CHECKPOINT_SKIPPED if kind == "db" else Quirk.IDLE_FLUSH_SKIPPED
        quirks = frozenset([quirk] if is_faithful else [])
        disk = CountingDisk()
        store = opened(kind, disk)
        store.set_master_key(1, b"key")
        store.add_entry(1, 0, entry(1, 0))
        await done(store.flush)
        crash(disk, store)
        replaying = opened(kind, disk, quirks=quirks)
        replaying.set_fenced(1)
        await done(replaying.flush)
        crash(disk, replaying)
        info = opened(kind, disk).ledger(1)
        assert info is not None
        assert info.fenced is not is_faithful

    virtually(story)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_entry_is_an_error_and_no_absence(virtually: Virtually, kind: str) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(kind, disk)
        store.set_master_key(1, b"key")
        store.add_entry(1, 0, entry(1, 0, lac=-1))
        await done(store.flush)
        disk.open(f"{PATH}/0.log").truncate(1040)
        again = opened(kind, disk)
        assert isinstance(await read(again, 1, 0), StorageIOError)
        assert isinstance(await read(again, 1, -1), StorageIOError)
        assert again.ledger(1) == LedgerInfo(b"key", lac=-1)

    virtually(story)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("part", ["*.idx", "*.log"])
def test_a_flush_that_fails_in_one_part_tries_the_other_and_says_so(virtually: Virtually, kind: str, part: str) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(kind, disk)
        store.set_master_key(1, b"key")
        store.add_entry(1, 0, entry(1, 0))
        disk.faults.plant(DiskFault(DiskOperation.SYNC, DiskFaultKind.ERROR, path=part))
        assert isinstance(await outcome(store.flush), StorageIOError)
        assert {path.rpartition(".")[2] for path in disk.syncs} == {"idx", "log"}

    virtually(story)


def test_flushes_take_turns(virtually: Virtually) -> None:
    async def story() -> None:
        steps: list[str] = []
        store = interleaved(CountingDisk(), on_step=steps.append)
        store.set_master_key(1, b"key")
        store.add_entry(1, 0, entry(1, 0))
        await asyncio.gather(done(store.flush), done(store.flush))
        assert [step for step in steps if step.startswith("flush.")] == ["flush.index", "flush.logs", "flush.done"] * 2

    virtually(story)


# ------------------------------------------------------------------------------------------------------- the sorted store


def test_sorted_entries_are_in_the_log_by_ledger_and_entry_and_the_first_copy_in_a_memtable_stays(
    virtually: Virtually,
) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = sorted_store(disk)
        for ledger_id in (1, 2):
            store.set_master_key(ledger_id, b"key")
        for number, key in enumerate([(2, 1), (1, 7), (2, 0), (1, 1), (1, 7)]):
            store.add_entry(*key, entry(*key, b"%d" % number))
        await done(store.flush)
        bodies = [record.entry for record in scan(disk.open(f"{PATH}/0.log"))]
        assert bodies == [entry(1, 1, b"3"), entry(1, 7, b"1"), entry(2, 0, b"2"), entry(2, 1, b"0")]
        store.add_entry(1, 7, entry(1, 7, b"later"))
        assert await read(store, 1, 7) == entry(1, 7, b"later"), "memory is asked first"
        await done(store.flush)
        assert await read(store, 1, 7) == entry(1, 7, b"later"), "a later memtable overwrites"

    virtually(story)


def test_a_full_memtable_becomes_the_snapshot_and_a_third_ones_worth_waits_for_the_flush(virtually: Virtually) -> None:
    async def story() -> None:
        disk, owner = CountingDisk(), Owner()
        store = sorted_store(disk, owner)
        store.set_master_key(1, b"key")
        for entry_id in range(20):
            store.add_entry(1, entry_id, entry(1, entry_id, b"x" * 68))
        assert store.taken_bytes == 2000
        with pytest.raises(WriteCacheFull):
            store.add_entry(1, 20, entry(1, 20))
        assert await read(store, 1, 20) is None
        assert (owner.room, disk.exists(f"{PATH}/0.log")) == (0, False)
        await asyncio.sleep(1)
        assert (owner.room, store.taken_bytes) == (1, 1000)
        store.add_entry(1, 20, entry(1, 20))
        assert store.entry_ids(1) == list(range(21))

    virtually(story)


def test_an_entry_larger_than_the_rest_of_the_room_has_the_memtable_written(virtually: Virtually) -> None:
    async def story() -> None:
        owner = Owner()
        store = sorted_store(CountingDisk(), owner)
        store.set_master_key(1, b"key")
        store.add_entry(1, 0, entry(1, 0, b"x" * 900))
        with pytest.raises(WriteCacheFull):
            store.add_entry(1, 1, entry(1, 1, b"x" * 1500))
        await asyncio.sleep(1)
        assert owner.room == 1
        store.add_entry(1, 1, entry(1, 1, b"x" * 1500))
        with pytest.raises(StorageIOError, match="never"):
            store.add_entry(1, 2, entry(1, 2, b"x" * 2000))

    virtually(story)


def test_a_deleted_ledger_gives_its_room_back_from_the_memtable_and_the_snapshot(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = sorted_store(disk)
        for ledger_id in (1, 2):
            store.set_master_key(ledger_id, b"key")
        for entry_id in range(12):
            store.add_entry(1, entry_id, entry(1, entry_id, b"x" * 68))
        store.add_entry(2, 0, entry(2, 0))
        assert store.taken_bytes == 1232
        store.delete_ledger(1)
        assert store.taken_bytes == 32
        await done(store.flush)
        assert store.taken_bytes == 0
        logs = [disk.open(f"{PATH}/{name}") for name in disk.names(PATH) if name.endswith(".log")]
        assert [record.ledger_id for file in logs for record in scan(file)] == [2]

    virtually(story)


def test_writing_a_memtable_syncs_nothing_and_the_first_one_after_a_start_asks_for_a_checkpoint(
    virtually: Virtually,
) -> None:
    async def story() -> None:
        disk, owner = CountingDisk(), Owner()
        store = sorted_store(disk, owner)
        store.set_master_key(1, b"key")
        asked = list[int]()
        for entry_id in range(60):
            await add(store, 1, entry_id, entry(1, entry_id, b"x" * 68))
            owner.journal.append(lambda: None)
            if owner.requested and (not asked or owner.requested[-1][0][1] != asked[-1]):
                asked.append(owner.requested[-1][0][1])
        assert not disk.syncs
        assert asked == [10, 30], "the first, and then whenever a log holds as much as it may"
        await owner.make_checkpoints(store)
        assert (owner.mark, set(disk.syncs)) == (
            50,
            {f"{PATH}/0/1/1.idx", *(f"{PATH}/{each}.log" for each in range(3))},
        )

    virtually(story)


def test_a_memtable_that_cannot_be_written_makes_the_bookie_read_only_and_is_tried_again_with_the_next_add(
    virtually: Virtually,
) -> None:
    async def story() -> None:
        disk, owner = CountingDisk(), Owner()
        store = sorted_store(disk, owner)
        store.set_master_key(1, b"key")
        disk.faults.plant(DiskFault(DiskOperation.WRITE, path="*.log"))
        for entry_id in range(11):
            store.add_entry(1, entry_id, entry(1, entry_id, b"x" * 68))
        await asyncio.sleep(1)
        assert (len(owner.failures), store.taken_bytes) == (1, 1100)
        store.add_entry(1, 11, entry(1, 11))
        await asyncio.sleep(1)
        assert (len(owner.failures), store.taken_bytes) == (1, 132)
        assert store.entry_ids(1) == list(range(12))
        for entry_id in range(11):
            assert await read(store, 1, entry_id) == entry(1, entry_id, b"x" * 68)

    virtually(story)


def test_a_checkpoint_leaves_a_memtable_that_is_younger(virtually: Virtually) -> None:
    async def story() -> None:
        disk, owner = CountingDisk(), Owner()
        store = sorted_store(disk, owner)
        store.set_master_key(1, b"key")
        store.add_entry(1, 0, entry(1, 0))
        await done(partial(store.checkpoint, owner.take_checkpoint()))
        assert not disk.exists(f"{PATH}/0.log")
        owner.journal.append(lambda: None)
        await done(partial(store.checkpoint, owner.take_checkpoint()))
        assert disk.syncs[f"{PATH}/0.log"] == 1
        assert log_id_of(store.interleaved.cache.get(1, 0)) == 0
        assert store.interleaved.logger.active_id == 1, "rotated, so that the checkpoint covers it"

    virtually(story)


@pytest.mark.parametrize("is_faithful", [True, False])
def test_the_last_entry_is_the_highest_wherever_it_is_unless_bookkeeper_is_imitated(
    virtually: Virtually, is_faithful: bool
) -> None:
    async def story() -> None:
        quirks = frozenset([Quirk.LAST_ENTRY_OF_NEWEST] if is_faithful else [])
        store = sorted_store(CountingDisk(), quirks=quirks)
        store.set_master_key(1, b"key")
        store.add_entry(1, 5, entry(1, 5))
        await done(store.flush)
        store.add_entry(1, 2, entry(1, 2))
        assert await read(store, 1, -1) == entry(1, 2 if is_faithful else 5)

    virtually(story)


@pytest.mark.parametrize("size", [0, (1 << 30)])
def test_a_memtable_has_a_size_that_can_be_doubled(size: int) -> None:
    with pytest.raises(ValueError, match="memtable_bytes"):
        SortedConfig(memtable_bytes=size)


# ---------------------------------------------------------------------------------------------------------------- crashes

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3), st.integers(0, 400)),
        st.tuples(st.just("add"), st.integers(0, 3), st.integers(0, 400)),
        st.tuples(st.sampled_from(["fence", "lac", "delete", "late"]), st.integers(0, 3), st.just(0)),
        st.tuples(st.sampled_from(["flush", "checkpoint", "turn"]), st.just(0), st.just(0)),
        st.tuples(st.just("crash"), st.just(0), st.sampled_from([0, 1])),
    ),
    max_size=60,
)


class Story:
    """A store whose disk crashes now and then, what was done to it, and what it should hold."""

    def __init__(self, kind: str, disk: CountingDisk, on_step: OnStep = no_step) -> None:
        self.kind, self.disk, self.owner = kind, disk, Owner()
        self.on_step = on_step
        self.store = opened(kind, disk, self.owner, on_step=on_step)
        self.entries: dict[int, dict[int, bytes]] = {}
        self.fenced: dict[int, None] = {}
        self.lacs: dict[int, None] = {}
        self.deletions: dict[int, int] = {}

    async def do(self, record: Callable[[], None]) -> None:
        """The store first, the journal second."""
        while True:
            try:
                record()
                break
            except WriteCacheFull:
                await asyncio.sleep(1)
        self.owner.journal.append(record)

    def create(self, ledger_id: int) -> None:
        self.store.set_master_key(ledger_id, b"key")

    async def act(self, action: str, ledger: int, amount: int) -> None:
        # Where the removal of an index file is not durable, a deleted ledger may come back with all it had, until garbage is
        # collected again. So ids are not used again there, as clients do not.
        ledger_id = ledger if self.kind == "db" else ledger + 10 * self.deletions.get(ledger, 0)
        if action in ("add", "late", "fence", "lac") and ledger_id not in self.entries:
            await self.do(partial(self.create, ledger_id))
            self.entries[ledger_id] = {}
        if action in ("add", "late"):
            entries = self.entries[ledger_id]
            entry_id = max(entries, default=-1) + 1 if action == "add" else 700
            body = entry(ledger_id, entry_id, bytes([entry_id % 250]) * amount)
            await self.do(partial(self.if_known, ledger_id, lambda: self.store.add_entry(ledger_id, entry_id, body)))
            entries.setdefault(entry_id, body)
        elif action == "fence":
            await self.do(partial(self.if_known, ledger_id, lambda: self.store.set_fenced(ledger_id)))
            self.fenced[ledger_id] = None
        elif action == "lac":
            await self.do(partial(self.if_known, ledger_id, lambda: self.store.set_explicit_lac(ledger_id, 7, LAC)))
            self.lacs[ledger_id] = None
        elif action == "delete" and self.entries.pop(ledger_id, None) is not None:
            await self.do(partial(self.if_known, ledger_id, lambda: self.store.delete_ledger(ledger_id)))
            self.fenced.pop(ledger_id, None)
            self.lacs.pop(ledger_id, None)
            self.deletions[ledger] = self.deletions.get(ledger, 0) + 1
        else:
            await self.live(action, amount)

    def if_known(self, ledger_id: int, record: Callable[[], object]) -> None:
        """What a replay does with records of ledgers that were deleted since, and whose files are gone."""
        if ledger_id in self.store.ledger_ids():
            record()

    async def live(self, action: str, amount: int) -> None:
        if action == "flush":
            mark = len(self.owner.journal)
            await done(self.store.flush)
            self.owner.mark = mark
        elif action == "checkpoint":
            await self.owner.make_checkpoints(self.store)
        elif action == "turn":
            await asyncio.sleep(0)
        elif action == "crash":
            mode = list(CrashMode)[amount]
            crash(self.disk, self.store, mode)
            await self.restart()

    async def restart(self, *, exact: bool = True) -> None:
        self.owner.requested.clear()
        self.store = opened(self.kind, self.disk, self.owner, on_step=self.on_step)
        await self.owner.replay()
        await done(self.store.flush)
        await self.check(exact=exact)

    async def check(self, *, exact: bool = True) -> None:
        for ledger_id, entries in self.entries.items():
            info = self.store.ledger(ledger_id)
            assert info is not None
            assert info.master_key == b"key"
            assert info.fenced == (ledger_id in self.fenced)
            assert self.store.explicit_lac(ledger_id) == (LAC if ledger_id in self.lacs else None)
            found = self.store.entry_ids(ledger_id)
            assert found == sorted(entries) if exact else set(entries) <= set(found)
            for entry_id, body in entries.items():
                assert await read(self.store, ledger_id, entry_id) == body


DELETED_AND_BACK = [(each, 0, 0) for each in ("add", "flush", "delete", "flush")]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(KINDS), ACTIONS, st.integers(0, 1 << 32), st.booleans())
@example("sorted", [(each, 0, 0) for each in ("add", "flush", "add", "delete", "crash")], 0, False)
@example("interleaved", [("add", 0, 0), ("crash", 0, 1), *DELETED_AND_BACK, ("crash", 0, 1), ("add", 0, 0)], 0, False)
@example("sorted", [("add", 0, 0), ("crash", 0, 1), *DELETED_AND_BACK, ("crash", 0, 1), ("add", 0, 0)], 0, False)
def test_everything_journalled_is_there_after_any_crash_and_a_replay_from_the_mark(
    kind: str, actions: list[tuple[str, int, int]], seed: int, covers: bool
) -> None:
    async def tell() -> None:
        story = Story(kind, CountingDisk(Random(seed), sync_covers_names=covers))
        for action in actions:
            await story.act(*action)
        await story.check()

    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(tell())
    finally:
        loop.close()


STEPS = {
    "interleaved": [
        *(
            "log.allocated",
            "log.roll",
            "log.write",
            "log.sync",
            "index.create",
            "index.header",
            "index.pages",
            "index.sync",
        ),
        *("flush.index", "flush.logs", "flush.done"),
    ]
}
STEPS["sorted"] = [*STEPS["interleaved"], "memtable.write", "memtable.roll"]
STEPS["db"] = [
    *("log.allocated", "log.roll", "log.write", "log.sync", "database.file", "database.write", "database.sync"),
    "database.remove",
    *(f"flush.{step}" for step in ("swap", "entries", "logs", "locations", "ledgers", "done", "cleanup")),
]


#: A database replaces its file ever less often.
RARE = {("database.remove", 5)}


@pytest.mark.parametrize(
    ("kind", "step", "nth"),
    [(kind, step, nth) for kind in KINDS for step in STEPS[kind] for nth in (1, 2, 5) if (step, nth) not in RARE],
)
@pytest.mark.parametrize("mode", list(CrashMode))
def test_everything_journalled_is_there_after_a_crash_at_any_step(
    virtually: Virtually, kind: str, step: str, mode: CrashMode, nth: int
) -> None:
    disk = CountingDisk(Random(nth))
    left = [nth]
    stories: list[Story] = []

    async def until_it_dies() -> None:
        def on_step(name: str) -> None:
            left[0] -= name == step
            if name == step and left[0] == 0:
                disk.crash(mode)
                raise CrashPoint(name)

        story = Story(kind, disk, on_step)
        stories.append(story)
        for number in range(400):
            await story.act("add", number % 6, 200)
            await story.act(("turn", "fence", "checkpoint")[number % 3], number % 6, 0)
            if number % 50 == 49:
                await story.act("flush", 0, 0)

    assert run_to_crash_point(until_it_dies) == step
    story = stories[0]

    async def afterwards() -> None:
        story.on_step = no_step
        await story.restart(exact=False)  # what was being done when it died may be there
        await story.act("add", 0, 10)
        await done(story.store.flush)
        await story.check(exact=False)

    virtually(afterwards)

"""The store with a database: its caches, the order of a flush, what is read from where, and what BookKeeper's loses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from simbookie.storage.base import CrashMode, LedgerInfo, StorageIOError, WriteCacheFull
from simbookie.storage.db.settings import DbConfig
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskOperation
from simbookie.storage.disk.simulated import DiskCosts
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.entry_logs.format import log_id_of, position_of
from simbookie.storage.entry_logs.scan import scan
from simbookie.storage.quirks import Quirk
from tests.simbookie.storage.stores import CountingDisk, Owner, done, entry, folders, outcome, read_by

Virtually = Callable[[Callable[[], Any]], None]
PATH = "ledgers/current"
LOGS = EntryLogConfig(log_size_max=3000, write_buffer_bytes=128, preallocates=False)
LAC = bytes(15) + b"\x07" + b"l" * 16
BOTH = pytest.mark.parametrize("is_faithful", [False, True])


def opened(
    *disks: CountingDisk, owner: Owner | None = None, quirks: Iterable[Quirk] = (), **fields: Any
) -> DbLedgerStore:
    on_step = fields.pop("on_step", lambda _: None)
    config = DbConfig(**{"write_cache_bytes": 2048, "read_cache_bytes": 2048, "entry_log": LOGS, **fields})
    store = DbLedgerStore(folders(*disks), config, on_step=on_step, quirks=frozenset(quirks))
    store.open(owner or Owner())
    for ledger_id in range(3):
        if store.ledger(ledger_id) is None:
            store.set_master_key(ledger_id, b"key")
    return store


def read(store: DbLedgerStore, ledger_id: int, entry_id: int) -> Any:
    return read_by(partial(store.read_entry, ledger_id, entry_id))


def crash(disk: CountingDisk, store: DbLedgerStore, mode: CrashMode = CrashMode.POWER_LOSS) -> None:
    store.crash(mode)
    disk.crash(mode)


def logged(disk: CountingDisk, log: str = "0.log") -> list[bytes]:
    return [record.entry for record in scan(disk.open(f"{PATH}/{log}"))]


def fenced(store: DbLedgerStore, ledger_id: int) -> bool:
    info = store.ledger(ledger_id)
    assert info is not None
    return info.fenced


# ---------------------------------------------------------------------------------------------------------------- writing


def test_entries_are_in_the_log_by_ledger_and_entry_and_the_last_copy_counts(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(disk)
        for number, key in enumerate([(2, 1), (1, 7), (2, 0), (1, 1), (1, 7)]):
            store.add_entry(*key, entry(*key, b"%d" % number))
        assert await read(store, 1, 7) == entry(1, 7, b"4")
        await done(store.flush)
        assert logged(disk) == [entry(1, 1, b"3"), entry(1, 7, b"4"), entry(2, 0, b"2"), entry(2, 1, b"0")]
        assert await read(store, 1, 7) == entry(1, 7, b"4")

    virtually(story)


def test_a_flush_makes_the_log_durable_then_locations_then_ledgers(virtually: Virtually) -> None:
    async def story() -> None:
        disk, steps = CountingDisk(), list[str]()
        store = opened(disk, on_step=steps.append)
        store.add_entry(1, 0, entry(1, 0))
        await done(store.flush)
        order = [step for step in steps if step.startswith("flush.") or step.endswith(".sync")]
        assert order == [
            *("flush.swap", "flush.entries", "flush.logs", "log.sync", "flush.locations", "database.sync"),
            *("flush.ledgers", "database.sync", "flush.done", "flush.cleanup"),
        ]

    virtually(story)


def test_an_entry_is_readable_from_the_cache_that_is_being_flushed_while_others_are_added(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        disk.costs = DiskCosts(sync_s=1)
        store = opened(disk)
        store.add_entry(1, 0, entry(1, 0))
        flushing = asyncio.ensure_future(done(store.flush))
        await asyncio.sleep(0.5)
        for number in range(1, 5):
            store.add_entry(1, number, entry(1, number, b"x" * 60))
        assert await read(store, 1, 0) == entry(1, 0)
        assert await read(store, 1, -1) == entry(1, 4, b"x" * 60)
        assert store.entry_ids(1) == list(range(5))
        await flushing
        assert [position_of(store.shards[0].locations.get(1, number)) for number in (0, 1)] == [1028, 0]

    virtually(story)


def test_a_full_cache_is_flushed_once_at_a_time_and_what_was_refused_fits_after_the_swap(virtually: Virtually) -> None:
    async def story() -> None:
        disk, owner, steps = CountingDisk(), Owner(), list[str]()
        disk.costs = DiskCosts(sync_s=1)
        store = opened(disk, owner=owner, on_step=steps.append)
        for number in range(8):
            store.add_entry(1, number, entry(1, number, b"x" * 96))
        for _ in range(3):
            with pytest.raises(WriteCacheFull):
                store.add_entry(1, 8, entry(1, 8, b"x" * 96))
        assert owner.room == 0
        await asyncio.sleep(0.5)
        assert (owner.room, steps.count("flush.swap")) == (1, 1)
        for number in range(8, 16):
            store.add_entry(1, number, entry(1, number, b"x" * 96))
        with pytest.raises(WriteCacheFull):
            store.add_entry(1, 16, entry(1, 16, b"x" * 96))
        await asyncio.sleep(2)
        assert (owner.room, steps.count("flush.swap")) == (1, 1), "while a flush is under way no other is begun"
        await asyncio.sleep(8)
        assert (owner.room, steps.count("flush.swap")) == (2, 2), "but then for what was refused meanwhile"
        store.add_entry(1, 16, entry(1, 16, b"x" * 96))
        assert store.entry_ids(1) == list(range(17))

    virtually(story)


@pytest.mark.parametrize("count", [1, 2])
def test_a_flush_for_room_has_marks_written_if_there_is_one_folder(virtually: Virtually, count: int) -> None:
    async def story() -> None:
        owner, steps = Owner(), list[str]()
        disks = [CountingDisk() for _ in range(count)]

        def on_step(name: str) -> None:
            steps.append(name)
            if name == "flush.locations":
                owner.journal.append(lambda: None)  # comes too late for this flush, so the mark is before it

        store = opened(*disks, owner=owner, on_step=on_step, write_cache_bytes=2048 * count)
        ledger_id = 2
        for number in range(8):
            store.add_entry(ledger_id, number, entry(ledger_id, number, b"x" * 96))
            owner.journal.append(lambda: None)
        with pytest.raises(WriteCacheFull):
            store.add_entry(ledger_id, 8, entry(ledger_id, 8))
        await asyncio.sleep(1)
        assert owner.requested == ([((0, 8),)] if count == 1 else [])
        store.add_entry(ledger_id, 8, entry(ledger_id, 8))
        await owner.make_checkpoints(store)
        assert steps.count("flush.swap") == 1, "the mark needs no second flush"

    virtually(story)


def test_parts_are_full_each_for_itself(virtually: Virtually) -> None:
    async def story() -> None:
        first, second = CountingDisk(), CountingDisk()
        store = opened(first, second)
        for number in range(4):
            store.add_entry(2, number, entry(2, number, b"x" * 96))
        with pytest.raises(WriteCacheFull):
            store.add_entry(2, 4, entry(2, 4))
        store.add_entry(1, 0, entry(1, 0))
        await done(store.flush)
        assert logged(second) == [entry(1, 0)]
        assert len(logged(first)) == 4
        assert store.ledger_ids() == [0, 1, 2]
        again = opened(first, second)
        assert (again.entry_ids(1), again.entry_ids(2)) == ([0], [0, 1, 2, 3])

    virtually(story)


def test_a_checkpoint_goes_through_all_parts(virtually: Virtually) -> None:
    async def story() -> None:
        disks = [CountingDisk() for _ in range(3)]
        store = opened(*disks)
        for ledger_id in range(3):
            store.add_entry(ledger_id, 0, entry(ledger_id, 0))
        await done(partial(store.checkpoint, ((0, 3),)))
        assert [logged(disk) for disk in disks] == [[entry(ledger_id, 0)] for ledger_id in range(3)]
        for disk in disks:
            disk.crash(CrashMode.POWER_LOSS)
        again = opened(*disks)
        assert [again.entry_ids(ledger_id) for ledger_id in range(3)] == [[0], [0], [0]]

    virtually(story)


def test_an_entry_takes_its_size_up_to_a_multiple_of_64_and_a_copy_as_much_again(virtually: Virtually) -> None:
    async def story() -> None:
        store = opened(CountingDisk())
        for _ in range(16):
            store.add_entry(1, 0, entry(1, 0, b"x"))
        with pytest.raises(WriteCacheFull):
            store.add_entry(1, 0, entry(1, 0))

    virtually(story)


def test_a_checkpoint_that_a_flush_covered_is_not_made_again(virtually: Virtually) -> None:
    async def story() -> None:
        owner, steps = Owner(), list[str]()
        store = opened(CountingDisk(), owner=owner, on_step=steps.append)
        store.add_entry(1, 0, entry(1, 0))
        before = owner.take_checkpoint()
        owner.journal.append(lambda: None)
        await done(store.flush)
        store.add_entry(1, 1, entry(1, 1))
        steps.clear()
        await done(partial(store.checkpoint, before))
        assert not steps
        await done(partial(store.checkpoint, owner.take_checkpoint()))
        assert steps.count("flush.swap") == 1, "nothing was journalled, but an entry may have come without"

    virtually(story)


def test_a_large_cache_is_written_over_several_turns(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(disk, write_cache_bytes=8 << 20, entry_log=EntryLogConfig())
        for number in range(30):
            store.add_entry(1, number, entry(1, number, bytes(100_000)))
        flushing = asyncio.ensure_future(done(store.flush))
        for _ in range(3):
            await asyncio.sleep(0)
        store.add_entry(1, 30, entry(1, 30))
        store.delete_ledger(1)
        await flushing
        assert 0 < len(logged(disk)) < 30, "what was deleted meanwhile is not written"
        assert store.shards[0].locations.get(1, 0) == 0

    virtually(story)


# ---------------------------------------------------------------------------------------------------------------- reading


def test_after_an_entry_the_next_ones_of_its_ledger_are_read_ahead(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(disk, read_ahead_entries=3, entry_log=EntryLogConfig(preallocates=False))
        for number in range(8):
            store.add_entry(1, number, entry(1, number))
        store.add_entry(2, 0, entry(2, 0))
        await done(store.flush)
        disk.open(f"{PATH}/0.log").write(0, bytes(1024 + 36 * 9))  # nothing can be read any more
        shard = store.shards[0]
        assert isinstance(await read(store, 1, 2), StorageIOError)
        for number in range(8):
            disk.open(f"{PATH}/0.log").write(1024 + 36 * number, (32).to_bytes(4) + entry(1, number))
        assert await read(store, 1, 2) == entry(1, 2)
        disk.open(f"{PATH}/0.log").write(1024, bytes(36 * 9))
        assert [await read(store, 1, number) for number in (2, 3, 4, 5)] == [
            entry(1, number) for number in (2, 3, 4, 5)
        ]
        assert isinstance(await read(store, 1, 6), StorageIOError)
        assert shard.locations.get(1, 6) != 0

    virtually(story)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({"read_ahead_bytes": 33}, [0, 1, 2]), ({"read_cache_bytes": 256}, [2, 3, 4]), ({}, list(range(8)))],
)
def test_reading_ahead_has_limits(virtually: Virtually, fields: dict[str, Any], expected: list[int]) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(disk, **fields)
        for number in range(8):
            store.add_entry(1, number, entry(1, number))
        store.add_entry(2, 0, entry(2, 0))
        await done(store.flush)
        assert await read(store, 1, 0) == entry(1, 0)
        cache = store.shards[0].read_cache
        kept = [number for number in range(8) if cache.get(1, number) is not None]
        assert kept == expected, "up to the limit, into a cache of two segments, and not into another ledger"
        assert cache.get(2, 0) is None

    virtually(story)


def test_the_last_entry_is_read_from_the_log_without_reading_ahead(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(disk)
        for number in range(3):
            store.add_entry(1, number, entry(1, number))
        await done(store.flush)
        assert await read(store, 1, -1) == entry(1, 2)
        disk.open(f"{PATH}/0.log").truncate(1024)
        assert isinstance(await read(store, 1, 2), StorageIOError)
        assert isinstance(await read(store, 1, -1), StorageIOError)
        assert await read(store, 1, 3) is None

    virtually(story)


def test_locations_of_other_ledgers_are_not_a_ledgers(virtually: Virtually) -> None:
    async def story() -> None:
        store = opened(CountingDisk())
        for ledger_id in (0, 2):
            store.add_entry(ledger_id, 5, entry(ledger_id, 5))
        await done(store.flush)
        assert await read(store, 1, -1) is None
        assert (store.entry_ids(1), store.ledger(1)) == ([], LedgerInfo(b"key"))

    virtually(story)


@BOTH
def test_the_last_entry_is_the_highest_wherever_it_is_unless_bookkeeper_is_imitated(
    virtually: Virtually, *, is_faithful: bool
) -> None:
    async def story() -> None:
        store = opened(CountingDisk(), quirks=[Quirk.LAST_ENTRY_OF_NEWEST] if is_faithful else [])
        store.add_entry(1, 5, entry(1, 5))
        await done(store.flush)
        store.add_entry(1, 2, entry(1, 2))
        assert await read(store, 1, -1) == entry(1, 2 if is_faithful else 5)

    virtually(story)


@BOTH
@pytest.mark.parametrize("read_first", [0, 1])
def test_a_copy_that_is_not_the_last_is_never_read_again_unless_bookkeeper_is_imitated(
    virtually: Virtually, read_first: int, *, is_faithful: bool
) -> None:
    async def story() -> None:
        store = opened(CountingDisk(), quirks=[Quirk.OLD_COPIES_CACHED] if is_faithful else [])
        for number in range(2):
            store.add_entry(1, number, entry(1, number, b"old"))
        await done(store.flush)
        if read_first == 1:
            assert await read(store, 1, 1) == entry(1, 1, b"old")
        store.add_entry(1, 1, entry(1, 1, b"new"))
        await done(store.flush)
        assert await read(store, 1, 0) == entry(1, 0, b"old"), "which reads ahead"
        assert await read(store, 1, 1) == entry(1, 1, b"old" if is_faithful else b"new")

    virtually(story)


def test_a_read_that_was_under_way_when_its_ledger_was_deleted_leaves_nothing(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(disk)
        store.add_entry(1, 0, entry(1, 0, b"old"))
        await done(store.flush)
        crash(disk, store)
        disk.costs = DiskCosts(read_s=1)
        store = opened(disk)
        reading = asyncio.ensure_future(read(store, 1, 0))
        await asyncio.sleep(0.5)
        store.delete_ledger(1)
        await reading
        store.set_master_key(1, b"key")
        assert await read(store, 1, 0) is None

    virtually(story)


# -------------------------------------------------------------------------------------------------------------- deletions


def test_the_rows_of_a_deleted_ledger_go_with_the_next_flush(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(disk)
        for ledger_id in (1, 2):
            store.add_entry(ledger_id, 0, entry(ledger_id, 0))
        await done(store.flush)
        store.delete_ledger(1)
        crash(disk, store)
        store = opened(disk)
        assert store.entry_ids(1) == [0], "a crash brings it back"
        store.delete_ledger(1)
        await done(store.flush)
        shard = store.shards[0]
        assert [key[:8] for key, _ in shard.locations.database.items()] == [(2).to_bytes(8)]
        assert [key for key, _ in shard.ledgers.database.items()] == [(0).to_bytes(8), (2).to_bytes(8)]

    virtually(story)


@pytest.mark.parametrize("step", ["flush.entries", "flush.logs", "flush.locations", "flush.ledgers", "flush.done"])
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_ledger_that_is_deleted_while_its_entries_are_flushed_stays_deleted(
    virtually: Virtually, step: str, *, comes_back: bool
) -> None:
    async def story() -> None:
        disk = CountingDisk()
        stores = list[DbLedgerStore]()

        def on_step(name: str) -> None:
            if name == step and stores:
                store = stores.pop()
                store.delete_ledger(1)
                if comes_back:
                    store.set_master_key(1, b"new")
                    store.add_entry(1, 1, entry(1, 1))

        store = opened(disk, on_step=on_step)
        store.add_entry(1, 0, entry(1, 0))
        stores.append(store)
        await done(store.flush)
        expected = [1] if comes_back else []
        assert store.entry_ids(1) == expected
        assert await read(store, 1, 0) is None
        await done(store.flush)
        assert store.entry_ids(1) == expected
        crash(disk, store)
        again = opened(disk)
        assert again.entry_ids(1) == expected
        assert await read(again, 1, 0) is None
        assert again.ledger(1) == LedgerInfo(b"new" if comes_back else b"key")

    virtually(story)


def test_a_ledger_that_is_deleted_twice_while_it_comes_back_stays_deleted(virtually: Virtually) -> None:
    async def story() -> None:
        stores = list[DbLedgerStore]()

        def on_step(name: str) -> None:
            if name == "flush.logs" and stores:
                stores.pop().delete_ledger(1)

        store = opened(CountingDisk(), on_step=on_step)
        store.delete_ledger(1)
        store.set_master_key(1, b"key")
        store.add_entry(1, 0, entry(1, 0))
        stores.append(store)
        await done(store.flush)
        assert store.entry_ids(1) == []

    virtually(story)


def test_a_ledger_without_a_row_has_no_locations_that_the_next_one_of_its_id_would_have(virtually: Virtually) -> None:
    async def story() -> None:
        disk, stores = CountingDisk(), list[DbLedgerStore]()

        def on_step(name: str) -> None:
            if name == "flush.logs" and stores:
                stores.pop().delete_ledger(1)

        store = opened(disk, on_step=on_step)
        store.add_entry(1, 0, entry(1, 0))
        await done(store.flush)
        store.add_entry(1, 1, entry(1, 1))
        stores.append(store)
        await done(store.flush)
        crash(disk, store)
        shard = opened(disk).shards[0]
        assert list(shard.locations.entry_ids(1)) == [0, 1]
        assert shard.ledgers.database.get((1).to_bytes(8)) is not None

    virtually(story)


@BOTH
@pytest.mark.parametrize("quirk", [Quirk.RECREATED_ENTRIES_DROPPED, Quirk.RECREATED_LOCATIONS_REMOVED])
def test_entries_of_a_ledger_that_was_made_again_stay_unless_bookkeeper_is_imitated(
    virtually: Virtually, quirk: Quirk, *, is_faithful: bool
) -> None:
    async def story() -> None:
        store = opened(CountingDisk(), quirks=[quirk] if is_faithful else [])
        store.delete_ledger(1)
        store.set_master_key(1, b"key")
        store.add_entry(1, 0, entry(1, 0))
        assert await read(store, 1, 0) == entry(1, 0)
        await done(store.flush)
        assert await read(store, 1, 0) == (None if is_faithful else entry(1, 0))

    virtually(story)


def test_entries_move_to_another_log_unless_their_location_has_changed(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(disk)
        shard = store.shards[0]
        for number in range(3):
            store.add_entry(1, number, entry(1, number))
        await done(store.flush)
        shard.logger.roll()
        store.add_entry(1, 1, entry(1, 1, b"new"))
        await done(store.flush)
        store.delete_ledger(0)
        moved = [(1, number, shard.logger.add(1, entry(1, number))) for number in range(3)]
        await done(partial(shard.move_entries, 0, {0, 1}, [*moved, (0, 0, moved[0][2])]))
        assert [log_id_of(shard.locations.get(1, number)) for number in range(3)] == [1, 1, 1]
        shard.logger.remove(0)
        crash(disk, store)
        again = opened(disk)
        bodies = [await read(again, 1, number) for number in range(3)]
        assert bodies == [entry(1, 0), entry(1, 1, b"new"), entry(1, 2)]
        assert again.entry_ids(0) == []

    virtually(story)


# --------------------------------------------------------------------------------------------------------------- failures


@BOTH
def test_a_fence_without_entries_outlives_a_checkpoint_unless_bookkeeper_is_imitated(
    virtually: Virtually, *, is_faithful: bool
) -> None:
    async def story() -> None:
        disk, owner = CountingDisk(), Owner()
        store = opened(disk, owner=owner, quirks=[Quirk.IDLE_CHECKPOINT_SKIPPED] if is_faithful else [])
        store.add_entry(1, 0, entry(1, 0))
        await done(store.flush)
        store.set_fenced(1)
        store.set_explicit_lac(1, 7, LAC)
        owner.journal.append(lambda: None)
        await done(partial(store.checkpoint, owner.take_checkpoint()))
        crash(disk, store)
        again = opened(disk)
        assert fenced(again, 1) is not is_faithful
        assert again.explicit_lac(1) == (None if is_faithful else LAC)

    virtually(story)


@BOTH
@pytest.mark.parametrize("adds_more", [False, True])
def test_what_a_failed_flush_left_is_flushed_by_the_next_unless_bookkeeper_is_imitated(
    virtually: Virtually, *, adds_more: bool, is_faithful: bool
) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(disk, quirks=[Quirk.FAILED_FLUSH_FORGOTTEN] if is_faithful else [])
        store.add_entry(1, 0, entry(1, 0))
        disk.faults.plant(DiskFault(DiskOperation.WRITE, path="*.log"))
        assert isinstance(await outcome(store.flush), StorageIOError)
        assert await read(store, 1, 0) == entry(1, 0)
        if adds_more:
            store.add_entry(1, 1, entry(1, 1))
        await done(store.flush)
        assert await read(store, 1, 0) == entry(1, 0)
        crash(disk, store)
        assert opened(disk).entry_ids(1) == ([] if is_faithful else [0]) + ([1] if adds_more else [])

    virtually(story)


@BOTH
@pytest.mark.parametrize("kind", [DiskFaultKind.ERROR, DiskFaultKind.FULL])
def test_a_fence_that_could_not_be_written_is_written_with_the_next_flush_unless_bookkeeper_is_imitated(
    virtually: Virtually, kind: DiskFaultKind, *, is_faithful: bool
) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(disk, quirks=[Quirk.LEDGER_CHANGES_DROPPED] if is_faithful else [])
        await done(store.flush)
        store.set_fenced(1)
        disk.faults.plant(DiskFault(DiskOperation.WRITE, kind, path="*/ledgers/*"))
        assert isinstance(await outcome(store.flush), StorageIOError)
        await done(store.flush)
        crash(disk, store)
        assert fenced(opened(disk), 1) is not is_faithful

    virtually(story)


def test_what_changed_while_ledgers_were_flushed_is_flushed_the_next_time(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        disk.costs = DiskCosts(sync_s=1)
        store = opened(disk)
        store.set_fenced(1)
        flushing = asyncio.ensure_future(done(store.flush))
        await asyncio.sleep(0.5)
        store.set_explicit_lac(1, 7, LAC)
        store.set_fenced(2)
        await flushing
        await done(store.flush)
        crash(disk, store)
        again = opened(disk)
        assert [again.explicit_lac(1), fenced(again, 1), fenced(again, 2)] == [LAC, True, True]

    virtually(story)


@BOTH
def test_locations_are_durable_after_entries_however_many_there_are_unless_bookkeeper_is_imitated(
    virtually: Virtually, *, is_faithful: bool
) -> None:
    async def story() -> None:
        disk, stores = CountingDisk(), list[DbLedgerStore]()

        def on_step(name: str) -> None:
            if name == "flush.logs":
                crash(disk, stores[0])

        quirks = [Quirk.LOCATIONS_BEFORE_LOG] if is_faithful else []
        stores.append(opened(disk, on_step=on_step, batch_rows_max=3, quirks=quirks))
        for number in range(8):
            stores[0].add_entry(1, number, entry(1, number))
        stores[0].flush(lambda *_: None, None)
        await asyncio.sleep(1)
        assert opened(disk).entry_ids(1) == (list(range(6)) if is_faithful else [])

    virtually(story)


@BOTH
def test_an_entry_that_does_not_fit_leaves_room_for_others_unless_bookkeeper_is_imitated(
    virtually: Virtually, *, is_faithful: bool
) -> None:
    async def story() -> None:
        store = opened(CountingDisk(), quirks=[Quirk.FAILED_ADD_TAKES_ROOM] if is_faithful else [])
        error: type[Exception] = WriteCacheFull if is_faithful else StorageIOError
        with pytest.raises(error, match="do not fit" if is_faithful else "never fits"):
            store.add_entry(1, 0, entry(1, 0, bytes(1000)))
        for _ in range(3):
            await asyncio.sleep(100)
            if not is_faithful:
                store.add_entry(1, 0, entry(1, 0))
                continue
            with pytest.raises(WriteCacheFull):
                store.add_entry(1, 0, entry(1, 0))
            await done(store.flush)

    virtually(story)


@BOTH
def test_a_checkpoint_is_made_unless_it_was_covered_in_every_journal_and_bookkeeper_looks_at_the_first_that_differs(
    virtually: Virtually, *, is_faithful: bool
) -> None:
    class Journals(Owner):
        def take_checkpoint(self) -> Any:
            return self.moment

        moment: Any = ((5, 0), (5, 0))

    async def story() -> None:
        disk, owner = CountingDisk(), Journals()
        store = opened(disk, owner=owner, quirks=[Quirk.CHECKPOINTS_COMPARED_BY_FIRST] if is_faithful else [])
        store.add_entry(1, 0, entry(1, 0))
        await done(store.flush)
        store.add_entry(1, 1, entry(1, 1))
        await done(partial(store.checkpoint, ((4, 0), (6, 0))))
        crash(disk, store)
        assert opened(disk).entry_ids(1) == ([0] if is_faithful else [0, 1])

    virtually(story)


def test_who_waits_for_room_is_told_when_the_flush_fails_and_an_add_says_so_once(virtually: Virtually) -> None:
    async def story() -> None:
        disk, owner = CountingDisk(), Owner()
        store = opened(disk, owner=owner)
        for _ in range(2):
            disk.faults.plant(DiskFault(DiskOperation.WRITE, path="*.log"))
        for number in range(16):
            store.add_entry(1, number, entry(1, number))
        with pytest.raises(WriteCacheFull):
            store.add_entry(1, 16, entry(1, 16))
        await asyncio.sleep(1)
        store.add_entry(1, 16, entry(1, 16))  # the swap made room, and the flush of the other cache failed
        for number in range(17, 32):
            store.add_entry(1, number, entry(1, number))
        with pytest.raises(WriteCacheFull):
            store.add_entry(1, 32, entry(1, 32))
        await asyncio.sleep(1)
        assert owner.room == 2
        with pytest.raises(StorageIOError, match="could not be flushed"):
            store.add_entry(1, 32, entry(1, 32))
        await asyncio.sleep(1)
        store.add_entry(1, 32, entry(1, 32))
        await done(store.flush)
        crash(disk, store)
        assert opened(disk).entry_ids(1) == list(range(33))

    virtually(story)


def test_nothing_is_open_when_a_database_cannot_be_read(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(disk)
        await done(store.flush)
        ledgers = store.shards[0].ledgers.database
        ledgers.put((5).to_bytes(8), b"\x08")
        await done(ledgers.sync)
        store.close()
        with pytest.raises(StorageIOError, match="damaged"):
            opened(disk)
        with pytest.raises(StorageIOError, match="damaged"):
            opened(disk)

    virtually(story)


def test_flags_of_a_bookie_of_bookkeeper_are_no_ledger_and_stay(virtually: Virtually) -> None:
    async def story() -> None:
        disk = CountingDisk()
        store = opened(disk)
        flags = (-0xEEFD).to_bytes(8, signed=True)
        store.shards[0].ledgers.database.put(flags, (1).to_bytes(8))
        await done(store.flush)
        store.close()
        again = opened(disk)
        assert again.ledger_ids() == [0, 1, 2]
        assert again.shards[0].ledgers.database.get(flags) == (1).to_bytes(8)

    virtually(story)

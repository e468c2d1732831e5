"""Disks are full each for itself: who waits for which, when the bookie turns read-only, and what it still takes then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from bkclient.wire.messages import Status
from simbookie.add_refusals import takes_high_priority
from simbookie.bookie import Bookie
from simbookie.config import BookieConfig
from simbookie.storage.compaction.kinds import CompactionKind
from simbookie.storage.compaction.plan import CompactionConfig
from simbookie.storage.conf import StorageConf
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.interleaved import InterleavedLedgerStore
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.journaled_config import JournaledConfig
from simbookie.storage.ledger_store import LedgerStore
from simbookie.storage.space import SpaceConfig, SpaceState, SpaceWatch

Virtually = Callable[[Callable[[], Any]], None]
PLENTY, LITTLE, NONE = SpaceState.PLENTY, SpaceState.LITTLE, SpaceState.NONE
BLOCK = 4_096
CAPACITY = 100 * BLOCK


def fill(disk: SimulatedDisk, share: float) -> None:
    """Have so much of the disk in use."""
    if disk.exists("ballast"):
        disk.remove("ballast")
    size = int(share * 100) * BLOCK - (disk.capacity().total - disk.capacity().free)
    if size > 0:
        disk.create("ballast").write(0, bytes(size))


class Watched:
    """A watch over two disks."""

    def __init__(self, **config: Any) -> None:
        self.disks = [SimulatedDisk(capacity_bytes=CAPACITY) for _ in range(2)]
        self.told: list[bool] = []
        self.states: list[list[SpaceState]] = []
        self.watch = SpaceWatch(
            SpaceConfig(writable_below=0.8, little_above=0.7, full_above=0.9, **config),
            [Folder(disk, "ledgers") for disk in self.disks],
            self.told.append,
            lambda states: self.states.append(list(states)),
        )
        self.watch.start()

    async def later(self, *shares: float) -> None:
        """Have so much of each disk in use, and let one look."""
        for disk, share in zip(self.disks, shares, strict=True):
            fill(disk, share)
        await asyncio.sleep(10)
        self.watch.look()


def test_one_full_disk_turns_the_bookie_read_only_until_it_has_space(virtually: Virtually) -> None:
    async def story() -> None:
        it = Watched()
        await it.later(0.5, 0.75)
        await it.later(0.5, 0.95)
        assert it.told == [True], "BookKeeper's default: any disk"
        assert it.states == [[PLENTY, LITTLE], [PLENTY, NONE]]
        await it.later(0.95, 0.85)
        assert it.states[-1] == [NONE, NONE], "above the low-water mark a full disk stays full"
        await it.later(0.5, 0.75)
        assert it.states[-1] == [PLENTY, LITTLE]
        assert it.told == [True, False]

    virtually(story)


def test_with_several_disks_it_may_wait_until_all_are_full(virtually: Virtually) -> None:
    async def story() -> None:
        it = Watched(by_any_disk=False)
        await it.later(0.5, 0.95)
        assert (it.told, it.states) == ([], [[PLENTY, NONE]])
        await it.later(0.95, 0.95)
        assert it.told == [True]
        await it.later(0.95, 0.5)
        assert it.told == [True, False]

    virtually(story)


def test_recoveries_need_room_on_some_disk(virtually: Virtually) -> None:
    async def story() -> None:
        it = Watched(high_priority_bytes_min=6 * BLOCK)
        found = []
        for shares in ((0.95, 0.5), (0.95, 0.95), (0.95, 0.92)):
            await it.later(*shares)
            found.append(it.watch.has_high_priority_room)
        assert found == [True, False, True], "one disk is not full; both are; one is full and has room for them"

    virtually(story)


def storage_over(disks: list[SimulatedDisk], *, has_database: bool, **space: Any) -> JournaledStorage:
    parts = [Folder(disk, "ledgers/current") for disk in disks]
    folders = Folders(parts, Random(1))
    store: LedgerStore = DbLedgerStore(folders) if has_database else InterleavedLedgerStore(folders)
    config = JournaledConfig(space=SpaceConfig(**space), compaction=CompactionConfig())
    return JournaledStorage([Folder(SimulatedDisk(), "journal/current")], parts, store, config)


@pytest.mark.parametrize("has_database", [False, True])
def test_the_part_of_a_full_disk_compacts_nothing_and_the_others_go_on(
    virtually: Virtually, *, has_database: bool
) -> None:
    async def story() -> None:
        disks = [SimulatedDisk(capacity_bytes=1_000 * BLOCK) for _ in range(2)]
        storage = storage_over(disks, has_database=has_database)
        opened = asyncio.get_running_loop().create_future()
        storage.open(lambda: opened.set_result(None), lambda _: None)
        await opened
        disks[1].create("ballast").write(0, bytes(disks[1].capacity().free - 10 * BLOCK))
        storage.set_master_key(0, b"key")
        await asyncio.sleep(10)
        storage.add_entry(0, 0, bytes(32), None, None)
        assert storage.garbage is not None
        spared = [collector.schedule.spared for collector in storage.garbage.collectors]
        both = set(CompactionKind)
        assert spared == ([set(), both] if has_database else [both])
        disks[1].remove("ballast")
        await asyncio.sleep(11)
        assert [collector.schedule.spared for collector in storage.garbage.collectors] == [set() for _ in spared]
        storage.garbage.stop()

    virtually(story)


@pytest.mark.parametrize("free_blocks", [3, 8])
def test_a_read_only_bookie_refuses_recoveries_for_which_no_disk_has_room(
    kit: Any, virtually: Virtually, free_blocks: int
) -> None:
    async def story() -> None:
        disk = SimulatedDisk(capacity_bytes=1_000 * BLOCK)
        bookie = Bookie("b0", storage_over([disk], has_database=False, high_priority_bytes_min=5 * BLOCK))
        running = asyncio.get_running_loop().create_future()
        bookie.start(lambda: running.set_result(None))
        await running

        async def status(request: Any) -> Status:
            answer = asyncio.get_running_loop().create_future()
            bookie.submit(request, answer.set_result)
            found: Status = (await answer).status
            return found

        assert await status(kit.add(1, 0)) is Status.OK
        disk.create("ballast").write(0, bytes((disk.capacity().free // BLOCK - free_blocks) * BLOCK))
        await asyncio.sleep(10)
        assert await status(kit.add(1, 1)) is Status.OK, "one looks after it"
        assert bookie.read_only
        assert await status(kit.add(1, 2)) is Status.READ_ONLY
        is_taken = free_blocks > 5
        assert takes_high_priority(BookieConfig(), bookie.storage) is is_taken
        found = await status(kit.add(1, 2, recovery=True, high_priority=True))
        assert found is (Status.OK if is_taken else Status.READ_ONLY)
        bookie.crash()

    virtually(story)


def test_the_reserve_for_recoveries_is_that_of_a_new_log_unless_it_is_named() -> None:
    assert StorageConf.from_conf({"logSizeLimit": "1000"}).space.high_priority_bytes_min == 1_200
    named = {"minUsableSizeForHighPriorityWrites": "7", "readOnlyModeOnAnyDiskFullEnabled": "false"}
    space = StorageConf.from_conf(named).space
    assert (space.high_priority_bytes_min, space.by_any_disk) == (7, False)

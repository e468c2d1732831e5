"""What trimming gives back: bookies with files on simulated disks, whose garbage collection finds what left a log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random

import pytest

from bkclient.log import Logs, LogSettings, MessageId, PublishSettings
from simbookie.garbage import GarbageConfig
from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.kinds import StoreKind
from simbookie.world.bookie_host import BookieHost
from simbookie.world.files import FilesConfig
from simbookie.world.hosts import World
from tests.bkclient.virtual_cluster import VirtualCluster, run_in

KIB = 1024
FILES = FilesConfig(log_bytes=64 * KIB, log_buffer_bytes=4 * KIB, memtable_bytes=32 * KIB, flush_interval_s=5.0)
GARBAGE_S = 20.0
SETTINGS = LogSettings(write_quorum_size=3, max_ledger_entries=4, min_ledger_s=0)
MESSAGES = 128
PAYLOAD = bytes(4 * KIB)
"""32 ledgers of 16 KiB: 512 KiB and some on each of the bookies, which all store everything."""


class ClusterWithFiles(VirtualCluster):
    """Bookies that keep their entries in files, and collect garbage."""

    def __init__(self, world: World, kind: StoreKind) -> None:
        self.disks: list[SimulatedDisk] = []
        self._kind = kind
        super().__init__(world, 3)

    def add_bookie(self) -> str:
        disk = SimulatedDisk(Random(len(self.disks)), costs=FILES.costs)
        ledgers = Folder(disk, "ledgers/current")
        # A write cache takes everything here: one that is full refuses entries, which then go to further ledgers.
        files = replace(FILES, memtable_bytes=1024 * KIB) if self._kind is StoreKind.DB else FILES
        store = files.store(self._kind, Folders([ledgers], Random(1)))
        storage = JournaledStorage([Folder(disk, "journal/current")], [ledgers], store, FILES.journal)
        name = f"b{len(self.disks)}"
        self.disks.append(disk)
        self.bookies[name] = BookieHost(self.world, name, storage=storage, garbage=GarbageConfig(GARBAGE_S))
        return name

    def bytes_of_entry_logs(self) -> list[int]:
        """For each bookie, the bytes of its entry logs."""
        folder = "ledgers/current"
        return [
            sum(disk.open(f"{folder}/{name}").size for name in disk.names(folder) if name.endswith(".log"))
            for disk in self.disks
        ]


Story = Callable[[ClusterWithFiles, Logs, list[MessageId]], Awaitable[None]]


def run(kind: StoreKind, story: Story) -> None:
    """Play ``story`` with a log that was published to and has a cursor, once everything is in entry logs."""

    async def program(cluster: ClusterWithFiles) -> None:
        async with cluster.client() as client, asyncio.timeout(10_000):
            logs = Logs(client, rng=Random(1))
            await logs.create("log", SETTINGS)
            async with logs.cursor("log", "slow"):
                pass
            async with logs.writer("log", settings=PublishSettings(batch_messages=1)) as log:
                ids = [await log.publish(PAYLOAD) for _ in range(MESSAGES)]
            await asyncio.sleep(3 * GARBAGE_S)
            assert min(cluster.bytes_of_entry_logs()) > 0.9 * MESSAGES * len(PAYLOAD), "the rest may be in memory"
            await story(cluster, logs, ids)

    run_in(lambda world: ClusterWithFiles(world, kind), program)


async def ledgers_on_bookies(cluster: ClusterWithFiles) -> set[int]:
    return {ledger_id for bookie in cluster.bookies.values() for ledger_id in bookie.bookie.ledger_ids()}


async def acknowledged_through(logs: Logs, last: MessageId) -> None:
    async with logs.cursor("log", "slow") as cursor:
        while (message := await anext(cursor)).id < last:
            pass
        cursor.acknowledge_through(message)


async def trimmed_behind_a_cursor(cluster: ClusterWithFiles, logs: Logs, ids: list[MessageId]) -> None:
    before = cluster.bytes_of_entry_logs()
    await acknowledged_through(logs, ids[MESSAGES * 3 // 4 - 1])
    trimmed = await logs.trim("log", MessageId.LATEST)
    assert len(trimmed) == 24, "of 32 ledgers those that the cursor needs no more"
    assert await ledgers_on_bookies(cluster) >= {*trimmed}, "bookies find out by themselves"
    await asyncio.sleep(3 * GARBAGE_S)
    assert not await ledgers_on_bookies(cluster) & {*trimmed}
    after = cluster.bytes_of_entry_logs()
    assert all(now < 0.4 * was for now, was in zip(after, before, strict=True)), (before, after)
    async with logs.reader("log", follow=False) as reader:
        assert [message.id async for message in reader] == ids[MESSAGES * 3 // 4 :]


@pytest.mark.parametrize("kind", StoreKind)
def test_bookies_give_the_space_of_trimmed_ledgers_back(kind: StoreKind) -> None:
    run(kind, trimmed_behind_a_cursor)


async def not_trimmed_for_a_slow_cursor(cluster: ClusterWithFiles, logs: Logs, ids: list[MessageId]) -> None:
    before, ledgers = cluster.bytes_of_entry_logs(), await ledgers_on_bookies(cluster)
    await acknowledged_through(logs, ids[SETTINGS.max_ledger_entries - 2])  # all but the last entry of the first ledger
    assert await logs.trim("log", MessageId.LATEST) == []
    await asyncio.sleep(3 * GARBAGE_S)
    assert await ledgers_on_bookies(cluster) == ledgers
    assert all(now >= was for now, was in zip(cluster.bytes_of_entry_logs(), before, strict=True))
    async with logs.reader("log", follow=False) as reader:
        assert len([message async for message in reader]) == MESSAGES


@pytest.mark.parametrize("kind", StoreKind)
def test_a_slow_cursor_keeps_the_space(kind: StoreKind) -> None:
    run(kind, not_trimmed_for_a_slow_cursor)


async def _not_deleted(*_: object) -> None:
    """The planted defect: trimmed ledgers leave the list, and are not deleted."""


async def _not_needed(*_: object) -> int:
    """The planted defect: trimming does not look at cursors."""
    return 2**63 - 1


@pytest.mark.parametrize(
    ("name", "defect", "story"),
    [
        ("delete_trimmed", _not_deleted, trimmed_behind_a_cursor),
        ("first_needed", _not_needed, not_trimmed_for_a_slow_cursor),
    ],
    ids=["not deleted", "cursors ignored"],
)
def test_a_planted_defect_is_found(name: str, defect: object, story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"bkclient.log.logs.{name}", defect)
    with pytest.raises(AssertionError):
        run(StoreKind.INTERLEAVED, story)

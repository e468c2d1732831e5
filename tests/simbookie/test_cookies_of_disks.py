"""Cookies that belong to disks: a bookie starts only where its folders, its id and its cluster belong together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bkclient.metadata.memory import MemoryMetadataService, MemoryMetadataStore
from bkclient.metadata.records import Cookie, decode_cookie, encode_cookie
from bkclient.metadata.tree import tree_of
from simbookie.cookies import COOKIE_FILE, InvalidCookie, check_cookies, read_cookie
from simbookie.processes import BookieProcess, BookieStartError
from simbookie.storage.base import CrashMode, StorageIOError
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskOperation
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk
from simbookie.storage.folders import Folder
from simbookie.zookeeper import EmbeddedZooKeeper

Virtually = Callable[[Callable[[], Any]], None]
ID = "10.0.0.1:3181"
COOKIE = Cookie(ID, ("/data/journal",), ("/data/ledgers",), "instance-1")


class Machine:
    """A disk with a bookie's folders, and a metadata service that has a cluster."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(Random(3), costs=DiskCosts(sync_s=0.01))
        self.folders = [Folder(self.disk, "journal/current"), Folder(self.disk, "ledgers/current")]
        self.store: MemoryMetadataStore = MemoryMetadataService().session(rng=Random(1))

    async def set_up(self, instance: bytes = b"instance-1") -> Machine:
        await tree_of(self.store).create("INSTANCEID", instance)
        return self

    async def check(self, cookie: Cookie = COOKIE, *, knows_cluster: bool = True) -> None:
        await check_cookies(self.store if knows_cluster else None, replace(cookie, instance_id=None), self.folders)

    async def forget(self) -> None:
        assert await tree_of(self.store).delete(f"cookies/{ID}")

    def write(self, folder: int, name: str = "0.log") -> None:
        self.folders[folder].write_small(name, b"data")


def told(story: Callable[[Machine], Any], virtually: Virtually) -> None:
    async def tell() -> None:
        await story(await Machine().set_up())

    virtually(tell)


def test_a_first_start_stamps_all_folders_and_the_cluster_and_later_ones_change_nothing(virtually: Virtually) -> None:
    async def story(machine: Machine) -> None:
        await machine.check()
        for folder in machine.folders:
            assert read_cookie(folder) == COOKIE
            assert folder.read_small(COOKIE_FILE) == encode_cookie(COOKIE)
        node = await tree_of(machine.store).get(f"cookies/{ID}")
        assert node is not None
        assert decode_cookie(ID, node.data) == COOKIE
        machine.write(0)
        machine.write(1)
        await machine.check()
        assert await tree_of(machine.store).get(f"cookies/{ID}") == node

    told(story, virtually)


def test_a_cookie_is_bookkeepers_text() -> None:
    assert encode_cookie(COOKIE).decode() == (
        '5\nbookieHost: "10.0.0.1:3181"\njournalDir: "/data/journal"\nledgerDirs: "1\\t/data/ledgers"\n'
        'instanceId: "instance-1"\n'
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"bookie_host": "10.0.0.2:3181"}, "the data of bookie 10.0.0.1:3181, not of 10.0.0.2:3181; use --id"),
        ({"journal_dirs": ("/other/journal",)}, "has its journals in /data/journal, not in /other/journal"),
        ({"ledger_dirs": ("/data/ledgers", "/more")}, "has its ledgers in /data/ledgers, not in /data/ledgers, /more"),
        ({"index_dirs": ("/data/index",)}, "has its indexes in /data/ledgers, not in /data/index"),
    ],
)
@pytest.mark.parametrize("knows_cluster", [True, False])
def test_another_bookie_or_other_folders_are_refused(
    change: dict[str, Any], complaint: str, knows_cluster: bool, virtually: Virtually
) -> None:
    async def story(machine: Machine) -> None:
        await machine.check()
        with pytest.raises(InvalidCookie, match=complaint):
            await machine.check(replace(COOKIE, **change), knows_cluster=knows_cluster)
        await machine.check(knows_cluster=knows_cluster)

    told(story, virtually)


def test_index_folders_that_are_those_of_the_ledgers_may_be_named_or_not(virtually: Virtually) -> None:
    async def story(machine: Machine) -> None:
        await machine.check()
        await machine.check(replace(COOKIE, index_dirs=COOKIE.ledger_dirs))

    told(story, virtually)


@pytest.mark.parametrize("folder", [0, 1])
def test_a_disk_that_came_back_empty_is_noticed(folder: int, virtually: Virtually) -> None:
    async def story(machine: Machine) -> None:
        await machine.check()
        machine.folders[folder].remove(COOKIE_FILE)
        with pytest.raises(
            InvalidCookie, match=f"{machine.folders[folder].path} has no cookie, though bookie {ID} was here"
        ):
            await machine.check()

    told(story, virtually)


def test_a_folder_with_data_of_nobody_is_not_taken(virtually: Virtually) -> None:
    async def story(machine: Machine) -> None:
        machine.write(1, "0.log")
        with pytest.raises(InvalidCookie, match="ledgers/current is not empty, and has no cookie"):
            await machine.check()
        assert read_cookie(machine.folders[0]) is None
        assert await tree_of(machine.store).children("cookies") == []
        with pytest.raises(InvalidCookie, match="not empty"):
            await machine.check(knows_cluster=False)

    told(story, virtually)


def test_another_cluster_and_one_that_has_forgotten_the_bookie_are_refused(virtually: Virtually) -> None:
    async def story(machine: Machine) -> None:
        await machine.check()
        machine.write(0)
        machine.write(1)
        await machine.forget()
        with pytest.raises(
            InvalidCookie, match=r"has no cookie of bookie .* delete every ledger of the bookie as garbage"
        ):
            await machine.check()
        machine.store = (await Machine().set_up(b"instance-2")).store
        with pytest.raises(InvalidCookie, match="instance id instance-1, and this one has instance-2"):
            await machine.check()

    told(story, virtually)


@pytest.mark.parametrize("mode", CrashMode)
def test_a_first_start_that_died_at_any_moment_is_made_up_for(mode: CrashMode, virtually: Virtually) -> None:
    async def story(machine: Machine) -> None:
        died = 0
        for steps in range(100):
            machine = await Machine().set_up()
            task = asyncio.create_task(machine.check())
            for _ in range(steps):
                await asyncio.sleep(0.004)
            if task.done():
                break
            died += 1
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            machine.disk.crash(mode)
            await machine.check()
            assert [read_cookie(folder) for folder in machine.folders] == [COOKIE, COOKIE]
        assert died > 5
        machine.disk.crash(CrashMode.POWER_LOSS)
        await machine.check()

    told(story, virtually)


def test_two_bookies_of_one_id_do_not_both_start(virtually: Virtually) -> None:
    async def story(machine: Machine) -> None:
        other = Machine()
        other.store = machine.store
        ended = await asyncio.gather(machine.check(), other.check(), return_exceptions=True)
        (failure,) = [each for each in ended if each is not None]
        assert isinstance(failure, InvalidCookie)

    told(story, virtually)


@pytest.mark.parametrize("text", [b"", b"x\n", b"9\n", b"5\nbookieHost: 1", b"\xff"])
def test_a_cookie_that_cannot_be_read_is_no_cookie_of_ours(text: bytes, virtually: Virtually) -> None:
    async def story(machine: Machine) -> None:
        await machine.check()
        machine.folders[0].write_small(COOKIE_FILE, text)
        with pytest.raises(InvalidCookie, match="journal/current/VERSION cannot be read"):
            await machine.check()
        await machine.forget()
        machine.write(0)
        with pytest.raises(InvalidCookie, match="cannot be read"):
            await machine.check()
        machine.folders[0].remove("0.log")
        await machine.check()
        assert read_cookie(machine.folders[0]) == COOKIE, "a first start that lost power while it wrote"

    told(story, virtually)


def test_a_disk_that_fails_is_no_reason_to_go_on(virtually: Virtually) -> None:
    async def story(machine: Machine) -> None:
        machine.disk.faults.plant(DiskFault(DiskOperation.SYNC, DiskFaultKind.ERROR))
        with pytest.raises(StorageIOError):
            await machine.check()

    told(story, virtually)


def test_a_bookie_process_starts_on_its_folder_in_its_cluster_only(tmp_path: Path) -> None:
    async def clusters() -> None:
        async with EmbeddedZooKeeper() as first, EmbeddedZooKeeper() as second:
            await asyncio.to_thread(story, first.metadata_uri(), second.metadata_uri())

    def story(first: str, second: str) -> None:
        options = ["--data", str(tmp_path / "data"), "--session-timeout-s", "2"]

        def bookie(uri: str, bookie_id: str = "b0") -> BookieProcess:
            return BookieProcess("b", uri, tmp_path, bookie_id=bookie_id, options=options)

        for _ in range(2):
            process = bookie(first)
            process.start()
            assert process.terminate() == 0
        assert (tmp_path / "data/journal/current/VERSION").read_text().startswith('5\nbookieHost: "b0"\n')
        with pytest.raises(BookieStartError, match="the data of bookie b0, not of b1; use --id b0"):
            bookie(first, "b1").start()
        with pytest.raises(BookieStartError, match="belongs to the cluster with instance id"):
            bookie(second).start()
        (tmp_path / "data/ledgers/current/VERSION").unlink()
        with pytest.raises(BookieStartError, match="was the disk replaced or emptied"):
            bookie(first).start()

    asyncio.run(clusters())

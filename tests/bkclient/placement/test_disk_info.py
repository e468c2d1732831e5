"""Learning the free disk space of bookies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from bkclient.placement import BookieWatcher, BookieWeights, RandomPlacement
from bkclient.placement import disk_info as module
from bkclient.placement.disk_info import DiskInfo
from tests.bkclient.fakes import fake_cluster, in_virtual_time
from tests.bkclient.placement.cluster import sets
from tests.end_to_end.loopback import Loopback


class Disks:
    """Bookies with so much space; those without a number do not tell."""

    def __init__(self, **free: int) -> None:
        self.free = free
        self.asked: list[tuple[float, str]] = []
        self.open = self.open_max = 0

    async def free_space(self, bookie_id: str) -> int | None:
        self.asked.append((asyncio.get_running_loop().time(), bookie_id))
        self.open += 1
        self.open_max = max(self.open, self.open_max)
        await asyncio.sleep(0.5)
        self.open -= 1
        return self.free.get(bookie_id)

    def asked_since(self, time: float) -> list[str]:
        return [bookie_id for at, bookie_id in self.asked if at >= time]


class Cluster:
    """Disks that are polled, and the registry that tells which there are."""

    def __init__(self, disks: Disks) -> None:
        self.disks, self.weights = disks, BookieWeights(0)
        info = DiskInfo(disks.free_space, self.weights, interval_s=1000, retry_interval_s=60)
        self.watcher = BookieWatcher(RandomPlacement(None), weights=self.weights)  # type: ignore[arg-type]
        self.watcher.listeners.append(info.on_bookies_changed)
        self.info = info


@asynccontextmanager
async def polled(bookies: str, disks: Disks) -> AsyncIterator[Cluster]:
    cluster = Cluster(disks)
    cluster.watcher.update(sets(bookies))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.info.run)
        yield cluster
        tasks.cancel_scope.cancel()


@pytest.mark.rule("PL-26")
@in_virtual_time
async def test_all_bookies_are_asked_at_the_start_and_once_per_interval() -> None:
    disks = Disks(a=100, b=200)
    async with polled("ab", disks) as cluster:
        await anyio.sleep(1)
        assert disks.asked == [(0.0, "a"), (0.0, "b")]
        assert cluster.weights.chances(["a", "b"]) == [100, 200]
        disks.free["a"] = 50
        await anyio.sleep(998)
        assert len(disks.asked) == 2
        await anyio.sleep(2)
        assert disks.asked[2:] == [(1000.0, "a"), (1000.0, "b")]
        assert cluster.weights.chances(["a", "b"]) == [50, 200]


@pytest.mark.rule("PL-26")
@in_virtual_time
async def test_new_bookies_are_asked_as_they_appear_and_only_they() -> None:
    disks = Disks(a=100, b=200, c=300)
    async with polled("ab", disks) as cluster:
        await anyio.sleep(10)
        cluster.watcher.update(sets("bc"))
        await anyio.sleep(1)
        assert disks.asked_since(5) == ["c"]
        assert cluster.weights.bookies() == ("b", "c")
        cluster.watcher.update(sets("b"))
        await anyio.sleep(100)
        assert disks.asked_since(12) == []


@pytest.mark.rule("PL-26")
@in_virtual_time
async def test_a_bookie_that_did_not_tell_is_asked_again_after_the_shorter_interval_unless_it_told_before() -> None:
    disks = Disks(a=100)
    async with polled("ab", disks) as cluster:
        await anyio.sleep(30)
        cluster.watcher.update(sets("abc"))  # the change alone is no reason to ask b again
        await anyio.sleep(10)
        assert disks.asked_since(1) == ["c"]
        await anyio.sleep(30)
        assert disks.asked_since(41) == ["b"]
        disks.free.update(b=200, c=300)
        await anyio.sleep(200)
        assert sorted(disks.asked_since(75)) == ["b", "c"]
        del disks.free["a"]
        await anyio.sleep(1000 - 270 + 500)
        assert disks.asked_since(1000) == ["a", "b", "c"]
        assert cluster.weights.chances(["a", "b", "c"]) == [100, 200, 300]


@in_virtual_time
async def test_a_poll_asks_a_bounded_number_at_once() -> None:
    bookies = [chr(0x4E00 + number) for number in range(module.ASKED_AT_ONCE * 2 + 5)]
    disks = Disks(**dict.fromkeys(bookies, 7))
    async with polled("".join(bookies), disks) as cluster:
        await anyio.sleep(10)
        assert disks.open_max == module.ASKED_AT_ONCE
        assert cluster.weights.unknown() == ()


@pytest.mark.rule("PL-26")
async def test_a_client_that_places_by_weight_asks_real_bookies() -> None:
    async with Loopback(3) as where:
        client = await where.client(placement={"disk_weighted": True})
        weights = client._placement._weights
        assert weights is not None
        with anyio.fail_after(5):
            while weights.unknown():  # noqa: ASYNC110 - answers over sockets
                await anyio.sleep(0.01)
        assert min(weights.chances(weights.bookies())) > 1
        writer = await client.create_ledger()
        await writer.append(b"x")
        await writer.close()


@in_virtual_time
async def test_a_client_that_does_not_asks_nobody() -> None:
    async with fake_cluster("abc") as where:
        await anyio.sleep(80_000)
        assert where.sent == []

"""Clients that connect, create a ledger, append to it and leave, over and over, with bookie processes.

Every step of every round has a limit, and what a round takes it gives back: threads and descriptors.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest

import bkclient
from simbookie.processes import ProcessCluster
from tests.zookeepers import AnyZooKeeper

ROUND_LIMIT_S = 60.0
"""Above the sum of what a loaded machine takes for a round, below what a person would call hanging."""


@pytest.fixture(scope="module")
def cluster(zookeeper_server: AnyZooKeeper) -> Iterator[ProcessCluster]:
    uri = zookeeper_server.metadata_uri("/coming-and-going/ledgers")
    with ProcessCluster(uri, 3, session_timeout_s=5.0) as running:
        yield running


async def one_round(uri: str, *, leave_early: bool) -> None:
    async with asyncio.timeout(ROUND_LIMIT_S), bkclient.connect(uri) as client:
        writer = await client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        appends = [writer.append_nowait(b"entry %d" % number) for number in range(10)]
        if not leave_early:
            await asyncio.gather(*appends)
            await writer.close()
    # Left early, the appends under way fail; nobody asks how.
    await asyncio.gather(*appends, return_exceptions=True)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counted, not used


async def rounds(uri: str, count: int, *, at_a_time: int) -> None:
    await one_round(uri, leave_early=False)  # whatever a process keeps for good it has now
    threads, files = threading.active_count(), descriptors()
    for number in range(count):
        await asyncio.gather(*(one_round(uri, leave_early=(number + other) % 3 == 0) for other in range(at_a_time)))
        async with asyncio.timeout(ROUND_LIMIT_S):
            # A server in this process takes a moment to notice that clients have left.
            while descriptors() > files or threading.active_count() > threads:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("at_a_time", [1, 8])
async def test_clients_come_and_go(cluster: ProcessCluster, at_a_time: int) -> None:
    await rounds(cluster.metadata_uri, 4, at_a_time=at_a_time)


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("count", "at_a_time"), [(1000, 1), (100, 16)])
async def test_clients_come_and_go_for_long(cluster: ProcessCluster, count: int, at_a_time: int) -> None:
    await rounds(cluster.metadata_uri, count, at_a_time=at_a_time)

"""Several bookies in this process over loopback TCP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from bkclient.errors import Code
from bkclient.metadata.base import BookieSets
from bkclient.metadata.memory import MemoryMetadataService, MemoryMetadataStore
from bkclient.transport.tcp import TcpTransport
from bkclient.wire.messages import ReadRequest, Request, Response
from simbookie.bookie import BookieState
from simbookie.cluster import LocalCluster
from simbookie.storage.base import CrashMode


@pytest.fixture
async def metadata() -> AsyncIterator[MemoryMetadataStore]:
    store = MemoryMetadataService().session(rng=Random(1))
    yield store
    await store.aclose()


async def code(transport: TcpTransport, bookie_id: str, request: Request) -> int:
    outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def on_reply(_bookie: str, _request: Request, code: int, _response: Response | None) -> None:
        outcome.set_result(code)

    transport.submit(bookie_id, request, on_reply)
    return await outcome


async def test_bookies_are_registered_reachable_and_gone_afterwards(metadata: MemoryMetadataStore, kit: Any) -> None:
    async with LocalCluster(metadata, 3) as cluster:
        assert len(cluster.bookie_ids) == 3
        assert await metadata.bookies() == BookieSets(writable=tuple(sorted(cluster.bookie_ids)))
        transport = TcpTransport(metadata.bookie_address, rng=Random(1))
        for bookie_id in cluster.bookie_ids:
            address = await metadata.bookie_address(bookie_id)
            assert bookie_id == f"{address.host}:{address.port}"
            assert await code(transport, bookie_id, kit.add(1, 0)) == Code.OK
        await transport.aclose()
    assert await metadata.bookies() == BookieSets()
    assert all(cluster.bookie(bookie_id).state is BookieState.STOPPED for bookie_id in cluster.bookie_ids)
    await cluster.aclose()


@pytest.mark.rule("BK-23")
async def test_a_killed_bookie_comes_back_at_its_address_with_what_its_disk_kept(
    metadata: MemoryMetadataStore, kit: Any
) -> None:
    async with LocalCluster(metadata, 1) as cluster:
        (bookie_id,) = cluster.bookie_ids
        address = cluster.server(bookie_id).address
        transport = TcpTransport(metadata.bookie_address, rng=Random(1))
        assert await code(transport, bookie_id, kit.add(1, 0)) == Code.OK
        await cluster.kill(bookie_id, CrashMode.POWER_LOSS)
        assert await metadata.bookies() == BookieSets()
        assert await code(transport, bookie_id, ReadRequest(1, 0)) == Code.BOOKIE_NOT_AVAILABLE
        await cluster.restart(bookie_id)
        assert cluster.server(bookie_id).address == address
        assert await metadata.bookies() == BookieSets(writable=(bookie_id,))
        await transport.aclose()
        transport = TcpTransport(metadata.bookie_address, rng=Random(1))
        assert await code(transport, bookie_id, ReadRequest(1, 0)) == Code.OK
        await cluster.stop(bookie_id)
        assert await metadata.bookies() == BookieSets()
        await transport.aclose()


async def test_a_cluster_grows(metadata: MemoryMetadataStore) -> None:
    async with LocalCluster(metadata, 0) as cluster:
        added = await cluster.add()
        assert cluster.bookie_ids == (added,)
        with pytest.raises(KeyError):
            cluster.server("nobody")


def test_a_cluster_cannot_have_fewer_than_no_bookies(metadata: MemoryMetadataStore) -> None:
    with pytest.raises(ValueError, match="-1"):
        LocalCluster(metadata, -1)

"""Fixtures for all stores: a cluster that any number of sessions may be opened with, and a stranger who looks in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from random import Random
from typing import Any

import pytest
from kazoo.client import KazooClient

from bkclient.metadata.base import MetadataStore
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.metadata.opening import open_store
from tests.zookeepers import AnyZooKeeper

OpenSession = Callable[[], Awaitable[MetadataStore]]


@pytest.fixture(params=["mem", "embedded", pytest.param("java", marks=pytest.mark.zookeeper)])
async def open_session(request: pytest.FixtureRequest) -> AsyncIterator[OpenSession]:
    """Opens sessions with one fresh cluster, in memory or in a ZooKeeper; all are closed after the test."""
    service = MemoryMetadataService()
    sessions: list[MetadataStore] = []
    options: dict[str, Any] = {"rng": Random(7)}
    is_in_memory = request.param == "mem"
    if not is_in_memory:
        server: AnyZooKeeper = request.getfixturevalue(f"{request.param}_zookeeper")
        uri = server.metadata_uri(request.getfixturevalue("zookeeper_root"))
        options |= {"session_timeout_s": 5.0, "connect_timeout_s": 20.0, "initialise": True}

    async def open_one() -> MetadataStore:
        session = service.session(**options) if is_in_memory else await open_store(uri, **options)
        sessions.append(session)
        return session

    yield open_one
    for session in sessions:
        await session.aclose()


@pytest.fixture
def zk(zookeeper_server: AnyZooKeeper) -> Iterator[KazooClient]:
    """Another client of the same service, to look and to meddle."""
    client = KazooClient(zookeeper_server.address)
    client.start(timeout=20)
    yield client
    client.stop()
    client.close()


@pytest.fixture
async def store(open_session: OpenSession) -> MetadataStore:
    """A session with a fresh cluster."""
    return await open_session()

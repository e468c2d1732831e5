"""One fixture for both stores: a cluster that any number of sessions may be opened with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

import pytest

from bkclient.metadata.base import MetadataStore
from bkclient.metadata.memory import MemoryMetadataService

OpenSession = Callable[[], Awaitable[MetadataStore]]


@pytest.fixture
async def open_session() -> AsyncIterator[OpenSession]:
    """Opens sessions with one fresh cluster; all are closed after the test."""
    service = MemoryMetadataService()
    rng = Random(7)
    sessions = []

    async def open_one() -> MetadataStore:
        session = service.session(rng=rng)
        sessions.append(session)
        return session

    yield open_one
    for session in sessions:
        await session.aclose()


@pytest.fixture
async def store(open_session: OpenSession) -> MetadataStore:
    """A session with a fresh cluster."""
    return await open_session()

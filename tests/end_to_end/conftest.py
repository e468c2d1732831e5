"""Fixtures of the end-to-end tests.

Nothing here waits for time to pass: timeouts are short where a test needs one to expire, and waiting is for events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from simbookie.config import BookieConfig
from simbookie.server import ServerConfig
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.memory import MemoryStorageConfig
from tests.end_to_end.loopback import Loopback, NewLoopback


@pytest.fixture
def new_loopback() -> NewLoopback:
    """Makes loopback clusters; a test enters them itself, because clients belong to the task that entered them."""

    def make(
        bookies: int = 5,
        *,
        journal_sync_s: float = 0.0,
        config: BookieConfig | None = None,
        server: ServerConfig | None = None,
    ) -> Loopback:
        storage = MemoryStorageConfig(journal=JournalConfig(sync_latency_s=journal_sync_s))
        return Loopback(bookies, config=config, storage=storage, server=server)

    return make


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """Both event loops the client supports."""
    if request.param == "asyncio":
        return asyncio.new_event_loop
    uvloop = pytest.importorskip("uvloop")
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory

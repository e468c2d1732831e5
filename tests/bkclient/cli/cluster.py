"""Bookies for commands: a cluster in a thread of its own, which commands of this process reach by ``mem://`` and TCP.

The metadata service in memory belongs to one event loop at a time. A command has a loop of its own, so while one runs the thread
must leave the service alone: nothing here registers, kills or restarts a bookie except from a test, between commands.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

import bkclient
from bkclient import BookKeeper
from bkclient.metadata.memory import MemoryMetadataService
from simbookie.cluster import LocalCluster
from simbookie.cookies import leave_cookie

__all__ = ["ThreadedCluster"]

T = TypeVar("T")

_NUMBERS = itertools.count(1)


class ThreadedCluster:
    """``size`` bookies registered at :attr:`uri`; a context manager."""

    bookies: LocalCluster

    def __init__(self, size: int = 3) -> None:
        self._name = f"commands-{next(_NUMBERS)}"
        self.uri = f"mem://{self._name}"
        self._size = size
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._store = MemoryMetadataService.named(self._name).session(rng=Random(1))
        self.bookies = LocalCluster(self._store, self._size)
        self.run(self.bookies.start())
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.run(self.bookies.aclose())
            self.run(self._store.aclose())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            MemoryMetadataService.forget(self._name)

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Run ``story`` in the thread of the bookies."""
        return asyncio.run_coroutine_threadsafe(story, self._loop).result(timeout=60)

    def leave_cookie(self, bookie_id: str) -> None:
        """Have the cluster remember a bookie."""
        self.run(leave_cookie(self._store, bookie_id))

    def with_client(self, story: Callable[[BookKeeper], Coroutine[Any, Any, T]]) -> T:
        """Run ``story`` with a client, in a loop of its own, as a command does."""

        async def connected() -> T:
            async with bkclient.connect(self.uri, rng=Random(7)) as client:
                return await story(client)

        return asyncio.run(connected())

    def ledger(self, *payloads: bytes, password: bytes = b"", close: bool = True) -> int:
        """A ledger that holds ``payloads``."""

        async def story(client: BookKeeper) -> int:
            writer = await client.create_ledger(password=password)
            for payload in payloads:
                await writer.append(payload)
            if close:
                await writer.close()
            return writer.ledger_id

        return self.with_client(story)

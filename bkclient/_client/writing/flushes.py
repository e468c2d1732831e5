"""Flushes of one writer: who waits until everything up to some entry is acknowledged."""

from __future__ import annotations

import asyncio
from collections import deque

from bkclient._client.defects import fresh
from bkclient._client.writing.failures import fail_quietly
from bkclient.errors import BookKeeperError

__all__ = ["Flushes"]


class Flushes:
    """Those who wait, in the order in which they came, which is that of their entries."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: With the entry that each waits for.
        self.waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def wait(self, entry_id: int) -> None:
        """Return once ``entry_id`` is acknowledged, or raise why it will not be."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        place = (entry_id, waiter)
        self.waiters.append(place)
        try:
            await waiter
        except asyncio.CancelledError:
            if place in self.waiters:
                self.waiters.remove(place)
            raise

    def reached(self, entry_id: int) -> None:
        """Everything up to ``entry_id`` is acknowledged."""
        waiters = self.waiters
        while waiters and waiters[0][0] <= entry_id:
            waiter = waiters.popleft()[1]
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, failure: BookKeeperError) -> None:
        """Nothing more will be acknowledged, for this reason."""
        while self.waiters:
            fail_quietly(self.waiters.popleft()[1], fresh(failure))

"""Flushes of one writer: who waits until everything up to some entry is acknowledged."""

from __future__ import annotations

import asyncio
from collections import deque

from bkclient._client.writing.failures import fail_quietly
from bkclient._fresh import fresh
from bkclient.errors import BookKeeperError

__all__ = ["Flushes"]


class Flushes:
    """Those who wait, in the order in which they came, which is that of their entries."""

    __slots__ = ("waiters",)

    def __init__(self) -> None:
        #: With the entry that each waits for; made for the first, because an empty deque has room for 64.
        self.waiters: deque[tuple[int, asyncio.Future[None]]] | None = None

    async def wait(self, entry_id: int) -> None:
        """Return once ``entry_id`` is acknowledged, or raise why it will not be."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (entry_id, waiter)
        if self.waiters is None:
            self.waiters = deque()
        waiters = self.waiters
        waiters.append(place)
        try:
            await waiter
        except asyncio.CancelledError:
            if place in waiters:
                waiters.remove(place)
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

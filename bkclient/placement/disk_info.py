"""Learning the free disk space of bookies, for weighted placement.

All writable bookies are asked at the start and once per interval; new ones as soon as they appear; one that did not answer and
never has, again after a shorter interval. What a bookie told holds until it tells something else or leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from bkclient._news import wait_for_news
from bkclient.ledger import BookieId
from bkclient.placement.weights import BookieWeights

__all__ = ["ASKED_AT_ONCE", "DiskInfo", "FreeSpace"]

ASKED_AT_ONCE: Final = 64
"""A full poll of a large cluster opens many connections; this many at a time."""

FreeSpace = Callable[[BookieId], Awaitable[int | None]]
"""Asks a bookie for its free bytes; None if it does not tell. Raises nothing."""


class DiskInfo:
    """Keeps ``weights`` up to date; :meth:`run` is a task of the client."""

    def __init__(
        self, free_space: FreeSpace, weights: BookieWeights, *, interval_s: float, retry_interval_s: float
    ) -> None:
        self._free_space = free_space
        self._weights = weights
        self._interval_s = interval_s
        self._retry_interval_s = retry_interval_s
        self._retry_at: dict[BookieId, float] = {}
        self._changed = asyncio.Event()

    def on_bookies_changed(self) -> None:
        """Bookies came or left; ``weights`` know already."""
        self._changed.set()

    async def run(self) -> None:
        """Ask for ever."""
        loop = asyncio.get_running_loop()
        next_full = loop.time()
        while True:
            self._changed.clear()
            if loop.time() >= next_full:
                next_full = loop.time() + self._interval_s
                asked = self._weights.bookies()
            else:
                asked = self._due(loop.time())
            for first in range(0, len(asked), ASKED_AT_ONCE):
                await asyncio.gather(*map(self._ask, asked[first : first + ASKED_AT_ONCE]))
            self._plan_retries(asked, loop.time())
            wake_at = min((next_full, *self._retry_at.values()))
            await wait_for_news(self._changed, wake_at - loop.time())

    def _due(self, now: float) -> tuple[BookieId, ...]:
        """The bookies of which nothing is known, without those that failed to tell a moment ago."""
        return tuple(b for b in self._weights.unknown() if self._retry_at.get(b, now) <= now)

    def _plan_retries(self, asked: Sequence[BookieId], now: float) -> None:
        failed = dict.fromkeys(asked, now + self._retry_interval_s)
        self._retry_at = {b: failed.get(b, self._retry_at.get(b, now)) for b in self._weights.unknown()}

    async def _ask(self, bookie_id: BookieId) -> None:
        free_bytes = await self._free_space(bookie_id)
        if free_bytes is not None:
            self._weights.learn(bookie_id, free_bytes)

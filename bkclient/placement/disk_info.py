"""Learning the free disk space of bookies, for weighted placement.

All writable bookies are asked at the start and once per interval; new ones as soon as they appear; one that did not answer and
never has, again after a shorter interval. What a bookie told holds until it tells something else or leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import anyio

from bkclient.errors import Code
from bkclient.ledger import BookieId
from bkclient.placement.weights import BookieWeights
from bkclient.transport.base import BookieTransport
from bkclient.wire.messages import BookieInfoRequest, BookieInfoResponse, Request, Response, Status

__all__ = ["ASKED_AT_ONCE", "DiskInfo"]

ASKED_AT_ONCE: Final = 64
"""A full poll of a large cluster opens many connections; this many at a time."""

_FREE_SPACE: Final = 2


class DiskInfo:
    """Keeps ``weights`` up to date; :meth:`run` is a task of the client."""

    def __init__(
        self, transport: BookieTransport, weights: BookieWeights, *, interval_s: float, retry_interval_s: float
    ) -> None:
        self._transport = transport
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
                await self._ask(asked[first : first + ASKED_AT_ONCE])
            self._plan_retries(asked, loop.time())
            wake_at = min((next_full, *self._retry_at.values()))
            with anyio.move_on_after(max(0.0, wake_at - loop.time())):
                await self._changed.wait()

    def _due(self, now: float) -> tuple[BookieId, ...]:
        """The bookies of which nothing is known, without those that failed to tell a moment ago."""
        return tuple(b for b in self._weights.unknown() if self._retry_at.get(b, now) <= now)

    def _plan_retries(self, asked: Sequence[BookieId], now: float) -> None:
        failed = dict.fromkeys(asked, now + self._retry_interval_s)
        self._retry_at = {b: failed.get(b, self._retry_at.get(b, now)) for b in self._weights.unknown()}

    async def _ask(self, bookies: Sequence[BookieId]) -> None:
        left = len(bookies)
        done = asyncio.Event()

        def on_reply(bookie_id: str, _request: Request, code: int, response: Response | None) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done.set()
            if code == Code.OK and isinstance(response, BookieInfoResponse) and response.status == Status.OK:
                self._weights.learn(bookie_id, response.free_disk_space or 0)

        for bookie_id in bookies:
            self._transport.submit(bookie_id, BookieInfoRequest(_FREE_SPACE), on_reply)
        if bookies:
            await done.wait()

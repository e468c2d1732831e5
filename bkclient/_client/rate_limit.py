"""A rate limit for requests: so many permits a second, in the order in which they are asked for.

BookKeeper limits the requests of a handle to a rate (``throttle``), adds and reads together. Here it is off unless configured:
what bounds the work of this client are windows. A permit that is not used is saved, up to those of one second, so an idle handle
may start with a burst of that size.

Time is the loop's. Nothing runs in between: a permit is a reservation on a time line, and waiting is one sleep.
"""

from __future__ import annotations

import asyncio
from typing import Final

import anyio

from bkclient.config import LimitSettings

__all__ = ["RateLimit"]

_BURST_S: Final = 1.0


class RateLimit:
    """``permits_per_s`` permits a second, above 0. Belongs to the running event loop."""

    __slots__ = ("_interval_s", "_loop", "_paid_until")

    def __init__(self, permits_per_s: float) -> None:
        self._interval_s = 1 / permits_per_s
        self._loop = asyncio.get_running_loop()
        # Everything before this moment is spent; a second of the past is not yet, which is the burst.
        self._paid_until = self._loop.time() - _BURST_S

    @staticmethod
    def of(limits: LimitSettings) -> RateLimit | None:
        """The limit that ``limits`` ask for (``throttle_per_s``), None if they ask for none (R-2)."""
        return RateLimit(limits.throttle_per_s) if limits.throttle_per_s > 0 else None

    def try_take(self, permits: int = 1) -> bool:
        """Take ``permits`` if they are due now; else take none."""
        if self._paid_until + permits * self._interval_s > self._loop.time():
            return False
        self.take(permits)
        return True

    def take(self, permits: int = 1) -> None:
        """Take ``permits`` at once, on credit if need be: the next caller waits for these too."""
        earliest = self._loop.time() - _BURST_S
        self._paid_until = max(self._paid_until, earliest) + permits * self._interval_s

    def reserve(self, permits: int = 1) -> float:
        """Take ``permits`` on credit; returns for how many seconds they must not be used yet, 0 or less if they are due."""
        self.take(permits)
        return self._paid_until - self._loop.time()

    def give_back(self, permits: int = 1) -> None:
        """``permits`` that were reserved will not be used."""
        self._paid_until -= permits * self._interval_s

    async def acquire(self, permits: int = 1) -> None:
        """Take ``permits`` and wait until they are due. A caller that is cancelled gives them back."""
        delay_s = self.reserve(permits)
        if delay_s <= 0:
            return
        try:
            await anyio.sleep(delay_s)
        except BaseException:
            self.give_back(permits)
            raise

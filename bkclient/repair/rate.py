"""Limiting the bytes that are copied in a second."""

from __future__ import annotations

import asyncio

import anyio

__all__ = ["ByteRate"]


class ByteRate:
    """Lets ``bytes_per_s`` pass in the long run, on the running loop's clock; everything, at once, if that is None.

    A caller that takes more than was due makes later ones wait; nothing is saved up while there are none, and
    nothing is taken by those who give up waiting.
    """

    def __init__(self, bytes_per_s: float | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0
        self._turn = asyncio.Lock()

    async def take(self, size: int) -> None:
        """Wait for the turn of ``size`` bytes."""
        if self._bytes_per_s is None:
            return
        loop = asyncio.get_running_loop()
        arrived_at = loop.time()
        async with self._turn:
            wait_s = self._free_at - loop.time()
            if wait_s > 0:
                await anyio.sleep(wait_s)
            self._free_at = max(arrived_at, self._free_at) + size / self._bytes_per_s

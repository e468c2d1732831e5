"""Limiting the bytes that are copied in a second (AR-12)."""

from __future__ import annotations

import asyncio

import anyio

__all__ = ["ByteRate"]


class ByteRate:
    """Lets ``bytes_per_s`` pass in the long run, on the running loop's clock; everything, at once, if that is None.

    Whoever has taken more than was due makes those who come after him wait; nothing is saved up while nobody comes.
    """

    def __init__(self, bytes_per_s: float | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    async def take(self, size: int) -> None:
        """Wait for the turn of ``size`` bytes."""
        if self._bytes_per_s is None:
            return
        now = asyncio.get_running_loop().time()
        starts_at = max(now, self._free_at)
        self._free_at = starts_at + size / self._bytes_per_s
        if starts_at > now:
            await anyio.sleep(starts_at - now)

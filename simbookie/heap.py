"""Giving memory back to the system that a process needed for a while.

glibc keeps what is freed: once a large buffer has been freed, later ones of its size come from the heap, and of that only the end
is given back. A process that answered requests with megabytes keeps as many for ever, although nothing of ours is kept.
``malloc_trim`` gives back every page that is free. It stands still meanwhile, longer in a large heap with many holes; so the
next one waits a thousand times as long as the last one took.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Awaitable, Callable
from typing import Final

__all__ = ["HeapTrimmer", "find_malloc_trim"]

#: Time between two looks, and between two trims at least.
_INTERVAL_S: Final = 10.0
#: A trim may take this part of the time.
_TIME_SHARE: Final = 0.001


def find_malloc_trim() -> Callable[[], object] | None:
    """What gives free memory back, if the C library of this process has it; it lets other threads run."""
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # musl and macOS have none, Windows has no library of this name
        return None
    return lambda: malloc_trim(0)


class HeapTrimmer:
    """Calls ``trim`` from time to time as long as ``activity`` changes: a process that does nothing has nothing to give."""

    def __init__(
        self,
        trim: Callable[[], object],
        activity: Callable[[], object],
        clock: Callable[[], float],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._trim = trim
        self._activity = activity
        self._sleep = sleep
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled."""
        before = self._activity()
        pause_s = _INTERVAL_S
        while True:
            await self._sleep(pause_s)
            now = self._activity()
            if now != before:
                before, began = now, self._clock()
                self._trim()
                pause_s = max(_INTERVAL_S, (self._clock() - began) / _TIME_SHARE)

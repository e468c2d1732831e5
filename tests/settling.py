"""Waiting until nothing more happens by itself, on any event loop of asyncio and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import Final

__all__ = ["settled", "turns"]

#: Turns of the loop after which what is still going on will not end by itself.
_SETTLES_WITHIN: Final = 10_000


async def settled() -> None:
    """Wait until everything that needs no outside help has happened, however many turns of the loop that takes.

    That is when nothing else is ready to run, and nothing becomes ready in the turn after. Later timers do not count.
    """
    ready: Sized = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    is_quiet = False
    for _ in range(_SETTLES_WITHIN):
        await asyncio.sleep(0)
        was_quiet, is_quiet = is_quiet, len(ready) == 0
        if was_quiet and is_quiet:
            return
    raise AssertionError(f"something goes on and on: {list(ready)[:3]}")  # type: ignore[call-overload]


async def turns(count: int) -> None:
    """Let the loop turn so often, for tests that look at every moment of what goes on."""
    for _ in range(count):
        await asyncio.sleep(0)

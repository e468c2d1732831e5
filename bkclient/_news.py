"""Waiting for news, or for time to pass."""

from __future__ import annotations

import asyncio
from contextlib import suppress

__all__ = ["wait_for_news"]


async def wait_for_news(news: asyncio.Event, longest_s: float | None) -> None:
    """Return when ``news`` is set, or after ``longest_s`` seconds; None waits without a limit."""
    if longest_s is None or longest_s > 0:
        # not anyio's: before 4.16 a task that is cancelled just as a scope of its own expires goes on
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await news.wait()

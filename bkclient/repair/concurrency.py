"""Doing something for each of many, a bounded number at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import anyio

__all__ = ["first_of", "for_each"]

T = TypeVar("T")


async def for_each(
    items: AsyncIterator[T], limit: int, work: Callable[[T], Awaitable[None]], *, wait_s: float | None = None
) -> None:
    """Do ``work`` for all ``items``, for at most ``limit`` at a time; raises what the first one raises, and ends the others.

    :class:`TimeoutError` if no work ends within ``wait_s`` while an item waits for its turn.
    """
    room = asyncio.Semaphore(limit)

    async def run(item: T) -> None:
        try:
            await work(item)
        finally:
            room.release()

    try:
        async with anyio.create_task_group() as tasks:
            async for item in items:
                async with asyncio.timeout(wait_s):
                    await room.acquire()
                tasks.start_soon(run, item)
    except BaseExceptionGroup as group:
        first = first_of(group)
        raise first from first.__cause__  # its own, not the group


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first exception of a group, however deep it lies: what failed first, for callers who know no groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error

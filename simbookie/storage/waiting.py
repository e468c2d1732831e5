"""Awaiting what storages answer by callback, for the few places that are coroutines: what is done once, at the start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from simbookie.storage.base import DurableCallback, StorageError

__all__ = ["until_done"]


async def until_done(begin: Callable[[DurableCallback], None]) -> None:
    """Call ``begin`` with a callback, and return when that is called; raises the :class:`StorageError` that it is called with."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(_token: object, error: StorageError | None) -> None:
        if ended.done():
            return
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error)

    begin(end)
    await ended

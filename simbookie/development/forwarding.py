"""Carrying the bytes of one connection on to another, as far as something in between lets them pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, Protocol

__all__ = ["CHUNK_SIZE", "Readable", "all_of", "forward"]

#: At most so many bytes are under way in one direction.
CHUNK_SIZE: Final = 65_536


class Readable(Protocol):
    """Where bytes come from: an :class:`asyncio.StreamReader`, or what has looked at them in between."""

    async def read(self, n: int) -> bytes:
        """Some bytes, none at the end."""
        ...


async def forward(source: Readable, sink: asyncio.StreamWriter, passes: Callable[[bytes], Awaitable[None]]) -> None:
    """Carry what ``source`` has to ``sink``, its end included.

    ``passes`` returns when the bytes that it is given may pass; it is given none for the end, and for an error of either side,
    which is raised then: who is cut off learns of neither before.
    """
    try:
        while data := await source.read(CHUNK_SIZE):
            await passes(data)
            sink.write(data)
            await sink.drain()
    except OSError:
        await passes(b"")
        raise
    await passes(b"")
    if sink.can_write_eof():
        sink.write_eof()


async def all_of(*ways: Coroutine[None, None, None]) -> None:
    """Run them all until each has ended, or one has failed; none is left behind, however this ends."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

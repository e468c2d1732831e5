"""A proxy between a client and one bookie that turns against both of them at a chosen byte.

It counts the bytes of each direction over all connections. Up to the chosen one it forwards faithfully; then the fault
happens, once, in that direction:

* ``CUT``: both connections are reset.
* ``STALL``: nothing of this direction is forwarded any more, on any connection; everything stays open.
* ``HALF_CLOSE``: the receiver sees the end of the stream; the sender is read from and its bytes are thrown away.
* ``REPEAT``: the last bytes forwarded are sent once more.
* ``FLIP``: one bit of the byte is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Self

from bkclient.metadata.base import BookieAddress

__all__ = ["Direction", "Fault", "HostileProxy", "Mischief"]

_CHUNK = 65_536


class Fault(Enum):
    """What the proxy does."""

    CUT = "cut"
    STALL = "stall"
    HALF_CLOSE = "half-close"
    REPEAT = "repeat"
    FLIP = "flip"


class Direction(Enum):
    """Whose bytes are meddled with."""

    REQUESTS = "requests"
    ANSWERS = "answers"


@dataclass(frozen=True, slots=True)
class Mischief:
    """One fault, before byte ``position`` of a direction is forwarded (FLIP: in it). ``amount``: bits or bytes."""

    fault: Fault
    direction: Direction
    position: int
    amount: int = 0


class HostileProxy:
    """Listens on a port of its own; ``mischief`` may be None, then it is a faithful proxy that counts bytes."""

    def __init__(self, target: Callable[[], Awaitable[BookieAddress]], mischief: Mischief | None = None) -> None:
        self._target = target
        self._mischief = mischief
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_done = False
        self._is_stalled = False
        #: Bytes forwarded so far.
        self.forwarded = dict.fromkeys(Direction, 0)

    @property
    def has_struck(self) -> bool:
        """Whether the fault has happened."""
        return self._is_done

    @property
    def address(self) -> BookieAddress:
        """Where clients find the proxy."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return BookieAddress(host, port)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            pass  # asyncio's own callback of this task would ask for its exception
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            address = await self._target()
            far_reader, far_writer = await asyncio.open_connection(address.host, address.port)
        except OSError:
            return
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, far_writer, Direction.REQUESTS))
                pumps.create_task(self._pump(far_reader, writer, Direction.ANSWERS))
        except* (OSError, _Reset):
            pass
        finally:
            far_writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: Direction) -> None:
        mischief = self._mischief
        is_watched = mischief is not None and mischief.direction is direction
        while data := await source.read(_CHUNK):
            if is_watched and mischief is not None and not self._is_done:
                before = mischief.position - self.forwarded[direction]
                if before < len(data):
                    self._is_done = True
                    data = await self._strike(mischief, sink, data[:before], data[before:])
            if is_watched and self._is_stalled:
                continue  # read and thrown away: what is stalled never arrives
            self.forwarded[direction] += len(data)
            sink.write(data)
            await sink.drain()
        raise _Reset

    async def _strike(self, mischief: Mischief, sink: asyncio.StreamWriter, before: bytes, after: bytes) -> bytes:
        """Do it; what is returned is forwarded."""
        match mischief.fault:
            case Fault.FLIP:
                return before + bytes((after[0] ^ 1 << mischief.amount % 8,)) + after[1:]
            case Fault.REPEAT:
                return before + before[-mischief.amount :] + after
        self.forwarded[mischief.direction] += len(before)
        sink.write(before)
        await sink.drain()
        match mischief.fault:
            case Fault.CUT:
                raise _Reset
            case Fault.HALF_CLOSE:
                sink.write_eof()
                self._is_stalled = True
            case Fault.STALL:
                self._is_stalled = True
        return b""


class _Reset(Exception):
    """Both connections end."""

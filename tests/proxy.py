"""A TCP proxy before one peer: faithful as it is, and a base for those that listen in or meddle.

Every connection is carried by a task of its own with a pump for each direction. What a pump reads goes through
:meth:`Proxy.passes`, the one thing that other proxies change. The end of a stream is passed on as the end of a stream, in
that direction alone, so whatever is still on its way back arrives; an error of either side, or :class:`Cut`, resets both.
Leaving the block ends all connections and waits until their sockets are closed. An error in :meth:`Proxy.passes` ends its
connection and is raised there, so that a defect of a test does not look like a fault of the network.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import Enum
from typing import Self

from bkclient.metadata.base import BookieAddress

__all__ = ["Cut", "Direction", "Flow", "Proxy", "RecordingProxy"]

_CHUNK = 65_536


class Direction(Enum):
    """Whose bytes they are: those of the side that connected, or of the peer behind the proxy."""

    REQUESTS = "requests"
    ANSWERS = "answers"


class Cut(Exception):
    """Raised by :meth:`Proxy.passes` to reset both ends of the connection."""


class Flow:
    """One direction of one connection, which are counted from 0."""

    def __init__(self, connection: int, direction: Direction, sink: asyncio.StreamWriter) -> None:
        self.connection = connection
        self.direction = direction
        self._sink = sink

    async def forward(self, data: bytes) -> None:
        """Send ``data`` on; waits while the receiver takes no more."""
        self._sink.write(data)
        await self._sink.drain()

    def end(self) -> None:
        """Let the receiver see the end of the stream."""
        self._sink.write_eof()


class Proxy:
    """Listens on a port of its own for as long as the block lasts, and forwards to ``target``."""

    def __init__(self, target: BookieAddress) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._carriers: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def passes(self, flow: Flow, data: bytes) -> None:
        """Bytes that were read; whatever should arrive has to be forwarded."""
        await flow.forward(data)

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
        for carrier in self._carriers:
            carrier.cancel()
        outcomes = await asyncio.gather(*self._carriers, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not a coroutine: asyncio would make a task of it whose cancellation it reports as an error.
        assert self._server is not None
        if not self._server.is_serving():
            writer.transport.abort()
            return
        carrying = self._carry(len(self._carriers), reader, writer)
        self._carriers.append(asyncio.get_running_loop().create_task(carrying))

    async def _carry(self, connection: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(self._target.host, self._target.port)
            writers.append(far_writer)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, Flow(connection, Direction.REQUESTS, far_writer)))
                pumps.create_task(self._pump(far_reader, Flow(connection, Direction.ANSWERS, writer)))
            for each in writers:
                each.close()  # what is on its way still arrives
        except* (OSError, Cut):
            pass
        finally:
            self._writers += writers
            for each in writers:
                if not each.is_closing():
                    each.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, flow: Flow) -> None:
        while data := await source.read(_CHUNK):
            await self.passes(flow, data)
        flow.end()


class RecordingProxy(Proxy):
    """Keeps every byte of either side, for tests of what an eavesdropper can see."""

    def __init__(self, target: BookieAddress) -> None:
        super().__init__(target)
        self._streams: dict[tuple[Direction, int], bytearray] = {}

    def heard(self, direction: Direction) -> list[bytes]:
        """What was sent so far, one stream for each connection that sent anything."""
        return [bytes(stream) for (of, _), stream in self._streams.items() if of is direction]

    async def passes(self, flow: Flow, data: bytes) -> None:
        self._streams.setdefault((flow.direction, flow.connection), bytearray()).extend(data)
        await super().passes(flow, data)

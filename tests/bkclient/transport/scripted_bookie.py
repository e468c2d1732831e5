"""A TCP server for tests: answers as a script tells it, so that tests decide what a bookie does wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from bkclient.metadata.base import BookieAddress
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.messages import (
    AddRequest,
    AddResponse,
    BatchReadRequest,
    BatchReadResponse,
    ReadRequest,
    ReadResponse,
    Status,
)
from bkclient.wire.server_connection import ServerConnection

Script = Callable[["BookieConnection", ReceivedRequest], None]


class BookieConnection(asyncio.BufferedProtocol):
    """One accepted connection."""

    def __init__(self, bookie: ScriptedBookie) -> None:
        self.bookie = bookie
        self.wire = ServerConnection(bookie.max_frame_size)
        self.received: list[ReceivedRequest] = []
        self.chunks = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.bookie.connections.append(self)
        self.bookie.open += 1
        if self.bookie.close_at_once:
            self.transport.close()
        if self.bookie.deaf:
            self.transport.pause_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.wire.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.chunks += 1
        for received in self.wire.buffer_updated(nbytes):
            self.received.append(received)
            self.bookie.script(self, received)

    def connection_lost(self, exc: Exception | None) -> None:
        self.bookie.open -= 1

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    def succeed(self, received: ReceivedRequest) -> None:
        """The answer of a healthy bookie."""
        request = received.request
        match request:
            case AddRequest():
                data = self.wire.encode_response(received, AddResponse(Status.OK, request.ledger_id, request.entry_id))
            case ReadRequest():
                response = ReadResponse(Status.OK, request.ledger_id, request.entry_id, b"body")
                data = self.wire.encode_response(received, response)
            case BatchReadRequest():
                batch = BatchReadResponse(Status.OK, request.ledger_id, request.entry_id, (b"one", b"two"))
                data = self.wire.encode_response(received, batch)
            case _:
                data = self.wire.refuse(received, Status.NO_LEDGER)
        self.send(data)


def answer(connection: BookieConnection, received: ReceivedRequest) -> None:
    connection.succeed(received)


def keep_silent(connection: BookieConnection, received: ReceivedRequest) -> None:
    pass


class ScriptedBookie:
    """Listens on a port of its own; ``script`` may be exchanged at any time."""

    def __init__(self, script: Script = answer) -> None:
        self.script = script
        self.max_frame_size = 5 * 1024 * 1024
        self.close_at_once = False
        self.deaf = False
        self.connections: list[BookieConnection] = []
        self.open = 0
        self.address = BookieAddress("127.0.0.1", 0)
        self._server: asyncio.Server | None = None

    @property
    def received(self) -> list[ReceivedRequest]:
        return [received for connection in self.connections for received in connection.received]

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        host, port = self.address.host, self.address.port
        self._server = await loop.create_server(lambda: BookieConnection(self), host, port, reuse_address=True)
        self.address = BookieAddress(host, self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Refuse connections from now on and break those that stand."""
        if self._server is not None:
            self._server.close()
            for connection in self.connections:
                connection.transport.abort()
            await self._server.wait_closed()
            self._server = None
        await until(lambda: self.open == 0)


@asynccontextmanager
async def running(script: Script = answer) -> AsyncIterator[ScriptedBookie]:
    bookie = ScriptedBookie(script)
    await bookie.start()
    try:
        yield bookie
    finally:
        await bookie.stop()


async def until(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Let the loop run until ``condition`` holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - conditions are about many things at once
            await asyncio.sleep(0.001)

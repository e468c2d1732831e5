"""Sockets that are objects: what is written to them is kept, and answers come when, and as, a test says.

What counts the client's instructions uses them, too (:mod:`benchmarks.instructions`).
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

from bkclient.metadata.base import BookieAddress
from bkclient.transport.link import NewConnection
from bkclient.transport.linked import LinkTransport
from bkclient.transport.tcp import TcpConnector, TcpTransport
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.messages import AddRequest, AddResponse, Status
from bkclient.wire.server_connection import ServerConnection


class SocketObject:
    """What a stream takes for its transport."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.is_open = True

    def writelines(self, buffers: list[bytes]) -> None:
        raise NotImplementedError

    def feed(self, data: bytes) -> None:
        """Have the stream receive these bytes."""
        left = memoryview(data)
        while left and self.is_open:
            free = self.stream.get_buffer(-1)
            size = min(len(free), len(left))
            free[:size] = left[:size]
            self.stream.buffer_updated(size)
            left = left[size:]

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            asyncio.get_running_loop().call_soon(self.stream.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return not self.is_open

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, *_: int) -> None: ...

    def get_extra_info(self, name: str) -> Any:
        return self if name == "socket" else None

    def setsockopt(self, *_: int) -> None: ...


class Socket(SocketObject):
    """Keeps what is written, and answers adds when a test says so."""

    def __init__(self, stream: Any, bookie_id: str) -> None:
        super().__init__(stream)
        self.bookie_id = bookie_id
        self.written: list[bytes] = []
        self.wire = ServerConnection()
        self.unanswered: list[ReceivedRequest] = []
        #: Whether the next write ends the connection, before its caller goes on.
        self.breaks_by_a_write = False

    def writelines(self, buffers: list[bytes]) -> None:
        if self.breaks_by_a_write and self.is_open:
            self.is_open = False
            self.stream.connection_lost(None)
            return
        data = b"".join(buffers)
        self.written.append(data)
        self.unanswered += self.wire.receive(data)

    def answer(self, count: int, how: str) -> None:
        """Answer the first ``count`` adds in this way."""
        chosen, self.unanswered = self.unanswered[:count], self.unanswered[count:]
        status = {"busy": Status.TOO_MANY_REQUESTS, "fenced": Status.FENCED}.get(how, Status.OK)
        data = b"".join(
            [self.answer_to(received, status) for received in (chosen[::-1] if how == "last first" else chosen)]
        )
        if how == "cut" and data:
            self.feed(data[:7])
            data = data[7:]
        self.feed(data)

    def answer_to(self, received: ReceivedRequest, status: Status) -> bytes:
        """The frame of an answer to an add."""
        request = received.request
        assert isinstance(request, AddRequest)
        return self.wire.encode_response(received, AddResponse(status, request.ledger_id, request.entry_id))


class Connector(TcpConnector):
    """Connects to objects."""

    def __init__(self, resolve: Any, config: TcpTransportConfig) -> None:
        super().__init__(resolve, config, None)
        #: The last one to each bookie, and all in the order in which they were made.
        self.sockets: dict[str, Socket] = {}
        self.all: list[Socket] = []

    async def connect(self, bookie_id: str, protocol_version: int, new: NewConnection) -> None:
        stream = self.new_stream(bookie_id, protocol_version, new)
        socket = self.sockets[bookie_id] = Socket(stream, bookie_id)
        self.all.append(socket)
        stream.connection_made(cast("asyncio.Transport", socket))


async def resolve(bookie_id: str) -> BookieAddress:
    """An address for each bookie, which nobody connects to."""
    return BookieAddress(bookie_id, 1)


def transport_with(config: TcpTransportConfig, connector: TcpConnector) -> TcpTransport:
    """A transport that connects by this connector."""
    transport = TcpTransport(resolve, config, rng=random.Random(1))
    LinkTransport.__init__(transport, config, connector, rng=random.Random(1))
    transport.txn_ids = connector.txn_ids  # type: ignore[misc]  # those of its own connector
    return transport


def transport_over(config: TcpTransportConfig) -> tuple[TcpTransport, Connector]:
    """A transport whose connections have such sockets, and what makes these."""
    connector = Connector(resolve, config)
    return transport_with(config, connector), connector

"""One connection to a bookie without a client around it: any request of version 3, as many at a time as wanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from bkclient.wire import bookkeeper_pb2 as pb
from bkclient.wire.messages import Request
from tests.bkclient.wire.conversation import content_of

__all__ = ["RawConnection", "Stream", "connected", "status_of", "stream_until_it_is_dead"]

_ANSWER_TIMEOUT_S: Final = 60.0
_BODIES: Final = {
    1: "readResponse",
    2: "addResponse",
    6: "writeLacResponse",
    7: "readLacResponse",
    10: "forceLedgerResponse",
}


def status_of(answer: pb.Response) -> str:
    """The name of what a bookie answered."""
    body: Any = answer
    name = _BODIES.get(answer.header.operation)
    if name is not None and answer.HasField(name):
        body = getattr(answer, name)
    return pb.StatusCode.Name(body.status)


class RawConnection:
    """Requests and their answers, which may come in any order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._txn_id = 0

    def send(self, request: Request) -> int:
        """Send a request and return its transaction id."""
        self._txn_id += 1
        content = content_of(request, 3, self._txn_id)
        self._writer.write(len(content).to_bytes(4, "big") + content)
        return self._txn_id

    async def receive(self) -> pb.Response:
        """The next answer; ``IncompleteReadError`` or ``ConnectionError`` if there is none any more."""
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return pb.Response.FromString(await self._reader.readexactly(size))

    async def ask(self, *requests: Request) -> list[pb.Response]:
        """The answers to some requests, which are sent one right after the other, in the order of the requests."""
        waiting = [self.send(request) for request in requests]
        found: dict[int, pb.Response] = {}
        for _ in waiting:
            answer = await self.receive()
            found[answer.header.txnId] = answer
        return [found[txn_id] for txn_id in waiting]

    async def statuses(self, *requests: Request) -> list[str]:
        """The names of the statuses of the answers."""
        return [status_of(answer) for answer in await self.ask(*requests)]

    def close(self) -> None:
        """Close it, without a word."""
        self._writer.close()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[RawConnection]:
    """A connection to the bookie at ``port`` of this machine."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    connection = RawConnection(reader, writer)
    try:
        yield connection
    finally:
        connection.close()


@dataclass
class Stream:
    """What was sent before the bookie died, and what of it was acknowledged."""

    sent: list[Request] = field(default_factory=list)
    acknowledged: list[Request] = field(default_factory=list)


class Requests(Protocol):
    """What is to be sent, which may depend on what was acknowledged."""

    def __next__(self) -> Request: ...

    def acknowledged(self, request: Request) -> None: ...


async def stream_until_it_is_dead(
    connection: RawConnection, requests: Requests, in_flight: int, kill: Callable[[], None], kill_after: int
) -> Stream:
    """Keep ``in_flight`` requests unanswered, have the bookie killed after some acknowledgements, and go on until it is dead.

    It is killed by another thread while requests go on, so it is in the middle of something.
    """
    stream, waiting = Stream(), dict[int, Request]()
    killing: asyncio.Task[None] | None = None

    def send() -> None:
        request = next(requests)
        stream.sent.append(request)
        waiting[connection.send(request)] = request

    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            while len(waiting) < in_flight:
                send()
            answer = await connection.receive()
            request = waiting.pop(answer.header.txnId)
            if status_of(answer) == "EOK":
                stream.acknowledged.append(request)
                requests.acknowledged(request)
            if killing is None and len(stream.acknowledged) >= kill_after:
                killing = asyncio.create_task(asyncio.to_thread(kill))
    assert killing is not None, "the bookie went away by itself"
    await killing
    return stream

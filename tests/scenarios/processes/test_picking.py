"""A link does to single frames what a plan says, and leaves a stream of whole frames; in both versions of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from types import ModuleType

import pytest

from bkclient.wire import v2, v3
from bkclient.wire.framing import PREFIX_SIZE
from bkclient.wire.messages import ReadRequest, ReadResponse, Status
from bkclient.wire.server_connection import ServerConnection
from scenarios.processes.links import ClientLink
from scenarios.processes.picking import FrameFaults
from simbookie.world.calls import RequestMessage, ResponseMessage
from simbookie.world.faults import Action, Delay, Duplicate, Fate, Interceptions, Match

LEDGER = 7
pytestmark = pytest.mark.parametrize("dialect", [v2, v3], ids=["v2", "v3"])


class Answering:
    """A server that answers every read that it gets, and notes the entries."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.server: asyncio.Server

    @property
    def port(self) -> int:
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = ServerConnection()
        while data := await reader.read(1000):
            for received in wire.receive(data):
                request = received.request
                assert isinstance(request, ReadRequest)
                self.asked.append(request.entry_id)
                body = b"%d" % request.entry_id
                writer.write(
                    wire.encode_response(received, ReadResponse(Status.OK, LEDGER, request.entry_id, body=body))
                )
        writer.close()


class Asking:
    """A client that asks for entries over a link, and what picks its frames."""

    def __init__(self, dialect: ModuleType, server: Answering) -> None:
        self.interceptions: Interceptions[Action] = Interceptions()
        self.server = server
        self.dialect = dialect
        self._link = ClientLink(
            "127.0.1.7", lambda: server.port, Random(1), FrameFaults(self.interceptions, "reader", "bookie-0")
        )

    async def connect(self) -> None:
        await self._link.start()
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._link.port)

    async def aclose(self) -> None:
        self.writer.transport.abort()
        await self._link.aclose()

    def ask(self, *entries: int) -> None:
        """Send a request for each, all at once."""
        frames = [self.dialect.encode_request(ReadRequest(LEDGER, entry), entry).buffers for entry in entries]
        self.writer.write(b"".join(part for frame in frames for part in frame))

    async def answers(self, count: int) -> list[int]:
        """The entries of the next answers, in order."""
        found = []
        for _ in range(count):
            size = int.from_bytes(await self.reader.readexactly(PREFIX_SIZE), "big")
            _, response = self.dialect.decode_response(await self.reader.readexactly(size))
            assert isinstance(response, ReadResponse)
            assert response.body == b"%d" % response.entry_id
            found.append(response.entry_id)
        return found


@pytest.fixture
async def asking(dialect: ModuleType) -> AsyncIterator[Asking]:
    answering = Answering()
    answering.server = await asyncio.start_server(answering.serve, "127.0.0.1", 0)
    made = Asking(dialect, answering)
    await made.connect()
    async with asyncio.timeout(60):
        yield made
    await made.aclose()
    answering.server.close()


def request_for(*entries: int) -> Match:
    def matches(source: str, destination: str, message: object) -> bool:
        return (source, destination) == ("reader", "bookie-0") and _entry(message, RequestMessage) in entries

    return matches


def answer_with(*entries: int) -> Match:
    def matches(source: str, destination: str, message: object) -> bool:
        return (source, destination) == ("bookie-0", "reader") and _entry(message, ResponseMessage) in entries

    return matches


def _entry(message: object, sort: type[RequestMessage | ResponseMessage]) -> int:
    return message.request.entry_id if isinstance(message, sort) and isinstance(message.request, ReadRequest) else -1


async def test_without_faults_everything_passes(asking: Asking) -> None:
    asking.ask(0, 1, 2)
    assert await asking.answers(3) == [0, 1, 2]


async def test_a_request_is_dropped_and_its_connection_is_not(asking: Asking) -> None:
    dropped = asking.interceptions.add(request_for(1), Fate.DROP)
    asking.ask(0, 1, 2)
    assert await asking.answers(2) == [0, 2]
    assert (asking.server.asked, dropped.hits) == ([0, 2], 1)
    dropped.remove()
    asking.ask(1)
    assert await asking.answers(1) == [1]


async def test_an_answer_is_known_by_its_request_which_passed_before_anybody_looked(asking: Asking) -> None:
    asking.ask(0)
    assert await asking.answers(1) == [0]
    asking.interceptions.add(answer_with(1), Fate.DROP)
    asking.ask(1, 2)
    assert await asking.answers(1) == [2]
    assert asking.server.asked == [0, 1, 2]


async def test_what_is_held_arrives_when_it_is_released(asking: Asking) -> None:
    held = asking.interceptions.add(request_for(0, 1), Fate.HOLD, limit=2)
    asking.ask(0, 1, 2)
    assert await asking.answers(1) == [2]
    assert held.held == 2
    held.release()
    assert await asking.answers(2) == [0, 1]


async def test_what_is_late_is_overtaken(asking: Asking) -> None:
    asking.interceptions.add(answer_with(0), Delay(0.01))
    asking.ask(0, 1)
    assert sorted(await asking.answers(2)) == [0, 1]


async def test_what_is_doubled_arrives_as_often_where_answers_name_their_requests(asking: Asking) -> None:
    asking.interceptions.add(request_for(0), Duplicate(2))
    asking.interceptions.add(answer_with(1), Duplicate())
    asking.ask(0, 1)
    asking.writer.write_eof()
    expected = [0, 0, 0, 1, 1] if asking.dialect is v3 else [0, 1]
    assert await asking.answers(len(expected)) == expected
    assert await asking.reader.read() == b""


async def test_the_end_of_a_stream_waits_for_what_is_held(asking: Asking) -> None:
    held = asking.interceptions.add(request_for(0), Fate.HOLD)
    asking.ask(0, 1)
    asking.writer.write_eof()
    assert await asking.answers(1) == [1]
    held.release()
    assert await asking.answers(1) == [0]
    assert await asking.reader.read() == b""

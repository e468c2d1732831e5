"""Many reads sent by one call: what the bookie gets, who hears of what, and what goes the way of any other request."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bkclient.errors import Code
from bkclient.metadata.base import BookieAddress
from bkclient.transport.bulk_reads import LedgerReadSender
from bkclient.transport.reads import EachRead, reads_over
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from bkclient.transport.wrapping import WrappingTransport
from bkclient.wire.connection import FoundBody
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.messages import ReadRequest, ReadResponse, Request, Response, Status
from tests.bkclient.transport.scripted_bookie import BookieConnection, ScriptedBookie, keep_silent, running, until


class Replies:
    """What became of reads, each of which has one outcome; and what came together."""

    def __init__(self) -> None:
        self.found: list[list[FoundBody]] = []
        self.answered: list[tuple[int, int, bytes | None]] = []

    def on_found(self, _bookie_id: str, found: Sequence[FoundBody]) -> None:
        self.found.append(list(found))

    def __call__(self, _bookie_id: str, request: Request, code: int, response: Response | None) -> None:
        assert isinstance(request, ReadRequest)
        body = response.body if isinstance(response, ReadResponse) else None
        self.answered.append((request.entry_id, code, body))

    @property
    def count(self) -> int:
        return sum(map(len, self.found)) + len(self.answered)

    @property
    def good(self) -> list[int]:
        found = [entry_id for bodies in self.found for entry_id, _, _ in bodies]
        return sorted(found + [entry_id for entry_id, code, _ in self.answered if code == Code.OK])


@asynccontextmanager
async def one_bookie(**config: Any) -> AsyncIterator[tuple[ScriptedBookie, TcpTransport]]:
    async with running() as bookie:

        async def resolve(_bookie_id: str) -> BookieAddress:
            return bookie.address

        transport = TcpTransport(resolve, TcpTransportConfig(**config), rng=random.Random(7))
        try:
            yield bookie, transport
        finally:
            await transport.aclose()
            transport.check()


async def read(transport: TcpTransport, entry_ids: Sequence[int]) -> Replies:
    """What became of reads of ledger 1."""
    heard = Replies()
    reads_over(transport, 1).send("b0", entry_ids, heard)
    assert heard.count == 0, "nobody is told of anything while it is sent"
    await until(lambda: heard.count == len(entry_ids))
    return heard


@pytest.mark.parametrize("version", [2, 3])
async def test_every_read_has_its_answer_with_and_without_a_connection(version: int) -> None:
    async with one_bookie(protocol_version=version) as (bookie, transport):
        heard = await read(transport, range(5))
        assert sorted(heard.answered) == [(entry_id, Code.OK, b"body") for entry_id in range(5)]
        heard = await read(transport, range(5, 40))
        assert heard.good == list(range(5, 40))
        assert heard.found
        requests = [received.request for received in bookie.received]
        ids = [(each.ledger_id, each.entry_id) for each in requests if isinstance(each, ReadRequest)]
        assert ids == [(1, entry_id) for entry_id in range(40)]
        assert len({received.txn_id for received in bookie.received}) == (40 if version == 3 else 1)


async def test_in_version_2_a_read_whose_key_is_in_use_goes_over_another_connection() -> None:
    async with one_bookie(protocol_version=2) as (bookie, transport):
        await read(transport, [0])
        held: list[tuple[BookieConnection, ReceivedRequest]] = []
        bookie.script = lambda connection, received: held.append((connection, received))
        one, other = Replies(), Replies()
        sender = reads_over(transport, 1)
        sender.send("b0", [1, 2], one)
        sender.send("b0", [3, 2, 4], other)
        await until(lambda: len(held) == 5)
        assert len({id(connection) for connection, _ in held}) == 2
        for connection, received in held:
            assert isinstance(received.request, ReadRequest)
            response = ReadResponse(Status.OK, 1, received.request.entry_id, b"body")
            connection.send(connection.wire.encode_response(received, response))
        await until(lambda: one.count + other.count == 5)
        assert (one.good, other.good) == ([1, 2], [2, 3, 4])


async def test_answers_that_come_together_are_told_together_and_others_on_their_own() -> None:
    async with one_bookie() as (bookie, transport):
        await read(transport, [0])
        held: list[tuple[BookieConnection, ReceivedRequest]] = []
        bookie.script = lambda connection, received: held.append((connection, received))
        one, other = Replies(), Replies()
        sender = reads_over(transport, 1)
        assert isinstance(sender, LedgerReadSender)
        sender.send("b0", range(1, 6), one)
        sender.send("b0", [6, 7], other)
        await until(lambda: len(held) == 7)
        answers = [
            connection.wire.encode_response(
                received,
                ReadResponse(Status.NO_ENTRY, 1, entry_id) if entry_id == 4 else body_of(entry_id),
            )
            for entry_id, (connection, received) in enumerate(held, 1)
        ]
        order = [2, 1, 6, 3, 4, 7, 5]
        held[0][0].send(b"".join(answers[entry_id - 1] for entry_id in order))
        await until(lambda: one.count + other.count == 7)
        assert one.found == [[(2, b"entry 2", 1), (1, b"entry 1", 0)], [(3, b"entry 3", 2)]]
        assert other.found == [[(6, b"entry 6", 5)]]
        assert one.answered == [(4, Code.NO_SUCH_ENTRY, None), (5, Code.OK, b"entry 5")]
        assert other.answered == [(7, Code.OK, b"entry 7")]


def body_of(entry_id: int) -> ReadResponse:
    return ReadResponse(Status.OK, 1, entry_id, b"entry %d" % entry_id, entry_id - 1)


@pytest.mark.parametrize("size", [1, 4_000, 70_000, 300_000])
async def test_entries_of_any_size_arrive(size: int) -> None:
    async with one_bookie() as (bookie, transport):
        await read(transport, [0])

        def send(connection: BookieConnection, received: ReceivedRequest) -> None:
            assert isinstance(received.request, ReadRequest)
            entry_id = received.request.entry_id
            response = ReadResponse(Status.OK, 1, entry_id, bytes([entry_id]) * size, 0)
            connection.send(connection.wire.encode_response(received, response))

        bookie.script = send
        heard = await read(transport, range(1, 9))
        bodies = {entry_id: body for bodies in heard.found for entry_id, body, _ in bodies}
        bodies |= {entry_id: body for entry_id, _, body in heard.answered if body is not None}
        assert bodies == {entry_id: bytes([entry_id]) * size for entry_id in range(1, 9)}


async def test_what_a_full_connection_does_not_take_fails_as_any_other_request() -> None:
    async with one_bookie(max_outstanding_requests=4) as (bookie, transport):
        await read(transport, [0])
        bookie.script = keep_silent
        heard = Replies()
        reads_over(transport, 1).send("b0", range(1, 8), heard)
        await until(lambda: heard.count == 3)
        assert heard.answered == [(entry_id, Code.TOO_MANY_REQUESTS, None) for entry_id in (5, 6, 7)]
        assert transport.pending_requests("b0") == 4


async def test_a_bookie_that_does_not_answer_in_time_and_one_that_goes_are_told_of_once_for_each_read() -> None:
    async with one_bookie(read_timeout_s=0.05) as (bookie, transport):
        await read(transport, [0])
        bookie.script = keep_silent
        heard = await read(transport, [1, 2])
        assert heard.answered == [(1, Code.TIMEOUT, None), (2, Code.TIMEOUT, None)]
    async with one_bookie() as (bookie, transport):
        await read(transport, [0])
        bookie.script = keep_silent
        lost, closed = Replies(), Replies()
        reads_over(transport, 1).send("b0", [1, 2], lost)
        await until(lambda: len(bookie.received) == 3)
        await bookie.stop()
        await until(lambda: lost.count == 2)
        assert {code for _, code, _ in lost.answered} == {Code.BOOKIE_NOT_AVAILABLE}
        await bookie.start()
        bookie.script = keep_silent
        reads_over(transport, 1).send("b0", [1], closed)
        await transport.aclose()
        await until(lambda: closed.count == 1)
        assert closed.answered[0][1] in {Code.CLIENT_CLOSED, Code.BOOKIE_NOT_AVAILABLE}


async def test_a_reader_that_raises_costs_nobody_else_their_outcome() -> None:
    class Raising(Replies):
        def on_found(self, _bookie_id: str, found: Sequence[FoundBody]) -> None:
            raise ZeroDivisionError

    async with one_bookie() as (_, transport):
        await read(transport, [0])
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        reads_over(transport, 1).send("b0", [1], Raising())
        assert (await read(transport, [2, 3])).good == [2, 3]
        assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]


async def test_what_stands_around_a_transport_sees_every_read() -> None:
    class Watching(WrappingTransport):
        def __init__(self, inner: TcpTransport) -> None:
            super().__init__(inner)
            self.seen: list[int] = []

        def submit(self, bookie_id: str, request: Request, reply_to: Any) -> None:
            assert isinstance(request, ReadRequest)
            self.seen.append(request.entry_id)
            super().submit(bookie_id, request, reply_to)

    async with one_bookie() as (_, transport):
        watching = Watching(transport)
        heard = Replies()
        sender = reads_over(watching, 1)
        assert type(sender) is EachRead
        sender.send("b0", range(3), heard)
        await until(lambda: heard.count == 3)
        assert (watching.seen, heard.good) == ([0, 1, 2], [0, 1, 2])

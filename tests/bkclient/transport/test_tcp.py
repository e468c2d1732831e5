"""Requests over TCP against a scripted bookie: answers, routes, batching, limits, closing."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from bkclient.errors import ArgumentError, Code
from bkclient.ledger import DigestType
from bkclient.metadata.base import BookieAddress
from bkclient.transport.adds import adds_over
from bkclient.transport.base import BookieTransport
from bkclient.transport.link import _Lane
from bkclient.transport.tcp import TcpConnector, TcpTransport, TcpTransportConfig
from bkclient.wire.entry import EntryCodec
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.messages import (
    AddRequest,
    AddTemplate,
    AuthMessage,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    EntryListRequest,
    ErrorResponse,
    ForceLedgerRequest,
    LongPoll,
    ReadLacRequest,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    StartTlsRequest,
    Status,
    WriteLacRequest,
)
from tests.bkclient.inside import link_of
from tests.bkclient.transport.scripted_bookie import BookieConnection, ScriptedBookie, keep_silent, running, until

CODEC = EntryCodec(1, DigestType.CRC32C, b"")
KEY = CODEC.master_key


def add(entry_id: int, payload: bytes = b"payload", write_flags: int = 0) -> AddRequest:
    header = CODEC.encode_header(entry_id, entry_id - 1, 0, payload)
    return AddRequest(1, entry_id, KEY, header, payload, write_flags=write_flags)


class Outcomes:
    """Collects what reply handlers are told, each of which has to be about its own request, later, and once."""

    def __init__(self, transport: BookieTransport) -> None:
        self.transport = transport
        self.all: list[tuple[str, Request, int, Response | None]] = []
        self._is_submitting = False
        self._submitted = 0
        self._without_outcome: dict[int, tuple[str, Request]] = {}
        #: What handlers were told that they must not be.
        self._wrong: list[object] = []

    def submit(self, request: Request, bookie_id: str = "b") -> None:
        number = self._submitted
        self._submitted += 1
        self._without_outcome[number] = (bookie_id, request)
        self._is_submitting = True
        self.transport.submit(bookie_id, request, partial(self._on_reply, number))
        self._is_submitting = False

    def _on_reply(self, number: int, bookie_id: str, request: Request, code: int, response: Response | None) -> None:
        # Not by assertions: what a handler raises is the event loop's.
        submitted = self._without_outcome.pop(number, None)
        if self._is_submitting or submitted is None or submitted[0] != bookie_id or submitted[1] is not request:
            self._wrong.append((submitted, bookie_id, request, code, self._is_submitting))
        self.all.append((bookie_id, request, code, response))

    async def aclose(self) -> None:
        """Close the transport, by which every request has had its outcome."""
        await self.transport.aclose()
        assert self._wrong == []
        assert self._without_outcome == {}

    @property
    def codes(self) -> list[int]:
        return [code for _, _, code, _ in self.all]

    async def wait(self, count: int = 1) -> list[int]:
        await until(lambda: len(self.all) >= count)
        assert self._wrong == []
        assert len(self.all) == count
        return self.codes


@asynccontextmanager
async def transport_to(*bookies: ScriptedBookie, **config: Any) -> AsyncIterator[Outcomes]:
    """A transport that knows ``bookies`` as b, b1, b2, ..."""
    addresses = {("b" if index == 0 else f"b{index}"): bookie for index, bookie in enumerate(bookies)}

    async def resolve(bookie_id: str) -> BookieAddress:
        return addresses[bookie_id].address

    transport = TcpTransport(resolve, TcpTransportConfig(**config), rng=random.Random(7))
    outcomes = Outcomes(transport)
    try:
        yield outcomes
    finally:
        await outcomes.aclose()


@pytest.mark.parametrize("version", [2, 3])
async def test_adds_and_reads_are_answered(version: int) -> None:
    async with running() as bookie, transport_to(bookie, protocol_version=version) as outcomes:
        for entry_id in range(100):
            outcomes.submit(add(entry_id))
        outcomes.submit(ReadRequest(1, 3))
        await outcomes.wait(101)
        *added, (bookie_id, request, code, response) = outcomes.all
        assert [(request.entry_id, code, response) for _, request, code, response in added] == [  # type: ignore[union-attr]
            (entry_id, Code.OK, None) for entry_id in range(100)
        ]
        assert (bookie_id, code) == ("b", Code.OK)
        assert isinstance(request, ReadRequest)
        assert response == ReadResponse(Status.OK, 1, 3, b"body")
        assert len(bookie.connections) == 1
        assert {received.protocol_version for received in bookie.received} == {version}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (Status.NO_ENTRY, Code.NO_SUCH_ENTRY),
        (Status.NO_LEDGER, Code.NO_SUCH_LEDGER_ON_BOOKIE),
        (Status.FENCED, Code.LEDGER_FENCED),
        (Status.UNAUTHORIZED, Code.UNAUTHORIZED),
        (Status.READ_ONLY, Code.WRITE_ON_READ_ONLY_BOOKIE),
        (Status.TOO_MANY_REQUESTS, Code.TOO_MANY_REQUESTS),
        (Status.BAD_VERSION, Code.PROTOCOL_VERSION),
        (Status.UNKNOWN_LEDGER_STATE, Code.DATA_UNKNOWN),
    ],
)
@pytest.mark.rule("ERR-1")
async def test_statuses_arrive_as_codes(status: Status, code: Code) -> None:
    def refuse(connection: BookieConnection, received: ReceivedRequest) -> None:
        connection.send(connection.wire.refuse(received, status))

    async with running(refuse) as bookie, transport_to(bookie) as outcomes:
        outcomes.submit(ReadRequest(1, 0))
        outcomes.submit(add(0))
        assert await outcomes.wait(2) == [code, code]
        # A foreign version is refused with the message of the operation, everything else without one.
        first = ReadResponse if status is Status.BAD_VERSION else ErrorResponse
        assert [type(response) for *_, response in outcomes.all] == [first, type(None)]


async def test_connections_are_numbered_together_as_they_are_established() -> None:
    """A number is there before the first answer over its connection, and a new connection has a greater one (W-60)."""
    async with running() as bookie, running() as other, transport_to(bookie, other) as outcomes:
        connections = outcomes.transport.connections
        assert dict(connections) == {}
        seen: list[dict[str, int]] = []
        outcomes.transport.submit("b", add(0), lambda *_: seen.append(dict(connections)))
        assert dict(connections) == {}, "asked for is not established"
        await until(lambda: bool(seen))
        assert seen == [{"b": 1}]
        outcomes.submit(add(1))
        outcomes.submit(add(2), "b1")
        await outcomes.wait(2)
        assert dict(connections) == {"b": 1, "b1": 2}

        bookie.connections[0].transport.abort()
        await until(lambda: outcomes.transport.pending_requests("b") == 0)
        assert dict(connections) == {"b": 1, "b1": 2}, "a number is not taken back"
        while outcomes.codes[-1] != Code.OK or connections["b"] == 1:
            outcomes.submit(add(3))
            await outcomes.wait(len(outcomes.all) + 1)

        assert dict(connections) == {"b": 3, "b1": 2}
        assert outcomes.transport.connections is connections


async def test_each_connection_to_a_bookie_has_a_number_of_its_own() -> None:
    async with running() as bookie, transport_to(bookie, protocol_version=2, channels_per_bookie=2) as outcomes:
        outcomes.submit(ReadRequest(1, 0))
        await outcomes.wait(1)
        first = outcomes.transport.connections["b"]
        outcomes.submit(ReadRequest(2, 0))
        await outcomes.wait(2)
        second = outcomes.transport.connections["b"]
        outcomes.submit(ReadLacRequest(1))
        await outcomes.wait(3)

        assert first < second < outcomes.transport.connections["b"]


@pytest.mark.parametrize("channels", [1, 3])
async def test_a_bookie_that_closes_over_a_batch_read_fails_nothing_else(channels: int) -> None:
    """Bookies before BookKeeper 4.17 do, who do not know the operation."""

    def script(connection: BookieConnection, received: ReceivedRequest) -> None:
        if isinstance(received.request, BatchReadRequest):
            connection.transport.abort()
        elif isinstance(received.request, AddRequest):
            held.append((connection, received))

    held: list[tuple[BookieConnection, ReceivedRequest]] = []
    options = {"protocol_version": 2, "channels_per_bookie": channels}
    async with running(script) as bookie, transport_to(bookie, **options) as outcomes:
        for ledger_id in range(channels):
            header = EntryCodec(ledger_id, DigestType.CRC32C, b"").encode_header(0, -1, 0, b"x")
            outcomes.submit(AddRequest(ledger_id, 0, KEY, header, b"x"))
            outcomes.submit(BatchReadRequest(ledger_id, 0, 5, 1000))
        assert await outcomes.wait(channels) == [Code.BOOKIE_NOT_AVAILABLE] * channels
        assert outcomes.transport.pending_requests("b") == channels
        await until(lambda: len(held) == channels)
        for connection, received in held:
            connection.succeed(received)
        assert (await outcomes.wait(2 * channels))[channels:] == [Code.OK] * channels


@pytest.mark.rule("W-60")
@pytest.mark.parametrize("operation", ["read", "add", "add in bulk"])
async def test_an_answer_is_handed_over_under_the_number_of_its_own_connection(operation: str) -> None:
    """An older connection goes on to the process that it was established to, however many are newer."""
    seen: list[tuple[str, int]] = []

    class Replies:
        def on_adds_stored(self, bookie_id: str, entry_ids: Sequence[int]) -> None:
            seen.append((bookie_id, outcomes.transport.connections[bookie_id]))
            assert list(entry_ids) == [0]

        def on_add_failed(self, *_: object) -> None:
            raise AssertionError("the bookie stores everything")

    async with running() as bookie, transport_to(bookie, protocol_version=2) as outcomes:
        outcomes.submit(ReadRequest(1, 0))
        await outcomes.wait(1)
        outcomes.submit(ReadLacRequest(1))  # which version 2 does not have
        await outcomes.wait(2)
        assert dict(outcomes.transport.connections) == {"b": 2}

        def on_reply(bookie_id: str, *_: object) -> None:
            seen.append((bookie_id, outcomes.transport.connections[bookie_id]))

        if operation == "add in bulk":
            template = AddTemplate(ledger_id=1, master_key=KEY)
            header = CODEC.encode_header(0, -1, 0, b"payload")
            adds_over(outcomes.transport, template, Replies()).send(("b",), 0, header, b"payload")
        else:
            outcomes.transport.submit("b", add(0) if operation == "add" else ReadRequest(1, 1), on_reply)
        await until(lambda: bool(seen))
        assert seen == [("b", 1)]
        assert len(bookie.connections) == 2


@pytest.mark.rule("R-17")
async def test_statuses_without_a_code_mean_the_general_failure_of_the_operation() -> None:
    def refuse(connection: BookieConnection, received: ReceivedRequest) -> None:
        connection.send(connection.wire.refuse(received, Status.IO_ERROR))

    async with running(refuse) as bookie, transport_to(bookie) as outcomes:
        for request in (add(0), ReadRequest(1, 0), WriteLacRequest(1, 0, KEY, b""), ReadLacRequest(1)):
            outcomes.submit(request)
        assert await outcomes.wait(4) == [Code.WRITE, Code.READ, Code.WRITE, Code.READ]


async def test_with_version_2_what_it_lacks_goes_over_a_version_3_connection() -> None:
    async with running() as bookie, transport_to(bookie, protocol_version=2) as outcomes:
        outcomes.submit(add(0))
        await outcomes.wait(1)
        outcomes.submit(BatchReadRequest(1, 0, 2, 1000))
        await outcomes.wait(2)
        assert len(bookie.connections) == 2, "batch reads have one of their own"
        for request in (WriteLacRequest(1, 0, KEY, b""), ReadLacRequest(1), BookieInfoRequest(3), EntryListRequest(1)):
            outcomes.submit(request)
        await outcomes.wait(6)
        assert len(bookie.connections) == 3
        assert [received.protocol_version for received in bookie.received] == [2, 2, 3, 3, 3, 3]
        assert outcomes.all[1][3] == BatchReadResponse(Status.OK, 1, 0, (b"one", b"two"))


@pytest.mark.behaviour("T-47")
@pytest.mark.parametrize(
    ("version", "request_"),
    [
        (2, ForceLedgerRequest(1)),
        (2, add(0, write_flags=1)),
        (2, ReadRequest(1, 0, long_poll=LongPoll(0))),
        (2, StartTlsRequest()),
        (3, BatchReadRequest(1, 0, 1, 1)),
        (3, StartTlsRequest()),
        (3, ReadRequest(1, 0, fence_key=KEY, long_poll=LongPoll(0))),
    ],
)
async def test_what_a_version_cannot_do_is_an_illegal_operation(version: int, request_: Request) -> None:
    async with running() as bookie, transport_to(bookie, protocol_version=version) as outcomes:
        outcomes.submit(request_)
        assert await outcomes.wait() == [Code.ILLEGAL_OPERATION]
        assert bookie.received == []
        outcomes.submit(ReadRequest(1, 0))
        assert (await outcomes.wait(2))[1] == Code.OK


async def test_an_auth_message_can_be_exchanged() -> None:
    def disabled(connection: BookieConnection, received: ReceivedRequest) -> None:
        connection.send(connection.wire.encode_response(received, AuthMessage("AuthDisabledPlugin")))

    for version in (2, 3):
        async with running(disabled) as bookie, transport_to(bookie, protocol_version=version) as outcomes:
            outcomes.submit(AuthMessage("some.Plugin"))
            assert await outcomes.wait() == [Code.OK]


async def test_a_request_over_the_frame_limit_is_refused_before_it_costs_the_connection() -> None:
    async with running() as bookie, transport_to(bookie, max_frame_size_bytes=2000) as outcomes:
        bookie.max_frame_size = 2000
        outcomes.submit(add(0, bytes(2000)))
        outcomes.submit(add(1, bytes(1800)))
        await outcomes.wait(2)
        assert sorted(outcomes.codes) == [Code.ILLEGAL_OPERATION, Code.OK]
        assert bookie.open == 1


class WriteCounter:
    """Counts the calls by which frames leave, at the seam between our code and the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        original = asyncio.selector_events._SelectorSocketTransport.writelines  # type: ignore[attr-defined]

        def writelines(transport: object, buffers: list[bytes]) -> None:
            self.sizes.append(len(buffers))
            original(transport, buffers)

        monkeypatch.setattr(asyncio.selector_events._SelectorSocketTransport, "writelines", writelines)  # type: ignore[attr-defined]


async def test_frames_of_one_turn_of_the_loop_leave_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as bookie, transport_to(bookie) as outcomes:
        outcomes.submit(add(0))
        await outcomes.wait(1)
        counter = WriteCounter(monkeypatch)
        for entry_id in range(1, 11):
            outcomes.submit(add(entry_id))
        assert counter.sizes == [], "nothing is written from within submit"
        await outcomes.wait(11)
        assert counter.sizes == [20], "ten adds of a head and a payload"


async def test_a_handler_may_submit_again() -> None:
    async with running() as bookie, transport_to(bookie) as outcomes:
        transport = outcomes.transport
        done = asyncio.Event()

        def on_reply(bookie_id: str, request: Request, code: int, response: Response | None) -> None:
            assert code == Code.OK
            assert isinstance(request, AddRequest)
            if request.entry_id < 20:
                transport.submit("b", add(request.entry_id + 1), on_reply)
            else:
                done.set()

        transport.submit("b", add(0), on_reply)
        async with asyncio.timeout(5):
            await done.wait()
        assert len(bookie.received) == 21


async def test_a_handler_that_raises_is_reported_and_costs_nobody_else_the_outcome() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))

    def broken(bookie_id: str, request: Request, code: int, response: Response | None) -> None:
        raise RuntimeError("defect of a caller")

    async with running() as bookie, transport_to(bookie, read_timeout_s=0.2, add_timeout_s=0.2) as outcomes:
        outcomes.submit(add(0))
        outcomes.transport.submit("b", add(1), broken)
        outcomes.submit(add(2))
        assert await outcomes.wait(2) == [Code.OK, Code.OK]
        bookie.script = keep_silent
        outcomes.transport.submit("b", add(3), broken)
        outcomes.submit(add(4))
        outcomes.transport.submit("b", StartTlsRequest(), broken)
        await outcomes.wait(3)
        assert outcomes.codes[2] == Code.TIMEOUT
    assert [str(context["exception"]) for context in reported] == ["defect of a caller"] * 3
    assert all(re.match("the reply handler .*broken.* raised", context["message"]) for context in reported)


@pytest.mark.parametrize("limit", [{"max_outstanding_requests": 3}, {"max_outstanding_bytes": 3 * 1000}])
async def test_outstanding_requests_and_bytes_per_bookie_are_bounded(limit: dict[str, int]) -> None:
    held: list[tuple[BookieConnection, ReceivedRequest]] = []

    def hold(connection: BookieConnection, received: ReceivedRequest) -> None:
        held.append((connection, received))

    async with running(hold) as bookie, running() as other, transport_to(bookie, other, **limit) as outcomes:
        payload = bytes(1000 if "max_outstanding_bytes" in limit else 10)
        for entry_id in range(5):  # while connecting
            outcomes.submit(add(entry_id, payload))
        assert await outcomes.wait(2) == [Code.TOO_MANY_REQUESTS] * 2
        await until(lambda: len(held) == 3)
        for entry_id in range(5, 7):  # while connected
            outcomes.submit(add(entry_id, payload))
        assert await outcomes.wait(4) == [Code.TOO_MANY_REQUESTS] * 4
        outcomes.submit(add(7, payload), "b1")
        await outcomes.wait(5)
        assert outcomes.codes[-1] == Code.OK, "another bookie has a bound of its own"
        connection, received = held[0]
        connection.succeed(received)
        await outcomes.wait(6)
        outcomes.submit(add(8, payload))
        await until(lambda: len(held) == 4)


async def test_what_a_bookie_does_not_take_from_its_socket_is_bounded_too() -> None:
    config = {"max_outstanding_bytes": 2_000_000, "add_timeout_s": 0.02}
    async with running() as bookie, transport_to(bookie, **config) as outcomes:
        bookie.deaf = True
        # One after the other, so that each starts with nothing outstanding; the kernel's own buffers take some megabytes.
        for entry_id in range(100):
            outcomes.submit(add(entry_id, bytes(1_000_000)))
            await outcomes.wait(entry_id + 1)
            if outcomes.codes[-1] == Code.TOO_MANY_REQUESTS:
                break
        assert outcomes.codes[-1] == Code.TOO_MANY_REQUESTS
        assert set(outcomes.codes[:-1]) == {Code.TIMEOUT}
        bookie.connections[0].transport.resume_reading()
        await until(lambda: len(bookie.received) == len(outcomes.codes) - 1)
        outcomes.submit(ReadRequest(1, 0))
        await outcomes.wait(len(outcomes.codes) + 1)
        assert outcomes.codes[-1] == Code.OK


async def test_closing_ends_everything_with_client_closed_and_may_be_repeated() -> None:
    async with running(keep_silent) as bookie, transport_to(bookie) as outcomes:
        outcomes.submit(add(0))
        await until(lambda: len(bookie.received) == 1)
        outcomes.submit(add(1))
        await outcomes.transport.aclose()
        assert outcomes.codes == [Code.CLIENT_CLOSED] * 2
        outcomes.submit(add(2))
        assert await outcomes.wait(3) == [Code.CLIENT_CLOSED] * 3
        await outcomes.transport.aclose()
        await until(lambda: bookie.open == 0)
        assert len(bookie.connections) == 1


async def test_closing_while_connecting_leaves_no_task() -> None:
    never = asyncio.Event()

    async def resolve(bookie_id: str) -> BookieAddress:
        await never.wait()
        raise AssertionError

    before = asyncio.all_tasks()
    transport = TcpTransport(resolve, rng=random.Random(1))
    outcomes = Outcomes(transport)
    outcomes.submit(add(0))
    outcomes.submit(add(1), "other")
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == len(before) + 2
    async with asyncio.timeout(5):
        await transport.aclose()
    assert outcomes.codes == [Code.CLIENT_CLOSED] * 2
    assert asyncio.all_tasks() == before


async def test_a_connection_made_after_closing_is_given_up() -> None:
    transport = TcpTransport(AsyncMock(), rng=random.Random(1))
    outcomes = Outcomes(transport)
    outcomes.submit(add(0))
    link = link_of(transport, "b")
    await transport.aclose()
    connector, late = TcpConnector(AsyncMock(), TcpTransportConfig(), None), Mock(spec=asyncio.Transport)
    stream = connector.new_stream("b", 3, _Lane(link).new_connection())
    stream.connection_made(late)
    late.abort.assert_called_once_with()
    stream.connection_lost(None)
    assert outcomes.codes == [Code.CLIENT_CLOSED]


async def test_closing_waits_until_the_sockets_are_closed() -> None:
    async with running() as bookie, transport_to(bookie) as outcomes:
        outcomes.submit(add(0))
        await outcomes.wait()
        assert isinstance(outcomes.transport, TcpTransport)
        order: list[str] = []
        (end,) = link_of(outcomes.transport, "b")._ends.values()
        end.add_done_callback(lambda _: order.append("socket closed"))
        await outcomes.transport.aclose()
        order.append("aclose returned")
        assert order == ["socket closed", "aclose returned"]


async def test_there_is_one_timer_per_connection_however_many_requests_and_none_after_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(keep_silent) as bookie, transport_to(bookie) as outcomes:
        outcomes.submit(add(0))
        await until(lambda: len(bookie.received) == 1)
        loop = asyncio.get_running_loop()
        timers = [timer for timer in timers_of(loop) if not timer.cancelled()]
        for entry_id in range(1, 5):
            outcomes.submit(add(entry_id))
            await until(lambda: len(bookie.received) == entry_id + 1)  # noqa: B023 - awaited here
        assert [timer for timer in timers_of(loop) if not timer.cancelled()] == timers
        assert len(timers) == 1
        await outcomes.transport.aclose()
        assert timers[0].cancelled()


def timers_of(loop: asyncio.AbstractEventLoop) -> list[asyncio.TimerHandle]:
    """The timers that belong to streams, not those of the tests' own sleeping."""
    scheduled: list[asyncio.TimerHandle] = loop._scheduled  # type: ignore[attr-defined]
    return [timer for timer in scheduled if "Stream." in repr(timer)]


async def test_closing_before_the_connection_attempt_began_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    async with running() as bookie, transport_to(bookie) as outcomes:
        outcomes.submit(add(0))
        await outcomes.transport.aclose()
        assert outcomes.codes == [Code.CLIENT_CLOSED]
        assert asyncio.all_tasks() == before


async def test_an_outcome_that_was_due_when_the_transport_closes_is_not_lost() -> None:
    async with running() as bookie, transport_to(bookie) as outcomes:
        outcomes.submit(StartTlsRequest())
        await outcomes.transport.aclose()
        assert outcomes.codes == [Code.ILLEGAL_OPERATION]


async def test_large_entries_travel_both_ways() -> None:
    def echo(connection: BookieConnection, received: ReceivedRequest) -> None:
        assert isinstance(received.request, ReadRequest)
        response = ReadResponse(Status.OK, 1, received.request.entry_id, bytes(3_000_000))
        connection.send(connection.wire.encode_response(received, response))

    async with running() as bookie, transport_to(bookie) as outcomes:
        outcomes.submit(add(0, bytes(4_000_000)))
        assert await outcomes.wait() == [Code.OK]
        bookie.script = echo
        for entry_id in range(3):
            outcomes.submit(ReadRequest(1, entry_id))
        await outcomes.wait(4)
        assert [len(response.body or b"") for *_, response in outcomes.all[1:]] == [3_000_000] * 3  # type: ignore[union-attr]


@pytest.mark.parametrize("version", [2, 3])
def test_it_runs_on_uvloop_too(version: int) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def exchange() -> None:
        async with running() as bookie, transport_to(bookie, protocol_version=version) as outcomes:
            for entry_id in range(50):
                outcomes.submit(add(entry_id, bytes(50_000)))
            outcomes.submit(ReadRequest(1, 0))
            assert await outcomes.wait(51) == [Code.OK] * 51
            bookie.script = keep_silent
            outcomes.submit(add(50))
            await until(lambda: len(bookie.received) == 52)
            await outcomes.transport.aclose()
            assert outcomes.codes[-1] == Code.CLIENT_CLOSED

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(exchange())


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocol_version": 1},
        {"add_timeout_s": 0},
        {"read_timeout_s": -1.0},
        {"connect_timeout_s": float("nan")},
        {"max_outstanding_requests": 0},
        {"max_outstanding_bytes": 0},
        {"max_frame_size_bytes": 100},
        {"backoff_initial_s": 0.0},
        {"backoff_initial_s": 2.0, "backoff_max_s": 1.0},
    ],
)
def test_configurations_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong)).split("_", maxsplit=1)[0]):
        TcpTransportConfig(**wrong)

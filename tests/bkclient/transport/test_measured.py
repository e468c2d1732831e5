"""What a measured transport reports: every request once, with its outcome, under the name it goes by."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from bkclient.errors import Code
from bkclient.observability import stats
from bkclient.observability.memory_stats import MemoryStats
from bkclient.transport.adds import AddSender, EachReplica, adds_over
from bkclient.transport.base import BookieTransport, ReplyHandler
from bkclient.transport.measured import MeasuredTransport
from bkclient.wire.messages import (
    AddRequest,
    AddTemplate,
    AuthMessage,
    BatchReadRequest,
    BookieInfoRequest,
    EntryListRequest,
    ErrorResponse,
    ForceLedgerRequest,
    Operation,
    ReadLacRequest,
    ReadRequest,
    Request,
    Response,
    StartTlsRequest,
    Status,
    WriteLacRequest,
)


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


RESPONSE = ErrorResponse(Operation.ADD_ENTRY, Status.OK)


class HeldTransport:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.connections = {"b": 3}
        self.held: list[tuple[str, Request, ReplyHandler]] = []
        self.is_closed = False

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        self.held.append((bookie_id, request, reply_to))

    def answer(self, code: int) -> None:
        bookie_id, request, reply_to = self.held.pop(0)
        reply_to(bookie_id, request, code, RESPONSE)

    def pending_requests(self, bookie_id: str) -> int:
        return len(self.held) if bookie_id == "b" else 7

    def is_writable(self, bookie_id: str) -> bool:
        return bookie_id == "b"

    async def aclose(self) -> None:
        self.is_closed = True


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.stats = MemoryStats(clock=self.clock)
        self.inner = HeldTransport()
        self.transport: BookieTransport = MeasuredTransport(self.inner, self.stats)
        self.codes: list[int] = []

    def submit(self, request: Request) -> None:
        def on_reply(bookie_id: str, answered: Request, code: int, response: Response | None) -> None:
            assert (bookie_id, answered, response) == ("b", request, RESPONSE)
            self.codes.append(code)

        self.transport.submit("b", request, on_reply)
        assert self.inner.held[-1][:2] == ("b", request)


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (AddRequest(1, 0, b"", b"", b""), "ADD_ENTRY"),
        (ReadRequest(1, 0), "READ_ENTRY"),
        (BatchReadRequest(1, 0, 5, 1000), "READ_ENTRY"),
        (ReadLacRequest(1), "READ_LAC"),
        (WriteLacRequest(1, 0, b"", b""), "WRITE_LAC"),
        (ForceLedgerRequest(1), "FORCE"),
        (BookieInfoRequest(1), "GET_BOOKIE_INFO"),
        (EntryListRequest(1), "GET_LIST_OF_ENTRIES_OF_LEDGER"),
    ],
)
def test_a_request_is_measured_from_its_submission_to_its_outcome(request_: Request, name: str) -> None:
    world = World()
    for code, seconds in ((Code.OK, 0.25), (Code.TIMEOUT, 5.0)):
        world.submit(request_)
        world.clock.time += seconds
        world.inner.answer(code)
    ended = world.stats.operations_of(stats.REQUESTS[name][0], "b")
    assert (ended.succeeded.sum_ms, ended.failed.sum_ms) == (250.0, 5000.0)
    timed_out = world.stats.operations_of(stats.REQUESTS[name][1], "b")
    assert (timed_out.succeeded.count, timed_out.failed.count) == (1, 0)
    assert world.codes == [Code.OK, Code.TIMEOUT]


class Replies:
    def __init__(self) -> None:
        self.heard: list[tuple[str, int, int]] = []

    def on_adds_stored(self, bookie_id: str, entry_ids: Sequence[int]) -> None:
        self.heard += [(bookie_id, entry_id, Code.OK) for entry_id in entry_ids]

    def on_add_failed(self, bookie_id: str, entry_id: int, code: int) -> None:
        self.heard.append((bookie_id, entry_id, code))


TEMPLATE = AddTemplate(ledger_id=1, master_key=b"m" * 20)


@pytest.mark.parametrize("sender", [EachReplica, adds_over], ids=["for each replica", "at once"])
def test_adds_are_measured_however_they_are_sent(sender: Callable[..., AddSender]) -> None:
    world, replies = World(), Replies()
    adds = sender(world.transport, TEMPLATE, replies)
    adds.send(("b", "c", "b"), 0, b"h", b"p")  # a bookie that is named twice gets it twice
    world.clock.time += 0.25
    adds.send(("b", "c"), 1, b"h", b"p")
    outstanding = {b: world.stats.level_of(stats.OUTSTANDING_ADDS, b) for b in "bc"}
    assert outstanding == {"b": 3, "c": 2}
    for code in (Code.OK, Code.TIMEOUT, Code.OK, Code.BOOKIE_NOT_AVAILABLE, Code.OK):
        world.clock.time += 1.0
        world.inner.answer(code)
    name, timeout_name = stats.REQUESTS["ADD_ENTRY"]
    of_b, of_c = world.stats.operations_of(name, "b"), world.stats.operations_of(name, "c")
    assert (of_b.succeeded.sum_ms, of_b.failed.sum_ms) == (1250.0 + 3250.0, 4000.0)
    assert (of_c.succeeded.sum_ms, of_c.failed.sum_ms) == (5000.0, 2250.0)
    assert world.stats.operations_of(timeout_name, "c").succeeded.count == 1
    assert [world.stats.level_of(stats.OUTSTANDING_ADDS, b) for b in "bc"] == [0, 0]
    assert replies.heard == [
        ("b", 0, Code.OK),
        ("c", 0, Code.TIMEOUT),
        ("b", 0, Code.OK),
        ("b", 1, Code.BOOKIE_NOT_AVAILABLE),
        ("c", 1, Code.OK),
    ]


def test_connections_are_those_of_the_inner_transport() -> None:
    world = World()
    assert world.transport.connections is world.inner.connections


@pytest.mark.parametrize(
    ("request_", "level"),
    [
        (AddRequest(1, 0, b"", b"", b""), stats.OUTSTANDING_ADDS),
        (ReadRequest(1, 0), stats.OUTSTANDING_READS),
        (BatchReadRequest(1, 0, 5, 1000), stats.OUTSTANDING_READS),
    ],
)
def test_what_is_outstanding_is_a_level(request_: Request, level: str) -> None:
    world = World()
    world.submit(request_)
    world.submit(request_)
    assert world.stats.level_of(level, "b") == 2
    world.inner.answer(Code.BOOKIE_NOT_AVAILABLE)
    world.inner.answer(Code.OK)
    assert world.stats.level_of(level, "b") == 0


def test_requests_about_the_connection_itself_are_not_measured() -> None:
    world = World()
    world.submit(StartTlsRequest())
    world.submit(AuthMessage("plugin"))
    world.inner.answer(Code.OK)
    world.inner.answer(Code.OK)
    assert world.stats.as_dict() == {"operations": {}, "events": {}, "levels": {}}
    assert world.codes == [Code.OK] * 2


def test_there_is_no_operation_nobody_decided_about() -> None:
    measured = {"ADD_ENTRY", "READ_ENTRY", "BATCH_READ_ENTRY", "READ_LAC", "WRITE_LAC", "FORCE_LEDGER"}
    measured |= {"GET_BOOKIE_INFO", "GET_LIST_OF_ENTRIES_OF_LEDGER"}
    assert {operation.name for operation in Operation} - measured <= {
        "AUTH",
        "START_TLS",
        "RANGE_READ_ENTRY",
        "RANGE_ADD_ENTRY",
    }


async def test_everything_else_is_the_inner_transports() -> None:
    world = World()
    assert world.transport.is_writable("b")
    assert not world.transport.is_writable("c")
    assert (world.transport.pending_requests("b"), world.transport.pending_requests("c")) == (0, 7)
    await world.transport.aclose()
    assert world.inner.is_closed

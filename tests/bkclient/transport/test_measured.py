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
from bkclient.transport.reads import ReadReplies, reads_over
from bkclient.wire.connection import FoundBody
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


class ManyReads:
    """Keeps what is asked for until told to answer; each call's reads together."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, tuple[int, ...], ReadReplies]] = []

    def send(self, bookie_id: str, entry_ids: Sequence[int], replies: ReadReplies) -> None:
        self.sent.append((bookie_id, tuple(entry_ids), replies))


class ManyReadsTransport(HeldTransport):
    """Sends many reads at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = ManyReads()

    def read_sender(self, ledger_id: int) -> ManyReads:
        assert ledger_id == 7
        return self.reads


class ReadOutcomes:
    def __init__(self) -> None:
        self.found: list[tuple[str, list[FoundBody]]] = []
        self.others: list[tuple[int, int]] = []

    def on_found(self, bookie_id: str, found: Sequence[FoundBody]) -> None:
        self.found.append((bookie_id, list(found)))

    def __call__(self, _bookie_id: str, request: Request, code: int, _response: Response | None) -> None:
        assert isinstance(request, ReadRequest)
        self.others.append((request.entry_id, code))


def test_reads_that_are_sent_together_are_measured_one_by_one_and_stay_together() -> None:
    world, heard = World(), ReadOutcomes()
    inner = ManyReadsTransport()
    reads = reads_over(MeasuredTransport(inner, world.stats), 7)
    reads.send("b", range(4), heard)
    world.clock.time += 0.25
    reads.send("c", [4], heard)
    assert [(bookie_id, ids) for bookie_id, ids, _ in inner.reads.sent] == [("b", (0, 1, 2, 3)), ("c", (4,))]
    assert [world.stats.level_of(stats.OUTSTANDING_READS, b) for b in "bc"] == [4, 1]
    (_, _, of_b), (_, _, of_c) = inner.reads.sent
    world.clock.time += 1.0
    bodies: list[FoundBody] = [(1, b"one", 5), (0, b"zero", None)]
    of_b.on_found("b", bodies)
    assert heard.found == [("b", bodies)]
    assert world.stats.level_of(stats.OUTSTANDING_READS, "b") == 2
    of_b("b", ReadRequest(7, 2), Code.TIMEOUT, None)
    of_b("b", ReadRequest(7, 3), Code.OK, RESPONSE)
    of_c("c", ReadRequest(7, 4), Code.NO_SUCH_ENTRY, RESPONSE)
    assert heard.others == [(2, Code.TIMEOUT), (3, Code.OK), (4, Code.NO_SUCH_ENTRY)]
    name, timeout_name = stats.REQUESTS["READ_ENTRY"]
    by_b, by_c = world.stats.operations_of(name, "b"), world.stats.operations_of(name, "c")
    assert (by_b.succeeded.count, by_b.succeeded.sum_ms, by_b.failed.sum_ms) == (3, 3 * 1250.0, 1250.0)
    assert (by_c.succeeded.count, by_c.failed.sum_ms) == (0, 1000.0)
    assert world.stats.operations_of(timeout_name, "b").succeeded.count == 1
    assert [world.stats.level_of(stats.OUTSTANDING_READS, b) for b in "bc"] == [0, 0]


def test_reads_over_a_transport_that_takes_one_at_a_time_are_measured_all_the_same() -> None:
    world, heard = World(), ReadOutcomes()
    reads_over(world.transport, 7).send("b", [1, 2], heard)
    assert world.stats.level_of(stats.OUTSTANDING_READS, "b") == 2
    for code in (Code.OK, Code.BOOKIE_NOT_AVAILABLE):
        world.inner.answer(code)
    assert heard.others == [(1, Code.OK), (2, Code.BOOKIE_NOT_AVAILABLE)]
    ended = world.stats.operations_of(stats.REQUESTS["READ_ENTRY"][0], "b")
    assert (ended.succeeded.count, ended.failed.count) == (1, 1)
    assert world.stats.level_of(stats.OUTSTANDING_READS, "b") == 0


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

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bkclient.errors import Code
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.messages import (
    AddRequest,
    AddResponse,
    BatchReadRequest,
    ErrorResponse,
    ForceLedgerRequest,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    StartTlsRequest,
    Status,
)
from simbookie.storage.base import CrashMode
from simbookie.world.calls import RequestMessage, ResponseMessage
from simbookie.world.connection_end import ConnectionEnd
from simbookie.world.errors import UnhandledErrors
from simbookie.world.faults import Delay, Duplicate, Fate
from simbookie.world.hosts import Host, World
from simbookie.world.transport import SimulatedTransport


def add(entry_id: int = 0, size: int = 10, write_flags: int = 0) -> AddRequest:
    return AddRequest(1, entry_id, b"k" * 20, b"h" * 32, b"p" * size, write_flags=write_flags)


def read(entry_id: int = 0) -> ReadRequest:
    return ReadRequest(1, entry_id)


class Bench:
    """A client with a transport, and a server that answers every request at once with OK; the client notes outcomes."""

    def __init__(self, **config: Any) -> None:
        self.world = World(1)
        self.network = self.world.network
        self.client, self.server = Host(self.world, "client"), Host(self.world, "b0")
        self.transport = SimulatedTransport(self.world, self.client, TcpTransportConfig(**config))
        self.seen: list[Request] = []
        self.outcomes: list[tuple[str, Request, int, Response | None]] = []
        self.times: list[float] = []
        self.listen()

    def listen(self) -> None:
        self.network.listen(self.server.process, self.accept)

    def accept(self, end: ConnectionEnd) -> None:
        def answer(message: RequestMessage) -> None:
            request = message.request
            self.seen.append(request)
            end.send(ResponseMessage(message.call_id, request, self.answer_to(request)))

        end.on_message = answer

    def answer_to(self, request: Request) -> Response:
        if isinstance(request, AddRequest):
            return AddResponse(Status.OK, request.ledger_id, request.entry_id)
        assert isinstance(request, ReadRequest)
        return ReadResponse(Status.OK, request.ledger_id, request.entry_id, b"body")

    def submit(self, request: Request, bookie_id: str = "b0") -> None:
        before = len(self.outcomes)
        self.transport.submit(bookie_id, request, self.note)
        assert len(self.outcomes) == before, "the handler was called from within submit"

    def note(self, bookie_id: str, request: Request, code: int, response: Response | None) -> None:
        self.outcomes.append((bookie_id, request, code, response))
        self.times.append(self.world.loop.time())

    @property
    def codes(self) -> list[int]:
        return [code for _, _, code, _ in self.outcomes]

    def play(self, story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async def program() -> None:
            await story(self)

        with self.world:
            self.world.run(lambda: self.world.join(self.client.spawn(program)))


Break = Callable[[Bench], object]


def no_break(bench: Bench) -> None:
    pass


FAULTS: list[tuple[str, bool, Break, Code, float, float]] = [
    # what happens, whether a connection stands before, outcome, earliest and latest time
    ("nothing", False, no_break, Code.OK, 0.0, 0.01),
    ("nothing, connected", True, no_break, Code.OK, 0.0, 0.01),
    ("nobody listens", False, lambda b: b.server.crash(), Code.BOOKIE_NOT_AVAILABLE, 0.0, 0.01),
    ("crash", True, lambda b: b.server.crash(), Code.BOOKIE_NOT_AVAILABLE, 0.0, 0.01),
    ("power loss", False, lambda b: b.server.crash(CrashMode.POWER_LOSS), Code.BOOKIE_NOT_AVAILABLE, 7.0, 7.1),
    ("power loss, connected", True, lambda b: b.server.crash(CrashMode.POWER_LOSS), Code.TIMEOUT, 2.0, 2.1),
    ("no way there", False, lambda b: b.network.block("client", "b0"), Code.BOOKIE_NOT_AVAILABLE, 7.0, 7.1),
    ("no way back", False, lambda b: b.network.block("b0", "client"), Code.BOOKIE_NOT_AVAILABLE, 7.0, 7.1),
    ("no way there, connected", True, lambda b: b.network.block("client", "b0"), Code.TIMEOUT, 2.0, 2.1),
    ("no way back, connected", True, lambda b: b.network.block("b0", "client"), Code.TIMEOUT, 2.0, 2.1),
    ("pause", True, lambda b: b.server.pause(), Code.TIMEOUT, 2.0, 2.1),
    ("reset", True, lambda b: b.network.reset_connections("client", "b0"), Code.BOOKIE_NOT_AVAILABLE, 0.0, 0.01),
    ("loss", True, lambda b: b.network.intercept(lambda *_: True, Fate.DROP), Code.TIMEOUT, 2.0, 2.1),
    ("delay", True, lambda b: b.network.intercept(lambda *_: True, Delay(1.5)), Code.TIMEOUT, 2.0, 2.1),
    ("short delay", True, lambda b: b.network.intercept(lambda *_: True, Delay(0.5)), Code.OK, 1.0, 1.1),
    ("duplicates", True, lambda b: b.network.intercept(lambda *_: True, Duplicate(3)), Code.OK, 0.0, 0.01),
    ("client closed", True, lambda b: b.client.spawn(b.transport.aclose), Code.CLIENT_CLOSED, 0.0, 0.01),
]


@pytest.mark.parametrize(
    ("connected", "fault", "code", "earliest", "latest"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS]
)
@pytest.mark.rule("W-47")
def test_every_request_ends_exactly_once_whatever_happens(
    connected: bool, fault: Break, code: Code, earliest: float, latest: float
) -> None:
    async def story(bench: Bench) -> None:
        if connected:
            bench.submit(add())
            await asyncio.sleep(0.5)
            assert bench.codes == [Code.OK]
            bench.outcomes.clear()
            bench.times.clear()
        started = bench.world.loop.time()
        fault(bench)
        request = add(1)
        bench.submit(request)
        await asyncio.sleep(60)
        assert bench.codes == [code]
        assert bench.outcomes[0] == ("b0", request, code, None), "adds are answered by a code alone"
        assert earliest <= bench.times[0] - started <= latest

    Bench(add_timeout_s=2.0, read_timeout_s=3.0, connect_timeout_s=7.0).play(story)


@pytest.mark.rule("W-45")
@pytest.mark.rule("R-24")
def test_adds_and_reads_have_timeouts_of_their_own() -> None:
    async def story(bench: Bench) -> None:
        bench.submit(read())
        await asyncio.sleep(1)
        assert isinstance(bench.outcomes.pop()[3], ReadResponse)
        bench.times.clear()
        bench.network.block("client", "b0")
        for number in range(3):
            bench.submit(add(number))
            bench.submit(read(number))
            await asyncio.sleep(0.1)
        await asyncio.sleep(60)
        assert bench.codes == [Code.TIMEOUT] * 6
        assert bench.times == pytest.approx([3.0, 3.1, 3.2, 4.0, 4.1, 4.2])
        assert [type(request) for _, request, _, _ in bench.outcomes] == [AddRequest] * 3 + [ReadRequest] * 3

    Bench(add_timeout_s=2.0, read_timeout_s=3.0).play(story)


@pytest.mark.rule("W-45")
def test_an_answer_to_an_earlier_request_moves_no_deadline_of_a_later_one() -> None:
    async def story(bench: Bench) -> None:
        bench.submit(add(0))
        await asyncio.sleep(1)
        bench.network.block("client", "b0")
        bench.submit(add(1))
        await asyncio.sleep(0.5)
        bench.network.heal()
        bench.submit(add(2))
        await asyncio.sleep(10)
        assert bench.codes == [Code.OK, Code.OK, Code.TIMEOUT]
        assert bench.times[2] == pytest.approx(3.0)

    Bench(add_timeout_s=2.0).play(story)


def test_a_request_that_timed_out_may_still_be_carried_out_and_its_late_answer_is_dropped() -> None:
    async def story(bench: Bench) -> None:
        bench.submit(add(0))
        await asyncio.sleep(1)
        bench.network.intercept(lambda _s, to, _m: to == "b0", Delay(30), limit=1)
        bench.submit(add(1))
        await asyncio.sleep(10)
        assert bench.codes == [Code.OK, Code.TIMEOUT]
        assert len(bench.seen) == 1
        await asyncio.sleep(30)
        assert len(bench.seen) == 2
        assert len(bench.codes) == 2

    Bench().play(story)


def test_a_duplicated_request_reaches_the_bookie_twice_and_the_client_once() -> None:
    async def story(bench: Bench) -> None:
        bench.network.intercept(lambda _s, to, _m: to == "b0", Duplicate(2))
        bench.submit(add())
        await asyncio.sleep(1)
        assert len(bench.seen) == 3
        assert bench.seen[0] is bench.seen[2], "messages are not copied"
        assert bench.codes == [Code.OK]

    Bench().play(story)


@pytest.mark.parametrize("mode", list(CrashMode))
def test_everything_outstanding_or_waiting_fails_when_the_connection_breaks_and_the_next_request_reconnects(
    mode: CrashMode,
) -> None:
    async def story(bench: Bench) -> None:
        bench.submit(add(0))
        await asyncio.sleep(0.1)
        bench.server.pause()
        for number in range(1, 10):
            bench.submit(add(number))
        await asyncio.sleep(0.1)
        bench.server.crash(mode)
        bench.server.restart()
        bench.listen()
        await asyncio.sleep(20)
        outcome = Code.BOOKIE_NOT_AVAILABLE if mode is CrashMode.PROCESS else Code.TIMEOUT
        assert bench.codes == [Code.OK] + [outcome] * 9
        bench.submit(add(10))
        await asyncio.sleep(20)
        if mode is CrashMode.POWER_LOSS:  # the old connection is found dead only now
            assert bench.codes[-1] == Code.BOOKIE_NOT_AVAILABLE
            bench.submit(add(11))
            await asyncio.sleep(20)
        assert bench.codes[-1] == Code.OK

    Bench().play(story)


@pytest.mark.rule("W-47")
def test_after_failed_attempts_to_connect_requests_fail_at_once_for_a_while_that_doubles() -> None:
    async def story(bench: Bench) -> None:
        bench.server.crash()
        loop = bench.world.loop
        attempts: list[float] = []
        refused = 0
        while loop.time() < 20:
            bench.submit(add())
            await asyncio.sleep(0.05)
            if bench.network.counters.refused > refused:
                refused = bench.network.counters.refused
                attempts.append(loop.time())
        assert set(bench.codes) == {Code.BOOKIE_NOT_AVAILABLE}
        gaps = [later - earlier for earlier, later in itertools.pairwise(attempts)]
        assert 3 < len(gaps) < 10
        assert all(later > earlier for earlier, later in itertools.pairwise(gaps[:4]))
        assert max(gaps) <= 4.1
        bench.server.restart()
        bench.listen()
        await asyncio.sleep(4)
        bench.submit(add())
        await asyncio.sleep(1)
        assert bench.codes[-1] == Code.OK

    Bench(backoff_initial_s=0.2, backoff_max_s=4.0).play(story)


def test_the_first_answer_ends_backing_off_from_a_bookie() -> None:
    async def story(bench: Bench) -> None:
        async def fail_once(wait_s: float) -> None:
            bench.server.crash()
            await asyncio.sleep(0.1)
            bench.submit(add())
            await asyncio.sleep(wait_s)
            bench.server.restart()
            bench.listen()

        bench.submit(add())
        await asyncio.sleep(1)
        for _ in range(5):  # without an answer in between, the wait would double each time
            await fail_once(1.1)
            bench.submit(add())
            await asyncio.sleep(0.1)
            assert bench.codes[-1] == Code.OK

    Bench(backoff_initial_s=1.0, backoff_max_s=100.0).play(story)


@pytest.mark.parametrize("worked_before", [False, True])
def test_a_bookie_that_accepts_connections_and_drops_them_is_backed_off_from(worked_before: bool) -> None:
    async def story(bench: Bench) -> None:
        if worked_before:
            bench.submit(add())
            await asyncio.sleep(1)
            bench.network.reset_connections("client", "b0")
            await asyncio.sleep(1)
        bench.outcomes.clear()
        bench.times.clear()
        bench.network.listen(bench.server.process, lambda end: end.close())
        started = bench.world.loop.time()
        bench.submit(add())
        await asyncio.sleep(0.1)
        connections = bench.network.counters.connected
        for _ in range(8):
            bench.submit(add())
            await asyncio.sleep(0.1)
        assert bench.codes == [Code.BOOKIE_NOT_AVAILABLE] * 9
        assert bench.network.counters.connected == connections
        assert bench.times[-1] - started < 1

    Bench(backoff_initial_s=2.0).play(story)


@pytest.mark.parametrize(
    ("status", "operation", "code"),
    [
        (Status.FENCED, "add", Code.LEDGER_FENCED),
        (Status.IO_ERROR, "add", Code.WRITE),
        (Status.IO_ERROR, "read", Code.READ),
    ],
)
@pytest.mark.rule("ERR-1")
def test_statuses_become_codes_by_operation(status: Status, operation: str, code: Code) -> None:
    request: Request = add() if operation == "add" else read()
    bench = Bench()
    bench.answer_to = lambda request: ErrorResponse(request.operation, status)  # type: ignore[method-assign]

    async def story(bench: Bench) -> None:
        bench.submit(request)
        await asyncio.sleep(1)
        assert bench.codes == [code]
        response = bench.outcomes[0][3]
        assert (response is None) if operation == "add" else isinstance(response, ErrorResponse)

    bench.play(story)


ILLEGAL: list[tuple[int, Request, bool]] = [
    (3, BatchReadRequest(1, 0, 1, 100), True),
    (2, BatchReadRequest(1, 0, 1, 100), False),
    (3, StartTlsRequest(), True),
    (2, StartTlsRequest(), True),
    (3, ForceLedgerRequest(1), False),
    (2, ForceLedgerRequest(1), True),
    (3, add(write_flags=1), False),
    (2, add(write_flags=1), True),
    (3, add(size=2000), True),
    (3, add(size=900), False),
]


@pytest.mark.parametrize(("version", "request_", "is_illegal"), ILLEGAL)
def test_what_the_protocol_version_cannot_express_is_refused(version: int, request_: Request, is_illegal: bool) -> None:
    bench = Bench(protocol_version=version, max_frame_size_bytes=1024)
    bench.answer_to = lambda request: ErrorResponse(request.operation, Status.OK)  # type: ignore[method-assign]

    async def story(bench: Bench) -> None:
        bench.submit(request_)
        await asyncio.sleep(1)
        assert bench.codes == [Code.ILLEGAL_OPERATION if is_illegal else Code.OK]
        assert bool(bench.seen) is not is_illegal

    bench.play(story)


@pytest.mark.parametrize("limit", [{"max_outstanding_requests": 5}, {"max_outstanding_bytes": 5 * 42}])
@pytest.mark.parametrize("connected", [False, True])
def test_requests_over_the_limit_of_outstanding_ones_are_refused_until_there_is_room(
    limit: dict[str, int], connected: bool
) -> None:
    async def story(bench: Bench) -> None:
        if connected:
            bench.submit(add())
            await asyncio.sleep(1)
            bench.outcomes.clear()
        for number in range(7):
            bench.submit(add(number))
        await asyncio.sleep(1)
        assert bench.codes == [Code.TOO_MANY_REQUESTS] * 2 + [Code.OK] * 5
        for code, fault in ((Code.TIMEOUT, bench.server.pause), (Code.BOOKIE_NOT_AVAILABLE, bench.server.crash)):
            bench.outcomes.clear()
            fault()
            for number in range(6):
                bench.submit(add(number))
            await asyncio.sleep(10)
            assert bench.codes == [Code.TOO_MANY_REQUESTS] + [code] * 5
        bench.server.restart()
        bench.listen()
        bench.outcomes.clear()
        for number in range(5):
            bench.submit(add(number))
        await asyncio.sleep(1)
        assert bench.codes == [Code.OK] * 5

    Bench(**limit).play(story)


def test_a_closed_transport_answers_client_closed_and_closing_again_does_no_harm() -> None:
    async def story(bench: Bench) -> None:
        bench.submit(add(0))  # still connecting
        bench.submit(add(1), "nobody")
        await bench.transport.aclose()
        assert bench.codes == [Code.CLIENT_CLOSED] * 2
        await bench.transport.aclose()
        bench.submit(add(2))
        await asyncio.sleep(30)
        assert bench.codes == [Code.CLIENT_CLOSED] * 3
        assert bench.seen == []

    Bench().play(story)


def test_outcomes_that_were_to_come_soon_come_before_closing_ends() -> None:
    async def story(bench: Bench) -> None:
        bench.submit(StartTlsRequest())
        await bench.transport.aclose()
        assert bench.codes == [Code.ILLEGAL_OPERATION]

    Bench().play(story)


def test_a_crashed_client_hears_nothing_and_sends_nothing() -> None:
    bench = Bench()

    async def program() -> None:
        bench.submit(add(0))
        await asyncio.sleep(1)
        bench.submit(add(1))
        await asyncio.sleep(0)  # requests leave at the end of a turn
        bench.client.crash()
        bench.submit(add(2))

    async def main() -> None:
        await bench.world.join(bench.client.spawn(program))
        await asyncio.sleep(60)

    with bench.world:
        bench.world.run(main)
    assert bench.codes == [Code.OK]
    assert bench.seen[1:] == bench.seen[1:2], "what was sent before the crash arrives, what came after does not"
    assert [request.entry_id for request in bench.seen if isinstance(request, AddRequest)] == [0, 1]


@pytest.mark.parametrize("outage_s", [3.0, 20.0])
def test_a_paused_client_gets_answers_and_timeouts_in_the_order_in_which_they_came(outage_s: float) -> None:
    """An answer that came before the timeout was due counts; the timer of an answered request does not."""
    bench = Bench()

    async def program() -> None:
        bench.submit(add(0))
        await asyncio.sleep(0.1)
        bench.submit(add(1))
        bench.network.intercept(lambda source, _t, _m: source == "b0", Delay(10), limit=1)
        await asyncio.sleep(0)
        bench.submit(add(2))

    async def main() -> None:
        task = bench.client.spawn(program)
        await bench.world.join(task)
        await asyncio.sleep(0)
        bench.client.pause()
        await asyncio.sleep(outage_s)
        assert bench.codes == [Code.OK]
        bench.client.resume()
        await asyncio.sleep(60)

    with bench.world:
        bench.world.run(main)
    assert bench.codes == [Code.OK, Code.OK, Code.TIMEOUT]


def test_connecting_while_paused_has_one_outcome_only() -> None:
    bench = Bench(connect_timeout_s=2.0, backoff_initial_s=1.0)

    async def main() -> None:
        bench.network.block("b0", "client")
        bench.client.process.context().run(bench.submit, add(0))
        await asyncio.sleep(0)  # the attempt begins in the next turn
        bench.client.pause()
        await asyncio.sleep(2.5)
        bench.server.crash()
        bench.network.heal()
        await asyncio.sleep(7.5)  # timed out, then refused
        bench.server.restart()
        bench.listen()
        bench.client.resume()
        await asyncio.sleep(1)  # backing off once, not twice
        bench.client.process.context().run(bench.submit, add(1))
        await asyncio.sleep(1)

    with bench.world:
        bench.world.run(main)
    assert bench.codes == [Code.BOOKIE_NOT_AVAILABLE, Code.OK]


def test_a_handler_may_submit_again_when_everything_fails() -> None:
    async def story(bench: Bench) -> None:
        def resubmit(bookie_id: str, request: Request, code: int, response: Response | None) -> None:
            bench.note(bookie_id, request, code, response)
            bench.submit(add(9))

        bench.submit(add(0))
        await asyncio.sleep(0.1)
        bench.server.pause()
        for number in range(3):
            bench.transport.submit("b0", add(number), resubmit)
        await asyncio.sleep(0.1)
        bench.server.crash()
        bench.server.restart()
        bench.listen()
        await asyncio.sleep(10)
        assert bench.codes == [Code.OK] + [Code.BOOKIE_NOT_AVAILABLE] * 3 + [Code.OK] * 3

    Bench().play(story)


def test_a_handler_that_raises_costs_no_other_its_outcome_and_ends_the_run() -> None:
    def breaks(*_: object) -> None:
        raise KeyError("oops")

    async def story(bench: Bench) -> None:
        bench.submit(add(0))
        await asyncio.sleep(0.1)
        bench.server.pause()
        bench.transport.submit("b0", add(1), breaks)
        bench.submit(add(2))
        await asyncio.sleep(0.1)
        bench.server.crash()
        await asyncio.sleep(10)

    bench = Bench()
    with pytest.raises(UnhandledErrors, match="reply handler"):
        bench.play(story)
    assert bench.codes == [Code.OK, Code.BOOKIE_NOT_AVAILABLE]


def test_connections_are_numbered_when_they_are_established_and_a_restart_makes_a_new_one() -> None:
    bench = Bench()
    numbers: list[int] = []

    async def story(bench: Bench) -> None:
        connections = bench.transport.connections
        bench.submit(add(0))
        assert connections == {}
        await asyncio.sleep(0.1)
        numbers.append(connections["b0"])
        bench.submit(add(1))
        await asyncio.sleep(0.1)
        numbers.append(connections["b0"])
        bench.server.crash()
        bench.server.restart()
        bench.listen()
        await asyncio.sleep(10)
        numbers.append(connections["b0"])
        bench.submit(add(2))
        await asyncio.sleep(0.1)
        numbers.append(connections["b0"])

    bench.play(story)
    assert numbers == [1, 1, 1, 2]
    assert bench.codes == [Code.OK] * 3

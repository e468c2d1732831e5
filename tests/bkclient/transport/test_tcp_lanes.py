"""Version 2 over TCP: requests that answers could not tell apart go over connections of their own, within the limits of one."""

from __future__ import annotations

import asyncio

import pytest

from bkclient.errors import Code
from bkclient.observability.stats import ACTIVE_CHANNELS
from bkclient.transport.tcp import TcpTransport
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.messages import ReadRequest, ReadResponse, Status
from tests.bkclient.inside import link_of
from tests.bkclient.transport.scripted_bookie import (
    BookieConnection,
    ScriptedBookie,
    answer,
    keep_silent,
    running,
    until,
)
from tests.bkclient.transport.test_tcp import KEY, add, transport_to

ORDINARY = ReadRequest(1, 0)
FENCING = ReadRequest(1, 0, fence_key=KEY, high_priority=True)


class Holding:
    """A script that holds reads; :meth:`deny` answers one."""

    def __init__(self) -> None:
        self.held: list[tuple[BookieConnection, ReceivedRequest]] = []

    def __call__(self, connection: BookieConnection, received: ReceivedRequest) -> None:
        if isinstance(received.request, ReadRequest):
            self.held.append((connection, received))
        else:
            connection.succeed(received)

    def deny(self, number: int = 0) -> None:
        connection, received = self.held.pop(number)
        assert isinstance(received.request, ReadRequest)
        response = ReadResponse(Status.NO_ENTRY, 1, received.request.entry_id)
        connection.send(connection.wire.encode_response(received, response))


def lanes_of(bookie: ScriptedBookie) -> list[int]:
    return [len(connection.received) for connection in bookie.connections]


async def wait_until_held(script: Holding, count: int) -> None:
    await until(lambda: len(script.held) == count)


@pytest.mark.rule("H-45")
async def test_a_fencing_read_shares_no_connection_with_an_ordinary_read_of_the_entry() -> None:
    script = Holding()
    async with running(script) as bookie, transport_to(bookie, protocol_version=2) as outcomes:
        for count, request in enumerate((ORDINARY, FENCING), start=1):
            outcomes.submit(request)
            await wait_until_held(script, count)
        assert lanes_of(bookie) == [1, 1]
        script.deny(1)
        await outcomes.wait(1)
        assert outcomes.all[0][1] is FENCING
        script.deny(0)
        await outcomes.wait(2)
        assert outcomes.all[1][1] is ORDINARY


async def test_while_connecting_too() -> None:
    script = Holding()
    async with running(script) as bookie, transport_to(bookie, protocol_version=2) as outcomes:
        for request in (ORDINARY, FENCING, add(0), add(1)):
            outcomes.submit(request)
        await wait_until_held(script, 2)
        assert sorted(lanes_of(bookie)) == [1, 3]
        assert script.held[0][0] is not script.held[1][0]


@pytest.mark.rule("H-45")
async def test_a_late_answer_settles_nothing_and_makes_the_key_usable_again() -> None:
    script = Holding()
    config = {"protocol_version": 2, "read_timeout_s": 0.05}
    async with running(script) as bookie, transport_to(bookie, **config) as outcomes:
        outcomes.submit(ORDINARY)
        assert await outcomes.wait() == [Code.TIMEOUT]
        outcomes.submit(FENCING)
        await wait_until_held(script, 2)
        script.deny(0)
        assert await outcomes.wait(2) == [Code.TIMEOUT, Code.TIMEOUT], "the late denial is not that of the fencing read"
        script.deny(0)
        bookie.script = answer
        outcomes.submit(add(0))
        await outcomes.wait(3)
        outcomes.submit(ORDINARY)
        assert (await outcomes.wait(4))[2:] == [Code.OK, Code.OK]
        assert lanes_of(bookie) == [3, 1], "the first connection is used wherever it can be"


async def test_version_3_needs_one_connection() -> None:
    script = Holding()
    async with running(script) as bookie, transport_to(bookie) as outcomes:
        for request in (ORDINARY, FENCING, ORDINARY):
            outcomes.submit(request)
        await wait_until_held(script, 3)
        assert lanes_of(bookie) == [3]


async def test_requests_beyond_the_lanes_wait_for_theirs_to_be_answered() -> None:
    script = Holding()
    config = {"protocol_version": 2, "lanes_max": 2}
    async with running(script) as bookie, transport_to(bookie, **config) as outcomes:
        for _ in range(5):
            outcomes.submit(ORDINARY)
        await wait_until_held(script, 2)
        assert outcomes.transport.pending_requests("b") == 5
        for count in range(1, 6):
            await until(lambda: len(script.held) > 0)
            script.deny()
            await outcomes.wait(count)
        assert outcomes.codes == [Code.NO_SUCH_ENTRY] * 5
        assert len(bookie.connections) == 2
        assert outcomes.transport.pending_requests("b") == 0


@pytest.mark.rule("W-45")
async def test_requests_beyond_the_lanes_time_out_as_others_do() -> None:
    config = {"protocol_version": 2, "lanes_max": 2, "read_timeout_s": 0.05}
    async with running(keep_silent) as bookie, transport_to(bookie, **config) as outcomes:
        for _ in range(6):
            outcomes.submit(ORDINARY)
        assert await outcomes.wait(6) == [Code.TIMEOUT] * 6
        assert bookie.open <= 2
        bookie.script = answer
        async with asyncio.timeout(30):
            while (
                outcomes.codes[-1] != Code.OK
            ):  # once a lane whose keys were given up has made room; an answer may be late
                outcomes.submit(ORDINARY)
                await outcomes.wait(len(outcomes.codes) + 1)


@pytest.mark.parametrize("limit", [{"max_outstanding_requests": 4}, {"max_outstanding_bytes": 4_000}])
async def test_limits_hold_over_all_lanes_and_what_waits_for_one(limit: dict[str, int]) -> None:
    config = {"protocol_version": 2, "lanes_max": 2, **limit}
    async with running(keep_silent) as bookie, transport_to(bookie, **config) as outcomes:
        for _ in range(7):
            outcomes.submit(add(0, bytes(1000)))  # one key: two lanes and the rest waits
        refused = await outcomes.wait(3)
        assert refused == [Code.TOO_MANY_REQUESTS] * 3
        await until(lambda: len(bookie.received) == 2)
        outcomes.submit(add(1, bytes(1000)))
        assert await outcomes.wait(4) == [Code.TOO_MANY_REQUESTS] * 4
        await outcomes.transport.aclose()
        assert outcomes.codes[4:] == [Code.CLIENT_CLOSED] * 4


async def test_a_lane_that_is_idle_is_closed_and_the_first_is_not() -> None:
    script = Holding()
    config = {"protocol_version": 2, "lane_idle_s": 0.0, "read_timeout_s": 0.2}
    async with running(script) as bookie, transport_to(bookie, **config) as outcomes:
        outcomes.submit(ORDINARY)
        outcomes.submit(FENCING)
        await wait_until_held(script, 2)
        script.deny()
        script.deny()
        await outcomes.wait(2)
        await until(lambda: bookie.open == 1)
        outcomes.submit(add(0))
        assert (await outcomes.wait(3))[2] == Code.OK
        assert bookie.open == 1
        link = link_of(outcomes.transport, "b", 2)
        await until(lambda: link._sweep_timer is None)


async def test_a_lane_that_breaks_costs_its_own_requests_only() -> None:
    script = Holding()
    async with running(script) as bookie, transport_to(bookie, protocol_version=2) as outcomes:
        outcomes.submit(ORDINARY)
        await wait_until_held(script, 1)
        outcomes.submit(FENCING)
        await wait_until_held(script, 2)
        bookie.connections[0].transport.abort()
        assert await outcomes.wait() == [Code.BOOKIE_NOT_AVAILABLE]
        assert outcomes.all[0][1] is ORDINARY
        outcomes.submit(add(0))
        assert (await outcomes.wait(2))[1] == Code.OK
        assert lanes_of(bookie) == [1, 2], "the other lane is the first one now"


async def test_what_waits_for_a_lane_fails_with_the_last_one() -> None:
    script = Holding()
    config = {"protocol_version": 2, "lanes_max": 2, "backoff_initial_s": 10.0, "backoff_max_s": 10.0}
    async with running(script) as bookie, transport_to(bookie, **config) as outcomes:
        for _ in range(4):
            outcomes.submit(ORDINARY)
        await wait_until_held(script, 2)
        await bookie.stop()
        assert await outcomes.wait(4) == [Code.BOOKIE_NOT_AVAILABLE] * 4
        assert outcomes.transport.pending_requests("b") == 0


class Channels:
    """Statistics that follow the level of standing connections."""

    def __init__(self) -> None:
        self.level = 0

    def now(self) -> float:
        return 0.0

    def request(self, bookie_id: str, name: str, seconds: float, code: int) -> None:
        pass

    def bookie_event(self, bookie_id: str, name: str, amount: int = 1) -> None:
        pass

    def bookie_level(self, bookie_id: str, name: str, change: int) -> None:
        assert name == ACTIVE_CHANNELS
        self.level += change


async def test_every_lane_counts_as_a_standing_connection_and_closing_ends_them_all() -> None:
    before = asyncio.all_tasks()
    script = Holding()
    async with running(script) as bookie, transport_to(bookie, protocol_version=2) as outcomes:
        assert isinstance(outcomes.transport, TcpTransport)
        stats = Channels()
        object.__setattr__(outcomes.transport._context, "stats", stats)
        for _ in range(9):
            outcomes.submit(ORDINARY)
        await wait_until_held(script, 4)
        assert stats.level == 4
        await outcomes.transport.aclose()
        assert stats.level == 0
        assert outcomes.codes == [Code.CLIENT_CLOSED] * 9
        await until(lambda: bookie.open == 0)
    assert asyncio.all_tasks() == before


def test_it_runs_on_uvloop_too() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def exchange() -> None:
        script = Holding()
        async with running(script) as bookie, transport_to(bookie, protocol_version=2) as outcomes:
            for request in (ORDINARY, FENCING, ORDINARY):
                outcomes.submit(request)
            await wait_until_held(script, 3)
            assert lanes_of(bookie) == [1, 1, 1]
            for count in range(1, 4):
                script.deny()
                await outcomes.wait(count)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(exchange())

"""What goes wrong between a client and a bookie: silence, lost connections, nonsense, nobody there."""

from __future__ import annotations

import asyncio
import random

import pytest

from bkclient.errors import BookieNotAvailable, Code
from bkclient.metadata.base import BookieAddress
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.messages import AddRequest, ReadRequest
from tests.bkclient.transport.scripted_bookie import (
    BookieConnection,
    ScriptedBookie,
    answer,
    keep_silent,
    running,
    until,
)
from tests.bkclient.transport.test_tcp import Outcomes, add, transport_to


@pytest.mark.rule("W-45")
@pytest.mark.parametrize("version", [2, 3])
async def test_a_silent_bookie_costs_each_request_its_own_timeout(version: int) -> None:
    config = {"protocol_version": version, "add_timeout_s": 0.1, "read_timeout_s": 0.3}
    async with running(keep_silent) as bookie, transport_to(bookie, **config) as outcomes:
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcomes.submit(ReadRequest(1, 0))
        outcomes.submit(add(0))
        await until(lambda: len(outcomes.all) > 0)
        assert loop.time() - began >= 0.1
        await outcomes.wait(2)
        assert loop.time() - began >= 0.3
        assert outcomes.codes == [Code.TIMEOUT, Code.TIMEOUT]
        assert isinstance(outcomes.all[0][1], AddRequest)
        assert bookie.open == 1, "a timeout is no reason to give up the connection"


@pytest.mark.rule("W-45")
@pytest.mark.parametrize("version", [2, 3])
async def test_a_late_answer_is_dropped(version: int) -> None:
    held: list[tuple[BookieConnection, ReceivedRequest]] = []

    def hold(connection: BookieConnection, received: ReceivedRequest) -> None:
        held.append((connection, received))

    config = {"protocol_version": version, "add_timeout_s": 0.05}
    async with running(hold) as bookie, transport_to(bookie, **config) as outcomes:
        outcomes.submit(add(0))
        assert await outcomes.wait() == [Code.TIMEOUT]
        connection, received = held[0]
        connection.succeed(received)
        bookie.script = answer
        outcomes.submit(ReadRequest(1, 0))
        assert await outcomes.wait(2) == [Code.TIMEOUT, Code.OK]


@pytest.mark.rule("W-45")
async def test_time_spent_connecting_is_not_time_spent_waiting_for_an_answer() -> None:
    release = asyncio.Event()
    async with running() as bookie:

        async def resolve(bookie_id: str) -> BookieAddress:
            await release.wait()
            return bookie.address

        config = TcpTransportConfig(add_timeout_s=0.05, connect_timeout_s=5.0)
        transport = TcpTransport(resolve, config, rng=random.Random(1))
        outcomes = Outcomes(transport)
        outcomes.submit(add(0))
        asyncio.get_running_loop().call_later(0.15, release.set)
        assert await outcomes.wait() == [Code.OK]
        await transport.aclose()


@pytest.mark.rule("W-47")
@pytest.mark.parametrize("version", [2, 3])
async def test_a_lost_connection_fails_what_was_outstanding_and_the_next_request_reconnects(version: int) -> None:
    def answer_two_then_break(connection: BookieConnection, received: ReceivedRequest) -> None:
        if len(connection.received) <= 2:
            connection.succeed(received)
        elif len(connection.received) == 5:
            connection.transport.close()

    async with (
        running(answer_two_then_break) as bookie,
        transport_to(bookie, protocol_version=version) as outcomes,
    ):
        for entry_id in range(5):
            outcomes.submit(add(entry_id))
        await outcomes.wait(5)
        assert outcomes.codes == [Code.OK] * 2 + [Code.BOOKIE_NOT_AVAILABLE] * 3
        bookie.script = answer
        outcomes.submit(add(5))
        await outcomes.wait(6)
        assert outcomes.codes[-1] == Code.OK
        assert len(bookie.connections) == 2


async def test_a_bookie_that_closes_its_side_only_is_given_up_too() -> None:
    def half_close(connection: BookieConnection, received: ReceivedRequest) -> None:
        connection.transport.write_eof()

    async with running(half_close) as bookie, transport_to(bookie) as outcomes:
        outcomes.submit(add(0))
        assert await outcomes.wait() == [Code.BOOKIE_NOT_AVAILABLE]
        await until(lambda: bookie.open == 0)


async def test_a_bookie_that_closed_its_side_is_given_up_although_it_has_not_taken_everything() -> None:
    async with running() as bookie, transport_to(bookie) as outcomes:
        bookie.deaf = True
        for entry_id in range(5):
            outcomes.submit(add(entry_id, bytes(5_000_000)))
        await until(lambda: len(bookie.connections) == 1)
        bookie.connections[0].transport.write_eof()
        assert await outcomes.wait(5) == [Code.BOOKIE_NOT_AVAILABLE] * 5


@pytest.mark.parametrize(
    "nonsense",
    [b"\x00\x00\x00\x02\xff\xff", (5 * 1024 * 1024 - 3).to_bytes(4, "big"), b"HTTP/1.1 400 Bad Request\r\n\r\n"],
    ids=["malformed", "oversized", "another protocol"],
)
@pytest.mark.parametrize("version", [2, 3])
async def test_nonsense_from_a_bookie_ends_the_connection_and_fails_what_was_outstanding(
    version: int, nonsense: bytes
) -> None:
    def answer_then_babble(connection: BookieConnection, received: ReceivedRequest) -> None:
        if len(connection.received) == 1:
            connection.succeed(received)
        else:
            connection.send(nonsense)

    async with running(answer_then_babble) as bookie, transport_to(bookie, protocol_version=version) as outcomes:
        outcomes.submit(add(0))
        await outcomes.wait(1)
        for entry_id in (1, 2):
            outcomes.submit(add(entry_id))
        await outcomes.wait(3)
        assert outcomes.codes == [Code.OK, Code.BOOKIE_NOT_AVAILABLE, Code.BOOKIE_NOT_AVAILABLE]
        await until(lambda: bookie.open == 0)
        bookie.script = answer
        outcomes.submit(add(3))
        await outcomes.wait(4)
        assert outcomes.codes[-1] == Code.OK


@pytest.mark.rule("W-47")
async def test_all_requests_that_wait_for_a_connection_fail_together_when_there_is_none() -> None:
    bookie = ScriptedBookie()
    await bookie.start()
    await bookie.stop()
    async with transport_to(bookie) as outcomes:
        for entry_id in range(3):
            outcomes.submit(add(entry_id))
        assert await outcomes.wait(3) == [Code.BOOKIE_NOT_AVAILABLE] * 3


@pytest.mark.rule("W-47")
async def test_connecting_has_a_time_limit_that_includes_resolving() -> None:
    async def resolve(bookie_id: str) -> BookieAddress:
        await asyncio.Event().wait()
        raise AssertionError

    transport = TcpTransport(resolve, TcpTransportConfig(connect_timeout_s=0.05), rng=random.Random(1))
    outcomes = Outcomes(transport)
    outcomes.submit(add(0))
    assert await outcomes.wait() == [Code.BOOKIE_NOT_AVAILABLE]
    await transport.aclose()


@pytest.mark.parametrize("error", [BookieNotAvailable("never registered"), OSError("no route")])
async def test_a_bookie_that_cannot_be_resolved_is_not_available(error: Exception) -> None:
    async def resolve(bookie_id: str) -> BookieAddress:
        raise error

    transport = TcpTransport(resolve, rng=random.Random(1))
    outcomes = Outcomes(transport)
    outcomes.submit(add(0))
    assert await outcomes.wait() == [Code.BOOKIE_NOT_AVAILABLE]
    await transport.aclose()


@pytest.mark.parametrize("host", ["a" * 3000, "a" * 70, "..", "a..b", "\udce4", "xn--\x80"])
async def test_an_address_that_cannot_be_one_makes_a_bookie_unavailable_and_nothing_else(host: str) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))

    async def resolve(bookie_id: str) -> BookieAddress:
        return BookieAddress(host, 3181)

    transport = TcpTransport(resolve, rng=random.Random(1))
    outcomes = Outcomes(transport)
    outcomes.submit(add(0))
    assert await outcomes.wait() == [Code.BOOKIE_NOT_AVAILABLE]
    await transport.aclose()
    assert reported == []


async def test_a_defect_of_the_resolver_is_reported_and_still_answers_the_requests() -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))

    async def resolve(bookie_id: str) -> BookieAddress:
        raise KeyError(bookie_id)

    transport = TcpTransport(resolve, rng=random.Random(1))
    outcomes = Outcomes(transport)
    outcomes.submit(add(0))
    assert await outcomes.wait() == [Code.BOOKIE_NOT_AVAILABLE]
    assert [type(error) for error in reported] == [KeyError]
    await transport.aclose()


# The clock is the loop's own from here on, moved by hand.


class Clock:
    """Adds to the loop's time what a test wants to have passed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.extra = 0.0
        loop = asyncio.get_running_loop()
        original = loop.time
        monkeypatch.setattr(loop, "time", lambda: original() + self.extra)


@pytest.mark.rule("W-45")
async def test_a_request_that_follows_a_timeout_in_the_same_turn_times_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop stands still for longer than a timeout, between a request and the look for late ones in the same turn."""
    clock, loop = Clock(monkeypatch), asyncio.get_running_loop()
    async with running(keep_silent) as bookie, transport_to(bookie, add_timeout_s=5.0) as outcomes:
        outcomes.submit(add(0))
        await until(lambda: len(bookie.received) == 1)

        timed_out = asyncio.Event()

        def submit_again(*_answer: object) -> None:
            outcomes.submit(add(2))
            timed_out.set()

        def submit_and_stand_still() -> None:
            outcomes.transport.submit("b", add(1), submit_again)
            clock.extra += 100.0

        loop.call_at(loop.time(), submit_and_stand_still)
        clock.extra += 1.0  # now the look for late requests is due as well, and comes second
        await timed_out.wait()
        await until(lambda: len(bookie.received) == 3)
        clock.extra += 100.0
        assert await outcomes.wait(2) == [Code.TIMEOUT, Code.TIMEOUT]


# Backing off.


class CountingResolver:
    """Counts attempts to connect."""

    def __init__(self, bookie: ScriptedBookie) -> None:
        self.bookie = bookie
        self.attempts = 0

    async def __call__(self, bookie_id: str) -> BookieAddress:
        self.attempts += 1
        return self.bookie.address


class Upper(random.Random):
    """Chance that always gives the upper end of a range."""

    def uniform(self, a: float, b: float) -> float:
        return b


async def fail_once(outcomes: Outcomes) -> None:
    count = len(outcomes.all)
    outcomes.submit(add(count))
    await until(lambda: len(outcomes.all) == count + 1)
    assert outcomes.codes[-1] == Code.BOOKIE_NOT_AVAILABLE


async def test_attempts_to_reach_a_dead_bookie_become_rarer_and_requests_in_between_fail_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bookie = ScriptedBookie()
    await bookie.start()
    await bookie.stop()
    clock, resolver = Clock(monkeypatch), CountingResolver(bookie)
    config = TcpTransportConfig(backoff_initial_s=100.0, backoff_max_s=1000.0)
    transport = TcpTransport(resolver, config, rng=Upper())
    outcomes = Outcomes(transport)
    await fail_once(outcomes)
    for attempts, delay in enumerate([100.0, 200.0, 400.0, 800.0, 1000.0, 1000.0], start=1):
        assert resolver.attempts == attempts
        clock.extra += delay - 50
        await fail_once(outcomes)
        assert resolver.attempts == attempts, "backing off: no attempt was made"
        clock.extra += 51
        await fail_once(outcomes)
    await transport.aclose()


async def test_the_first_answer_ends_backing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    bookie = ScriptedBookie()
    await bookie.start()
    await bookie.stop()
    clock, resolver = Clock(monkeypatch), CountingResolver(bookie)
    transport = TcpTransport(resolver, TcpTransportConfig(backoff_initial_s=100.0, backoff_max_s=800.0), rng=Upper())
    outcomes = Outcomes(transport)
    for delay in (100.0, 200.0, 400.0):
        await fail_once(outcomes)
        clock.extra += delay + 1
    await bookie.start()
    outcomes.submit(add(99))
    await until(lambda: len(outcomes.all) == 4)
    assert outcomes.codes[-1] == Code.OK
    await bookie.stop()
    await fail_once(outcomes)  # either the loss is known by now, or it fails this request
    await fail_once(outcomes)
    attempts = resolver.attempts
    clock.extra += 101
    await fail_once(outcomes)
    assert resolver.attempts == attempts + 1, "the delay is the initial one again"
    await transport.aclose()


async def test_a_bookie_that_accepts_and_closes_is_backed_off_from_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as bookie:
        bookie.close_at_once = True
        clock, resolver = Clock(monkeypatch), CountingResolver(bookie)
        transport = TcpTransport(
            resolver, TcpTransportConfig(backoff_initial_s=100.0, backoff_max_s=800.0), rng=Upper()
        )
        outcomes = Outcomes(transport)
        await fail_once(outcomes)
        await fail_once(outcomes)
        assert resolver.attempts == 1
        clock.extra += 101
        await fail_once(outcomes)
        clock.extra += 101
        await fail_once(outcomes)
        assert resolver.attempts == 2, "the second delay is twice the first"
        await transport.aclose()


async def test_delays_are_shortened_at_random_by_up_to_half(monkeypatch: pytest.MonkeyPatch) -> None:
    bookie = ScriptedBookie()
    await bookie.start()
    await bookie.stop()
    clock = Clock(monkeypatch)
    drawn: list[tuple[float, float]] = []

    class Lower(random.Random):
        def uniform(self, a: float, b: float) -> float:
            drawn.append((a, b))
            return a

    resolver = CountingResolver(bookie)
    transport = TcpTransport(resolver, TcpTransportConfig(backoff_initial_s=100.0, backoff_max_s=800.0), rng=Lower())
    outcomes = Outcomes(transport)
    await fail_once(outcomes)
    clock.extra += 49
    await fail_once(outcomes)
    assert resolver.attempts == 1
    clock.extra += 2
    await fail_once(outcomes)
    assert resolver.attempts == 2
    assert drawn == [(0.5, 1.0)] * 2
    await transport.aclose()

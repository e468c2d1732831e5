"""What a transport tells of its connections, word for word: statistics and log records, and the load that it counts."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import socket
import struct
from typing import Any

import pytest

from bkclient.errors import Code
from bkclient.metadata.base import BookieAddress
from bkclient.observability.stats import (
    ACTIVE_CHANNELS,
    ACTIVE_TLS_CHANNELS,
    CONNECT,
    FAILED_CONNECTIONS,
    FAILED_TLS_HANDSHAKES,
)
from bkclient.transport.handshake import Security
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from bkclient.wire.connection import ClientConnection
from bkclient.wire.messages import BookieInfoRequest, ReadRequest
from tests.bkclient.transport.scripted_bookie import ScriptedBookie, keep_silent, running, until
from tests.bkclient.transport.test_handshake import secured
from tests.bkclient.transport.test_tcp import KEY, Outcomes, add, transport_to
from tests.tls import TRUSTING, client_security, offering


class Notes:
    """Everything a transport reports, with a clock that advances by one at every look."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self._ticks = itertools.count(100)

    def now(self) -> float:
        return float(next(self._ticks))

    def request(self, bookie_id: str, name: str, seconds: float, code: int) -> None:
        self.told.append((bookie_id, name, seconds, code))

    def bookie_event(self, bookie_id: str, name: str, amount: int = 1) -> None:
        self.told.append((bookie_id, name, amount))

    def bookie_level(self, bookie_id: str, name: str, change: int) -> None:
        self.told.append((bookie_id, name, change))


async def told_by(
    address: BookieAddress | Exception, security: Security | None = None, *, code: int = Code.OK
) -> list[tuple[Any, ...]]:
    """What is reported of one request, which ends with ``code``, and of closing."""
    notes = Notes()

    async def resolve(bookie_id: str) -> BookieAddress:
        if isinstance(address, Exception):
            raise address
        return address

    transport = TcpTransport(resolve, rng=random.Random(1), stats=notes, security=security)
    outcomes = Outcomes(transport)
    outcomes.submit(add(0))
    assert await outcomes.wait() == [code]
    await until(lambda: any(name == CONNECT for _, name, *_ in notes.told))
    await outcomes.aclose()
    return sorted(notes.told)


async def test_a_connection_is_counted_once_when_it_stands_and_once_when_it_has_ended() -> None:
    async with running() as bookie:
        told = await told_by(bookie.address)
    assert told == sorted([("b", ACTIVE_CHANNELS, 1), ("b", CONNECT, 1.0, Code.OK), ("b", ACTIVE_CHANNELS, -1)])


async def test_a_connection_with_tls_is_counted_as_such_and_one_with_a_plug_in_alone_is_not() -> None:
    async with secured(offering()) as server:
        told = await told_by(server.address, client_security(**TRUSTING))
    assert told == sorted([("b", ACTIVE_TLS_CHANNELS, 1), ("b", CONNECT, 1.0, Code.OK), ("b", ACTIVE_TLS_CHANNELS, -1)])
    async with running() as bookie:
        told = await told_by(bookie.address, Security())
    assert told == sorted([("b", ACTIVE_CHANNELS, 1), ("b", CONNECT, 1.0, Code.OK), ("b", ACTIVE_CHANNELS, -1)])


async def test_a_connection_that_fails_is_counted_with_its_code() -> None:
    told = await told_by(OSError("no route"), code=Code.BOOKIE_NOT_AVAILABLE)
    assert told == sorted([("b", CONNECT, 1.0, Code.BOOKIE_NOT_AVAILABLE), ("b", FAILED_CONNECTIONS, 1)])
    async with secured(offering("expired")) as server:
        told = await told_by(server.address, client_security(**TRUSTING), code=Code.SECURITY)
    assert told == sorted(
        [("b", CONNECT, 1.0, Code.SECURITY), ("b", FAILED_CONNECTIONS, 1), ("b", FAILED_TLS_HANDSHAKES, 1)]
    )


async def test_a_defect_while_connecting_is_counted_and_reported() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    defect = ValueError("a defect")
    told = await told_by(defect, code=Code.BOOKIE_NOT_AVAILABLE)
    assert told == sorted([("b", CONNECT, 1.0, Code.UNEXPECTED_CONDITION), ("b", FAILED_CONNECTIONS, 1)])
    assert reported == [{"message": "connecting to bookie b", "exception": defect}]


# The log ------------------------------------------------------------------------------------------------------------


def records(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    return [
        (r.event, r.bookie_id, r.details)  # type: ignore[attr-defined]
        for r in caplog.records
        if r.name == "bkclient.transport"
    ]


def reset(bookie: ScriptedBookie) -> None:
    connection = bookie.connections[0].transport
    linger = struct.pack("ii", 1, 0)
    connection.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    connection.abort()


async def test_a_connection_that_breaks_is_logged_with_what_the_system_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="bkclient")
    async with running(keep_silent) as bookie, transport_to(bookie) as outcomes:
        outcomes.submit(add(0))
        outcomes.submit(BookieInfoRequest(3))
        await until(lambda: len(bookie.received) == 2)
        reset(bookie)
        assert await outcomes.wait(2) == [Code.BOOKIE_NOT_AVAILABLE] * 2
        made, lost = records(caplog)
        assert made == ("connection_made", "b", {"address": (bookie.address.host, bookie.address.port)})
        assert lost[:2] == ("connection_lost", "b")
        assert lost[2]["outstanding"] == 2
        assert "reset by peer" in lost[2]["reason"]


async def test_a_connection_that_never_stood_is_not_logged_as_lost(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="bkclient")
    await told_by(OSError("no route"), code=Code.BOOKIE_NOT_AVAILABLE)
    assert records(caplog) == [("bookie_unavailable", "b", {"reason": "no route", "held_back": 0})]


async def test_a_failure_without_words_is_told_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    await told_by(TimeoutError(), code=Code.BOOKIE_NOT_AVAILABLE)
    assert records(caplog) == [("bookie_unavailable", "b", {"reason": "TimeoutError", "held_back": 0})]


# The load -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
async def test_what_waits_for_a_connection_counts_until_it_has_an_outcome(version: int) -> None:
    stuck = asyncio.Event()

    async def resolve(bookie_id: str) -> BookieAddress:
        await stuck.wait()
        raise OSError("no route")

    one = add(0, bytes(1000))
    size = len(one.header) + len(one.payload)
    config = TcpTransportConfig(
        protocol_version=version, max_outstanding_bytes=3 * size + 1, max_outstanding_requests=6
    )
    outcomes = Outcomes(TcpTransport(resolve, config, rng=random.Random(1)))
    for entry_id in range(3):
        outcomes.submit(add(entry_id, bytes(1000)))
    outcomes.submit(ReadRequest(1, 0))
    outcomes.submit(ReadRequest(1, 1))
    assert outcomes.transport.pending_requests("b") == 5
    outcomes.submit(add(3, bytes(1000)))  # one byte is left
    outcomes.submit(too_many := ReadRequest(1, 2))
    await outcomes.wait(1)
    assert outcomes.codes == [Code.TOO_MANY_REQUESTS]
    assert outcomes.all[0][1] is too_many
    assert outcomes.transport.pending_requests("b") == 6
    stuck.set()
    await outcomes.wait(7)
    assert outcomes.codes[1:] == [Code.BOOKIE_NOT_AVAILABLE] * 6
    assert outcomes.transport.pending_requests("b") == 0
    await outcomes.aclose()


async def test_bytes_that_wait_for_a_connection_are_refused_from_the_limit_on() -> None:
    stuck = asyncio.Event()

    async def resolve(bookie_id: str) -> BookieAddress:
        await stuck.wait()
        raise OSError("no route")

    one = add(0, bytes(1000))
    config = TcpTransportConfig(max_outstanding_bytes=2 * (len(one.header) + len(one.payload)))
    outcomes = Outcomes(TcpTransport(resolve, config, rng=random.Random(1)))
    for entry_id in range(2):
        outcomes.submit(add(entry_id, bytes(1000)))
    outcomes.submit(ReadRequest(1, 0))
    assert await outcomes.wait() == [Code.TOO_MANY_REQUESTS]
    stuck.set()
    await outcomes.wait(3)
    await outcomes.aclose()


async def test_a_bookie_that_answered_is_news_again_when_it_fails(caplog: pytest.LogCaptureFixture) -> None:
    reachable = False

    async def resolve(bookie_id: str) -> BookieAddress:
        if not reachable:
            raise OSError("no route")
        return bookie.address

    config = TcpTransportConfig(unavailable_log_interval_s=1000.0, backoff_initial_s=0.001, backoff_max_s=0.001)
    outcomes = Outcomes(TcpTransport(resolve, config, rng=random.Random(1)))

    async def ask() -> int:
        outcomes.submit(add(0))
        await outcomes.wait(len(outcomes.all) + 1)
        await asyncio.sleep(0.002)
        return outcomes.codes[-1]

    def failures_told() -> int:
        return [event for event, *_ in records(caplog)].count("bookie_unavailable")

    async with asyncio.timeout(20):
        while failures_told() < 1:
            assert await ask() == Code.BOOKIE_NOT_AVAILABLE
        async with running() as bookie:
            reachable = True
            while await ask() != Code.OK:
                pass
            reachable = False
        while (
            failures_told() < 2
        ):  # the first request may fail with the connection that there was, which is no news yet
            assert await ask() == Code.BOOKIE_NOT_AVAILABLE
    await outcomes.aclose()


async def test_bytes_are_refused_from_the_limit_on() -> None:
    connection: ClientConnection[None] = ClientConnection(3)
    limits = {"max_outstanding_bytes": 2 * sum(map(len, connection.send(add(0, bytes(1000)), None)))}
    async with running(keep_silent) as bookie, transport_to(bookie, **limits) as outcomes:
        outcomes.submit(add(0, bytes(1000)))
        await until(lambda: len(bookie.received) == 1)
        outcomes.submit(add(1, bytes(1000)))
        await until(lambda: len(bookie.received) == 2)
        outcomes.submit(ReadRequest(1, 0))
        assert await outcomes.wait() == [Code.TOO_MANY_REQUESTS]


# Lanes --------------------------------------------------------------------------------------------------------------


async def test_a_lane_that_is_closed_for_want_of_use_is_logged_as_closed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="bkclient")
    config = {"protocol_version": 2, "lane_idle_s": 0.01, "read_timeout_s": 0.2}
    async with running() as bookie, transport_to(bookie, **config) as outcomes:
        outcomes.submit(ReadRequest(1, 0))
        outcomes.submit(ReadRequest(1, 0, fence_key=KEY))
        await outcomes.wait(2)
        await until(lambda: bookie.open == 1)
    assert [event for event, *_ in records(caplog)] == ["connection_made", "connection_made", "connection_closed"]
    assert {bookie_id for _, bookie_id, _ in records(caplog)} == {"b"}

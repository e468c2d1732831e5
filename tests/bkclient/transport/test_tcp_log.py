"""What connections write to the log, and how often."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import pytest

from bkclient.metadata.base import BookieAddress
from bkclient.observability.log import LogThrottle
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from bkclient.wire.messages import ReadRequest
from tests.bkclient.transport.scripted_bookie import BookieConnection, keep_silent, running, until
from tests.bkclient.transport.test_tcp import Outcomes, add, transport_to


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="bkclient")


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    return [(r.event, r.bookie_id, r.levelno) for r in caplog.records if r.name == "bkclient.transport"]  # type: ignore[attr-defined]


async def test_a_connection_is_logged_when_it_is_made_and_no_entry_is(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as bookie, transport_to(bookie) as outcomes:
        for entry_id in range(100):
            outcomes.submit(add(entry_id))
        await outcomes.wait(100)
    assert lines(caplog) == [("connection_made", "b", logging.INFO)]
    assert str(bookie.address.port) in caplog.records[0].getMessage()


async def test_a_lost_connection_is_logged_with_its_reason_and_what_it_cost(caplog: pytest.LogCaptureFixture) -> None:
    async with running(keep_silent) as bookie, transport_to(bookie) as outcomes:
        outcomes.submit(add(0))
        outcomes.submit(ReadRequest(1, 0))
        await until(lambda: len(bookie.received) == 2)
        bookie.connections[0].transport.close()
        await outcomes.wait(2)
    assert lines(caplog)[1:] == [("connection_lost", "b", logging.WARNING)]
    assert "with 2 requests under way: the bookie closed it" in caplog.messages[-1]
    assert caplog.records[-1].details["outstanding"] == 2  # type: ignore[attr-defined]


async def test_a_bookie_that_breaks_the_protocol_is_named(caplog: pytest.LogCaptureFixture) -> None:
    def babble(connection: BookieConnection, received: Any) -> None:
        connection.send(b"\xff" * 100)

    async with running(babble) as bookie, transport_to(bookie) as outcomes:
        outcomes.submit(add(0))
        await outcomes.wait()
    assert "does not keep to the protocol" in caplog.messages[-1]


async def test_closing_the_client_loses_no_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with running(keep_silent) as bookie, transport_to(bookie) as outcomes:
        outcomes.submit(add(0))
        await until(lambda: len(bookie.received) == 1)
    assert [event for event, _, _ in lines(caplog)] == ["connection_made"]


async def fail_to_connect(attempts: int, interval_s: float) -> None:
    async def resolve(bookie_id: str) -> BookieAddress:
        raise OSError("nobody knows it")

    config = TcpTransportConfig(
        unavailable_log_interval_s=interval_s, backoff_initial_s=0.001, backoff_max_s=0.001, channels_per_bookie=2
    )
    transport = TcpTransport(resolve, config, rng=random.Random(1))
    outcomes = Outcomes(transport)
    for attempt in range(1, attempts + 1):
        outcomes.submit(ReadRequest(attempt, 0), "b")
        outcomes.submit(ReadRequest(attempt, 0), "c")
        await outcomes.wait(2 * attempt)
        await asyncio.sleep(0.002)
    await transport.aclose()


async def test_an_unavailable_bookie_is_logged_once_in_an_interval(caplog: pytest.LogCaptureFixture) -> None:
    await fail_to_connect(4, interval_s=100.0)
    unavailable = ("bookie_unavailable", logging.WARNING)
    assert [(event, level) for event, _, level in lines(caplog)] == [unavailable] * 2
    assert [bookie_id for _, bookie_id, _ in lines(caplog)] == ["b", "c"]
    assert "cannot connect to bookie b: nobody knows it" in caplog.messages[0]


async def test_without_an_interval_every_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    await fail_to_connect(3, interval_s=0.0)
    assert len(lines(caplog)) == 6


def test_what_was_held_back_is_counted_and_told_with_the_next_line() -> None:
    throttle = LogThrottle(5.0)
    assert [throttle.passes("b", now) for now in (0.0, 1.0, 4.9, 5.0, 5.1, 20.0)] == [0, None, None, 2, None, 1]
    assert throttle.passes("c", 1.0) == 0


def test_news_are_not_held_back() -> None:
    throttle = LogThrottle(5.0)
    assert throttle.passes("b", 0.0) == 0
    throttle.reset("b")
    assert throttle.passes("b", 0.1) == 0


async def test_a_level_that_is_off_builds_no_record(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, logger="bkclient")

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a record was built")

    monkeypatch.setattr(logging.Logger, "makeRecord", refuse)
    async with running() as bookie, transport_to(bookie) as outcomes:
        for entry_id in range(10):
            outcomes.submit(add(entry_id))
        await outcomes.wait(10)

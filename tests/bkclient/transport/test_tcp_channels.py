"""Several connections to one bookie: which ledger uses which, what is made when, and where their bookie is."""

from __future__ import annotations

import asyncio
import random

import pytest

from bkclient.errors import Code
from bkclient.ledger import DigestType
from bkclient.metadata.base import BookieAddress
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import AddRequest, BookieInfoRequest, ReadRequest
from tests.bkclient.transport.scripted_bookie import ScriptedBookie, keep_silent, running, until
from tests.bkclient.transport.test_tcp import Outcomes, transport_to


def add_to(ledger_id: int, entry_id: int = 0) -> AddRequest:
    codec = EntryCodec(ledger_id, DigestType.CRC32C, b"")
    return AddRequest(ledger_id, entry_id, codec.master_key, codec.encode_header(entry_id, -1, 0, b"x"), b"x")


def ledgers_by_connection(bookie: ScriptedBookie) -> list[list[int]]:
    return sorted(
        [received.request.ledger_id for received in connection.received]  # type: ignore[union-attr]
        for connection in bookie.connections
    )


async def test_a_ledger_uses_the_connection_that_its_id_modulo_their_number_says() -> None:
    async with running() as bookie, transport_to(bookie, channels_per_bookie=3) as outcomes:
        for ledger_id in (0, 1, 2, 3, 4, 5, 2**40):
            outcomes.submit(add_to(ledger_id))
            outcomes.submit(ReadRequest(ledger_id, 0))
        assert await outcomes.wait(14) == [Code.OK] * 14
        assert ledgers_by_connection(bookie) == [[0, 0, 3, 3], [1, 1, 4, 4, 2**40, 2**40], [2, 2, 5, 5]]


async def test_no_more_connections_are_made_than_configured_and_none_before_it_is_needed() -> None:
    async with running() as bookie, transport_to(bookie, channels_per_bookie=4) as outcomes:
        for _ in range(3):
            outcomes.submit(add_to(6))
        await outcomes.wait(3)
        assert len(bookie.connections) == 1
        for ledger_id in range(50):
            outcomes.submit(add_to(ledger_id))
        await outcomes.wait(53)
        assert len(bookie.connections) == 4


async def test_what_is_about_no_ledger_goes_over_the_first_connection() -> None:
    async with running() as bookie, transport_to(bookie, channels_per_bookie=4) as outcomes:
        outcomes.submit(BookieInfoRequest(1))
        outcomes.submit(add_to(8))
        await outcomes.wait(2)
        assert len(bookie.connections) == 1


async def test_a_connection_that_breaks_costs_only_the_ledgers_that_use_it() -> None:
    async with running(keep_silent) as bookie, transport_to(bookie, channels_per_bookie=2) as outcomes:
        outcomes.submit(add_to(0))
        await until(lambda: len(bookie.received) == 1)
        outcomes.submit(add_to(1))
        await until(lambda: len(bookie.received) == 2)
        assert outcomes.transport.pending_requests("b") == 2
        bookie.connections[0].transport.abort()
        assert await outcomes.wait() == [Code.BOOKIE_NOT_AVAILABLE]
        assert outcomes.all[0][1].ledger_id == 0  # type: ignore[union-attr]
        assert outcomes.transport.pending_requests("b") == 1


async def test_each_connection_has_limits_of_its_own() -> None:
    async with (
        running(keep_silent) as bookie,
        transport_to(bookie, channels_per_bookie=2, max_outstanding_requests=3) as outcomes,
    ):
        for _ in range(4):
            outcomes.submit(add_to(0))
            outcomes.submit(add_to(1))
        assert await outcomes.wait(2) == [Code.TOO_MANY_REQUESTS] * 2
        assert outcomes.transport.pending_requests("b") == 6


@pytest.mark.rule("W-45")
async def test_the_question_for_disk_space_has_a_timeout_of_its_own() -> None:
    async with (
        running(keep_silent) as bookie,
        transport_to(bookie, bookie_info_timeout_s=0.02, read_timeout_s=30.0, add_timeout_s=30.0) as outcomes,
    ):
        outcomes.submit(ReadRequest(1, 0))
        outcomes.submit(BookieInfoRequest(1))
        assert await outcomes.wait() == [Code.TIMEOUT]
        assert isinstance(outcomes.all[0][1], BookieInfoRequest)


class Moving:
    """Tells where a bookie is, and counts how often it was asked."""

    def __init__(self, address: BookieAddress) -> None:
        self.address = address
        self.asked = 0

    async def __call__(self, bookie_id: str) -> BookieAddress:
        self.asked += 1
        return self.address


async def exchange_after_a_move(*, follow: bool) -> tuple[int, Moving]:
    async with running() as old, running() as new:
        where = Moving(old.address)
        config = TcpTransportConfig(follow_bookie_addresses=follow, backoff_initial_s=0.001, backoff_max_s=0.001)
        transport = TcpTransport(where, config, rng=random.Random(1))
        outcomes = Outcomes(transport)
        try:
            outcomes.submit(add_to(0))
            await outcomes.wait()
            await old.stop()
            where.address = new.address
            await asyncio.sleep(0.005)
            outcomes.submit(add_to(0, 1))
            return (await outcomes.wait(2))[1], where
        finally:
            await transport.aclose()


async def test_a_bookie_that_moved_is_found_when_it_is_connected_to_again() -> None:
    code, where = await exchange_after_a_move(follow=True)
    assert code == Code.OK
    assert where.asked == 2


async def test_addresses_that_are_not_followed_are_asked_for_once() -> None:
    code, where = await exchange_after_a_move(follow=False)
    assert code == Code.BOOKIE_NOT_AVAILABLE
    assert where.asked == 1


async def test_an_address_that_could_not_be_found_is_asked_for_again_even_then() -> None:
    async with running() as bookie:
        answers: list[BookieAddress | OSError] = [OSError("not now"), bookie.address]

        async def resolve(bookie_id: str) -> BookieAddress:
            answer = answers.pop(0)
            if isinstance(answer, OSError):
                raise answer
            return answer

        config = TcpTransportConfig(follow_bookie_addresses=False, backoff_initial_s=0.001, backoff_max_s=0.001)
        transport = TcpTransport(resolve, config, rng=random.Random(1))
        outcomes = Outcomes(transport)
        outcomes.submit(add_to(0))
        await outcomes.wait()
        await asyncio.sleep(0.005)
        outcomes.submit(add_to(0))
        assert await outcomes.wait(2) == [Code.BOOKIE_NOT_AVAILABLE, Code.OK]
        await transport.aclose()

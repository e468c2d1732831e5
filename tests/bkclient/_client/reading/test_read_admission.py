"""What may hold a read back before it is sent: connections that take no more, and a rate."""

from __future__ import annotations

import asyncio

import pytest

from bkclient.config import ClientConfig, LimitSettings, TimeoutSettings
from bkclient.errors import ClientClosed, Code, TooManyRequests
from tests.bkclient._client.reading.ledgers import reader_of
from tests.bkclient._client.reading.test_late_reads import now, order_of
from tests.bkclient.fakes import fake_cluster, in_virtual_time


@pytest.mark.rule("R-6")
@in_virtual_time
async def test_a_read_waits_until_one_of_its_bookies_takes_requests() -> None:
    async with fake_cluster(config=ClientConfig(timeouts=TimeoutSettings(backpressure_s=2.0))) as where:
        reader = await reader_of(where)
        where.transport.unwritable.update("abc")
        asyncio.get_running_loop().call_later(0.5, where.transport.unwritable.remove, order_of(reader)[1])
        began = now()

        await reader.read(0)
        assert now() - began == pytest.approx(0.5, abs=0.006)


@pytest.mark.rule("R-6")
@pytest.mark.rule("H-20")
@pytest.mark.parametrize("wait_s", [0, 0.3])
@in_virtual_time
async def test_after_the_wait_requests_to_connections_that_take_none_fail_at_once(wait_s: float) -> None:
    async with fake_cluster(config=ClientConfig(timeouts=TimeoutSettings(backpressure_s=wait_s))) as where:
        reader = await reader_of(where)
        where.transport.unwritable.update("abc")
        began = now()

        with pytest.raises(TooManyRequests):
            await reader.read(0)
        assert now() - began == pytest.approx(wait_s)
        assert where.sent == []


@pytest.mark.rule("R-5")
@in_virtual_time
async def test_a_read_that_waits_for_connections_learns_that_the_client_was_closed() -> None:
    async with fake_cluster(config=ClientConfig(timeouts=TimeoutSettings(backpressure_s=1000.0))) as where:
        reader = await reader_of(where)
        where.transport.unwritable.update("abc")
        reading = asyncio.create_task(reader.read(0))
        await asyncio.sleep(1.0)
        assert not reading.done()
        await where.bk.aclose()
        with pytest.raises(ClientClosed):
            await reading
        assert now() < 2.0


@pytest.mark.rule("R-6")
async def test_without_a_limit_of_time_requests_are_sent_to_any_connection() -> None:
    async with fake_cluster() as where:
        reader = await reader_of(where)
        where.transport.unwritable.update("abc")

        assert (await reader.read(0)).payload == b"0"


@pytest.mark.rule("R-2")
@in_virtual_time
async def test_requests_keep_to_the_rate_further_replicas_included() -> None:
    async with fake_cluster(config=ClientConfig(limits=LimitSettings(throttle_per_s=10))) as where:
        reader = await reader_of(where, 30)
        await asyncio.sleep(5)
        began = now()
        await reader.read_entries(0, 29)
        assert now() - began == pytest.approx(2.0, abs=0.11)

        where.transport.bookies[order_of(reader, 0)[0]].code = Code.NO_SUCH_ENTRY
        await asyncio.sleep(5)
        began = now()
        for _ in range(6):
            await reader.read(0)
        assert now() - began == pytest.approx(0.1, abs=0.11)
        await reader.read(0, parallel=True)
        await reader.read(0)
        assert now() - began == pytest.approx(0.6, abs=0.11)

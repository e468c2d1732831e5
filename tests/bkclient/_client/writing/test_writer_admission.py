"""Writers that are held back by a rate, or by connections that take no more."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from bkclient.config import ClientConfig, LimitSettings, TimeoutSettings, WritingSettings
from bkclient.errors import LedgerClosed, NotEnoughBookies, TooManyRequests
from bkclient.wire.messages import AddRequest
from tests.bkclient.fakes import FakeCluster, advanced_writer_of, fake_cluster, in_virtual_time, writer_of
from tests.bkclient.inside import shell_of
from tests.settling import settled

TEN_A_SECOND = ClientConfig(limits=LimitSettings(throttle_per_s=10))
WAIT_A_SECOND = ClientConfig(timeouts=TimeoutSettings(backpressure_s=1.0))
FAIL_FAST = ClientConfig(timeouts=TimeoutSettings(backpressure_s=0.0))


def now() -> float:
    return asyncio.get_running_loop().time()


def adds_to(where: FakeCluster, bookie_id: str) -> int:
    return sum(to == bookie_id and isinstance(request, AddRequest) for to, request in where.sent)


# The rate -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-4")
@in_virtual_time
async def test_appends_keep_to_the_rate_after_a_burst_of_one_second() -> None:
    async with fake_cluster(config=TEN_A_SECOND) as where, await writer_of(where) as writer:
        began = now()
        for _ in range(30):
            await writer.append(b"x")

        assert 1.9 <= now() - began <= 2.1


@in_virtual_time
async def test_many_producers_share_the_rate_and_reads_of_the_handle_count_too() -> None:
    async with fake_cluster(config=TEN_A_SECOND) as where, await writer_of(where) as writer:
        began = now()
        await asyncio.gather(*(writer.append(b"%d" % number) for number in range(20)))
        assert 0.9 <= now() - began <= 1.1
        for entry_id in range(10):
            await writer.reader.read(entry_id)
        assert 1.9 <= now() - began <= 2.1
        assert len([entry async for entry in writer.reader.read_range(0, 9)]) == 10
        assert 2.8 <= now() - began <= 3.2


@in_virtual_time
async def test_without_a_permit_append_nowait_refuses_and_after_waiting_for_one_it_does_not() -> None:
    async with fake_cluster(config=TEN_A_SECOND) as where, await writer_of(where) as writer:
        for _ in range(10):
            writer.append_nowait(b"x")
        with pytest.raises(TooManyRequests, match="the rate of 10 requests per second"):
            writer.append_nowait(b"x")
        assert where.bk.in_flight_entries == writer.in_flight_entries

        await writer.wait_for_room()
        writer.append_nowait(b"x")
        await writer.flush()


@in_virtual_time
async def test_who_waits_for_a_permit_learns_that_the_writer_has_ended() -> None:
    async with fake_cluster(config=ClientConfig(limits=LimitSettings(throttle_per_s=0.001))) as where:
        writer = await writer_of(where)
        waiting = [asyncio.create_task(writer.append(b"x")) for _ in range(3)]
        await settled()
        began = now()
        await writer.close()
        results = await asyncio.gather(*waiting, return_exceptions=True)

        assert now() - began < 1
        assert LedgerClosed in {type(result) for result in results}


# Connections --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-7")
@pytest.mark.behaviour("T-184")
@pytest.mark.behaviour("T-188")
@in_virtual_time
async def test_a_writer_waits_while_a_connection_takes_no_more() -> None:
    async with fake_cluster(config=WAIT_A_SECOND) as where, await writer_of(where) as writer:
        await writer.append(b"0")
        where.transport.unwritable.add("b")
        began = now()
        waiting = asyncio.create_task(writer.append(b"1"))
        await anyio.sleep(0.5)
        assert writer.last_add_pushed == 0
        with pytest.raises(TooManyRequests, match="takes no more at present"):
            writer.append_nowait(b"does not wait")

        where.transport.unwritable.clear()
        assert await waiting == 1
        assert 0.5 <= now() - began < 0.51


@pytest.mark.rule("W-7")
@pytest.mark.behaviour("T-188")
@in_virtual_time
async def test_waiting_for_a_connection_ends_and_the_entry_goes_without_it() -> None:
    config = ClientConfig(
        timeouts=TimeoutSettings(backpressure_s=1.0), writing=WritingSettings(delay_ensemble_change=True)
    )
    async with fake_cluster(config=config) as where, await writer_of(where) as writer:
        where.transport.unwritable.add("b")
        began = now()
        assert await writer.append(b"0") == 0

        assert 1.0 <= now() - began < 1.1
        assert (adds_to(where, "a"), adds_to(where, "b"), adds_to(where, "c")) == (1, 0, 1)
        where.transport.unwritable.clear()


@pytest.mark.rule("W-7")
@pytest.mark.behaviour("T-185")
async def test_failing_fast_replaces_the_bookie_or_ends_the_writer() -> None:
    async with fake_cluster("abcd", config=FAIL_FAST) as where, await writer_of(where, (3, 3, 3)) as writer:
        stuck = writer.metadata.last_fragment.ensemble[1]
        where.transport.unwritable.add(stuck)
        assert await writer.append(b"0") == 0
        assert adds_to(where, stuck) == 0
        assert stuck not in writer.metadata.last_fragment.ensemble
        where.transport.unwritable.clear()

    async with fake_cluster(config=FAIL_FAST) as where:
        writer = await writer_of(where, (3, 3, 3))
        where.transport.unwritable.add("c")
        with pytest.raises(NotEnoughBookies):
            await writer.append(b"0")


@pytest.mark.behaviour("T-186")
async def test_without_the_setting_connections_are_not_asked() -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        where.transport.unwritable.update("abc")
        for _ in range(100):
            await writer.wait_for_room()
            writer.append_nowait(b"x")
        await writer.flush()

        assert adds_to(where, "a") == 100


@pytest.mark.rule("W-7")
@pytest.mark.behaviour("T-187")
@in_virtual_time
async def test_only_the_write_set_of_the_entry_matters() -> None:
    async with fake_cluster("abcd", config=WAIT_A_SECOND) as where, await writer_of(where, (4, 2, 2)) as writer:
        where.transport.unwritable.add(writer.metadata.last_fragment.ensemble[2])
        began = now()
        assert await writer.append(b"0") == 0  # positions 0 and 1
        assert now() == began

        waiting = asyncio.create_task(writer.append(b"1"))  # positions 1 and 2
        await anyio.sleep(0.2)
        assert not waiting.done()
        where.transport.unwritable.clear()
        assert await waiting == 1


@in_virtual_time
async def test_an_advanced_writer_asks_for_the_bookies_of_the_id_given() -> None:
    async with (
        fake_cluster("abcd", config=WAIT_A_SECOND) as where,
        await advanced_writer_of(where, (4, 2, 2)) as writer,
    ):
        where.transport.unwritable.add(writer.metadata.last_fragment.ensemble[0])
        began = now()
        first = asyncio.create_task(writer.append(0, b"x"))
        second = asyncio.create_task(writer.append(1, b"x"))
        await anyio.sleep(0.2)
        assert writer.last_add_pushed == 1
        where.transport.unwritable.clear()
        await asyncio.gather(first, second)
        assert now() - began < 0.3


@in_virtual_time
async def test_who_waits_for_a_connection_learns_that_the_writer_has_ended() -> None:
    async with fake_cluster(config=ClientConfig(timeouts=TimeoutSettings(backpressure_s=1000))) as where:
        writer = await writer_of(where)
        where.transport.unwritable.add("a")
        waiting = asyncio.create_task(writer.append(b"x"))
        await anyio.sleep(1)
        await writer.close()
        with pytest.raises(LedgerClosed):
            await waiting
        assert now() < 2


@in_virtual_time
async def test_entries_that_may_fail_fast_are_forgotten_once_they_are_done() -> None:
    config = ClientConfig(
        timeouts=TimeoutSettings(backpressure_s=0.0), writing=WritingSettings(delay_ensemble_change=True)
    )
    async with fake_cluster(config=config) as where, await writer_of(where) as writer:
        where.transport.unwritable.add("b")
        for _ in range(50):
            await writer.append(b"x")
        where.transport.unwritable.clear()

        admission = shell_of(writer).admission
        assert admission is not None
        assert len(admission._fail_fast) <= 1


@in_virtual_time
async def test_many_who_are_held_are_looked_after_by_one_timer_and_let_go_together() -> None:
    config = ClientConfig(
        timeouts=TimeoutSettings(backpressure_s=1000), limits=LimitSettings(max_in_flight_entries=2000)
    )
    async with fake_cluster(config=config) as where, await writer_of(where) as writer:
        where.transport.unwritable.add("a")
        loop = asyncio.get_running_loop()
        waiting = [asyncio.create_task(writer.append(b"x")) for _ in range(500)]
        await settled()
        before = getattr(loop, "steps")  # noqa: B009  callbacks of the loop in virtual time
        await anyio.sleep(1)
        assert getattr(loop, "steps") - before < 500  # noqa: B009

        waiting.pop().cancel()
        where.transport.unwritable.clear()
        assert sorted(await asyncio.gather(*waiting)) == list(range(499))


@in_virtual_time
async def test_each_wait_for_a_permit_is_good_for_one_entry() -> None:
    async with fake_cluster(config=TEN_A_SECOND) as where, await writer_of(where) as writer:
        for _ in range(10):
            writer.append_nowait(b"x")
        for _ in range(2):
            await writer.wait_for_room()
        for _ in range(2):
            writer.append_nowait(b"x")
        with pytest.raises(TooManyRequests) as caught:
            writer.append_nowait(b"x")
        assert caught.value.ledger_id == writer.ledger_id


@in_virtual_time
async def test_a_wait_for_a_permit_that_is_cancelled_gives_it_back() -> None:
    async with fake_cluster(config=TEN_A_SECOND) as where, await writer_of(where) as writer:
        for _ in range(10):
            writer.append_nowait(b"x")
        waiting = asyncio.create_task(writer.wait_for_room())
        await settled()
        waiting.cancel()
        await asyncio.sleep(0.101)
        writer.append_nowait(b"x")
        with pytest.raises(TooManyRequests):
            writer.append_nowait(b"x")


@pytest.mark.parametrize("waits", [1, 2, 3])
def test_each_wait_for_connections_that_was_in_vain_is_good_for_one_entry(waits: int) -> None:
    @in_virtual_time
    async def play() -> None:
        config = ClientConfig(
            timeouts=TimeoutSettings(backpressure_s=1.0), writing=WritingSettings(delay_ensemble_change=True)
        )
        async with fake_cluster(config=config) as where, await writer_of(where) as writer:
            where.transport.unwritable.add("b")
            with pytest.raises(TooManyRequests):
                writer.append_nowait(b"nobody waited yet")
            began = now()
            await asyncio.gather(*(writer.wait_for_room() for _ in range(waits)))
            assert now() - began == pytest.approx(1.0, abs=0.01)
            for _ in range(waits):
                writer.append_nowait(b"x")
            with pytest.raises(TooManyRequests) as caught:
                writer.append_nowait(b"one more")
            assert caught.value.message.startswith("a connection to its bookies takes no more at present; ")
            assert caught.value.ledger_id == writer.ledger_id
            where.transport.unwritable.clear()
            await writer.flush()

    play()


@in_virtual_time
async def test_waits_in_vain_are_forgotten_once_a_wait_was_not() -> None:
    config = ClientConfig(
        timeouts=TimeoutSettings(backpressure_s=1.0), writing=WritingSettings(delay_ensemble_change=True)
    )
    async with fake_cluster(config=config) as where, await writer_of(where) as writer:
        where.transport.unwritable.add("b")
        await asyncio.gather(writer.wait_for_room(), writer.wait_for_room())
        where.transport.unwritable.clear()
        await writer.wait_for_room()
        where.transport.unwritable.add("b")
        with pytest.raises(TooManyRequests):
            writer.append_nowait(b"x")
        where.transport.unwritable.clear()

"""What one writer may have in flight, and who may go on when there is room again."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from bkclient import BookKeeper
from bkclient.config import ClientConfig, LimitSettings
from bkclient.errors import (
    ArgumentError,
    Code,
    LedgerFenced,
    TooManyRequests,
)
from tests.bkclient.fakes import fake_cluster, writer_of
from tests.bkclient.inside import shell_of
from tests.settling import settled

TINY_WINDOW = ClientConfig(limits=LimitSettings(max_in_flight_entries=2))


@pytest.mark.rule("W-8")
async def test_without_room_append_nowait_refuses_and_append_waits() -> None:
    async with fake_cluster(config=TINY_WINDOW) as where, await writer_of(where) as writer:
        where.transport.hold("abc")
        futures = [writer.append_nowait(b"0"), writer.append_nowait(b"1")]
        with pytest.raises(TooManyRequests, match="2 entries with 2 bytes"):
            writer.append_nowait(b"2")
        waiting = asyncio.create_task(writer.append(b"2"))
        await settled()
        assert writer.last_add_pushed == 1

        where.transport.release("abc")
        assert await waiting == 2
        assert [future.result() for future in futures] == [0, 1]


@pytest.mark.rule("W-8")
async def test_the_window_is_full_by_bytes_too() -> None:
    async with (
        fake_cluster(config=ClientConfig(limits=LimitSettings(max_in_flight_bytes=10))) as where,
        await writer_of(where) as writer,
    ):
        where.transport.hold("abc")
        writer.append_nowait(b"123456789")
        writer.append_nowait(b"more than fits, but there was room")
        with pytest.raises(TooManyRequests, match="2 entries with 43 bytes"):
            writer.append_nowait(b"x")

        where.transport.release("abc")
        await writer.wait_for_room()
        assert await writer.append(b"x") == 2


@pytest.mark.rule("G3")
async def test_many_producers_never_exceed_the_window_and_all_get_through() -> None:
    async with (
        fake_cluster(config=ClientConfig(limits=LimitSettings(max_in_flight_entries=3))) as where,
        await writer_of(where) as writer,
    ):
        most = 0

        async def produce() -> None:
            nonlocal most
            for _ in range(5):
                await writer.wait_for_room()
                writer.append_nowait(b"x")
                most = max(most, writer.in_flight_entries)

        await asyncio.gather(*(produce() for _ in range(20)))
        await writer.flush()

        assert most == 3
        assert writer.last_add_confirmed == 99


async def test_room_that_the_first_in_line_does_not_use_goes_to_the_next() -> None:
    async with (
        fake_cluster(config=ClientConfig(limits=LimitSettings(max_in_flight_entries=1))) as where,
        await writer_of(where) as writer,
    ):
        where.transport.hold("abc")
        writer.append_nowait(b"0")
        refused = asyncio.create_task(writer.append("not bytes"))  # type: ignore[arg-type]
        idle = asyncio.create_task(writer.wait_for_room())
        accepted = asyncio.create_task(writer.append(b"1"))
        await settled()

        where.transport.release("abc")
        async with asyncio.timeout(5):
            assert await accepted == 1
            await idle
        with pytest.raises(ArgumentError):
            await refused


async def test_room_for_several_goes_to_several() -> None:
    async with (
        fake_cluster(config=ClientConfig(limits=LimitSettings(max_in_flight_bytes=10))) as where,
        await writer_of(where) as writer,
    ):
        where.transport.hold("abc")
        writer.append_nowait(bytes(10))
        small = [asyncio.create_task(writer.append(b"x")) for _ in range(5)]
        await settled()
        assert writer.last_add_pushed == 0

        where.transport.release("abc")
        where.transport.hold("abc")
        await settled()

        assert writer.last_add_pushed == 5
        where.transport.release("abc")
        assert sorted(await asyncio.gather(*small)) == [1, 2, 3, 4, 5]


async def test_who_waits_goes_on_when_a_quarter_of_the_window_is_free() -> None:
    async with (
        fake_cluster(config=ClientConfig(limits=LimitSettings(max_in_flight_entries=8))) as where,
        await writer_of(where, (1, 1, 1)) as writer,
    ):
        where.transport.hold("abc")
        for _ in range(8):
            writer.append_nowait(b"x")
        waiting = [asyncio.create_task(writer.append(b"x")) for _ in range(3)]
        await settled()

        where.transport.answer_first(1)
        await settled()
        assert writer.last_add_pushed == 7
        where.transport.answer_first(1)
        await settled()
        assert writer.last_add_pushed == 9  # the room of both, at once

        where.transport.release("abc")
        assert await asyncio.gather(*waiting) == [8, 9, 10]


async def test_a_waiter_that_is_cancelled_when_its_turn_has_come_passes_it_on() -> None:
    async with (
        fake_cluster(config=ClientConfig(limits=LimitSettings(max_in_flight_entries=1))) as where,
        await writer_of(where) as writer,
    ):
        where.transport.hold("abc")
        writer.append_nowait(b"0")
        first = asyncio.create_task(writer.append(b"lost turn"))
        second = asyncio.create_task(writer.append(b"1"))
        await settled()

        where.transport.release("abc")  # the first waiter is woken, but has not run yet
        first.cancel()
        async with asyncio.timeout(5):
            assert await second == 1
        assert first.cancelled()


async def test_a_waiter_that_is_cancelled_in_the_moment_the_writer_fails_is_passed_over() -> None:
    async with fake_cluster(config=ClientConfig(limits=LimitSettings(max_in_flight_entries=1))) as where:
        writer = await writer_of(where)
        where.transport.hold("abc")
        in_flight = writer.append_nowait(b"0")
        waiting = [asyncio.create_task(writer.append(b"x")) for _ in range(3)]
        await settled()
        waiting[1].cancel()

        where.transport.release("abc", Code.LEDGER_FENCED)
        results = await asyncio.gather(*waiting, return_exceptions=True)

        assert [type(result) for result in results] == [LedgerFenced, asyncio.CancelledError, LedgerFenced]
        assert isinstance(in_flight.exception(), LedgerFenced)


async def test_waiters_that_give_up_are_forgotten() -> None:
    async with (
        fake_cluster(config=ClientConfig(limits=LimitSettings(max_in_flight_entries=1))) as where,
        await writer_of(where) as writer,
    ):
        where.transport.hold("abc")
        writer.append_nowait(b"0")
        for _ in range(10):
            waiter = asyncio.create_task(writer.wait_for_room())
            await settled()
            waiter.cancel()
            await settled()

        assert len(shell_of(writer).window.waiters) == 0
        where.transport.release("abc")


@pytest.mark.rule("W-42")
async def test_whoever_waits_for_room_learns_that_the_writer_has_ended() -> None:
    async with fake_cluster(config=TINY_WINDOW) as where:
        writer = await writer_of(where)
        where.transport.hold("abc")
        in_flight = [writer.append_nowait(b"x") for _ in range(2)]
        waiting = [asyncio.create_task(writer.append(b"x")) for _ in range(5)]
        await settled()

        where.transport.release("abc", Code.LEDGER_FENCED)
        results = await asyncio.gather(*waiting, return_exceptions=True)

        assert {type(result) for result in results} == {LedgerFenced}
        assert {type(future.exception()) for future in in_flight} == {LedgerFenced}
        await writer.wait_for_room()  # returns, for append to refuse


@pytest.mark.parametrize(("payload", "entries"), [(b"x", 300), (bytes(100_000), 20)])
async def test_a_producer_that_never_waits_lets_the_loop_turn_now_and_then(payload: bytes, entries: int) -> None:
    async with fake_cluster() as where, await writer_of(where) as writer:
        turned = False

        def note() -> None:
            nonlocal turned
            turned = True

        asyncio.get_running_loop().call_soon(note)
        for _ in range(entries):
            await writer.wait_for_room()
            writer.append_nowait(payload)

        assert turned


@pytest.mark.rule("H-13")
async def test_a_writer_and_its_client_tell_how_much_is_in_flight() -> None:
    async with fake_cluster() as where:
        first, second = await writer_of(where), await writer_of(where)
        assert (where.bk.in_flight_entries, where.bk.in_flight_bytes) == (0, 0)
        where.transport.hold("abc")
        first.append_nowait(b"four")
        first.append_nowait(b"")
        second.append_nowait(b"eleven byte")
        assert [(w.in_flight_entries, w.in_flight_bytes) for w in (first, second)] == [(2, 4), (1, 11)]
        assert (where.bk.in_flight_entries, where.bk.in_flight_bytes) == (3, 15)
        where.transport.release("abc")
        await first.flush()
        await second.flush()
        assert (where.bk.in_flight_entries, where.bk.in_flight_bytes) == (0, 0)
    assert BookKeeper(where.store, where.transport, rng=Random(1)).in_flight_entries == 0

"""The life of a client: what leaves its block, what happens to what is in flight, and what a closed client still does."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

import bkclient
from bkclient import BookKeeper
from bkclient.errors import (
    ArgumentError,
    BookKeeperError,
    ClientClosed,
    LedgerClosed,
    NoSuchLedger,
    NotEnoughBookies,
)
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.transport.tcp import TcpTransport
from tests.end_to_end.loopback import NewLoopback


async def test_an_error_leaves_the_block_of_a_client_as_what_it_is(new_loopback: NewLoopback) -> None:
    async with new_loopback() as loopback:
        with pytest.raises(NotEnoughBookies, match="6 is wanted"):
            async with bkclient.connect(loopback.uri) as client:
                await client.create_ledger(ensemble_size=6, write_quorum_size=2, ack_quorum_size=2)
        with pytest.raises(KeyError, match="mine"):
            async with bkclient.connect(loopback.uri):
                raise KeyError("mine")
        own_group = ExceptionGroup("mine", [ValueError("one"), ValueError("two")])
        with pytest.raises(ExceptionGroup) as caught:
            async with bkclient.connect(loopback.uri):
                raise own_group
        assert caught.value is own_group


async def test_a_cancelled_block_ends_with_the_cancellation_alone(new_loopback: NewLoopback) -> None:
    async with new_loopback() as loopback:
        entered = asyncio.Event()

        async def work() -> None:
            async with bkclient.connect(loopback.uri) as client:
                await client.create_ledger()
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_what_is_in_flight_when_the_client_closes_ends_with_client_closed_and_the_ledger_stays_open(
    new_loopback: NewLoopback,
) -> None:
    async with new_loopback(3, journal_sync_s=30.0) as loopback:
        async with bkclient.connect(loopback.uri) as client:
            writer = await client.create_ledger()
            appends = [asyncio.create_task(writer.append(b"%d" % i)) for i in range(20)]
            flush = asyncio.create_task(writer.flush())
            futures = [writer.append_nowait(b"x") for _ in range(5)]
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*appends, flush, *futures, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ClientClosed] * 26
        with pytest.raises(ClientClosed):
            writer.append_nowait(b"late")
        with pytest.raises(ClientClosed, match="still open"):
            await writer.close()
        other = await loopback.client()
        assert not (await other.ledger_metadata(writer.ledger_id)).is_closed


async def test_reads_and_calls_of_a_closed_client_are_refused(new_loopback: NewLoopback) -> None:
    async with new_loopback() as loopback:
        async with bkclient.connect(loopback.uri) as client:
            async with await client.create_ledger() as writer:
                await writer.append(b"one")
            reader = await client.open_ledger(writer.ledger_id, recover=True)
        with pytest.raises(ClientClosed):
            await reader.read(0)
        with pytest.raises(ClientClosed):
            [entry async for entry in reader]
        with pytest.raises(ClientClosed):
            await client.create_ledger()
        with pytest.raises(ClientClosed):
            await client.open_ledger(writer.ledger_id, recover=True)
        with pytest.raises(ClientClosed):
            client.list_ledgers()


async def test_leaving_the_block_of_a_writer_flushes_and_closes_it(new_loopback: NewLoopback) -> None:
    async with new_loopback() as loopback:
        client = await loopback.client()
        async with await client.create_ledger() as writer:
            futures = [writer.append_nowait(b"%d" % i) for i in range(100)]
        assert [future.result() for future in futures] == list(range(100))
        metadata = await client.ledger_metadata(writer.ledger_id)
        assert metadata.is_closed
        assert metadata.last_entry_id == 99
        with pytest.raises(LedgerClosed):
            await writer.append(b"late")
        await writer.close()


async def test_leaving_the_block_of_a_writer_by_an_error_closes_it_at_the_last_confirmed_entry(
    new_loopback: NewLoopback,
) -> None:
    async with new_loopback(3, journal_sync_s=0.02) as loopback:
        client = await loopback.client()
        writer = await client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3)
        await writer.append(b"confirmed")
        in_flight = writer.append_nowait(b"in flight")
        with pytest.raises(ZeroDivisionError):
            async with writer:
                raise ZeroDivisionError
        assert isinstance(in_flight.exception(), LedgerClosed)
        reader = await (await loopback.client()).open_ledger(writer.ledger_id, recover=True)
        assert [entry.payload async for entry in reader] == [b"confirmed"]
        assert reader.length == len(b"confirmed")


async def test_cancelled_appends_leave_the_writer_intact_and_their_entries_in_order(new_loopback: NewLoopback) -> None:
    async with new_loopback() as loopback:
        client = await loopback.client(limits={"max_in_flight_entries": 8})
        random = Random(5)
        async with await client.create_ledger(ensemble_size=4, write_quorum_size=3, ack_quorum_size=2) as writer:
            tasks = [asyncio.create_task(writer.append(b"%d" % i)) for i in range(400)]
            for task in tasks:
                if random.random() < 0.3:
                    task.cancel()
                if random.random() < 0.2:
                    await asyncio.sleep(0)
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            last = await writer.append(b"last")
        confirmed = {outcome: b"%d" % i for i, outcome in enumerate(outcomes) if isinstance(outcome, int)}
        cancelled = {b"%d" % i for i, outcome in enumerate(outcomes) if isinstance(outcome, asyncio.CancelledError)}
        assert confirmed
        assert cancelled
        assert len(confirmed) + len(cancelled) == 400
        reader = await client.open_ledger(writer.ledger_id, recover=True)
        payloads = [entry.payload async for entry in reader]
        assert reader.last_add_confirmed == last
        assert payloads[-1] == b"last"
        for entry_id, payload in enumerate(payloads[:-1]):
            assert confirmed.get(entry_id, payload) == payload
            assert entry_id in confirmed or payload in cancelled


async def test_a_cancelled_close_goes_on_in_the_background_and_every_close_tells_its_outcome(
    new_loopback: NewLoopback,
) -> None:
    async with new_loopback() as loopback:
        client = await loopback.client()
        writer = await client.create_ledger()
        await writer.append(b"one")
        closes = [asyncio.create_task(writer.close()) for _ in range(5)]
        await asyncio.sleep(0)
        for close in closes[:3]:
            close.cancel()
        outcomes = await asyncio.gather(*closes, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 3 + [type(None)] * 2
        assert (await client.ledger_metadata(writer.ledger_id)).last_entry_id == 0


async def test_a_cancelled_flush_and_a_cancelled_wait_for_room_wake_nobody_wrongly(new_loopback: NewLoopback) -> None:
    async with new_loopback(3, journal_sync_s=0.01) as loopback:
        client = await loopback.client(limits={"max_in_flight_entries": 4})
        async with await client.create_ledger() as writer:
            for i in range(4):
                writer.append_nowait(b"%d" % i)
            waits = [asyncio.create_task(writer.wait_for_room()) for _ in range(6)]
            flushes = [asyncio.create_task(writer.flush()) for _ in range(3)]
            await asyncio.sleep(0)
            for task in (*waits[::2], flushes[0]):
                task.cancel()
            appends = [asyncio.create_task(writer.append(b"more")) for _ in range(20)]
            await asyncio.gather(*waits, *flushes, return_exceptions=True)
            assert sorted(await asyncio.gather(*appends)) == list(range(4, 24))
            assert all(task.cancelled() for task in (*waits[::2], flushes[0]))
            assert not any(task.cancelled() for task in (*waits[1::2], *flushes[1:]))


@pytest.mark.rule("DEL-1")
@pytest.mark.rule("DEL-2")
@pytest.mark.behaviour("T-30")
@pytest.mark.behaviour("T-31")
async def test_a_deleted_ledger_is_gone_for_everybody_and_deleting_it_again_is_no_error(
    new_loopback: NewLoopback,
) -> None:
    async with new_loopback() as loopback:
        client, other = await loopback.client(), await loopback.client()
        ids = []
        for _ in range(3):
            async with await client.create_ledger() as writer:
                await writer.append(b"x")
            ids.append(writer.ledger_id)
        assert [ledger_id async for ledger_id in other.list_ledgers()] == ids
        await other.delete_ledger(ids[1])
        await client.delete_ledger(ids[1])
        assert [ledger_id async for ledger_id in client.list_ledgers()] == [ids[0], ids[2]]
        with pytest.raises(NoSuchLedger):
            await client.open_ledger(ids[1], recover=True)
        with pytest.raises(NoSuchLedger):
            await client.ledger_metadata(ids[1])


async def test_a_client_can_be_used_inside_its_block_only_and_entered_once() -> None:
    store = MemoryMetadataService().session(rng=Random(1))
    client = BookKeeper(store, TcpTransport(store.bookie_address, rng=Random(1)))
    with pytest.raises(ArgumentError, match="async with"):
        await client.create_ledger()
    async with client:
        with pytest.raises(ArgumentError, match="entered once"):
            await client.__aenter__()
        assert not (await client.bookies()).writable
    with pytest.raises(ArgumentError):
        await client.__aenter__()
    with pytest.raises(BookKeeperError):
        await client.bookies()
    await store.aclose()

"""Bookies die, come back, or stop answering under a writer and under readers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from bkclient import BookKeeper, LedgerWriter
from bkclient.errors import BookieNotAvailable, NotEnoughBookies
from simbookie.storage.base import CrashMode
from tests.end_to_end.loopback import NewLoopback


async def append_many(writer: LedgerWriter, first: int, count: int) -> None:
    for entry_id in range(first, first + count):
        await writer.wait_for_room()
        writer.append_nowait(b"entry %d" % entry_id)


async def assert_all_there(client: BookKeeper, ledger_id: int, count: int) -> None:
    reader = await client.open_ledger(ledger_id, recover=True)
    payloads = [entry.payload async for entry in reader]
    assert payloads == [b"entry %d" % entry_id for entry_id in range(count)]


@pytest.mark.parametrize("sizes", [(3, 3, 2), (3, 2, 2), (4, 3, 2), (2, 2, 2), (3, 3, 3)])
def test_a_bookie_killed_in_mid_write_is_replaced_and_everything_is_readable(
    new_loopback: NewLoopback, loop_factory: Callable[[], asyncio.AbstractEventLoop], sizes: tuple[int, int, int]
) -> None:
    async def story() -> None:
        async with new_loopback(6) as loopback:
            client = await loopback.client()
            ensemble_size, write_quorum_size, ack_quorum_size = sizes
            writer = await client.create_ledger(
                ensemble_size=ensemble_size, write_quorum_size=write_quorum_size, ack_quorum_size=ack_quorum_size
            )
            async with writer:
                await append_many(writer, 0, 200)
                await writer.flush()
                await append_many(writer, 200, 300)  # in flight
                victim = writer.metadata.last_fragment.ensemble[1]
                await loopback.cluster.kill(victim, CrashMode.POWER_LOSS)
                await append_many(writer, 500, 500)
                await writer.flush()
                # a bookie that is needed for no ack quorum may fail unnoticed until the next append
                await writer.append(b"entry 1000")
            fragments = writer.metadata.fragments
            assert len(fragments) == 2
            assert victim in fragments[0].ensemble
            assert victim not in fragments[1].ensemble
            assert writer.metadata == await client.ledger_metadata(writer.ledger_id)
            await assert_all_there(await loopback.client(), writer.ledger_id, 1001)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(story())


async def test_bookies_dying_one_after_the_other_leave_a_fragment_each(new_loopback: NewLoopback) -> None:
    async with new_loopback(7) as loopback:
        client = await loopback.client()
        async with await client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2) as writer:
            victims = []
            for turn in range(4):
                await append_many(writer, turn * 100, 100)
                await writer.flush()
                victims.append(writer.metadata.last_fragment.ensemble[turn % 3])
                await loopback.cluster.kill(victims[-1])
            await append_many(writer, 400, 100)
        starts = [fragment.first_entry_id for fragment in writer.metadata.fragments]
        assert len(starts) == 5
        assert all(100 * turn <= start <= 100 * turn + 100 for turn, start in enumerate(starts))
        for victim in victims:
            await loopback.cluster.restart(victim)
        await assert_all_there(await loopback.client(), writer.ledger_id, 500)


async def test_two_bookies_dying_at_once_are_replaced_together(new_loopback: NewLoopback) -> None:
    async with new_loopback(6) as loopback:
        client = await loopback.client()
        async with await client.create_ledger(ensemble_size=4, write_quorum_size=3, ack_quorum_size=2) as writer:
            await append_many(writer, 0, 200)
            victims = writer.metadata.last_fragment.ensemble[:2]
            for victim in victims:
                await loopback.cluster.kill(victim)
            await append_many(writer, 200, 200)
        assert not set(victims) & set(writer.metadata.last_fragment.ensemble)
        await assert_all_there(await loopback.client(), writer.ledger_id, 400)


async def test_a_bookie_that_cannot_be_replaced_ends_the_writer_with_a_typed_error_and_loses_nothing(
    new_loopback: NewLoopback,
) -> None:
    async with new_loopback(3) as loopback:
        client = await loopback.client()
        writer = await client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3)
        await append_many(writer, 0, 50)
        await writer.flush()
        victim = writer.metadata.last_fragment.ensemble[0]
        await loopback.cluster.kill(victim)
        with pytest.raises(NotEnoughBookies) as failed:
            await writer.append(b"entry 50")
        assert failed.value.ledger_id == writer.ledger_id
        assert failed.value.entry_id == 50
        assert victim in str(failed.value)
        assert isinstance(failed.value.__cause__, BookieNotAvailable)
        assert failed.value.__cause__.bookie_id == victim
        with pytest.raises(NotEnoughBookies):
            await writer.append(b"no more")
        await writer.close()
        with pytest.raises(NotEnoughBookies):
            writer.append_nowait(b"no more")
        await assert_all_there(await loopback.client(), writer.ledger_id, 50)


async def test_a_closed_ledger_is_read_from_whoever_is_left(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        client = await loopback.client()
        async with await client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2) as writer:
            await append_many(writer, 0, 90)
        ensemble = writer.metadata.last_fragment.ensemble
        reading = await loopback.client()
        for victim in ensemble[:2]:
            await loopback.cluster.kill(victim)
            await assert_all_there(reading, writer.ledger_id, 90)
        await loopback.cluster.kill(ensemble[2])
        reader = await reading.open_ledger(writer.ledger_id, recover=True)
        with pytest.raises(BookieNotAvailable) as failed:
            await reader.read(5)
        assert (failed.value.ledger_id, failed.value.entry_id) == (writer.ledger_id, 5)
        for victim in ensemble:
            await loopback.cluster.restart(victim)
        await retried(lambda: assert_all_there(reading, writer.ledger_id, 90))


async def retried(attempt: Callable[[], Awaitable[None]]) -> None:
    """The client backs off from a bookie it could not reach, so the first attempts may still fail."""
    async with asyncio.timeout(20):
        while True:
            try:
                await attempt()
            except BookieNotAvailable:
                await asyncio.sleep(0.05)
            else:
                return


async def test_a_cut_read_ahead_fails_the_iteration_once_and_the_reader_goes_on(new_loopback: NewLoopback) -> None:
    async with new_loopback(1) as loopback:
        client = await loopback.client(reading={"read_ahead_entries": 16})
        async with await client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1) as writer:
            await append_many(writer, 0, 200)
        reader = await client.open_ledger(writer.ledger_id, recover=True)
        seen = 0
        with suppress(BookieNotAvailable):
            async for _ in reader:
                seen += 1
                if seen == 50:
                    await loopback.cluster.kill(loopback.cluster.bookie_ids[0])
        assert 50 <= seen <= 50 + 16
        await loopback.cluster.restart(loopback.cluster.bookie_ids[0])
        await retried(lambda: assert_all_there(client, writer.ledger_id, 200))


async def test_a_read_only_bookie_gets_no_new_ledger_and_serves_the_old_ones(new_loopback: NewLoopback) -> None:
    async with new_loopback(4) as loopback:
        client = await loopback.client()
        async with await client.create_ledger(ensemble_size=4, write_quorum_size=4, ack_quorum_size=4) as writer:
            await append_many(writer, 0, 20)
        full = loopback.cluster.bookie_ids[0]
        loopback.cluster.bookie(full).set_read_only(True)
        async with asyncio.timeout(10):
            while full in (await client.bookies()).writable:  # noqa: ASYNC110  its registration follows
                await asyncio.sleep(0)
        with pytest.raises(NotEnoughBookies):
            await client.create_ledger(ensemble_size=4)
        await assert_all_there(client, writer.ledger_id, 20)

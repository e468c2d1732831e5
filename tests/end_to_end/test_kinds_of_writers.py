"""Writers of every kind over real TCP: entry ids from outside, deferred sync, and the LAC told besides entries."""

from __future__ import annotations

import asyncio
import random

import pytest

from bkclient import BookKeeper, DigestType, LedgerReader
from bkclient.errors import BookieNotAvailable, BookKeeperError, IllegalOperation, LedgerFenced, WriteFailed
from simbookie.storage.base import CrashMode
from tests.end_to_end.loopback import Loopback, NewLoopback

#: Long enough for a busy machine; what is waited for takes a few milliseconds.
PATIENCE_S = 20.0


async def contents(client: BookKeeper, ledger_id: int, **options: bytes) -> list[bytes]:
    reader = await client.open_ledger(ledger_id, password=options.get("password", b""), recover=True)
    return [entry.payload async for entry in reader]


# Entry ids from outside ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("T-56")
@pytest.mark.behaviour("T-61")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("digest_type", list(DigestType), ids=lambda digest_type: digest_type.name)
async def test_entries_written_out_of_order_read_back_in_order(
    new_loopback: NewLoopback, version: int, digest_type: DigestType
) -> None:
    async with new_loopback() as loopback:
        client, other = await loopback.client(connections={"protocol_version": version}), await loopback.client()
        ids = list(range(300))
        random.Random(version).shuffle(ids)
        writer = await client.create_advanced_ledger(
            ensemble_size=5, write_quorum_size=3, digest_type=digest_type, password=b"p", ledger_id=4711
        )
        async with writer:
            for entry_id in ids:
                await writer.wait_for_room(entry_id)
                writer.append_nowait(entry_id, b"entry %d" % entry_id)
        assert await contents(other, 4711, password=b"p") == [b"entry %d" % entry_id for entry_id in range(300)]


@pytest.mark.behaviour("T-67")
async def test_a_bookie_that_dies_costs_an_advanced_writer_nothing(new_loopback: NewLoopback) -> None:
    async with new_loopback(6) as loopback:
        client = await loopback.client()
        ids = list(range(500))
        random.Random(1).shuffle(ids)
        writer = await client.create_advanced_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        async with writer:
            for count, entry_id in enumerate(ids):
                await writer.wait_for_room(entry_id)
                writer.append_nowait(entry_id, b"entry %d" % entry_id)
                if count == 250:
                    await loopback.cluster.kill(writer.metadata.last_fragment.ensemble[1])
        assert await contents(await loopback.client(), writer.ledger_id) == [b"entry %d" % i for i in range(500)]


@pytest.mark.behaviour("T-64")
async def test_one_id_is_created_deleted_and_created_again(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        client = await loopback.client()
        for turn in range(5):
            # bookies still hold the entry of the life before, until they collect it
            async with await client.create_advanced_ledger(ledger_id=1000) as writer:
                await writer.append(0, b"turn %d" % turn)
            assert await contents(client, writer.ledger_id) == [b"turn %d" % turn]
            await client.delete_ledger(writer.ledger_id)


# Deferred sync ------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("T-167")
@pytest.mark.behaviour("T-168")
async def test_entries_are_acknowledged_before_the_disk_has_them_and_durable_after_the_force(
    new_loopback: NewLoopback,
) -> None:
    async with new_loopback(3, journal_sync_s=0.05) as loopback:
        client = await loopback.client()
        loop = asyncio.get_running_loop()
        async with await client.create_ledger(write_quorum_size=3, deferred_sync=True) as writer:
            began = loop.time()
            for _ in range(20):
                await writer.append(b"x")
            assert loop.time() - began < 20 * 0.05  # nobody waited for twenty syncs
            assert (writer.last_add_confirmed, writer.last_add_acknowledged) == (-1, 19)
            await writer.force()
            assert writer.last_add_confirmed == 19
            for bookie_id in writer.metadata.last_fragment.ensemble:
                await loopback.cluster.kill(bookie_id, CrashMode.POWER_LOSS)
                await loopback.cluster.restart(bookie_id)
        reader = await opened(await loopback.client(), writer.ledger_id)
        assert [entry.payload async for entry in reader] == [b"x"] * 20


async def opened(client: BookKeeper, ledger_id: int, *, recover: bool = True) -> LedgerReader:
    """The client backs off from bookies that were away, so the first attempts may fail."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await client.open_ledger(ledger_id, recover=recover)
            except BookKeeperError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.05)


@pytest.mark.behaviour("T-170")
async def test_force_fails_while_a_bookie_is_away_and_succeeds_when_it_is_back(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        client = await loopback.client()
        writer = await client.create_ledger(write_quorum_size=3, deferred_sync=True)
        await writer.append(b"x")
        away = writer.metadata.last_fragment.ensemble[1]
        await loopback.cluster.kill(away)
        with pytest.raises(BookieNotAvailable) as failed:
            await writer.force()
        assert failed.value.bookie_id == away
        assert writer.last_add_confirmed == -1
        await loopback.cluster.restart(away)
        async with asyncio.timeout(PATIENCE_S):
            while writer.last_add_confirmed < 0:
                try:
                    await writer.force()
                except BookieNotAvailable:
                    await asyncio.sleep(0.05)
        await writer.close()
        assert await contents(client, writer.ledger_id) == [b"x"]


@pytest.mark.rule("W-27")
@pytest.mark.behaviour("T-172")
async def test_a_bookie_that_dies_ends_a_writer_with_deferred_sync(new_loopback: NewLoopback) -> None:
    async with new_loopback(4) as loopback:
        client = await loopback.client()
        writer = await client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3, deferred_sync=True)
        await writer.append(b"x")
        await loopback.cluster.kill(writer.metadata.last_fragment.ensemble[0])
        with pytest.raises(WriteFailed):
            await writer.append(b"y")
        await writer.close()
        assert len((await client.ledger_metadata(writer.ledger_id)).fragments) == 1


@pytest.mark.behaviour("T-175")
async def test_a_takeover_finds_everything_that_was_not_forced(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        client = await loopback.client()
        writer = await client.create_ledger(write_quorum_size=3, deferred_sync=True)
        for number in range(50):
            await writer.append(b"entry %d" % number)
        assert await contents(await loopback.client(), writer.ledger_id) == [
            b"entry %d" % number for number in range(50)
        ]
        with pytest.raises(LedgerFenced):
            await writer.append(b"late")


@pytest.mark.rule("LAC-14")
async def test_over_version_2_there_is_neither_deferred_sync_nor_force(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        client = await loopback.client(connections={"protocol_version": 2})
        with pytest.raises(IllegalOperation):
            await client.create_ledger(deferred_sync=True)
        async with await client.create_ledger() as writer:
            await writer.append(b"x")
            with pytest.raises(IllegalOperation):
                await writer.force()


# The LAC besides entries --------------------------------------------------------------------------------------------


async def tail_that_knows(client: BookKeeper, ledger_id: int, last: int) -> LedgerReader:
    """A tailing reader, once the bookies tell of ``last``."""
    reader = await client.open_ledger(ledger_id, recover=False)
    async with asyncio.timeout(PATIENCE_S):
        while await reader.read_last_add_confirmed() < last:  # noqa: ASYNC110  another client tells
            await asyncio.sleep(0.005)
    return reader


@pytest.mark.rule("LAC-2")
@pytest.mark.behaviour("T-157")
async def test_without_explicit_lacs_a_reader_stays_one_entry_behind(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        client = await loopback.client(writing={"explicit_lac_interval_s": 0})
        async with await client.create_ledger(write_quorum_size=3) as writer:
            for _ in range(10):
                await writer.append(b"x")
            await asyncio.sleep(0.03)
            reader = await client.open_ledger(writer.ledger_id, recover=False)
            assert await reader.read_last_add_confirmed() == 8
            await writer.write_explicit_lac()
            assert await reader.read_last_add_confirmed() == 9


@pytest.mark.rule("LAC-5")
@pytest.mark.rule("LAC-10")
@pytest.mark.behaviour("T-158")
@pytest.mark.behaviour("T-161")
@pytest.mark.behaviour("T-162")
@pytest.mark.parametrize("version", [2, 3])
async def test_a_reader_reaches_the_last_entry_of_an_idle_writer(new_loopback: NewLoopback, version: int) -> None:
    async with new_loopback(5) as loopback:
        client = await loopback.client(
            writing={"explicit_lac_interval_s": 0.01}, connections={"protocol_version": version}
        )
        other = await loopback.client()
        async with await client.create_ledger(ensemble_size=5, write_quorum_size=3) as writer:
            for number in range(10):
                await writer.append(b"entry %d" % number)
            reader = await tail_that_knows(other, writer.ledger_id, 9)
            assert (await reader.read(9)).payload == b"entry 9"
            await writer.append(b"entry 10")
            assert (await (await tail_that_knows(other, writer.ledger_id, 10)).read(10)).payload == b"entry 10"


@pytest.mark.behaviour("T-159")
async def test_an_explicit_lac_outlives_a_restart_of_the_bookies(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        client = await loopback.client()
        writer = await client.create_ledger(write_quorum_size=3)
        for _ in range(3):
            await writer.append(b"x")
        assert await writer.write_explicit_lac() == 2
        await restart_all(loopback)
        reader = await opened(await loopback.client(), writer.ledger_id, recover=False)
        assert reader.last_add_confirmed == 2


async def restart_all(loopback: Loopback) -> None:
    for bookie_id in loopback.cluster.bookie_ids:
        await loopback.cluster.kill(bookie_id)
        await loopback.cluster.restart(bookie_id)


@pytest.mark.behaviour("T-160")
async def test_with_deferred_sync_a_reader_reaches_what_was_forced(new_loopback: NewLoopback) -> None:
    async with new_loopback(3) as loopback:
        client = await loopback.client(writing={"explicit_lac_interval_s": 0.01})
        async with await client.create_ledger(write_quorum_size=3, deferred_sync=True) as writer:
            for _ in range(5):
                await writer.append(b"x")
            await asyncio.sleep(0.05)
            other = await loopback.client()
            assert (await other.open_ledger(writer.ledger_id, recover=False)).last_add_confirmed == -1
            await writer.force()
            reader = await tail_that_knows(other, writer.ledger_id, 4)
            assert (await reader.read(4)).payload == b"x"

"""Tails that somebody else ends: another task closes the tail or its reader, or the ledger goes away under it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bkclient import LedgerWriter
from bkclient._client.reading.tail import LedgerTail
from bkclient.config import ClientConfig, LimitSettings
from bkclient.errors import IllegalOperation, NoSuchLedger, UnexpectedCondition
from bkclient.ledger import LedgerMetadata
from tests.bkclient.fakes import FakeCluster, fake_cluster, in_virtual_time, writer_of
from tests.bkclient.virtual_cluster import VirtualCluster, now, run_in_cluster
from tests.settling import settled


async def rest_of(tail: LedgerTail) -> list[int]:
    return [entry.entry_id async for entry in tail]


async def filled(where: FakeCluster, entries: int = 4) -> LedgerWriter:
    writer = await writer_of(where)
    for number in range(entries):
        await writer.append(b"%d" % number)
    return writer


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("after_s", [0.0, 0.0005, 0.002, 0.3])
def test_who_waits_for_an_entry_of_a_tail_that_is_closed_meanwhile_is_told_that_there_is_none(
    version: int, after_s: float
) -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=2, connections={"protocol_version": version}) as (_, reader):
            tail = reader.tail()
            following = asyncio.ensure_future(rest_of(tail))
            await asyncio.sleep(after_s)
            began = now()
            await tail.aclose()
            seen = await following
            assert seen == list(range(len(seen)))
            assert now() - began < 0.01
            assert await rest_of(tail) == []

    run_in_cluster(program)


@in_virtual_time
async def test_a_tail_that_is_closed_while_it_reads_asks_for_nothing_more() -> None:
    async with fake_cluster() as where:
        await (writer := await filled(where)).close()
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        where.transport.hold("abc")
        tail = reader.tail()
        following = asyncio.ensure_future(rest_of(tail))
        await settled()
        await tail.aclose()
        assert await following == []
        where.sent.clear()
        where.transport.release("abc")
        await asyncio.sleep(10)
        assert where.sent == []


@in_virtual_time
async def test_a_tail_that_is_closed_while_the_rate_holds_it_back_sends_nothing() -> None:
    async with fake_cluster(config=ClientConfig(limits=LimitSettings(throttle_per_s=1))) as where:
        await (writer := await filled(where, 1)).close()
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        await reader.read(0)
        where.sent.clear()
        tail = reader.tail()
        following = asyncio.ensure_future(rest_of(tail))
        await settled()
        await tail.aclose()
        assert await following == []
        assert where.sent == []


def test_a_tail_that_is_closed_while_it_pauses_ends_at_once() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.ledger(entries=1) as (_, reader):
            for bookie_id in cluster.bookies:
                cluster.cut(bookie_id)
            tail = reader.tail()
            following = asyncio.ensure_future(rest_of(tail))
            await asyncio.sleep(40)  # timeouts, and pauses that have grown long
            began = now()
            await tail.aclose()
            assert await following == []
            assert now() == began

    run_in_cluster(program)


def test_who_waits_learns_at_once_that_the_ledger_was_deleted_or_the_reader_closed() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.client() as client, cluster.ledger(entries=1) as (writer, reader):
            tails = [reader.tail(), reader.tail()]
            following = [asyncio.ensure_future(rest_of(tail)) for tail in tails]
            await asyncio.sleep(3)
            began = now()
            await reader.aclose()
            for task in following:
                with pytest.raises(IllegalOperation, match="the reader is closed"):
                    await task
            assert now() == began

            other = await client.open_ledger(writer.ledger_id, recover=False)
            waiting = asyncio.ensure_future(rest_of(other.tail()))
            await asyncio.sleep(3)
            began = now()
            await client.delete_ledger(writer.ledger_id)
            with pytest.raises(NoSuchLedger):
                await waiting
            assert now() - began < 0.1
            await other.aclose()

    run_in_cluster(program)


@pytest.mark.rule("NR-7")
async def test_an_id_that_another_ledger_took_is_not_followed() -> None:
    async with fake_cluster() as where:
        writer = await filled(where)
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        await settled()
        before = reader.metadata
        where.service.delete(writer.ledger_id)
        await settled()
        other = await where.bk.create_advanced_ledger(ledger_id=writer.ledger_id, custom_metadata={"other": b"1"})
        for _ in range(3):
            where.edit(writer.ledger_id, lambda metadata: metadata)
        await settled()
        assert reader.is_deleted
        assert reader.metadata is before
        await reader.aclose()
        del other


@pytest.mark.rule("REC-1")
@pytest.mark.parametrize("change", ["reopened", "longer"])
async def test_the_end_of_a_closed_ledger_is_final_whatever_the_store_says_later(
    change: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_cluster() as where:
        writer = await filled(where)
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        await writer.close()
        await settled()
        assert (reader.is_closed, reader.last_add_confirmed) == (True, 3)
        ended = reader.metadata

        def edit(metadata: LedgerMetadata) -> LedgerMetadata:
            return metadata.closed(9, 100) if change == "longer" else reopened(metadata)

        with caplog.at_level(logging.ERROR, "bkclient.reader"):
            where.edit(writer.ledger_id, edit)
            await settled()
        assert (reader.metadata, reader.last_add_confirmed) == (ended, 3)
        assert [record.event for record in caplog.records] == ["end_changed"]  # type: ignore[attr-defined]
        await reader.aclose()


def reopened(metadata: LedgerMetadata) -> LedgerMetadata:
    return LedgerMetadata(
        metadata.ledger_id,
        metadata.ensemble_size,
        metadata.write_quorum_size,
        metadata.ack_quorum_size,
        metadata.fragments,
        password=metadata.password,
    )


@pytest.mark.rule("NR-6")
@in_virtual_time
async def test_a_tail_fails_if_the_ledger_is_closed_below_what_it_delivered() -> None:
    async with fake_cluster() as where:
        writer = await filled(where)
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        ahead, behind, beyond = reader.tail(), reader.tail(), reader.tail(20)
        assert [(await anext(ahead)).entry_id for _ in range(3)] == [0, 1, 2]
        assert [(await anext(behind)).entry_id for _ in range(2)] == [0, 1]
        where.edit(writer.ledger_id, lambda metadata: metadata.closed(1, 2))
        await settled()

        assert reader.last_add_confirmed == 1
        assert await rest_of(behind) == await rest_of(beyond) == []
        for _ in range(2):
            with pytest.raises(UnexpectedCondition, match="closed at entry 1") as caught:
                await anext(ahead)
            assert (caught.value.ledger_id, caught.value.entry_id) == (writer.ledger_id, 2)
        await reader.aclose()


async def test_a_ledger_that_is_closed_below_its_lac_is_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_cluster() as where:
        writer = await filled(where)
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        confirmed = reader.last_add_confirmed
        with caplog.at_level(logging.ERROR, "bkclient.reader"):
            where.edit(writer.ledger_id, lambda metadata: metadata.closed(confirmed - 1, 2))
            await settled()
        assert [record.event for record in caplog.records] == ["end_below_confirmed"]  # type: ignore[attr-defined]
        assert f"entry {confirmed} is confirmed" in caplog.text
        await reader.aclose()

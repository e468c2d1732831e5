"""A writer whose bookies forgot, when they were killed, that its ledger was taken over (W-60)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from bkclient._client.writing.base import BaseWriter
from bkclient._client.writing.writer import LedgerWriter
from bkclient.config import ClientConfig, TimeoutSettings, WritingSettings
from bkclient.errors import (
    BookKeeperError,
    ClientClosed,
    Code,
    LedgerClosed,
    LedgerFenced,
    MetadataStoreError,
    NoSuchLedger,
    UnexpectedCondition,
)
from bkclient.ledger import LedgerMetadata, Versioned
from tests.bkclient.fakes import FakeCluster, FakeStore, advanced_writer_of, fake_cluster, in_virtual_time, writer_of
from tests.bkclient.inside import machine_of
from tests.settling import settled

OFF = ClientConfig(writing=WritingSettings(check_metadata_after_reconnect=False))


def reads_of(where: FakeCluster) -> list[int]:
    """Counts the reads of metadata from now on."""
    reads: list[int] = []
    read = where.store.read_ledger

    async def counted(ledger_id: int) -> Versioned:
        reads.append(ledger_id)
        return await read(ledger_id)

    where.store.read_ledger = counted  # type: ignore[method-assign]
    return reads


async def take_over(where: FakeCluster, writer: BaseWriter) -> int:
    """Another client recovers the ledger; returns where it ends."""
    async with where.another_client() as other:
        reader = await other.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        return reader.last_add_confirmed


def kill_and_restart(where: FakeCluster) -> None:
    """Every bookie is killed, forgets its fences, and is connected to again."""
    for bookie in where.transport.bookies.values():
        bookie.fenced.clear()
    where.transport.reconnect("abc")


@pytest.mark.rule("W-60")
async def test_an_idle_writer_learns_of_the_takeover_although_its_bookies_forgot_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="bkclient.writer")
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        assert await take_over(where, writer) == 0
        kill_and_restart(where)

        with pytest.raises(LedgerFenced, match="another client has taken over the ledger and closed it at entry 0"):
            await writer.append(b"beyond the end")

        assert writer.last_add_confirmed == 0
        assert where.transport.bookies["a"].last_entry(writer.ledger_id) == 1, "the bookies took it all the same"
        with pytest.raises(BookKeeperError):
            await writer.append(b"more")
        await writer.close()
    (record,) = (record for record in caplog.records if getattr(record, "event", "") == "takeover_found")
    assert (record.ledger_id, record.details) == (writer.ledger_id, {"state": "CLOSED", "held": 3})  # type: ignore[attr-defined]


@pytest.mark.rule("W-60")
async def test_switched_off_the_entry_is_acknowledged_and_nobody_will_ever_read_it() -> None:
    async with fake_cluster(config=OFF) as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        assert await take_over(where, writer) == 0
        kill_and_restart(where)

        assert await writer.append(b"beyond the end") == 1


@pytest.mark.rule("W-60")
async def test_one_read_serves_all_bookies_and_every_later_entry() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        reads = reads_of(where)
        for _ in range(3):
            where.transport.reconnect("abc")
            for _ in range(50):
                writer.append_nowait(b"x")
            await writer.flush()

        assert reads == [writer.ledger_id] * 3
        assert writer.last_add_confirmed == 149


@pytest.mark.rule("W-60")
async def test_a_writer_created_over_connections_that_stand_reads_nothing() -> None:
    async with fake_cluster() as where:
        where.transport.reconnect("abc")
        reads = reads_of(where)

        writer = await writer_of(where)
        await writer.append(b"x")

        assert reads == []


@pytest.mark.rule("W-60")
@pytest.mark.parametrize("ledger_id", [None, 4711])
async def test_a_connection_made_while_the_ledger_is_created_is_not_vouched_for_by_that(ledger_id: int | None) -> None:
    """Which of the two came first nobody can tell."""
    async with fake_cluster() as where:
        create = where.store.create_ledger

        async def slow(metadata: LedgerMetadata) -> Versioned:
            created = await create(metadata)
            where.transport.reconnect("abc")
            return created

        where.store.create_ledger = slow  # type: ignore[method-assign]
        reads = reads_of(where)
        writer = await where.bk.create_ledger(ledger_id=ledger_id)

        await writer.append(b"x")

        assert reads == [writer.ledger_id]


@pytest.mark.rule("W-60")
async def test_nothing_is_acknowledged_before_the_metadata_was_read() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.reconnect("abc")
        where.store.read_gate.clear()
        futures = [writer.append_nowait(b"x") for _ in range(5)]
        await settled()
        assert not any(future.done() for future in futures)

        where.store.read_gate.set()

        assert await asyncio.gather(*futures) == [0, 1, 2, 3, 4]


@pytest.mark.rule("W-60")
async def test_entries_with_given_ids_are_held_too() -> None:
    async with fake_cluster() as where:
        writer = await advanced_writer_of(where)
        await take_over(where, writer)
        kill_and_restart(where)

        with pytest.raises(LedgerFenced):
            await writer.append(0, b"beyond the end")


@pytest.mark.rule("W-60")
@pytest.mark.rule("LAC-12")
async def test_a_force_does_not_confirm_what_the_recovery_cut_off() -> None:
    """The bookies lost with their power what was acknowledged and not forced, then their fences, and do not know."""
    async with fake_cluster() as where:
        writer = await where.bk.create_ledger(
            password=b"secret", deferred_sync=True, ensemble_size=3, write_quorum_size=3
        )
        await writer.append(b"x")
        for bookie in where.transport.bookies.values():
            bookie.entries.clear()
        assert await take_over(where, writer) == -1
        kill_and_restart(where)

        with pytest.raises(LedgerFenced, match="closed it at entry -1"):
            await writer.force()

        assert writer.last_add_confirmed == -1


@pytest.mark.rule("W-60")
async def test_a_force_over_new_connections_of_a_ledger_that_is_still_ones_own_succeeds() -> None:
    async with fake_cluster() as where:
        writer = await where.bk.create_ledger(password=b"secret", deferred_sync=True)
        await writer.append(b"x")
        where.transport.reconnect("abc")

        await writer.force()

        assert writer.last_add_confirmed == 0


@pytest.mark.rule("W-60")
async def test_a_ledger_that_was_deleted_meanwhile_is_told_as_that() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.reconnect("abc")
        where.service.delete(writer.ledger_id)

        with pytest.raises(NoSuchLedger):
            await writer.append(b"x")


@pytest.mark.rule("W-60")
@in_virtual_time
async def test_while_the_store_is_away_entries_wait_and_are_acknowledged_when_it_is_back() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.reconnect("abc")
        where.store.read_errors = [MetadataStoreError("away", ledger_id=writer.ledger_id)] * 6
        future = writer.append_nowait(b"x")
        await anyio.sleep(6.2)
        assert not future.done()

        await anyio.sleep(0.2)

        assert future.done()
        assert await future == 0


@pytest.mark.rule("W-60")
@in_virtual_time
async def test_a_store_that_stays_away_ends_the_writer_with_its_error() -> None:
    config = ClientConfig(timeouts=TimeoutSettings(add_quorum_s=20.0))
    async with fake_cluster(config=config) as where:
        writer = await writer_of(where)
        where.transport.reconnect("abc")
        where.store.read_errors = [MetadataStoreError("away", ledger_id=writer.ledger_id)] * 100
        began = asyncio.get_running_loop().time()

        with pytest.raises(BookKeeperError) as raised:
            await writer.append(b"x")

        assert 20 <= asyncio.get_running_loop().time() - began <= 30
        assert raised.value.code in {Code.METADATA_STORE, Code.QUORUM_TIMEOUT}
        assert "metadata" in str(raised.value)
        where.store.read_errors.clear()


@pytest.mark.rule("W-60")
@in_virtual_time
async def test_a_store_that_fails_as_it_must_not_is_tried_again() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.reconnect("abc")
        read = where.store.read_ledger
        failures = [ValueError("a defect")]

        async def fragile(ledger_id: int) -> Versioned:
            if failures:
                raise failures.pop()
            return await read(ledger_id)

        where.store.read_ledger = fragile  # type: ignore[method-assign]
        future = writer.append_nowait(b"x")
        await settled()
        assert isinstance(machine_of(writer).held_up_by, UnexpectedCondition)

        assert await future == 0


Ending = Callable[[FakeCluster, LedgerWriter], Awaitable[Any]]


async def _close_writer(_where: FakeCluster, writer: LedgerWriter) -> None:
    await writer.close()


async def _fence(where: FakeCluster, writer: LedgerWriter) -> None:
    for bookie in where.transport.bookies.values():
        bookie.fenced.add(writer.ledger_id)
    with pytest.raises(LedgerFenced):
        await writer.append(b"y")


@pytest.mark.rule("W-60")
@pytest.mark.parametrize(("end", "error"), [(_close_writer, LedgerClosed), (_fence, LedgerFenced)])
async def test_a_writer_that_ends_while_the_metadata_is_read_ends_at_once(
    end: Ending, error: type[BookKeeperError]
) -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.reconnect("abc")
        where.store.read_gate.clear()
        future = writer.append_nowait(b"x")
        await settled()

        await end(where, writer)

        assert type(future.exception()) is error
        where.store.read_gate.set()
        await settled()
        assert writer.last_add_confirmed == -1


@pytest.mark.rule("W-60")
@pytest.mark.rule("API-17")
async def test_a_client_that_is_closed_waits_for_no_read() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.reconnect("abc")
        where.store.read_gate.clear()
        future = writer.append_nowait(b"x")
        await settled()
    assert isinstance(future.exception(), ClientClosed)


@pytest.mark.rule("W-60")
@in_virtual_time
async def test_a_client_that_is_closed_between_two_reads_leaves_no_timer() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.reconnect("abc")
        where.store.read_errors = [MetadataStoreError("away", ledger_id=writer.ledger_id)]
        reads = reads_of(where)
        future = writer.append_nowait(b"x")
        await settled()
        assert len(reads) == 1
    assert isinstance(future.exception(), ClientClosed)
    await anyio.sleep(10)
    assert len(reads) == 1


@pytest.mark.rule("W-60")
async def test_each_writer_asks_for_its_own_ledger() -> None:
    async with fake_cluster() as where:
        writers = [await writer_of(where) for _ in range(3)]
        where.transport.reconnect("abc")
        reads = reads_of(where)

        await asyncio.gather(*(writer.append(b"x") for writer in writers))

        assert sorted(reads) == [writer.ledger_id for writer in writers]


@pytest.mark.rule("W-60")
async def test_a_recovery_reads_no_more_metadata_than_it_did() -> None:
    """What it writes back is taken by fenced bookies too, so their word needs no second look."""
    async with fake_cluster() as where:
        writer = await writer_of(where)
        for _ in range(3):
            await writer.append(b"x")
        async with where.another_client() as other:
            store = other._metadata
            assert isinstance(store, FakeStore)
            where.transport.reconnect("abc")
            another = FakeCluster(other, where.transport, store, where.service)
            reads = reads_of(another)

            reader = await other.open_ledger(writer.ledger_id, password=b"secret", recover=True)

            assert reader.last_add_confirmed == 2
            assert len(reads) == 1

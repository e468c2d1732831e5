"""However a writer or its client ends, nobody is left waiting and nothing is left running."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import pytest

from bkclient._client.writing.base import BaseWriter
from bkclient.config import ClientConfig, LimitSettings, TimeoutSettings, WritingSettings
from bkclient.errors import (
    BookKeeperError,
    ClientClosed,
    Code,
    DuplicateEntryId,
    LedgerFenced,
    NotEnoughBookies,
    UnexpectedCondition,
)
from bkclient.ledger import LedgerMetadata, LedgerState, Versioned
from bkclient.protocol.append import WriterState
from simbookie.world.loop import VirtualTimeLoop
from tests.bkclient.fakes import FakeCluster, FakeStore, advanced_writer_of, fake_cluster, in_virtual_time, writer_of
from tests.bkclient.inside import machine_of, shell_of
from tests.settling import settled

ALL_TIMERS = ClientConfig(
    timeouts=TimeoutSettings(add_quorum_s=30.0), writing=WritingSettings(explicit_lac_interval_s=20.0)
)


def timers() -> int:
    """How many timers the loop has still to run."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return len(loop.timers())


def is_idle(where: FakeCluster, writer: BaseWriter) -> bool:
    return (writer.in_flight_bytes, where.bk.in_flight_entries, where.bk.in_flight_bytes) == (0, 0, 0)


# The end of the client ----------------------------------------------------------------------------------------------


@pytest.mark.rule("API-17")
@pytest.mark.rule("API-19")
async def test_entries_above_a_gap_fail_when_the_client_ends_although_no_request_is_under_way() -> None:
    async with fake_cluster() as where:
        writer = await advanced_writer_of(where)
        futures = [writer.append_nowait(entry_id, b"x") for entry_id in (3, 7)]
        await settled()
        assert where.transport.pending_requests("a") == 0
        assert not any(future.done() for future in futures)

    assert [type(future.exception()) for future in futures] == [ClientClosed, ClientClosed]
    assert where.metadata(writer.ledger_id).state is LedgerState.OPEN
    assert is_idle(where, writer)


@pytest.mark.rule("API-17")
@in_virtual_time
async def test_entries_between_two_attempts_fail_when_the_client_ends_and_not_at_the_next_attempt() -> None:
    async with fake_cluster(features=lambda _: True) as where:
        writer = await writer_of(where)
        for bookie in where.transport.bookies.values():
            bookie.code = Code.TIMEOUT
        future = writer.append_nowait(b"x")
        await anyio.sleep(10)  # the attempts are seconds apart by now
        sent = len(where.sent)
        flushing = asyncio.create_task(writer.flush())
        await settled()

    assert isinstance(future.exception(), ClientClosed)
    with pytest.raises(ClientClosed):
        await flushing
    assert is_idle(where, writer)
    await anyio.sleep(100)
    assert len(where.sent) == sent


@pytest.mark.rule("API-17")
async def test_entries_that_wait_for_a_change_of_ensemble_fail_when_the_client_ends() -> None:
    async with fake_cluster("abcd") as where:
        writer = await writer_of(where)
        where.store.gate.clear()
        where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.TIMEOUT
        futures = [writer.append_nowait(b"x") for _ in range(3)]
        await settled()
        assert not any(future.done() for future in futures)

    assert {type(future.exception()) for future in futures} == {ClientClosed}
    assert where.metadata(writer.ledger_id).state is LedgerState.OPEN
    assert is_idle(where, writer)


async def test_whoever_waits_for_a_place_above_a_gap_is_told_that_the_client_ended() -> None:
    async with fake_cluster(config=ClientConfig(limits=LimitSettings(max_in_flight_entries=2))) as where:
        writer = await advanced_writer_of(where)
        waiting = [asyncio.create_task(writer.append(entry_id, b"x")) for entry_id in (1, 2, 3)]
        await settled()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {ClientClosed}


@pytest.mark.rule("API-19")
async def test_a_close_that_is_under_way_when_the_client_ends_fails_and_is_not_begun_anew() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        where.store.gate.clear()
        closing = asyncio.create_task(writer.close())
        await settled()
    with pytest.raises(ClientClosed):
        await closing
    assert machine_of(writer).state is WriterState.CLOSED
    assert where.metadata(writer.ledger_id).state is LedgerState.OPEN
    with pytest.raises(ClientClosed):
        await writer.close()


# Timers -------------------------------------------------------------------------------------------------------------


async def close(where: FakeCluster, writer: BaseWriter) -> None:
    await writer.close()


async def be_fenced(where: FakeCluster, writer: BaseWriter) -> None:
    for bookie in where.transport.bookies.values():
        bookie.code = Code.LEDGER_FENCED
    with pytest.raises(LedgerFenced):
        await shell_of(writer).append(b"y")
    await settled()


async def lose_the_ledger(where: FakeCluster, writer: BaseWriter) -> None:
    where.edit(writer.ledger_id, lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))
    with suppress(BookKeeperError):
        await writer.close()


@pytest.mark.parametrize("end", [close, be_fenced, lose_the_ledger])
@in_virtual_time
async def test_a_writer_that_ended_has_no_timer(end: Callable[[FakeCluster, BaseWriter], Awaitable[None]]) -> None:
    async with fake_cluster("abcd", config=ALL_TIMERS, features=lambda _: True) as where:
        before = timers()
        writer = await writer_of(where, (3, 3, 2))
        where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.TIMEOUT
        writer.append_nowait(b"x")
        await anyio.sleep(0.01)
        assert timers() >= before + 3
        await end(where, writer)

        assert timers() == before


@in_virtual_time
async def test_a_client_that_ended_has_no_timer_whatever_its_writers_did() -> None:
    before = timers()
    async with fake_cluster("abcd", config=ALL_TIMERS, features=lambda _: True) as where:
        for _ in range(3):
            writer = await writer_of(where, (3, 3, 2))
            where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.TIMEOUT
            writer.append_nowait(b"x")
            await anyio.sleep(0.01)
        assert timers() > before

    assert timers() == before


# Waiting ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-5")
async def test_an_id_that_is_taken_is_refused_at_once_although_the_window_is_full() -> None:
    async with fake_cluster(config=ClientConfig(limits=LimitSettings(max_in_flight_entries=2))) as where:
        writer = await advanced_writer_of(where)
        futures = [writer.append_nowait(entry_id, b"x") for entry_id in (1, 2)]
        for entry_id in (1, 2, -1):
            with pytest.raises(DuplicateEntryId):
                await asyncio.wait_for(writer.append(entry_id, b"again"), 1)
            with pytest.raises(DuplicateEntryId):
                writer.append_nowait(entry_id, b"again")
        await writer.append(0, b"x")
        assert [await future for future in futures] == [1, 2]
        assert is_idle(where, writer)


async def test_flushes_that_were_given_up_leave_nothing_behind() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.hold("abc")
        future = writer.append_nowait(b"x")
        for _ in range(100):
            flushing = asyncio.create_task(writer.flush())
            await asyncio.sleep(0)
            flushing.cancel()
            await asyncio.wait((flushing,))
        assert not shell_of(writer).flushes.waiters
        where.transport.release("abc")
        assert await future == 0


# What is told -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-17")
@pytest.mark.parametrize(("code", "kind"), [(Code.LEDGER_FENCED, LedgerFenced)])
async def test_an_append_that_a_bookie_refused_names_ledger_entry_and_bookie(
    code: Code, kind: type[BookKeeperError]
) -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.hold("abc")
        futures = [writer.append_nowait(b"x") for _ in range(2)]
        where.transport.release("b", code)
        failures = [future.exception() for future in futures]

    for entry_id, failure in enumerate(failures):
        assert isinstance(failure, kind)
        assert (failure.ledger_id, failure.entry_id, failure.bookie_id) == (writer.ledger_id, entry_id, "b")
        assert "the bookie refused entry 0" in str(failure)


async def test_an_append_that_fails_for_lack_of_bookies_says_which_failed() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where, (3, 3, 3))
        where.transport.bookies["b"].code = Code.TIMEOUT
        with pytest.raises(NotEnoughBookies, match="no writable bookie is left to replace b"):
            await writer.append(b"x")


@pytest.mark.rule("W-54")
async def test_what_failed_first_is_what_leaving_a_writer_raises() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        with pytest.raises(LedgerFenced) as caught:  # noqa: PT012 - the block is what is tested
            async with writer:
                where.edit(writer.ledger_id, lambda metadata: metadata.closed(5, 7))
                for bookie in where.transport.bookies.values():
                    bookie.code = Code.LEDGER_FENCED
                writer.append_nowait(b"x")

    assert "another client closed the ledger at entry 5" in caught.value.__notes__[0]


async def test_leaving_a_writer_while_cancelled_closes_its_ledger() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.hold("abc")

        async def work() -> None:
            async with writer:
                writer.append_nowait(b"x")

        task = asyncio.create_task(work())
        await settled()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert where.metadata(writer.ledger_id).state is LedgerState.CLOSED


class DefectiveStore(FakeStore):
    """Fails as no store may."""

    is_defective = False

    async def write_ledger(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
        if self.is_defective:
            raise KeyError("a defect")
        return await super().write_ledger(metadata, expected_version)


async def test_a_store_that_fails_as_it_must_not_fails_the_update_and_not_the_client() -> None:
    async with fake_cluster("abcd") as where:
        where.store.__class__ = DefectiveStore
        writer, other = await writer_of(where), await writer_of(where)
        where.store.is_defective = True  # type: ignore[attr-defined]
        where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.TIMEOUT
        with pytest.raises(UnexpectedCondition, match="KeyError"):
            await writer.append(b"x")
        with pytest.raises(UnexpectedCondition) as caught:
            await other.close()
        assert isinstance(caught.value.__cause__, KeyError)
        where.store.is_defective = False  # type: ignore[attr-defined]
        where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = None
        async with await writer_of(where) as third:
            assert await third.append(b"x") == 0
        with pytest.raises(UnexpectedCondition, match="KeyError"):
            await writer.append(b"y")

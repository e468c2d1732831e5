"""How a writer ends: closing, leaving its block, a client that closes first, cancelled callers."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from bkclient.config import ClientConfig, LimitSettings
from bkclient.errors import (
    ClientClosed,
    Code,
    LedgerClosed,
    LedgerFenced,
    MetadataOutcomeUnknown,
    MetadataStoreError,
    MetadataVersionConflict,
)
from bkclient.ledger import LedgerState
from bkclient.repair.admin import core_of
from tests.bkclient.fakes import fake_cluster, writer_of
from tests.settling import settled

TINY_WINDOW = ClientConfig(limits=LimitSettings(max_in_flight_entries=2))


# Closing ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-51")
async def test_closing_seals_the_ledger_and_ends_the_writer() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"kept")
        await writer.close()

        metadata = where.metadata(writer.ledger_id)
        assert (metadata.state, metadata.last_entry_id, metadata.length) == (LedgerState.CLOSED, 0, 4)
        assert writer.metadata == metadata
        with pytest.raises(LedgerClosed, match=f"ledger {writer.ledger_id}"):
            await writer.append(b"late")


@pytest.mark.rule("W-52")
@pytest.mark.rule("W-58")
@pytest.mark.behaviour("T-103")
async def test_entries_in_flight_fail_before_the_close_returns() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.transport.hold("abc")
        future = writer.append_nowait(b"lost")

        await writer.close()

        assert isinstance(future.exception(), LedgerClosed)
        where.transport.release("abc")
        assert where.metadata(writer.ledger_id).last_entry_id == -1


@pytest.mark.rule("W-55")
@pytest.mark.behaviour("T-104")
async def test_no_close_returns_before_the_ledger_is_closed() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.store.gate.clear()
        closing = [asyncio.create_task(writer.close()) for _ in range(3)]
        await settled()
        assert not any(task.done() for task in closing)

        where.store.gate.set()
        await asyncio.gather(*closing)
        assert where.store.writes == 1


@pytest.mark.rule("W-54")
@pytest.mark.rule("W-55")
@pytest.mark.behaviour("T-101")
async def test_every_close_reports_that_somebody_else_closed_the_ledger_elsewhere() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"x")
        where.edit(writer.ledger_id, lambda metadata: metadata.closed(5, 50))

        for _ in range(2):
            with pytest.raises(MetadataVersionConflict, match="at entry 5") as caught:
                await writer.close()
            assert caught.value.ledger_id == writer.ledger_id
        assert writer.last_add_confirmed == 5


@pytest.mark.rule("W-55")
async def test_every_close_that_fails_raises_an_exception_of_its_own_that_says_the_same() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.edit(writer.ledger_id, lambda metadata: metadata.closed(5, 50))

        errors = await asyncio.gather(*(writer.close() for _ in range(3)), return_exceptions=True)
        assert [type(error) for error in errors] == [MetadataVersionConflict] * 3
        assert len({id(error) for error in errors}) == 3
        assert len({str(error) for error in errors}) == 1
        assert "closed the ledger at entry 5" in str(errors[0])


@pytest.mark.rule("M31")
async def test_a_close_whose_outcome_is_unknown_is_looked_up() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.store.write_errors = [MetadataOutcomeUnknown("applied"), MetadataOutcomeUnknown("lost on the way")]

        await writer.close()
        assert where.store.writes == 1
        assert where.metadata(writer.ledger_id).is_closed


@pytest.mark.rule("W-49")
async def test_a_close_that_the_store_refuses_fails_and_leaves_the_ledger_open() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.store.write_errors = [MetadataStoreError("down")]

        with pytest.raises(MetadataStoreError, match="down"):
            await writer.close()
        assert where.metadata(writer.ledger_id).state is LedgerState.OPEN


async def test_leaving_the_block_flushes_and_closes() -> None:
    async with fake_cluster() as where:
        async with await writer_of(where) as writer:
            futures = [writer.append_nowait(b"x") for _ in range(10)]

        assert [future.result() for future in futures] == list(range(10))
        assert where.metadata(writer.ledger_id).last_entry_id == 9


async def test_leaving_the_block_with_a_failed_append_raises_its_error_and_closes_all_the_same() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)

        async def use() -> None:
            async with writer:
                await writer.append(b"kept")
                for bookie in where.transport.bookies.values():
                    bookie.code = Code.LEDGER_FENCED
                writer.append_nowait(b"lost")

        with pytest.raises(LedgerFenced):
            await use()
        assert where.metadata(writer.ledger_id).is_closed


async def test_leaving_the_block_by_an_exception_closes_at_the_last_confirmed_entry() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)

        async def use() -> None:
            async with writer:
                await writer.append(b"kept")
                where.transport.hold("abc")
                writer.append_nowait(b"lost")
                raise KeyError

        with pytest.raises(KeyError):
            await use()
        assert where.metadata(writer.ledger_id).last_entry_id == 0


async def test_leaving_the_block_by_an_exception_notes_that_closing_failed_too() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.store.write_errors = [MetadataStoreError("down")]

        async def use() -> None:
            async with writer:
                raise KeyError

        with pytest.raises(KeyError) as caught:
            await use()
        assert "failed too" in caught.value.__notes__[0]


async def test_leaving_the_block_by_cancellation_still_closes_the_ledger() -> None:
    async with fake_cluster() as where:
        with anyio.CancelScope() as scope:
            async with await writer_of(where) as writer:
                await writer.append(b"kept")
                scope.cancel()
                await anyio.sleep_forever()

        assert where.metadata(writer.ledger_id).last_entry_id == 0


# The client closes first --------------------------------------------------------------------------------------------


@pytest.mark.rule("API-17")
@pytest.mark.rule("API-19")
@pytest.mark.behaviour("T-51")
async def test_closing_the_client_fails_what_is_under_way_and_leaves_the_ledger_open() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        await writer.append(b"kept")
        where.transport.hold("abc")
        future = writer.append_nowait(b"lost")
        flushing = asyncio.create_task(writer.flush())
        await settled()
    with pytest.raises(ClientClosed):
        await future
    with pytest.raises(ClientClosed):
        await flushing
    with pytest.raises(ClientClosed):
        await writer.append(b"late")
    with pytest.raises(ClientClosed, match="still open"):
        await writer.close()
    assert where.metadata(writer.ledger_id).state is LedgerState.OPEN


@pytest.mark.rule("API-17")
@pytest.mark.behaviour("T-36")
async def test_closing_the_client_during_an_ensemble_change_ends_entries_that_only_wait_for_the_store() -> None:
    async with fake_cluster("abcd") as where:
        writer = await writer_of(where)
        where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.WRITE
        where.store.gate.clear()
        future = writer.append_nowait(b"has its quorum, but the ensemble is changing")
        await settled()
        assert not future.done()

    async with asyncio.timeout(5):
        with pytest.raises(ClientClosed):
            await future


@pytest.mark.rule("API-17")
async def test_closing_the_client_while_a_writer_closes_ends_the_waiting() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        where.store.gate.clear()
        closing = asyncio.create_task(writer.close())
        await settled()

    async with asyncio.timeout(5):
        with pytest.raises(ClientClosed):
            await closing


async def test_a_client_keeps_nothing_of_writers_that_have_ended() -> None:
    async with fake_cluster("abcd") as where:
        core = core_of(where.bk)
        closed, fenced, recovered = [await writer_of(where) for _ in range(3)]
        assert len(core._closers) == 3
        await closed.close()
        where.transport.hold("abcd")
        fenced.append_nowait(b"x")
        where.transport.release("abcd", Code.LEDGER_FENCED)
        where.edit(recovered.ledger_id, lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))
        where.transport.bookies[recovered.metadata.last_fragment.ensemble[0]].code = Code.TIMEOUT
        with pytest.raises(LedgerFenced):
            await recovered.append(b"x")

        assert len(core._closers) == 0

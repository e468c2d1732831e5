"""Following and asking after the metadata of ledgers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bkclient.errors import ClientClosed, MetadataStoreError, NoSuchLedger
from bkclient.ledger import LedgerMetadata, LedgerState
from bkclient.metadata.base import BookieSets
from tests.bkclient.fakes import fake_cluster, writer_of
from tests.cancellation import Cancel, cancel_everywhere
from tests.settling import settled


def follow(changes: AsyncIterator[LedgerMetadata]) -> tuple[list[LedgerMetadata], asyncio.Task[None]]:
    """Collects what the watch yields."""
    seen: list[LedgerMetadata] = []

    async def collect() -> None:
        async for metadata in changes:
            seen.append(metadata)  # noqa: PERF401 - the list is looked at meanwhile

    return seen, asyncio.create_task(collect())


async def test_a_watch_tells_the_present_state_and_every_change_up_to_the_deletion() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        seen, watching = follow(where.bk.watch_metadata(writer.ledger_id))
        await settled()
        assert [metadata.state for metadata in seen] == [LedgerState.OPEN]

        where.edit(writer.ledger_id, lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))
        await settled()
        await writer.close()
        await settled()
        assert [metadata.state.name for metadata in seen] == ["OPEN", "IN_RECOVERY", "CLOSED"]
        moved = tuple(reversed(seen[-1].last_fragment.ensemble))
        where.edit(writer.ledger_id, lambda metadata: metadata.with_ensemble(0, moved))
        await settled()
        assert seen[-1].last_fragment.ensemble == moved

        await where.bk.delete_ledger(writer.ledger_id)
        await watching
        assert len(seen) == 4
        assert where.service.snapshot().ledger_watches == {}


@pytest.mark.behaviour("T-165")
async def test_a_deletion_ends_the_watch_even_if_the_id_is_taken_again_at_once() -> None:
    async with fake_cluster() as where:
        await where.bk.create_ledger(ledger_id=5)
        seen, watching = follow(where.bk.watch_metadata(5))
        await settled()
        where.service.delete(5)
        where.service.create(seen[0])

        await watching
        assert len(seen) == 1


async def test_changes_in_quick_succession_are_reported_once_by_the_last() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        changes = where.bk.watch_metadata(writer.ledger_id)
        await anext(changes)
        for _ in range(5):
            where.edit(
                writer.ledger_id,
                lambda metadata: metadata.with_ensemble(0, tuple(reversed(metadata.last_fragment.ensemble))),
            )
        where.edit(writer.ledger_id, lambda metadata: metadata.closed(-1, 0))
        await settled()

        assert (await anext(changes)).is_closed
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(changes)


async def test_an_unknown_ledger_is_not_waited_for() -> None:
    async with fake_cluster() as where:
        with pytest.raises(NoSuchLedger):
            await anext(where.bk.watch_metadata(4711))


async def test_a_loop_that_is_left_stops_the_watch() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        async for metadata in where.bk.watch_metadata(writer.ledger_id):
            assert not metadata.is_closed
            break
        await settled()

        assert where.service.snapshot().ledger_watches == {}


@pytest.mark.rule("API-17")
async def test_closing_the_client_ends_the_watch() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        _, watching = follow(where.bk.watch_metadata(writer.ledger_id))
        await settled()
    with pytest.raises(ClientClosed):
        await watching
    assert where.service.snapshot().ledger_watches == {}


def test_a_watch_that_is_cancelled_anywhere_leaves_nothing_behind() -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            writer = await writer_of(where)

            async def until_closed() -> None:
                async for metadata in where.bk.watch_metadata(writer.ledger_id):
                    if metadata.is_closed:
                        return

            closing = asyncio.create_task(writer.close())
            await cancel(until_closed())

            await closing
            await settled()
            assert where.service.snapshot().ledger_watches == {}

    cancel_everywhere(story)


@pytest.mark.behaviour("T-37")
async def test_a_ledger_is_closed_once_it_is_sealed() -> None:
    async with fake_cluster() as where:
        writer = await writer_of(where)
        assert not await where.bk.is_closed(writer.ledger_id)
        where.edit(writer.ledger_id, lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))
        assert not await where.bk.is_closed(writer.ledger_id)
        await writer.close()
        assert await where.bk.is_closed(writer.ledger_id)


async def test_whether_the_metadata_service_answers_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_cluster() as where:
        assert await where.bk.is_metadata_available() is True
        monkeypatch.setattr(where.store, "bookies", unreachable)
        assert await where.bk.is_metadata_available() is False
    with pytest.raises(ClientClosed):
        await where.bk.is_metadata_available()


async def unreachable() -> BookieSets:
    raise MetadataStoreError("no connection")

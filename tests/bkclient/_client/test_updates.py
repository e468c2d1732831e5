"""Driving a metadata update against a store: what each of its errors means, and what is done after a store that lies or fails."""

from __future__ import annotations

import asyncio

import pytest

from bkclient._client.updates import drive_update
from bkclient.errors import (
    BookKeeperError,
    Code,
    MetadataOutcomeUnknown,
    MetadataStoreError,
    UnexpectedCondition,
    error_for,
)
from bkclient.ledger import LedgerMetadata, LedgerState, Versioned
from bkclient.protocol.intents import MarkInRecovery
from bkclient.protocol.update import LocalMetadata, UpdateHandle
from tests.bkclient.fakes import FakeCluster, FakeStore, fake_cluster, in_virtual_time, writer_of

ERRORS = [error_for(code) for code in Code if code is not Code.OK]


async def marking(where: FakeCluster) -> tuple[UpdateHandle, int]:
    """An update that marks a new ledger as being recovered, and the ledger's id."""
    ledger_id = (await writer_of(where)).ledger_id
    local = LocalMetadata(where.service.read(ledger_id))
    return UpdateHandle(local, local.begin(MarkInRecovery())), ledger_id


async def test_an_update_that_succeeds_writes_once() -> None:
    async with fake_cluster() as where:
        update, ledger_id = await marking(where)
        await drive_update(update, where.store)
        assert (update.action, update.error, where.store.writes) == (None, None, 1)
        assert where.metadata(ledger_id).state is LedgerState.IN_RECOVERY


@pytest.mark.rule("W-49")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code.name)
async def test_an_error_of_a_write_ends_the_update_unless_it_says_that_the_version_was_another(
    error: BookKeeperError,
) -> None:
    async with fake_cluster() as where:
        update, ledger_id = await marking(where)
        where.store.write_errors = [error]
        await drive_update(update, where.store)
        assert update.action is None
        if error.code is Code.METADATA_VERSION:
            assert (update.error, where.store.writes) == (None, 2)
            assert where.metadata(ledger_id).state is LedgerState.IN_RECOVERY
        else:
            assert (update.error, where.store.writes) == (error, 1)
            assert where.metadata(ledger_id).state is LedgerState.OPEN


@pytest.mark.rule("W-48")
@pytest.mark.parametrize("error", [e for e in ERRORS if e.code is not Code.METADATA_STORE], ids=lambda e: e.code.name)
async def test_an_error_of_the_read_after_a_conflict_ends_the_update(error: BookKeeperError) -> None:
    async with fake_cluster() as where:
        update, _ = await marking(where)
        where.store.write_errors = [MetadataOutcomeUnknown("lost")]
        where.store.read_errors = [error]
        await drive_update(update, where.store)
        assert (update.action, update.error) == (None, error)


@pytest.mark.rule("W-48")
@pytest.mark.parametrize("failures", [0, 1, 5, 6])
def test_a_store_that_is_away_is_read_six_times_with_growing_pauses(failures: int) -> None:
    waited: list[float] = []

    @in_virtual_time
    async def play() -> None:
        loop = asyncio.get_running_loop()
        async with fake_cluster() as where:
            update, _ = await marking(where)
            errors = [MetadataStoreError(f"away {number}") for number in range(failures)]
            where.store.write_errors = [MetadataOutcomeUnknown("applied")]
            where.store.read_errors = [*errors]
            began = loop.time()
            await drive_update(update, where.store)
            waited.append(loop.time() - began)
            assert update.error is (errors[5] if failures == 6 else None)
            assert where.store.read_errors == []

    play()
    assert waited == [pytest.approx(0.05 * (2 ** min(failures, 5) - 1))]


class LyingStore(FakeStore):
    """Raises what no store may raise."""

    async def write_ledger(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
        raise KeyError("no such thing")


async def test_a_store_that_breaks_its_promise_fails_the_update_and_is_named() -> None:
    async with fake_cluster() as where:
        update, ledger_id = await marking(where)
        await drive_update(update, LyingStore(where.service))
        assert update.action is None
        error = update.error
        assert isinstance(error, UnexpectedCondition)
        assert error.ledger_id == ledger_id
        assert "the metadata store failed as it must not" in error.message
        assert "no such thing" in error.message
        assert isinstance(error.__cause__, KeyError)

"""What a client with statistics reports of its operations, from beginning to end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from bkclient import BookKeeper
from bkclient.errors import BookKeeperError, Code, LedgerFenced, NoSuchLedger
from bkclient.observability import stats
from bkclient.observability.memory_stats import MemoryStats
from tests.bkclient.fakes import FakeCluster, FakeStore, fake_cluster, writer_of
from tests.settling import settled


@asynccontextmanager
async def measured_cluster(bookies: str = "abc") -> AsyncIterator[tuple[FakeCluster, MemoryStats]]:
    """A cluster whose client has statistics."""
    async with fake_cluster(bookies) as where:
        ours = MemoryStats()
        async with BookKeeper(FakeStore(where.service), where.transport, rng=Random(2), stats=ours) as bk:
            where.bk = bk
            yield where, ours


def succeeded(ours: MemoryStats, name: str) -> int:
    return ours.operations_of(name).succeeded.count


async def test_each_operation_is_counted_with_its_outcome() -> None:
    async with measured_cluster() as (where, ours):
        writer = await writer_of(where)
        for _ in range(5):
            await writer.append(b"x")
        await writer.close()
        reader = await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
        await reader.read(3)
        await where.bk.delete_ledger(writer.ledger_id)
        with pytest.raises(NoSuchLedger):
            await where.bk.open_ledger(writer.ledger_id, recover=True)
    for name, count in (
        (stats.CREATE, 1),
        (stats.ADD, 5),
        (stats.CLOSE, 1),
        (stats.OPEN, 1),
        (stats.READ, 1),
        (stats.DELETE, 1),
    ):
        assert succeeded(ours, name) == count, name
    assert ours.operations_of(stats.OPEN).codes == {int(Code.NO_SUCH_LEDGER): 1}
    assert succeeded(ours, stats.RECOVER) == 0


async def test_a_recovery_is_counted_with_what_it_read_and_wrote() -> None:
    async with measured_cluster() as (where, ours):
        writer = await writer_of(where)
        for _ in range(4):
            await writer.append(b"x")
        await where.bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
    assert succeeded(ours, stats.RECOVER) == 1
    found = ours.total_of(stats.RECOVERY_READS)
    assert 1 <= found <= 4
    assert ours.total_of(stats.RECOVERED_ENTRIES) == found


async def test_pending_adds_are_a_level_that_returns_to_zero() -> None:
    async with measured_cluster() as (where, ours):
        writer = await writer_of(where)
        where.transport.hold("abc")
        futures = [writer.append_nowait(b"x") for _ in range(3)]
        assert ours.level_of(stats.PENDING_ADDS) == 3
        where.transport.release("abc")
        assert [await future for future in futures] == [0, 1, 2]
        assert ours.level_of(stats.PENDING_ADDS) == 0

        where.transport.hold("abc")
        futures = [writer.append_nowait(b"x") for _ in range(3)]
        where.transport.release("abc", Code.LEDGER_FENCED)
        with pytest.raises(LedgerFenced):
            await futures[0]
        await settled()
        assert ours.level_of(stats.PENDING_ADDS) == 0
        with pytest.raises(BookKeeperError):
            await writer.append(b"x")
        assert ours.level_of(stats.PENDING_ADDS) == 0
    assert ours.operations_of(stats.ADD).codes == {int(Code.LEDGER_FENCED): 3}


async def test_changes_of_the_ensemble_are_counted() -> None:
    async with measured_cluster("abcd") as (where, ours):
        writer = await writer_of(where)
        await writer.append(b"x")
        where.transport.bookies[writer.metadata.last_fragment.ensemble[0]].code = Code.BOOKIE_NOT_AVAILABLE
        await writer.append(b"y")
        await writer.append(b"z")
        await settled()
        await writer.flush()
    assert ours.total_of(stats.ENSEMBLE_CHANGES) == 1


async def test_an_operation_that_was_cancelled_is_not_counted() -> None:
    async with measured_cluster() as (where, ours):
        where.transport.hold("abc")
        writer = await writer_of(where)
        future = writer.append_nowait(b"x")
        future.cancel()
        where.transport.release("abc")
        await settled()
        assert ours.level_of(stats.PENDING_ADDS) == 0
        assert succeeded(ours, stats.ADD) == 1  # the entry was stored; only its caller went away

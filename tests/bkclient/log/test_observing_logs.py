"""What statistics and the log tell of logs."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from random import Random

import pytest

from bkclient.errors import BookKeeperError, Code
from bkclient.log import LogDeposed, Logs, LogSettings, PublishSettings
from bkclient.observability import stats as names
from bkclient.observability.memory_stats import MemoryStats
from simbookie.world.metadata_service import MetadataFault
from tests.bkclient.log.test_logs import SMALL
from tests.bkclient.virtual_cluster import VirtualCluster, run_in_cluster


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The events of logs."""
    return [record.event for record in caplog.records if record.name == "bkclient.log" and hasattr(record, "event")]


def texts(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.name == "bkclient.log")


@pytest.fixture(autouse=True)
def _every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="bkclient.log")


def test_an_owner_is_measured_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    stats = MemoryStats()

    async def program(cluster: VirtualCluster) -> None:
        async with cluster.client(stats=stats) as client:
            logs = Logs(client, rng=Random(1))
            await logs.create("log", SMALL)
            async with logs.writer("log", owner="me", settings=PublishSettings(batch_messages=3)) as log:
                for number in range(9):
                    log.publish_nowait(b"%d" % number)
                assert stats.level_of(names.LOG_PENDING_MESSAGES) == 9
                await log.flush()
                assert stats.level_of(names.LOG_PENDING_MESSAGES) == 0

    run_in_cluster(program)
    published = stats.operations_of(names.LOG_PUBLISH)
    assert (published.succeeded.count, published.failed.count) == (3, 0)
    assert 0 < published.succeeded.sum_ms < 10_000
    assert stats.total_of(names.LOG_BATCH_MESSAGES) == 9
    assert stats.total_of(names.LOG_BATCH_BYTES) > 9
    assert stats.total_of(names.LOG_LEDGERS_BEGUN) == 2
    assert stats.operations_of(names.LOG_CLAIM).succeeded.count == 1
    assert lines(caplog) == ["claimed", "ledger_begun", "ledger_begun", "released"]
    assert "took log log over in epoch 1, as me" in texts(caplog)
    assert "log log goes on in ledger 1" in texts(caplog)


def test_owners_and_ledgers_that_fail_are_measured_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    stats = MemoryStats()

    async def program(cluster: VirtualCluster) -> None:
        async with cluster.client(stats=stats) as client:
            logs = Logs(client, rng=Random(1))
            await logs.create("log")
            log = await logs.writer("log", settings=PublishSettings(give_up_s=5)).__aenter__()
            await log.publish(b"0")
            for bookie in cluster.bookies.values():
                bookie.crash()
            for payload in (b"1", b"2"):
                with pytest.raises(BookKeeperError):
                    await log.publish(payload)
            with suppress(BookKeeperError):
                await log.aclose()

    run_in_cluster(program)
    published = stats.operations_of(names.LOG_PUBLISH)
    assert published.succeeded.count == 1
    assert sum(published.codes.values()) == 1, "what is refused after the end was never handed in"
    assert stats.level_of(names.LOG_PENDING_MESSAGES) == 0
    assert stats.total_of(names.LOG_LEDGERS_FAILED) >= 1
    assert stats.total_of(names.LOG_OWNERS_ENDED) == 1
    assert Counter(lines(caplog))["owner_ended"] == 1
    assert "ledger 0 of log log did not take an entry and is replaced by another" in texts(caplog)
    assert "in epoch 1 has ended with 1 entries not acknowledged" in texts(caplog)


def test_a_deposed_owner_and_a_claim_that_fails_are_told(caplog: pytest.LogCaptureFixture) -> None:
    stats = MemoryStats()

    async def program(cluster: VirtualCluster) -> None:
        async with cluster.client(stats=stats) as client, cluster.client("other") as other:
            logs = Logs(client, rng=Random(1))
            await logs.create("log")
            old = await logs.writer("log").__aenter__()
            await old.publish(b"0")
            async with Logs(other, rng=Random(2)).writer("log", owner="new"):
                await asyncio.sleep(1)
                with pytest.raises(LogDeposed):
                    await old.aclose()
            await client.delete_ledger(0)
            cluster.world.metadata.intercept(lambda call: call.operation == "tree_get", MetadataFault.FAIL)
            with pytest.raises(BookKeeperError):
                await logs.writer("log", settings=PublishSettings(give_up_s=1)).__aenter__()

    run_in_cluster(program)
    assert stats.total_of(names.LOG_OWNERS_ENDED) == 2
    claims = stats.operations_of(names.LOG_CLAIM)
    assert (claims.succeeded.count, claims.codes) == (1, {int(Code.METADATA_STORE): 1})
    assert "was taken over by 'new', in epoch 2" in texts(caplog)


def test_cursors_are_measured_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    stats = MemoryStats()

    async def program(cluster: VirtualCluster) -> None:
        async with cluster.client(stats=stats) as client, cluster.client("other") as other:
            logs = Logs(client, rng=Random(1))
            await logs.create("log", SMALL)
            async with logs.writer("log") as log:
                for number in range(6):
                    await log.publish(b"%d" % number)
            async with logs.cursor("log", "c") as cursor, logs.consumer("log", "g") as consumer:
                await consumer.receive()
                assert stats.level_of(names.LOG_CURSOR_BACKLOG) == 12
                for _ in range(4):
                    cursor.acknowledge(await anext(cursor))
                await cursor.flush()
                assert stats.level_of(names.LOG_CURSOR_BACKLOG) == 8
                assert stats.operations_of(names.LOG_CURSOR_STORE).succeeded.count == 1
            assert stats.level_of(names.LOG_CURSOR_BACKLOG) == 0
            old = await logs.cursor("log", "c").__aenter__()
            old.acknowledge(await anext(old))
            is_away = True
            cluster.world.metadata.intercept(
                lambda call: is_away and call.operation == "tree_write", MetadataFault.FAIL
            )
            await asyncio.sleep(5)
            is_away = False
            async with Logs(other, rng=Random(2)).cursor("log", "c"):
                with pytest.raises(LogDeposed):
                    await old.flush()
                with pytest.raises(LogDeposed):
                    await old.__aexit__(None, None, None)

    run_in_cluster(program)
    assert stats.level_of(names.LOG_CURSOR_BACKLOG) == 0
    codes = stats.operations_of(names.LOG_CURSOR_STORE).codes
    assert codes[int(Code.METADATA_STORE)] >= 1
    assert codes[int(Code.LEDGER_FENCED)] >= 1
    assert {"cursor_not_stored", "cursor_lost"} <= {*lines(caplog)}
    assert "cursor c of log log could not be stored" in texts(caplog)


def test_a_consumer_that_cannot_read_says_so(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.client() as client:
            logs = Logs(client, rng=Random(1))
            await logs.create("log", LogSettings())
            async with logs.writer("log") as log:
                await log.publish(b"0")
            for bookie in cluster.bookies.values():
                bookie.crash()
            async with logs.consumer("log", "g") as consumer:
                with pytest.raises((BookKeeperError, TimeoutError)):
                    async with asyncio.timeout(100):
                        await consumer.receive()

    run_in_cluster(program)
    assert "a consumer of log log could not read on, and tries again in 0.1 s" in texts(caplog)

"""What operators do with logs: settings, trimming of partitions, ledgers that are lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bkclient.errors import ArgumentError, IllegalOperation, NoSuchLedger
from bkclient.log import LogDeposed, Logs, LogSettings, LogWriter, MessageId, NoSuchLog, PublishSettings
from bkclient.log.machine.manifest import LedgerEnd
from tests.bkclient.log.test_logs import SMALL, payloads, published, run
from tests.bkclient.virtual_cluster import VirtualCluster

# Settings -------------------------------------------------------------------------------------------------------------


def test_settings_change_for_the_owner_that_is_there_and_for_trimming() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 4) as (log, ids):
            assert [each.ledger_id for each in ids] == [0, 0, 1, 1]
            changed = await logs.change_settings("log", max_ledger_entries=3, retention_s=50.0, ensemble_size=2)
            assert changed == SMALL.with_changes(max_ledger_entries=3, retention_s=50.0, ensemble_size=2)
            assert (await logs.info("log")).settings == changed
            await asyncio.sleep(1)
            more = [await log.publish(b"x") for _ in range(4)]
            assert [each.ledger_id for each in more] == [2, 2, 2, 3]
            await asyncio.sleep(60)
            assert await logs.trim("log") == [0, 1, 2]
        async with cluster.client() as client:
            assert (await client.ledger_metadata(3)).ensemble_size == 2
        assert await logs.change_settings("log", retention_s=None) == changed.with_changes(retention_s=None)
        assert await logs.trim("log") == []

    run(story)


def test_settings_of_partitions_change_together() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        await logs.create("many", partitions=2)
        await logs.change_settings("many", max_ledger_entries=7)
        for name in ("many", "many-partition-0", "many-partition-1"):
            assert (await logs.info(name)).settings == LogSettings(max_ledger_entries=7)
        with pytest.raises(IllegalOperation, match="partition of another"):
            await logs.change_settings("many-partition-0", max_ledger_entries=8)
        assert (await logs.info("many-partition-0")).settings.max_ledger_entries == 7

    run(story)


@pytest.mark.parametrize("changes", [{"max_ledger_entrys": 1}, {"ack_quorum_size": 3}, {"retention_s": "long"}])
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any]) -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        with pytest.raises(ArgumentError, match=next(iter(changes))):
            await logs.change_settings("log", **changes)
        assert (await logs.info("log")).settings == SMALL
        with pytest.raises(NoSuchLog):
            await logs.change_settings("other", max_ledger_entries=1)

    run(story)


# Trimming -------------------------------------------------------------------------------------------------------------


def test_trimming_before_a_message_asks_for_its_partition() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        await logs.create("many", SMALL, partitions=2)
        async with logs.writer("many", settings=PublishSettings(batch_messages=1)) as log:
            ids = [await log.publish(b"x") for _ in range(12)]
        for before in (MessageId(7, 0), MessageId(7, 0, 2)):
            with pytest.raises(ArgumentError, match=r"name a partition.*partitions 0 to 1"):
                await logs.trim("many", before)
        with pytest.raises(ArgumentError, match=r"name a partition.*no partitions"):
            await logs.trim("log", MessageId(7, 0, 0))
        last = {each.partition: each for each in ids}
        ledgers = {partition: {each.ledger_id for each in ids if each.partition == partition} for partition in last}
        assert {*await logs.trim("many", last[1])} == ledgers[1] - {last[1].ledger_id}
        without = MessageId(last[0].ledger_id, last[0].entry_id)
        assert {*await logs.trim("many-partition-0", without)} == ledgers[0] - {last[0].ledger_id}
        assert await logs.trim("many", MessageId.EARLIEST) == []
        assert {*await logs.trim("many", MessageId.LATEST)} == {last[0].ledger_id, last[1].ledger_id}

    run(story)


# Ledgers that are lost ------------------------------------------------------------------------------------------------


async def lose(cluster: VirtualCluster, ledger_id: int) -> None:
    """The metadata service forgets a ledger."""
    async with cluster.client() as client:
        await client.delete_ledger(ledger_id)


async def abandoned(logs: Logs, name: str = "log") -> LogWriter:
    """An owner that has published "0" to "4" and holds the log."""
    log = await logs.writer(name, owner="old").__aenter__()
    for number in range(5):
        await log.publish(b"%d" % number)
    return log


def test_a_log_whose_last_ledger_is_lost_goes_on_when_that_is_given_up() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        old = await abandoned(logs)
        await lose(cluster, 2)
        for _ in range(2):
            with pytest.raises(NoSuchLedger, match=r"ledger 2: .*cannot be fenced.*drop_lost_ledger"):
                async with logs.writer("log"):
                    pass
        dropped = await logs.drop_lost_ledger("log", 2)
        assert (dropped.ledger_id, dropped.epoch, dropped.end) == (2, 1, None)
        async with logs.writer("log", owner="new") as log:
            with pytest.raises(LogDeposed):
                await old.publish(b"lost")
            await log.publish(b"5")
        assert await payloads(logs) == ["0", "1", "2", "3", "5"]
        with pytest.raises(LogDeposed):
            await old.aclose()
        assert [ledger.ledger_id for ledger in (await logs.info("log")).ledgers] == [0, 1, 3]

    run(story)


def test_the_owner_of_a_ledger_that_is_given_up_learns_it_by_itself() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        old = await abandoned(logs)
        await lose(cluster, 2)
        await logs.drop_lost_ledger("log", 2)
        await asyncio.sleep(1)
        assert old.is_closed
        with pytest.raises(LogDeposed, match="given up"):
            await old.aclose()

    run(story)


def test_readers_and_cursors_pass_a_ledger_that_was_given_up_in_the_middle() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 6):
            pass
        async with logs.cursor("log", "c") as cursor:
            for _ in range(3):
                cursor.acknowledge(await anext(cursor))
        await lose(cluster, 1)
        with pytest.raises(NoSuchLedger):
            await payloads(logs)
        dropped = await logs.drop_lost_ledger("log", 1)
        assert dropped.end == LedgerEnd(1, 1, dropped.length, dropped.end.last_ms if dropped.end else 0)
        assert await payloads(logs) == ["0", "1", "4", "5"]
        async with logs.cursor("log", "c") as cursor:
            assert [(await anext(cursor)).payload for _ in range(2)] == [b"4", b"5"]
        assert [report.is_sound async for report in logs.check("log")] == [True, True]

    run(story)


def test_the_lost_ledger_of_a_partition_is_given_up_by_the_name_of_the_partition() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        await logs.create("many", partitions=2)
        await abandoned(logs, "many")
        (lost,) = (await logs.info("many-partition-1")).open_ledgers
        await lose(cluster, lost)
        with pytest.raises(NoSuchLedger):
            async with logs.writer("many"):
                pass
        await logs.drop_lost_ledger("many-partition-1", lost)
        async with logs.writer("many") as log:
            assert {(await log.publish(b"x")).partition for _ in range(4)} == {0, 1}

    run(story)


def test_a_ledger_that_is_not_lost_is_not_given_up() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 3):
            with pytest.raises(IllegalOperation, match="knows the ledger"):
                await logs.drop_lost_ledger("log", 1)
            with pytest.raises(IllegalOperation, match="has no ledger 7"):
                await logs.drop_lost_ledger("log", 7)
        assert await payloads(logs) == ["0", "1", "2"]

    run(story)

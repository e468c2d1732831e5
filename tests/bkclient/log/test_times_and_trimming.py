"""Reading from a time while trimming takes the beginning of a log, or all of it, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest

from bkclient import BookKeeper
from bkclient.log import LogDeposed, Logs, LogTrimmed, MessageId
from simbookie.world.metadata_service import MetadataCall, MetadataFault
from tests.bkclient.log.test_logs import SMALL, content, payloads, published, run
from tests.bkclient.virtual_cluster import VirtualCluster


@asynccontextmanager
async def held(cluster: VirtualCluster, ledger_id: int) -> AsyncIterator[Logs]:
    """Logs of a client that looks at a ledger only after the block."""

    def is_look(call: MetadataCall) -> bool:
        return (call.host, call.operation, call.ledger_id) == ("slow", "read_ledger", ledger_id)

    async with cluster.client("slow") as client:
        hold = cluster.world.metadata.intercept(is_look, MetadataFault.HOLD, limit=1)
        yield Logs(client, rng=Random(2))
        await asyncio.sleep(1)
        hold.release()
        await asyncio.sleep(1)


@pytest.mark.parametrize(("before", "expected"), [(1, ["2", "3", "4", "5"]), (2, ["4", "5"])])
def test_a_time_is_found_in_what_a_trim_leaves_that_came_meanwhile(before: int, expected: list[str]) -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 6) as (_, ids):
            async with held(cluster, 0) as slow:
                reading = asyncio.create_task(payloads(slow, start_ms=0))
                await asyncio.sleep(1)
                assert not reading.done()
                await logs.trim("log", ids[2 * before])
            assert await reading == expected

    run(story)


def test_a_time_and_an_end_are_found_in_a_log_that_is_trimmed_to_nothing_meanwhile() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        with suppress(LogDeposed):
            async with published(logs, 5) as (_, ids):  # the last ledger is open
                async with held(cluster, ids[-1].ledger_id) as slow:
                    reading = asyncio.create_task(payloads(slow, start_ms=0))
                    await asyncio.sleep(1)
                    assert not reading.done()
                    async with published(logs, 0):  # it is recovered by the next owner
                        pass
                    await asyncio.sleep(2)
                    assert await logs.trim("log") == [0, 1, 2]
                assert await reading == []
        assert reading.done()

    run(story, settings=SMALL.with_changes(retention_s=1.0))


def test_a_cursor_is_reset_to_a_time_while_a_trim_takes_what_was_there() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 6) as (_, ids):
            async with logs.cursor("log", "c") as cursor:
                for message in [await anext(cursor) for _ in range(5)]:
                    cursor.acknowledge(message)
            async with held(cluster, 0) as slow:
                resetting = asyncio.create_task(slow.reset_cursor("log", "c", start_ms=0))
                await asyncio.sleep(1)
                assert not resetting.done()
                assert await logs.trim("log", ids[4]) == [0, 1]
            await resetting
            async with logs.cursor("log", "c") as cursor:
                assert (await anext(cursor)).payload == b"4"

    run(story)


def test_what_is_published_to_a_log_without_any_ledger_left_is_read_from_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Times of an owner whose clock is behind may then be before those of messages that are gone, as the page says."""
    now_s = 1000.0
    monkeypatch.setattr(BookKeeper, "wall_clock", property(lambda _: lambda: now_s))

    async def story(_: VirtualCluster, logs: Logs) -> None:
        nonlocal now_s
        async with published(logs, 3) as (_writer, ids):
            pass
        assert {message.publish_ms for message in await content(logs)} == {1_000_000}
        now_s = 2000.0
        assert await logs.trim("log") == [0, 1]
        assert await payloads(logs, start_ms=0) == await payloads(logs, start_ms=5_000_000) == []
        async with logs.reader("log", start_ms=0) as from_time, logs.reader("log", MessageId.LATEST) as from_end:
            now_s = 900.0
            async with published(logs, 1):
                assert [(await anext(reader)).publish_ms for reader in (from_time, from_end)] == [900_000, 900_000]
        with pytest.raises(LogTrimmed):
            await payloads(logs, start=ids[-1], inclusive=False)
        assert await payloads(logs, start=MessageId.EARLIEST) == ["0"]

    run(story, settings=SMALL.with_changes(retention_s=100.0))

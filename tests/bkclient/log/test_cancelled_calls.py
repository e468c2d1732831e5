"""Every call of a log that waits, cancelled wherever it waits: nothing is lost, doubled or held up for others."""

from __future__ import annotations

import asyncio
from random import Random

from bkclient.log import LogMessage, Logs, LogSettings, PublishSettings
from tests.bkclient.fakes import FakeCluster, fake_cluster
from tests.cancellation import Cancel, cancel_everywhere

SETTINGS = LogSettings(max_ledger_entries=2, min_ledger_s=0)
NARROW = PublishSettings(max_pending_messages=2)


async def logs_of(where: FakeCluster) -> Logs:
    logs = Logs(where.bk, rng=Random(1))
    await logs.create("log", SETTINGS)
    return logs


async def content(logs: Logs) -> list[bytes]:
    async with logs.reader("log", follow=False) as reader:
        return [message.payload async for message in reader]


def test_publishing() -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            logs = await logs_of(where)
            async with logs.writer("log", settings=NARROW) as log:
                before = [log.publish_nowait(b"0"), log.publish_nowait(b"1")]
                message_id = await cancel(log.publish(b"cancelled"))
                await asyncio.gather(*before)
                await log.publish(b"2")
                assert (log.pending_messages, log.pending_bytes) == (0, 0)
            found = await content(logs)
            assert [payload for payload in found if payload != b"cancelled"] == [b"0", b"1", b"2"]
            assert found.count(b"cancelled") <= 1
            assert message_id is None or b"cancelled" in found

    assert cancel_everywhere(story, at_least=2) >= 2


def test_taking_a_log_over() -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            logs = await logs_of(where)
            async with logs.writer("log") as log:
                await log.publish(b"0")
            second = logs.writer("log")
            if await cancel(second.__aenter__()) is not None:
                await second.publish(b"1")
                await second.aclose()
            async with logs.writer("log") as log:
                await log.publish(b"2")
            assert [payload for payload in await content(logs) if payload != b"1"] == [b"0", b"2"]

    assert cancel_everywhere(story, at_least=2) >= 2


def test_closing_goes_on() -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            logs = await logs_of(where)
            log = await logs.writer("log").__aenter__()
            futures = [log.publish_nowait(b"%d" % number) for number in range(3)]
            await cancel(log.aclose())
            await log.aclose()
            assert all(future.done() for future in futures)
            assert await content(logs) == [b"0", b"1", b"2"]
            assert (await logs.info("log")).owner == ""

    assert cancel_everywhere(story, at_least=1) >= 1


def test_waiting_for_the_next_message() -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            logs = await logs_of(where)
            async with logs.writer("log") as log:
                for number in range(5):
                    await log.publish(b"%d" % number)
            found: list[LogMessage] = []
            async with logs.reader("log", follow=False) as reader:
                for number in range(5):
                    message = await (cancel(anext(reader)) if number == 2 else anext(reader))
                    found += [message] if message is not None else []
                found += [message async for message in reader]
            assert [message.payload for message in found] == [b"0", b"1", b"2", b"3", b"4"]

    assert cancel_everywhere(story, at_least=2) >= 2


def test_remembering_what_was_acknowledged() -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            logs = await logs_of(where)
            async with logs.writer("log") as log:
                for number in range(4):
                    await log.publish(b"%d" % number)
            async with logs.cursor("log", "c") as cursor:
                messages = [await anext(cursor) for _ in range(4)]
                cursor.acknowledge(messages[0])
                cursor.acknowledge(messages[2])
                await cancel(cursor.flush())
                cursor.acknowledge(messages[3])
            async with logs.cursor("log", "c") as cursor:
                assert (await anext(cursor)).payload == b"1"
                assert await cursor.backlog_entries() == 1

    assert cancel_everywhere(story, at_least=2) >= 2

"""Every call of a log that waits, cancelled wherever it waits: nothing is lost, doubled or held up for others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from random import Random
from typing import TypeVar

import pytest

from bkclient import ClientConfig, ReadingSettings
from bkclient.errors import ArgumentError, BookKeeperError, IllegalOperation
from bkclient.log import (
    ConsumerMode,
    LogCursor,
    LogMessage,
    LogReader,
    Logs,
    LogSettings,
    MessageId,
    NoSuchLog,
    PublishSettings,
)
from tests.bkclient.fakes import FakeCluster, fake_cluster
from tests.cancellation import Cancel, cancel_everywhere

SETTINGS = LogSettings(max_ledger_entries=2, min_ledger_s=0)
T = TypeVar("T")
LITTLE_AHEAD = ClientConfig(reading=ReadingSettings(read_ahead_entries=1))
NARROW = PublishSettings(max_pending_messages=2)


async def logs_of(where: FakeCluster) -> Logs:
    logs = Logs(where.bk, rng=Random(1))
    await logs.create("log", SETTINGS)
    return logs


def watches(where: FakeCluster) -> dict[str, int]:
    """What is watched, and how often."""
    contents = where.service.snapshot()
    return {**{str(ledger_id): count for ledger_id, count in contents.ledger_watches.items()}, **contents.node_watches}


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


@pytest.mark.parametrize("is_deleting", [False, True])
def test_creating_and_deleting_a_log_with_partitions(is_deleting: bool) -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            logs = Logs(where.bk, rng=Random(1))
            creating = logs.create("many", SETTINGS, partitions=2)
            await (creating if is_deleting else cancel(creating))
            if not [name async for name in logs.names()]:
                await logs.create("many", SETTINGS, partitions=2)
            async with logs.writer("many") as log:
                await log.publish(b"0")
            with suppress(NoSuchLog):
                deleting = logs.delete("many")
                await (cancel(deleting) if is_deleting else deleting)
                await logs.delete("many")
            await logs.create("many", SETTINGS, partitions=2)
            async with logs.reader("many", follow=False) as reader:
                assert [message async for message in reader] == []
            assert [ledger_id async for ledger_id in where.bk.list_ledgers()] == []

    assert cancel_everywhere(story, at_least=4) >= 4


def test_waiting_for_the_next_message_of_several_partitions() -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            logs = Logs(where.bk, rng=Random(1))
            await logs.create("many", SETTINGS, partitions=2)
            async with logs.writer("many", settings=PublishSettings(batch_messages=1)) as log:
                for number in range(6):
                    await log.publish(b"%d" % number)
            found: list[LogMessage] = []
            async with logs.reader("many", follow=False) as reader:
                for number in range(5):
                    message = await (cancel(anext(reader)) if number == 0 else anext(reader))
                    found += [message] if message is not None else []
                found += [message async for message in reader]
            assert sorted(message.payload for message in found) == [b"%d" % number for number in range(6)]

    assert cancel_everywhere(story, at_least=1) >= 1


@pytest.mark.parametrize("kind", ["a reader", "a reader of partitions", "a cursor", "a compacted reader"])
def test_taking_many_messages(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkclient.log.compaction._BATCH_MESSAGES", 1)

    async def story(cancel: Cancel) -> None:
        async with fake_cluster(config=LITTLE_AHEAD) as where:
            logs = Logs(where.bk, rng=Random(1))
            await logs.create("many", SETTINGS, partitions=2 if kind == "a reader of partitions" else 0)
            async with logs.writer("many", settings=PublishSettings(batch_messages=2)) as log:
                for number in range(9):
                    log.publish_nowait(b"%d" % number, key=str(number))
            await logs.compact("many")
            reader: LogReader | LogCursor = logs.reader("many", follow=False, compacted=kind == "a compacted reader")
            if kind == "a cursor":
                reader = logs.cursor("many", "c")
            async with reader:
                found = await reader.next_batch(2)
                found += await cancel(reader.next_batch(4)) or []
                while len(found) < 9:
                    found += await reader.next_batch()
                if isinstance(reader, LogReader):
                    assert await reader.next_batch() == []
            assert sorted(message.payload for message in found) == [b"%d" % number for number in range(9)]
            for partition in {message.id.partition for message in found}:
                ids = [message.id for message in found if message.id.partition == partition]
                assert ids == sorted(set(ids))

    assert cancel_everywhere(story, at_least=1) >= 1


@pytest.mark.deep
def test_a_compacted_reader_that_finds_its_place_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkclient.log.compaction._BATCH_MESSAGES", 1)

    async def story(cancel: Cancel) -> None:
        async with fake_cluster(config=LITTLE_AHEAD) as where:
            logs = await logs_of(where)

            async def publish(*values: bytes) -> None:
                async with logs.writer("log") as log:
                    for value in values:
                        await log.publish(value, key=value.decode())

            await publish(b"0", b"1", b"2", b"3")
            await logs.compact("log")
            before = (await logs.info("log")).compacted
            assert before is not None
            async with logs.reader("log", follow=False, compacted=True) as reader:
                found = [await anext(reader)]
                await publish(b"4", b"5", b"6")
                await logs.compact("log")
                await logs.trim("log", MessageId.LATEST)
                for bookie in where.transport.bookies.values():  # they collect their garbage
                    for key in [key for key in bookie.entries if key[0] == before.ledger_id]:
                        del bookie.entries[key]
                message = await cancel(anext(reader))
                found += [message] if message is not None else []
                found += [each async for each in reader]
            assert [each.payload for each in found][:4] == [b"0", b"1", b"2", b"3"]

    assert cancel_everywhere(story, at_least=1) >= 1


@pytest.mark.parametrize("cancelled", ["enter", "receive", "flush"])
def test_entering_a_group_receiving_and_storing(cancelled: str) -> None:
    async def story(cancel: Cancel) -> None:
        async def maybe(what: str, call: Awaitable[T]) -> T | None:
            return await (cancel(call) if what == cancelled else call)

        async with fake_cluster() as where:
            logs = await logs_of(where)
            async with logs.writer("log") as log:
                for number in range(4):
                    await log.publish(b"%d" % number)
            found = []
            consumer = logs.consumer("log", "g")
            if await maybe("enter", consumer.__aenter__()) is not None:
                message = await maybe("receive", consumer.receive())
                for each in (message, await consumer.receive()):
                    if each is not None:
                        consumer.acknowledge(each)
                        found.append(each.payload)
                await maybe("flush", consumer.flush())
                await consumer.__aexit__(None, None, None)
            async with logs.consumer("log", "g", mode=ConsumerMode.SHARED) as consumer:
                while len(found) < 4:
                    message = await consumer.receive()
                    consumer.acknowledge(message)
                    found.append(message.payload)
            assert sorted(found) == [b"0", b"1", b"2", b"3"]

    assert cancel_everywhere(story, at_least=1) >= 1


@pytest.mark.parametrize("partitions", [0, 2])
def test_leaving_a_group(partitions: int) -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            logs = Logs(where.bk, rng=Random(1))
            await logs.create("log", SETTINGS, partitions=partitions)
            async with logs.writer("log", settings=PublishSettings(batch_messages=1)) as log:
                for number in range(4):
                    await log.publish(b"%d" % number)
            consumer = await logs.consumer("log", "g", mode=ConsumerMode.EXCLUSIVE).__aenter__()
            first = await consumer.receive()
            consumer.acknowledge(first)
            await cancel(consumer.__aexit__(None, None, None))
            with pytest.raises(IllegalOperation):
                await consumer.receive()
            await asyncio.sleep(0.1)
            assert watches(where) == {}
            async with logs.consumer("log", "g", mode=ConsumerMode.EXCLUSIVE) as consumer:
                found = [await consumer.receive() for _ in range(3)]
            assert first.payload not in [message.payload for message in found]

    assert cancel_everywhere(story, at_least=4) >= 4


@pytest.mark.parametrize("kind", ["reader", "cursor"])
@pytest.mark.parametrize("partitions", [0, 2])
def test_leaving_a_reader(kind: str, partitions: int) -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            logs = Logs(where.bk, rng=Random(1))
            await logs.create("log", SETTINGS, partitions=partitions)
            async with logs.writer("log") as log:
                for number in range(4):
                    await log.publish(b"%d" % number)
                reader: LogReader | LogCursor = logs.reader("log") if kind == "reader" else logs.cursor("log", "c")
                await reader.__aenter__()
                for _ in range(4):
                    message = await anext(reader)
                    if isinstance(reader, LogCursor):
                        reader.acknowledge(message)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1):
                        await anext(reader)
                before = watches(where)
                await cancel(reader.__aexit__(None, None, None))
                await asyncio.sleep(0.1)
                left = watches(where)
                assert sum(left.values()) < sum(before.values())
            assert watches(where) == {}
            if kind == "cursor":
                async with logs.cursor("log", "c") as cursor:
                    assert await cursor.backlog_entries() == 0

    cancel_everywhere(story, at_least=1 if partitions or kind == "cursor" else 0)


def test_a_writer_whose_entering_was_cancelled_is_entered_no_more() -> None:
    async def story(cancel: Cancel) -> None:
        async with fake_cluster() as where:
            logs = await logs_of(where)
            log = logs.writer("log")
            if await cancel(log.__aenter__()) is not None:
                await log.aclose()
            with pytest.raises(ArgumentError, match="can be entered once"):
                await log.__aenter__()
            with pytest.raises(BookKeeperError):
                await log.publish(b"x")

    assert cancel_everywhere(story, at_least=2) >= 2

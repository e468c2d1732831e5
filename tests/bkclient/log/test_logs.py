"""Logs as applications use them, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from bkclient import BookKeeper
from bkclient.errors import (
    ArgumentError,
    BookKeeperError,
    IllegalOperation,
    LedgerClosed,
    NotEnoughBookies,
    TooManyRequests,
)
from bkclient.log import (
    LogDeposed,
    LogExists,
    LogMessage,
    Logs,
    LogSettings,
    LogTrimmed,
    LogWriter,
    MessageId,
    NoSuchLog,
    PublishSettings,
)
from bkclient.metadata.memory import MemoryMetadataService
from simbookie.world.metadata_service import MetadataFault
from tests.bkclient.fakes import FakeStore, FakeTransport
from tests.bkclient.virtual_cluster import VirtualCluster, run_in_cluster

SMALL = LogSettings(max_ledger_entries=2, min_ledger_s=0)
Story = Callable[[VirtualCluster, Logs], Awaitable[None]]


def run(story: Story, *, settings: LogSettings = SMALL, bookies: int = 3) -> None:
    """Play ``story`` with a log ``log``."""

    async def program(cluster: VirtualCluster) -> None:
        async with cluster.client(writing={"explicit_lac_interval_s": 0.1}) as client:  # as clients are by default
            logs = Logs(client, rng=Random(1))
            await logs.create("log", settings)
            async with asyncio.timeout(1000):
                await story(cluster, logs)

    run_in_cluster(program, bookies=bookies)


async def content(logs: Logs, **options: Any) -> list[LogMessage]:
    async with logs.reader("log", follow=False, **options) as reader:
        return [message async for message in reader]


async def payloads(logs: Logs, **options: Any) -> list[str]:
    return [message.payload.decode() for message in await content(logs, **options)]


@asynccontextmanager
async def published(logs: Logs, count: int, **settings: Any) -> AsyncIterator[tuple[LogWriter, list[MessageId]]]:
    """A writer that has published messages 0, 1, ... one by one, and their ids."""
    async with logs.writer("log", settings=PublishSettings(**settings)) as log:
        yield log, [await log.publish(b"%d" % number) for number in range(count)]


def test_messages_are_read_as_they_were_published_across_ledgers() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.writer("log", owner="me") as log:
            first = await log.publish(b"a", key="k", headers={"h": b"v"}, event_ms=7)
            others = [await log.publish(b"%d" % number) for number in range(4)]
            assert (await logs.info("log")).owner == "me"
            assert log.pending_messages == 0
        found = await content(logs)
        assert [message.id for message in found] == [first, *others] == sorted([first, *others])
        assert (found[0].key, found[0].headers, found[0].event_ms) == ("k", {"h": b"v"}, 7)
        assert len({message.id.ledger_id for message in found}) == 3
        assert [message.publish_ms for message in found] == sorted(message.publish_ms for message in found)
        manifest = await logs.info("log")
        assert (manifest.owner, manifest.open_ledgers) == ("", ())

    run(story)


def test_messages_under_way_share_entries_within_the_limits_of_a_batch() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.writer("log", settings=PublishSettings(batch_messages=3, compression="zlib")) as log:
            futures = [log.publish_nowait(b"%d" % number) for number in range(7)]
            await log.flush()
            ids = [future.result() for future in futures]
        assert [message_id.batch_index for message_id in ids] == [0, 1, 2, 0, 1, 2, -1]
        assert await payloads(logs) == [str(number) for number in range(7)]
        assert await payloads(logs, start=ids[4]) == ["4", "5", "6"]
        assert await payloads(logs, start=ids[4], inclusive=False) == ["5", "6"]
        assert await payloads(logs, start=ids[6], inclusive=False) == []

    run(story)


def test_a_batch_ends_with_its_bytes_or_its_delay() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        settings = PublishSettings(batch_bytes=100, batch_delay_s=5.0)
        async with logs.writer("log", settings=settings) as log:
            futures = [log.publish_nowait(bytes(40)) for _ in range(3)]
            await asyncio.sleep(1)
            assert [future.done() for future in futures] == [True, True, False], "the third one is the first of a batch"
            await asyncio.sleep(5)
            assert futures[2].done()

    run(story, settings=LogSettings())


def test_a_batch_is_never_larger_than_what_bookies_take() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.writer("log", settings=PublishSettings(batch_bytes=64 * 1024 * 1024)) as log:
            futures = [log.publish_nowait(bytes(1024 * 1024)) for _ in range(7)]
            await log.flush()
        assert [future.result().batch_index for future in futures] == [0, 1, 2, 3, 0, 1, 2]  # frames have 5 MiB

    run(story)


def test_a_reader_follows_across_ledgers_and_owners_and_loses_nothing_when_it_is_cancelled() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.reader("log") as reader:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(30):
                    await anext(reader)
            found = []
            for owner in range(3):
                async with logs.writer("log") as log:
                    for number in range(3):
                        await log.publish(b"%d%d" % (owner, number))
                        found.append((await anext(reader)).payload.decode())
            assert found == [f"{owner}{number}" for owner in range(3) for number in range(3)]

    run(story)


def test_the_last_message_before_a_pause_is_seen() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.writer("log") as log, logs.reader("log") as reader:
            await log.publish(b"only")
            async with asyncio.timeout(0.5):
                assert (await anext(reader)).payload == b"only"

    run(story)


def test_reading_begins_at_the_end_or_at_a_time() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        times = []
        async with logs.writer("log") as log:
            for number in range(7):
                await log.publish(b"%d" % number)
                times.append(int(asyncio.get_running_loop().time() * 1000))
                await asyncio.sleep(1)
        for number, at_ms in enumerate(times):
            assert await payloads(logs, start_ms=at_ms - 100) == [str(each) for each in range(number, 7)]
        assert await payloads(logs, start_ms=times[-1] + 1) == []
        assert await payloads(logs, start_ms=0) == [str(number) for number in range(7)]
        async with logs.reader("log", MessageId.LATEST) as reader, logs.writer("log") as log:
            await log.publish(b"new")
            await log.publish(b"next")
            assert [(await anext(reader)).payload for _ in range(2)] == [b"new", b"next"]

    run(story)


def test_an_owner_takes_the_log_over_and_the_one_before_gets_no_acknowledgement_any_more() -> None:
    async def take_over(cluster: VirtualCluster, logs: Logs, old: LogWriter) -> None:
        async with cluster.client("other") as other, Logs(other, rng=Random(2)).writer("log", owner="new") as new:
            assert new.epoch == old.epoch + 1
            await new.publish(b"1")
            with pytest.raises(LogDeposed, match="'new'"):
                await old.publish(b"2")
            with pytest.raises(LogDeposed):
                await old.flush()
            assert old.is_closed

    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        old = await logs.writer("log", owner="old").__aenter__()
        await old.publish(b"0")
        await take_over(cluster, logs, old)
        with pytest.raises(LogDeposed):
            await old.aclose()
        assert await payloads(logs) == ["0", "1"]

    run(story)


def test_an_idle_owner_learns_by_itself_that_it_was_deposed() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        old = await logs.writer("log").__aenter__()
        async with cluster.client("other") as other, Logs(other, rng=Random(2)).writer("log"):
            await asyncio.sleep(1)
            assert old.is_closed
        with pytest.raises(LogDeposed):
            await old.aclose()

    run(story)


def test_bookies_that_die_are_lived_through_in_another_ledger_and_nothing_is_there_twice() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with logs.writer("log") as log:
            await log.publish(b"0")
            futures = [log.publish_nowait(b"%d" % number) for number in range(1, 5)]
            cluster.bookies["b0"].crash()
            cluster.bookies["b1"].crash()
            await asyncio.sleep(5)
            for name in ("b0", "b1"):
                cluster.bookies[name].restart()
            ids = await asyncio.gather(*futures)
        assert await payloads(logs) == ["0", "1", "2", "3", "4"]
        assert ids[-1].ledger_id < 15, "while bookies fail new ledgers are made later and later"

    run(story, settings=LogSettings(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3))


def test_an_owner_that_cannot_write_gives_up_when_it_is_told_to() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        for name in ("b0", "b1"):
            cluster.bookies[name].crash()
        await asyncio.sleep(30)
        began = asyncio.get_running_loop().time()
        with pytest.raises(NotEnoughBookies):
            async with logs.writer("log", settings=PublishSettings(give_up_s=20)) as log:
                await log.publish(b"0")
        assert 10 < asyncio.get_running_loop().time() - began < 30

    run(story)


def test_an_owner_whose_ledgers_fail_one_after_the_other_gives_up() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        log = await logs.writer("log", settings=PublishSettings(give_up_s=8)).__aenter__()
        await log.publish(b"0")
        for name in ("b0", "b1"):
            cluster.bookies[name].crash()  # they stay registered for a while, so ledgers are made of them
        began = asyncio.get_running_loop().time()
        with pytest.raises(BookKeeperError):
            await log.publish(b"1")
        assert asyncio.get_running_loop().time() - began < 30
        with pytest.raises(BookKeeperError):
            await log.aclose()

    run(story, settings=LogSettings(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3))


@pytest.mark.parametrize("fault", [MetadataFault.ANSWER_LOST, MetadataFault.CALL_LOST])
def test_every_change_of_the_manifest_may_lose_its_answer(fault: MetadataFault) -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        for skipped in range(6):
            seen = 0

            def is_that(call: Any, skipped: int = skipped) -> bool:
                nonlocal seen
                seen += call.operation == "tree_write"
                return bool(call.operation == "tree_write" and seen == skipped + 1)

            cluster.world.metadata.intercept(is_that, fault, limit=1)
            async with published(logs, 3) as (_, ids):
                assert ids == sorted(ids)
        assert await payloads(logs) == ["0", "1", "2"] * 6

    run(story)


def test_a_ledger_is_replaced_for_its_age_and_not_while_it_is_young() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.writer("log") as log:
            ids = []
            for number in range(8):
                ids.append(await log.publish(b"%d" % number))
                await asyncio.sleep(4.9)
            assert [message_id.ledger_id for message_id in ids] == [0, 0, 0, 1, 1, 1, 2, 2]
            await asyncio.sleep(100)
            assert (await logs.info("log")).open_ledgers == (), "an idle log has no open ledger, and creates no other"

    run(story, settings=LogSettings(max_ledger_entries=2, min_ledger_s=10.0, max_ledger_s=50.0))


# Trimming and deleting -----------------------------------------------------------------------------------------------


def test_retention_keeps_what_is_young_or_within_the_bytes() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 3):
            pass
        assert await logs.trim("log") == [], "it is young"
        await asyncio.sleep(100)
        async with published(logs, 3):
            assert await logs.trim("log") == [0, 1]
            assert await logs.trim("log") == []
        assert await payloads(logs) == ["0", "1", "2"]
        assert [ledger_id async for ledger_id in cluster_ledgers(logs)] == [2, 3]
        assert (await logs.info("log")).trimmed == ()

    run(story, settings=SMALL.with_changes(retention_s=60.0))


async def cluster_ledgers(logs: Logs) -> AsyncIterator[int]:
    for ledger in (await logs.info("log")).ledgers:
        yield ledger.ledger_id


def test_a_reader_that_trimming_overtakes_is_told() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 6) as (_writer, ids), logs.reader("log") as reader:
            await anext(reader)
            assert await logs.trim("log", ids[4]) == [0, 1]
            with pytest.raises(LogTrimmed):
                assert [message.payload async for message in reader] == []
            with pytest.raises(LogTrimmed, match="0:1"):
                await content(logs, start=ids[1])
            assert await payloads(logs) == ["4", "5"]

    run(story)


def test_a_log_that_is_deleted_deposes_its_owner_and_may_be_created_again() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        log = await logs.writer("log").__aenter__()
        for _number in range(3):
            await log.publish(b"gone")
        await logs.delete("log")
        with pytest.raises(NoSuchLog):
            await log.publish(b"lost")
        with pytest.raises(NoSuchLog):
            await log.aclose()
        with pytest.raises(NoSuchLog):
            await logs.info("log")
        with pytest.raises(NoSuchLog):
            await logs.delete("log")
        assert [name async for name in logs.names()] == []
        await logs.create("log")
        async with published(logs, 1) as (_, ids):
            assert ids[0].ledger_id > 1
        assert await payloads(logs) == ["0"]
        assert [name async for name in logs.names()] == ["log"]

    run(story)


# What is refused -----------------------------------------------------------------------------------------------------


def test_a_log_exists_once_and_has_to_be_created() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        with pytest.raises(LogExists):
            await logs.create("log")
        with pytest.raises(NoSuchLog):
            async with logs.writer("other"):
                pass
        with pytest.raises(NoSuchLog):
            async with logs.reader("other"):
                pass
        for name in ("", "a/b", "x" * 201):
            with pytest.raises(ArgumentError):
                await logs.create(name)
        with pytest.raises(ArgumentError, match="owner"):
            logs.writer("log", owner="x" * 201)
        with pytest.raises(ArgumentError, match="MessageId"):
            logs.reader("log", "1:2")  # type: ignore[arg-type]

    run(story)


def test_what_is_not_acknowledged_is_bounded() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.writer("log", settings=PublishSettings(max_pending_messages=2, max_pending_bytes=1000)) as log:
            first = [log.publish_nowait(b"0"), log.publish_nowait(b"1")]
            with pytest.raises(TooManyRequests, match="2 messages"):
                log.publish_nowait(b"2")
            waiting = asyncio.create_task(log.publish(b"2"))
            cancelled = asyncio.create_task(log.publish(b"never"))
            await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.gather(*first, waiting)
            log.publish_nowait(bytes(900))
            with pytest.raises(TooManyRequests, match="bytes"):
                log.publish_nowait(bytes(500))
            with pytest.raises(ArgumentError, match="at most 1000 bytes"):
                log.publish_nowait(bytes(1001))
            await log.flush()
            assert (log.pending_messages, log.pending_bytes) == (0, 0)
        assert (await payloads(logs))[:3] == ["0", "1", "2"]

    run(story)


def test_writers_and_readers_are_used_inside_their_blocks_and_once() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        log, reader = logs.writer("log"), logs.reader("log", follow=False)
        with pytest.raises(ArgumentError, match="inside"):
            await log.publish(b"")
        with pytest.raises(IllegalOperation, match="inside"):
            await anext(reader)
        async with log, reader:
            with pytest.raises(ArgumentError, match="bytes-like"):
                await log.publish("text")  # type: ignore[arg-type]
            with pytest.raises(StopAsyncIteration):
                await anext(reader)
        with pytest.raises(LedgerClosed):
            await log.publish(b"")
        await log.aclose()
        for again in (log, reader):
            with pytest.raises((ArgumentError, IllegalOperation), match="once"):
                await again.__aenter__()

    run(story)


async def test_publishing_needs_a_clock() -> None:
    async with BookKeeper(FakeStore(MemoryMetadataService()), FakeTransport("")) as client:
        with pytest.raises(ArgumentError, match="wall_clock"):
            Logs(client).writer("log")

"""Cursors and consumers through outages, quiet periods, takeovers and their ends, in virtual time."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from bkclient.errors import BookKeeperError, DigestMismatch, IllegalOperation, MetadataStoreError, UnexpectedCondition
from bkclient.log import (
    CursorInfo,
    LogCursor,
    LogDeposed,
    LogMessage,
    Logs,
    LogSettings,
    LogTrimmed,
    MessageId,
    NoSuchLog,
    PublishSettings,
    partition_reader,
)
from bkclient.log.format.entry import decode_entry
from bkclient.log.machine.changes import MoveCursorBack
from bkclient.log.partition_reader import PartitionReader
from simbookie.world.metadata_service import MetadataFault
from tests.bkclient.log.test_logs import published, run
from tests.bkclient.virtual_cluster import VirtualCluster


async def stored(logs: Logs, name: str = "c") -> CursorInfo:
    (info,) = [each for each in await logs.cursors("log") if each.name == name]
    return info


# Acknowledgements are stored ------------------------------------------------------------------------------------------


def test_the_last_acknowledgements_before_a_pause_are_stored_soon() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 5):
            pass
        async with logs.cursor("log", "c") as cursor:
            for _ in range(5):
                cursor.acknowledge(await anext(cursor))
            waiting = asyncio.ensure_future(anext(cursor))
            await asyncio.sleep(1.5)
            assert (await stored(logs)).backlog_entries == 0
            waiting.cancel()

    run(story)


def test_a_cursor_lives_through_an_outage_of_the_metadata_service() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 6):
            pass
        is_away = True
        cluster.world.metadata.intercept(lambda call: is_away and "tree" in call.operation, MetadataFault.CALL_LOST)
        is_away = False
        async with logs.cursor("log", "c") as cursor:
            found = [await anext(cursor) for _ in range(2)]
            is_away = True
            for message in found:
                cursor.acknowledge(message)
            for _ in range(2):
                await asyncio.sleep(20)
                found.append(await anext(cursor))
            is_away = False
            await asyncio.sleep(30)
            assert (await stored(logs)).backlog_entries == 4

    run(story)


def test_a_cursor_that_was_taken_over_says_so_to_a_task_that_waits() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 3):
            pass
        old = await logs.cursor("log", "c").__aenter__()
        for _ in range(3):
            await anext(old)
        waiting = asyncio.ensure_future(anext(old))
        async with cluster.client("other") as client, Logs(client, rng=Random(2)).cursor("log", "c"):
            with pytest.raises(LogDeposed, match="taken over, reset or removed"):
                async with asyncio.timeout(30):
                    await waiting
            with pytest.raises(LogDeposed):
                await anext(old)
        await old.__aexit__(None, None, None)

    run(story)


def test_a_cursor_whose_storing_is_a_defect_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async def failing(_: LogCursor) -> None:
            raise RuntimeError("planted")

        async with published(logs, 3):
            pass
        cursor = await logs.cursor("log", "c").__aenter__()
        with monkeypatch.context() as patch:
            patch.setattr(LogCursor, "_store_all", failing)
            cursor.acknowledge(await anext(cursor))
            await asyncio.sleep(2)
        with pytest.raises(UnexpectedCondition, match="planted"):
            await anext(cursor)
        await cursor.__aexit__(None, None, None)

    run(story)


# Blocks and tasks -----------------------------------------------------------------------------------------------------


def test_cursors_readers_and_consumers_are_of_no_use_after_their_blocks() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 4):
            pass
        async with logs.cursor("log", "c") as cursor:
            message = await anext(cursor)
        with pytest.raises(IllegalOperation, match="inside"):
            cursor.acknowledge(message)
        with pytest.raises(IllegalOperation, match="inside"):
            cursor.acknowledge_through(message)
        with pytest.raises(IllegalOperation, match="inside"):
            await anext(cursor)
        with pytest.raises(IllegalOperation, match="inside"):
            await cursor.flush()
        async with logs.reader("log") as reader:
            await anext(reader)
        with pytest.raises(IllegalOperation, match="inside"):
            await anext(reader)
        async with logs.consumer("log", "g") as consumer:
            message = await consumer.receive()
        with pytest.raises(IllegalOperation, match="inside"):
            consumer.acknowledge(message)
        with pytest.raises(IllegalOperation, match="inside"):
            await consumer.receive()

    run(story)


@pytest.mark.parametrize("kind", ["reader", "compacted reader", "cursor"])
def test_a_task_that_waits_is_told_when_the_block_is_left(kind: str) -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.writer("log") as log:
            await log.publish(b"0", key="k")
            if kind == "compacted reader":
                await logs.compact("log")
            reader = logs.cursor("log", "c") if kind == "cursor" else logs.reader("log", compacted=kind != "reader")

            async def follow() -> list[bytes]:
                return [message.payload async for message in reader]

            async with reader:
                following = asyncio.create_task(follow())
                await asyncio.sleep(1)
            async with asyncio.timeout(1):
                assert await following == [b"0"]

    run(story)


def test_one_task_at_a_time_waits_for_messages_of_a_cursor() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.cursor("log", "c") as cursor, logs.writer("log") as log:
            waiting = asyncio.ensure_future(anext(cursor))
            await asyncio.sleep(0.1)
            with pytest.raises(IllegalOperation, match="another task"):
                await anext(cursor)
            await log.publish(b"x")
            assert (await waiting).payload == b"x"
            waiting = asyncio.ensure_future(anext(cursor))
            await asyncio.sleep(0.1)
            waiting.cancel()
            await asyncio.wait([waiting])
            await log.publish(b"y")
            assert (await anext(cursor)).payload == b"y"

    run(story)


def test_many_messages_are_taken_at_a_time() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.writer("log", settings=PublishSettings(batch_messages=3)) as log:
            for number in range(10):
                log.publish_nowait(b"%d" % number)
        async with logs.reader("log", follow=False) as reader:
            assert texts(await reader.next_batch(2)) == ["0", "1"]
            assert (await anext(reader)).payload == b"2"
            found = texts(await reader.next_batch(5))
            assert found == ["3", "4", "5", "6", "7"], "of several entries"
            while more := await reader.next_batch():
                found += texts(more)
            assert found == [str(number) for number in range(3, 10)]
            for wrong in (0, True, "3"):
                with pytest.raises(ValueError, match="max_messages"):
                    await reader.next_batch(wrong)  # type: ignore[arg-type]
        async with logs.cursor("log", "c") as cursor:
            messages = [await anext(cursor) for _ in range(4)]
            cursor.acknowledge(messages[3])
        async with logs.cursor("log", "c") as cursor:
            found = []
            while len(found) < 9:
                found += texts(await cursor.next_batch(4))
            assert found == ["0", "1", "2", "4", "5", "6", "7", "8", "9"]
        async with logs.consumer("log", "g") as consumer:
            found = texts(await consumer.receive_batch(2))
            while len(found) < 10:
                found += texts(await consumer.receive_batch())
            assert found == [str(number) for number in range(10)]

    run(story, settings=LogSettings())


def test_what_fails_while_more_is_taken_is_told_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    real = decode_entry

    def decode(data: bytes, ledger_id: int, entry_id: int, partition: int) -> list[LogMessage]:
        if (ledger_id, entry_id) == (0, 1):
            raise DigestMismatch("planted", ledger_id=ledger_id, entry_id=entry_id)
        return real(data, ledger_id, entry_id, partition)

    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 3):
            pass
        monkeypatch.setattr(partition_reader, "decode_entry", decode)
        async with logs.reader("log", follow=False) as reader:
            assert texts(await reader.next_batch()) == ["0"]
            with pytest.raises(DigestMismatch, match="planted"):
                await reader.next_batch()
            assert texts(await reader.next_batch()) == ["2"]

    run(story)


# Consumers ------------------------------------------------------------------------------------------------------------


def test_a_consumer_lives_through_an_outage_of_all_bookies() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 6):
            pass
        async with logs.consumer("log", "g", max_unacknowledged=1) as consumer:
            consumer.acknowledge(await consumer.receive())
            for bookie in cluster.bookies.values():
                bookie.crash()
            await asyncio.sleep(100)
            for bookie in cluster.bookies.values():
                bookie.restart()
            found: list[str] = []
            while len(found) < 5:
                message = await consumer.receive()
                consumer.acknowledge(message)
                found.append(message.payload.decode())
            assert found == ["1", "2", "3", "4", "5"]

    run(story)


class Failing:
    """The readers of partitions fail, by these errors, one after the other."""

    def __init__(self, patch: pytest.MonkeyPatch, *errors: Exception) -> None:
        self.errors = list(errors)
        real = PartitionReader.next

        async def failing(reader: PartitionReader) -> LogMessage:
            if self.errors:
                raise self.errors.pop(0)
            return await real(reader)

        patch.setattr(PartitionReader, "next", failing)


def test_what_does_not_pass_is_told_once_and_reading_goes_on_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = MetadataStoreError("away"), DigestMismatch("damaged"), RuntimeError("planted"), LogTrimmed("gone")

    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 2):
            pass
        failing = Failing(monkeypatch, *errors)
        async with logs.consumer("log", "g") as consumer, asyncio.timeout(60):
            with pytest.raises(DigestMismatch, match="damaged"):
                await consumer.receive()
            with pytest.raises(UnexpectedCondition, match="planted"):
                await consumer.receive()
            with pytest.raises(LogTrimmed):
                async for _message in consumer:
                    pass
            assert [(await consumer.receive()).payload for _ in range(2)] == [b"0", b"1"]
        assert failing.errors == []

    run(story)


def test_what_lasts_is_told_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 1):
            pass
        failing = Failing(monkeypatch, *[MetadataStoreError("away") for _ in range(100)])
        async with logs.consumer("log", "g") as consumer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(50):
                    await consumer.receive()
            with pytest.raises(MetadataStoreError, match="away"):
                async with asyncio.timeout(20):
                    await consumer.receive()
            assert 80 < len(failing.errors) < 90, "tried again less and less often"
            failing.errors.clear()
            assert (await consumer.receive()).payload == b"0"

    run(story)


@pytest.mark.parametrize("error", [RuntimeError("planted"), BookKeeperError("planted")])
def test_a_consumer_that_fails_by_itself_tells_those_who_receive(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.consumer("log", "g") as consumer:

            async def failing(*_: object) -> None:
                raise error

            monkeypatch.setattr(consumer, "_keep_to_the_list", failing)
            for _turn in range(2):
                with pytest.raises(BookKeeperError, match="planted"):
                    async with asyncio.timeout(60):
                        await consumer.receive()

    run(story)


def test_a_group_goes_on_although_cursors_are_taken_over_again_and_again() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 2):
            pass
        is_disturbed = True
        cluster.world.metadata.intercept(
            lambda call: is_disturbed and call.operation == "tree_write", MetadataFault.CALL_LOST
        )
        async with logs.consumer("log", "g") as consumer:
            pass
        async with logs.consumer("log", "g") as consumer:
            await asyncio.sleep(300)
            is_disturbed = False
            async with asyncio.timeout(60):
                assert (await consumer.receive()).payload == b"0"

    run(story)


# Removed and made again -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_log_deleted", [False, True], ids=["the cursor", "the log"])
def test_who_had_a_cursor_cannot_store_it_after_it_was_removed_and_made_again(is_log_deleted: bool) -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 6):
            pass
        async with cluster.client("other") as client:
            other = Logs(client, rng=Random(2))
            old = await other.cursor("log", "c").__aenter__()
            message = [await anext(old) for _ in range(5)][-1]
            if is_log_deleted:
                await logs.delete("log")
                await logs.create("log")
                async with published(logs, 6):
                    pass
            else:
                await logs.remove_cursor("log", "c")
                await logs.remove_cursor("log", "c")
                assert await logs.cursors("log") == []
            async with logs.cursor("log", "c"):
                before = await stored(logs)
                old.acknowledge_through(message)
                with pytest.raises(LogDeposed):
                    await old.flush()
                assert await stored(logs) == before
            with pytest.raises((LogDeposed, NoSuchLog)):
                await old.__aexit__(None, None, None)

    run(story)


# Reset ----------------------------------------------------------------------------------------------------------------


def texts(messages: list[LogMessage]) -> list[str]:
    return [message.payload.decode() for message in messages]


async def all_of(cursor: LogCursor, count: int) -> list[str]:
    found = []
    for _ in range(count):
        message = await anext(cursor)
        cursor.acknowledge(message)
        found.append(message.payload.decode())
    return found


def test_a_cursor_is_reset_to_a_message_a_time_or_an_end() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        times = []
        async with logs.writer("log") as log:
            ids = []
            for number in range(6):
                times.append(int(asyncio.get_running_loop().time() * 1000))
                ids.append(await log.publish(b"%d" % number))
                await asyncio.sleep(1)
        async with logs.cursor("log", "c") as cursor:
            assert len(await all_of(cursor, 6)) == 6
        cases: list[tuple[MessageId | None, int | None, list[str]]] = [
            (ids[4], None, ["4", "5"]),
            (MessageId.EARLIEST, None, ["0", "1", "2", "3", "4", "5"]),
            (None, times[2], ["2", "3", "4", "5"]),
            (MessageId.LATEST, None, []),
        ]
        for start, start_ms, expected in cases:
            await logs.reset_cursor("log", "c", start, start_ms=start_ms)
            assert (await stored(logs)).backlog_entries == len(expected)
            async with logs.cursor("log", "c") as cursor:
                assert await all_of(cursor, len(expected)) == expected

    run(story)


def test_a_cursor_that_is_reset_is_taken_from_who_has_it_and_a_consumer_begins_there() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 4):
            pass
        async with logs.consumer("log", "g") as consumer:
            for _ in range(4):
                consumer.acknowledge(await consumer.receive())
            await asyncio.sleep(5)
            async with cluster.client("other") as client:
                await Logs(client, rng=Random(2)).reset_cursor("log", "g", MessageId.EARLIEST)
            async with asyncio.timeout(30):
                assert texts([await consumer.receive() for _ in range(4)]) == ["0", "1", "2", "3"]

    run(story)


async def trim_meets_reset(cluster: VirtualCluster, logs: Logs) -> None:
    async with published(logs, 6) as (_log, ids):
        async with logs.cursor("log", "c") as cursor:
            await all_of(cursor, 6)
        hold = cluster.world.metadata.intercept(
            lambda call: call.host == "client" and call.operation == "tree_write",
            MetadataFault.HOLD,
            limit=1,
        )
        trimming = asyncio.create_task(logs.trim("log", ids[5]))
        await asyncio.sleep(1)
        async with cluster.client("other") as client:
            await Logs(client, rng=Random(2)).reset_cursor("log", "c", MessageId.EARLIEST)
        hold.release()
        assert await trimming == []
        async with logs.cursor("log", "c") as cursor:
            assert await all_of(cursor, 6) == ["0", "1", "2", "3", "4", "5"]


def test_trimming_and_a_reset_that_needs_what_goes_exclude_each_other() -> None:
    run(trim_meets_reset)


def test_a_reset_that_is_not_announced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MoveCursorBack, "is_made", lambda *_: True)
    with pytest.raises(AssertionError):
        run(trim_meets_reset)


def test_a_reset_of_partitions_moves_those_that_are_named() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        await logs.create("many", partitions=2)
        async with logs.writer("many") as log:
            ids = [await log.publish(b"x") for _ in range(6)]
        async with logs.cursor("many", "c") as cursor:
            await all_of(cursor, 6)
        first = next(each for each in ids if each.partition == 1)
        await logs.reset_cursor("many", "c", [first])
        assert [info.backlog_entries for info in await logs.cursors("many")] == [0, 3]
        await logs.reset_cursor("many", "c", MessageId.EARLIEST)
        assert [info.backlog_entries for info in await logs.cursors("many")] == [3, 3]
        await logs.reset_cursor("many", "c", start_ms=2**60)
        assert [info.backlog_entries for info in await logs.cursors("many")] == [0, 0]

    run(story)


def test_a_reset_that_cannot_be_is_refused() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 6) as (_log, ids):
            with pytest.raises(IllegalOperation, match="no cursor 'c'"):
                await logs.reset_cursor("log", "c", MessageId.EARLIEST)
            async with logs.cursor("log", "c", MessageId.LATEST):
                pass
            await logs.trim("log", ids[4])
            with pytest.raises(LogTrimmed):
                await logs.reset_cursor("log", "c", ids[0])
            with pytest.raises(ValueError, match="either start or start_ms"):
                await logs.reset_cursor("log", "c")
            with pytest.raises(ValueError, match="either start or start_ms"):
                await logs.reset_cursor("log", "c", ids[5], start_ms=3)

    run(story)

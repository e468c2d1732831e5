"""Cursors: what they remember, that crashes do not lose it, and that trimming waits for them."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from random import Random
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.coordination import VersionedRegister
from bkclient.errors import IllegalOperation, MetadataSerializationError, TooManyRequests
from bkclient.log import LogCursor, LogDeposed, LogMessage, Logs, LogTrimmed, MessageId, PublishSettings
from bkclient.log.machine.changes import AddCursor
from bkclient.log.machine.cursor import MAX_HOLES, CursorState, decode_cursor, encode_cursor
from bkclient.log.machine.manifest import LedgerEnd, LogLedger, LogManifest
from simbookie.world.metadata_service import MetadataCall, MetadataFault
from tests.bkclient.log.test_logs import SMALL, payloads, published, run
from tests.bkclient.virtual_cluster import VirtualCluster

MANIFEST = LogManifest("log", epoch=1, ledgers=(LogLedger(2, 1, 0, LedgerEnd(2, 3)), LogLedger(5, 1)))
PLACES = [(2, 0), (2, 1), (2, 2), (2, 3), (5, 0), (5, 1), (5, 2)]


@settings(max_examples=80)
@given(st.lists(st.tuples(st.sampled_from(PLACES), st.integers(-1, 2), st.booleans()), max_size=25))
def test_a_cursor_is_a_set_of_messages(acts: list[tuple[tuple[int, int], int, bool]]) -> None:
    state, model = CursorState("log", "h", -1, 0), set[tuple[int, int, int]]()
    for place, index, is_through in acts:
        if is_through:
            state.acknowledge_before(*place)
            model |= {(*other, each) for other in PLACES if other < place for each in range(3)}
        state.acknowledge(*place, index, 3)
        model |= {(*place, each) for each in (range(3) if index < 0 else [index])}
        if index == 1:
            state.settle(MANIFEST)
        if index == 2:
            state = decode_cursor(encode_cursor(state))
        found = {(*other, each) for other in PLACES for each in range(3) if state.is_acknowledged(*other, each)}
        assert found == model
    state.settle(MANIFEST)
    missing = [(*place, each) for place in PLACES for each in range(3) if (*place, each) not in model]
    assert (state.ledger_id, state.entry_id) == (missing[0][:2] if missing else (5, 3))


def test_holes_are_bounded_and_those_that_close_are_taken_all_the_same() -> None:
    state = CursorState("log", "h", 5, 0)
    for number in range(MAX_HOLES):
        state.acknowledge(5, 2 * number + 1)
    before = copy.deepcopy(state)
    with pytest.raises(TooManyRequests, match=r"10000 holes.*from 5:0 on"):
        state.acknowledge(5, 10**6)
    with pytest.raises(TooManyRequests):
        state.acknowledge(5, 10**6, 1, 3)
    assert state == before
    assert len(encode_cursor(state)) < 100_000
    state.acknowledge(5, 2)
    state.acknowledge(5, 0)
    assert state.holes == MAX_HOLES - 1
    state.settle(MANIFEST)
    assert (state.entry_id, state.holes) == (4, MAX_HOLES - 2)


def test_bitmaps_that_are_too_large_together_are_refused() -> None:
    state = CursorState("log", "h", 5, 0)
    for entry_id in range(100):
        state.acknowledge(5, entry_id, 0, 100_000)
    with pytest.raises(TooManyRequests, match="1000000 bytes"):
        encode_cursor(state)


GOOD = ["log", "h", 5, 0, {5: [1, 2]}, [[5, 4, 9, b"\x01\x02"]]]


@pytest.mark.parametrize(
    "record",
    [
        [2, *GOOD],
        [1, *GOOD[:5]],
        [1, 7, *GOOD[1:]],
        [1, "log", "h", "5", *GOOD[3:]],
        [1, *GOOD[:4], {5: [2, 1]}, []],
        [1, *GOOD[:4], {5: [2]}, []],
        [1, *GOOD[:4], {5: ["a", "b"]}, []],
        [1, *GOOD[:4], {}, [[5, 4, 9, b"\x01"]]],
        [1, *GOOD[:4], {}, [[5, 4, 0, b""]]],
        [1, *GOOD[:4], [], []],
        5,
    ],
)
def test_a_damaged_record_is_refused(record: Any) -> None:
    assert decode_cursor(msgpack.packb([1, *GOOD])).holes == 2
    with pytest.raises(MetadataSerializationError, match="cursor"):
        decode_cursor(msgpack.packb(record))


# In a cluster ---------------------------------------------------------------------------------------------------------


async def take(cursor: Any, count: int) -> list[LogMessage]:
    return [await anext(cursor) for _ in range(count)]


def texts(messages: list[LogMessage]) -> list[str]:
    return [message.payload.decode() for message in messages]


def test_what_was_acknowledged_one_by_one_is_not_delivered_again() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.writer("log", settings=PublishSettings(batch_messages=3)) as log:
            for number in range(12):
                log.publish_nowait(b"%d" % number)
        async with logs.cursor("log", "c") as cursor:
            messages = await take(cursor, 12)
            for number in (0, 1, 2, 4, 6, 7, 8, 11):
                cursor.acknowledge(messages[number])
            await cursor.flush()
            assert cursor.position == MessageId(messages[3].id.ledger_id, messages[3].id.entry_id)
            cursor.acknowledge(messages[3])
        async with logs.cursor("log", "c") as cursor:
            assert cursor.holes == 3
            assert await cursor.backlog_entries() == 2
            assert texts(await take(cursor, 3)) == ["5", "9", "10"]
            cursor.acknowledge_through(messages[10])
        (info,) = await logs.cursors("log")
        assert (info.name, info.backlog_entries, info.holes) == ("c", 0, 0)

    run(story)


def test_what_was_flushed_survives_a_crash_and_what_was_not_is_delivered_again() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 6):
            pass
        doomed = await logs.cursor("log", "c").__aenter__()
        messages = await take(doomed, 6)
        for number in (0, 2, 4):
            doomed.acknowledge(messages[number])
        await doomed.flush()
        doomed.acknowledge(messages[1])
        async with cluster.client("other") as other, Logs(other, rng=Random(2)).cursor("log", "c") as cursor:
            assert texts(await take(cursor, 3)) == ["1", "3", "5"]
            with pytest.raises(LogDeposed, match="taken over"):
                await doomed.flush()
            with pytest.raises(LogDeposed):
                await doomed.__aexit__(None, None, None)

    run(story)


def test_an_opening_that_was_overtaken_unawares_is_not_taken_for_the_next_one() -> None:
    """The answer is lost, another program opens the cursor and moves it; what comes after that is another opening."""

    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 4), logs.cursor("log", "c"):
            pass
        metadata, holders, writes = cluster.world.metadata, list[str](), list[MetadataCall]()

        def is_first_write(call: MetadataCall) -> bool:
            if (call.host, call.operation) == ("slow", "tree_write"):
                writes.append(call)
            return writes == [call]

        def is_next_look(call: MetadataCall) -> bool:
            return bool(writes) and (call.host, call.operation) == ("slow", "tree_get")

        async with cluster.client("slow") as client, cluster.client() as watcher:
            register = VersionedRegister(watcher, "c", directory="cursors/log")

            async def note() -> None:
                stored = await register.read()
                assert stored is not None
                holders.append(decode_cursor(stored.data).holder)

            await note()
            metadata.intercept(is_first_write, MetadataFault.ANSWER_LOST, limit=1)
            hold = metadata.intercept(is_next_look, MetadataFault.HOLD)
            slow = Logs(client, rng=Random(2)).cursor("log", "c")
            opening = asyncio.create_task(slow.__aenter__())
            await asyncio.sleep(1)
            await note()
            fast = await logs.cursor("log", "c").__aenter__()
            await note()
            first, second = await take(fast, 2)
            fast.acknowledge(first)
            await fast.flush()
            hold.remove()
            hold.release()
            await opening
            await note()
            fast.acknowledge(second)
            with pytest.raises(LogDeposed):
                await fast.__aexit__(None, None, None)
            assert texts(await take(slow, 1)) == ["1"]
            await slow.__aexit__(None, None, None)
        assert len(set(holders)) == 4

    run(story)


def test_a_cursor_follows_and_remembers_by_itself_once_a_second() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.cursor("log", "c", MessageId.LATEST) as cursor, logs.writer("log") as log:
            for number in range(5):
                await log.publish(b"%d" % number)
                cursor.acknowledge(await anext(cursor))
                await asyncio.sleep(0.6)
            (info,) = await logs.cursors("log")
            assert MessageId(0, 0) < info.position < cursor.position or info.position.ledger_id > 0

    run(story)


def test_who_waits_while_the_block_is_left_is_told_of_the_end() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        for is_batch in (True, False):
            async with logs.cursor("log", "c") as cursor:
                waiting = asyncio.ensure_future(cursor.next_batch() if is_batch else collected(cursor))
                await asyncio.sleep(1)
            assert await waiting == []

    async def collected(cursor: LogCursor) -> list[LogMessage]:
        return [message async for message in cursor]

    run(story)


def test_a_new_cursor_begins_where_it_is_told() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 5) as (log, ids):
            await asyncio.sleep(0.5)  # until readers know of all
            async with logs.cursor("log", "end", MessageId.LATEST) as cursor:
                await log.publish(b"new")
                assert texts(await take(cursor, 1)) == ["new"]
            async with logs.cursor("log", "middle", ids[3]) as cursor:
                assert texts(await take(cursor, 3)) == ["3", "4", "new"]
        for name in ("end", "middle"):
            await logs.remove_cursor("log", name)
        await logs.trim("log", ids[3])
        with pytest.raises(LogTrimmed):
            await logs.cursor("log", "late", ids[0]).__aenter__()
        with pytest.raises(IllegalOperation, match="inside"):
            await anext(logs.cursor("log", "x"))

    run(story)


def test_trimming_waits_for_a_slow_cursor() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 6) as (_log, ids), logs.cursor("log", "slow") as cursor:
            assert await logs.trim("log", ids[5]) == []
            cursor.acknowledge_through((await take(cursor, 3))[2])
            assert await logs.trim("log", ids[5]) == [], "it is not remembered yet"
            await cursor.flush()
            assert await logs.trim("log", ids[5]) == [0]
        await logs.remove_cursor("log", "slow")
        assert await logs.trim("log", ids[5]) == [1]

        assert await payloads(logs) == ["4", "5"]

    run(story)


async def race(cluster: VirtualCluster, logs: Logs) -> None:
    """A cursor is made while a trim has looked at all cursors and has not written yet."""
    async with published(logs, 6) as (_log, ids):
        hold = cluster.world.metadata.intercept(
            lambda call: call.operation == "tree_write", MetadataFault.HOLD, limit=1
        )
        trimming = asyncio.create_task(logs.trim("log", ids[5]))
        await asyncio.sleep(1)
        async with cluster.client("other") as other:
            cursor = await Logs(other, rng=Random(2)).cursor("log", "new").__aenter__()
            hold.release()
            await trimming
            assert texts(await take(cursor, 6)) == ["0", "1", "2", "3", "4", "5"]


def test_trimming_does_not_take_what_a_cursor_needs_that_comes_meanwhile() -> None:
    run(race)


@pytest.mark.parametrize("late", ["opener", "remover"])
def test_a_cursor_that_is_opened_while_it_is_removed_is_there_or_is_not(late: str) -> None:
    """Late is the opener's announcement, or the remover's mark: either way no name is left behind that trimming waits for."""

    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        writes = 0

        def is_late(call: MetadataCall) -> bool:
            nonlocal writes
            is_write = (call.host, call.operation) == (late, "tree_write")
            writes += is_write
            return is_write and writes == (1 if late == "opener" else 2)

        async with published(logs, 6) as (_log, ids), cluster.client("opener") as one, cluster.client("remover") as two:
            cursor = Logs(one, rng=Random(2)).cursor("log", "c")
            remover = Logs(two, rng=Random(3))
            if late == "remover":
                async with logs.cursor("log", "c"):
                    pass
            hold = cluster.world.metadata.intercept(is_late, MetadataFault.HOLD)
            acts = [cursor.__aenter__(), remover.remove_cursor("log", "c")]
            tasks = []
            for act in acts if late == "opener" else acts[::-1]:
                tasks.append(asyncio.create_task(act))
                await asyncio.sleep(1)
            assert [task.done() for task in tasks] == [False, True]
            hold.remove()
            hold.release()
            await asyncio.gather(*tasks)
            (message,) = await take(cursor, 1)
            cursor.acknowledge_through(message)
            if late == "opener":
                await cursor.__aexit__(None, None, None)
                assert [info.name for info in await logs.cursors("log")] == ["c"]
                await remover.remove_cursor("log", "c")
            else:
                with pytest.raises(LogDeposed):
                    await cursor.__aexit__(None, None, None)
            assert await logs.cursors("log") == []
            assert await logs.trim("log", ids[5]) == [0, 1]

    run(story)


def plant_blind(patch: pytest.MonkeyPatch) -> None:
    """Trimming that does not look at cursors."""

    async def nothing(*_: object) -> int:
        return 2**63 - 1

    patch.setattr("bkclient.log.logs.first_needed", nothing)


def plant_unannounced(patch: pytest.MonkeyPatch) -> None:
    """A cursor that is not announced by a change that trimming notices."""
    patch.setattr(AddCursor, "is_made", lambda *_: True)


Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("plant", [plant_blind, plant_unannounced])
def test_a_planted_defect_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, LogTrimmed)):
        run(race)


def test_a_deleted_log_takes_its_cursors_along() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 3), logs.cursor("log", "c") as cursor:
            cursor.acknowledge(await anext(cursor))
        await logs.delete("log")
        await logs.create("log", SMALL)
        assert await logs.cursors("log") == []
        async with published(logs, 1), logs.cursor("log", "c") as cursor:
            assert texts(await take(cursor, 1)) == ["0"]

    run(story)

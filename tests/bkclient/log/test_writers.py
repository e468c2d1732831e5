"""Limits, order and ends of those who publish to logs, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from random import Random
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient import BookKeeper, LedgerWriter
from bkclient.errors import ArgumentError, NotEnoughBookies, TooManyRequests
from bkclient.log import Logs, LogSettings, LogWriter, PublishSettings
from bkclient.log.format.message import row_of
from simbookie.world.faults import Delay
from simbookie.world.metadata_service import MetadataCall
from tests.bkclient.log.test_logs import content, payloads, published, run
from tests.bkclient.test_call_budget import CallCounter
from tests.bkclient.virtual_cluster import VirtualCluster, now, run_in_cluster

FRAME = 2048
ONE_BY_ONE = PublishSettings(batch_messages=1)


# How large an entry may be --------------------------------------------------------------------------------------------


@given(
    st.sampled_from([0, 1, 31, 255, 256, 65_535, 65_536]).map(bytes),
    st.none() | st.text(max_size=40) | st.sampled_from(["\U0001f600" * 16_000, "x" * 65_535]),
    st.none() | st.dictionaries(st.text(max_size=3), st.binary(max_size=3), max_size=40),
    st.none() | st.integers(0, 2**63 - 1),
)
def test_the_size_of_a_message_is_no_less_than_its_bytes(
    payload: bytes, key: str | None, headers: dict[str, bytes] | None, event_ms: int | None
) -> None:
    row, size = row_of(payload, key, headers, event_ms)
    assert len(msgpack.packb(row)) <= size


async def ledgers_of(client: BookKeeper) -> int:
    return len([ledger_id async for ledger_id in client.list_ledgers()])


def test_entries_fit_the_frames_that_the_client_is_configured_for() -> None:
    async def program(cluster: VirtualCluster) -> None:
        async with cluster.client(limits={"max_frame_size_bytes": FRAME}) as client, asyncio.timeout(60):
            logs = Logs(client, rng=Random(1))
            await logs.create("log")
            async with logs.writer("log") as log:
                with pytest.raises(ArgumentError, match=r"at most 17\d\d bytes, this one has"):
                    await log.publish(bytes(FRAME))
                futures = [log.publish_nowait(bytes(500), key=str(number)) for number in range(9)]
                await log.flush()
                largest = await log.publish(bytes(client.max_entry_bytes - 83), key="")
            assert [future.result().batch_index for future in futures] == [0, 1, 2] * 3
            assert [len(message.payload) for message in await content(logs, start=largest)] == [1773]
            assert await ledgers_of(client) == 1
            assert await logs.compact("log") == 10
            async with logs.reader("log", compacted=True, follow=False) as reader:
                assert len([message async for message in reader]) == 10

    run_in_cluster(program)


def submitting(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Ledgers refuse every entry."""

    async def submit(*_: Any) -> None:
        raise error

    monkeypatch.setattr(LedgerWriter, "submit", submit)


def test_an_entry_that_no_ledger_takes_ends_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        submitting(monkeypatch, ArgumentError("too large"))
        log = await logs.writer("log").__aenter__()
        with pytest.raises(ArgumentError, match="too large"):
            async with asyncio.timeout(60):
                await log.publish(b"x")
        with pytest.raises(ArgumentError, match="too large"):
            await log.aclose()
        assert len((await logs.info("log")).ledgers) == 1

    run(story)


def test_ledgers_that_take_no_entry_are_made_slower_and_slower_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        submitting(monkeypatch, NotEnoughBookies("none"))
        calls: list[MetadataCall] = []

        def note(call: MetadataCall) -> bool:
            calls.append(call)
            return False

        cluster.world.metadata.intercept(note, Delay(0.0))
        log = await logs.writer("log", settings=PublishSettings(give_up_s=20)).__aenter__()
        began = now()
        with pytest.raises(NotEnoughBookies):
            async with asyncio.timeout(40):
                await log.publish(b"x")
        assert 20 <= now() - began < 30
        assert 5 < sum(call.operation == "create_ledger" for call in calls) < 30
        with pytest.raises(NotEnoughBookies):
            await log.aclose()

    run(story)


# Times ----------------------------------------------------------------------------------------------------------------


class Clock:
    """A wall clock that a test sets."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        patch.setattr(BookKeeper, "wall_clock", property(lambda _: lambda: self.now_s))


def test_an_owner_whose_clock_is_behind_goes_on_with_the_time_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)

    async def story(_: VirtualCluster, logs: Logs) -> None:
        for now_s in (1000.0, 900.0, 950.0, 1100.0):
            clock.now_s = now_s
            async with published(logs, 2):
                pass
        times = [message.publish_ms for message in await content(logs)]
        assert times == [1_000_000] * 6 + [1_100_000] * 2
        assert await payloads(logs, start_ms=1_000_000) == ["0", "1"] * 4
        assert await payloads(logs, start_ms=1_000_001) == ["0", "1"]

    run(story)


def test_times_never_go_back_although_the_clock_does_while_entries_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.writer("log", settings=ONE_BY_ONE) as log:
            for now_s in (1000.0, 900.0, 1001.0, 950.0):
                clock.now_s = now_s
                log.publish_nowait(b"x")
        messages = await content(logs)
        assert [message.publish_ms for message in messages] == [1_000_000, 1_000_000, 1_001_000, 1_001_000]
        ends = {ledger.ledger_id: ledger.end for ledger in (await logs.info("log")).ledgers}
        last = {message.id.ledger_id: message.publish_ms for message in messages}
        assert {ledger_id: end.last_ms for ledger_id, end in ends.items() if end is not None} == last

    run(story)


# Order, and who waits -------------------------------------------------------------------------------------------------


def test_nobody_overtakes_those_who_wait() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        refused = 0
        async with logs.writer("log", settings=PublishSettings(max_pending_messages=2, batch_messages=1)) as log:
            first = [log.publish_nowait(b"%d" % number) for number in range(2)]
            waiting = [asyncio.create_task(log.publish(b"%d" % number)) for number in range(2, 8)]
            await asyncio.sleep(0)

            def overtake(_: object) -> None:
                nonlocal refused
                with pytest.raises(TooManyRequests, match="others wait"):
                    log.publish_nowait(b"before them")
                refused += 1

            first[0].add_done_callback(overtake)
            await first[1]
            late = asyncio.create_task(log.publish(b"8"))
            await asyncio.gather(*waiting, late)
            await log.publish_nowait(b"9")
        assert refused == 1
        assert await payloads(logs) == [str(number) for number in range(10)]

    run(story)


def test_a_large_message_is_not_overtaken_by_small_ones_for_ever() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        settings = PublishSettings(max_pending_bytes=1000, batch_messages=1)
        async with logs.writer("log", settings=settings) as log:

            async def small() -> None:
                while True:
                    await log.publish(bytes(100))

            tasks = [asyncio.create_task(small()) for _ in range(20)]
            await asyncio.sleep(0.1)
            async with asyncio.timeout(1):
                await log.publish(bytes(900))
            for task in tasks:
                task.cancel()

    run(story, settings=LogSettings())


def test_those_behind_one_who_gives_up_go_on() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.writer("log", settings=PublishSettings(max_pending_bytes=1000)) as log:
            first = log.publish_nowait(bytes(400))
            large = asyncio.create_task(log.publish(bytes(900)))
            small = asyncio.create_task(log.publish(bytes(100)))
            await asyncio.sleep(0)
            large.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not first.done()
            assert log.pending_messages == 2
            await small
            await log.publish_nowait(b"x")

    run(story, settings=LogSettings())


def calls_of(publishers: int) -> float:
    """Python calls for each of so many publishers that wait for room at the same time."""
    counter = CallCounter()

    async def story(_: VirtualCluster, logs: Logs) -> None:
        settings = PublishSettings(max_pending_messages=10, batch_messages=1)
        async with logs.writer("log", settings=settings) as log:
            await log.publish(b"so that a ledger is there")
            with counter:
                await asyncio.gather(*(log.publish(b"x") for _ in range(publishers)))

    run(story, settings=LogSettings())
    return counter.of_client / publishers


def test_who_waits_costs_the_same_however_many_wait() -> None:
    few, many = calls_of(100), calls_of(500)
    assert many < 1.2 * few


def test_a_flush_waits_for_what_was_there_before_it() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.writer("log", settings=ONE_BY_ONE) as log:

            async def busy() -> None:
                while True:
                    await log.publish(b"x")

            tasks = [asyncio.create_task(busy()) for _ in range(10)]
            await asyncio.sleep(0.1)
            mine = log.publish_nowait(b"mine")
            async with asyncio.timeout(1):
                await log.flush()
            assert mine.done()
            assert log.pending_messages
            for task in tasks:
                task.cancel()
            cancelled = asyncio.create_task(log.flush())
            await asyncio.sleep(0)
            cancelled.cancel()
            await log.flush()
            assert not log.pending_messages

    run(story, settings=LogSettings())


def test_who_waits_is_told_what_ended_the_writer() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        log = await logs.writer("log", settings=PublishSettings(max_pending_messages=1)).__aenter__()
        log.publish_nowait(b"0")
        waiting = [asyncio.create_task(log.publish(b"%d" % number)) for number in range(3)]
        await asyncio.sleep(0)
        await log.aclose()
        for task in waiting:
            with pytest.raises(Exception, match="closed"):
                await task
        assert await payloads(logs) == ["0"]

    run(story)


# The end --------------------------------------------------------------------------------------------------------------


def owners_left() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("owner of log")]


async def without_bookies(cluster: VirtualCluster, log: LogWriter) -> None:
    """Publish something that is not acknowledged."""
    await log.publish(b"0")
    for bookie in cluster.bookies.values():
        bookie.crash()
    log.publish_nowait(b"1")


async def bookies_return(cluster: VirtualCluster, logs: Logs) -> None:
    for bookie in cluster.bookies.values():
        bookie.restart()
    await cluster.registered()
    await asyncio.sleep(10)
    async with logs.writer("log") as log:
        await log.publish(b"2")
    assert [text for text in await payloads(logs) if text != "1"] == ["0", "2"]


@pytest.mark.parametrize("name", ["log", "many"])
def test_a_block_that_is_left_by_an_exception_does_not_wait_for_bookies_that_are_away(name: str) -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        await logs.create("many", partitions=2)
        log = logs.writer(name)
        with pytest.raises(ValueError, match="of the application") as caught:  # noqa: PT012 - the end of the block is what is timed
            async with log:
                await without_bookies(cluster, log)
                began = now()
                raise ValueError("of the application")
        assert now() - began < 12
        assert "nothing was acknowledged for 5 s" in caught.value.__notes__[0]
        assert owners_left() == []
        if name == "log":
            await bookies_return(cluster, logs)

    run(story)


def test_a_block_that_is_left_by_an_exception_publishes_as_long_as_that_goes_on() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        cluster.world.metadata.intercept(lambda call: call.operation == "tree_write", Delay(1.0))
        began = now()
        with suppress(ValueError):
            async with logs.writer("log", settings=ONE_BY_ONE) as log:
                for number in range(50):
                    log.publish_nowait(b"%d" % number)
                raise ValueError
        assert now() - began > 20, "an entry or two a second"
        assert len(await payloads(logs)) == 50

    run(story)


@pytest.mark.parametrize("is_leaving", [False, True], ids=["in the block", "while it is left"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_block_that_is_cancelled_leaves_no_owner_behind(is_leaving: bool, times: int) -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async def publish() -> None:
            async with logs.writer("log") as log:
                await without_bookies(cluster, log)
                if not is_leaving:
                    await asyncio.sleep(1000)

        task = asyncio.create_task(publish())
        await asyncio.sleep(2)
        began = now()
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.01)
        await asyncio.wait([task])
        assert task.cancelled()
        assert now() - began < (0.1 if is_leaving or times == 2 else 6)
        assert owners_left() == []
        await bookies_return(cluster, logs)

    run(story)


def test_claims_of_partitions_that_are_given_up_leave_no_owner_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        await logs.create("many", partitions=3)
        for steps in itertools.count():
            log = logs.writer("many")
            task = asyncio.create_task(log.__aenter__())
            for _turn in range(steps):
                await asyncio.sleep(0.0005)
            if task.done():
                await log.aclose()
                break
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await asyncio.sleep(0.1)
            assert owners_left() == []
        assert steps > 3

    run(story)

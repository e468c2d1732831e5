"""Groups of consumers, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextvars import Context
from functools import partial
from random import Random
from typing import Any

import pytest

from bkclient.coordination import VersionedRegister
from bkclient.errors import ArgumentError, IllegalOperation
from bkclient.log import (
    ConsumerMode,
    ConsumerRefused,
    LogConsumer,
    LogDeposed,
    LogMessage,
    Logs,
    MessageId,
    PublishSettings,
)
from bkclient.log.machine.cursor import decode_cursor
from bkclient.log.machine.deliveries import Deliveries
from bkclient.log.machine.division import divided
from bkclient.log.machine.manifest import LogManifest
from bkclient.log.membership import GroupMember, assigned
from bkclient.log.partition_cursor import PartitionCursor
from simbookie.world.faults import Delay
from simbookie.world.hosts import Host
from simbookie.world.metadata_service import MetadataCall, MetadataFault
from tests.bkclient.log.test_logs import published, run
from tests.bkclient.virtual_cluster import VirtualCluster

EXCLUSIVE, FAILOVER, SHARED = ConsumerMode.EXCLUSIVE, ConsumerMode.FAILOVER, ConsumerMode.SHARED


async def take(consumer: LogConsumer, count: int) -> list[str]:
    """The next messages, acknowledged."""
    found = []
    for _ in range(count):
        message = await consumer.receive()
        consumer.acknowledge(message)
        found.append(message.payload.decode())
    return found


async def nothing_comes(consumer: LogConsumer, seconds: float = 30) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await consumer.receive()


async def settled(seconds: float = 3) -> None:
    """Wait until everybody knows the members."""
    await asyncio.sleep(seconds)


# Who has what --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("partitions", "members"), [(12, 3), (64, 7), (5, 9)])
def test_a_member_that_comes_or_goes_moves_little_more_than_its_own_partitions(partitions: int, members: int) -> None:
    rng, moved, least = Random(1), 0, 0
    for _ in range(30):
        ids = [f"{rng.getrandbits(128):032x}" for _ in range(members + 1)]
        fewer, more = (divided(some, range(partitions)) for some in (ids[:-1], ids))
        moved += sum(fewer[partition] != more[partition] for partition in range(partitions))
        least += list(more.values()).count(ids[-1])
        shares = [list(more.values()).count(each) for each in ids]
        assert max(shares) - min(shares) <= 1
    assert least <= moved <= 1.75 * least


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_partition_has_one_member_and_members_have_equally_many(count: int) -> None:
    members = [GroupMember(number, f"m{number}", SHARED, "") for number in range(count)]
    members.append(GroupMember(99, "m0", SHARED, ""))  # a creation that was repeated
    shares = [assigned(members, list(range(6)), f"m{number}") for number in range(count)]
    assert sorted(partition for share in shares for partition in share) == list(range(6))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert assigned(members, [0], "stranger") == set()
    assert shares == [assigned(members[::-1], list(range(6)), f"m{number}") for number in range(count)]
    one = [GroupMember(number, f"m{number}", FAILOVER, "") for number in range(count)]
    assert assigned(one, list(range(6)), "m0") == set(range(6))
    assert all(assigned(one, list(range(6)), f"m{number}") == set() for number in range(1, count))


def test_an_exclusive_group_refuses_a_second_consumer_until_the_first_is_gone() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 4):
            pass
        async with logs.consumer("log", "g", mode=EXCLUSIVE, member="first") as first:
            assert await take(first, 2) == ["0", "1"]
            async with cluster.client("other") as client:
                other = Logs(client, rng=Random(2))
                with pytest.raises(ConsumerRefused, match="exclusively by 'first'"):
                    await other.consumer("log", "g", mode=EXCLUSIVE).__aenter__()
                with pytest.raises(ConsumerRefused, match="mode exclusive, not shared"):
                    await other.consumer("log", "g", mode=SHARED).__aenter__()
                async with other.consumer("log", "another", mode=EXCLUSIVE) as free:
                    assert await take(free, 1) == ["0"]
        async with logs.consumer("log", "g", mode=EXCLUSIVE) as second:
            assert await take(second, 2) == ["2", "3"]

    run(story)


def test_of_two_that_come_at_the_same_time_one_is_refused() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with cluster.client("other") as client:
            consumers = [each.consumer("log", "g", mode=EXCLUSIVE) for each in (logs, Logs(client, rng=Random(2)))]
            entering = (each.__aenter__() for each in consumers)
            outcomes: list[Any] = await asyncio.gather(*entering, return_exceptions=True)
            assert sorted(type(each).__name__ for each in outcomes) == ["ConsumerRefused", "LogConsumer"]
            for each in outcomes:
                if isinstance(each, LogConsumer):
                    await each.__aexit__(None, None, None)

    run(story)


def test_the_next_one_takes_over_when_the_active_consumer_dies() -> None:
    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 6):
            pass
        found: list[str] = []

        async def active() -> None:
            async with (
                cluster.client_on(host) as client,
                Logs(client, rng=Random(2)).consumer("log", "g", mode=FAILOVER) as mine,
            ):
                found.extend(await take(mine, 2))
                await mine.flush()
                found.extend(await take(mine, 2))
                await asyncio.sleep(10_000)

        host = Host(cluster.world, "active")
        host.spawn(active)
        await settled()
        async with logs.consumer("log", "g", mode=FAILOVER) as standby:
            await nothing_comes(standby, 5)
            assert (found, standby.partitions) == (["0", "1", "2", "3"], ())
            host.crash()
            rest = await take(standby, 2)
            assert rest[0] in ("2", "4"), "what was acknowledged and stored is not delivered again"
            assert standby.partitions == (-1,)

    run(story)


async def acknowledged_for_good(consumer: LogConsumer, message: LogMessage) -> None:
    consumer.acknowledge(message)
    await consumer.flush()


async def overtaken(cluster: VirtualCluster, logs: Logs) -> None:
    """A consumer whose session ends loses its place, and then its acknowledgements are refused."""
    async with published(logs, 4):
        pass
    async with cluster.client("old") as client:
        old = await Logs(client, rng=Random(2)).consumer("log", "g", mode=FAILOVER).__aenter__()
        message = await old.receive()
        async with logs.consumer("log", "g", mode=FAILOVER) as new:
            cluster.world.metadata.lose_sessions("old")
            assert await take(new, 1) == ["0"]
            await new.flush()
            with pytest.raises(LogDeposed):
                await acknowledged_for_good(old, message)
            assert await take(new, 3) == ["1", "2", "3"]
        await old.__aexit__(None, None, None)
        (info,) = await logs.cursors("log")
        assert info.backlog_entries == 0


def test_an_acknowledgement_of_a_consumer_that_lost_its_place_is_refused() -> None:
    run(overtaken)


async def _saved_blindly(self: PartitionCursor) -> None:
    """The planted defect: the position is stored, whichever consumer has the cursor."""


def test_a_cursor_that_takes_acknowledgements_of_anybody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionCursor, "_save", _saved_blindly)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run(overtaken)


async def interrupted(cluster: VirtualCluster, logs: Logs, call: int, after_s: float) -> None:
    """The session of a consumer ends at one of its calls; the next one takes over, and is not deposed when it is back."""
    async with published(logs, 4):
        pass
    world, calls = cluster.world, 0

    def ends_session(found: MetadataCall) -> bool:
        nonlocal calls
        if found.host == "old":
            calls += 1
            if calls == call:
                world.loop.call_later(after_s, world.metadata.lose_sessions, "old", 3.0, context=Context())
        return False

    async with cluster.client("old") as client, cluster.client() as watcher:
        register = VersionedRegister(watcher, "g", directory="cursors/log")

        async def holder() -> str:
            stored = await register.read()
            assert stored is not None
            return decode_cursor(stored.data).holder

        world.metadata.intercept(ends_session, MetadataFault.FAIL)
        old = Logs(client, rng=Random(2)).consumer("log", "g", mode=FAILOVER)
        coming = asyncio.create_task(old.__aenter__())
        await settled(0.2)
        async with logs.consumer("log", "g", mode=FAILOVER) as new:
            assert await take(new, 1) == ["0"]
            opened = await holder()
            await settled(30)
            assert calls > call
            assert (new.partitions, old.partitions, await holder()) == ((-1,), (), opened)
        await coming
        await settled(15)
        assert old.partitions == (-1,)
        await old.__aexit__(None, None, None)


@pytest.mark.parametrize("after_s", [0.0, 0.0025])
@pytest.mark.parametrize("call", range(1, 25))
def test_a_consumer_whose_session_ends_while_it_opens_the_cursor_deposes_nobody(call: int, after_s: float) -> None:
    run(partial(interrupted, call=call, after_s=after_s))


async def _opened_by_an_old_list(self: PartitionCursor) -> LogManifest | None:
    """The planted defect: a consumer looks at the members first, and at the cursor when it takes it over."""
    await self.look()
    return await _TRY_OPEN(self)


_TRY_OPEN = PartitionCursor.try_open


def test_a_consumer_that_goes_by_an_old_list_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionCursor, "try_open", _opened_by_an_old_list)
    found = 0
    for call in range(1, 25):
        try:
            run(partial(interrupted, call=call, after_s=0.0))
        except (AssertionError, LogDeposed):
            found += 1
    assert found


async def shared_by_three(cluster: VirtualCluster, logs: Logs) -> None:
    """Members come and go; in peace each message is delivered once, in the order of its partition, and at the end all are."""
    await logs.create("many", partitions=4)
    settings = PublishSettings(batch_messages=1)
    delivered: Counter[str] = Counter()

    async def work(consumer: LogConsumer) -> None:
        async for message in consumer:
            delivered[message.payload.decode()] += 1
            consumer.acknowledge(message)

    async with logs.writer("many", settings=settings) as log, cluster.client("b") as b, cluster.client("c") as c:
        others = [Logs(b, rng=Random(2)), Logs(c, rng=Random(3))]
        async with logs.consumer("many", "g") as first:
            tasks = [asyncio.create_task(work(first))]
            for number in range(8):
                await log.publish(b"%d" % number)
            await settled()
            assert len(first.partitions) == 4
            async with others[0].consumer("many", "g") as second:
                tasks.append(asyncio.create_task(work(second)))
                await settled()
                assert [len(each.partitions) for each in (first, second)] == [2, 2]
                assert sorted(first.partitions + second.partitions) == [0, 1, 2, 3]
                async with others[1].consumer("many", "g") as third:
                    tasks.append(asyncio.create_task(work(third)))
                    await settled()
                    assert sorted(len(each.partitions) for each in (first, second, third)) == [1, 1, 2]
                    for number in range(8, 16):
                        await log.publish(b"%d" % number)
                    await settled()
                    tasks.pop().cancel()
                tasks.pop().cancel()
            await settled()
            assert first.partitions == (0, 1, 2, 3)
            for number in range(16, 20):
                await log.publish(b"%d" % number)
            await settled()
            assert await first.backlog_entries() == 0
            tasks.pop().cancel()
    assert delivered == Counter({str(number): 1 for number in range(20)})
    assert sum(info.backlog_entries for info in await logs.cursors("many")) == 0


def test_members_share_the_partitions() -> None:
    run(shared_by_three)


def _everything_to_everybody(members: list[GroupMember], partitions: list[int], member_id: str) -> set[int]:
    return set(partitions)


def test_members_that_all_take_everything_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkclient.log.consumer.assigned", _everything_to_everybody)
    with pytest.raises(AssertionError):
        run(shared_by_three)


def test_a_consumer_whose_leaving_was_given_up_leaves_no_error_behind_when_its_client_closes() -> None:
    """The end of the session takes it from the group then. Errors that nobody collects end a run."""

    async def story(cluster: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 3):
            async with cluster.client("other") as client:
                consumer = Logs(client, rng=Random(2)).consumer("log", "g")
                await consumer.__aenter__()
                cluster.world.metadata.intercept(lambda call: call.host == "other", Delay(5.0))
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1):
                        await consumer.__aexit__(None, None, None)
            await asyncio.sleep(60)

    run(story)


# One log, many tasks -------------------------------------------------------------------------------------------------


def test_tasks_of_one_consumer_split_the_messages_of_a_log() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 9), logs.consumer("log", "g", ack_timeout_s=10) as consumer:
            found: list[list[str]] = [[], [], []]

            async def work(index: int) -> None:
                async for message in consumer:
                    found[index].append(message.payload.decode())
                    await asyncio.sleep(1)
                    consumer.acknowledge(message)

            tasks = [asyncio.create_task(work(index)) for index in range(3)]
            await asyncio.sleep(20)
            assert sorted(text for each in found for text in each) == [str(number) for number in range(9)]
            assert [len(each) for each in found] == [3, 3, 3]
            for task in tasks:
                task.cancel()

    run(story)


async def not_acknowledged(_: VirtualCluster, logs: Logs) -> None:
    async with published(logs, 3), logs.consumer("log", "g", ack_timeout_s=10) as consumer:
        first, second = await consumer.receive(), await consumer.receive()
        consumer.acknowledge(second)
        assert (consumer.deliveries(first), consumer.deliveries(second)) == (1, 0)
        assert await take(consumer, 1) == ["2"]
        await nothing_comes(consumer, 5)
        async with asyncio.timeout(6):
            again = await consumer.receive()
        assert (again, consumer.deliveries(again)) == (first, 2)
        consumer.reject(again)
        assert await consumer.receive() == first
        consumer.acknowledge(first)
        await nothing_comes(consumer)
        assert await consumer.backlog_entries() == 0


def test_what_is_not_acknowledged_in_time_or_rejected_is_delivered_again() -> None:
    run(not_acknowledged)


def test_a_consumer_that_forgets_what_it_gave_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deliveries, "due_at", lambda _: None)
    with pytest.raises((AssertionError, TimeoutError)):
        run(not_acknowledged)


def test_what_is_read_and_not_acknowledged_is_bounded() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with published(logs, 6), logs.consumer("log", "g", max_unacknowledged=2) as consumer:
            first = await consumer.receive()
            await consumer.receive()
            await nothing_comes(consumer)
            consumer.acknowledge(first)
            assert (await consumer.receive()).payload == b"2"

    run(story)


def test_messages_of_a_batch_are_acknowledged_one_by_one() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        async with logs.writer("log", settings=PublishSettings(batch_messages=4)) as log:
            for number in range(4):
                log.publish_nowait(b"%d" % number)
        async with logs.consumer("log", "g") as consumer:
            messages = [await consumer.receive() for _ in range(4)]
            for index in (0, 2):
                consumer.acknowledge(messages[index])
        async with logs.consumer("log", "g") as consumer:
            assert await take(consumer, 2) == ["1", "3"]

    run(story)


def message_of(number: int) -> LogMessage:
    return LogMessage(MessageId(0, number), b"")


def test_deliveries_by_hand() -> None:
    deliveries = Deliveries(10.0)
    for number in range(3):
        deliveries.offer(message_of(number))
    assert deliveries.due_at() is None
    assert [message.id.entry_id for at in (0, 1, 2) if (message := deliveries.take(at))] == [0, 1, 2]
    assert (deliveries.take(3), deliveries.outstanding, deliveries.due_at()) == (None, 3, 10)
    deliveries.acknowledge(MessageId(0, 0))
    assert deliveries.due_at() == 11
    assert (deliveries.take(10.9), deliveries.take(11)) == (None, message_of(1))
    deliveries.reject(MessageId(0, 2))
    deliveries.reject(MessageId(0, 2))
    deliveries.reject(MessageId(0, 9))
    assert deliveries.times(MessageId(0, 2)) == 1
    deliveries.acknowledge(MessageId(0, 2))  # after it was rejected
    assert (deliveries.take(12), deliveries.outstanding) == (None, 1)
    assert Deliveries(None).due_at() is None


# What is refused -----------------------------------------------------------------------------------------------------


def test_what_a_consumer_cannot_be_is_refused() -> None:
    async def story(_: VirtualCluster, logs: Logs) -> None:
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"mode": "shared"}, "mode must be"),
            ({"ack_timeout_s": 0}, "ack_timeout_s must be above 0"),
            ({"ack_timeout_s": "1"}, "ack_timeout_s must be a number"),
            ({"max_unacknowledged": 0}, "max_unacknowledged must be from 1"),
            ({"max_unacknowledged": 1.5}, "max_unacknowledged must be a whole"),
            ({"member": "x" * 201}, "member must"),
            ({"start": "1:2"}, "start must"),
        ]
        for options, match in wrong:
            with pytest.raises(ArgumentError, match=match):
                logs.consumer("log", "g", **options)
        with pytest.raises(ArgumentError, match="group must"):
            logs.consumer("log", "a/b")
        consumer = logs.consumer("log", "g")
        with pytest.raises(IllegalOperation, match="inside"):
            await consumer.receive()
        async with consumer:
            with pytest.raises(IllegalOperation, match="once"):
                await consumer.__aenter__()
            with pytest.raises(LogDeposed):
                consumer.acknowledge(LogMessage(MessageId(0, 0, 5), b""))

    run(story)

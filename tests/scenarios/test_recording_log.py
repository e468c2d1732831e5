"""What becomes of logs is recorded: of lists where they are stored, of publishers and readers what they ask for and are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

import anyio
import pytest

from bkclient.errors import NotEnoughBookies
from bkclient.log import ConsumerMode, LogDeposed, LogSettings, MessageId, PublishSettings
from scenarios.checker import OnlineChecker
from scenarios.history import Event, Kind
from scenarios.recording.client import RecordedClient
from scenarios.recording.log import RecordedLogs
from scenarios.recording.recorders import fingerprint
from scenarios.stage import Stage
from tests.scenarios.played import perform
from tests.scenarios.test_stage import fair

Play = Callable[[Stage], Awaitable[None]]

ONE_BY_ONE = PublishSettings(batch_messages=1)
SHORT = LogSettings(max_ledger_entries=2, min_ledger_s=0)


def recorded(play: Play) -> list[Event]:
    """The events of a run in a cluster of four bookies, which break nothing."""
    events, checker = perform(play, conditions=fair()), OnlineChecker()
    for event in events:
        checker.feed(event)
    assert checker.finish() == ()
    return events


def logs_of(stage: Stage, client: RecordedClient) -> RecordedLogs:
    return RecordedLogs(client, rng=stage.world.rng(f"logs of {client.log.actor}"))


def of(events: list[Event], *kinds: Kind) -> list[Event]:
    return [event for event in events if event.kind in kinds]


def told(events: list[Event], *names: str) -> list[tuple[object, ...]]:
    return [(str(event.kind), event.ledger, *(event.fields[name] for name in names)) for event in events]


@pytest.fixture(scope="module")
def life() -> list[Event]:
    """An owner publishes over two ledgers; another one takes over; a cursor, a reader, a trim."""

    async def play(stage: Stage) -> None:
        async def first(client: RecordedClient) -> None:
            logs = logs_of(stage, client)
            await logs.create("l", SHORT)
            async with logs.writer("l", settings=ONE_BY_ONE) as writer:
                for number in range(3):
                    await writer.publish_nowait(b"a%d" % number)
                await anyio.sleep(5)
                with pytest.raises(LogDeposed):
                    await writer.publish_nowait(b"late")
                with pytest.raises(LogDeposed):
                    await writer.publish(b"refused")
                with pytest.raises(LogDeposed):
                    await writer.flush()
                with pytest.raises(LogDeposed):
                    await writer.aclose()
                raise _DoneError

        async def second(client: RecordedClient) -> None:
            logs = logs_of(stage, client)
            async with logs.writer("l", settings=PublishSettings(batch_messages=2)) as writer:
                futures = [writer.publish_nowait(b"b%d" % number) for number in range(2)]
                await writer.flush()
                assert [str(future.result()) for future in futures] == ["2:0:-1:0", "2:0:-1:1"]
            async with logs.cursor("l", "c") as cursor:
                for _ in range(3):
                    cursor.acknowledge(await anext(cursor))
            assert await logs.trim("l", MessageId.LATEST) == [0, 1]
            async with logs.reader("l", follow=False) as reader:
                assert [message.payload async for message in reader] == [b"b0", b"b1"]
            await logs.remove_cursor("l", "c")
            await logs.delete("l")

        async def excused(client: RecordedClient) -> None:
            with pytest.raises(_DoneError):
                await first(client)

        one = stage.client("one", excused)
        await anyio.sleep(2)
        await stage.client("two", second).ended()
        await one.ended()

    return recorded(play)


@pytest.fixture(scope="module")
def compacted() -> list[Event]:
    """A log is compacted, trimmed, compacted again, and read by that; two delete the same ledgers; a compaction is given up."""

    async def play(stage: Stage) -> None:
        async def program(client: RecordedClient) -> None:
            logs = logs_of(stage, client)
            await logs.create("l", SHORT)
            for payload in (b"old", b"new"):
                async with logs.writer("l", settings=ONE_BY_ONE) as writer:
                    for key in ("k", "l", None):
                        writer.publish_nowait(payload, key=key)
                    await writer.publish_nowait(b"", key="l")
                assert await logs.compact("l") == 1
                await logs.trim("l", MessageId.LATEST)
            async with logs.reader("l", follow=False, compacted=True) as reader:
                assert [message.payload async for message in reader] == [b"new"]
            await client.delete_ledger(0)
            assert (await logs.info("l")).compacted is not None

        await stage.client("one", program).ended()

    return recorded(play)


class _DoneError(Exception):
    pass


def test_the_list_of_a_log_is_recorded_as_it_changes(life: list[Event]) -> None:
    kinds = (Kind.LOG_CLAIM, Kind.LOG_RELEASE, Kind.LOG_LEDGER, Kind.LOG_APPEND, Kind.LOG_END, Kind.LOG_TRIM)
    assert [(str(event.kind), event.actor, event.ledger) for event in of(life, *kinds)] == [
        ("LOG_CLAIM", "one", -1),
        ("LOG_LEDGER", "one", 0),
        ("LOG_APPEND", "one", 0),
        ("LOG_LEDGER", "one", 1),
        ("LOG_END", "one", 0),
        ("LOG_APPEND", "one", 1),
        ("LOG_CLAIM", "two", -1),
        ("LOG_END", "two", 1),
        ("LOG_LEDGER", "two", 2),
        ("LOG_APPEND", "two", 2),
        ("LOG_END", "two", 2),
        ("LOG_RELEASE", "two", -1),
        ("LOG_TRIM", "two", 0),
        ("LOG_TRIM", "two", 1),
        ("LOG_TRIM", "two", 2),
    ]
    assert {event.fields["log"] for event in of(life, *kinds)} == {"l"}


def test_ends_and_epochs_are_those_of_the_list(life: list[Event]) -> None:
    assert told(of(life, Kind.LOG_END), "last_entry") == [("LOG_END", 0, 1), ("LOG_END", 1, 0), ("LOG_END", 2, 0)]
    assert [event.fields["epoch"] for event in of(life, Kind.LOG_APPEND)] == [1, 1, 2]
    assert [event.fields["epoch"] for event in of(life, Kind.LOG_CLAIM, Kind.LOG_RELEASE)] == [1, 2, 2]


def test_versions_ascend_and_one_write_has_one(life: list[Event]) -> None:
    kinds = (Kind.LOG_CLAIM, Kind.LOG_RELEASE, Kind.LOG_APPEND, Kind.LOG_END, Kind.LOG_TRIM)
    versions = [event.fields["version"] for event in of(life, *kinds)]
    assert versions == sorted(versions)
    (end, append) = [event for event in of(life, *kinds) if event.fields["version"] == 3]
    assert (end.kind, append.kind) == (Kind.LOG_END, Kind.LOG_APPEND)


def test_a_message_is_recorded_before_it_is_handed_in_and_when_its_publisher_is_told(life: list[Event]) -> None:
    published = told(of(life, Kind.LOG_PUB), "epoch", "message", "content", "size")
    contents = [(1, b"a0"), (1, b"a1"), (1, b"a2"), (2, b"b0"), (2, b"b1")]
    numbers = [0, 1, 2, 0, 1]
    assert published == [
        ("LOG_PUB", -1, epoch, number, fingerprint(payload), len(payload))
        for number, (epoch, payload) in zip(numbers, contents, strict=True)
    ]
    assert told(of(life, Kind.LOG_ACK), "epoch", "message", "entry", "batch") == [
        ("LOG_ACK", 0, 1, 0, 0, -1),
        ("LOG_ACK", 0, 1, 1, 1, -1),
        ("LOG_ACK", 1, 1, 2, 0, -1),
        ("LOG_ACK", 2, 2, 0, 0, 0),
        ("LOG_ACK", 2, 2, 1, 0, 1),
    ]
    first = next(event.seq for event in life if event.kind == Kind.ADD_SEND)
    assert of(life, Kind.LOG_PUB)[0].seq < first


def test_an_owner_that_lost_its_log_is_told_so_once(life: list[Event]) -> None:
    assert of(life, Kind.LOG_FAIL) == []  # what is refused is not handed in
    assert told(of(life, Kind.LOG_LOST), "epoch", "code") == [("LOG_LOST", -1, 1, -101)]


def test_what_readers_and_cursors_deliver_is_recorded(life: list[Event]) -> None:
    assert told(of(life, Kind.LOG_READ_START), "cursor", "cause") == [
        ("LOG_READ_START", -1, "c", "other"),
        ("LOG_READ_START", -1, "", "earliest"),
    ]
    handles = [event.fields["handle"] for event in of(life, Kind.LOG_READ_START)]
    read = of(life, Kind.LOG_READ)
    assert [event.fields["handle"] for event in read] == [handles[0]] * 3 + [handles[1]] * 2
    assert [(event.ledger, event.fields["entry"], event.fields["batch"]) for event in read] == [
        *((0, 0, -1), (0, 1, -1), (1, 0, -1)),
        *((2, 0, 0), (2, 0, 1)),
    ]
    assert [event.fields["handle"] for event in of(life, Kind.LOG_READ_END)] == [handles[1]]


def test_positions_of_cursors_are_recorded_where_they_are_stored(life: list[Event]) -> None:
    found = told(of(life, Kind.LOG_CURSOR), "cursor", "cause", "entry")
    assert found[:2] == [("LOG_CURSOR", -1, "c", "opened", 0), ("LOG_CURSOR", -1, "c", "listed", -1)]
    assert found[-2:] == [("LOG_CURSOR", 2, "c", "stored", 0), ("LOG_CURSOR", -1, "c", "removed", -1)]


def test_the_ledgers_of_a_log_are_recorded_as_those_of_any_application(life: list[Event]) -> None:
    assert [event.ledger for event in of(life, Kind.APP_ACK)] == [0, 0, 1, 2]
    assert [event.ledger for event in of(life, Kind.CLOSE_START) if event.actor == "two"] == [2]
    assert (1, True) in [(event.ledger, event.fields["recovery"]) for event in of(life, Kind.OPEN_START)]
    assert {event.ledger for event in of(life, Kind.READ_RESULT)} == {0, 1, 2}


def test_compactions_and_keys_are_recorded(compacted: list[Event]) -> None:
    assert told(of(compacted, Kind.LOG_COMPACT), "cause", "through", "entry") == [
        ("LOG_COMPACT", 2, "begun", -1, -1),
        ("LOG_COMPACT", 2, "done", 1, 1),
        ("LOG_COMPACT", 5, "begun", -1, -1),
        ("LOG_COMPACT", 2, "dropped", 1, 1),
        ("LOG_COMPACT", 5, "done", 4, 1),
    ]
    assert [(event.fields["key"], event.fields["size"]) for event in of(compacted, Kind.LOG_PUB)] == 2 * [
        *((fingerprint(b"k"), 3), (fingerprint(b"l"), 3), (None, 3), (fingerprint(b"l"), 0))
    ]
    assert told(of(compacted, Kind.LOG_READ_START), "cause") == [("LOG_READ_START", -1, "compacted")]


def test_a_ledger_that_is_deleted_twice_is_recorded_as_deleted_once(compacted: list[Event]) -> None:
    deletions = [event.ledger for event in of(compacted, Kind.META_CAS) if event.fields["cause"] == "delete"]
    assert sorted(deletions) == [0, 1, 2, 3, 4]


@pytest.fixture(scope="module")
def grouped() -> list[Event]:
    """A consumer of a log with partitions leaves, and the session of another one ends."""

    async def play(stage: Stage) -> None:
        async def one(client: RecordedClient) -> None:
            logs = logs_of(stage, client)
            await logs.create("l", SHORT, partitions=2)
            async with logs.writer("l", settings=ONE_BY_ONE) as writer:
                await writer.publish_nowait(b"a", key="k")
            async with logs.consumer("l", "g", mode=ConsumerMode.EXCLUSIVE) as consumer:
                consumer.acknowledge(await consumer.receive())

        async def two(client: RecordedClient) -> None:
            async with logs_of(stage, client).consumer("l", "g", mode=ConsumerMode.FAILOVER):
                await anyio.sleep_forever()

        await stage.client("one", one).ended()
        lost = stage.client("two", two)
        await anyio.sleep(2)
        lost.crash()
        await anyio.sleep(20)

    return recorded(play)


def test_consumers_of_groups_are_recorded_for_each_partition_until_they_or_their_sessions_end(
    grouped: list[Event],
) -> None:
    found = of(grouped, Kind.LOG_MEMBER)
    assert {event.fields["cursor"] for event in found} == {"g"}
    assert [(event.actor, *(event.fields[name] for name in ("log", "cause", "member", "mode"))) for event in found] == [
        (actor, f"l-partition-{partition}", cause, member, mode)
        for member, (actor, mode) in enumerate((("one", "exclusive"), ("two", "failover")))
        for cause in ("joined", "left")
        for partition in range(2)
    ]


def test_they_give_every_clause_about_logs_something_to_judge(
    life: list[Event], compacted: list[Event], grouped: list[Event]
) -> None:
    judged: Counter[str] = Counter()
    for events in (life, compacted, grouped):
        checker = OnlineChecker()
        for event in events:
            checker.feed(event)
        judged.update(checker.judged)
    assert all(count > 0 for clause, count in judged.items() if clause.startswith("H"))


def test_an_empty_ledger_leaves_the_list_by_its_end() -> None:
    async def play(stage: Stage) -> None:
        async def first(client: RecordedClient) -> None:
            logs = logs_of(stage, client)
            await logs.create("l", SHORT)
            async with logs.writer("l", settings=ONE_BY_ONE) as writer:
                writer.publish_nowait(b"never stored")
                await anyio.sleep_forever()

        def cut(event: Event) -> bool:
            if event.kind == Kind.LOG_APPEND:
                for bookie in stage.bookies:
                    stage.world.network.block("one", bookie)
            return False

        async def second(client: RecordedClient) -> None:
            async with logs_of(stage, client).writer("l", settings=ONE_BY_ONE):
                pass

        stage.on_event(cut, lambda: None)
        one = stage.client("one", first)
        await anyio.sleep(1)
        one.crash()
        await stage.client("two", second).ended()

    events = recorded(play)
    assert told(of(events, Kind.LOG_END), "last_entry", "length") == [("LOG_END", 0, -1, 0)]
    assert of(events, Kind.LOG_TRIM) == []


def test_what_cannot_be_published_is_recorded_as_failed_and_what_is_refused_is_not_recorded() -> None:
    async def play(stage: Stage) -> None:
        async def program(client: RecordedClient) -> None:
            logs = logs_of(stage, client)
            await logs.create("l", LogSettings(ensemble_size=9, write_quorum_size=2, ack_quorum_size=2))
            writer = logs.writer("l", settings=PublishSettings(give_up_s=1))
            await writer.__aenter__()
            with pytest.raises(NotEnoughBookies):
                await writer.publish_nowait(b"one")
            with pytest.raises(NotEnoughBookies):
                writer.publish_nowait(b"two")
            with pytest.raises(NotEnoughBookies):
                await writer.aclose()

        await stage.client("one", program).ended()

    events = recorded(play)
    assert told(of(events, Kind.LOG_PUB, Kind.LOG_FAIL), "message") == [
        ("LOG_PUB", -1, 0),
        ("LOG_FAIL", -1, 0),
    ]
    assert of(events, Kind.LOG_LOST) == []

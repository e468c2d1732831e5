"""What applications do with logs in a simulated world is recorded and judged, although they make their ``Logs`` themselves."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import bkclient
from bkclient import BookKeeper
from bkclient.log import (
    ConsumerMode,
    LogCursor,
    LogDeposed,
    LogReader,
    Logs,
    LogSettings,
    LogWriter,
    MessageId,
    PublishSettings,
)
from scenarios.checker import OnlineChecker
from scenarios.history import Event, History, Kind
from scenarios.model import Violation
from scenarios.recording.log import recorded_logs
from scenarios.testing import SimulatedWorld, WorldOptions
from tests.scenarios.testing.plugin_runs import run_pytest

pytest_plugins = "pytester"

SHORT = LogSettings(max_ledger_entries=3, min_ledger_s=0)
IN_PAIRS = PublishSettings(batch_messages=2)


def played(
    program: Callable[[SimulatedWorld], Awaitable[object]], tmp_path: Path, **options: Any
) -> tuple[list[Event], tuple[Violation, ...], dict[str, int]]:
    """What is recorded of a program in a world, what it broke, and how often each clause was judged."""
    world = SimulatedWorld(1, options=WorldOptions(**options), history=tmp_path / "run.bkh")
    try:
        world.run(program, world)
        violations = world.finish()
    finally:
        world.close()
    events, checker = list(History(tmp_path / "run.bkh").events()), OnlineChecker()
    for event in events:
        checker.feed(event)
    assert checker.finish() == violations
    return events, violations, checker.judged


def count(events: list[Event], kind: Kind, **fields: object) -> int:
    return sum(event.kind == kind and fields.items() <= dict(event.fields).items() for event in events)


async def publish(logs: Logs, name: str, numbers: range) -> None:
    async with logs.writer(name, settings=IN_PAIRS) as writer:
        futures = [writer.publish_nowait(b"%d" % number, key=f"k{number % 2}") for number in numbers]
        await writer.flush()
    assert all(future.done() for future in futures)


async def take(consumer: Any, messages: int) -> list[Any]:
    """Messages of a consumer or cursor, acknowledged."""
    taken = []
    for _ in range(messages):
        message = await anext(consumer)
        consumer.acknowledge(message)
        taken.append(message)
    return taken


async def be_overtaken(logs: Logs, writer: LogWriter) -> None:
    async with writer:
        await writer.publish(b"0", key="k0")
        await asyncio.gather(*(writer.publish_nowait(b"%d" % number, key="k1") for number in (1, 2)))
        await publish(logs, "l", range(3, 20))
        await writer.publish(b"late")


async def whole_life(world: SimulatedWorld) -> None:
    """Every handle of logs, as an application gets it."""
    async with bkclient.connect(world.uri) as bk:
        logs = Logs(bk)
        await logs.create("l", SHORT)
        writer = logs.writer("l")
        assert isinstance(writer, LogWriter)
        with pytest.raises(LogDeposed):
            await be_overtaken(logs, writer)
        cursor = logs.cursor("l", "c")
        assert isinstance(cursor, LogCursor)
        async with cursor:
            await take(cursor, 5)
        await logs.trim("l", MessageId.LATEST)
        reader = logs.reader("l", follow=False)
        assert isinstance(reader, LogReader)
        async with reader:
            assert [message.payload async for message in reader][-1] == b"19"
        async with logs.consumer("l", "g", mode=ConsumerMode.FAILOVER) as consumer:
            await take(consumer, 4)
        await logs.compact("l")
        async with logs.reader("l", follow=False, compacted=True) as compacted:
            assert [message.payload async for message in compacted] == [b"18", b"19"]
        await logs.compact("l")
    await world.settle()


def test_every_handle_is_recorded_and_every_clause_about_logs_is_judged(tmp_path: Path) -> None:
    events, violations, judged = played(whole_life, tmp_path)
    assert violations == ()
    assert (count(events, Kind.LOG_PUB), count(events, Kind.LOG_ACK), count(events, Kind.LOG_LOST)) == (20, 20, 1)
    assert {clause for clause, times in judged.items() if clause.startswith("H") and not times} == set()
    read_back = {event.actor for event in events if event.kind == Kind.LOG_READ_END}
    assert read_back == {"test", "final-0", "final-1"}


async def partitioned(world: SimulatedWorld) -> None:
    async with bkclient.connect(world.uri) as bk:
        logs = Logs(bk)
        await logs.create("l", SHORT, partitions=2)
        async with logs.writer("l") as writer:
            await asyncio.gather(*(writer.publish(b"%d" % number, key=f"{number}") for number in range(10)))
        async with logs.reader("l", follow=False) as reader:
            assert len([message async for message in reader]) == 10
        async with logs.reader("l-partition-1", follow=False) as reader:
            assert {message.id.partition async for message in reader} == {1}
        async with logs.consumer("l", "g") as consumer:
            await take(consumer, 10)
        async with logs.cursor("l-partition-0", "c") as cursor:
            await take(cursor, 1)


def test_the_messages_of_partitions_are_those_of_logs_of_their_own(tmp_path: Path) -> None:
    events, violations, judged = played(partitioned, tmp_path)
    assert violations == ()
    told = (Kind.LOG_PUB, Kind.LOG_ACK, Kind.LOG_READ_START, Kind.LOG_READ, Kind.LOG_READ_END)
    assert {event.fields["log"] for event in events if event.kind in told} == {"l-partition-0", "l-partition-1"}
    handles = [event.fields["handle"] for event in events if event.kind == Kind.LOG_READ_START]
    assert len(handles) == len({*handles}) == 2 + 1 + 2 + 1
    for number in range(2):
        published = count(events, Kind.LOG_PUB, log=f"l-partition-{number}")
        assert count(events, Kind.LOG_READ, log=f"l-partition-{number}", handle=handles[number]) == published
    assert all(judged[clause] for clause in ("H1", "H2", "H3", "H4", "H7", "H8", "H12", "H14"))


async def in_lives(uri: str, lives: list[int]) -> None:
    async with bkclient.connect(uri) as bk:
        lives.append(len(lives))
        async with Logs(bk).reader("l") as reader:
            for _ in range(2 if lives[-1] else 5):
                await anext(reader)
        await asyncio.sleep(60)


async def restarted(world: SimulatedWorld) -> None:
    async with bkclient.connect(world.uri) as bk:
        logs = Logs(bk)
        await logs.create("l", SHORT)
        await publish(logs, "l", range(10))
        world.start("app", in_lives, world.uri, [])
        await asyncio.sleep(5)
        world.crash("app")
        world.restart("app")
        await asyncio.sleep(5)


def test_a_process_that_starts_again_has_new_readers(tmp_path: Path) -> None:
    events, violations, _ = played(restarted, tmp_path)
    assert violations == ()
    handles = {event.fields["handle"] for event in events if event.kind == Kind.LOG_READ}
    assert len(handles) == 2
    assert count(events, Kind.LOG_READ) == 7


# What applications may do, and plans do not ---------------------------------------------------------------------------


async def acknowledged_unseen(world: SimulatedWorld) -> None:
    """A cursor passes over what the application got by a reader, or was never interested in."""
    async with bkclient.connect(world.uri) as bk:
        logs = Logs(bk)
        await logs.create("l", SHORT)
        await publish(logs, "l", range(10))
        async with logs.reader("l", follow=False) as reader:
            messages = [message async for message in reader]
        async with logs.cursor("l", "through") as cursor:
            await take(cursor, 2)
            cursor.acknowledge_through(messages[6])
        async with logs.cursor("l", "single") as cursor:
            for message in messages[:4]:
                cursor.acknowledge(message)
        async with logs.consumer("l", "group") as consumer:
            await world.until(lambda: consumer.partitions)
            for message in messages[:4]:
                consumer.acknowledge(message)


async def acknowledged_seen(world: SimulatedWorld) -> None:
    async with bkclient.connect(world.uri) as bk:
        logs = Logs(bk)
        await logs.create("l", SHORT)
        await publish(logs, "l", range(10))
        async with logs.cursor("l", "through") as cursor:
            messages = [await anext(cursor) for _ in range(4)]
            cursor.acknowledge_through(messages[-1])


async def moved_back(world: SimulatedWorld) -> None:
    async with bkclient.connect(world.uri) as bk:
        logs = Logs(bk)
        await logs.create("l", SHORT)
        await publish(logs, "l", range(10))
        for _ in range(2):
            async with logs.cursor("l", "c") as cursor:
                await take(cursor, 6)
            await logs.reset_cursor("l", "c", MessageId.EARLIEST)


async def several_at_a_time(world: SimulatedWorld) -> None:
    """Two consumers of one process; the one that is overtaken goes on with what it has read ahead."""
    async with bkclient.connect(world.uri) as bk:
        logs = Logs(bk)
        await logs.create("l", SHORT)
        await publish(logs, "l", range(10))
        async with logs.cursor("l", "c") as old:
            await anext(old)
            async with logs.cursor("l", "c") as new:
                await take(new, 10)
            for _ in range(9):
                await anext(old)


async def somewhere(world: SimulatedWorld) -> None:
    """Readers that begin elsewhere, and by compactions."""
    async with bkclient.connect(world.uri) as bk:
        logs = Logs(bk)
        await logs.create("l", SHORT)
        await publish(logs, "l", range(10))
        await logs.compact("l")
        async with logs.reader("l", follow=False) as reader:
            messages = [message async for message in reader]
        for options in ({"inclusive": False}, {"start_ms": messages[5].publish_ms}, {"compacted": True}):
            start = MessageId.EARLIEST if "start_ms" in options else messages[3].id
            async with logs.reader("l", start, follow=False, **options) as reader:
                assert [message async for message in reader][-1] == messages[-1]


async def by_a_subclass(world: SimulatedWorld) -> None:
    class Named(Logs):
        def __init__(self, client: BookKeeper, name: str) -> None:
            super().__init__(client)
            self.log_name = name

        def writer(self, name: str = "", **options: Any) -> LogWriter:
            return super().writer(name or self.log_name, **options)

    async with bkclient.connect(world.uri) as bk:
        logs = Named(bk, "l")
        assert isinstance(logs, Named)
        await logs.create("l", SHORT)
        async with logs.writer() as writer:
            await writer.publish(b"x")


async def made_anew(world: SimulatedWorld) -> None:
    """A log is deleted, and another one has its name, with other partitions."""
    async with bkclient.connect(world.uri) as bk:
        logs = Logs(bk)
        for partitions in (0, 2):
            await logs.create("l", SHORT, partitions=partitions)
            await publish(logs, "l", range(10))
            async with logs.cursor("l", "c") as cursor:
                await take(cursor, 6)
            async with logs.reader("l", follow=False) as reader:
                assert len([message async for message in reader]) == 10
            if not partitions:
                await logs.delete("l")
    await world.settle()


@pytest.mark.parametrize(
    "program",
    [acknowledged_unseen, acknowledged_seen, moved_back, several_at_a_time, somewhere, by_a_subclass, made_anew],
)
def test_what_applications_may_do_is_no_defect(program: FunctionType, tmp_path: Path) -> None:
    events, violations, judged = played(program, tmp_path)
    assert violations == ()
    assert count(events, Kind.LOG_PUB)
    skipped = {
        event.fields["cursor"]
        for event in events
        if event.kind == Kind.LOG_CURSOR and event.fields["cause"] == "skipped"
    }
    expected = {"acknowledged_unseen": {"through", "single", "group"}, "several_at_a_time": {"c"}}
    assert skipped == expected.get(program.__name__, set())
    assert bool(judged["H14"]) == (program in {acknowledged_seen, moved_back, made_anew})


def test_logs_of_other_clients_stay_as_they_are() -> None:
    original = Logs.__init__
    client: Any = object.__new__(BookKeeper)
    with recorded_logs():
        logs = Logs(client, rng=object())  # type: ignore[arg-type]
        assert type(logs) is Logs
    assert Logs.__init__ is original


# Planted defects ------------------------------------------------------------------------------------------------------

_TEST = """
    import asyncio
    import pytest
    import bkclient
    from bkclient.log import Logs, LogSettings, MessageId, PublishSettings
    from scenarios.mutants import MUTANTS

    @pytest.fixture(autouse=True)
    def defect():
        with MUTANTS[{defect!r}].applied():
            yield

    async def own(uri, delay_s):
        async with bkclient.connect(uri) as bk, Logs(bk).writer("l", settings=PublishSettings(batch_messages=2)) as log:
            for number in range(40):
                for half in (b"a", b"b"):
                    log.publish_nowait(b"%s %d %s" % (str(delay_s).encode(), number, half))
                await asyncio.sleep(delay_s)

    async def test_application(bk_world):
        async with bkclient.connect(bk_world.uri) as bk:
            logs = Logs(bk)
            await logs.create("l", LogSettings(max_ledger_entries=3, min_ledger_s=0))
            first = bk_world.start("first", own, bk_world.uri, 0.01)
            await asyncio.sleep(0.3)
            bk_world.crash("first")
            await bk_world.start("second", own, bk_world.uri, 0.001).ended()
            async with logs.cursor("l", "c") as cursor:
                for _ in range(9):
                    cursor.acknowledge(await anext(cursor))
            await logs.trim("l", MessageId.LATEST)
            async with logs.reader("l", follow=False) as reader:
                found = [message async for message in reader]
        assert {assertion}
"""
#: Defects, and clauses that show them here.
DEFECTS = {
    "log-tells-ids-crosswise": {"H1", "H2", "H3"},
    "log-reader-skips-a-ledger": {"H14"},
    "log-reader-repeats-an-entry": {"H4"},
    "log-trim-ignores-cursors": {"H11"},
    "log-rolls-without-closing": {"H9", "H10"},
    "log-deletes-what-may-be-listed": set(),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_logs_makes_the_test_of_an_application_fail_with_its_clause(
    pytester: pytest.Pytester, defect: str
) -> None:
    result = run_pytest(pytester, _TEST.format(defect=defect, assertion="found"), "--bk-seeds=1")
    report = "\n".join(result.outlines)
    assert set(re.findall(r"^  \w+ \((H\d+)\), ledger", report, re.MULTILINE)) == DEFECTS[defect]
    assert ("the client broke what ledgers and logs promise, which is a defect of bkclient:" in report) == bool(
        DEFECTS[defect]
    )
    result.assert_outcomes(failed=bool(DEFECTS[defect]), passed=not DEFECTS[defect])


def test_it_is_told_beside_the_failure_of_an_assertion(pytester: pytest.Pytester) -> None:
    source = _TEST.format(defect="log-reader-skips-a-ledger", assertion="len(found) == 1000")
    report = "\n".join(run_pytest(pytester, source, "--bk-seeds=1").outlines)
    assert "assert len(found) == 1000" in report
    assert report.count("the client broke what ledgers and logs promise") == 1
    assert "LogCursorsKeep (H14)" in report

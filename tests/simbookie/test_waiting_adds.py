"""Adds that a full storage makes wait: their order, their time, and what may happen meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bkclient.wire.messages import ReadRequest, Status
from simbookie.bookie import BookieState
from simbookie.config import BookieConfig
from simbookie.storage.base import CrashMode, StorageIOError, WriteCacheFull

Virtually = Callable[[Callable[[], Any]], None]
CONFIG = BookieConfig(add_wait_max_s=10.0, pending_adds_max=5)


def full(bench: Any, error: Exception | None = None) -> Callable[[], None]:
    """Make the storage refuse entries; what is returned ends that."""
    add_entry = bench.storage.add_entry

    def refuse(*_: object) -> None:
        raise error if error is not None else WriteCacheFull("full")

    bench.storage.add_entry = refuse

    def end() -> None:
        bench.storage.add_entry = add_entry

    return end


def test_adds_wait_for_room_and_are_stored_in_their_order(virtually: Virtually, kit: Any) -> None:
    async def story() -> None:
        observer = kit.Notebook()
        bench = kit.Bench(CONFIG, observer=observer)
        has_room = full(bench)
        answers = bench.submit(*(kit.add(1, number, lac=number - 1) for number in range(3)))
        await asyncio.sleep(9.9)
        assert (answers, bench.bookie.pending_adds) == ([], 3)
        assert not observer.of("entry_stored"), "nobody is told before it is"
        has_room()
        later = bench.submit(kit.add(1, 3, lac=2))
        assert not later, "it is behind the others"
        await asyncio.sleep(0.01)
        assert answers.statuses + later.statuses == [Status.OK] * 4
        assert [event[2] for event in observer.of("entry_stored")] == [0, 1, 2, 3]
        assert bench.bookie.pending_adds == 0

    virtually(story)


def test_each_add_is_tried_for_its_time_and_then_refused(virtually: Virtually, kit: Any) -> None:
    async def story() -> None:
        bench = kit.Bench(CONFIG)
        full(bench)
        start = asyncio.get_running_loop().time()
        answers = bench.submit(*(kit.add(1, number) for number in range(3)))
        await asyncio.sleep(60)
        assert answers.statuses == [Status.TOO_MANY_REQUESTS] * 3
        assert [round(time - start, 1) for time in answers.times] == [10.0, 20.0, 30.0]
        assert bench.bookie.pending_adds == 0

    virtually(story)


def test_those_that_wait_count_as_pending_and_who_waits_for_room_is_told(virtually: Virtually, kit: Any) -> None:
    async def story() -> None:
        bench = kit.Bench(CONFIG)
        has_room, told = full(bench), list[str]()
        answers = bench.submit(*(kit.add(1, number) for number in range(7)))
        assert answers.statuses == [Status.TOO_MANY_REQUESTS] * 2
        bench.bookie.add_room.when_room(lambda: told.append("room"))
        await asyncio.sleep(1)
        assert not told
        has_room()
        await asyncio.sleep(1)
        assert (told, answers.statuses[2:]) == (["room"], [Status.OK] * 5)

    virtually(story)


@pytest.mark.parametrize("room_comes", [False, True])
def test_who_waits_for_room_is_told_when_those_that_wait_are_refused(
    virtually: Virtually, kit: Any, *, room_comes: bool
) -> None:
    async def story() -> None:
        bench = kit.Bench(CONFIG)
        has_room, told = full(bench), list[str]()
        answers = bench.submit(*(kit.add(1, number) for number in range(5)))
        bench.bookie.add_room.when_room(lambda: told.append("room"))
        if room_comes:
            bench.submit(kit.fencing_read(1))
            has_room()
        await asyncio.sleep(100)
        assert answers.statuses == [Status.FENCED if room_comes else Status.TOO_MANY_REQUESTS] * 5
        assert (told, bench.bookie.pending_adds) == (["room"], 0)

    virtually(story)


@pytest.mark.rule("BK-1")
def test_an_add_whose_ledger_is_fenced_while_it_waits_is_refused(virtually: Virtually, kit: Any) -> None:
    async def story() -> None:
        bench = kit.Bench(CONFIG)
        assert await bench.status(kit.add(1, 0)) is Status.OK
        has_room = full(bench)
        answers = bench.submit(kit.add(1, 1), kit.add(2, 0))
        fence = bench.submit(kit.fencing_read(1))
        await asyncio.sleep(1)
        assert fence.statuses == [Status.OK], "it does not wait behind adds"
        has_room()
        await asyncio.sleep(1)
        assert answers.statuses == [Status.FENCED, Status.OK]
        assert await bench.status(ReadRequest(1, 1)) is Status.NO_ENTRY

    virtually(story)


def test_an_add_of_recovery_waits_for_room_and_not_behind_others(virtually: Virtually, kit: Any) -> None:
    async def story() -> None:
        bench = kit.Bench(CONFIG)
        has_room = full(bench)
        ordinary = bench.submit(*(kit.add(1, number) for number in range(5)))
        recovery = bench.submit(kit.add(2, 0, recovery=True, high_priority=True))
        await asyncio.sleep(1)
        assert (ordinary, recovery, bench.bookie.pending_adds) == ([], [], 5)
        has_room()
        assert await bench.status(kit.add(3, 0, recovery=True, high_priority=True)) is Status.OK
        assert ordinary == [], "it did not wait for the next attempt"
        await asyncio.sleep(1)
        assert ordinary.statuses + recovery.statuses == [Status.OK] * 6

    virtually(story)


def test_an_ordinary_add_of_a_connection_waits_too(virtually: Virtually, kit: Any) -> None:
    async def story() -> None:
        bench = kit.Bench(CONFIG)
        assert await bench.status(kit.add(1, 0)) is Status.OK
        has_room = full(bench)
        whole = kit.add(1, 1)
        ordinary = type(whole)(1, 1, kit.KEY, whole.header + whole.payload, b"")
        added = list[object]()
        assert not bench.bookie.add(ordinary, lambda token, error: added.append(error), None, "client")
        answers = bench.submit(whole)
        has_room()
        behind = type(whole)(1, 2, kit.KEY, kit.entry_body(1, 2), b"")
        assert not bench.bookie.add(behind, lambda token, error: added.append(error), None, "client"), (
            "behind the other"
        )
        await asyncio.sleep(1)
        assert (answers.statuses, added) == ([Status.OK], [])
        assert bench.bookie.add(behind, lambda token, error: added.append(error), None, "client")
        await asyncio.sleep(1)
        assert added == [None]

    virtually(story)


def test_another_failure_is_answered_at_once(virtually: Virtually, kit: Any) -> None:
    async def story() -> None:
        bench = kit.Bench(CONFIG)
        full(bench, StorageIOError("broken"))
        assert await bench.status(kit.add(1, 0)) is Status.IO_ERROR

    virtually(story)


def test_a_bookie_that_stops_refuses_those_that_wait(virtually: Virtually, kit: Any) -> None:
    async def story() -> None:
        bench = kit.Bench(CONFIG)
        full(bench)
        answers = bench.submit(kit.add(1, 0), kit.add(1, 1))
        bench.bookie.shutdown()
        assert answers.statuses == [Status.TOO_MANY_REQUESTS] * 2
        await asyncio.sleep(100)
        assert len(answers) == 2

    virtually(story)


@pytest.mark.parametrize("dies", ["alone", "of an answer", "of an answer while it stops"])
def test_a_bookie_that_dies_answers_nobody(virtually: Virtually, kit: Any, dies: str) -> None:
    async def story() -> None:
        bench = kit.Bench(CONFIG)
        has_room = full(bench)
        answers = bench.submit(kit.add(1, 0))
        behind = kit.Answers()

        def die(response: object) -> None:
            bench.bookie.crash(CrashMode.PROCESS)

        if dies == "alone":
            bench.bookie.crash(CrashMode.PROCESS)
        else:
            bench.bookie.submit(kit.add(1, 1, master_key=kit.OTHER_KEY), die)
            bench.bookie.submit(kit.add(1, 2), behind)
            if dies == "of an answer":
                has_room()
            else:
                bench.bookie.shutdown()
        await asyncio.sleep(100)
        assert bench.bookie.state is BookieState.STOPPED
        first = [Status.TOO_MANY_REQUESTS] if dies == "of an answer while it stops" else []
        assert (answers.statuses, behind) == (first, [])
        assert bench.bookie.pending_adds == 0
        has_room()
        bench.bookie.start()
        assert await bench.status(kit.add(3, 0)) is Status.OK

    virtually(story)

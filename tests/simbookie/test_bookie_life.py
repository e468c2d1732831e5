"""Starting, crashing, shutting down, starting again; and what an observer is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bkclient.wire.messages import LongPoll, ReadLacRequest, ReadRequest, Response, Status, WriteFlags, WriteLacRequest
from simbookie.bookie import Bookie, BookieState
from simbookie.storage.base import CrashMode
from simbookie.storage.forgetful import ForgetfulStorage
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.memory import MemoryStorage

Virtually = Callable[[Callable[[], Any]], None]
SLOW = JournalConfig(group_wait_max_s=0.001, sync_latency_s=0.010)


@pytest.mark.rule("BK-23")
@pytest.mark.behaviour("T-159")
@pytest.mark.parametrize("mode", list(CrashMode))
async def test_a_restart_restores_keys_fences_entries_and_explicit_lacs(kit: Any, mode: CrashMode) -> None:
    bench = kit.Bench()
    lac = WriteLacRequest(1, 5, kit.KEY, kit.entry_body(1, 5)[:16])
    await bench.ask(kit.add(1, 0), kit.add(1, 1, lac=0), lac, kit.add(2, 0), kit.fencing_read(1), kit.fencing_read(3))
    bench.bookie.crash(mode)
    bench.bookie.start()
    assert bench.bookie.incarnation == 2
    (read,) = await bench.ask(ReadRequest(1, -1))
    assert (read.body, read.max_lac) == (kit.add(1, 1, lac=0).body, 5)
    (read_lac,) = await bench.ask(ReadLacRequest(1))
    assert read_lac.lac_body == lac.body
    assert await bench.status(kit.add(1, 2)) is Status.FENCED, "T-117"
    assert await bench.status(kit.add(3, 0)) is Status.FENCED, "a fence that created its ledger survives with the key"
    assert await bench.status(kit.add(3, 0, master_key=kit.OTHER_KEY, recovery=True)) is Status.UNAUTHORIZED
    assert await bench.status(kit.add(2, 1, master_key=kit.OTHER_KEY)) is Status.UNAUTHORIZED
    assert await bench.status(kit.add(2, 1)) is Status.OK


@pytest.mark.rule("BK-23")
async def test_another_bookie_object_over_the_same_disk_is_the_same_bookie(kit: Any) -> None:
    bench = kit.Bench()
    await bench.ask(kit.add(1, 0), kit.fencing_read(1))
    bench.bookie.crash()
    again = kit.Bench(disk=bench.disk)
    assert await again.status(kit.add(1, 1)) is Status.FENCED
    assert await again.status(ReadRequest(1, 0)) is Status.OK


@pytest.mark.rule("D2")
def test_a_fence_is_as_durable_as_its_answer_says(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bench = kit.Bench(journal=SLOW)
        bench.submit(kit.add(1, 0))
        await asyncio.sleep(1)
        unanswered = bench.submit(kit.fencing_read(1))
        await asyncio.sleep(0.005)
        bench.bookie.crash(CrashMode.POWER_LOSS)
        await asyncio.sleep(1)
        assert unanswered == []
        bench.bookie.start()
        added = bench.submit(kit.add(1, 1))
        await asyncio.sleep(1)
        assert added.statuses == [Status.OK], "the fence was lost, and nobody was told it stands"
        answered = bench.submit(kit.fencing_read(1))
        await asyncio.sleep(0.0111)
        assert answered.statuses == [Status.OK]
        bench.bookie.crash(CrashMode.POWER_LOSS)
        bench.bookie.start()
        assert await bench.status(kit.add(1, 2)) is Status.FENCED

    virtually(story)


@pytest.mark.rule("BK-24")
def test_nothing_is_answered_after_a_crash_and_nothing_accepted_until_the_next_start(
    kit: Any, virtually: Virtually
) -> None:
    async def story() -> None:
        bench = kit.Bench(journal=SLOW)
        bench.submit(kit.add(1, 0))
        await asyncio.sleep(1)
        answers = bench.submit(
            kit.add(1, 1),
            kit.add(1, 2, write_flags=WriteFlags.DEFERRED_SYNC),
            kit.fencing_read(1),
            WriteLacRequest(1, 0, kit.KEY, kit.entry_body(1, 0)),
            ReadRequest(1, -1, long_poll=LongPoll(5, 100)),
        )
        bench.bookie.crash()
        bench.submit(kit.add(1, 3))
        dropped = bench.submit(ReadRequest(1, 0))
        bench.bookie.start()
        await asyncio.sleep(1)
        assert answers == []
        assert dropped == []
        assert bench.bookie.pending_adds == bench.bookie.waiting_polls == 0
        assert bench.storage.entry_ids(1) == [0]

    virtually(story)


@pytest.mark.rule("BK-24")
async def test_an_answer_that_crashes_and_restarts_the_bookie_silences_those_behind_it(kit: Any) -> None:
    bench = kit.Bench()
    answers = kit.Answers()

    def restart(response: Response) -> None:
        answers(response)
        bench.bookie.crash()
        bench.bookie.start()

    for entry_id, respond in enumerate((answers, restart, answers)):
        bench.bookie.submit(kit.add(1, entry_id), respond)
    await kit.settle()
    assert len(answers) == 2
    for respond in (answers, restart, answers):
        bench.bookie.submit(kit.fencing_read(1), respond)
    await kit.settle()
    assert len(answers) == 4
    assert await bench.status(kit.add(1, 3)) is Status.FENCED


@pytest.mark.rule("BK-24")
def test_an_orderly_shutdown_answers_everything_and_loses_nothing(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bench = kit.Bench(journal=SLOW)
        stopped: list[float] = []
        bench.submit(kit.add(1, 0))
        await asyncio.sleep(1)
        answers = bench.submit(kit.add(1, 1), kit.fencing_read(1), ReadRequest(1, -1, long_poll=LongPoll(9, 60_000)))
        bench.bookie.shutdown(lambda: stopped.append(asyncio.get_running_loop().time()))
        assert bench.bookie.state.name == "STOPPING"
        assert bench.submit(ReadRequest(1, 0)) == []
        await asyncio.sleep(5)
        assert sorted(answers.statuses) == [Status.OK] * 3
        assert stopped == [pytest.approx(1.010)]
        assert bench.bookie.state is BookieState.STOPPED
        bench.bookie.start()
        assert bench.bookie.incarnation == 2
        assert await bench.status(ReadRequest(1, 1)) is Status.OK
        assert await bench.status(kit.add(1, 2)) is Status.FENCED

    virtually(story)


async def test_a_crash_during_a_shutdown_is_a_crash(kit: Any) -> None:
    notebook = kit.Notebook()
    bench = kit.Bench(observer=notebook, journal=JournalConfig(sync_latency_s=60))
    answers = bench.submit(kit.add(1, 0))
    stopped: list[bool] = []
    bench.bookie.shutdown(lambda: stopped.append(True))
    await kit.settle()
    bench.bookie.crash(CrashMode.POWER_LOSS)
    await kit.settle()
    assert (answers, stopped) == ([], [])
    assert [event[1] for event in notebook.of("crashed")] == [False]


async def test_a_bookie_cannot_be_started_twice_or_stopped_when_it_is_not_running(kit: Any) -> None:
    fresh = Bookie("b1", MemoryStorage())
    for misuse in (
        fresh.crash,
        fresh.shutdown,
        lambda: fresh.set_limbo(1, in_limbo=True),
        lambda: fresh.delete_ledger(1),
    ):
        with pytest.raises(AssertionError, match="b1"):
            misuse()
    fresh.start()
    with pytest.raises(AssertionError, match="b1"):
        fresh.start()
    fresh.crash()
    with pytest.raises(AssertionError, match="b1"):
        fresh.crash()


async def test_a_full_disk_is_read_only_from_the_start(kit: Any) -> None:
    bench = kit.Bench(capacity_bytes=100)
    await bench.ask(kit.add(1, 0, payload=bytes(46)))
    bench.bookie.crash()
    bench.bookie.set_read_only(False)
    bench.bookie.start()
    assert bench.bookie.read_only
    bench.bookie.delete_ledger(1)
    assert not bench.bookie.read_only


def test_a_bookie_that_lost_what_filled_its_disk_is_writable_again(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        bench = kit.Bench(capacity_bytes=100, journal=SLOW)
        modes: list[bool] = []
        bench.bookie.watch_read_only(modes.append)
        bench.submit(kit.add(1, 0, payload=bytes(46)))
        bench.bookie.crash()
        bench.bookie.start()
        assert modes == [True, False]
        assert not bench.bookie.read_only

    virtually(story)


# --------------------------------------------------------------------------------------------------------------- observer


def test_an_observer_is_told_everything_in_order(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        notebook = kit.Notebook()
        bench = kit.Bench(observer=notebook, journal=SLOW)
        first, second = kit.add(1, 0), kit.add(1, 1, lac=0, recovery=True)
        told: list[int] = []
        bench.bookie.submit(first, lambda _: told.append(len(notebook.events)), source="writer")
        bench.bookie.submit(kit.fencing_read(1), lambda _: told.append(len(notebook.events)), source="recoverer")
        bench.bookie.submit(second, lambda _: None, source="recoverer")
        await asyncio.sleep(1)
        bench.bookie.delete_ledger(1)
        bench.bookie.set_limbo(2, in_limbo=True, fence=False)
        bench.bookie.set_limbo(2, in_limbo=True, fence=False)
        bench.bookie.set_limbo(2, in_limbo=False)
        assert notebook.events == [
            ("entry_stored", 1, 0, first.body, False, "writer"),
            ("fence_set", 1, "recoverer", False),
            ("entry_stored", 1, 1, second.body, True, "recoverer"),
            ("lac_advanced", 1, 0),
            ("entry_synced", 1, 0),
            ("fence_set", 1, "recoverer", True),
            ("entry_synced", 1, 1),
            ("ledger_deleted", 1),
            ("limbo_changed", 2, True),
            ("limbo_changed", 2, False),
        ]
        assert told == [5, 6], "each answer comes after what it depends on"

    virtually(story)


@pytest.mark.rule("D7")
def test_an_observer_learns_what_a_crash_destroyed(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        notebook = kit.Notebook()
        bench = kit.Bench(observer=notebook, journal=SLOW)
        bench.submit(kit.add(1, 0))
        await asyncio.sleep(1)
        bench.submit(kit.add(1, 0), kit.add(1, 1), kit.fencing_read(1))
        notebook.events.clear()
        bench.bookie.crash(CrashMode.POWER_LOSS)
        bench.bookie.start()
        assert notebook.events == [
            ("entry_lost", 1, 1, "not durable at the crash"),
            ("crashed", False, "power_loss: lost 1 entries and 1 fences"),
            ("restarted", 2, "1 ledgers restored"),
        ]

    virtually(story)


@pytest.mark.rule("D11")
def test_an_observer_learns_that_a_crash_forgot_a_limbo(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        notebook = kit.Notebook()
        bench = kit.Bench(observer=notebook, journal=SLOW)
        bench.submit(kit.add(1, 0), kit.add(2, 0))
        await asyncio.sleep(1)
        bench.bookie.set_limbo(1, in_limbo=True, fence=False)
        await asyncio.sleep(1)
        bench.bookie.set_limbo(2, in_limbo=True, fence=False)
        notebook.events.clear()
        bench.bookie.crash(CrashMode.POWER_LOSS)
        bench.bookie.start()
        told = [event for event in notebook.events if event[0] == "limbo_changed"]
        kept = [ledger_id for ledger_id in (1, 2) if bench.bookie.storage.ledger(ledger_id).in_limbo]
        assert told == [("limbo_changed", ledger_id, False) for ledger_id in (1, 2) if ledger_id not in kept]
        assert 2 not in kept

    virtually(story)


def test_an_observer_learns_of_a_fence_that_was_forgotten(kit: Any, virtually: Virtually) -> None:
    async def story() -> None:
        notebook = kit.Notebook()
        bench = kit.Bench(observer=notebook, storage=ForgetfulStorage())
        bench.submit(kit.fencing_read(1))
        await asyncio.sleep(1)
        notebook.events.clear()
        bench.bookie.crash(CrashMode.PROCESS)
        assert notebook.events == [
            ("fence_forgotten", 1, "neither replayed nor kept by a checkpoint"),
            ("crashed", False, "process: lost 0 entries and 0 fences, forgot 1 fences"),
        ]

    virtually(story)


async def test_an_orderly_shutdown_is_told_as_clean(kit: Any) -> None:
    notebook = kit.Notebook()
    bench = kit.Bench(observer=notebook)
    bench.bookie.shutdown()
    await kit.settle()
    assert notebook.events == [("crashed", True, "orderly shutdown")]


@pytest.mark.rule("D7")
@pytest.mark.parametrize(
    ("journal", "synced"),
    [(JournalConfig(), 2), (JournalConfig(entries_enabled=False), 0), (JournalConfig(sync_enabled=False), 0)],
)
async def test_entries_are_reported_as_synced_only_where_they_are(
    kit: Any, journal: JournalConfig, synced: int
) -> None:
    notebook = kit.Notebook()
    bench = kit.Bench(observer=notebook, journal=journal)
    answers = await bench.ask(kit.add(1, 0), kit.add(1, 1, write_flags=WriteFlags.DEFERRED_SYNC))
    assert answers.statuses == [Status.OK, Status.OK]
    assert len(notebook.of("entry_synced")) == synced
    bench.bookie.crash()

"""Group commit: when groups form, when callbacks run, what a crash leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from simbookie.storage.base import CrashMode, StorageError
from simbookie.storage.group_commit import GroupCommit, JournalConfig
from simbookie.world.loop import VirtualTimeLoop


class Log:
    """A disk for the journal that remembers how it was used."""

    def __init__(self) -> None:
        self.writes: list[list[str]] = []
        self.syncs: list[tuple[float, int]] = []
        self.written: list[str] = []
        self.synced = 0

    def write(self, records: list[str]) -> int:
        self.writes.append(list(records))
        self.written += records
        return len(self.written)

    def sync(self, position: int) -> None:
        self.syncs.append((asyncio.get_running_loop().time(), position))
        self.synced = position

    def crash(self, mode: CrashMode) -> list[str]:
        keep = self.synced if mode is CrashMode.POWER_LOSS else len(self.written)
        lost = self.written[keep:]
        del self.written[keep:]
        return lost


class Calls(list[Any]):
    def __call__(self, token: object, error: StorageError | None) -> None:
        assert error is None
        self.append((token, asyncio.get_running_loop().time()))

    @property
    def tokens(self) -> list[object]:
        return [token for token, _ in self]


Virtually = Callable[[Callable[[], Any]], None]


@pytest.mark.rule("BK-25")
def test_without_waiting_a_group_is_one_turn_of_the_loop_and_callbacks_never_run_inside_append(
    virtually: Virtually,
) -> None:
    async def story() -> None:
        log, calls = Log(), Calls()
        journal = GroupCommit(log, JournalConfig())
        for record in "abc":
            journal.append(record, 1, calls, record)
        assert calls == []
        await asyncio.sleep(0)
        assert calls == [("a", 0.0), ("b", 0.0), ("c", 0.0)]
        assert log.writes == [["a", "b", "c"]]
        assert log.syncs == [(0.0, 3)]

    virtually(story)


@pytest.mark.rule("BK-25")
def test_the_first_record_of_a_group_sets_its_time_and_later_ones_join(virtually: Virtually) -> None:
    async def story() -> None:
        log, calls = Log(), Calls()
        journal = GroupCommit(log, JournalConfig(group_wait_max_s=0.002, sync_latency_s=0.005))
        journal.append("a", 1, calls, "a")
        await asyncio.sleep(0.001)
        journal.append("b", 1, calls, "b")
        await asyncio.sleep(0.1)
        assert calls == [("a", pytest.approx(0.007)), ("b", pytest.approx(0.007))]
        assert log.writes == [["a", "b"]]

    virtually(story)


@pytest.mark.rule("BK-25")
def test_a_large_group_does_not_wait(virtually: Virtually) -> None:
    async def story() -> None:
        log, calls = Log(), Calls()
        journal = GroupCommit(log, JournalConfig(group_wait_max_s=1.0, group_bytes_max=10))
        journal.append("a", 10, calls, "a")
        await asyncio.sleep(0.5)
        assert calls == []
        journal.append("b", 1, calls, "b")
        assert calls == []
        await asyncio.sleep(0)
        assert calls == [("a", 0.5), ("b", 0.5)]
        await asyncio.sleep(5)
        assert len(log.writes) == 1, "the timer of the group that left early does not fire"

    virtually(story)


@pytest.mark.rule("BK-25")
def test_groups_written_during_a_sync_share_the_next_one(virtually: Virtually) -> None:
    async def story() -> None:
        log, calls = Log(), Calls()
        journal = GroupCommit(log, JournalConfig(sync_latency_s=0.010))
        for record in "abcd":
            journal.append(record, 1, calls, record)
            await asyncio.sleep(0.002)
        await asyncio.sleep(1)
        assert [(token, round(time, 6)) for token, time in calls] == [
            ("a", 0.01),
            ("b", 0.02),
            ("c", 0.02),
            ("d", 0.02),
        ]
        assert [position for _, position in log.syncs] == [1, 4]

    virtually(story)


@pytest.mark.rule("BK-19")
def test_a_mark_waits_for_everything_before_it_and_writes_nothing(virtually: Virtually) -> None:
    async def story() -> None:
        log, calls = Log(), Calls()
        journal = GroupCommit(log, JournalConfig(sync_latency_s=0.010))
        journal.append("a", 1, calls, "a")
        journal.mark(calls, "mark")
        journal.append("b", 1, calls, "b")
        await asyncio.sleep(1)
        assert calls.tokens == ["a", "mark", "b"]
        assert log.written == ["a", "b"]

    virtually(story)


@pytest.mark.rule("BK-7")
def test_written_callbacks_run_after_the_write_and_before_the_sync(virtually: Virtually) -> None:
    async def story() -> None:
        log, written, durable = Log(), Calls(), Calls()
        journal = GroupCommit(log, JournalConfig(group_wait_max_s=0.002, sync_latency_s=0.005))
        journal.append("a", 1, durable, "a", written)
        await asyncio.sleep(1)
        assert written == [("a", pytest.approx(0.002))]
        assert durable == [("a", pytest.approx(0.007))]

    virtually(story)


@pytest.mark.rule("BK-25")
def test_without_sync_callbacks_follow_the_write_and_the_disk_is_synced_once_per_interval(virtually: Virtually) -> None:
    async def story() -> None:
        log, calls = Log(), Calls()
        journal = GroupCommit(log, JournalConfig(sync_enabled=False, page_cache_flush_interval_s=1.0))
        for record in "abc":
            journal.append(record, 1, calls, record)
            await asyncio.sleep(0.1)
        assert calls.tokens == ["a", "b", "c"]
        assert log.syncs == []
        await asyncio.sleep(5)
        assert log.syncs == [(1.0, 3)]

    virtually(story)


@pytest.mark.parametrize(
    ("mode", "lost"), [(CrashMode.PROCESS, ["buffered"]), (CrashMode.POWER_LOSS, ["written", "buffered"])]
)
@pytest.mark.rule("BK-23")
def test_a_crash_drops_what_its_kind_does_not_keep_and_silences_every_callback(
    virtually: Virtually, mode: CrashMode, lost: list[str]
) -> None:
    async def story() -> None:
        log, calls = Log(), Calls()
        journal = GroupCommit(log, JournalConfig(group_wait_max_s=0.001, sync_latency_s=0.010))
        journal.append("synced", 1, calls, "synced")
        await asyncio.sleep(0.050)
        journal.append("written", 1, calls, "written")
        await asyncio.sleep(0.005)
        journal.append("buffered", 1, calls, "buffered")
        assert journal.crash(mode) == lost
        await asyncio.sleep(1)
        assert calls.tokens == ["synced"]

    virtually(story)


@pytest.mark.rule("BK-24")
@pytest.mark.parametrize("early", [True, False])
def test_a_callback_that_crashes_the_journal_silences_the_rest_of_its_group(virtually: Virtually, early: bool) -> None:
    async def story() -> None:
        log, calls = Log(), Calls()
        journal = GroupCommit(log, JournalConfig())

        def crash(token: object, error: StorageError | None) -> None:
            calls(token, error)
            journal.crash(CrashMode.PROCESS)

        for record in "abc":
            callback = crash if record == "b" else calls
            if early:
                journal.append(record, 1, calls, record, callback)
            else:
                journal.append(record, 1, callback, record)
        await asyncio.sleep(1)
        assert calls.tokens == ["a", "b"]

    virtually(story)


def test_closing_finishes_everything_in_order_and_then_says_so(virtually: Virtually) -> None:
    async def story() -> None:
        log, calls = Log(), Calls()
        journal = GroupCommit(log, JournalConfig(group_wait_max_s=10, sync_latency_s=0.010))
        journal.append("a", 1, calls, "a")
        await asyncio.sleep(0.001)
        journal.append("b", 1, None, "b")
        journal.close(lambda: calls("closed", None))
        assert calls == []
        await asyncio.sleep(1)
        assert calls.tokens == ["a", "closed"]
        assert log.synced == 2
        with pytest.raises(AssertionError):
            journal.append("c", 1, calls, "c")

    virtually(story)


@pytest.mark.parametrize("sync_enabled", [True, False])
def test_closing_during_a_sync_covers_what_came_after_it(virtually: Virtually, sync_enabled: bool) -> None:
    async def story() -> None:
        log, closed = Log(), Calls()
        journal = GroupCommit(log, JournalConfig(sync_latency_s=0.010, sync_enabled=sync_enabled))
        journal.append("a", 1, None, None)
        await asyncio.sleep(0.005)
        journal.append("b", 1, None, None)
        journal.close(lambda: closed("closed", None))
        await asyncio.sleep(5)
        assert closed.tokens == ["closed"]
        assert log.synced == 2

    virtually(story)


def test_an_idle_journal_closes_without_touching_the_disk(virtually: Virtually) -> None:
    async def story() -> None:
        log, closed = Log(), Calls()
        GroupCommit(log, JournalConfig(sync_latency_s=0.010)).close(lambda: closed("closed", None))
        await asyncio.sleep(0)
        assert closed == [("closed", 0.0)]
        assert log.syncs == []

    virtually(story)


def test_without_a_disk_the_timing_is_the_same(virtually: Virtually) -> None:
    async def story() -> None:
        calls = Calls()
        journal: GroupCommit[str] = GroupCommit(None, JournalConfig(group_wait_max_s=0.002, sync_latency_s=0.005))
        journal.append("a", 1, calls, "a")
        await asyncio.sleep(1)
        assert calls == [("a", pytest.approx(0.007))]
        assert journal.crash(CrashMode.POWER_LOSS) == []

    virtually(story)


def test_one_timer_serves_a_whole_group(virtually: Virtually) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        journal: GroupCommit[str] = GroupCommit(Log(), JournalConfig(group_wait_max_s=0.002, sync_latency_s=0.005))
        calls = Calls()
        for _ in range(1000):
            journal.append("a", 1, calls, None)
        assert len(loop.timers()) == 1

    virtually(story)


@pytest.mark.parametrize(
    "name", ["group_wait_max_s", "sync_latency_s", "group_bytes_max", "page_cache_flush_interval_s"]
)
def test_negative_settings_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        JournalConfig(**{name: -1})  # type: ignore[arg-type]

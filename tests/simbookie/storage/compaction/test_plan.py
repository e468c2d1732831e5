"""Which logs are compacted, in what order and when; without files and clocks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simbookie.storage.compaction.kinds import CompactionKind
from simbookie.storage.compaction.plan import (
    CompactionConfig,
    CompactionRule,
    CompactionSchedule,
    LogUsage,
    Throttle,
    bucket_counts,
    in_order,
)
from simbookie.storage.space import SpaceState

MINOR, MAJOR = CompactionKind.MINOR, CompactionKind.MAJOR
HOUR, DAY = 3600.0, 86_400.0


def test_the_usage_of_a_log_is_the_share_of_ledgers_that_exist() -> None:
    log = LogUsage(1, {5: 300, 6: 100})
    assert (log.usage(), log.usage(800)) == (1.0, 1.0), "a log that is all alive counts as full, however small"
    log.keep(lambda ledger_id: ledger_id == 6)
    assert (log.total, log.remaining, log.usage()) == (400, 100, 0.25)
    assert (log.usage(800), log.usage(200)) == (0.125, 0.25)
    assert LogUsage(2, {}).usage() == 0


def test_logs_are_compacted_by_tens_of_percent_those_of_the_same_ten_as_they_come_and_only_below_the_threshold() -> (
    None
):
    usages = [(1, 0.18), (2, 0.95), (3, 0.12), (4, 0.05), (5, 0.8), (6, 0.799), (7, 0.0), (8, 1.0)]
    assert in_order(usages, 0.8) == [4, 7, 1, 3, 6]
    assert in_order(usages, 0.18) == [4, 7, 3]
    assert bucket_counts(usage for _, usage in usages) == [2, 2, 0, 0, 0, 0, 0, 1, 1, 2]


@given(st.lists(st.floats(0, 1), max_size=30), st.floats(0, 1))
def test_every_log_below_the_threshold_is_compacted_once(usages: list[float], threshold: float) -> None:
    order = in_order(enumerate(usages), threshold)
    assert sorted(order) == [log_id for log_id, usage in enumerate(usages) if usage < threshold]
    assert sum(bucket_counts(usages)) == len(usages)


def test_a_minor_compaction_is_due_after_an_hour_and_a_major_one_after_a_day() -> None:
    schedule = CompactionSchedule(CompactionConfig(), 1000.0)
    assert schedule.choose(1000 + HOUR) is None, "more than an hour"
    assert schedule.choose(1001 + HOUR) is MINOR
    schedule.ran(MINOR, 1001 + HOUR)
    assert schedule.choose(1002 + HOUR) is None
    assert schedule.choose(1000 + DAY) is MINOR
    assert schedule.choose(1001 + DAY) is MAJOR, "one of them, not both"
    schedule.ran(MAJOR, 1001 + DAY)
    assert schedule.choose(1001 + DAY + HOUR) is None, "a major one resets both"
    assert schedule.choose(1002 + DAY + HOUR) is MINOR


def test_a_suspended_kind_does_not_run_and_the_other_may() -> None:
    schedule = CompactionSchedule(CompactionConfig(), 0.0)
    schedule.suspended.add(MAJOR)
    assert schedule.choose(2 * DAY) is schedule.choose(1, is_forced=True) is MINOR
    schedule.suspended.add(MINOR)
    assert schedule.choose(2 * DAY) is schedule.choose(1, is_forced=True) is None


def test_a_forced_run_does_a_major_compaction_unless_there_is_none() -> None:
    assert CompactionSchedule(CompactionConfig(), 0.0).choose(1, is_forced=True) is MAJOR
    off = CompactionRule(0.8, 0)
    assert CompactionSchedule(CompactionConfig(major=off), 0.0).choose(1, is_forced=True) is MINOR
    none = CompactionConfig(major=off, minor=CompactionRule(0, HOUR))
    assert CompactionSchedule(none, 0.0).choose(2 * DAY, is_forced=True) is None
    always = CompactionConfig(major=off, minor=CompactionRule(0, HOUR), force_always=True)
    assert CompactionSchedule(always, 0.0).choose(1, is_forced=True) is MAJOR
    schedule = CompactionSchedule(always, 0.0)
    assert schedule.choose(2 * DAY) is None
    schedule.suspended.add(MAJOR)
    assert schedule.choose(1, is_forced=True) is None, "a threshold of 0 takes no log"


@pytest.mark.parametrize(
    "wrong",
    [
        {"minor": CompactionRule(1.1, HOUR)},
        {"major": CompactionRule(1.1, DAY)},
        {"minor": CompactionRule(0.8, HOUR)},
        {"minor": CompactionRule(0.2, DAY)},
        {"minor": CompactionRule(0.2, 599)},
        {"entries_per_s": 0},
        {"bytes_per_s": 0},
        {"moved_max": 0},
        {"location_interval_s": 599.0},
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="compaction"):
        CompactionConfig(**wrong)


def test_a_throttle_lets_through_so_many_a_second_and_keeps_those_of_one_second() -> None:
    throttle = Throttle(1000, 50.0)
    now = 50.0
    for _ in range(2001):
        now += throttle.take(1, now)
    assert now == pytest.approx(52.0)
    now += 10
    assert sum(throttle.take(1, now) for _ in range(1000)) == 0
    assert throttle.take(500, now) == pytest.approx(0)
    assert throttle.take(1, now) == pytest.approx(0.5), "the next one waits for the large one"


def test_a_forced_run_for_some_kinds_does_one_of_these_whatever_is_suspended_or_lacks_space() -> None:
    schedule = CompactionSchedule(CompactionConfig(), 0.0)
    schedule.suspended |= {MAJOR, MINOR}
    schedule.space = SpaceState.NONE
    assert schedule.spared == {MAJOR, MINOR}
    assert schedule.choose(0.0, is_forced=True) is None
    assert schedule.choose(0.0, is_forced=True, kinds=frozenset({MINOR})) is MINOR
    assert schedule.choose(0.0, is_forced=True, kinds=frozenset({MAJOR, MINOR})) is MAJOR
    assert schedule.choose(0.0, is_forced=True, kinds=frozenset()) is None

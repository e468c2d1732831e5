"""The judgement of a bookie's soak: it has to be able to fail, and not for noise."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from benchmarks.bookie_soak import Sample, counters_of, payload_of, problems_of, trend_of

COUNTED = {
    "deleted_ledgers": 9,
    "minor_compactions": 3,
    "major_compactions": 2,
    "reclaimed_by_deletion": 1,
    "reclaimed_by_compaction": 1,
}


def samples(
    growth_mib_per_h: float = 0.0, *, noise_mib: float = 3.0, hours: float = 1.0, first_mib: float = 60.0
) -> list[Sample]:
    """720, evenly; memory goes from ``first_mib`` to 90 within the first half, in steps as caches fill, and then as told."""
    rng, found = Random(1), []
    for number in range(720):
        seconds = number * hours * 5
        filled = min(1.0, number // 60 / 6)
        rss = first_mib + (90 - first_mib) * filled + growth_mib_per_h * seconds / 3600 + rng.uniform(0, noise_mib)
        found.append(Sample(seconds, rss, seconds / 10, 30, 100.0, number, COUNTED))
    return found


@pytest.mark.parametrize("noise_mib", [0.5, 3.0, 10.0, 60.0])
def test_memory_that_goes_up_and_down_is_flat(noise_mib: float) -> None:
    found = samples(noise_mib=noise_mib)
    trend = trend_of(found)
    assert abs(trend.slope_mib_per_h) < 3 * trend.error_mib_per_h
    assert trend.hours == pytest.approx(1 / 2, abs=0.01)
    assert problems_of(found, trend) == []


def test_the_second_half_counts_and_not_how_the_last_differs_from_the_first() -> None:
    rises = samples(first_mib=20.0)
    assert rises[-1].rss_mib - rises[0].rss_mib > 60
    assert problems_of(rises, trend_of(rises)) == [], "caches fill"
    falls = samples(8.0, first_mib=300.0)
    assert falls[-1].rss_mib - falls[0].rss_mib < -190
    assert problems_of(falls, trend_of(falls)) != [], "a leak beneath what is given back"


@pytest.mark.parametrize("growth_mib_per_h", [8.0, 50.0])
def test_memory_that_grows_is_told_with_its_slope(growth_mib_per_h: float) -> None:
    found = samples(growth_mib_per_h)
    trend = trend_of(found)
    assert trend.slope_mib_per_h == pytest.approx(growth_mib_per_h, abs=4 * trend.error_mib_per_h)
    (problem,) = problems_of(found, trend)
    assert problem.startswith("memory grew by ")


def test_a_leak_of_a_short_run_is_seen_by_what_it_comes_to() -> None:
    """Two and a half minutes, in the second half of which four MiB are lost, or one, which is within what is granted."""
    hours = 150 / 3600
    for lost_mib, is_told in ((4.0, True), (1.0, False)):
        found = samples(2 * lost_mib / hours, noise_mib=2.0, hours=hours)
        assert bool(problems_of(found, trend_of(found))) is is_told


@pytest.mark.parametrize(
    ("files_mib_per_h", "is_told"), [(0.0, False), (50.0, False), (2700.0, True)], ids=["flat", "a little", "no end"]
)
def test_files_that_grow_without_end_are_told(files_mib_per_h: float, is_told: bool) -> None:
    """What a checkpoint that fails for good comes to: 0.75 MiB a second, as measured. Garbage goes in waves of 40 MiB."""
    found = [
        replace(each, files_mib=100.0 + files_mib_per_h * each.seconds / 3600 + 40 * (number % 60) / 60)
        for number, each in enumerate(samples())
    ]
    problems = problems_of(found, trend_of(found))
    assert bool(problems) is is_told
    assert all(problem.startswith("files grew by ") for problem in problems)


def test_growth_within_the_warm_up_is_none_and_a_run_without_garbage_shows_nothing() -> None:
    found = samples()
    found[-1] = replace(found[-1], counters={**COUNTED, "minor_compactions": 0})
    assert problems_of(found, trend_of(found)) == ["minor_compactions is 0: the run shows nothing of it"]


def test_too_few_samples_are_no_trend() -> None:
    with pytest.raises(ValueError, match="needs 24 samples"):
        trend_of(samples()[:20])


def test_counters_of_all_folders_and_scopes_count() -> None:
    metrics = """\
# TYPE bookie_DELETED_LEDGER_TOTAL counter
bookie_DELETED_LEDGER_TOTAL{ledgerDir="a"} 3.0
bookie_DELETED_LEDGER_TOTAL{ledgerDir="b"} 4.0
bookie_gc_MINOR_COMPACTION_TOTAL 2.0
bookie_gc_MINOR_COMPACTION_TOTAL_more 5.0
bookie_CHECKPOINTS{success="false"} 3.0
bookie_CHECKPOINTS{success="true"} 8.0
"""
    wanted = {"deleted_ledgers": 7, "minor_compactions": 2, "failed_checkpoints": 3}
    assert counters_of(metrics) == {**dict.fromkeys(COUNTED, 0), **wanted}


def test_checkpoints_that_failed_are_told() -> None:
    found = samples()
    found[-1] = replace(found[-1], counters={**COUNTED, "failed_checkpoints": 3})
    assert problems_of(found, trend_of(found)) == ["failed_checkpoints is 3: the log of the bookie says why"]


def test_no_two_entries_have_the_same_payload() -> None:
    payloads = [payload_of(ledger_id, entry_id) for ledger_id in range(8) for entry_id in range(500)]
    assert len(set(payloads)) == len(payloads)
    assert all(16 <= len(payload) < 2016 for payload in payloads)
    assert sum(map(len, payloads)) / len(payloads) == pytest.approx(1016, rel=0.05)

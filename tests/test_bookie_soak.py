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


def samples(growth_mib_per_h: float = 0.0, *, noise_mib: float = 10.0, hours: float = 1.0) -> list[Sample]:
    """One every ten seconds; memory rises within the first tenth, and then as told."""
    rng, found = Random(1), []
    for number in range(round(hours * 360)):
        seconds = number * 10.0
        warm = min(1.0, seconds / (hours * 360))
        rss = 60 + 30 * warm + growth_mib_per_h * seconds / 3600 + rng.uniform(0, noise_mib)
        found.append(Sample(seconds, rss, seconds / 10, 30, 100.0, number, COUNTED))
    return found


def test_memory_that_goes_up_and_down_is_flat() -> None:
    trend = trend_of(samples())
    assert abs(trend.slope_mib_per_h) < 3 * trend.error_mib_per_h
    assert trend.hours == pytest.approx(5 / 6, abs=0.01)
    assert problems_of(samples(), trend) == []


@pytest.mark.parametrize("growth_mib_per_h", [8.0, 50.0])
def test_memory_that_grows_is_told_with_its_slope(growth_mib_per_h: float) -> None:
    found = samples(growth_mib_per_h)
    trend = trend_of(found)
    assert trend.slope_mib_per_h == pytest.approx(growth_mib_per_h, abs=4 * trend.error_mib_per_h)
    (problem,) = problems_of(found, trend)
    assert problem.startswith("memory grew by ")


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
"""
    assert counters_of(metrics) == {**dict.fromkeys(COUNTED, 0), "deleted_ledgers": 7, "minor_compactions": 2}


def test_no_two_entries_have_the_same_payload() -> None:
    payloads = [payload_of(ledger_id, entry_id) for ledger_id in range(8) for entry_id in range(500)]
    assert len(set(payloads)) == len(payloads)
    assert all(16 <= len(payload) < 2016 for payload in payloads)
    assert sum(map(len, payloads)) / len(payloads) == pytest.approx(1016, rel=0.05)

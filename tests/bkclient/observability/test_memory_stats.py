"""Statistics in memory: what is counted, how it is read, and what bounds it."""

from __future__ import annotations

import json
import random

import pytest

from bkclient.errors import Code
from bkclient.observability import stats
from bkclient.observability.latencies import BOUNDS_MS, Latencies
from bkclient.observability.memory_stats import OTHER_BOOKIES, MemoryStats
from bkclient.observability.stats import METRICS, BookieStats, ClientStats, MetricKind


def test_it_is_both_kinds_of_statistics() -> None:
    ours = MemoryStats()
    client_stats: ClientStats = ours
    assert isinstance(client_stats, BookieStats)


def test_operations_are_kept_by_outcome() -> None:
    ours = MemoryStats()
    ours.operation(stats.ADD, 0.002, Code.OK)
    ours.operation(stats.ADD, 0.004, Code.OK)
    ours.operation(stats.ADD, 1.0, Code.LEDGER_FENCED)
    ended = ours.operations_of(stats.ADD)
    assert (ended.succeeded.count, ended.failed.count) == (2, 1)
    assert ended.codes == {-101: 1}
    assert ended.succeeded.mean_ms == pytest.approx(3.0)
    assert ours.operations_of(stats.READ).succeeded.count == 0


def test_events_add_up_and_levels_go_both_ways() -> None:
    ours = MemoryStats()
    ours.event(stats.ENSEMBLE_CHANGES)
    ours.event(stats.ENSEMBLE_CHANGES, 4)
    ours.level(stats.PENDING_ADDS, 5)
    ours.level(stats.PENDING_ADDS, -2)
    assert (ours.total_of(stats.ENSEMBLE_CHANGES), ours.level_of(stats.PENDING_ADDS)) == (5, 3)
    assert (ours.total_of(stats.THROTTLED), ours.level_of("NOTHING")) == (0, 0)


def test_bookies_are_kept_apart_from_each_other_and_from_the_client() -> None:
    ours = MemoryStats()
    add = stats.REQUESTS["ADD_ENTRY"][0]
    ours.request("a", add, 0.001, Code.OK)
    ours.request("b", add, 0.001, Code.TIMEOUT)
    ours.bookie_event("a", stats.FAILED_CONNECTIONS)
    ours.bookie_level("b", stats.ACTIVE_CHANNELS, 1)
    assert ours.operations_of(add, "a").failed.count == 0
    assert ours.operations_of(add, "b").codes == {-23: 1}
    assert ours.operations_of(stats.ADD).succeeded.count == 0
    assert ours.total_of(stats.FAILED_CONNECTIONS, "b") == 0
    assert ours.level_of(stats.ACTIVE_CHANNELS, "b") == 1


def test_more_bookies_than_the_limit_are_counted_together() -> None:
    ours = MemoryStats(max_bookies=3)
    for number in range(100):
        ours.bookie_event(f"b{number}", stats.FAILED_CONNECTIONS)
        ours.bookie_level(f"b{number}", stats.ACTIVE_CHANNELS, 1)
    assert ours.total_of(stats.FAILED_CONNECTIONS, "b2") == 1
    assert ours.total_of(stats.FAILED_CONNECTIONS, "b3") == 0
    assert ours.total_of(stats.FAILED_CONNECTIONS, OTHER_BOOKIES) == 97
    assert len(list(ours.all_levels())) == 4


async def test_the_clock_is_the_loops_unless_another_is_given() -> None:
    assert MemoryStats(clock=lambda: 42.0).now() == 42.0
    ours = MemoryStats()
    assert ours.now() <= ours.now()


def test_a_report_is_text_for_people_and_a_dict_for_programs() -> None:
    ours = MemoryStats()
    ours.operation(stats.ADD, 0.002, Code.OK)
    ours.operation(stats.ADD, 0.002, Code.TIMEOUT)
    ours.bookie_event("a:3181", stats.FAILED_CONNECTIONS, 2)
    ours.level(stats.PENDING_ADDS, 7)
    report = json.loads(json.dumps(ours.as_dict()))
    assert report["operations"]["bookkeeper_client_ADD_ENTRY"]["codes"] == {"-23": 1}
    assert report["events"] == {"per_channel_bookie_client_FAILED_CONNECTION_COUNTER{a:3181}": 2}
    assert report["levels"] == {"bookkeeper_client_NUM_PENDING_ADD": 7}
    lines = ours.as_text().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("bookkeeper_client_ADD_ENTRY: 1 ok, 1 failed, 1 with code -23; mean 2.0 ms")


def test_a_name_that_nobody_declared_is_shown_all_the_same() -> None:
    ours = MemoryStats()
    ours.event("SOMETHING_NEW")
    assert ours.as_dict()["events"] == {"bookkeeper_client_SOMETHING_NEW": 1}


def test_every_metric_is_declared_once_under_its_full_name() -> None:
    names = [metric.full_name for metric in METRICS.values()]
    assert len(set(names)) == len(names)
    assert {metric.kind for metric in METRICS.values()} == set(MetricKind)


def test_a_quantile_is_no_less_than_the_true_one_and_within_its_bucket() -> None:
    rng = random.Random(5)
    values = [rng.lognormvariate(1.0, 2.0) for _ in range(1000)]
    latencies = Latencies()
    for milliseconds in values:
        latencies.add(milliseconds / 1000)
    values.sort()
    for quantile in (0.0, 0.5, 0.9, 0.99, 1.0):
        true = values[max(0, round(quantile * 1000) - 1)]
        assert true <= latencies.quantile_ms(quantile) * 1.000001
        assert latencies.quantile_ms(quantile) <= max(BOUNDS_MS[0], 3.0 * true) + 1e-9
    assert latencies.quantile_ms(1.0) == pytest.approx(values[-1])


def test_bounds_include_what_equals_them_and_everything_is_counted() -> None:
    latencies = Latencies()
    for milliseconds in (0.25, 0.26, 60_000.0, 60_001.0):
        latencies.add(milliseconds / 1000)
    cumulative = dict(latencies.cumulative())
    assert (cumulative["0.25"], cumulative["0.5"], cumulative["60000.0"], cumulative["+Inf"]) == (1, 2, 3, 4)
    assert Latencies().quantile_ms(0.99) == Latencies().mean_ms == 0.0

"""Statistics for Prometheus, under the names of BookKeeper's Java client.

::

    from bkclient.observability.prometheus import PrometheusStats

    async with bkclient.connect(uri, stats=PrometheusStats()) as bk:
        ...

The series are those that BookKeeper's Prometheus provider exports, so that dashboards and alerts made for it find them:
``bookkeeper_client_ADD_ENTRY_count{success="true"}``, ``bookkeeper_client_NUM_ENSEMBLE_CHANGE``,
``per_channel_bookie_client_READ_ENTRY_sum{bookie="...",success="false"}``; durations in milliseconds. Two things differ in form:

* Java's provider exports a summary with quantiles that it computes itself. Here it is a histogram: ``_count`` and ``_sum`` are
  the same, and quantiles come from ``_bucket`` by ``histogram_quantile``, also over many clients, for which Java's have no
  meaning.
* Counters have no suffix ``_total``, because Java's have none. The exposition format reserves the type *counter* for names
  with the suffix, so their type is *untyped*; rates of them work as usual.

What a client does not do has no series, as usual in this library: ``or vector(0)`` in an alert where that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

try:
    from prometheus_client.core import REGISTRY, CollectorRegistry
    from prometheus_client.core import Metric as Family
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "prometheus_client":
        raise
    raise ModuleNotFoundError(
        "bkclient.observability.prometheus needs prometheus_client: install bkclient[prometheus]", name=error.name
    ) from error

from bkclient.observability.latencies import Latencies
from bkclient.observability.memory_stats import MemoryStats
from bkclient.observability.stats import METRICS, Metric, MetricKind

__all__ = ["FAILED_OPERATIONS", "FAILED_REQUESTS", "PrometheusStats"]

#: How many operations failed with each code; BookKeeper's own metrics tell success from failure only.
FAILED_OPERATIONS: Final = "bookkeeper_client_FAILED_OPERATIONS"
FAILED_REQUESTS: Final = "per_channel_bookie_client_FAILED_REQUESTS"

_TYPES: Final = {
    MetricKind.OPERATION: "histogram",
    MetricKind.EVENT: "unknown",
    MetricKind.AMOUNT: "summary",
    MetricKind.LEVEL: "gauge",
}
_UNITS: Final = {MetricKind.OPERATION: ", in milliseconds"}


class PrometheusStats(MemoryStats):
    """A :class:`~bkclient.observability.stats.ClientStats` that a Prometheus registry collects.

    One object serves all clients of a process, whose numbers add up as they do in Java. It registers itself with
    ``registry``, the library's default one unless another, or None, is given; a second object in the same registry is refused
    with :class:`ValueError`. A scrape may come from any thread and does not hold up the event loop.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = REGISTRY,
        *,
        clock: Callable[[], float] | None = None,
        max_bookies: int = 1000,
    ) -> None:
        super().__init__(clock=clock, max_bookies=max_bookies)
        if registry is not None:
            registry.register(self)

    def describe(self) -> Iterator[Family]:
        """All families there may be, without samples, so that a registry can tell whether it has them already."""
        for metric in METRICS.values():
            yield _family(metric)
        yield from _failure_families()

    def collect(self) -> Iterator[Family]:
        """Everything there is now; called by the registry."""
        families: dict[str, Family] = {}
        operations, requests = _failure_families()
        for metric, bookie_id, ended in self.all_operations():
            family = families.setdefault(metric.full_name, _family(metric))
            labels = {} if bookie_id is None else {"bookie": bookie_id}
            for success, latencies in (("false", ended.failed), ("true", ended.succeeded)):
                _add_histogram(family, {**labels, "success": success}, latencies)
            failures = operations if bookie_id is None else requests
            for code, count in sorted(ended.codes.items()):
                failures.add_sample(failures.name, {**labels, "operation": metric.name, "code": str(code)}, count)
        for metric, bookie_id, times, total in self.all_events():
            family = families.setdefault(metric.full_name, _family(metric))
            labels = {} if bookie_id is None else {"bookie": bookie_id}
            if metric.kind is MetricKind.AMOUNT:
                family.add_sample(f"{family.name}_count", {**labels, "success": "true"}, times)
                family.add_sample(f"{family.name}_sum", {**labels, "success": "true"}, total)
            else:
                family.add_sample(family.name, labels, total)
        for metric, bookie_id, level in self.all_levels():
            family = families.setdefault(metric.full_name, _family(metric))
            family.add_sample(family.name, {} if bookie_id is None else {"bookie": bookie_id}, level)
        yield from families.values()
        yield from (family for family in (operations, requests) if family.samples)


def _family(metric: Metric) -> Family:
    return Family(metric.full_name, metric.meaning + _UNITS.get(metric.kind, ""), _TYPES[metric.kind])


def _failure_families() -> tuple[Family, Family]:
    return (
        Family(FAILED_OPERATIONS, "operations that failed, by code", "unknown"),
        Family(FAILED_REQUESTS, "requests that failed, by code", "unknown"),
    )


def _add_histogram(family: Family, labels: dict[str, str], latencies: Latencies) -> None:
    # The buckets first: what is added between the two readings then shows as a count beyond all buckets, never as less.
    buckets = tuple(latencies.cumulative())
    for bound, count in buckets:
        family.add_sample(f"{family.name}_bucket", {**labels, "le": bound}, count)
    family.add_sample(f"{family.name}_count", labels, buckets[-1][1])
    family.add_sample(f"{family.name}_sum", labels, latencies.sum_ms)

"""A bookie's metrics in Prometheus' text format.

Latencies are histograms in milliseconds and counters have no suffix, as those of the client
(:mod:`bkclient.observability.prometheus`), for the same reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import Metric as Family
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "prometheus_client":
        raise
    raise ModuleNotFoundError(
        "simbookie.admin.metrics needs prometheus_client: install bkclient[admin]", name=error.name
    ) from error

from bkclient.observability.latencies import Latencies
from bkclient.observability.stats import Metric, MetricKind
from simbookie.admin.catalogue import BOOKIE_METRICS
from simbookie.admin.levels import bookie_readings, folder_labels, garbage_labels, garbage_scope
from simbookie.bookie import Bookie, BookieState
from simbookie.garbage import GarbageCollector
from simbookie.measured import MeasuredBookie
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.journaled import JournaledStorage

__all__ = ["CONTENT_TYPE", "BookieMetrics"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_TYPES: Final = {
    MetricKind.OPERATION: "histogram",
    MetricKind.EVENT: "unknown",
    MetricKind.AMOUNT: "summary",
    MetricKind.LEVEL: "gauge",
}


class BookieMetrics:
    """The metrics of ``bookie``, and of the collector of its garbage; latencies only of one that measures."""

    def __init__(self, bookie: Bookie, collector: GarbageCollector | None = None) -> None:
        self._bookie = bookie
        self._collector = collector
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def exposition(self) -> bytes:
        """Everything there is now, as text."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Family]:
        """Nothing: the registry is this object's own, so no name can be taken twice."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Everything there is now; called by the registry."""
        families: dict[str, Family] = {}

        def family_of(name: str) -> Family:
            return families.setdefault(name, _family(BOOKIE_METRICS[name]))

        for reading in bookie_readings(self._bookie, self._collector):
            family_of(reading.name).add_sample(reading.name, reading.labels, reading.value)
        if isinstance(self._bookie, MeasuredBookie):
            for name, outcomes in self._bookie.outcomes.items():
                family = family_of(f"bookkeeper_server_{name}")
                _add_histogram(family, {"success": "false"}, outcomes.failed)
                _add_histogram(family, {"success": "true"}, outcomes.succeeded)
            for index, times in enumerate(self._bookie.journal_times):
                labels = {"journalIndex": str(index), "success": "true"}
                _add_histogram(family_of("bookie_journal_JOURNAL_ADD_ENTRY"), labels, times.adds)
                _add_histogram(family_of("bookie_journal_JOURNAL_SYNC"), labels, times.syncs)
                _add_amount(
                    family_of("bookie_journal_JOURNAL_FORCE_WRITE_BATCH_ENTRIES"), labels, times.groups, times.records
                )
        storage = self._bookie.storage
        if isinstance(storage, JournaledStorage) and self._bookie.state is BookieState.RUNNING:
            self._collect_journals(storage, family_of)
            if isinstance(storage.store, DbLedgerStore):
                self._collect_caches(storage, storage.store, family_of)
            self._collect_garbage(storage, family_of)
        yield from families.values()

    def _collect_journals(self, storage: JournaledStorage, family_of: Callable[[str], Family]) -> None:
        for index, journal in enumerate(storage.journals):
            stats, labels = journal.stats, {"journalIndex": str(index), "success": "true"}
            flushes = sum(stats.flushes.values())
            batches = family_of("bookie_journal_JOURNAL_FORCE_WRITE_BATCH_BYTES")
            _add_amount(batches, labels, flushes, stats.bytes_written)
            grouping = family_of("bookie_journal_JOURNAL_FORCE_WRITE_GROUPING_TOTAL")
            _add_amount(grouping, labels, stats.groups, stats.records)

    def _collect_caches(
        self, storage: JournaledStorage, store: DbLedgerStore, family_of: Callable[[str], Family]
    ) -> None:
        for folder, shard in zip(storage.ledger_folders, store.shards, strict=True):
            labels, counts, ahead = {**folder_labels(folder), "success": "true"}, shard.counts, shard.read_ahead
            _add_histogram(family_of("bookie_flush"), labels, counts.flush_times)
            _add_amount(family_of("bookie_flush_size"), labels, counts.flush_times.count, counts.flushed_bytes)
            _add_amount(family_of("bookie_readahead_batch_count"), labels, ahead.batches, ahead.entries)
            _add_amount(family_of("bookie_readahead_batch_size"), labels, ahead.batches, ahead.bytes)

    def _collect_garbage(self, storage: JournaledStorage, family_of: Callable[[str], Family]) -> None:
        scope, success = garbage_scope(self._bookie), {"success": "true"}
        if self._collector is not None:
            _add_histogram(family_of(f"{scope}_THREAD_RUNTIME"), success, self._collector.run_times)
            _add_histogram(family_of(f"{scope}_GC_LEDGER_RUNTIME"), success, self._collector.ledger_times)
        for number, each in enumerate(storage.garbage.collectors if storage.garbage is not None else ()):
            labels = {**garbage_labels(storage, number), **success}
            _add_histogram(family_of(f"{scope}_EXTRACT_META_RUNTIME"), labels, each.stats.extract_times)
            _add_histogram(family_of(f"{scope}_COMPACT_RUNTIME"), labels, each.stats.compact_times)


def _family(metric: Metric) -> Family:
    return Family(metric.full_name, metric.meaning, _TYPES[metric.kind])


def _add_amount(family: Family, labels: dict[str, str], count: int, total: float) -> None:
    family.add_sample(f"{family.name}_count", labels, count)
    family.add_sample(f"{family.name}_sum", labels, total)


def _add_histogram(family: Family, labels: dict[str, str], latencies: Latencies) -> None:
    for bound, count in latencies.cumulative():
        family.add_sample(f"{family.name}_bucket", {**labels, "le": bound}, count)
    family.add_sample(f"{family.name}_count", labels, latencies.count)
    family.add_sample(f"{family.name}_sum", labels, latencies.sum_ms)

"""What a bookie's counters and queues say at this moment, by the names of :mod:`simbookie.admin.catalogue`.

Everything is read from where the bookie keeps it, when somebody looks: nothing is counted for the sake of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from bkclient.wire.messages import Status
from simbookie.bookie import Bookie, BookieState
from simbookie.garbage import GarbageCollector
from simbookie.measured import ADD, FENCING_READ, FORCE, LONG_POLL, READ, MeasuredBookie
from simbookie.storage.db.shard import DbShard
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.folders import Folder
from simbookie.storage.interleaved import InterleavedLedgerStore
from simbookie.storage.journal.watching import FlushCause
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.sorted import SortedLedgerStore

__all__ = ["Reading", "bookie_readings", "folder_labels", "garbage_labels", "garbage_scope"]


@dataclass(frozen=True, slots=True)
class Reading:
    """One number. ``name`` is a full name of the catalogue; ``labels`` tell which of several."""

    name: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)


def bookie_readings(bookie: Bookie, collector: GarbageCollector | None = None) -> Iterator[Reading]:
    """The levels and counters of a bookie; few while it does not run."""
    is_running = bookie.state is BookieState.RUNNING
    yield Reading("bookie_SERVER_STATUS", (0 if bookie.read_only else 1) if is_running else -1)
    yield Reading("bookkeeper_server_ADD_ENTRY_IN_PROGRESS", bookie.pending_adds)
    yield Reading("bookkeeper_server_ADD_ENTRY_BLOCKED", bookie.add_room.waiters)
    yield Reading("bookkeeper_server_READ_ENTRY_IN_PROGRESS", bookie.pending_reads)
    yield Reading("bookkeeper_server_LONG_POLLS_WAITING", bookie.waiting_polls)
    if isinstance(bookie, MeasuredBookie):
        yield from _requests(bookie)
    yield Reading("bookie_rejected_write_requests", bookie.waiting_adds.refusals)
    if collector is not None:
        yield Reading(f"{garbage_scope(bookie)}_DELETED_LEDGER_TOTAL", collector.ledgers_removed)
    if not is_running:
        return
    capacity = bookie.storage.capacity()
    yield Reading("bookie_disk_total_bytes", capacity.total)
    yield Reading("bookie_disk_free_bytes", capacity.free)
    yield Reading("bookie_ledgers_count", len(bookie.storage.ledger_ids()))
    if isinstance(bookie.storage, JournaledStorage):
        yield from _journals(bookie.storage)
        yield from _store(bookie.storage)
        yield from _garbage(bookie.storage, garbage_scope(bookie))


def _requests(bookie: MeasuredBookie) -> Iterator[Reading]:
    yield Reading("bookie_WRITE_BYTES", bookie.bytes_written)
    yield Reading("bookie_READ_BYTES", bookie.bytes_read)
    yield Reading("bookkeeper_server_READ_LAST_ENTRY_NOENTRY_ERROR", bookie.last_entries_denied)
    forces = bookie.outcomes[FORCE]
    yield Reading("bookie_BOOKIE_FORCE_LEDGER", forces.succeeded.count + forces.failed.count)
    for name, outcomes in bookie.outcomes.items():
        for status, count in sorted(outcomes.statuses.items()):
            labels = {"operation": name, "code": status.name}
            yield Reading("bookkeeper_server_FAILED_REQUESTS", count, labels)
    for rejected, names in (("ADD_ENTRY", (ADD,)), ("READ_ENTRY", (READ, FENCING_READ, LONG_POLL))):
        counts = [bookie.outcomes[name].statuses.get(Status.TOO_MANY_REQUESTS, 0) for name in names]
        yield Reading(f"bookkeeper_server_{rejected}_REJECTED", sum(counts))


def _journals(storage: JournaledStorage) -> Iterator[Reading]:
    yield Reading("bookie_JOURNAL_DIRS", len(storage.journal_folders))
    yield Reading("bookie_JOURNAL_QUEUE_MAX_SIZE", storage.config.journal.queue_size)
    for index, journal in enumerate(storage.journals):
        stats = journal.stats
        values: dict[str, float] = {
            "QUEUE_SIZE": journal.queued,
            "QUEUE_LINE": journal.in_line,
            "FORCE_WRITE_QUEUE_SIZE": journal.flushes_waiting,
            "MEMORY_MAX": journal.memory_bytes_max,
            "MEMORY_USED": journal.memory_used,
            "WRITE_BYTES": stats.bytes_written,
            "SYNCS": stats.syncs,
            **{f"NUM_FLUSH_{cause.name}": stats.flushes[cause] for cause in FlushCause},
        }
        for name, value in values.items():
            yield Reading(f"bookie_journal_JOURNAL_{name}", value, {"journalIndex": str(index)})
    if storage.checkpoints is not None:
        yield Reading("bookie_CHECKPOINTS", storage.checkpoints.done, {"success": "true"})
        yield Reading("bookie_CHECKPOINTS", storage.checkpoints.failed, {"success": "false"})


def _store(storage: JournaledStorage) -> Iterator[Reading]:
    store, space = storage.store, storage.config.space
    shares = [1 - each.free / each.total for each in (folder.disk.capacity() for folder in storage.ledger_folders)]
    yield Reading("bookie_ledger_num_dirs", len(shares))
    yield Reading("bookie_ledger_writable_dirs", sum(share <= space.full_above for share in shares))
    for folder, share in zip(storage.ledger_folders, shares, strict=True):
        yield Reading("bookie_ledger_dir_usage", share, folder_labels(folder))
    if isinstance(store, SortedLedgerStore):
        yield Reading("bookie_write_cache_size", store.taken_bytes)
        yield Reading("bookie_write_cache_max_size", store.config.memtable_bytes)
        yield Reading("bookie_SKIP_LIST_THROTTLING", store.refusals)
        yield Reading("bookie_SKIP_LIST_FLUSH_BYTES", store.written_bytes)
    if isinstance(store, DbLedgerStore):
        for folder, shard in zip(storage.ledger_folders, store.shards, strict=True):
            yield from _caches(shard, folder_labels(folder))
    elif isinstance(store, SortedLedgerStore | InterleavedLedgerStore):
        cache = store.collected[0].cache
        yield Reading("bookie_LEDGER_CACHE_HIT", cache.hits)
        yield Reading("bookie_LEDGER_CACHE_MISS", cache.misses)
        yield Reading("bookie_NUM_INDEX_PAGES", len(cache.pages))


def folder_labels(folder: Folder) -> dict[str, str]:
    """Which folder a metric is of."""
    return {"ledgerDir": folder.path}


def _caches(shard: DbShard, labels: dict[str, str]) -> Iterator[Reading]:
    counts, read_cache = shard.counts, shard.read_cache
    misses, hits = counts.write_cache_reads
    values = {
        "write_cache_size": sum(cache.size for cache in shard.write_caches),
        "write_cache_count": sum(cache.count for cache in shard.write_caches),
        "write_cache_max_size": shard.config.write_cache_bytes,
        "write_cache_hits": hits,
        "write_cache_misses": misses,
        "read_cache_size": read_cache.size,
        "read_cache_count": read_cache.count,
        "read_cache_hits": read_cache.hits,
        "read_cache_misses": read_cache.misses,
        "readahead_max_batch_size": shard.read_ahead.entries_max,
        "throttled_write_requests": counts.refusals,
        "flushes": counts.flush_times.count,
    }
    for name, value in values.items():
        yield Reading(f"bookie_{name}", value, labels)


def garbage_scope(bookie: Bookie) -> str:
    """Where BookKeeper files what its collectors count: one for each folder of a store with a database, one alone of others."""
    storage = bookie.storage
    has_database = isinstance(storage, JournaledStorage) and isinstance(storage.store, DbLedgerStore)
    return "bookie" if has_database else "bookie_gc"


def garbage_labels(storage: JournaledStorage, number: int) -> dict[str, str]:
    """Which folder the collector of a part is of, where there are several parts."""
    return folder_labels(storage.ledger_folders[number]) if isinstance(storage.store, DbLedgerStore) else {}


def _garbage(storage: JournaledStorage, scope: str) -> Iterator[Reading]:
    if storage.garbage is None:
        return
    for number, collector in enumerate(storage.garbage.collectors):
        labels = garbage_labels(storage, number)
        stats = collector.stats
        values: dict[str, float] = {
            "MINOR_COMPACTION_TOTAL": stats.minor_compactions,
            "MAJOR_COMPACTION_TOTAL": stats.major_compactions,
            "RECLAIMED_DELETION_SPACE_BYTES": stats.bytes_of_deleted,
            "RECLAIMED_COMPACTION_SPACE_BYTES": stats.bytes_of_compacted,
            "RECLAIM_FAILED_TO_DELETE": stats.logs_not_removed,
            "ACTIVE_ENTRY_LOG_TOTAL": collector.logs,
            "ACTIVE_ENTRY_LOG_SPACE_BYTES": collector.bytes_alive,
            "ENTRY_LOG_SPACE_BYTES": collector.bytes_in_logs,
            "ENTRY_LOG_COMPACT_RATIO": stats.compacted_share,
            "ACTIVE_LEDGER_TOTAL": collector.ledgers,
        }
        values.update(
            (f"entry_log_usage_buckets_le_{(place + 1) * 10}", count) for place, count in enumerate(collector.usages())
        )
        for name, value in values.items():
            yield Reading(f"{scope}_{name}", value, labels)

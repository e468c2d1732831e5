"""What a bookie can be watched by: every metric, under BookKeeper's name where it has one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bkclient.observability.stats import Metric, MetricKind
from simbookie.measured import REQUEST_NAMES

__all__ = ["BOOKIE_METRICS"]

_SERVER: Final = "bookkeeper_server"
_BOOKIE: Final = "bookie"
_JOURNAL: Final = "bookie_journal"
_REQUESTS: Final = {
    "ADD_ENTRY_REQUEST": "adding an entry, from the request to its answer",
    "READ_ENTRY_REQUEST": "reading one entry or several",
    "READ_ENTRY_FENCE_REQUEST": "reading an entry and fencing its ledger",
    "READ_ENTRY_LONG_POLL_REQUEST": "waiting for an entry",
    "WRITE_LAC_REQUEST": "keeping an explicit last add confirmed",
    "READ_LAC_REQUEST": "reading the last add confirmed",
    "FORCE_LEDGER_REQUEST": "making what was added durable",
    "GET_BOOKIE_INFO_REQUEST": "asking for disk space",
    "GET_LIST_OF_ENTRIES_OF_LEDGER_REQUEST": "asking which entries are stored",
}

OPERATION, EVENT, LEVEL, AMOUNT = MetricKind.OPERATION, MetricKind.EVENT, MetricKind.LEVEL, MetricKind.AMOUNT


def _garbage(scope: str, store: str = "") -> Iterator[Metric]:
    """What a store without a database reports in a scope of its own, and one with a database does not."""
    for name, kind, meaning in (
        ("DELETED_LEDGER_TOTAL", EVENT, "ledgers removed because they were deleted"),
        ("MINOR_COMPACTION_TOTAL", EVENT, "minor compactions"),
        ("MAJOR_COMPACTION_TOTAL", EVENT, "major compactions"),
        ("RECLAIMED_DELETION_SPACE_BYTES", EVENT, "bytes given back with logs that nobody needed"),
        ("RECLAIMED_COMPACTION_SPACE_BYTES", EVENT, "bytes given back by compaction"),
        ("RECLAIM_FAILED_TO_DELETE", EVENT, "logs that could not be removed"),
        ("THREAD_RUNTIME", OPERATION, "a run of the garbage collector"),
        ("GC_LEDGER_RUNTIME", OPERATION, "the part of it that looks for deleted ledgers"),
        ("EXTRACT_META_RUNTIME", OPERATION, "the part that learns which ledgers are in new logs"),
        ("COMPACT_RUNTIME", OPERATION, "the part that compacts"),
        ("ENTRY_LOG_COMPACT_RATIO", LEVEL, "of the logs that the last compaction looked at, the share compacted"),
        ("ACTIVE_LEDGER_TOTAL", LEVEL, "ledgers that are in entry logs"),
        ("ACTIVE_ENTRY_LOG_TOTAL", LEVEL, "entry logs with living ledgers"),
        ("ACTIVE_ENTRY_LOG_SPACE_BYTES", LEVEL, "bytes of living ledgers in them"),
        ("ENTRY_LOG_SPACE_BYTES", LEVEL, "bytes of entries in them"),
    ):
        yield Metric(name, kind, meaning + store, scope)
    for share in range(10, 101, 10):
        yield Metric(
            f"entry_log_usage_buckets_le_{share}", LEVEL, f"logs of which at most {share} % live{store}", scope
        )


_ALL: Final = (
    *(Metric(name, OPERATION, _REQUESTS[name], _SERVER) for name in REQUEST_NAMES),
    Metric("ADD_ENTRY_REJECTED", EVENT, "adds refused because too many wait", _SERVER),
    Metric("READ_ENTRY_REJECTED", EVENT, "reads refused because too many wait", _SERVER),
    Metric(
        "FAILED_REQUESTS",
        EVENT,
        "requests answered with another status than OK, by `operation` and `code`",
        _SERVER,
        is_bookkeepers=False,
    ),
    Metric("READ_LAST_ENTRY_NOENTRY_ERROR", EVENT, "reads of a last entry where there was none", _SERVER),
    Metric("ADD_ENTRY_IN_PROGRESS", LEVEL, "adds not answered yet", _SERVER),
    Metric("ADD_ENTRY_BLOCKED", LEVEL, "connections left unread because too many adds wait", _SERVER),
    Metric("READ_ENTRY_IN_PROGRESS", LEVEL, "reads not answered yet", _SERVER),
    Metric("LONG_POLLS_WAITING", LEVEL, "long polls not answered yet", _SERVER, is_bookkeepers=False),
    Metric("SERVER_STATUS", LEVEL, "1 for writable, 0 for read-only, -1 for not registered", _BOOKIE),
    Metric("WRITE_BYTES", EVENT, "bytes of entries stored", _BOOKIE),
    Metric("READ_BYTES", EVENT, "bytes of entries read", _BOOKIE),
    Metric("BOOKIE_FORCE_LEDGER", EVENT, "requests to make durable what was added", _BOOKIE),
    Metric("disk_total_bytes", LEVEL, "disk space", _BOOKIE, is_bookkeepers=False),
    Metric("disk_free_bytes", LEVEL, "disk space that is left", _BOOKIE, is_bookkeepers=False),
    Metric("ledger_num_dirs", LEVEL, "folders of entry logs", _BOOKIE),
    Metric("ledger_writable_dirs", LEVEL, "those of them with space for ordinary writes", _BOOKIE),
    Metric("ledger_dir_usage", LEVEL, "share of the disk of each folder that is in use", _BOOKIE, is_bookkeepers=False),
    Metric("ledgers_count", LEVEL, "ledgers of which something is stored", _BOOKIE),
    Metric("JOURNAL_DIRS", LEVEL, "journals", _BOOKIE),
    Metric("JOURNAL_QUEUE_MAX_SIZE", LEVEL, "records that may be queued in a journal", _BOOKIE),
    Metric("JOURNAL_ADD_ENTRY", OPERATION, "an entry, from the journal's queue to its acknowledgement", _JOURNAL),
    Metric("JOURNAL_SYNC", OPERATION, "a sync of a journal file", _JOURNAL),
    Metric("JOURNAL_FORCE_WRITE_BATCH_ENTRIES", AMOUNT, "records in a group", _JOURNAL),
    Metric("JOURNAL_FORCE_WRITE_BATCH_BYTES", AMOUNT, "bytes of the records in a group", _JOURNAL),
    Metric("JOURNAL_FORCE_WRITE_GROUPING_TOTAL", AMOUNT, "records acknowledged by one sync", _JOURNAL),
    Metric("JOURNAL_QUEUE_SIZE", LEVEL, "records that wait to be written", _JOURNAL),
    Metric("JOURNAL_QUEUE_LINE", LEVEL, "records that wait for room in the queue", _JOURNAL, is_bookkeepers=False),
    Metric("JOURNAL_FORCE_WRITE_QUEUE_SIZE", LEVEL, "groups that wait for a sync", _JOURNAL),
    Metric("JOURNAL_MEMORY_MAX", LEVEL, "bytes that may wait to be written; 0 for any number", _JOURNAL),
    Metric("JOURNAL_MEMORY_USED", LEVEL, "bytes that wait to be written", _JOURNAL),
    Metric("JOURNAL_WRITE_BYTES", EVENT, "bytes of records written", _JOURNAL),
    Metric("JOURNAL_NUM_FLUSH_MAX_WAIT", EVENT, "groups written because a record had waited long enough", _JOURNAL),
    Metric("JOURNAL_NUM_FLUSH_MAX_OUTSTANDING_BYTES", EVENT, "groups written because they were large", _JOURNAL),
    Metric("JOURNAL_NUM_FLUSH_EMPTY_QUEUE", EVENT, "groups written because nothing more was queued", _JOURNAL),
    Metric("JOURNAL_SYNCS", EVENT, "syncs of journal files", _JOURNAL, is_bookkeepers=False),
    Metric("CHECKPOINTS", EVENT, "checkpoints, with a label `success`", _BOOKIE, is_bookkeepers=False),
    Metric("write_cache_size", LEVEL, "bytes in memory that wait for a flush", _BOOKIE),
    Metric("write_cache_max_size", LEVEL, "bytes that may wait for a flush", _BOOKIE),
    Metric("write_cache_count", LEVEL, "entries in memory that wait for a flush", _BOOKIE),
    Metric("write_cache_hits", EVENT, "reads that the write cache had an answer to", _BOOKIE),
    Metric("write_cache_misses", EVENT, "reads that it had none to", _BOOKIE),
    Metric("read_cache_size", LEVEL, "bytes of entries that were read, or read ahead", _BOOKIE),
    Metric("read_cache_count", LEVEL, "such entries", _BOOKIE),
    Metric("read_cache_hits", EVENT, "reads that the read cache had an answer to", _BOOKIE),
    Metric("read_cache_misses", EVENT, "reads that went to an entry log, or found nothing", _BOOKIE),
    Metric("readahead_max_batch_size", LEVEL, "entries that are read ahead, at most", _BOOKIE),
    Metric("readahead_batch_count", AMOUNT, "entries read ahead at a time", _BOOKIE),
    Metric("readahead_batch_size", AMOUNT, "bytes of them", _BOOKIE),
    Metric("throttled_write_requests", EVENT, "adds that found the write cache full", _BOOKIE),
    Metric("rejected_write_requests", EVENT, "adds refused because it stayed full", _BOOKIE),
    Metric("flushes", EVENT, "flushes of the write cache", _BOOKIE, is_bookkeepers=False),
    Metric("flush", OPERATION, "a flush of the write cache", _BOOKIE),
    Metric("flush_size", AMOUNT, "bytes in the write cache when a flush began", _BOOKIE),
    Metric("SKIP_LIST_THROTTLING", EVENT, "adds that found both memtables full", _BOOKIE),
    Metric("SKIP_LIST_FLUSH_BYTES", EVENT, "bytes written from memtables", _BOOKIE),
    Metric("LEDGER_CACHE_HIT", EVENT, "index pages that were in memory", _BOOKIE),
    Metric("LEDGER_CACHE_MISS", EVENT, "index pages that had to be read, or made", _BOOKIE),
    Metric("NUM_INDEX_PAGES", LEVEL, "index pages in memory", _BOOKIE),
    *_garbage("bookie_gc"),
    *_garbage("bookie", ", with a database"),
)

#: By full name.
BOOKIE_METRICS: Final[dict[str, Metric]] = {metric.full_name: metric for metric in _ALL}

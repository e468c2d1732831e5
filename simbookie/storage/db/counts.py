"""What a part of a store with a database counts. In brackets: BookKeeper's names."""

from __future__ import annotations

from bkclient.observability.latencies import Latencies

__all__ = ["ShardCounts"]


class ShardCounts:
    """Since the part was made."""

    __slots__ = ("flush_times", "flushed_bytes", "refusals", "write_cache_reads")

    def __init__(self) -> None:
        #: Entries that did not fit into the write cache [throttled_write_requests].
        self.refusals = 0
        #: Reads that a write cache had no answer to, and those that it had [write_cache_misses, write_cache_hits].
        self.write_cache_reads = [0, 0]
        #: Flushes that went well [flush], and the bytes that they were begun with [flush_size].
        self.flush_times = Latencies()
        self.flushed_bytes = 0

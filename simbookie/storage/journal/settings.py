"""How a journal is written: every setting of BookKeeper's that has an effect, with BookKeeper's defaults.

Fields are in bytes and seconds. :data:`JOURNAL_KEYS` names BookKeeper's key for each, whose unit may be another one;
:meth:`JournalSettings.from_conf` reads a bookie's configuration file's worth of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from simbookie.storage.conf_keys import values_of
from simbookie.storage.journal.records import NEWEST_VERSION

__all__ = ["EXPLICIT_LAC_SINCE", "JOURNAL_KEYS", "JournalSettings"]

_MIB: Final = 1 << 20
#: The first format version with records of explicit LACs.
EXPLICIT_LAC_SINCE: Final = 6

#: Field of :class:`JournalSettings` -> key in BookKeeper's configuration, and what one unit of the key is in the field's.
JOURNAL_KEYS: Final[Mapping[str, tuple[str, float]]] = {
    "file_bytes_max": ("journalMaxSizeMB", _MIB),
    "backups_max": ("journalMaxBackups", 1),
    "preallocation_bytes": ("journalPreAllocSizeMB", _MIB),
    "write_buffer_bytes": ("journalWriteBufferSizeKB", 1_024),
    "alignment_bytes": ("journalAlignmentSize", 1),
    "format_version": ("journalFormatVersionToWrite", 1),
    "sync_data": ("journalSyncData", 1),
    "write_data": ("journalWriteData", 1),
    "group_wait_max_s": ("journalMaxGroupWaitMSec", 0.001),
    "buffered_bytes_max": ("journalBufferedWritesThreshold", 1),
    "buffered_entries_max": ("journalBufferedEntriesThreshold", 1),
    "flush_when_queue_empty": ("journalFlushWhenQueueEmpty", 1),
    "queue_size": ("journalQueueSize", 1),
    "memory_bytes_max": ("journalMaxMemorySizeMb", _MIB),
    "page_cache_flush_interval_s": ("journalPageCacheFlushIntervalMSec", 0.001),
    "skip_invalid_records": ("skipReplayJournalInvalidRecord", 1),
}


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """How journals are grouped, written, synced, rolled and kept; :class:`ValueError` for what makes no sense."""

    #: A file is closed after the flush that takes it above this.
    file_bytes_max: int = 2_048 * _MIB
    #: Files that are kept although the last mark is past them.
    backups_max: int = 5
    #: A file grows ahead of what is written in steps of this size.
    preallocation_bytes: int = 16 * _MIB
    #: What is buffered in the process before it is written to the file.
    write_buffer_bytes: int = 65_536
    #: From format version 5 on, flushes end at a multiple of this.
    alignment_bytes: int = 512
    #: 4, 5 or 6. Below 6 there are no records of explicit LACs.
    format_version: int = NEWEST_VERSION
    #: Whether acknowledgements wait for a sync.
    sync_data: bool = True
    #: Whether entries are journalled. Keys, fences and explicit LACs always are.
    write_data: bool = True
    #: How long a record waits for company; 0: as long as there is some.
    group_wait_max_s: float = 0.002
    #: A group with more bytes than this is flushed when a further record comes.
    buffered_bytes_max: int = 524_288
    #: The same for records; 0: no limit.
    buffered_entries_max: int = 0
    #: Whether a group is flushed as soon as nothing waits.
    flush_when_queue_empty: bool = False
    #: Records that may wait to be written, and flushes that may wait to be synced.
    queue_size: int = 10_000
    #: Bytes of records that may wait to be written, for all journals together; 0: no limit. BookKeeper takes 5 percent of the
    #: memory that its JVM has outside the heap; this is that of 1 GiB.
    memory_bytes_max: int = 51 * _MIB
    #: Without ``sync_data``, how much time is between syncs at least.
    page_cache_flush_interval_s: float = 1.0
    #: Whether a replay gives up a file at a damaged record and goes on with the next; otherwise the bookie does not start.
    skip_invalid_records: bool = False

    def __post_init__(self) -> None:
        least = {
            "file_bytes_max": 0,
            "backups_max": 0,
            "preallocation_bytes": 1,
            "write_buffer_bytes": 1,
            "queue_size": 1,
        }
        least |= dict.fromkeys(("buffered_bytes_max", "buffered_entries_max", "memory_bytes_max"), 0)
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(f"journal: {name} must be >= {bound}, got {getattr(self, name)}")
        for name in ("group_wait_max_s", "page_cache_flush_interval_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"journal: {name} must be >= 0, got {getattr(self, name)}")
        if self.alignment_bytes < 512 or self.alignment_bytes % 512:
            raise ValueError(f"journal: alignment_bytes must be a multiple of 512, got {self.alignment_bytes}")
        if self.alignment_bytes > self.preallocation_bytes:
            raise ValueError(
                f"journal: alignment_bytes must not exceed preallocation_bytes, got {self.alignment_bytes}"
            )
        if not 4 <= self.format_version <= NEWEST_VERSION:
            raise ValueError(f"journal: format_version must be 4 to {NEWEST_VERSION}, got {self.format_version}")

    @property
    def flushes_when_queue_empty(self) -> bool:
        """Whether it does, which it always does if records do not wait for company."""
        return self.flush_when_queue_empty or self.group_wait_max_s <= 0

    def memory_share(self, journals: int) -> int:
        """Bytes that records of each of so many journals may have, in whole MiB; 0: no limit."""
        return self.memory_bytes_max // _MIB // journals * _MIB

    @classmethod
    def from_conf(cls, conf: Mapping[str, str]) -> JournalSettings:
        """The settings that ``conf`` names by BookKeeper's keys, other keys left alone; :class:`ValueError` if it cannot be."""
        kinds = {field.name: type(field.default) for field in fields(cls)}
        values = values_of("journal", JOURNAL_KEYS, conf, kinds)
        return cls(**values)  # type: ignore[arg-type]  # each of the type of its default

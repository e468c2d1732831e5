"""What can be known of a journal from outside: counters, and who hears of its syncs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from simbookie.storage.journal.queue import QueuedRecord

__all__ = ["FlushCause", "JournalStats", "JournalWatcher"]


class FlushCause(Enum):
    """Why a group was flushed. BookKeeper's counters are ``JOURNAL_NUM_FLUSH_`` and the name."""

    MAX_WAIT = auto()
    #: Too many bytes or too many records.
    MAX_OUTSTANDING_BYTES = auto()
    EMPTY_QUEUE = auto()


@dataclass(slots=True)
class JournalStats:
    """What a journal has done since it was started. In brackets: BookKeeper's names."""

    flushes: dict[FlushCause, int]
    #: Bodies of records [JOURNAL_WRITE_BYTES].
    bytes_written: int = 0
    syncs: int = 0
    #: Records acknowledged by the last sync [JOURNAL_FORCE_WRITE_GROUPING_TOTAL].
    last_group: int = 0
    #: How often everything that waited for a sync was taken to one.
    groups: int = 0
    #: Records that were acknowledged after a sync.
    records: int = 0
    files: int = 0


class JournalWatcher(Protocol):
    """Is told of what a journal does, group by group; must not raise, nor call the journal."""

    def synced(self, seconds: float) -> None:
        """A sync of a file took so long."""
        ...

    def acknowledged(self, records: list[QueuedRecord], now: float) -> None:
        """The records of one group are durable, and will be acknowledged next."""
        ...

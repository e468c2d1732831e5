"""Entries that were read, and those that came after them.

The cache is a ring of segments. When the newest is full, the oldest is emptied and becomes the newest, so a cache that is
full loses a good part of what it has at once.
"""

from __future__ import annotations

from typing import Final

from simbookie.storage.db.write_cache import aligned

__all__ = ["ReadCache"]

_SEGMENT_BYTES_MAX: Final = 1 << 30
_SEGMENTS_MIN: Final = 2

_Segment = dict[int, dict[int, bytes]]


class ReadCache:
    """At most ``bytes_max`` bytes of entries."""

    def __init__(self, bytes_max: int, segment_bytes_max: int = _SEGMENT_BYTES_MAX) -> None:
        count = max(_SEGMENTS_MIN, bytes_max // segment_bytes_max)
        self._segment_bytes = bytes_max // count
        #: The newest is the last.
        self._segments: list[_Segment] = [{} for _ in range(count)]
        self._taken = 0
        #: Entries that were looked for, found or not.
        self.hits = self.misses = 0

    @property
    def count(self) -> int:
        """Entries in it."""
        return sum(len(entries) for segment in self._segments for entries in segment.values())

    @property
    def size(self) -> int:
        """Bytes of them."""
        return sum(len(each) for segment in self._segments for entries in segment.values() for each in entries.values())

    def put(self, ledger_id: int, entry_id: int, entry: bytes) -> None:
        """Keep an entry, unless it is larger than a segment."""
        size = len(entry)
        if size > self._segment_bytes:
            return
        if self._taken + size > self._segment_bytes:
            oldest = self._segments.pop(0)
            oldest.clear()
            self._segments.append(oldest)
            self._taken = 0
        self._taken += aligned(size)
        self._segments[-1].setdefault(ledger_id, {})[entry_id] = entry

    def get(self, ledger_id: int, entry_id: int) -> bytes | None:
        """An entry, if it is here: its newest copy."""
        for segment in reversed(self._segments):
            entries = segment.get(ledger_id)
            if entries is not None and entry_id in entries:
                self.hits += 1
                return entries[entry_id]
        self.misses += 1
        return None

    def drop_entry(self, ledger_id: int, entry_id: int) -> None:
        """Forget an entry."""
        for segment in self._segments:
            entries = segment.get(ledger_id)
            if entries is not None:
                entries.pop(entry_id, None)

    def drop(self, ledger_id: int) -> None:
        """Forget a ledger."""
        for segment in self._segments:
            segment.pop(ledger_id, None)

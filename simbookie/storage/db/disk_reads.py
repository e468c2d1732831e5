"""Reading an entry from an entry log, and those behind it ahead of being asked for.

After an entry the log often has the next ones of its ledger. They are read into the read cache until there is another entry,
or enough of them; only then the read is answered, as in BookKeeper, where one thread does all of it. An error while reading
ahead ends that and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from simbookie.storage.base import ReadCallback, StorageError
from simbookie.storage.entry_logs.format import SIZE_BYTES, log_id_of

__all__ = ["DiskRead", "StoredReadAhead"]


@dataclass(slots=True)
class StoredReadAhead:
    """How much is read ahead: so many entries, and no further one after so many bytes. In brackets: BookKeeper's names."""

    entries_max: int
    bytes_max: int
    #: How often that was done, and how many entries and bytes it brought [readahead_batch_count, readahead_batch_size].
    batches: int = 0
    entries: int = 0
    bytes: int = 0


class _Logs(Protocol):
    def read(self, ledger_id: int, entry_id: int, location: int, on_read: ReadCallback, token: object) -> None: ...


class DiskRead:
    """One read. ``keep`` is given what was read: ``(ledger id, entry id, location, entry)``."""

    __slots__ = (
        *(
            "_ahead",
            "_bytes",
            "_count",
            "_entry",
            "_entry_id",
            "_is_looping",
            "_keep",
            "_ledger_id",
            "_location",
            "_logs",
        ),
        *("_on_read", "_token", "_waits"),
    )

    def __init__(
        self,
        logs: _Logs,
        ahead: StoredReadAhead,
        keep: Callable[[int, int, int, bytes], None],
        ledger_id: int,
        on_read: ReadCallback,
        token: object,
    ) -> None:
        self._logs = logs
        self._ahead = ahead
        self._keep = keep
        self._ledger_id = ledger_id
        self._on_read = on_read
        self._token = token
        self._entry = b""
        self._entry_id = self._location = 0
        self._count = self._bytes = 0
        self._waits = self._is_looping = False

    def start(self, entry_id: int, location: int) -> None:
        """Read the entry at ``location``."""
        self._entry_id, self._location = entry_id, location
        self._logs.read(self._ledger_id, entry_id, location, self._came, None)

    def _came(self, _token: object, entry: bytes | None, error: StorageError | None) -> None:
        if entry is None or error is not None:
            self._on_read(self._token, entry, error)
            return
        self._entry = entry
        self._take(entry)
        self._ahead.batches += 1
        self._read_ahead()

    def _take(self, entry: bytes) -> None:
        """Keep an entry, and go to the next."""
        self._keep(self._ledger_id, self._entry_id, self._location, entry)
        log_id = log_id_of(self._location)
        self._entry_id += 1
        self._location += len(entry) + SIZE_BYTES
        if log_id_of(self._location) != log_id:
            self._count = self._ahead.entries_max

    def _read_ahead(self) -> None:
        # a loop, so that reads that are done at once do not nest
        self._is_looping = True
        while self._count < self._ahead.entries_max and self._bytes < self._ahead.bytes_max:
            self._waits = True
            self._logs.read(self._ledger_id, self._entry_id, self._location, self._next_came, None)
            if self._waits:
                self._is_looping = False
                return
        self._on_read(self._token, self._entry, None)

    def _next_came(self, _token: object, entry: bytes | None, error: StorageError | None) -> None:
        self._waits = False
        if entry is None or error is not None:
            self._count = self._ahead.entries_max
        else:
            self._count += 1
            self._bytes += len(entry)
            self._ahead.entries += 1
            self._ahead.bytes += len(entry)
            self._take(entry)
        if not self._is_looping:
            self._read_ahead()

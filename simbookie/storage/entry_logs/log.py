"""One entry log that is being written.

What is appended goes into a buffer, which is written to the file when it is full; reads find it in either. A log knows how many
bytes of each ledger it has, and appends that as its ledgers map when it is sealed.
"""

from __future__ import annotations

from simbookie.storage.base import StorageIOError
from simbookie.storage.disk.base import DiskFile
from simbookie.storage.entry_logs.format import SIZE_BYTES, EntryLogHeader, encode_ledgers_map, location_of
from simbookie.storage.folders import Folder

__all__ = ["WritableLog"]


class WritableLog:
    """A log from its header to its ledgers map.

    ``buffer_bytes`` is what the buffer holds. With ``shifts`` a write that fails half-way is repeated behind the part that
    succeeded, as BookKeeper does, and an append that fails leaves what it has put into the buffer.
    """

    def __init__(self, log_id: int, folder: Folder, file: DiskFile, *, buffer_bytes: int, shifts: bool = False) -> None:
        self.log_id = log_id
        self.folder = folder
        self.file = file
        #: Where the next record goes, as locations have it.
        self.position = 0
        #: Bytes in the log by ledger, lengths included.
        self.ledgers: dict[int, int] = {}
        #: Bytes appended since a sync was last asked for.
        self.unsynced = 0
        self._buffer = bytearray()
        self._buffer_start = 0
        self._buffer_bytes = buffer_bytes
        self._shifts = shifts
        self._begin()

    def _begin(self) -> None:
        self._write(EntryLogHeader().encode())

    def append(self, ledger_id: int, entry: bytes) -> int:
        """Append an entry; returns its location. :class:`~simbookie.storage.base.StorageIOError` if writing failed."""
        start = self.position
        try:
            self._write(len(entry).to_bytes(SIZE_BYTES))
            position = self.position
            self._write(entry)
        except StorageIOError:
            if not self._shifts:
                self._forget_from(start)
            raise
        self._count(ledger_id, SIZE_BYTES + len(entry))
        return location_of(self.log_id, position)

    def _count(self, ledger_id: int, size: int) -> None:
        self.ledgers[ledger_id] = self.ledgers.get(ledger_id, 0) + size
        self.unsynced += size

    def _write(self, data: bytes) -> None:
        """Append to the buffer, and write it whenever it is full."""
        taken = 0
        while taken < len(data):
            room = self._buffer_bytes - len(self._buffer)
            self._buffer += data[taken : taken + room]
            taken += room
            if len(self._buffer) >= self._buffer_bytes:
                self.flush()
        self.position += len(data)

    def _forget_from(self, position: int) -> None:
        """Take back what was appended from ``position`` on; what of it is in the file will be written over."""
        self.position = position
        if position >= self._buffer_start:
            del self._buffer[position - self._buffer_start :]
        else:
            self._buffer.clear()
            self._buffer_start = position

    def flush(self) -> None:
        """Write the buffer to the file."""
        if not self._buffer:
            return
        start = max(self.file.size, self._buffer_start) if self._shifts else self._buffer_start
        self.file.write(start, self._buffer)
        self._buffer_start = start + len(self._buffer)
        self._buffer.clear()

    def seal(self) -> None:
        """Append the ledgers map, write everything, then let the header tell where the map is. Syncs nothing."""
        offset = self.position
        try:
            self._write(encode_ledgers_map(self.ledgers))
            self.flush()
            self.file.write(0, EntryLogHeader(offset, len(self.ledgers)).encode())
        except StorageIOError:
            if not self._shifts:
                self._forget_from(offset)
            raise

    def buffered(self, offset: int, size: int) -> bytes | None:
        """``size`` bytes (fewer at the end) of the log if any of them are in the buffer; ``None`` if the file has them all."""
        if offset + size <= self._buffer_start:
            return None
        if offset >= self._buffer_start:
            return bytes(self._buffer[offset - self._buffer_start : offset - self._buffer_start + size])
        head = self.file.read_now(offset, self._buffer_start - offset)
        return head + bytes(self._buffer[: size - len(head)])

    def content(self) -> bytes:
        """All of it, written to the file or not."""
        return self.file.read_now(0, self._buffer_start) + bytes(self._buffer)

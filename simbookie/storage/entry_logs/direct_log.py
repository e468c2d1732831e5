"""One entry log that is being written past the page cache, as BookKeeper's direct entry logger does.

Such a device takes whole blocks only. So the header is one block, in whose second part is a record that scans skip; every flush
fills up the last block with padding, which has a negative length and is skipped too; the ledgers map begins with a block; and a
record is in one write buffer, never in two. In all else the file is one like others, and is read like them.
"""

from __future__ import annotations

from typing import Final

from simbookie.storage.base import StorageIOError
from simbookie.storage.disk.base import DiskFile
from simbookie.storage.entry_logs.format import (
    BLOCK_SIZE,
    SIZE_BYTES,
    EntryLogHeader,
    block_end,
    encode_ledgers_map,
    location_of,
)
from simbookie.storage.entry_logs.log import WritableLog
from simbookie.storage.folders import Folder
from simbookie.storage.steps import OnStep, no_step

__all__ = ["DirectLog"]

_PADDING: Final = b"\xf0"


class DirectLog(WritableLog):
    """A log from its header to its ledgers map, in blocks. ``buffer_bytes`` is what the buffer holds, in whole blocks.

    ``tells_first`` has the header tell of the ledgers map before that is written, as BookKeeper does.
    """

    def __init__(
        self,
        log_id: int,
        folder: Folder,
        file: DiskFile,
        *,
        buffer_bytes: int,
        tells_first: bool = False,
        on_step: OnStep = no_step,
    ) -> None:
        self._tells_first = tells_first
        self._step = on_step
        super().__init__(log_id, folder, file, buffer_bytes=block_end(buffer_bytes))

    def _begin(self) -> None:
        self.file.pass_by_cache()
        self.file.write(0, EntryLogHeader().encode_block())
        self.position = self._buffer_start = BLOCK_SIZE

    def append(self, ledger_id: int, entry: bytes) -> int:
        """Append an entry; :class:`~simbookie.storage.base.StorageIOError` if it is larger than the buffer, or writing failed."""
        size = SIZE_BYTES + len(entry)
        if size > self._buffer_bytes:
            raise StorageIOError(
                f"an entry of {len(entry)} bytes never fits into a write buffer of {self._buffer_bytes}, an eighth of "
                f"dbStorage_directIOEntryLoggerTotalWriteBufferSizeMB"
            )
        if len(self._buffer) + size > self._buffer_bytes:
            self.flush()
        self._buffer += len(entry).to_bytes(SIZE_BYTES)
        self._buffer += entry
        location = location_of(self.log_id, self.position + SIZE_BYTES)
        self.position += size
        self._count(ledger_id, size)
        return location

    def flush(self) -> None:
        """Write the buffer, filled up to whole blocks."""
        if not self._buffer:
            return
        size = block_end(len(self._buffer))
        self.file.write(self._buffer_start, self._buffer.ljust(size, _PADDING))
        self._buffer_start += size
        self.position = self._buffer_start
        self._buffer.clear()

    def seal(self) -> None:
        """Write everything, the ledgers map from a block of its own on, then let the header tell where it is. Syncs nothing."""
        self.flush()
        offset = self.position
        ledgers_map = encode_ledgers_map(self.ledgers)
        header = EntryLogHeader(offset, len(self.ledgers)).encode_block()
        if self._tells_first:
            self.file.write(0, header)
            self._step("log.map")
        self.file.write(offset, ledgers_map.ljust(block_end(len(ledgers_map)), _PADDING))
        if not self._tells_first:
            self._step("log.map")
            self.file.write(0, header)

"""One journal file that is being written: a buffer in front of the page cache, and space allocated ahead.

What is appended is in the buffer, and goes to the page cache when the buffer is full or flushed. Space is allocated by writing
zeros at the end of the next step, so that syncs need not change the file's size; whatever was not written in between reads as
zeros, which end a scan.
"""

from __future__ import annotations

from simbookie.storage.base import DurableCallback
from simbookie.storage.folders import Folder
from simbookie.storage.journal.records import LENGTH, PADDED_FROM, file_name, header, padding
from simbookie.storage.journal.settings import JournalSettings

__all__ = ["JournalFile"]


class JournalFile:
    """Creates the file and writes its header, which the caller syncs before it appends. Errors are those of the disk."""

    __slots__ = (
        "_alignment",
        "_allocated",
        "_buffer",
        "_buffer_max",
        "_file",
        "_is_padded",
        "_step",
        "file_id",
        "position",
    )

    def __init__(self, folder: Folder, file_id: int, settings: JournalSettings) -> None:
        self.file_id = file_id
        self._file = folder.create(file_name(file_id))
        self._alignment = settings.alignment_bytes
        self._step = settings.preallocation_bytes - settings.preallocation_bytes % self._alignment
        self._is_padded = settings.format_version >= PADDED_FROM
        self._buffer = bytearray()
        self._buffer_max = settings.write_buffer_bytes
        head = header(settings.format_version)
        self._file.write(0, head)
        #: Where the next record begins, what is buffered included.
        self.position = len(head)
        self._allocated = 0

    def allocate(self) -> None:
        """Allocate the first step; after the header was synced."""
        self._allocated = self._step
        self._file.write(self._allocated - self._alignment, bytes(self._alignment))

    def append(self, body: bytes) -> None:
        """Append a record."""
        self._make_room(LENGTH.size + len(body))
        self._put(LENGTH.pack(len(body)))
        self._put(body)

    def flush(self) -> None:
        """Pad the file to its alignment and hand everything to the page cache."""
        if self._is_padded:
            pad = padding(self.position, self._alignment)
            self._make_room(len(pad))
            self._put(pad)
        if self._buffer:
            self._write(len(self._buffer))

    def _make_room(self, size: int) -> None:
        if self.position + size > self._allocated:
            self._allocated += self._step
            self._file.write(self._allocated - self._alignment, bytes(self._alignment))

    def _put(self, data: bytes) -> None:
        self._buffer += data
        self.position += len(data)
        if len(self._buffer) >= self._buffer_max:
            self._write(len(self._buffer) - len(self._buffer) % self._buffer_max)

    def _write(self, size: int) -> None:
        self._file.write(self.position - len(self._buffer), self._buffer[:size])
        del self._buffer[:size]

    def sync(self, on_done: DurableCallback, token: object) -> None:
        """Make durable what the page cache has."""
        self._file.sync(on_done, token)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

"""Reading a journal file, as a bookie that starts and as tools do.

A scan ends where writing ended: at the end of the file, at a length of zero (space allocated ahead), or at a record that is not
all there. None of these is an error, because a bookie may be killed between any two bytes. A negative length that is no padding
is one: nothing writes that.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final

from simbookie.storage.entry_logs.scan import ScannedFile
from simbookie.storage.journal.records import (
    HEADER_HEAD_BYTES,
    LENGTH,
    PADDED_FROM,
    PADDING_MASK,
    JournalFormatError,
    header_size,
    version_of_header,
)

__all__ = ["JournalScan", "ScanEnd"]

_CHUNK_BYTES: Final = 1 << 20


class ScanEnd(Enum):
    """Why a scan ended where it did."""

    END_OF_FILE = "end-of-file"
    ZERO_LENGTH = "zero-length"
    SHORT_RECORD = "short-record"
    #: A length that is negative and no padding, or anything else that cannot be read.
    DAMAGED = "damaged"


_SECTOR_BYTES: Final = 512


class JournalScan:
    """One pass over a file: iterate over it for ``(offset, body)`` of each record, padding left out.

    ``position`` is where the reader stands, the offset of a mark that covers everything before. The file stays the caller's.
    :class:`JournalFormatError` for a version that nobody can read.
    """

    def __init__(self, file: ScannedFile, position: int = 0) -> None:
        self._file = file
        self._size = file.size
        self.version = version_of_header(file.read_now(0, HEADER_HEAD_BYTES))
        self.position = position if position > 0 else header_size(self.version)
        self.end: ScanEnd | None = None
        self._chunk = b""
        self._chunk_at = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """The records in order; :class:`JournalFormatError` at a length that makes no sense."""
        while self.end is None:
            offset = self.position
            length = self._length()
            if length is None:
                self.end = ScanEnd.END_OF_FILE if offset >= self._size else ScanEnd.SHORT_RECORD
                return
            if length == 0:
                self.end = ScanEnd.ZERO_LENGTH
                return
            is_padding = length == PADDING_MASK and self.version >= PADDED_FROM
            if is_padding:
                length = self._length()
                if length is None:
                    self.end = ScanEnd.SHORT_RECORD
                    return
            if not is_padding and _is_torn_padding(length, offset):
                self.end = ScanEnd.ZERO_LENGTH
                return
            if length < 0:
                self.end = ScanEnd.DAMAGED
                raise JournalFormatError(f"a record of {length} bytes at {offset}")
            if self._size - self.position < length:
                self.position = max(self.position, self._size)
                self.end = ScanEnd.SHORT_RECORD
                return
            if is_padding:
                self.position += length
            else:
                yield offset, self._read(length)

    def _length(self) -> int | None:
        if self._size - self.position < LENGTH.size:
            self.position = max(self.position, self._size)
            return None
        number: int = LENGTH.unpack(self._read(LENGTH.size))[0]
        return number

    def _read(self, size: int) -> bytes:
        """The next ``size`` bytes, which are there."""
        start = self.position - self._chunk_at
        if not (start >= 0 and start + size <= len(self._chunk)):
            self._chunk = self._file.read_now(self.position, max(size, _CHUNK_BYTES))
            self._chunk_at, start = self.position, 0
        self.position += size
        return self._chunk[start : start + size]


def _is_torn_padding(length: int, offset: int) -> bool:
    """Whether a power loss made ``length`` of the mark of padding, by keeping the sector that it begins in, and not the next."""
    return any(
        length == PADDING_MASK & -(1 << (32 - 8 * kept)) and (offset + kept) % _SECTOR_BYTES == 0 for kept in (1, 2)
    )

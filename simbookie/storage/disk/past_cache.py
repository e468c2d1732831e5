"""Reading and writing a file past the page cache (``O_DIRECT``), where operating system and file system allow it.

A device takes whole blocks from memory that is aligned like them. So data goes through one buffer of pages of its own, which
everybody on one event loop shares, and what is not whole blocks goes another way. A call returns when the device has the data or
brought it, which is not durable without a sync either: the device may have a cache of its own.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final

__all__ = ["BLOCK_BYTES", "AlignedBuffer", "PastCache", "is_whole_blocks"]

#: What every device in use takes at a time, or a whole number of what it takes.
BLOCK_BYTES: Final = 4096
_BUFFER_BYTES: Final = 1 << 20


def is_whole_blocks(offset: int, size: int) -> bool:
    """Whether so many bytes there can be read or written past the page cache."""
    return size > 0 and offset % BLOCK_BYTES == 0 and size % BLOCK_BYTES == 0


class AlignedBuffer:
    """Memory that begins with a page."""

    def __init__(self) -> None:
        self.view = memoryview(mmap.mmap(-1, _BUFFER_BYTES))


class PastCache:
    """A file opened for it, with a descriptor of its own; :class:`OSError` if that cannot be."""

    def __init__(self, path: Path, buffer: AlignedBuffer) -> None:
        flag = getattr(os, "O_DIRECT", None)
        if flag is None:
            raise OSError("this operating system has no O_DIRECT")
        self.descriptor = os.open(path, os.O_RDWR | flag | os.O_CLOEXEC)
        self._buffer = buffer.view

    def write(self, offset: int, data: memoryview) -> None:
        """Write whole blocks; after an :class:`OSError` any part of them may be written."""
        done = 0
        while done < len(data):
            with data[done : done + _BUFFER_BYTES] as part:
                size = len(part)
                self._buffer[:size] = part
            done += os.pwrite(self.descriptor, self._buffer[:size], offset + done)

    def read(self, offset: int, size: int) -> bytes:
        """Read whole blocks, fewer bytes at the end of the file."""
        parts = []
        while size > 0:
            wanted = min(size, _BUFFER_BYTES)
            came = os.preadv(self.descriptor, [self._buffer[:wanted]], offset)
            parts.append(bytes(self._buffer[:came]))
            if came < wanted:
                break  # what follows the end is nothing, and a position within a block cannot be read from
            offset, size = offset + came, size - came
        return b"".join(parts)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)

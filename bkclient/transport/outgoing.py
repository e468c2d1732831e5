"""Frames that a socket does not take at present, without copies.

Event loops take everything they are given and keep what the socket does not take. asyncio of Python 3.11 keeps it in one
``bytearray`` and moves all of it at every partial send, so a bookie that is a few megabytes behind costs several times the
CPU. Hence a connection gives its transport no more than it can send soon, and keeps the rest here.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Iterable
from typing import Final

__all__ = ["CHUNK_BYTES", "LARGE_CHUNK_BYTES", "Outgoing", "chunk_bytes_for"]

CHUNK_BYTES: Final = 256 * 1024
"""How much is handed over at a time where it is moved: enough for a system call to be worth it, and no more."""

LARGE_CHUNK_BYTES: Final = 4 * 1024 * 1024
"""How much where it is not: what a socket may take at once, so that there are no more system calls than needed."""


def chunk_bytes_for(transport: object) -> int:
    """How much to give ``transport`` at a time; only asyncio before Python 3.12 copies what it keeps."""
    copies = sys.version_info < (3, 12) and isinstance(transport, asyncio.Transport)  # those of uvloop are none
    return CHUNK_BYTES if copies else LARGE_CHUNK_BYTES


class Outgoing:
    """Buffers in the order in which they have to be sent. What bounds them is the caller's."""

    __slots__ = ("_buffers", "chunk_bytes", "size")

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        #: How much :meth:`take` gives out at a time.
        self.chunk_bytes = chunk_bytes
        self._buffers: deque[bytes | memoryview] = deque()
        #: Bytes in all.
        self.size = 0

    def add(self, buffers: Iterable[bytes]) -> None:
        """Put ``buffers`` behind all others; they are kept, not copied."""
        for buffer in buffers:
            if buffer:
                self._buffers.append(buffer)
                self.size += len(buffer)

    def take(self) -> list[bytes | memoryview]:
        """The next buffers, of :attr:`chunk_bytes` in all or of whatever there is; a large one is given out in parts."""
        chunk: list[bytes | memoryview] = []
        room = self.chunk_bytes
        while self._buffers and room > 0:
            buffer = self._buffers.popleft()
            if len(buffer) > room:
                view = memoryview(buffer)
                self._buffers.appendleft(view[room:])
                buffer = view[:room]
            chunk.append(buffer)
            room -= len(buffer)
        self.size -= self.chunk_bytes - room
        assert (self.size > 0) == bool(self._buffers), "the size is that of the buffers"
        return chunk

    def clear(self) -> None:
        """Forget everything."""
        self._buffers.clear()
        self.size = 0

    def check(self) -> None:
        """Assert that the size is that of the buffers; takes time linear in their number."""
        assert self.size == sum(map(len, self._buffers)), "the size is that of the buffers"

"""Frames that a socket does not take at present, without copies.

Event loops take everything they are given and keep what the socket does not take. asyncio of Python 3.11 keeps it in one
``bytearray`` and moves all of it at every partial send, so a bookie that is a few megabytes behind costs several times the
CPU. Hence a connection gives its transport no more than it can send soon, and keeps the rest here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

__all__ = ["CHUNK_BYTES", "Outgoing"]

CHUNK_BYTES: Final = 256 * 1024
"""How much is handed over at a time: enough for a system call to be worth it, little enough to be moved."""


class Outgoing:
    """Buffers in the order in which they have to be sent. What bounds them is the caller's."""

    __slots__ = ("_buffers", "size")

    def __init__(self) -> None:
        self._buffers: deque[bytes | memoryview] = deque()
        #: Bytes in all.
        self.size = 0

    def add(self, buffers: Iterable[bytes]) -> None:
        """Put ``buffers`` behind all others; they are kept, not copied."""
        for buffer in buffers:
            self._buffers.append(buffer)
            self.size += len(buffer)

    def take(self) -> list[bytes | memoryview]:
        """The next buffers, of :data:`CHUNK_BYTES` in all or of whatever there is; a large one is given out in parts."""
        chunk: list[bytes | memoryview] = []
        room = CHUNK_BYTES
        while self._buffers and room > 0:
            buffer = self._buffers.popleft()
            if len(buffer) > room:
                view = memoryview(buffer)
                self._buffers.appendleft(view[room:])
                buffer = view[:room]
            chunk.append(buffer)
            room -= len(buffer)
        self.size -= CHUNK_BYTES - room
        return chunk

    def clear(self) -> None:
        """Forget everything."""
        self._buffers.clear()
        self.size = 0

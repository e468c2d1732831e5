"""Length-prefixed frames: four bytes big-endian length N, then N bytes of content; both versions, both directions.

:class:`FrameBuffer` is filled in place by a transport and gives back whole frames. Its memory is bounded: it holds 64 KiB,
or a single frame that is larger, and a frame over the limit is refused as soon as its prefix has been seen. Every byte is
moved a constant number of times however the stream is cut: an incomplete frame is moved to the front at most once, and the
buffer grows directly to the size that its prefix announces.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from bkclient.wire.errors import FrameTooLarge

__all__ = ["DEFAULT_MAX_FRAME_SIZE", "PREFIX_SIZE", "FrameBuffer", "frame"]

#: Bytes of a frame, prefix included, that both sides accept unless configured otherwise.
DEFAULT_MAX_FRAME_SIZE: Final = 5 * 1024 * 1024
PREFIX_SIZE: Final = 4

_BUFFER_SIZE: Final = 64 * 1024
# From this size on, one more copy of the content costs more than it saves.
_LARGE: Final = 4 * 1024
_PREFIX: Final = struct.Struct(">I")


def frame(content: bytes) -> bytes:
    """``content`` as it goes on the wire."""
    return _PREFIX.pack(len(content)) + content


class FrameBuffer:
    """Turns a stream of bytes into frames.

    Either write into :meth:`get_buffer` and report with :meth:`commit`, or :meth:`feed` whole chunks; then take what became
    complete from :meth:`frames`, before more is written. ``max_frame_size`` counts the prefix.
    """

    __slots__ = ("_data", "_end", "_start", "_view", "max_frame_size")

    def __init__(self, max_frame_size: int = DEFAULT_MAX_FRAME_SIZE) -> None:
        if max_frame_size <= PREFIX_SIZE:
            raise ValueError(f"max_frame_size {max_frame_size} leaves no room beyond the prefix of {PREFIX_SIZE} bytes")
        self.max_frame_size = max_frame_size
        self._start = 0
        self._end = 0
        self._data = bytearray(_BUFFER_SIZE)
        self._view = memoryview(self._data)

    @property
    def capacity(self) -> int:
        """Bytes of memory held."""
        return len(self._data)

    def __len__(self) -> int:
        return self._end - self._start

    def get_buffer(self) -> memoryview:
        """Where the next bytes belong; never empty. Valid until the next call of any method."""
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._data) > _BUFFER_SIZE:
                self._replace(_BUFFER_SIZE)
        needed = self._size_of_next()
        if self._start + needed > len(self._data):
            self._replace(needed)
        return self._view[self._end :]

    def commit(self, size: int) -> None:
        """``size`` bytes were written to the front of what :meth:`get_buffer` returned."""
        self._end += size

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that ``data`` completes; consume them all before the next call."""
        remaining = memoryview(data)
        while remaining:
            free = self.get_buffer()
            count = min(len(free), len(remaining))
            free[:count] = remaining[:count]
            self.commit(count)
            remaining = remaining[count:]
            yield from self.frames()

    def frames(self) -> Iterator[bytes]:
        """The contents of all complete frames; raises :class:`FrameTooLarge`, again and again, at one over the limit."""
        while True:
            start, available = self._start, self._end - self._start
            size = self._size_of_next()
            if available < size:
                return
            if size >= _LARGE:
                self._start = start + size
                yield bytes(self._view[start + PREFIX_SIZE : start + size])
            else:
                yield from self._small_frames()

    def _small_frames(self) -> Iterator[bytes]:
        # Slicing bytes costs a third of slicing a buffer, hence one copy of everything that has arrived.
        chunk = bytes(self._view[self._start : self._end])
        position, end = 0, len(chunk)
        limit = min(_LARGE, self.max_frame_size + 1)
        while end - position >= PREFIX_SIZE:
            content = position + PREFIX_SIZE
            following = content + _PREFIX.unpack_from(chunk, position)[0]
            if following > end or following - position >= limit:
                return
            self._start += following - position
            position = following
            yield chunk[content:following]

    def _size_of_next(self) -> int:
        """Bytes of the frame that starts next with its prefix, or of the prefix as long as that is incomplete."""
        if self._end - self._start < PREFIX_SIZE:
            return PREFIX_SIZE
        size: int = PREFIX_SIZE + _PREFIX.unpack_from(self._data, self._start)[0]
        if size > self.max_frame_size:
            raise FrameTooLarge(size, self.max_frame_size)
        return size

    def _replace(self, capacity: int) -> None:
        """Go on in a new buffer, at its front: one that has been handed out must not change under its user."""
        data = bytearray(max(capacity, _BUFFER_SIZE))
        kept = self._end - self._start
        if kept:
            data[:kept] = self._data[self._start : self._end]
        self._start, self._end = 0, kept
        self._data = data
        self._view = memoryview(data)

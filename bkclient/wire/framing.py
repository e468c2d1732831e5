"""Length-prefixed frames: four bytes big-endian length N, then N bytes of content; both versions, both directions.

:class:`FrameBuffer` is filled in place by a transport and gives back whole frames. Its memory is bounded by what has arrived,
not by what a prefix announces: the buffer has 4 KiB, and doubles when it was filled, up to 64 KiB. A frame that does not fit
is received into parts, each no larger than all before it. A frame over the limit is refused as soon as its prefix has been seen.
Every byte is moved a constant number of times however the stream is cut: an incomplete frame is moved out of the way of what
follows at most once, and doubling moves each byte twice on average.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from bkclient._core import has_twins
from bkclient.wire.errors import FrameTooLarge

__all__ = ["DEFAULT_MAX_FRAME_SIZE", "PREFIX_SIZE", "FrameBuffer", "frame"]

#: Bytes of a frame, prefix included, that both sides accept unless configured otherwise.
DEFAULT_MAX_FRAME_SIZE: Final = 5 * 1024 * 1024
PREFIX_SIZE: Final = 4

_SMALLEST_BUFFER: Final = 4 * 1024
_LARGEST_BUFFER: Final = 64 * 1024
# From this size on, one more copy of the content costs more than it saves.
_LARGE: Final = 4 * 1024
_PREFIX: Final = struct.Struct(">I")
#: How the prefix of a frame of less than 256 bytes begins.
_SMALL_PREFIX: Final = bytes(PREFIX_SIZE - 1)


def frame(content: bytes) -> bytes:
    """``content`` as it goes on the wire."""
    return _PREFIX.pack(len(content)) + content


class FrameBuffer:
    """Turns a stream of bytes into frames.

    Either write into :meth:`get_buffer` and report with :meth:`commit`, or :meth:`feed` whole chunks; then take what became
    complete from :meth:`frames`, before more is written. ``max_frame_size`` counts the prefix.
    """

    __slots__ = ("_data", "_end", "_parts", "_start", "_view", "max_frame_size")

    def __init__(self, max_frame_size: int = DEFAULT_MAX_FRAME_SIZE) -> None:
        if max_frame_size <= PREFIX_SIZE:
            raise ValueError(f"max_frame_size {max_frame_size} leaves no room beyond the prefix of {PREFIX_SIZE} bytes")
        self.max_frame_size = max_frame_size
        self._start = 0
        self._end = 0
        self._data = bytearray(_SMALLEST_BUFFER)
        self._view = memoryview(self._data)
        # The frame that does not fit into the buffer; all that arrives belongs to it, and the buffer is empty meanwhile.
        self._parts: _Parts | None = None

    @property
    def capacity(self) -> int:
        """Bytes of memory held."""
        return len(self._data) + (0 if self._parts is None else self._parts.capacity)

    @property
    def has_frame(self) -> bool:
        """Whether :meth:`frames` has anything to give, or to raise."""
        if self._parts is not None:
            return self._parts.missing <= 0
        available = self._end - self._start
        if available < PREFIX_SIZE:
            return False
        size: int = PREFIX_SIZE + _PREFIX.unpack_from(self._data, self._start)[0]
        return size <= available or size > self.max_frame_size

    def __len__(self) -> int:
        return self._end - self._start if self._parts is None else PREFIX_SIZE + self._parts.arrived

    def get_buffer(self) -> memoryview:
        """Where the next bytes belong; never empty. Valid until the next call of any method."""
        if self._parts is not None:
            return self._parts.get_buffer()
        start, end, capacity = self._start, self._end, len(self._data)
        if start == end:
            self._start = self._end = 0
            if end == capacity < _LARGEST_BUFFER:
                self._replace(2 * capacity)
        elif (start > 0 or end == capacity) and start + (size := self._size_of_next()) > capacity:
            if end == capacity and capacity < _LARGEST_BUFFER:
                self._replace(2 * capacity)
            elif size > capacity:
                self._parts = _Parts(self._view[start + PREFIX_SIZE : end], size - PREFIX_SIZE, capacity)
                self._start = self._end  # they are in the parts
                self._replace(0)
                return self._parts.get_buffer()
            else:
                self._replace(capacity)
        return self._view[self._end :]

    def commit(self, size: int) -> None:
        """``size`` bytes were written to the front of what :meth:`get_buffer` returned."""
        if self._parts is None:
            self._end += size
        else:
            self._parts.commit(size)

    def release(self) -> None:
        """Give memory back if nothing is held; it is taken again when it is needed."""
        if self._start == self._end and self._parts is None and len(self._data) > _SMALLEST_BUFFER:
            self._replace(_SMALLEST_BUFFER)

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

    def small(self) -> bytes:
        """What has arrived and is in no frame that was taken, if it begins with a frame of less than 256 bytes; else nothing.

        A copy; the frames in it stay until they are taken or skipped.
        """
        start, end = self._start, self._end
        if self._parts is not None or end - start <= PREFIX_SIZE or self._data[start : start + 3] != _SMALL_PREFIX:
            return b""
        return bytes(self._view[start:end])

    def whole(self) -> bytes:
        """What has arrived and is in no frame that was taken, if it begins with a whole frame; else nothing. As :meth:`small`.

        A frame that does not fit into the buffer is not among them. Nothing as well before a frame over the limit.
        """
        start, end = self._start, self._end
        if end - start <= PREFIX_SIZE or end - start < PREFIX_SIZE + _PREFIX.unpack_from(self._data, start)[0]:
            return b""
        return bytes(self._view[start:end])

    def skip(self, size: int) -> None:
        """Take the first ``size`` bytes of :meth:`small` or :meth:`whole`, which are whole frames."""
        self._start += size
        assert self._start <= self._end, "only what has arrived is taken"

    def frames(self) -> Iterator[bytes]:
        """The contents of all complete frames; raises :class:`FrameTooLarge`, again and again, at one over the limit."""
        if self._parts is not None:
            if self._parts.missing > 0:
                return
            content = self._parts.join()
            self._replace(self._parts.first)
            self._parts = None
            yield content
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
        data = bytearray(capacity)
        kept = self._end - self._start
        if kept:
            data[:kept] = self._data[self._start : self._end]
        self._start, self._end = 0, kept
        self._data = data
        self._view = memoryview(data)


has_twins("answers", FrameBuffer, "get_buffer", bind="bind_frames", knows=(_LARGEST_BUFFER,))


class _Parts:
    """The content of one frame of ``size`` bytes, received into parts of ``first`` bytes and more, as it arrives."""

    __slots__ = ("_filled", "_full", "_part", "_size", "arrived", "first")

    def __init__(self, begin: memoryview, size: int, first: int) -> None:
        self._full: list[bytes | memoryview] = [bytes(begin)]
        self._part = memoryview(b"")
        self._filled = 0
        self._size = size
        self.first = first
        #: Bytes that have arrived.
        self.arrived = len(begin)

    @property
    def missing(self) -> int:
        """Bytes that have not arrived."""
        return self._size - self.arrived

    @property
    def capacity(self) -> int:
        """Bytes of memory held."""
        return self.arrived - self._filled + len(self._part)

    def get_buffer(self) -> memoryview:
        if self._filled == len(self._part):
            self._full.append(self._part)
            self._part = memoryview(bytearray(min(self.missing, max(self.arrived, self.first))))
            self._filled = 0
        return self._part[self._filled :]

    def commit(self, size: int) -> None:
        self._filled += size
        self.arrived += size

    def join(self) -> bytes:
        return b"".join((*self._full, self._part))

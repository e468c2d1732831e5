"""ZooKeeper's serialisation (jute) and its frames, as bytes and nothing else.

Numbers are big-endian and signed; byte strings, text and vectors begin with their length in 32 bits, -1 for null. A frame
is a record behind its length. Everything here takes its input for hostile: a length is believed only as far as bytes arrived.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

__all__ = ["FrameSplitter", "JuteError", "JuteReader", "JuteWriter", "framed"]

T = TypeVar("T")

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_NULL: Final = -1


class JuteError(ValueError):
    """Bytes that are no record of the kind that was expected."""


class JuteReader:
    """Reads one record from ``data``; every method raises :class:`JuteError` where the bytes do not suffice."""

    __slots__ = ("_data", "_offset")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    @property
    def remaining(self) -> int:
        """How many bytes were not read yet."""
        return len(self._data) - self._offset

    def int32(self) -> int:
        """A signed number of 32 bits."""
        return _INT.unpack(self._take(4))[0]  # type: ignore[no-any-return]  # struct tells no types

    def int64(self) -> int:
        """A signed number of 64 bits."""
        return _LONG.unpack(self._take(8))[0]  # type: ignore[no-any-return]  # struct tells no types

    def boolean(self) -> bool:
        """A byte that is not 0."""
        return self._take(1) != b"\0"

    def buffer(self) -> bytes | None:
        """Bytes, ``None`` for null."""
        length = self.int32()
        return None if length == _NULL else self._take(length)

    def string(self) -> str | None:
        """Text, ``None`` for null; what is not UTF-8 becomes U+FFFD, which no path may contain."""
        data = self.buffer()
        return None if data is None else data.decode(errors="replace")

    def text(self) -> str:
        """Text that may not be null."""
        text = self.string()
        if text is None:
            raise JuteError("a text that must be there is null")
        return text

    def vector(self, read: Callable[[], T], *, item_size_min: int) -> list[T]:
        """What ``read`` returns for each item; a null vector is an empty one. An item has at least so many bytes."""
        count = self.int32()
        if count == _NULL:
            return []
        if not 0 <= count <= self.remaining // item_size_min:
            raise JuteError(f"a vector of {count} items does not fit into {self.remaining} bytes")
        return [read() for _ in range(count)]

    def texts(self) -> list[str]:
        """A vector of texts."""
        return self.vector(self.text, item_size_min=4)

    def _take(self, count: int) -> bytes:
        if not 0 <= count <= self.remaining:
            raise JuteError(f"{count} bytes are expected where {self.remaining} are left")
        start = self._offset
        self._offset += count
        return self._data[start : self._offset]


class JuteWriter:
    """Collects one record; its methods can be chained."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def int32(self, value: int) -> JuteWriter:
        """A signed number of 32 bits."""
        self.data += _INT.pack(value)
        return self

    def int64(self, value: int) -> JuteWriter:
        """A signed number of 64 bits."""
        self.data += _LONG.pack(value)
        return self

    def byte(self, value: int) -> JuteWriter:
        """One byte, which says no with 0 and yes with 1."""
        self.data.append(value)
        return self

    def buffer(self, value: bytes | None) -> JuteWriter:
        """Bytes or null."""
        if value is None:
            return self.int32(_NULL)
        self.data += _INT.pack(len(value))
        self.data += value
        return self

    def text(self, value: str | None) -> JuteWriter:
        """Text or null."""
        return self.buffer(None if value is None else value.encode())

    def texts(self, values: list[str]) -> JuteWriter:
        """A vector of texts."""
        self.int32(len(values))
        for value in values:
            self.text(value)
        return self


def framed(record: bytes | bytearray) -> bytes:
    """``record`` behind its length."""
    return _INT.pack(len(record)) + record


class FrameSplitter:
    """Cuts a stream of bytes into records. ``size_max`` may change between records; it bounds what is kept, too."""

    __slots__ = ("_buffer", "size_max")

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self._buffer = bytearray()

    @property
    def buffered(self) -> int:
        """How many bytes wait to become a record."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take what arrived."""
        self._buffer += data

    def starts_with(self, word: bytes) -> bool:
        """Whether ``word`` is what arrived first."""
        return self._buffer.startswith(word)

    def records(self) -> Iterator[bytes]:
        """The records that are there. Stopping early keeps the rest; :class:`JuteError` for a length out of bounds."""
        while len(self._buffer) >= _INT.size:
            (size,) = _INT.unpack_from(self._buffer)
            if not 0 <= size <= self.size_max:
                raise JuteError(f"a frame of {size} bytes, where at most {self.size_max} are accepted")
            end = _INT.size + size
            if len(self._buffer) < end:
                return
            record = bytes(self._buffer[_INT.size : end])
            del self._buffer[:end]  # cheap: a bytearray only moves its start
            yield record

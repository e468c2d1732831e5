"""The bodies of a batch, where they lie in the frame that brought them.

They are cut out when somebody asks for one. A reader does not: it verifies each where it lies and keeps its payload alone, which
is copied once by that.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Final, overload

from bkclient._core import has_twins
from bkclient.wire.errors import MalformedMessage

__all__ = ["LENGTH_SIZE", "Bodies", "bodies_from", "count_in"]

_LENGTH: Final = struct.Struct(">i")
#: Bytes before each body, which tell its length.
LENGTH_SIZE: Final = _LENGTH.size


class Bodies(Sequence[bytes]):
    """``number`` bodies in ``content``, the first behind its length at ``start``; compares as a tuple of them."""

    __slots__ = ("content", "number", "start")

    def __init__(self, content: bytes, start: int, number: int) -> None:
        self.content = content
        self.start = start
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __iter__(self) -> Iterator[bytes]:
        content, position = self.content, self.start
        for _ in range(self.number):
            start = position + LENGTH_SIZE
            position = start + _LENGTH.unpack_from(content, position)[0]
            yield content[start:position]

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        """Takes time linear in their number, but for a slice of the first ones."""
        if isinstance(index, slice):
            first, last, step = index.indices(self.number)
            if (first, step) == (0, 1):
                return Bodies(self.content, self.start, last)
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Bodies | tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self.number} bodies in {len(self.content)} bytes>"


def bodies_from(content: bytes, start: int) -> Bodies:
    """All that ``content`` has from ``start`` on; raises as :func:`count_in`."""
    return Bodies(content, start, count_in(content, start))


def count_in(content: bytes, start: int) -> int:
    """How many bodies, each behind its length, ``content`` has from ``start`` to its end.

    Raises :class:`~bkclient.wire.errors.MalformedMessage` where lengths do not lead to the end.
    """
    position, size, count = start, len(content), 0
    length_in = _LENGTH.unpack_from
    while position < size:
        if size - position < LENGTH_SIZE:
            raise MalformedMessage("a version 2 batch read response with an incomplete entry length")
        (length,) = length_in(content, position)
        position += LENGTH_SIZE + length
        if length < 0 or position > size:
            raise MalformedMessage(f"a version 2 batch read response with an entry of {length} bytes")
        count += 1
    return count


has_twins("answers", sys.modules[__name__], "count_in", bind="bind_bodies")

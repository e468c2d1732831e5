"""How the messages of an entry are compressed: by zlib of the standard library, or not."""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import Final

from bkclient.errors import DigestMismatch

__all__ = ["COMPRESSIONS", "Compression", "compress", "decompress"]

_ZLIB_LEVEL: Final = 1
"""The fastest: what a log compresses is mostly text, of which higher levels save little and cost much."""


class Compression(IntEnum):
    """Ways to compress, numbered as stored."""

    NONE = 0
    ZLIB = 1


COMPRESSIONS: Final = tuple(each.name.lower() for each in Compression)
"""Their names in settings."""


def compress(compression: Compression, data: bytes) -> bytes:
    """The compressed bytes."""
    return data if compression is Compression.NONE else zlib.compress(data, _ZLIB_LEVEL)


def decompress(compression: Compression, data: bytes, length: int) -> bytes:
    """The ``length`` bytes that were compressed; :class:`~bkclient.errors.DigestMismatch` if there are more or fewer.

    No more than that is ever allocated, whatever the compressed bytes would become.
    """
    if compression is Compression.NONE:
        found = data
    else:
        machine = zlib.decompressobj()
        try:
            found = machine.decompress(data, length + 1)
        except zlib.error as error:
            raise DigestMismatch(f"the messages of the entry cannot be decompressed: {error}") from error
        if not machine.eof or machine.unused_data:
            raise DigestMismatch("the messages of the entry do not end where they should")
    if len(found) != length:
        raise DigestMismatch(f"the messages of the entry have {len(found)} bytes, not {length}")
    return found

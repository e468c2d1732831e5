"""How the messages of an entry are compressed: by zlib of the standard library, by lz4, zstd or snappy of packages, or not."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from bkclient.errors import ArgumentError, DigestMismatch, IllegalOperation

__all__ = ["COMPRESSIONS", "Compression", "check_available", "compress", "decompress"]

_ZLIB_LEVEL: Final = 1
"""The fastest: what a log compresses is mostly text, of which higher levels save little and cost much."""
_ZSTD_LEVEL: Final = 3
_ZSTD_WINDOW_MAX: Final = 128 * 1024 * 1024
"""Bytes that decompressing may need beside the messages; what zstd's own tool allows."""


class Compression(IntEnum):
    """Ways to compress, numbered as stored."""

    NONE = 0
    ZLIB = 1
    LZ4 = 2
    ZSTD = 3
    SNAPPY = 4


Buffer = bytes | memoryview
COMPRESSIONS: Final = tuple(each.name.lower() for each in Compression)
"""Their names in settings."""

_PACKAGES: Final = {
    Compression.LZ4: ("lz4", "lz4.block"),
    Compression.ZSTD: ("zstandard", "zstandard"),
    Compression.SNAPPY: ("cramjam", "cramjam"),
}
_INSTALL: Final = "Install it: pip install 'bkclient[compression]'."


@cache
def _module(compression: Compression) -> ModuleType | None:
    """What compresses; None if it is not installed."""
    try:
        return import_module(_PACKAGES[compression][1])
    except ImportError:
        return None


def check_available(name: str) -> None:
    """:class:`~bkclient.errors.ArgumentError` if the package of a compression is not installed."""
    compression = Compression[name.upper()]
    if compression in _PACKAGES and _module(compression) is None:
        raise ArgumentError(
            f"compression {name} needs {_PACKAGES[compression][0]}, which is not installed", advice=_INSTALL
        )


def _needed(compression: Compression) -> Any:
    module = _module(compression)
    if module is None:
        package = _PACKAGES[compression][0]
        raise IllegalOperation(
            f"the messages are compressed by {compression.name.lower()}, and {package} is not installed",
            advice=_INSTALL,
        )
    return module


def compress(compression: Compression, data: bytes) -> bytes:
    """The compressed bytes; :class:`~bkclient.errors.IllegalOperation` if the package is not installed."""
    found: bytes
    match compression:
        case Compression.NONE:
            return data
        case Compression.ZLIB:
            return zlib.compress(data, _ZLIB_LEVEL)
        case Compression.LZ4:
            found = _needed(compression).compress(data, store_size=False)
        case Compression.ZSTD:
            found = _needed(compression).ZstdCompressor(level=_ZSTD_LEVEL).compress(data)
        case Compression.SNAPPY:
            found = bytes(_needed(compression).snappy.compress_raw(data))
    return found


def decompress(compression: Compression, data: Buffer, length: int) -> Buffer:
    """The ``length`` bytes that were compressed; :class:`~bkclient.errors.DigestMismatch` if there are more or fewer.

    No more than that is ever allocated, whatever the compressed bytes would become.
    Raises :class:`~bkclient.errors.IllegalOperation` if the package is not installed.
    """
    found = _DECOMPRESS[compression](data, length)
    if len(found) != length:
        raise DigestMismatch(f"the messages of the entry have {len(found)} bytes, not {length}")
    return found


def _stored(data: Buffer, _length: int) -> Buffer:
    return data


def _damaged(error: Exception) -> DigestMismatch:
    failure = DigestMismatch(f"the messages of the entry cannot be decompressed: {error}")
    failure.__cause__ = error
    return failure


def _from_zlib(data: Buffer, length: int) -> bytes:
    machine = zlib.decompressobj()
    try:
        found = machine.decompress(data, length + 1)
    except zlib.error as error:
        raise _damaged(error) from error
    if not machine.eof or machine.unused_data:
        raise DigestMismatch("the messages of the entry do not end where they should")
    return found


def _from_lz4(data: Buffer, length: int) -> bytes:
    lz4 = _needed(Compression.LZ4)
    try:
        found: bytes = lz4.decompress(data, uncompressed_size=length)
    except (lz4.LZ4BlockError, ValueError) as error:
        raise _damaged(error) from error
    return found


def _from_zstd(data: Buffer, length: int) -> bytes:
    zstandard = _needed(Compression.ZSTD)
    try:
        # The package allocates what the frame says that it holds, whatever it is told to allocate at most.
        if zstandard.frame_content_size(data) > length:
            raise DigestMismatch(f"the messages of the entry have more than {length} bytes")
        machine = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX)
        found: bytes = machine.decompress(data, max_output_size=length, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _damaged(error) from error
    return found


def _from_snappy(data: Buffer, length: int) -> bytes:
    cramjam = _needed(Compression.SNAPPY)
    try:
        # A block begins with its length, which the package allocates whatever it is.
        if cramjam.snappy.decompress_raw_len(data) > length:
            raise DigestMismatch(f"the messages of the entry have more than {length} bytes")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise _damaged(error) from error


_DECOMPRESS: Final[dict[Compression, Callable[[Buffer, int], Buffer]]] = {
    Compression.NONE: _stored,
    Compression.ZLIB: _from_zlib,
    Compression.LZ4: _from_lz4,
    Compression.ZSTD: _from_zstd,
    Compression.SNAPPY: _from_snappy,
}

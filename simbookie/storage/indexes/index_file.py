"""The bytes of a ledger's index file, as Apache BookKeeper lays them out. All integers are big-endian.

The first 1024 bytes are a header: ``BKLE``, a version, the ledger's key, bits of its state, and its explicit LAC. What follows
is an array: 8 bytes for each entry id from 0 on, which hold the entry's location in the entry logs, or 0 if it is not stored
here. The array is read and written in *pages* of 1024 locations.

Of the state BookKeeper knows one bit, that the ledger is fenced. The next one is ours, that its content is in limbo; BookKeeper
keeps bits that it does not know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from simbookie.storage.base import StorageError, StorageIOError

__all__ = [
    "HEADER_SIZE",
    "PAGE_SIZE",
    "PAGE_SLOTS",
    "SLOT_BYTES",
    "HeaderFull",
    "IndexDamaged",
    "IndexHeader",
    "index_folder",
    "index_name",
    "ledger_of",
    "page_position",
]

HEADER_SIZE: Final = 1024
SLOT_BYTES: Final = 8
#: Locations in a page, and its bytes.
PAGE_SLOTS: Final = 1024
PAGE_SIZE: Final = PAGE_SLOTS * SLOT_BYTES

_MAGIC: Final = b"BKLE"
_VERSION: Final = 1
_FENCED: Final = 1
_IN_LIMBO: Final = 2
_START: Final = Struct(">4sii")
_INT: Final = Struct(">i")
#: An explicit LAC has at least a ledger id and a LAC.
_EXPLICIT_LAC_MIN: Final = 16
_NAME: Final = re.compile(r"([0-9a-fA-F]{1,16})\.idx")


class IndexDamaged(StorageIOError):
    """An index file holds something else than it should."""


class HeaderFull(StorageError):
    """A key and an explicit LAC are too long together for the header of an index file."""


@dataclass(slots=True)
class IndexHeader:
    """What is known of a ledger apart from its entries. ``master_key`` is ``None`` for a ledger that was never given one."""

    master_key: bytes | None = field(default=None, repr=False)
    fenced: bool = False
    in_limbo: bool = False
    explicit_lac: bytes | None = field(default=None, repr=False)
    version: int = _VERSION

    def encode(self) -> bytes:
        """The header, with zeros up to its size; :class:`HeaderFull` if it does not fit."""
        key, lac = self.master_key or b"", self.explicit_lac or b""
        state = _FENCED * self.fenced | _IN_LIMBO * self.in_limbo
        data = _START.pack(_MAGIC, self.version, len(key)) + key + _INT.pack(state)
        if self.version >= _VERSION:
            data += _INT.pack(len(lac)) + lac
        if len(data) > HEADER_SIZE:
            raise HeaderFull(f"a header with {len(key)} bytes of key and {len(lac)} of explicit LAC is too long")
        return data.ljust(HEADER_SIZE, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> IndexHeader:
        """Parse the start of an index file; :class:`IndexDamaged` if it is none."""
        if len(data) < _START.size:
            raise IndexDamaged(f"an index file begins with a header, here are {len(data)} bytes")
        magic, version, key_size = _START.unpack_from(data)
        if magic != _MAGIC:
            raise IndexDamaged(f"an index file begins with {_MAGIC!r}, this with {magic!r}")
        if not 0 <= version <= _VERSION:
            raise IndexDamaged(f"version {version} of index files is unknown")
        key, offset = _part(data, _START.size, key_size)
        state, offset = _int(data, offset)
        lac = b""
        if version >= _VERSION:
            lac_size, offset = _int(data, offset)
            if 0 < lac_size < _EXPLICIT_LAC_MIN:
                raise IndexDamaged(f"no explicit LAC has {lac_size} bytes")
            lac, _ = _part(data, offset, lac_size)
        return cls(key or None, bool(state & _FENCED), bool(state & _IN_LIMBO), lac or None, version)


def _int(data: bytes, offset: int) -> tuple[int, int]:
    part, end = _part(data, offset, _INT.size)
    return _INT.unpack(part)[0], end


def _part(data: bytes, offset: int, size: int) -> tuple[bytes, int]:
    """``size`` bytes from ``offset`` on, and where they end."""
    if size < 0 or offset + size > len(data):
        raise IndexDamaged(f"the header of an index file ends at {len(data)}, {size} bytes are expected at {offset}")
    return data[offset : offset + size], offset + size


def index_folder(ledger_id: int) -> str:
    """The folder of a ledger's index file, two levels below that of the store: the last two bytes of the id."""
    return f"{ledger_id >> 8 & 0xFF:x}/{ledger_id & 0xFF:x}"


def index_name(ledger_id: int) -> str:
    """Where a ledger's index file is, below the folder of the store."""
    return f"{index_folder(ledger_id)}/{ledger_id:x}.idx"


def ledger_of(name: str) -> int | None:
    """The ledger of the index file with this name, without folders; ``None`` if it is none."""
    match = _NAME.fullmatch(name)
    return int(match[1], 16) if match else None


def page_position(first: int) -> int:
    """Where in the file the page is that begins with entry ``first``."""
    return HEADER_SIZE + first * SLOT_BYTES

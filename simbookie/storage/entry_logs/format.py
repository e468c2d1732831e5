"""The bytes of an entry log, as Apache BookKeeper lays them out. All integers are big-endian.

An entry log begins with a header of 1024 bytes: ``BKLO``, a version, and where the *ledgers map* is. Then come records: a
length of 4 bytes and an entry, which begins with the ids of its ledger and itself. The *location* of an entry is the id of its
log in the upper 32 bits and the position behind its length in the lower ones, so none is 0.

A log that was written past the page cache consists of blocks of 4096 bytes, and its header is one. Behind the first 1024 bytes of
that comes a record of no ledger, so who expects the first entry there finds it behind.

When a log is full, the ledgers map is appended, how many bytes of each ledger the log holds, and the header is told where. The
map is made of records too, of a ledger and an entry that do not exist. A log without a map was being written when its bookie
died.

Files are named by the id of the log, in hexadecimal. ``lastId`` holds the id that was given out last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final

from simbookie.storage.base import StorageIOError

__all__ = [
    "BLOCK_SIZE",
    "HEADER_SIZE",
    "LAST_ID_FILE",
    "LOG_ID_MAX",
    "LOG_SIZE_MAX",
    "MAP_BATCH_MAX",
    "MAP_LEDGER_ID",
    "RECORD_HEAD",
    "SIZE_BYTES",
    "EntryLogDamaged",
    "EntryLogHeader",
    "block_end",
    "compacted_ids",
    "compacted_name",
    "compacting_name",
    "decode_last_id",
    "encode_last_id",
    "encode_ledgers_map",
    "id_after",
    "is_compacting",
    "last_id_in",
    "location_of",
    "log_id_of",
    "log_ids",
    "log_name",
    "parse_compacted_name",
    "parse_map_record",
    "position_of",
]

HEADER_SIZE: Final = 1024
#: What is written at a time to a log that passes by the page cache is a multiple of this; so is the size of its header.
BLOCK_SIZE: Final = 4096
#: Bytes of the length before an entry.
SIZE_BYTES: Final = 4
#: Of a record: length, ledger id, entry id.
RECORD_HEAD: Final = Struct(">iqq")
#: An entry log never grows beyond this many bytes, whatever its limit.
LOG_SIZE_MAX: Final = (1 << 31) - 1
LOG_ID_MAX: Final = (1 << 31) - 1
LAST_ID_FILE: Final = "lastId"
#: The ledger whose records make up the ledgers map, and the entry that each of them is.
MAP_LEDGER_ID: Final = -1
_MAP_ENTRY_ID: Final = -2
#: Ledgers in one record of the map.
MAP_BATCH_MAX: Final = 10_000

_MAGIC: Final = b"BKLO"
_VERSION: Final = 1
_HEADER: Final = Struct(">4siqi")
_MAP_HEAD: Final = Struct(">iqqi")
_MAP_ITEM: Final = Struct(">qq")
_COMPACTING_SUFFIX: Final = ".log.compacting"
_LOG_NAME: Final = re.compile(r"([0-9a-fA-F]+)\.log")
_LAST_ID: Final = re.compile(rb"([0-9a-fA-F]{1,16})(?:\r?\n|$)")
_COMPACTED_NAME: Final = re.compile(r"([0-9a-fA-F]+)\.log\.([0-9a-fA-F]+)\.compacted")


class EntryLogDamaged(StorageIOError):
    """An entry log holds something else than it should."""


@dataclass(frozen=True, slots=True)
class EntryLogHeader:
    """The start of an entry log. ``map_offset`` is 0 until the log is complete."""

    map_offset: int = 0
    ledger_count: int = 0
    version: int = _VERSION

    @property
    def has_map(self) -> bool:
        """Whether the log says where its ledgers map is."""
        return self.version >= _VERSION and self.map_offset != 0

    def encode(self) -> bytes:
        """The header, with zeros up to its size."""
        return _HEADER.pack(_MAGIC, self.version, self.map_offset, self.ledger_count).ljust(HEADER_SIZE, b"\0")

    def encode_block(self) -> bytes:
        """The header of a log that consists of blocks: one block, with a record to skip behind the header of others."""
        skipped = BLOCK_SIZE - HEADER_SIZE - SIZE_BYTES
        return (self.encode() + RECORD_HEAD.pack(skipped, MAP_LEDGER_ID, 0)).ljust(BLOCK_SIZE, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> EntryLogHeader:
        """Parse the start of a log; :class:`EntryLogDamaged` if it is none."""
        if len(data) < _HEADER.size:
            raise EntryLogDamaged(f"an entry log begins with {_HEADER.size} bytes of header, here are {len(data)}")
        magic, version, map_offset, ledger_count = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise EntryLogDamaged(f"an entry log begins with {_MAGIC!r}, this with {magic!r}")
        return cls(map_offset, ledger_count, version)


def encode_ledgers_map(sizes: Mapping[int, int]) -> bytes:
    """The records of the map for ``sizes``, bytes in the log by ledger id."""
    items = list(sizes.items())
    encoded = bytearray()
    for start in range(0, len(items), MAP_BATCH_MAX):
        batch = items[start : start + MAP_BATCH_MAX]
        size = _MAP_HEAD.size - SIZE_BYTES + _MAP_ITEM.size * len(batch)
        encoded += _MAP_HEAD.pack(size, MAP_LEDGER_ID, _MAP_ENTRY_ID, len(batch))
        for ledger_id, ledger_bytes in batch:
            encoded += _MAP_ITEM.pack(ledger_id, ledger_bytes)
    return bytes(encoded)


def parse_map_record(data: bytes) -> list[tuple[int, int]]:
    """``(ledger id, bytes)`` of one record of the map, length included; :class:`EntryLogDamaged` if it is no such record."""
    if len(data) < _MAP_HEAD.size:
        raise EntryLogDamaged(f"a record of the ledgers map has at least {_MAP_HEAD.size} bytes, this one {len(data)}")
    size, ledger_id, entry_id, count = _MAP_HEAD.unpack_from(data)
    if (ledger_id, entry_id) != (MAP_LEDGER_ID, _MAP_ENTRY_ID):
        raise EntryLogDamaged(f"entry {entry_id} of ledger {ledger_id} is no part of a ledgers map")
    if count < 0 or size != len(data) - SIZE_BYTES or size != _MAP_HEAD.size - SIZE_BYTES + _MAP_ITEM.size * count:
        raise EntryLogDamaged(
            f"a record of the ledgers map with {count} ledgers has {size} bytes, read were {len(data)}"
        )
    return list(_MAP_ITEM.iter_unpack(data[_MAP_HEAD.size :]))


def block_end(position: int) -> int:
    """The end of the block that ``position`` bytes reach into."""
    return -(-position // BLOCK_SIZE) * BLOCK_SIZE


def location_of(log_id: int, position: int) -> int:
    """Where the entry is that begins at ``position`` of a log."""
    return log_id << 32 | position


def log_id_of(location: int) -> int:
    """The log that a location is in."""
    return location >> 32


def position_of(location: int) -> int:
    """Where in its log the entry at ``location`` begins, behind its length."""
    return location & 0xFFFF_FFFF


def log_name(log_id: int) -> str:
    """The name of a log's file."""
    return f"{log_id:x}.log"


def log_ids(names: Iterable[str]) -> list[int]:
    """The ids of the logs among the names of a folder, ascending."""
    return sorted(int(match[1], 16) for name in names if (match := _LOG_NAME.fullmatch(name)))


def compacted_ids(names: Iterable[str]) -> list[int]:
    """The ids of the logs that a compaction has written and not yet put in place, ascending."""
    return sorted(int(match[1], 16) for name in names if (match := _COMPACTED_NAME.fullmatch(name)))


def compacting_name(log_id: int) -> str:
    """The name of a log while a compaction fills it."""
    return f"{log_id:x}{_COMPACTING_SUFFIX}"


def compacted_name(log_id: int, source_id: int) -> str:
    """The name of a log that has all that is alive of ``source_id``, until that is not needed any more."""
    return f"{log_name(log_id)}.{source_id:x}.compacted"


def parse_compacted_name(name: str) -> tuple[int, int] | None:
    """The ids of a log with such a name and of its source."""
    match = _COMPACTED_NAME.fullmatch(name)
    return (int(match[1], 16), int(match[2], 16)) if match else None


def is_compacting(name: str) -> bool:
    """Whether a compaction was filling this file."""
    return name.endswith(_COMPACTING_SUFFIX)


def encode_last_id(log_id: int) -> bytes:
    """The content of the file ``lastId``."""
    return f"{log_id:x}\n".encode()


def decode_last_id(data: bytes) -> int | None:
    """The id in the file ``lastId``; ``None`` if there is none to be read."""
    match = _LAST_ID.match(data)
    return int(match[1], 16) if match else None


def last_id_in(ids: Iterable[int]) -> int:
    """The id after which ``ids`` leave the most room, -1 if that is before all of them; ids wrap around."""
    used = sorted(ids)
    if not used:
        return -1
    best, widest = -1, used[0]
    for index, log_id in enumerate(used):
        end = used[index + 1] if index + 1 < len(used) else LOG_ID_MAX
        if end - (log_id + 1) > widest:
            best, widest = log_id, end - (log_id + 1)
    return best


def id_after(log_id: int) -> int:
    """The id that is tried after ``log_id``."""
    return 0 if log_id >= LOG_ID_MAX else log_id + 1

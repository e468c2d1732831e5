"""Reading an entry log from its start to its end, as a compaction, a repair of the ledgers map and tools do.

A scan believes every length: where one is wrong, what follows is read wrongly, or not at all. It ends quietly where the log is
cut short. A length of 0 or less is taken for padding, and the next byte is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

from simbookie.storage.entry_logs.format import (
    BLOCK_SIZE,
    HEADER_SIZE,
    MAP_LEDGER_ID,
    SIZE_BYTES,
    EntryLogDamaged,
    EntryLogHeader,
    parse_map_record,
)

__all__ = ["LogRecord", "ScannedFile", "ledgers_of", "read_header", "read_ledgers_map", "scan"]

_LEDGER_ID_END: Final = SIZE_BYTES + 8
_CHUNK: Final = 1 << 16


class ScannedFile(Protocol):
    """What is needed of a file to scan it."""

    @property
    def size(self) -> int:
        """Its bytes."""
        ...

    def read_now(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset`` on, fewer at the end."""
        ...


class LogRecord(NamedTuple):
    """An entry found by a scan: where its record begins in the log, length included, and whose it is."""

    offset: int
    ledger_id: int
    entry: bytes

    def __repr__(self) -> str:
        """Without the entry, which may be secret."""
        return f"LogRecord(offset={self.offset}, ledger_id={self.ledger_id}, entry=...)"


def _always(_ledger_id: int) -> bool:
    return True


class _Window:
    """Reads a file in chunks, forwards."""

    def __init__(self, file: ScannedFile) -> None:
        self._file = file
        self._start = 0
        self._data = b""

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset`` on; fewer at the end."""
        at = offset - self._start
        if at < 0 or at + size > len(self._data):
            self._start, at = offset, 0
            self._data = self._file.read_now(offset, max(size, _CHUNK))
        return self._data[at : at + size]


def _padding(data: bytes) -> int:
    """How many bytes there are before the next that may begin a record; ``data`` begins with a length of 0 or less."""
    first = data[:1]
    run = len(data) - len(data.lstrip(first))
    return run if first != b"\0" else max(run - SIZE_BYTES + 1, 1)  # a length may begin with zeros


def scan(file: ScannedFile, accepts: Callable[[int], bool] = _always) -> Iterator[LogRecord]:
    """The entries of the ledgers that ``accepts`` is true of; the ledgers map is none."""
    window = _Window(file)
    size = file.size
    offset = HEADER_SIZE
    while offset < size:
        head = window.read(offset, _LEDGER_ID_END)
        if len(head) < _LEDGER_ID_END:
            return
        length = int.from_bytes(head[:SIZE_BYTES], signed=True)
        if length <= 0:
            offset += _padding(window.read(offset, BLOCK_SIZE))
            continue
        ledger_id = int.from_bytes(head[SIZE_BYTES:], signed=True)
        if ledger_id != MAP_LEDGER_ID and accepts(ledger_id):
            if offset + SIZE_BYTES + length > size:
                return
            yield LogRecord(offset, ledger_id, window.read(offset + SIZE_BYTES, length))
        offset += SIZE_BYTES + length


def read_header(file: ScannedFile) -> EntryLogHeader:
    """The header of a log; :class:`EntryLogDamaged` if it has none."""
    return EntryLogHeader.decode(file.read_now(0, HEADER_SIZE))


def read_ledgers_map(file: ScannedFile, *, believes_empty: bool = False) -> dict[int, int]:
    """The ledgers map of a log that is complete; :class:`EntryLogDamaged` if there is none, or not one that can be used.

    With ``believes_empty`` it may have fewer ledgers than the header counts, as in BookKeeper's direct entry logger.
    """
    header = read_header(file)
    if not header.has_map:
        raise EntryLogDamaged("the entry log has no ledgers map")
    sizes: dict[int, int] = {}
    offset = header.map_offset
    while offset < file.size:
        length = int.from_bytes(file.read_now(offset, SIZE_BYTES), signed=True)
        if length <= 0:
            break
        if offset + SIZE_BYTES + length > file.size:
            raise EntryLogDamaged("the ledgers map is cut short")
        for ledger_id, ledger_bytes in parse_map_record(file.read_now(offset, SIZE_BYTES + length)):
            sizes[ledger_id] = sizes.get(ledger_id, 0) + ledger_bytes
        offset += SIZE_BYTES + length
    if not believes_empty and (len(sizes) != header.ledger_count or not sizes):
        raise EntryLogDamaged(f"the ledgers map has {len(sizes)} ledgers, the header counts {header.ledger_count}")
    return sizes


def ledgers_of(file: ScannedFile, *, believes_empty: bool = False) -> dict[int, int]:
    """Bytes by ledger, lengths included: from the ledgers map, or by a scan of a log that has none that can be used."""
    try:
        return read_ledgers_map(file, believes_empty=believes_empty)
    except EntryLogDamaged:
        sizes: dict[int, int] = {}
        for record in scan(file, lambda ledger_id: ledger_id >= 0):
            sizes[record.ledger_id] = sizes.get(record.ledger_id, 0) + SIZE_BYTES + len(record.entry)
        return sizes

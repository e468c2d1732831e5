"""Reading one entry from an entry log: the beginning of its record, which is validated, and then the rest."""

from __future__ import annotations

from typing import Final, Protocol

from simbookie.storage.base import ReadCallback, StorageError, StorageIOError
from simbookie.storage.disk.base import DiskFile
from simbookie.storage.entry_logs.format import (
    RECORD_HEAD,
    SIZE_BYTES,
    EntryLogDamaged,
    log_id_of,
    position_of,
)
from simbookie.storage.entry_logs.readers import BlockReader

__all__ = ["LogEndsEarly", "LogRead", "checked_size"]

#: An entry has at least the ids of its ledger and itself.
_ENTRY_SIZE_MIN: Final = 16


class LogEndsEarly(EntryLogDamaged):
    """An entry log ends before, or within, an entry that should be there."""


class _Logs(Protocol):
    def open_reader(self, log_id: int) -> DiskFile | BlockReader: ...

    def buffered_tail(self, location: int, size: int) -> bytes | None: ...


class LogRead:
    """An entry that is being read."""

    __slots__ = ("_entry_id", "_ledger_id", "_location", "_logger", "_on_read", "_size", "_token")

    def __init__(
        self, logger: _Logs, ledger_id: int, entry_id: int, location: int, on_read: ReadCallback, token: object
    ) -> None:
        self._logger = logger
        self._ledger_id = ledger_id
        self._entry_id = entry_id
        self._location = location
        self._on_read = on_read
        self._token = token
        self._size = 0

    def start(self, head_bytes: int) -> None:
        """Read so many bytes of the record, and then what is missing."""
        try:
            file = self._logger.open_reader(log_id_of(self._location))
        except StorageIOError as error:
            self._on_read(self._token, None, error)
            return
        file.read(position_of(self._location) - SIZE_BYTES, head_bytes, self.head_read, None)

    def head_read(self, _token: object, data: bytes | None, error: StorageError | None) -> None:
        """The beginning is there, and all of a small entry."""
        if data is None:
            self._on_read(self._token, None, error)
            return
        try:
            self._size = checked_size(data, self._ledger_id, self._entry_id, self._location)
        except EntryLogDamaged as damage:
            self._on_read(self._token, None, damage)
            return
        entry = data[SIZE_BYTES : SIZE_BYTES + self._size]
        if len(entry) == self._size:
            self._on_read(self._token, entry, None)
            return
        tail = self._logger.buffered_tail(self._location, self._size)
        if tail is not None:
            self.entry_read(None, tail, None)
            return
        try:
            file = self._logger.open_reader(log_id_of(self._location))
        except StorageIOError as gone:
            self._on_read(self._token, None, gone)
        else:
            file.read(position_of(self._location), self._size, self.entry_read, None)

    def entry_read(self, _token: object, data: bytes | None, error: StorageError | None) -> None:
        """All of it is there."""
        if data is not None and len(data) != self._size:
            where = f"entry {self._entry_id} of ledger {self._ledger_id} in entry log {log_id_of(self._location):x}"
            data, error = None, LogEndsEarly(f"{where} is cut short: {self._size} bytes were expected")
        self._on_read(self._token, data, error)


def checked_size(head: bytes, ledger_id: int, entry_id: int, location: int) -> int:
    """The length of the entry whose record begins with ``head``; :class:`EntryLogDamaged` if it is not the one meant."""
    where = f"entry log {log_id_of(location):x} at {position_of(location)}"
    if len(head) < RECORD_HEAD.size:
        raise LogEndsEarly(f"{where}: the log ends before entry {entry_id} of ledger {ledger_id}")
    size, found_ledger, found_entry = RECORD_HEAD.unpack_from(head)
    if size < _ENTRY_SIZE_MIN:
        raise EntryLogDamaged(f"{where}: no entry has {size} bytes")
    if (found_ledger, found_entry) != (ledger_id, entry_id):
        raise EntryLogDamaged(
            f"{where}: expected entry {entry_id} of ledger {ledger_id}, found entry {found_entry} of ledger {found_ledger}"
        )
    checked: int = size
    return checked

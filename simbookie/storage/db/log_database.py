"""A :class:`~simbookie.storage.db.key_value.KeyValueStore` over a disk: everything in memory, and a log of changes.

Its files have names that count up. Each begins with all there was when it was made, and goes on with what changed. A new one
is made for the first change after a start, and when most of the log is of the past. The old ones go when the new one is
durable; until then the newest whose beginning is whole is the one that counts.

A record has a checksum, and one that a power loss tore ends the log. What lies behind it never counts again, because nothing is
written into a file that was opened.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from struct import Struct
from struct import error as struct_error
from typing import Final
from zlib import crc32

from simbookie.storage.base import DurableCallback, StorageError, StorageIOError
from simbookie.storage.db.key_value import KeyValueBatch
from simbookie.storage.disk.base import Disk, DiskFile
from simbookie.storage.folders import Folder
from simbookie.storage.ledger_store import OnStep, no_step
from simbookie.storage.sequence import Sequence, WaitingStep

__all__ = ["LogDatabase", "is_log_database"]

_HEAD: Final = Struct(">II")
_CHANGE: Final = Struct(">BII")
_PUT, _DELETE, _DELETE_RANGE = range(3)
_NAME: Final = re.compile(r"([0-9a-f]{16})\.changes")
_KIB: Final = 1 << 10
#: What checksums begin with, so that zeros are no record.
_SEED: Final = 0xB00C

_Changes = Iterable[tuple[bytes, bytes | None] | tuple[bytes, bytes, None]]


def is_log_database(disk: Disk, path: str) -> bool:
    """Whether a folder holds the files of one."""
    return any(_NAME.fullmatch(name) for name in disk.names(path))


class LogDatabase:
    """Implements :class:`simbookie.storage.db.key_value.KeyValueStore` in ``folder``.

    A file is replaced when it is larger than ``file_bytes_min`` and four times what its beginning was. Steps:
    ``database.file``, ``database.write``, ``database.sync``, ``database.remove``.
    """

    def __init__(self, folder: Folder, *, file_bytes_min: int = 64 * _KIB, on_step: OnStep = no_step) -> None:
        self._folder = folder
        self._file_bytes_min = file_bytes_min
        self._step = on_step
        self._rows: dict[bytes, bytes] = {}
        #: All keys, ascending; ``None`` after a change, until somebody asks.
        self._ordered: list[bytes] | None = None
        self._file: DiskFile | None = None
        #: The file that has its name for good.
        self._names_durable: DiskFile | None = None
        self._end = self._beginning = 0
        self._failed: StorageError | None = None
        self._syncs: dict[Sequence, None] = {}
        self._life = 0
        #: Files whose place the newest takes when it is durable.
        self._old = sorted(name for name in folder.names() if _NAME.fullmatch(name))
        self._number = int(self._old[-1][:16], 16) if self._old else 0
        self._is_dirty = bool(self._old)
        for name in reversed(self._old):
            file = folder.open(name)
            records = _records(file.read_now(0, file.size))
            file.close()
            beginning = next(records, None)
            if beginning is not None:
                self._apply(beginning)
                for changes in records:
                    self._apply(changes)
                break

    # ----------------------------------------------------------------------------------------------------------- reads

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        return self._rows.get(key)

    def last_before(self, key: bytes) -> tuple[bytes, bytes] | None:
        """The highest key before ``key``."""
        ordered = self._in_order()
        index = bisect_left(ordered, key)
        return (ordered[index - 1], self._rows[ordered[index - 1]]) if index else None

    def items(self, first: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Keys from ``first`` to before ``end``."""
        ordered = self._in_order()
        stop = len(ordered) if end is None else bisect_left(ordered, end)
        for index in range(bisect_left(ordered, first), stop):
            yield ordered[index], self._rows[ordered[index]]

    def _in_order(self) -> list[bytes]:
        if self._ordered is None:
            self._ordered = sorted(self._rows)
        return self._ordered

    # --------------------------------------------------------------------------------------------------------- changes

    def put(self, key: bytes, value: bytes) -> None:
        """Set a value."""
        self._change([(key, value)])

    def delete(self, key: bytes) -> None:
        """Remove a key."""
        self._change([(key, None)])

    def write(self, batch: KeyValueBatch, on_done: DurableCallback, token: object) -> None:
        """Carry out a batch, durably."""
        try:
            self._change(batch.changes)
        except StorageIOError as error:
            self._later(on_done, token, error)
        else:
            self.sync(on_done, token)

    def _change(self, changes: _Changes) -> None:
        if self._failed is not None:
            raise self._failed
        if self._file is None or self._end > max(self._file_bytes_min, 4 * self._beginning):
            self._begin_file()
        assert self._file is not None
        self._step("database.write")
        record = _encode(changes)
        self._file.write(self._end, record)
        self._end += len(record)
        self._is_dirty = True
        self._apply(changes)

    def _apply(self, changes: _Changes) -> None:
        for change in changes:
            if len(change) == 3:
                for key, _ in list(self.items(change[0], change[1])):
                    del self._rows[key]
            elif change[1] is None:
                self._rows.pop(change[0], None)
            else:
                if change[0] not in self._rows:
                    self._ordered = None
                self._rows[change[0]] = change[1]
                continue
            self._ordered = None

    def _begin_file(self) -> None:
        self._step("database.file")
        self._number += 1
        name = f"{self._number:016x}.changes"
        file = self._folder.create(name)
        record = _encode(self._rows.items())
        try:
            file.write(0, record)
        except StorageIOError:
            file.close()
            with suppress(StorageIOError):  # the error told is the first
                self._folder.remove(name)
            raise
        if self._file is not None:
            self._old.append(self._file.path.rpartition("/")[2])
            self._file.close()
        self._file, self._end, self._beginning = file, len(record), len(record)

    # ------------------------------------------------------------------------------------------------------------ syncs

    def compact(self, on_done: DurableCallback, token: object) -> None:
        """Nothing is to be done: a file is replaced when most of it is of the past."""
        self._later(on_done, token, None)

    def sync(self, on_done: DurableCallback, token: object) -> None:
        """Make durable what was changed, or loaded."""
        if self._failed is not None or not (self._is_dirty or self._syncs):
            self._later(on_done, token, self._failed)
            return
        try:
            if self._file is None:
                self._begin_file()
        except StorageIOError as error:
            self._later(on_done, token, error)
            return
        self._is_dirty = False
        sequence: Sequence

        def done(_token: object, error: StorageError | None) -> None:
            del self._syncs[sequence]
            if error is not None:
                self._failed = error  # what the operating system dropped is not written by a second sync
            on_done(token, error)

        sequence = Sequence(self._sync_steps(), done, None)
        self._syncs[sequence] = None

    def _sync_steps(self) -> Iterator[WaitingStep]:
        file, old = self._file, list(self._old)
        assert file is not None
        self._step("database.sync")
        yield lambda go_on: file.sync(go_on, None)
        if self._names_durable is file:
            return
        yield self._folder.sync
        self._names_durable = file
        for name in old:
            if name in self._old:
                self._step("database.remove")
                with suppress(StorageIOError):  # one that stays counts for nothing, and goes after the next start
                    self._folder.remove(name)
                self._old.remove(name)

    def _later(self, on_done: DurableCallback, token: object, error: StorageError | None) -> None:
        life = self._life

        def call_back() -> None:
            if life == self._life:
                on_done(token, error)

        asyncio.get_running_loop().call_soon(call_back)

    def close(self) -> None:
        """Let go of the file."""
        self.crash()
        if self._file is not None:
            self._file.close()

    def crash(self) -> None:
        """Call nobody back."""
        self._life += 1
        for sequence in self._syncs:
            sequence.cancel()
        self._syncs.clear()


def _encode(changes: _Changes) -> bytes:
    parts: list[bytes] = []
    for change in changes:
        kind = _DELETE_RANGE if len(change) == 3 else _DELETE if change[1] is None else _PUT
        second = change[1] or b""
        parts += (_CHANGE.pack(kind, len(change[0]), len(second)), change[0], second)
    body = b"".join(parts)
    return _HEAD.pack(len(body), crc32(body, _SEED)) + body


def _records(data: bytes) -> Iterator[_Changes]:
    """The changes of each whole record, up to the first that is not."""
    offset = 0
    while offset + _HEAD.size <= len(data):
        size, checksum = _HEAD.unpack_from(data, offset)
        body = data[offset + _HEAD.size : offset + _HEAD.size + size]
        if len(body) < size or crc32(body, _SEED) != checksum:
            return
        yield list(_changes(body))
        offset += _HEAD.size + size


def _changes(body: bytes) -> Iterator[tuple[bytes, bytes | None] | tuple[bytes, bytes, None]]:
    offset = 0
    try:
        while offset < len(body):
            kind, first_size, second_size = _CHANGE.unpack_from(body, offset)
            middle = offset + _CHANGE.size + first_size
            first, second = body[offset + _CHANGE.size : middle], body[middle : middle + second_size]
            offset = middle + second_size
            if kind == _DELETE_RANGE:
                yield first, second, None
            else:
                yield first, None if kind == _DELETE else second
    except struct_error as error:
        raise StorageIOError(f"a record of a database is damaged: {error}") from error

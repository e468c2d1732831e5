"""Entry logs that are open to be read: so many at a time, the one read longest ago goes first.

A log that passes by the page cache has nobody to keep what was read of it. So of each that is open one block is kept, as large as
BookKeeper's read buffers, and reads bring whole blocks.
"""

from __future__ import annotations

import asyncio

from simbookie.storage.base import ReadCallback, StorageError
from simbookie.storage.disk.base import DiskFile
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.entry_logs.format import BLOCK_SIZE, EntryLogDamaged, block_end, log_name
from simbookie.storage.folders import Folders

__all__ = ["BlockReader", "LogReaders"]


class BlockReader:
    """Reads ``file`` in blocks of ``block_bytes``, and keeps the last one. What a log has is only ever appended to."""

    def __init__(self, file: DiskFile, block_bytes: int) -> None:
        self._file = file
        self._block_bytes = block_end(block_bytes)
        self._start = 0
        self._block = b""

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._file.size

    def read_now(self, offset: int, size: int) -> bytes:
        """What :meth:`read` would bring, from the file."""
        return self._file.read_now(offset, size)

    def read(self, offset: int, size: int, on_read: ReadCallback, token: object) -> None:
        """Up to ``size`` bytes from ``offset`` on, fewer at the end of the file."""
        at = offset - self._start
        if at >= 0 and at + size <= len(self._block):
            on_read(token, self._block[at : at + size], None)
            return
        start = offset - offset % self._block_bytes
        end = -(-(offset + size) // self._block_bytes) * self._block_bytes

        def came(_token: object, data: bytes | None, error: StorageError | None) -> None:
            if data is None:
                on_read(token, None, error)
                return
            last = (max(len(data) - 1, 0) // self._block_bytes) * self._block_bytes
            self._start, self._block = start + last, data[last:]
            on_read(token, data[offset - start : offset - start + size], None)

        self._file.read(start, end - start, came, None)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class LogReaders:
    """The logs in ``folders`` that are open to be read."""

    def __init__(self, folders: Folders, config: EntryLogConfig) -> None:
        self._folders = folders
        direct = config.direct
        self._block_bytes = max(direct.block_bytes, BLOCK_SIZE) if direct is not None else 0
        self._count_max = direct.read_bytes // direct.block_bytes if direct is not None else config.open_logs_max
        self._idle_s = direct.idle_s if direct is not None else None
        #: And when each was read, the one read longest ago first.
        self._open: dict[int, tuple[DiskFile | BlockReader, float]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def get(self, log_id: int) -> DiskFile | BlockReader:
        """A log; :class:`~simbookie.storage.entry_logs.format.EntryLogDamaged` if there is none. Not to be kept."""
        now = asyncio.get_running_loop().time() if self._idle_s is not None else 0.0
        found = self._open.pop(log_id, None)
        file = found[0] if found is not None else self._open_log(log_id)
        self._open[log_id] = (file, now)
        while len(self._open) > self._count_max or self._is_idle(now):
            self.close(next(iter(self._open)))
        return file

    def _is_idle(self, now: float) -> bool:
        return self._idle_s is not None and next(iter(self._open.values()))[1] <= now - self._idle_s

    def _open_log(self, log_id: int) -> DiskFile | BlockReader:
        file = self.open_alone(log_id)
        if not self._block_bytes:
            return file
        file.pass_by_cache()
        return BlockReader(file, self._block_bytes)

    def open_alone(self, log_id: int) -> DiskFile:
        """A log that the caller closes."""
        folder = self._folders.find(log_name(log_id))
        if folder is None:
            raise EntryLogDamaged(f"entry log {log_id:x} does not exist")
        return folder.open(log_name(log_id))

    def close(self, log_id: int) -> None:
        """Let go of a log, if it is open."""
        found = self._open.pop(log_id, None)
        if found is not None:
            found[0].close()

    def close_all(self) -> None:
        """Let go of all."""
        for log_id in list(self._open):
            self.close(log_id)

    def forget(self) -> None:
        """Forget all: their files died with the disk."""
        self._open.clear()

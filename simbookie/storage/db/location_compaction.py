"""Compaction of the databases that say where entries are, as an operator asks for it: one for each part of a store."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from simbookie.storage.base import StorageError
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.directory import DirectoryDisk
from simbookie.storage.folders import Folder

__all__ = ["LocationCompactions"]

_log: Final = logging.getLogger(__name__)


class LocationCompactions:
    """Those of ``store`` in ``folders``, while it serves. Must be made inside a running loop."""

    def __init__(self, store: DbLedgerStore, folders: tuple[Folder, ...]) -> None:
        self._databases = {
            _place(folder): shard.locations.database for folder, shard in zip(folders, store.shards, strict=True)
        }
        self._running: set[str] = set()
        #: How many were done, by the path of the database, and when the last one was, on the loop's clock.
        self.done = dict.fromkeys(self._databases, 0)
        self.ended_at: dict[str, float] = {}

    @property
    def running(self) -> dict[str, bool]:
        """By the path of each database whether it is compacted."""
        return {path: path in self._running for path in self._databases}

    def begin(self, path: str) -> None:
        """Compact a database, unless that is under way."""
        if path not in self._running:
            self._running.add(path)
            self._databases[path].compact(partial(self._ended, path), None)

    def _ended(self, path: str, _token: object, error: StorageError | None) -> None:
        self._running.discard(path)
        if error is not None:
            _log.warning("%s could not be compacted: %s", path, error)
            return
        self.done[path] += 1
        self.ended_at[path] = asyncio.get_running_loop().time()


def _place(folder: Folder) -> str:
    path = folder.file("locations")
    return str(folder.disk.root / path) if isinstance(folder.disk, DirectoryDisk) else path

"""Compaction of a database that says where entries are, when it is due or an operator asks for it."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from simbookie.storage.base import StorageError
from simbookie.storage.db.key_value import KeyValueStore

__all__ = ["LocationCompaction"]

_log: Final = logging.getLogger(__name__)


class LocationCompaction:
    """That of ``database``, which is in the folder ``path``."""

    def __init__(self, path: str, database: KeyValueStore) -> None:
        self.path = path
        self._database = database
        self.is_running = False
        #: How often it was done, and when it ended last, on the loop's clock.
        self.done = 0
        self.ended_at: float | None = None

    def begin(self) -> None:
        """Compact the database, unless that is under way."""
        if not self.is_running:
            self.is_running = True
            self._database.compact(self._ended, None)

    def _ended(self, _token: object, error: StorageError | None) -> None:
        self.is_running = False
        if error is not None:
            _log.warning("%s could not be compacted: %s", self.path, error)
            return
        self.done += 1
        self.ended_at = asyncio.get_running_loop().time()

"""The status of a bookie on disk: whether it was read-only, and whether somebody had switched it so.

BookKeeper's text, a line of comma separated values in a file of each ledger folder, of which the newest counts. It is written
without a sync, and one that cannot be written or read is passed over, as there.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from simbookie.storage.base import StorageError
from simbookie.storage.folders import Folder

__all__ = ["STATUS_FILE", "BookieStatus", "read_status", "write_status"]

_log: Final = logging.getLogger(__name__)

STATUS_FILE: Final = "BOOKIE_STATUS"
_LINE: Final = re.compile(r"1,(READ_ONLY|READ_WRITE), *([0-9]{1,19}) *(?:, *(true|false) *)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BookieStatus:
    """What a bookie remembers of its mode, as of ``at_ms`` since 1970."""

    read_only: bool
    by_hand: bool
    at_ms: int

    def encode(self) -> bytes:
        """The text of a file."""
        mode = "READ_ONLY" if self.read_only else "READ_WRITE"
        return f"1,{mode},{self.at_ms},{str(self.by_hand).lower()}\n".encode()

    @classmethod
    def decode(cls, data: bytes) -> BookieStatus | None:
        """What a file says; ``None`` if that is no status. One without an author was written by hand."""
        found = _LINE.fullmatch(data.partition(b"\n")[0].decode("latin-1"))
        if found is None:
            return None
        mode, at_ms, by_hand = found.groups()
        return cls(mode == "READ_ONLY", by_hand is None or by_hand.lower() == "true", int(at_ms))


def read_status(folders: Sequence[Folder]) -> BookieStatus | None:
    """The newest status in ``folders``."""
    found = []
    for folder in folders:
        try:
            status = BookieStatus.decode(folder.read_small(STATUS_FILE) or b"")
        except StorageError as error:
            _log.warning("the status in %s cannot be read: %s", folder.path, error)
            continue
        if status is not None:
            found.append(status)
    return max(found, key=lambda status: status.at_ms, default=None)


def write_status(folders: Sequence[Folder], status: BookieStatus) -> None:
    """Write ``status`` to all of ``folders`` that take it."""
    for folder in folders:
        try:
            folder.write_small(STATUS_FILE, status.encode())
        except StorageError as error:
            _log.warning("the status cannot be written to %s: %s", folder.path, error)

"""The folder that a bookie process keeps its data in, laid out as a bookie of BookKeeper has it.

``journal/current`` holds the journal, ``ledgers/current`` entry logs, indexes and marks. Two files are ours: ``lock``, which
keeps a second process out as long as the first one lives, and ``bookie-id``, because ledgers are registered under that.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from simbookie.storage.base import StorageError
from simbookie.storage.conf import StorageConf
from simbookie.storage.disk.directory import DirectoryDisk
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.journaled import JournaledConfig, JournaledStorage
from simbookie.storage.sorted import SortedLedgerStore

__all__ = ["DataFolderError", "data_folder"]


class DataFolderError(StorageError):
    """A folder cannot be used for a bookie's data."""


@contextmanager
def data_folder(
    root: Path,
    bookie_id: str,
    conf: StorageConf,
    *,
    clock_ms: Callable[[], int],
    rng: Random,
    on_fatal: Callable[[StorageError], None],
) -> Iterator[JournaledStorage]:
    """The storage in ``root``, which is made if it is missing, while the block lasts.

    :class:`DataFolderError` if another process uses it, or if it is another bookie's.
    """
    root.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataFolderError(f"{root} is in use by another process") from None
        _claim(root / "bookie-id", bookie_id)
        disk = DirectoryDisk(root)
        ledgers = Folder(disk, "ledgers/current")
        yield JournaledStorage(
            [Folder(disk, "journal/current")],
            [ledgers],
            SortedLedgerStore(Folders([ledgers], rng), conf.store),
            JournaledConfig(
                journal=conf.journal,
                flush_interval_s=conf.flush_interval_s,
                space=conf.space,
                compaction=conf.compaction,
            ),
            clock_ms=clock_ms,
            on_fatal=on_fatal,
        )
    finally:
        os.close(descriptor)  # ends the lock


def _claim(path: Path, bookie_id: str) -> None:
    if not path.exists():
        path.write_text(f"{bookie_id}\n")
    owner = path.read_text().strip()
    if owner != bookie_id:
        raise DataFolderError(f"{path.parent} is the data of bookie {owner}, not of {bookie_id}; use --id {owner}")

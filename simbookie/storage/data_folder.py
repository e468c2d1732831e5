"""The folder that a bookie process keeps its data in, laid out as a bookie of BookKeeper has it.

``journal/current`` holds the journal, ``ledgers/current`` entry logs, indexes and marks. One file is ours: ``lock``, which
keeps a second process out as long as the first one lives. Whose folder it is cookies say (:mod:`simbookie.cookies`).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from bkclient.metadata.records import Cookie
from simbookie.storage.base import StorageError
from simbookie.storage.conf import StorageConf
from simbookie.storage.db.key_value import OpenDatabase
from simbookie.storage.db.rocks import require_rocksdb, rocks_databases
from simbookie.storage.disk.directory import DirectoryDisk
from simbookie.storage.folders import Folder
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.volume import DataFolderError, storage_on_disk

__all__ = ["DataFolderError", "cookie_of", "data_folder"]


def cookie_of(root: Path, bookie_id: str) -> Cookie:
    """The cookie of a bookie whose data is in ``root``, but for the cluster's instance id."""
    place = Path(os.path.abspath(root))  # noqa: PTH100  links stay, as they do in BookKeeper
    return Cookie(bookie_id, (str(place / "journal"),), (str(place / "ledgers"),))


@contextmanager
def data_folder(
    root: Path,
    conf: StorageConf,
    *,
    clock_ms: Callable[[], int],
    rng: Random,
    on_fatal: Callable[[StorageError], None],
) -> Iterator[JournaledStorage]:
    """The storage in ``root``, which is made if it is missing, while the block lasts.

    :class:`DataFolderError` if another process uses it, or if its files are those of another kind of store.
    """

    def databases(folder: Folder) -> OpenDatabase:
        require_rocksdb()
        return rocks_databases(root / folder.path)

    root.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataFolderError(f"{root} is in use by another process") from None
        yield storage_on_disk(
            DirectoryDisk(root),
            conf,
            clock_ms=clock_ms,
            rng=rng,
            on_fatal=on_fatal,
            databases=databases,
        )
    finally:
        os.close(descriptor)  # ends the lock

"""The folder that a bookie process keeps its data in, laid out as a bookie of BookKeeper has it.

``journal/current`` holds the journal, ``ledgers/current`` entry logs, indexes and marks. One file is ours: ``lock``, which
keeps a second process out as long as the first one lives. Whose folder it is cookies say (:mod:`simbookie.cookies`).

The kind of ledger store is the one that is asked for, or that whose files are there. Two kinds that do not find each other's
entries never share a folder: a bookie would deny what it has acknowledged.
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
from simbookie.storage.db.rocks import require_rocksdb, rocks_databases
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.directory import DirectoryDisk
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.interleaved import InterleavedLedgerStore
from simbookie.storage.journaled import JournaledConfig, JournaledStorage
from simbookie.storage.kinds import StoreKind
from simbookie.storage.ledger_store import LedgerStore
from simbookie.storage.sorted import SortedLedgerStore

__all__ = ["DataFolderError", "cookie_of", "data_folder"]


class DataFolderError(StorageError):
    """A folder cannot be used for a bookie's data."""


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
    root.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataFolderError(f"{root} is in use by another process") from None
        disk = DirectoryDisk(root)
        ledgers = Folder(disk, "ledgers/current")
        yield JournaledStorage(
            [Folder(disk, "journal/current")],
            [ledgers],
            _store(root, ledgers, conf, rng),
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


def _store(root: Path, ledgers: Folder, conf: StorageConf, rng: Random) -> LedgerStore:
    """The store whose files are there, or that is asked for."""
    found = StoreKind.found_in(ledgers)
    kind = conf.kind or found or StoreKind.SORTED
    if found is not None and not kind.reads(found):
        raise DataFolderError(
            f"{root} has the files of a store of kind {found.value}, and one of kind {kind.value} would find nothing there; "
            f"use --storage {found.value}, or another folder"
        )
    folders = Folders([ledgers], rng)
    if kind is StoreKind.DB:
        require_rocksdb()
        return DbLedgerStore(folders, conf.db, databases=lambda folder: rocks_databases(root / folder.path))
    if kind is StoreKind.INTERLEAVED:
        return InterleavedLedgerStore(folders, conf.store.interleaved)
    return SortedLedgerStore(folders, conf.store)

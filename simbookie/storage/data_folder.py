"""The folders that a bookie process keeps its data in, laid out as a bookie of BookKeeper has them.

There is one folder for everything, ``journal/current`` in it for the journal and ``ledgers/current`` for entry logs, indexes and
marks; or those that a configuration file of BookKeeper names, several of each kind if it does, ``current`` in every one. One file
is ours: ``lock``, which keeps a second process out as long as the first one lives. Whose folders they are cookies say
(:mod:`simbookie.cookies`).
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, Self

from bkclient.metadata.records import Cookie
from simbookie.storage.base import StorageError
from simbookie.storage.conf import StorageConf
from simbookie.storage.db.key_value import OpenDatabase
from simbookie.storage.db.rocks import require_rocksdb, rocks_databases
from simbookie.storage.disk.base import Disk
from simbookie.storage.disk.directory import DirectoryDisk
from simbookie.storage.folders import Folder
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.volume import JOURNALS, LEDGERS, DataFolderError, storage_in

__all__ = ["FOLDER_KEYS", "DataFolderError", "DataPlaces", "cookie_of", "data_folder"]

_log: Final = logging.getLogger(__name__)
_JOURNAL_KEYS: Final = ("journalDirectories", "journalDirectory")
_LEDGERS_KEY: Final = "ledgerDirectories"
_INDEXES_KEY: Final = "indexDirectories"
_CURRENT: Final = "current"
#: The keys that name folders.
FOLDER_KEYS: Final = frozenset([*_JOURNAL_KEYS, _LEDGERS_KEY, _INDEXES_KEY])


@dataclass(frozen=True, slots=True)
class DataPlaces:
    """Where the data of a bookie is.

    ``journals`` and ``ledgers`` are the directories by the names that its cookie has; a directory may be both. ``root`` is the
    one folder that holds them, if there is one. ``indexes`` are those of index files or databases, if not the ledgers'.
    """

    journals: tuple[Path, ...]
    ledgers: tuple[Path, ...]
    root: Path | None = None
    indexes: tuple[Path, ...] = ()

    @classmethod
    def inside(cls, root: Path) -> Self:
        """Everything in one folder."""
        place = _absolute(root)
        return cls((place / "journal",), (place / "ledgers",), root)

    @classmethod
    def of_conf(cls, conf: Mapping[str, str]) -> Self | None:
        """What ``conf`` names by BookKeeper's keys, ``None`` if nothing; :class:`ValueError` if it names but half of it."""
        journals = _paths(next((conf[key] for key in _JOURNAL_KEYS if key in conf), ""))
        ledgers = _paths(conf.get(_LEDGERS_KEY, ""))
        indexes = _paths(conf.get(_INDEXES_KEY, ""))
        if not journals and not ledgers and not indexes:
            return None
        if not journals or not ledgers:
            raise ValueError(f"storage: {_JOURNAL_KEYS[0]} and {_LEDGERS_KEY} must both be named, or neither")
        return cls(journals, ledgers, None, indexes if indexes != ledgers else ())

    def __str__(self) -> str:
        return (
            str(self.root)
            if self.root is not None
            else ", ".join(map(str, dict.fromkeys((*self.journals, *self.ledgers, *self.indexes))))
        )

    @property
    def locked(self) -> tuple[Path, ...]:
        """The folders that have a lock."""
        if self.root is not None:
            return (self.root,)
        return tuple(dict.fromkeys((*self.journals, *self.ledgers, *self.indexes)))

    def folders(
        self, disk_of: Callable[[Path], Disk] = DirectoryDisk
    ) -> tuple[list[Folder], list[Folder], list[Folder]]:
        """Those of journals, of ledgers, and of indexes where these are others; what is named twice is one."""
        if self.root is not None:
            disk = disk_of(self.root)
            return [Folder(disk, JOURNALS)], [Folder(disk, LEDGERS)], []
        known = {path: Folder(disk_of(path), _CURRENT) for path in self.locked}
        journals, ledgers, indexes = (
            [known[path] for path in each] for each in (self.journals, self.ledgers, self.indexes)
        )
        return journals, ledgers, indexes


def _paths(text: str) -> tuple[Path, ...]:
    paths = tuple(_absolute(Path(each.strip())) for each in text.split(",") if each.strip())
    if len(set(paths)) < len(paths):
        raise ValueError(f"storage: a folder is named twice in {text}")
    return paths


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  links stay, as they do in BookKeeper


def cookie_of(places: DataPlaces, bookie_id: str) -> Cookie:
    """The cookie of a bookie whose data is in ``places``, but for the cluster's instance id."""
    indexes = tuple(map(str, places.indexes)) or None
    return Cookie(bookie_id, tuple(map(str, places.journals)), tuple(map(str, places.ledgers)), index_dirs=indexes)


@contextmanager
def data_folder(
    places: DataPlaces,
    conf: StorageConf,
    *,
    clock_ms: Callable[[], int],
    rng: Random,
    on_fatal: Callable[[StorageError], None],
) -> Iterator[JournaledStorage]:
    """The storage in ``places``, which are made if they are missing, while the block lasts.

    :class:`DataFolderError` if another process uses one of them, or if the files are those of another kind of store.
    """

    def databases(folder: Folder) -> OpenDatabase:
        require_rocksdb()
        assert isinstance(folder.disk, DirectoryDisk)
        return rocks_databases(folder.disk.root / folder.path, conf.db)

    with ExitStack() as locks:
        for path in places.locked:
            locks.enter_context(_locked(path))
        journals, ledgers, indexes = places.folders()
        storage = storage_in(
            journals,
            ledgers,
            conf,
            clock_ms=clock_ms,
            rng=rng,
            on_fatal=on_fatal,
            databases=databases,
            indexes=indexes,
        )
        storage.on_checkpoint_failed = partial(_log_failed_checkpoint, places)
        yield storage


def _log_failed_checkpoint(places: DataPlaces, error: StorageError) -> None:
    _log.warning("%s: a checkpoint failed, so the journals stay as they are until one succeeds: %s", places, error)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataFolderError(f"{folder} is in use by another process") from None
        yield
    finally:
        os.close(descriptor)  # ends the lock

"""A bookie's storage on any disk, laid out as in a folder of data: ``journal/current`` and ``ledgers/current``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from simbookie.storage.base import StorageError
from simbookie.storage.conf import StorageConf
from simbookie.storage.db.key_value import OpenDatabase
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.base import Disk
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.interleaved import InterleavedLedgerStore
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.journaled_config import JournaledConfig
from simbookie.storage.kinds import StoreKind
from simbookie.storage.ledger_store import LedgerStore, OnStep, no_step
from simbookie.storage.sorted import SortedLedgerStore

__all__ = ["JOURNALS", "LEDGERS", "DataFolderError", "storage_in", "storage_on_disk"]

#: Where a disk has the journal, and where entry logs, indexes and marks.
JOURNALS: Final = "journal/current"
LEDGERS: Final = "ledgers/current"


class DataFolderError(StorageError):
    """A folder, or a disk, cannot be used for a bookie's data."""


def storage_on_disk(
    disk: Disk,
    conf: StorageConf,
    *,
    clock_ms: Callable[[], int],
    rng: Random,
    on_fatal: Callable[[StorageError], None] | None = None,
    on_step: OnStep = no_step,
    databases: Callable[[Folder], OpenDatabase] | None = None,
) -> JournaledStorage:
    """The storage whose files are on ``disk``, or a new one; otherwise like :func:`storage_in`."""
    return storage_in(
        [Folder(disk, JOURNALS)],
        [Folder(disk, LEDGERS)],
        conf,
        clock_ms=clock_ms,
        rng=rng,
        on_fatal=on_fatal,
        on_step=on_step,
        databases=databases,
    )


def storage_in(
    journals: Sequence[Folder],
    ledgers: Sequence[Folder],
    conf: StorageConf,
    *,
    clock_ms: Callable[[], int],
    rng: Random,
    on_fatal: Callable[[StorageError], None] | None = None,
    on_step: OnStep = no_step,
    databases: Callable[[Folder], OpenDatabase] | None = None,
    indexes: Sequence[Folder] = (),
) -> JournaledStorage:
    """The storage whose files are in these folders, or a new one, as ``conf`` says; ``databases`` are those of stores with some.

    Index files or databases are in ``indexes``, or with the entry logs; of databases, in the one at the same place as theirs.

    The kind of ledger store is the one that is asked for, or that whose files are there. Two kinds that do not find each other's
    entries never share a folder: a bookie would deny what it has acknowledged. :class:`DataFolderError` if they would.
    """
    found = next((kind for kind in map(StoreKind.found_in, indexes or ledgers) if kind is not None), None)
    kind = conf.kind or found or StoreKind.SORTED
    if found is not None and not kind.reads(found):
        raise DataFolderError(
            f"the files of a store of kind {found.value} are here, and one of kind {kind.value} would find nothing there; "
            f"use --storage {found.value}, or another folder"
        )
    folders = Folders(ledgers, rng)
    index_folders = Folders(indexes, rng) if indexes else None
    store: LedgerStore
    if kind is StoreKind.DB:
        if indexes and len(indexes) != len(ledgers):
            raise DataFolderError(
                f"a store with databases needs as many folders for them as for its logs, {len(ledgers)}, not {len(indexes)}: "
                f"see indexDirectories and ledgerDirectories"
            )
        store = DbLedgerStore(folders, conf.db, databases=databases, index_folders=index_folders, on_step=on_step)
    elif kind is StoreKind.INTERLEAVED:
        store = InterleavedLedgerStore(folders, conf.store.interleaved, index_folders=index_folders, on_step=on_step)
    else:
        store = SortedLedgerStore(folders, conf.store, index_folders=index_folders, on_step=on_step)
    return JournaledStorage(
        journals,
        ledgers,
        store,
        JournaledConfig(
            journal=conf.journal,
            flush_interval_s=conf.flush_interval_s,
            space=conf.space,
            compaction=conf.compaction,
        ),
        clock_ms=clock_ms,
        on_fatal=on_fatal,
        on_step=on_step,
        index_folders=indexes,
    )

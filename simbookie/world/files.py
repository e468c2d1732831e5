"""Storages of bookies that keep their entries in files, on a simulated disk of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from simbookie.storage.base import LedgerStorage, StorageError
from simbookie.storage.db.settings import DbConfig
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk
from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.indexes.ledger_cache import IndexConfig
from simbookie.storage.interleaved import InterleavedConfig, InterleavedLedgerStore
from simbookie.storage.journal.settings import JournalSettings
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.journaled_config import JournaledConfig
from simbookie.storage.kinds import StoreKind
from simbookie.storage.ledger_store import LedgerStore, OnStep, no_step
from simbookie.storage.sorted import SortedConfig, SortedLedgerStore

__all__ = ["FilesConfig", "disk_of", "storage_in_files"]

_MIB: Final = 1 << 20
_JOURNAL_STEP_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class FilesConfig:
    """What the disk of such a bookie costs, and how much it has of everything. Times in seconds, sizes in bytes.

    :class:`ValueError` for what the storage refuses.
    """

    #: What a sync takes, and what a read takes of something that is not in the page cache.
    sync_s: float = 0.0007
    read_s: float = 0.0
    #: Whether entries are journalled before they are acknowledged.
    journal_entries: bool = True
    #: How long a record waits for company in its journal.
    group_wait_s: float = 0.0005
    #: Between checkpoints, where the store does not ask for them.
    flush_interval_s: float = 10.0
    #: An entry log is closed before it grows beyond this.
    log_bytes: int = _MIB
    #: What is buffered of an entry log, and of a journal, before it is written.
    log_buffer_bytes: int = 65_536
    journal_buffer_bytes: int = 65_536
    #: Of a sorted store, a memtable; of one with a database, half of the write cache and of the read cache.
    memtable_bytes: int = _MIB
    #: Pages of indexes in memory, and index files that are open.
    index_pages: int = 1_024
    index_files: int = 1_024

    def __post_init__(self) -> None:
        _ = self.journal, self.costs, *(self.store(kind, _nowhere()) for kind in StoreKind)

    @property
    def costs(self) -> DiskCosts:
        """What the disk takes its time for."""
        return DiskCosts(sync_s=self.sync_s, read_s=self.read_s)

    @property
    def journal(self) -> JournaledConfig:
        """Settings of journals and checkpoints."""
        journal = JournalSettings(
            file_bytes_max=_MIB,
            preallocation_bytes=_JOURNAL_STEP_BYTES,
            write_buffer_bytes=self.journal_buffer_bytes,
            group_wait_max_s=self.group_wait_s,
            write_data=self.journal_entries,
        )
        return JournaledConfig(journal=journal, flush_interval_s=self.flush_interval_s)

    def store(self, kind: StoreKind, folders: Folders, on_step: OnStep = no_step) -> LedgerStore:
        """A ledger store of this kind; ``on_step`` is told of every step that a crash may come before."""
        logs = EntryLogConfig(log_size_max=self.log_bytes, write_buffer_bytes=self.log_buffer_bytes)
        index = IndexConfig(pages_max=self.index_pages, open_files_max=self.index_files)
        if kind is StoreKind.INTERLEAVED:
            return InterleavedLedgerStore(folders, InterleavedConfig(logs, index), on_step=on_step)
        if kind is StoreKind.SORTED:
            interleaved = InterleavedConfig(logs, index)
            return SortedLedgerStore(folders, SortedConfig(self.memtable_bytes, interleaved), on_step=on_step)
        cache_bytes = 2 * self.memtable_bytes
        config = DbConfig(write_cache_bytes=cache_bytes, read_cache_bytes=cache_bytes, entry_log=logs)
        return DbLedgerStore(folders, config, on_step=on_step)


def _nowhere() -> Folders:
    return Folders([Folder(SimulatedDisk(), "ledgers/current")], Random(0))  # noqa: S311  nothing is chosen


def disk_of(storage: LedgerStorage) -> SimulatedDisk:
    """The disk of a storage that :func:`storage_in_files` has made."""
    assert isinstance(storage, JournaledStorage), "it keeps files"
    disk = storage.journal_folders[0].disk
    assert isinstance(disk, SimulatedDisk), "it is simulated"
    return disk


def storage_in_files(
    kind: StoreKind,
    config: FilesConfig,
    rng: Random,
    *,
    on_step: OnStep = no_step,
    on_fatal: Callable[[StorageError], None] | None = None,
) -> JournaledStorage:
    """A storage of this kind on a disk of its own, which outlives crashes.

    ``rng`` decides what of the unsynced survives a power loss. ``on_fatal`` is told when a journal ends for an error.
    """
    disk = SimulatedDisk(rng, costs=config.costs)
    ledgers = Folder(disk, "ledgers/current")
    store = config.store(kind, Folders([ledgers], rng), on_step)
    journals = [Folder(disk, "journal/current")]
    return JournaledStorage(journals, [ledgers], store, config.journal, on_fatal=on_fatal, on_step=on_step)

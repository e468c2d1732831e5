"""The ledger stores that are put to the test, small enough that a few entries fill everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from simbookie.storage.db.settings import DbConfig
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.entry_logs.logger import EntryLogConfig
from simbookie.storage.folders import Folders
from simbookie.storage.interleaved import InterleavedConfig, InterleavedLedgerStore
from simbookie.storage.ledger_store import LedgerStore, OnStep
from simbookie.storage.quirks import Quirk
from simbookie.storage.sorted import SortedConfig, SortedLedgerStore

__all__ = ["STORE_KINDS", "StoreLimits"]


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """In bytes."""

    log_bytes: int = 3_000
    write_buffer_bytes: int = 500
    memtable_bytes: int = 1_500

    @property
    def interleaved(self) -> InterleavedConfig:
        """The same as settings of entry logs and indexes."""
        log = EntryLogConfig(log_size_max=self.log_bytes, write_buffer_bytes=self.write_buffer_bytes)
        return InterleavedConfig(entry_log=log)


_Make = Callable[[Folders, StoreLimits, OnStep, frozenset[Quirk]], LedgerStore]


def _interleaved(folders: Folders, limits: StoreLimits, on_step: OnStep, quirks: frozenset[Quirk]) -> LedgerStore:
    return InterleavedLedgerStore(folders, limits.interleaved, on_step=on_step, quirks=quirks)


def _sorted(folders: Folders, limits: StoreLimits, on_step: OnStep, quirks: frozenset[Quirk]) -> LedgerStore:
    config = SortedConfig(memtable_bytes=limits.memtable_bytes, interleaved=limits.interleaved)
    return SortedLedgerStore(folders, config, on_step=on_step, quirks=quirks)


def _db(folders: Folders, limits: StoreLimits, on_step: OnStep, quirks: frozenset[Quirk]) -> LedgerStore:
    config = DbConfig(
        write_cache_bytes=2 * limits.memtable_bytes,
        read_cache_bytes=4 * limits.memtable_bytes,
        entry_log=limits.interleaved.entry_log,
    )
    return DbLedgerStore(folders, config, on_step=on_step, quirks=quirks)


#: By the name that ``bk-sim crashes --storage`` takes.
STORE_KINDS: Final[dict[str, _Make]] = {"interleaved": _interleaved, "sorted": _sorted, "db": _db}

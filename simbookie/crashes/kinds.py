"""The ledger stores that are put to the test, small enough that a few entries fill everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from simbookie.storage.db.settings import DbConfig
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.entry_logs.config import DIRECT_WRITE_BUFFERS, DirectConfig, EntryLogConfig
from simbookie.storage.entry_logs.format import BLOCK_SIZE
from simbookie.storage.folders import Folders
from simbookie.storage.interleaved import InterleavedConfig, InterleavedLedgerStore
from simbookie.storage.ledger_store import LedgerStore, OnStep
from simbookie.storage.quirks import Quirk
from simbookie.storage.sorted import SortedConfig, SortedLedgerStore

__all__ = ["FOLDERS_OF_SEVERAL", "SEVERAL_FOLDERS", "STORE_KINDS", "StoreLimits"]

#: What the names of stores that have several folders end with, and how many these are.
SEVERAL_FOLDERS: Final = "-folders"
FOLDERS_OF_SEVERAL: Final = 2


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """In bytes, and in rows that an index in a database is written at a time."""

    log_bytes: int = 3_000
    write_buffer_bytes: int = 500
    memtable_bytes: int = 1_500
    batch_rows: int = 100_000

    def shared_logs(self) -> EntryLogConfig:
        """The same as settings of logs that ledgers share."""
        return EntryLogConfig(log_size_max=self.log_bytes, write_buffer_bytes=self.write_buffer_bytes)

    def logs_of_ledgers(self) -> EntryLogConfig:
        """Of logs that each ledger has of its own, of which most are written."""
        return replace(self.shared_logs(), per_ledger=True, active_logs_max=2, active_idle_s=0.5, open_logs_max=2)

    def direct_logs(self) -> EntryLogConfig:
        """Of logs in blocks, a few of them large."""
        blocks = BLOCK_SIZE * DIRECT_WRITE_BUFFERS
        direct = DirectConfig(write_bytes=blocks, read_bytes=2 * BLOCK_SIZE, block_bytes=BLOCK_SIZE, idle_s=0.5)
        return replace(self.shared_logs(), log_size_max=self.log_bytes + BLOCK_SIZE, direct=direct)


_Make = Callable[[Folders, StoreLimits, OnStep, frozenset[Quirk]], LedgerStore]
_Logs = Callable[[StoreLimits], EntryLogConfig]


def _interleaved(logs: _Logs) -> _Make:
    def make(folders: Folders, limits: StoreLimits, on_step: OnStep, quirks: frozenset[Quirk]) -> LedgerStore:
        return InterleavedLedgerStore(folders, InterleavedConfig(logs(limits)), on_step=on_step, quirks=quirks)

    return make


def _sorted(logs: _Logs) -> _Make:
    def make(folders: Folders, limits: StoreLimits, on_step: OnStep, quirks: frozenset[Quirk]) -> LedgerStore:
        config = SortedConfig(memtable_bytes=limits.memtable_bytes, interleaved=InterleavedConfig(logs(limits)))
        return SortedLedgerStore(folders, config, on_step=on_step, quirks=quirks)

    return make


def _db(logs: _Logs) -> _Make:
    def make(folders: Folders, limits: StoreLimits, on_step: OnStep, quirks: frozenset[Quirk]) -> LedgerStore:
        config = DbConfig(
            write_cache_bytes=2 * limits.memtable_bytes * len(folders.all),
            read_cache_bytes=4 * limits.memtable_bytes * len(folders.all),
            batch_rows_max=limits.batch_rows,
            entry_log=logs(limits),
        )
        return DbLedgerStore(folders, config, on_step=on_step, quirks=quirks)

    return make


#: By the name that ``bk-sim crashes --storage`` takes: a ledger store, and which entry logs it has if not one for all ledgers,
#: or that it has several folders.
STORE_KINDS: Final[dict[str, _Make]] = {
    "interleaved": _interleaved(StoreLimits.shared_logs),
    "sorted": _sorted(StoreLimits.shared_logs),
    "db": _db(StoreLimits.shared_logs),
    "interleaved-per-ledger": _interleaved(StoreLimits.logs_of_ledgers),
    "sorted-per-ledger": _sorted(StoreLimits.logs_of_ledgers),
    "db-per-ledger": _db(StoreLimits.logs_of_ledgers),
    "db-direct": _db(StoreLimits.direct_logs),
    f"interleaved{SEVERAL_FOLDERS}": _interleaved(StoreLimits.shared_logs),
    f"db{SEVERAL_FOLDERS}": _db(StoreLimits.shared_logs),
}

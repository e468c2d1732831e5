"""A storage that forgets fences when its bookie is killed, as those of Apache BookKeeper do.

``docs/reference/interop.md`` tells what was seen of real bookies. A fence is in the journal before it is acknowledged, and
is forgotten nevertheless

* if it came before any entry of its ledger, and the bookie is killed before the next checkpoint: a bookie knows a ledger's key
  from its first entry, and replays no fence of a ledger without a key;
* if no entry of any ledger came between two checkpoints, and the fence did: then the second checkpoint has nothing to write,
  leaves the fence unwritten, and lets the journal go. On ``DbLedgerStorage`` that is every such fence, on the other kinds one
  that was replayed when the bookie started.

Checkpoints are made at fixed intervals from the start of the bookie. A shutdown in order saves everything. Nothing fails, and
no answer tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from simbookie.storage.base import CrashMode, CrashReport, DurableCallback, SpaceListener
from simbookie.storage.memory import MemoryStorage, MemoryStorageConfig, RecordLog

__all__ = ["ForgetfulStorage", "ForgetsLike"]

#: BookKeeper's default.
_CHECKPOINT_INTERVAL_S: Final = 10.0


class ForgetsLike(Enum):
    """Which of BookKeeper's storages is imitated."""

    #: ``SortedLedgerStorage``, the default, and ``InterleavedLedgerStorage``.
    SORTED = "sorted"
    DB = "db"


@dataclass(slots=True)
class _Fence:
    """A fence that no checkpoint has saved: when it was set, in checkpoints since the start, and how."""

    interval: int
    is_replayed: bool
    came_after_an_entry: bool


class ForgetfulStorage(MemoryStorage):
    """A :class:`~simbookie.storage.memory.MemoryStorage` that loses durable fences; needs a disk to lose them from."""

    def __init__(
        self,
        config: MemoryStorageConfig | None = None,
        disk: RecordLog | None = None,
        *,
        like: ForgetsLike = ForgetsLike.SORTED,
        checkpoint_interval_s: float = _CHECKPOINT_INTERVAL_S,
    ) -> None:
        if not checkpoint_interval_s > 0:
            raise ValueError(f"storage: checkpoint_interval_s must be > 0, got {checkpoint_interval_s}")
        super().__init__(config, disk if disk is not None else RecordLog())
        self._like = like
        self._checkpoint_interval_s = checkpoint_interval_s
        self._opened_at = 0.0
        #: Fences that only the journal has, by ledger; and the intervals in which an entry came.
        self._unsaved: dict[int, _Fence] = {}
        self._intervals_with_entries: dict[int, None] = {}

    def open(self, on_open: Callable[[], None], on_space: SpaceListener) -> None:
        """Replay what the last run left to the journal."""
        self._opened_at = asyncio.get_running_loop().time()
        super().open(on_open, on_space)

    def fence(self, ledger_id: int, on_durable: DurableCallback, token: object) -> None:
        """Fence the ledger."""
        fence = _Fence(self._interval(), is_replayed=False, came_after_an_entry=bool(self._ledgers[ledger_id].entries))
        self._unsaved.setdefault(ledger_id, fence)
        super().fence(ledger_id, on_durable, token)

    def add_entry(
        self,
        ledger_id: int,
        entry_id: int,
        body: bytes,
        on_durable: DurableCallback | None,
        token: object,
        on_written: DurableCallback | None = None,
    ) -> None:
        """Store an entry; the next checkpoint has something to write."""
        super().add_entry(ledger_id, entry_id, body, on_durable, token, on_written)
        self._intervals_with_entries[self._interval()] = None

    def delete_ledger(self, ledger_id: int) -> None:
        """Forget the ledger."""
        self._unsaved.pop(ledger_id, None)
        super().delete_ledger(ledger_id)

    def shutdown(self, on_closed: Callable[[], None]) -> None:
        """Save everything, fences too."""
        self._unsaved.clear()
        self._intervals_with_entries.clear()
        super().shutdown(on_closed)

    def crash(self, mode: CrashMode) -> CrashReport:
        """Die, and forget fences that were durable beside what was not."""
        interval = self._interval()
        report = super().crash(mode)
        for ledger_id in report.fences_lost:
            self._unsaved.pop(ledger_id, None)
        forgotten = [ledger_id for ledger_id, fence in self._unsaved.items() if self._is_forgotten(fence, interval)]
        in_journal = [ledger_id for ledger_id, fence in self._unsaved.items() if fence.interval == interval]
        assert self.disk is not None, "made with one"
        for ledger_id in forgotten:
            self.disk.drop_fence(ledger_id)
        self._unsaved = {
            ledger_id: _Fence(0, is_replayed=True, came_after_an_entry=True)
            for ledger_id in in_journal
            if ledger_id not in forgotten
        }
        # What came since the last checkpoint is replayed, and is written by the next one.
        self._intervals_with_entries = {0: None} if interval in self._intervals_with_entries else {}
        return replace(report, fences_forgotten=tuple(forgotten))

    def _interval(self) -> int:
        """How many checkpoints there were since the bookie started."""
        return int((asyncio.get_running_loop().time() - self._opened_at) / self._checkpoint_interval_s)

    def _is_forgotten(self, fence: _Fence, interval: int) -> bool:
        if fence.interval == interval:
            return not fence.came_after_an_entry
        if fence.interval in self._intervals_with_entries:
            return False
        return self._like is ForgetsLike.DB or fence.is_replayed

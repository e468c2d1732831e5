"""The logs that are appended to: one for all ledgers, or one for each ledger that was written lately.

With one for each ledger their number is bounded, and one that got nothing for a while is not kept; which go is asked for, and
rotating them is the caller's.
"""

from __future__ import annotations

from simbookie.storage.entry_logs.config import EntryLogConfig
from simbookie.storage.entry_logs.log import WritableLog
from simbookie.storage.folders import Folder

__all__ = ["ActiveLogs"]

#: What one log for all ledgers is known by.
_SHARED = -1


class ActiveLogs:
    """Active logs by *slot*: the ledger whose entries they take, or one slot for all."""

    def __init__(self, config: EntryLogConfig) -> None:
        self._config = config
        #: The log of each slot and when it was used, the one used longest ago first.
        self._logs: dict[int, tuple[WritableLog, float]] = {}
        self._ids: dict[int, int] = {}
        self._unwanted: set[int] = set()

    def clear(self) -> None:
        """Forget all."""
        self._logs, self._ids, self._unwanted = {}, {}, set()

    def __len__(self) -> int:
        return len(self._logs)

    @property
    def all(self) -> list[WritableLog]:
        """Every one, the one used longest ago first."""
        return [log for log, _ in self._logs.values()]

    def slots(self) -> list[int]:
        """The slots that have a log, the one used longest ago first."""
        return list(self._logs)

    def slot(self, ledger_id: int) -> int:
        """The slot that a ledger's entries belong to."""
        return ledger_id if self._config.per_ledger else _SHARED

    def get(self, slot: int) -> WritableLog | None:
        """The log of a slot."""
        found = self._logs.get(slot)
        return found[0] if found is not None else None

    def by_id(self, log_id: int) -> WritableLog | None:
        """The log of this id, if it is one of these."""
        slot = self._ids.get(log_id)
        return self._logs[slot][0] if slot is not None else None

    def use(self, slot: int, now: float) -> None:
        """The log of a slot is about to be written."""
        self._logs[slot] = (self._logs.pop(slot)[0], now)

    def put(self, slot: int, log: WritableLog, now: float) -> None:
        """Have ``log`` take the entries of a slot."""
        self.drop(slot)
        self._logs[slot] = (log, now)
        self._ids[log.log_id] = slot

    def drop(self, slot: int) -> None:
        """Have no log for a slot."""
        found = self._logs.pop(slot, None)
        if found is not None:
            del self._ids[found[0].log_id]
            self._unwanted.discard(slot)

    def overdue(self, now: float) -> list[int]:
        """Slots whose logs are to be rotated: too many others were used since, or too much time has passed."""
        if not self._config.per_ledger:
            return []
        excess = len(self._logs) - self._config.active_logs_max
        idle_since = now - self._config.active_idle_s
        found = []
        for number, (slot, (_, used_at)) in enumerate(self._logs.items()):
            if number >= excess and used_at > idle_since:
                break
            found.append(slot)
        return found

    def want_new(self) -> None:
        """Have each rotated before its next entry."""
        self._unwanted.update(self._logs)

    def is_unwanted(self, slot: int) -> bool:
        """Whether the log of a slot is to be rotated before its next entry."""
        return slot in self._unwanted

    def count_in(self, folder: Folder) -> int:
        """How many there are in a folder."""
        return sum(log.folder is folder for log, _ in self._logs.values())

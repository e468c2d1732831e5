"""What clients with statistics hear of the logs that they own, and of cursors; others do not come here."""

from __future__ import annotations

from typing import Final

from bkclient.errors import Code
from bkclient.log.batches import PendingEntry
from bkclient.observability import stats as names
from bkclient.observability.stats import ClientStats

__all__ = ["CursorStats", "OwnerStats"]


class OwnerStats:
    """Reports what one owner does."""

    def __init__(self, stats: ClientStats) -> None:
        self._stats: Final = stats
        self._claiming_since = 0.0
        #: By batch, when it was handed in.
        self._handed_at: dict[int, float] = {}

    def on_claiming(self) -> None:
        """The owner begins to take the log over."""
        self._claiming_since = self._stats.now()

    def on_claimed(self, code: int = Code.OK) -> None:
        """It has, or cannot."""
        self._stats.operation(names.LOG_CLAIM, self._stats.now() - self._claiming_since, code)

    def on_handed(self, entry: PendingEntry) -> None:
        """A batch was handed in."""
        self._handed_at[id(entry)] = self._stats.now()
        self._stats.level(names.LOG_PENDING_MESSAGES, len(entry.rows))

    def on_told(self, entry: PendingEntry, code: int = Code.OK) -> None:
        """It is acknowledged, or has failed; nothing is reported of one that was refused before."""
        handed_at = self._handed_at.pop(id(entry), None)
        if handed_at is None:
            return
        stats = self._stats
        stats.level(names.LOG_PENDING_MESSAGES, -len(entry.rows))
        stats.operation(names.LOG_PUBLISH, stats.now() - handed_at, code)
        if code == Code.OK:
            stats.event(names.LOG_BATCH_MESSAGES, len(entry.rows))
            stats.event(names.LOG_BATCH_BYTES, len(entry.data))

    def on_ledger_begun(self) -> None:
        """A ledger is in the list, and is written to."""
        self._stats.event(names.LOG_LEDGERS_BEGUN)

    def on_ledger_failed(self) -> None:
        """It did not take an entry."""
        self._stats.event(names.LOG_LEDGERS_FAILED)

    def on_ended(self) -> None:
        """The owner has ended by itself."""
        self._stats.event(names.LOG_OWNERS_ENDED)


class CursorStats:
    """Reports how one partition's cursor is stored, and what is before it."""

    def __init__(self, stats: ClientStats) -> None:
        self._stats: Final = stats
        self._backlog = 0
        self.now: Final = stats.now

    def on_stored(self, began_at: float, code: int = Code.OK) -> None:
        """Its position was stored, or could not be."""
        self._stats.operation(names.LOG_CURSOR_STORE, self._stats.now() - began_at, code)

    def on_backlog(self, entries: int) -> None:
        """So many entries are not acknowledged."""
        if entries != self._backlog:
            self._stats.level(names.LOG_CURSOR_BACKLOG, entries - self._backlog)
            self._backlog = entries

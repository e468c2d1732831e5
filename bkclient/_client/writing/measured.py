"""The ports of a writer whose client has statistics: what is measured per entry is in a class of its own.

A client without statistics makes plain :class:`~bkclient._client.writing.shell.WriterShell` objects, and pays nothing at all.
"""

from __future__ import annotations

from typing import Any

from bkclient._client.defects import ends_operation
from bkclient._client.writing.shell import WriterShell
from bkclient.errors import BookKeeperError, Code
from bkclient.ledger import BookieId
from bkclient.observability import stats as names
from bkclient.observability.stats import ClientStats
from bkclient.protocol.adds import NewEntry
from bkclient.protocol.update import UpdateHandle

__all__ = ["MeasuredWriterShell"]


class MeasuredWriterShell(WriterShell):
    """Reports the latency and outcome of every entry, ensemble changes, and copies that failed after the quorum."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        assert self.core.stats is not None, "made for clients with statistics"
        self._stats: ClientStats = self.core.stats
        self._began_at: dict[int, float] = {}

    def send_add(self, entry: NewEntry, bookies: tuple[BookieId, ...]) -> None:
        """The clock starts when the entry is first sent."""
        if entry.entry_id not in self._began_at:
            self._stats.level(names.PENDING_ADDS, 1)
            self._began_at[entry.entry_id] = self._stats.now()
        super().send_add(entry, bookies)

    def confirm_adds(self, entries: list[NewEntry]) -> None:
        """The entries are acknowledged."""
        for entry in entries:
            self._report(entry, Code.OK)
        super().confirm_adds(entries)

    def fail_add(self, entry: NewEntry, error: BookKeeperError) -> None:
        """The entry has failed."""
        self._report(entry, error.code)
        super().fail_add(entry, error)

    def _report(self, entry: NewEntry, code: int) -> None:
        now = self._stats.now()
        began_at = self._began_at.pop(entry.entry_id, None)
        if began_at is None:  # refused before it was sent
            began_at = now
        else:
            self._stats.level(names.PENDING_ADDS, -1)
        self._stats.operation(names.ADD, now - began_at, code)

    def _on_add_failed(self, bookie_id: str, entry_id: int, code: int) -> None:
        super()._on_add_failed(bookie_id, entry_id, code)
        if entry_id <= self.machine.last_add_acknowledged:
            self._stats.event(names.ADD_UNDER_REPLICATED)

    @ends_operation
    def _on_update_done(self, update: UpdateHandle) -> None:
        if update.cause == "ensemble" and update.error is None and not self.machine.metadata.is_closed:
            self._stats.event(names.ENSEMBLE_CHANGES)
        super()._on_update_done(update)

    def spans_fault_domains(self, bookies: tuple[BookieId, ...]) -> bool:
        """A quorum that does not is worth a note."""
        spans = super().spans_fault_domains(bookies)
        if not spans:
            self._stats.event(names.FAULT_DOMAINS_MISSED)
        return spans

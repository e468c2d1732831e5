"""What clients with statistics, or with a tracer that wants appends, hear of a writer; others do not come here."""

from __future__ import annotations

import asyncio
from typing import Final

from bkclient._client.writing.outcomes import AppendFuture
from bkclient.errors import Code
from bkclient.observability import stats as names
from bkclient.observability.stats import ClientStats
from bkclient.observability.tracer import Tracer
from bkclient.protocol.adds import NewEntry

__all__ = ["WriterStats", "trace_append"]


class WriterStats:
    """Reports the latency and outcome of every entry of one writer, from when it is first sent."""

    def __init__(self, stats: ClientStats) -> None:
        self._stats: Final = stats
        self._began_at: dict[int, float] = {}
        self.event: Final = stats.event

    def on_sent(self, entry: NewEntry) -> None:
        """The entry goes to bookies, for the first time or again."""
        if entry.entry_id not in self._began_at:
            self._stats.level(names.PENDING_ADDS, 1)
            self._began_at[entry.entry_id] = self._stats.now()

    def on_ended(self, entry: NewEntry, code: int = Code.OK) -> None:
        """The entry is acknowledged, or has failed."""
        now = self._stats.now()
        began_at = self._began_at.pop(entry.entry_id, None)
        if began_at is None:  # refused before it was sent
            began_at = now
        else:
            self._stats.level(names.PENDING_ADDS, -1)
        self._stats.operation(names.ADD, now - began_at, code)


def trace_append(tracer: Tracer, ledger_id: int, entry_id: int, future: AppendFuture) -> None:
    """Open a span for an append, which ends with its future."""
    end = tracer.append(ledger_id, entry_id)

    def on_done(done: AppendFuture) -> None:
        end(asyncio.CancelledError() if done.cancelled() else done.exception())

    future.add_done_callback(on_done)

"""Trimming keeps what cursors need."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Handler
from scenarios.checker.logs.base import LogFamily, LogReport
from scenarios.history.schema import Event, Kind

__all__ = ["LogTrimming"]


class LogTrimming(LogFamily):
    """Trimming keeps what cursors need (H11).

    H11: when a ledger is trimmed, the stored position of every listed cursor is behind it. Sound, because positions only move
    forward, and a cursor that comes has stored its position before it is listed. A cursor is listed by the same write of which a
    trim makes sure that it did not come in between.
    """

    clauses = ("H11",)

    def __init__(self, report: LogReport) -> None:
        super().__init__(report)
        self._listed: set[str] = set()
        #: By cursor, the ledger and the entry that it needs first, and the event.
        self._positions: dict[str, tuple[int, int, int]] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Cursors and trims."""
        return {Kind.LOG_CURSOR: self.on_cursor, Kind.LOG_TRIM: self.on_trimmed}

    def on_cursor(self, event: Event) -> None:
        """Note what the cursor needs, or whether trimming is to look at it."""
        name, cause = event.fields["cursor"], event.fields["cause"]
        if cause in {"opened", "stored"}:
            self._positions[name] = event.ledger, event.fields["entry"], event.seq
        elif cause == "listed":
            self._listed.add(name)
        elif cause in {"removed", "reset"}:
            self._listed.discard(name)

    def on_trimmed(self, event: Event) -> None:
        """Check the position of every cursor."""
        for name in sorted(self._listed):
            position = self._positions.get(name)
            if position is None:
                continue
            self.checked["H11"] += 1
            ledger, entry, seq = position
            if ledger <= event.ledger:
                text = f"the ledger was trimmed, and cursor {name} is at {ledger}:{entry}"
                self.broken("H11", event.ledger, text, seq, event.seq)

"""Readers return no entry above their last add confirmed, nor above the end that they know."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler
from scenarios.checker.metadata import CLOSED
from scenarios.history.schema import Event, Kind

__all__ = ["ReadWithinLac"]


class ReadWithinLac(Family):
    """No entry is returned above the reader's last add confirmed (F1), nor above the end in its metadata (B5).

    A read that returns entry ``e`` was made by a handle whose last add confirmed was at least ``e`` when it began. D6
    checks that last add confirmed. If the handle knew the ledger to be closed then, it was closed with ``e``.
    """

    clauses = ("F1", "B5")

    def handlers(self) -> Mapping[Kind, Handler]:
        """Results of reads."""
        return {Kind.READ_RESULT: self.on_result}

    def on_result(self, event: Event) -> None:
        """Judge a read that returned something."""
        fields = event.fields
        if fields["code"] != codes.OK:
            return
        known = self.facts.metadata.versions.get(fields["version"])
        if known is not None and known.state == CLOSED:
            self.checked["B5"] += 1
            if fields["entry"] > known.last_entry:
                self.broken(
                    "B5",
                    f"{event.actor} read entry {fields['entry']} of a ledger that it knew to be closed at {known.last_entry}",
                    known.seq,
                    event.seq,
                )
        if fields["lac"] is None:
            return
        self.checked["F1"] += 1
        if fields["entry"] > fields["lac"]:
            self.broken(
                "F1",
                f"{event.actor} read entry {fields['entry']} when its last add confirmed was {fields['lac']}",
                event.seq,
            )

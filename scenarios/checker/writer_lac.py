"""The last add confirmed of a writer never falls."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["WriterLac"]


class WriterLac(Family):
    """The last add confirmed of a writer never falls, and is below what it sends (G2).

    By the LAC in the headers of entries that are higher than all that the writer sent before: what is sent again carries the LAC
    that it was given at first.
    """

    clauses = ("G2",)

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        #: Of each writer the highest entry that it sent, the LAC in that, and the event.
        self._last: dict[tuple[str, int], tuple[int, int, int]] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Adds that are sent."""
        return {Kind.ADD_SEND: self.on_send}

    def on_send(self, event: Event) -> None:
        """Judge an ordinary add."""
        fields = event.fields
        if fields["recovery"]:
            return
        entry, lac = fields["entry"], fields["lac"]
        writer = (event.actor, fields["incarnation"])
        self.checked["G2"] += 1
        if lac >= entry:
            self.broken("G2", f"{event.actor} sent entry {entry} with entry {lac} as its last add confirmed", event.seq)
        known = self._last.get(writer)
        if known is not None and entry <= known[0]:
            return
        if known is not None and lac < known[1]:
            self.broken(
                "G2",
                f"the last add confirmed of {event.actor} fell from {known[1]}, sent with entry {known[0]}, to {lac}, sent with "
                f"entry {entry}",
                known[2],
                event.seq,
            )
        self._last[writer] = (entry, lac, event.seq)

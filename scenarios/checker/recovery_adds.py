"""What a recovery writes back is not refused as fenced."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler
from scenarios.history.schema import Event, Kind

__all__ = ["RecoveryAdds"]


class RecoveryAdds(Family):
    """A fence keeps no bookie from storing what a recovery writes back (D13).

    By what the bookie answers, and by what the client hears: not every bookie tells of its answers. A bookie may refuse for other
    reasons; one that has collected the ledger refuses every add of it for a while, and calls that fenced.
    """

    clauses = ("D13",)

    def handlers(self) -> Mapping[Kind, Handler]:
        """Answers to write-backs, at both ends."""
        return {Kind.BK_ANSWER: self.on_said, Kind.ADD_RESP: self.on_heard}

    def on_said(self, event: Event) -> None:
        """A bookie answers."""
        if event.fields["operation"] == "write-back":
            self._check(event, event.actor, event.fields["source"])

    def on_heard(self, event: Event) -> None:
        """A client hears the outcome of an add."""
        if event.fields["recovery"]:
            self._check(event, event.fields["bookie"], event.actor)

    def _check(self, event: Event, bookie: str, client: str) -> None:
        self.checked["D13"] += 1
        if event.fields["code"] == codes.FENCED and bookie not in self.facts.collected:
            self.broken(
                "D13",
                f"{bookie} refused entry {event.fields['entry']}, which {client} wrote back, as fenced",
                event.seq,
            )

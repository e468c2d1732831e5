"""When a writer's acknowledgements end."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.checker.metadata import CLOSED
from scenarios.history.schema import Event, Kind

__all__ = ["NoAckAfterEnd"]


class NoAckAfterEnd(Family):
    """A writer that failed or closed acknowledges nothing more (A6, A7).

    A6: after APP_FAIL of ``e`` a writer incarnation acknowledges no entry from ``e`` on. A failed add, fenced or not,
    leaves a hole that only recovery may settle.

    A7: after a client tried to close the ledger at ``l``, whatever came of it, it acknowledges nothing above ``l``; and
    after its application was told that the ledger is fenced or closed, it acknowledges nothing at all, since it tells
    what it decided in the order in which it did.

    All hold however late an application hears of what its client confirmed before (it may have been paused in
    between): the entries in question are above the point where the client itself gave up confirming.
    """

    clauses = ("A6", "A7")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._failed: dict[tuple[str, int], tuple[int, int]] = {}
        self._ends: dict[str, tuple[int, int]] = {}
        self._told: dict[str, int] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """What applications are told, and closes."""
        return {
            Kind.APP_ACK: self.on_ack,
            Kind.APP_FAIL: self.on_fail,
            Kind.CLOSE_RESULT: self.on_closed,
            Kind.META_CAS: self.on_cas,
        }

    def on_closed(self, event: Event) -> None:
        """The application knows that nothing more comes."""
        if event.fields["code"] == codes.OK:
            self._told.setdefault(event.actor, event.seq)

    def on_fail(self, event: Event) -> None:
        """Remember the lowest failed entry."""
        entry = event.fields["entry"]
        if entry < 0:
            return  # refused before it got a number
        if event.fields["code"] == codes.FENCED:
            self._told.setdefault(event.actor, event.seq)
        writer = (event.actor, event.fields["incarnation"])
        known = self._failed.get(writer)
        if known is None or entry < known[0]:
            self._failed[writer] = (entry, event.seq)

    def on_cas(self, event: Event) -> None:
        """Remember the lowest end the client tried to set."""
        fields = event.fields
        if fields["state"] != CLOSED or fields["cause"] != "close":
            return
        known = self._ends.get(event.actor)
        if known is None or fields["last_entry"] < known[0]:
            self._ends[event.actor] = (fields["last_entry"], event.seq)

    def on_ack(self, event: Event) -> None:
        """Neither from the lowest failed entry on, nor above the end."""
        entry = event.fields["entry"]
        if self._failed:
            failed = self._failed.get((event.actor, event.fields["incarnation"]))
            if failed is not None:
                self.checked["A6"] += 1
                if entry >= failed[0]:
                    self.broken(
                        "A6",
                        f"entry {entry} was acknowledged to the application of {event.actor} after entry {failed[0]} failed",
                        failed[1],
                        event.seq,
                    )
        if self._told:
            told = self._told.get(event.actor)
            if told is not None:
                self.checked["A7"] += 1
                self.broken(
                    "A7",
                    f"entry {entry} was acknowledged to the application of {event.actor}, which had been told that its ledger "
                    "has ended",
                    told,
                    event.seq,
                )
        if self._ends:
            end = self._ends.get(event.actor)
            if end is not None:
                self.checked["A7"] += 1
                if entry > end[0]:
                    self.broken(
                        "A7",
                        f"entry {entry} was acknowledged to the application of {event.actor}, which had itself moved to "
                        f"close the ledger at entry {end[0]}",
                        end[1],
                        event.seq,
                    )

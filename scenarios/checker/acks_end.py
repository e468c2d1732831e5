"""A writer that has ended acknowledges nothing more."""

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
    after its application got the error that the ledger is fenced, or the result of a successful close, it acknowledges
    nothing at all, because results are delivered in the order of the client's decisions.

    Both hold even if an application gets acknowledgements late, for example after a pause: the entries in question are
    above the last entry that the client itself confirmed.
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
        """Note that the application got the result of a successful close."""
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
        """Check that the entry is below the lowest failed entry and not above the end."""
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

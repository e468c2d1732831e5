"""A bookie whose cookie does not fit serves nothing, or vouches for nothing that it may have lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.checker.metadata import CLOSED
from scenarios.history.schema import Event, Kind

__all__ = ["CookieGate"]

_REFUSED: Final = ("missing", "foreign")
_DOUBTED: Final = "doubted"


@dataclass(slots=True)
class _Doubt:
    """A bookie that began to serve in doubt, when it was a member of this ledger."""

    seq: int
    #: Whether the ledger was open, and the bookie in its last ensemble: then it may deny nothing.
    may_miss_entries: bool


class CookieGate(Family):
    """What bookies do that were started with other disks than theirs (D15, D17).

    D15: a bookie that was restarted where its cookie is missing, or is that of another one, answers nothing, stores nothing and
    fences nothing until it is restarted.

    D17: one that starts all the same, to be checked, stores nothing for the writers of ledgers that it was a member of then, and
    denies nothing of those that were not closed and in whose last ensemble it is, until it is out of limbo. What changed between
    its start and its look at the metadata is left to it: the ledger must still be open, and it a member, when it denies.
    """

    clauses = ("D15", "D17")
    awaits_restart = True

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._doubts: dict[str, _Doubt] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Restarts, and all that a bookie does for clients."""
        return {
            Kind.BK_RESTART: self.on_restart,
            Kind.BK_ANSWER: self.on_answer,
            Kind.BK_STORE: self.on_store,
            Kind.FENCE_SET: self.on_fence,
            Kind.BK_LIMBO: self.on_limbo,
        }

    def on_restart(self, event: Event) -> None:
        """Note in which of the ledgers the bookie is that begins to serve in doubt."""
        bookie, stored = event.actor, self.facts.stored
        self._doubts.pop(bookie, None)
        if event.fields.get("cookie") != _DOUBTED or stored is None:
            return
        if any(bookie in members for _, members in stored.fragments):
            is_last = bookie in stored.fragments[-1][1]
            self._doubts[bookie] = _Doubt(event.seq, stored.state != CLOSED and is_last)

    def on_limbo(self, event: Event) -> None:
        """Out of limbo, the bookie has what it lacked."""
        doubt = self._doubts.get(event.actor)
        if doubt is not None and event.fields["verdict"] != "on":
            doubt.may_miss_entries = False

    def on_answer(self, event: Event) -> None:
        """Check that it may answer, and what."""
        self._check_gate(event, "answered a request")
        doubt, stored = self._doubts.get(event.actor), self.facts.stored
        if doubt is None or not doubt.may_miss_entries or event.fields["code"] not in codes.NEGATIVES:
            return
        self.checked["D17"] += 1
        if stored is not None and stored.state != CLOSED and event.actor in stored.fragments[-1][1]:
            self.broken(
                "D17",
                f"{event.actor} denied entry {event.fields['entry']} after a start at which it may have lost entries",
                doubt.seq,
                event.seq,
            )

    def on_store(self, event: Event) -> None:
        """Check that it may store."""
        self._check_gate(event, "stored an entry")
        doubt = self._doubts.get(event.actor)
        if doubt is None:
            return
        self.checked["D17"] += 1
        if not event.fields["recovery"]:
            self.broken(
                "D17",
                f"{event.actor} stored entry {event.fields['entry']} of a writer after a start at which it may have lost a fence",
                doubt.seq,
                event.seq,
            )

    def on_fence(self, event: Event) -> None:
        """Check that it may fence."""
        self._check_gate(event, "fenced the ledger")

    def _check_gate(self, event: Event, what: str) -> None:
        restart = self.facts.restarts.get(event.actor)
        if restart is None:
            return
        self.checked["D15"] += 1
        seq, cookie = restart
        if cookie in _REFUSED:
            self.broken("D15", f"{event.actor} {what}, and was started where its cookie is {cookie}", seq, event.seq)

"""A bookie does not deny an entry that it has or may have lost."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["NoFalseNegative"]

_Request = tuple[str, int, str]


class NoFalseNegative(Family):
    """Bookies deny only what they never had (D10, D11).

    D10: a bookie that held ``e`` from before a read was sent to it until the answer arrived does not answer "no such
    entry" or "no such ledger". What it lost, by BK_LOSS or BK_GC, it does not hold.

    D11: a bookie in limbo, that is one that may have lost data, denies nothing.

    Both need the whole time from request to answer, because a history does not show when the bookie answered.
    """

    clauses = ("D10", "D11")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._sent: dict[_Request, int] = {}
        self._since: dict[tuple[int, str], int] = {}
        self._limbo: dict[str, int] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Reads of both sorts, and what bookies have."""
        return {
            Kind.READ_SEND: self.on_send,
            Kind.REC_READ_SEND: self.on_send,
            Kind.READ_RESP: self.on_answer,
            Kind.REC_READ_RESP: self.on_answer,
            Kind.BK_STORE: self.on_store,
            Kind.BK_LOSS: self.on_loss,
            Kind.BK_GC: self.on_gc,
            Kind.BK_LIMBO: self.on_limbo,
        }

    def on_store(self, event: Event) -> None:
        """Held from now on."""
        self._since.setdefault((event.fields["entry"], event.actor), event.seq)

    def on_loss(self, event: Event) -> None:
        """Held no more."""
        self._since.pop((event.fields["entry"], event.actor), None)

    def on_gc(self, event: Event) -> None:
        """Nothing of the ledger is held any more."""
        for key in [key for key in self._since if key[1] == event.actor]:
            del self._since[key]

    def on_limbo(self, event: Event) -> None:
        """Limbo begins or ends."""
        if event.fields["verdict"] == "on":
            self._limbo.setdefault(event.actor, event.seq)
        else:
            self._limbo.pop(event.actor, None)

    def on_send(self, event: Event) -> None:
        """A read was sent; of several for the same entry, the first answer counts for the oldest."""
        fields = event.fields
        self._sent.setdefault((event.actor, fields["entry"], fields["bookie"]), event.seq)

    def on_answer(self, event: Event) -> None:
        """Check a denial."""
        fields = event.fields
        entry, bookie = fields["entry"], fields["bookie"]
        sent = self._sent.pop((event.actor, entry, bookie), None)
        if fields["code"] not in codes.NEGATIVES or sent is None:
            return
        since = self._since.get((entry, bookie))
        self.checked["D10"] += 1
        if since is not None and since < sent:
            self.broken(
                "D10",
                f"{bookie} held entry {entry} when it denied it to {event.actor}",
                since,
                sent,
                event.seq,
            )
        limbo = self._limbo.get(bookie)
        if limbo is not None:
            self.checked["D11"] += 1
            if limbo < sent:
                self.broken(
                    "D11",
                    f"{bookie} denied entry {entry} to {event.actor} although it may have lost entries of the ledger",
                    limbo,
                    event.seq,
                )

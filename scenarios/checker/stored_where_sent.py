"""Bookies store what they are sent."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["StoredWhereSent"]


class StoredWhereSent(Family):
    """A bookie stores an entry for a client only after that sent it to this bookie (D8).

    Judged for clients of which an add of this ledger is known; others do not record what they send. Where a writer may send an
    entry, C8 judges.
    """

    clauses = ("D8",)

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._sent: dict[str, dict[int, tuple[str, ...]]] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Adds, where they are sent and where they are stored."""
        return {Kind.ADD_SEND: self.on_send, Kind.BK_STORE: self.on_store}

    def on_send(self, event: Event) -> None:
        """A client sends an entry to a bookie."""
        entry, bookie = event.fields["entry"], event.fields["bookie"]
        of_client = self._sent.setdefault(event.actor, {})
        bookies = of_client.get(entry, ())
        if bookie not in bookies:
            of_client[entry] = (*bookies, bookie)

    def on_store(self, event: Event) -> None:
        """A bookie stores an entry."""
        source, entry = event.fields["source"], event.fields["entry"]
        sent = self._sent.get(source)
        if sent is None:
            return
        self.checked["D8"] += 1
        if event.actor not in sent.get(entry, ()):
            self.broken("D8", f"{event.actor} stored entry {entry} of {source}, which had not sent it there", event.seq)

"""No LAC truncation: a closed ledger has every acknowledged entry."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.checker.metadata import Metadata
from scenarios.history.schema import Event, Kind

__all__ = ["NoLacTruncation"]


class NoLacTruncation(Family):
    """A closed ledger holds every entry ever acknowledged as durable: ``max(acked) <= LE`` (A1).

    The order does not matter: a close may truncate acknowledged entries, and a writer that does not know of the close may
    acknowledge entries above it, even after the ledger was deleted. Sound without assumptions. Of a ledger that is closed again,
    which other invariants forbid, the lowest end counts.
    """

    clauses = ("A1",)

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._judged: Metadata | None = None

    def handlers(self) -> Mapping[Kind, Handler]:
        """Acknowledgements, and events that show the stored metadata."""
        return {Kind.APP_ACK: self.on_ack, Kind.META_CAS: self.on_metadata, Kind.META_READ: self.on_metadata}

    def on_ack(self, event: Event) -> None:
        """Check that the entry is not above the end of a closed ledger."""
        end = self.facts.metadata.end
        if not event.fields["durable"]:
            return
        self.checked["A1"] += 1
        if end is not None and event.fields["entry"] > end.last_entry:
            entry = event.fields["entry"]
            self.broken(
                "A1",
                f"entry {entry} was acknowledged to the application of {event.actor} although the ledger had been closed "
                f"{_by(end.author)}at entry {end.last_entry}",
                end.seq,
                event.seq,
            )

    def on_metadata(self, _event: Event) -> None:
        """Check that no acknowledged entry is above the end when the ledger is closed."""
        end = self.facts.metadata.end
        if end is None or end is self._judged:
            return
        self._judged = end
        self.checked["A1"] += 1
        if self.facts.max_acked <= end.last_entry:
            return
        lost = sorted(entry for entry, ack in self.facts.acked.items() if entry > end.last_entry and ack.is_durable)
        if not lost:
            return
        first = self.facts.acked[lost[0]]
        entries = f"entry {lost[0]} was" if len(lost) == 1 else f"entries {lost[0]} to {lost[-1]} were"
        self.broken(
            "A1",
            f"{entries} acknowledged to the application of {first.actor}, but the ledger was closed "
            f"{_by(end.author)}at entry {end.last_entry}",
            end.seq,
            *(self.facts.acked[entry].seq for entry in lost[:8]),
        )


def _by(author: str) -> str:
    return f"by {author} " if author else ""

"""A ledger is closed once, and all clients see the same end."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.checker.metadata import CLOSED, Metadata
from scenarios.history.schema import Event, Kind

__all__ = ["RecoveriesAgree"]


class RecoveriesAgree(Family):
    """A ledger is closed once, and all clients see the same end (B1, B2, B3).

    B1: exactly one write changes the state to CLOSED.

    B2: from then on state, last entry and length stay, and ensembles change only in place, with the same first entries.

    B3: every (last entry, length) of the closed ledger is the same: in the store, in reads of the metadata, and in the
    results of opening and closing it.

    Sound for partial histories too. Histories have no event for the forced recovery of a closed ledger, which BookKeeper's
    tools can do; it is reported as a violation.
    """

    clauses = ("B1", "B2", "B3")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._closing: Metadata | None = None
        self._end: tuple[int, int] | None = None
        self._end_seq = -1
        self._end_seen_by = ""

    def handlers(self) -> Mapping[Kind, Handler]:
        """Metadata, and the results of opening and closing."""
        return {
            Kind.META_CAS: self.on_metadata,
            Kind.META_READ: self.on_metadata,
            Kind.OPEN_RESULT: self.on_open_result,
            Kind.CLOSE_RESULT: self.on_close_result,
        }

    def on_metadata(self, event: Event) -> None:
        """Check the stored end, and writes after the closing one."""
        fields = event.fields
        if fields.get("cause") == "delete":
            return
        if fields["outcome"] == "ok" and fields["state"] == CLOSED:
            self._see_end((fields["last_entry"], fields["length"]), event)
        stored = self.facts.metadata.current
        if stored is None or stored.seq != event.seq:
            return
        closing = self._closing
        if closing is not None:
            self._check_after_closing(closing, stored, event.seq)
        if stored.state == CLOSED:
            self.checked["B1"] += 1
            self._closing = stored

    def _check_after_closing(self, closing: Metadata, stored: Metadata, seq: int) -> None:
        if stored.cause == "close":
            self.broken(
                "B1",
                f"{stored.author} closed the ledger at entry {stored.last_entry}, but it had been closed "
                f"{f'by {closing.author} ' if closing.author else ''}at entry {closing.last_entry} already",
                closing.seq,
                seq,
            )
        self.checked["B2"] += 1
        before = (closing.state, closing.last_entry, closing.length, [first for first, _ in closing.fragments])
        after = (stored.state, stored.last_entry, stored.length, [first for first, _ in stored.fragments])
        if before != after:
            self.broken(
                "B2",
                f"version {closing.version} was {_shown(closing)}, version {stored.version} is {_shown(stored)}",
                closing.seq,
                seq,
            )

    def on_open_result(self, event: Event) -> None:
        """Check the end that a client got by opening."""
        fields = event.fields
        if fields["code"] == codes.OK and fields["state"] == CLOSED:
            self._see_end((fields["last_entry"], fields["length"]), event)

    def on_close_result(self, event: Event) -> None:
        """Check the end that a client got by closing."""
        fields = event.fields
        if fields["code"] == codes.OK:
            self._see_end((fields["last_entry"], fields["length"]), event)

    def _see_end(self, end: tuple[int, int], event: Event) -> None:
        self.checked["B3"] += 1
        if self._end is None:
            self._end, self._end_seq, self._end_seen_by = end, event.seq, event.actor
        elif end != self._end:
            self.broken(
                "B3",
                f"{event.actor} saw the ledger end at entry {end[0]} with {end[1]} bytes, {self._end_seen_by} at entry "
                f"{self._end[0]} with {self._end[1]} bytes",
                self._end_seq,
                event.seq,
            )


def _shown(metadata: Metadata) -> str:
    firsts = ", ".join(str(first) for first, _ in metadata.fragments)
    return f"{metadata.state} at entry {metadata.last_entry} with {metadata.length} bytes, fragments from {firsts}"

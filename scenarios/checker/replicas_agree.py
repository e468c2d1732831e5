"""One entry, one content."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["ReplicasAgree"]


class ReplicasAgree(Family):
    """Every copy of an entry is the same (D9), and the writer's own (B8).

    D9: wherever entry ``e`` is sent or stored, by its writer or a recovery, its payload and the cumulative length in
    its header are the same. The LAC in the header may differ: a recovery sends its own.

    B8: a recovery writes back only what the writer sent.

    D9 is sound for partial histories too; B8 needs the original.
    """

    clauses = ("D9", "B8")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._entries: dict[int, tuple[int | None, int | None, int]] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Entries on their way, and where they arrive."""
        return {Kind.ADD_SEND: self.on_send, Kind.BK_STORE: self.on_store}

    def on_send(self, event: Event) -> None:
        """An entry leaves a client."""
        fields = event.fields
        if fields["recovery"]:
            self.checked["B8"] += 1
            if fields["entry"] not in self._entries:
                self.broken(
                    "B8",
                    f"{event.actor} wrote entry {fields['entry']} back, which no writer ever sent",
                    event.seq,
                )
        self._compare(event)

    def on_store(self, event: Event) -> None:
        """An entry arrives at a bookie."""
        self._compare(event)

    def _compare(self, event: Event) -> None:
        fields = event.fields
        entry, content, length = fields["entry"], fields["content"], fields["length"]
        known = self._entries.get(entry)
        if known is None:
            self._entries[entry] = (content, length, event.seq)
            return
        self.checked["D9"] += 1
        if known[0] != content or known[1] != length:
            what = "another payload" if known[0] != content else f"length {length} instead of {known[1]}"
            self.broken("D9", f"entry {entry} has {what} at {event.actor}", known[2], event.seq)

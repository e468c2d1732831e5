"""All copies of an entry have the same content."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["ReplicasAgree"]


class ReplicasAgree(Family):
    """Every copy of an entry is the same (D9, D14), the writer's own (B8, F4), and was read before it is written back (E10).

    D9: wherever entry ``e`` is sent or stored, by its writer or a recovery, its payload and the cumulative length in
    its header are the same. The LAC in the header may differ: a recovery sends its own.

    D14: so are the copies that one bookie stores, one after the other.

    B8: a recovery writes back only what the writer sent.

    F4: and readers get only that.

    E10: and only what a bookie answered to this very recovery.

    D9 and D14 are sound for partial histories too; the others need what came before.
    """

    clauses = ("D9", "D14", "B8", "E10", "F4")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._entries: dict[int, tuple[int | None, int | None, int]] = {}
        self._read: dict[tuple[str, int], dict[int, int]] = {}
        #: The contents under which the writer sent each entry, almost always one.
        self._sent: dict[int, tuple[int, ...]] = {}
        #: What each bookie stored first of each entry.
        self._stored: dict[int, dict[str, tuple[int | None, int | None, int]]] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Entries that are sent, stored, and read."""
        return {
            Kind.ADD_SEND: self.on_send,
            Kind.BK_STORE: self.on_store,
            Kind.REC_READ_RESP: self.on_read,
            Kind.READ_RESULT: self.on_result,
        }

    def on_read(self, event: Event) -> None:
        """A recovery has read an entry."""
        fields = event.fields
        if fields["code"] == codes.OK and fields["content"] is not None:
            self._read.setdefault((event.actor, fields["entry"]), {})[fields["content"]] = event.seq

    def on_send(self, event: Event) -> None:
        """An entry leaves a client."""
        fields = event.fields
        entry, content = fields["entry"], fields["content"]
        if fields["recovery"]:
            self.checked["B8"] += 1
            if entry not in self._entries:
                self.broken("B8", f"{event.actor} wrote entry {entry} back, which no writer ever sent", event.seq)
            self._check_read(event)
        elif content is not None:
            sent = self._sent.get(entry, ())
            if content not in sent:
                self._sent[entry] = (*sent, content)
        self._compare(event, entry, content, fields["length"])

    def _check_read(self, event: Event) -> None:
        run, content = self.facts.run_of(event.actor), event.fields["content"]
        if run is None or run.is_over or content is None:
            return
        self.checked["E10"] += 1
        read = self._read.get((event.actor, event.fields["entry"]), {}).get(content, -1)
        if read < run.seq:
            self.broken(
                "E10",
                f"{event.actor} wrote entry {event.fields['entry']} back with a content that no bookie had told it",
                run.seq,
                event.seq,
            )

    def on_store(self, event: Event) -> None:
        """An entry arrives at a bookie."""
        fields, bookie = event.fields, event.actor
        entry, content, length = fields["entry"], fields["content"], fields["length"]
        stored = self._stored.get(entry)
        if stored is None:
            stored = self._stored[entry] = {}
        known = stored.get(bookie)
        if known is None:
            stored[bookie] = (content, length, event.seq)
        else:
            self.checked["D14"] += 1
            is_known = None not in (*known[:2], content, length)
            if is_known and known[:2] != (content, length):
                self.broken(
                    "D14",
                    f"{bookie} stored entry {entry} with content {known[0]} and length {known[1]}, and again with content "
                    f"{content} and length {length}",
                    known[2],
                    event.seq,
                )
        self._compare(event, entry, content, length)

    def on_result(self, event: Event) -> None:
        """An application got an entry."""
        fields = event.fields
        sent = self._sent.get(fields["entry"])
        if fields["code"] != codes.OK or fields["content"] is None or sent is None:
            return
        self.checked["F4"] += 1
        if fields["content"] not in sent:
            self.broken(
                "F4", f"{event.actor} read entry {fields['entry']} with a content that no writer had sent", event.seq
            )

    def _compare(self, event: Event, entry: int, content: int | None, length: int | None) -> None:
        known = self._entries.get(entry)
        if known is None:
            self._entries[entry] = (content, length, event.seq)
            return
        self.checked["D9"] += 1
        if known[0] != content or known[1] != length:
            what = "another payload" if known[0] != content else f"length {length} instead of {known[1]}"
            self.broken("D9", f"entry {entry} has {what} at {event.actor}", known[2], event.seq)

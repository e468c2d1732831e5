"""An entry that was read stays readable."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["ReadStability"]


class ReadStability(Family):
    """An entry that was read stays readable (F3), with the content that was acknowledged (A8).

    F3: once a client read entry ``e``, every later read with a definite answer returns the same content, and the ledger, if it is
    ever closed, is closed with ``e``, each time that it is. Timeouts and other errors are not definite answers; nor is a denial
    under old metadata, or after Qa bookies lost the entry.

    A8: every read of an acknowledged entry, before or after, returns what was acknowledged.

    Sound for partial histories: a missing event can hide a violation, never make one.
    """

    clauses = ("F3", "A8")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._found: dict[int, tuple[int | None, int, str]] = {}
        self._highest = -1
        self._began: dict[tuple[str, int], int] = {}
        #: The content and the event of a second acknowledgement that tells of another one than the first.
        self._acked_again: dict[int, tuple[int, int]] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Reads, acknowledgements, and the close."""
        return {
            Kind.READ_SEND: self.on_send,
            Kind.READ_RESULT: self.on_result,
            Kind.APP_ACK: self.on_ack,
            Kind.META_CAS: self.on_metadata,
            Kind.META_READ: self.on_metadata,
        }

    def on_send(self, event: Event) -> None:
        """Note the latest time at which the read began."""
        self._began.setdefault((event.actor, event.fields["entry"]), event.seq)

    def on_result(self, event: Event) -> None:
        """Compare with what was read and acknowledged before."""
        fields = event.fields
        entry = fields["entry"]
        began = self._began.pop((event.actor, entry), -1)
        if fields["code"] == codes.OK:
            self._on_found(event, entry, fields["content"])
            return
        found = self._found.get(entry)
        if fields["code"] not in codes.NEGATIVES or found is None or began <= found[1]:
            return
        if self.facts.is_conclusive_denial(entry, fields["version"]):
            self.checked["F3"] += 1
            self.broken(
                "F3",
                f"{found[2]} had read entry {entry} before {event.actor} got the answer that it does not exist",
                found[1],
                event.seq,
            )

    def _on_found(self, event: Event, entry: int, content: int | None) -> None:
        self.checked["F3"] += 1
        found = self._found.get(entry)
        if found is None:
            self._found[entry] = (content, event.seq, event.actor)
            self._highest = max(self._highest, entry)
            self._check_end(event.seq)
        elif content is not None and found[0] is not None and content != found[0]:
            self.broken(
                "F3",
                f"{event.actor} read entry {entry} with another content than {found[2]}",
                found[1],
                event.seq,
            )
        ack = self.facts.acked.get(entry)
        if ack is not None:
            self._check_content(entry, content, event.seq)

    def on_ack(self, event: Event) -> None:
        """Compare with the content of an earlier read."""
        entry, content = event.fields["entry"], event.fields["content"]
        if content is not None and self.facts.acked[entry].content not in (None, content):
            self._acked_again[entry] = (content, event.seq)
        found = self._found.get(entry)
        if found is not None:
            self._check_content(entry, found[0], found[1])

    def _check_content(self, entry: int, content: int | None, seq: int) -> None:
        ack = self.facts.acked[entry]
        if content is None or ack.content is None:
            return
        self.checked["A8"] += 1
        again = self._acked_again.get(entry)
        if content != ack.content or again is not None:
            self.broken(
                "A8",
                f"entry {entry} was read with another content than was acknowledged to the application of {ack.actor}",
                ack.seq if content != ack.content or again is None else again[1],
                seq,
            )

    def on_metadata(self, event: Event) -> None:
        """Check that the end is not below an entry that was read."""
        self._check_end(event.seq)

    def _check_end(self, seq: int) -> None:
        end = self.facts.metadata.end
        if end is None or self._highest <= end.last_entry:
            return
        _, found_seq, reader = self._found[self._highest]
        self.broken(
            "F3",
            f"{reader} read entry {self._highest}, but the ledger was closed at entry {end.last_entry}",
            found_seq,
            end.seq,
            seq,
        )

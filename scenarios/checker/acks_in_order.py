"""One writer sends and acknowledges entries in order, without a gap."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["AcksInOrder"]

Writer = tuple[str, int]


class AcksInOrder(Family):
    """One writer sends and acknowledges entries in order (A3, G1).

    A3: the APP_ACKs of a writer incarnation ascend, without repeat, and one that passes over entries finds them
    confirmed too: Qa good answers each. Recovery takes the first missing entry for the end, so an acknowledged entry
    behind a gap is lost. An entry with its quorum and without an APP_ACK belongs to a cancelled append.
    Sound as long as the recorder keeps the order in which the client completed its adds.

    G1: where the writer numbers entries itself, the first-time ADD_SENDs of an incarnation are for 0, 1, 2, ...; an
    application that gives the ids may do so in any order. In either case only one incarnation ever sends adds that are
    not part of a recovery: a ledger is never continued by another writer.
    """

    clauses = ("A3", "G1")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._next_ack: dict[Writer, int] = {}
        self._next_send: dict[Writer, int] = {}
        #: The last entry that each writer sent before one below it, with that one and the event.
        self._early: dict[Writer, tuple[int, int, int]] = {}
        self._last_ack_seq = -1
        self._first_send_seq = -1

    def handlers(self) -> Mapping[Kind, Handler]:
        """Acknowledgements and adds."""
        return {Kind.APP_ACK: self.on_ack, Kind.ADD_SEND: self.on_send, Kind.APP_ADD: self.on_add}

    def on_ack(self, event: Event) -> None:
        """Check that the acknowledgement is for the next entry, or that all entries below it are confirmed too."""
        entry = event.fields["entry"]
        writer = (event.actor, event.fields["incarnation"])
        expected = self._next_ack.get(writer, 0)
        self.checked["A3"] += 1
        if entry < expected or (entry > expected and not self._are_confirmed(writer, expected, entry)):
            self.broken(
                "A3",
                f"entry {entry} was acknowledged to the application of {event.actor} where entry {expected} was due",
                self._last_ack_seq if self._last_ack_seq >= 0 else event.seq,
                event.seq,
            )
        self._next_ack[writer] = max(entry + 1, expected)
        self._last_ack_seq = event.seq

    def _are_confirmed(self, writer: Writer, first: int, end: int) -> bool:
        stored, stream = self.facts.metadata.current, self.facts.writers.get(writer)
        if stored is None:
            return True  # without metadata the ack quorum is unknown
        answers = stream.answers if stream is not None else {}
        return all(len(answers.get(entry, ())) >= stored.ack_quorum_size for entry in range(first, end))

    def on_add(self, event: Event) -> None:
        """Check the order of ids that the writer assigned. APP_ADD comes after the ADD_SENDs of its entry."""
        if event.fields.get("given") is not False:
            return
        early = self._early.pop((event.actor, event.fields["incarnation"]), None)
        self.checked["G1"] += 1
        if early is not None and early[0] == event.fields["entry"]:
            self.broken("G1", f"{event.actor} sent entry {early[0]} before it ever sent entry {early[1]}", early[2])

    def on_send(self, event: Event) -> None:
        """Check that a first-time add is for the next entry and from the only writer."""
        if event.fields["recovery"]:
            return
        entry = event.fields["entry"]
        writer = (event.actor, event.fields["incarnation"])
        expected = self._next_send.get(writer)
        if expected is None:
            self._on_new_writer(event, writer)
            expected = 0
        known = self._early.get(writer)
        if entry > expected and (known is None or known[0] != entry):
            self._early[writer] = (entry, expected, event.seq)
        if entry >= expected:
            self._next_send[writer] = entry + 1

    def _on_new_writer(self, event: Event, writer: Writer) -> None:
        self.checked["G1"] += 1
        if self._next_send:
            other, incarnation = next(iter(self._next_send))
            self.broken(
                "G1",
                f"{writer[0]} (incarnation {writer[1]}) adds to a ledger that {other} (incarnation {incarnation}) wrote",
                self._first_send_seq,
                event.seq,
            )
        else:
            self._first_send_seq = event.seq
        self._next_send[writer] = 0

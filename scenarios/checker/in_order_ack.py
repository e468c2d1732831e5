"""One writer, one order: entries are numbered, sent and acknowledged without a gap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["InOrderAck"]

Writer = tuple[str, int]


class InOrderAck(Family):
    """One writer sends and acknowledges entries 0, 1, 2, ... (A3, G1).

    A3: the APP_ACKs of a writer incarnation are for 0, 1, 2, ... without gap or repeat. Recovery takes the first
    missing entry for the end, so an acknowledged entry behind a gap is lost. Sound as long as the recorder keeps the
    order in which the client completed its adds.

    G1: the first-time ADD_SENDs of an incarnation are for 0, 1, 2, ..., and only one incarnation ever sends adds that
    are not part of a recovery: a ledger is never continued by another writer.
    """

    clauses: ClassVar[Mapping[str, tuple[str, str]]] = {
        "A3": ("InOrderAck", "a writer's acknowledgements are for entries 0, 1, 2, ... without gap or repeat"),
        "G1": ("SingleWriterOrder", "one writer incarnation sends entries 0, 1, 2, ..., and no other one ever adds"),
    }

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._next_ack: dict[Writer, int] = {}
        self._next_send: dict[Writer, int] = {}
        self._last_ack_seq = -1
        self._first_send_seq = -1

    def handlers(self) -> Mapping[Kind, Handler]:
        """Acknowledgements and adds."""
        return {Kind.APP_ACK: self.on_ack, Kind.ADD_SEND: self.on_send}

    def on_ack(self, event: Event) -> None:
        """The next acknowledgement is for the next entry."""
        entry = event.fields["entry"]
        writer = (event.actor, event.fields["incarnation"])
        expected = self._next_ack.get(writer, 0)
        self.checked["A3"] += 1
        if entry != expected:
            self.broken(
                "A3",
                f"entry {entry} was acknowledged to the application of {event.actor} where entry {expected} was due",
                self._last_ack_seq if self._last_ack_seq >= 0 else event.seq,
                event.seq,
            )
        self._next_ack[writer] = entry + 1
        self._last_ack_seq = event.seq

    def on_send(self, event: Event) -> None:
        """A first-time add is for the next entry, and from the one writer."""
        if event.fields["recovery"]:
            return
        entry = event.fields["entry"]
        writer = (event.actor, event.fields["incarnation"])
        expected = self._next_send.get(writer)
        if expected is None:
            self._on_new_writer(event, writer)
            expected = 0
        self.checked["G1"] += 1
        if entry > expected:
            self.broken(
                "G1",
                f"{event.actor} sent entry {entry} before it ever sent entry {expected}",
                event.seq,
            )
        if entry >= expected:
            self._next_send[writer] = entry + 1

    def _on_new_writer(self, event: Event, writer: Writer) -> None:
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

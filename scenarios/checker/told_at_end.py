"""The results that a writer's application gets when its ledger is closed, by its own close or by another client's recovery."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.checker.metadata import CLOSED
from scenarios.history.schema import Event, Kind

__all__ = ["ToldAtEnd"]


class ToldAtEnd(Family):
    """A successful close keeps acknowledged entries (A11), and a fenced writer fails with that error (A12).

    A11: when a close succeeds, the ledger is closed, and not below an entry that was acknowledged to this application as
    durable; under deferred sync it ends where it was forced. The state is not checked if a write of unknown outcome may
    have closed the ledger.

    A12: once a bookie refused an ordinary add of a writer because the ledger is fenced, and the entry had no ack quorum
    then, the writer confirms nothing more, and the first append that fails after that fails with "fenced". Only a bookie of
    the entry's write set under the stored metadata counts, because answers of replaced bookies are ignored. A writer that
    failed before, or is closing, may fail its appends with another error.
    """

    clauses = ("A11", "A12")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._acked: dict[str, tuple[int, int]] = {}
        self._refused: dict[tuple[str, int], tuple[int, int, bool]] = {}
        self._ended: set[str] = set()
        self._unknown_close = False

    def handlers(self) -> Mapping[Kind, Handler]:
        """Outcomes of appends and closes, refusals by bookies, and metadata writes."""
        return {
            Kind.APP_ACK: self.on_ack,
            Kind.APP_FAIL: self.on_fail,
            Kind.CLOSE_START: self.on_close,
            Kind.CLOSE_RESULT: self.on_closed,
            Kind.ADD_RESP: self.on_answer,
            Kind.META_CAS: self.on_cas,
        }

    def on_cas(self, event: Event) -> None:
        """Note a failed write: it may end the writer with another error."""
        fields = event.fields
        if fields["state"] == CLOSED and fields["outcome"] in {"unknown", "error"}:
            self._unknown_close = True
        if fields["outcome"] != "ok":
            self._ended.add(event.actor)

    def on_close(self, event: Event) -> None:
        """Note that the writer is closing: appends may fail with another error from now on."""
        self._ended.add(event.actor)

    def on_answer(self, event: Event) -> None:
        """Remember the first refusal that ends a writer."""
        fields = event.fields
        if fields["code"] != codes.FENCED or fields["recovery"] or event.actor in self._ended:
            return
        stored, writer = self.facts.stored, (event.actor, fields["incarnation"])
        if stored is None or writer in self._refused or fields["bookie"] not in stored.write_set(fields["entry"]):
            return
        stream = self.facts.writers.get(writer)
        confirmed = stream.confirmed if stream is not None else -1
        answers = stream.answers.get(fields["entry"], {}) if stream is not None else {}
        if len(answers) < stored.ack_quorum_size:
            self._refused[writer] = (event.seq, confirmed, True)

    def on_ack(self, event: Event) -> None:
        """Check that the entry was confirmed before the refusal."""
        entry = event.fields["entry"]
        known = self._acked.get(event.actor)
        if event.fields["durable"] and (known is None or entry > known[0]):
            self._acked[event.actor] = (entry, event.seq)
        refused = self._refused.get((event.actor, event.fields["incarnation"]))
        if refused is not None:
            self.checked["A12"] += 1
            if entry > refused[1]:
                self.broken(
                    "A12",
                    f"entry {entry} was acknowledged to the application of {event.actor}, to which a bookie had said before "
                    "that the ledger is fenced",
                    refused[0],
                    event.seq,
                )

    def on_fail(self, event: Event) -> None:
        """Check the error of the first failure after the refusal."""
        writer = (event.actor, event.fields["incarnation"])
        refused = self._refused.get(writer)
        if refused is not None and refused[2] and event.actor not in self._ended:
            self._refused[writer] = (refused[0], refused[1], False)
            self.checked["A12"] += 1
            if event.fields["code"] != codes.FENCED:
                self.broken(
                    "A12",
                    f"the application of {event.actor} was told that entry {event.fields['entry']} failed with code "
                    f"{event.fields['code']}; a bookie had said that the ledger is fenced",
                    refused[0],
                    event.seq,
                )
        elif refused is None:
            self._ended.add(event.actor)

    def on_closed(self, event: Event) -> None:
        """Check a successful close against the stored metadata and acknowledged entries."""
        fields = event.fields
        if fields["code"] != codes.OK:
            return
        self.checked["A11"] += 1
        acked = self._acked.get(event.actor)
        if acked is not None and acked[0] > fields["last_entry"]:
            self.broken(
                "A11",
                f"the application of {event.actor} was told that its ledger is closed at entry {fields['last_entry']}, though "
                f"entry {acked[0]} had been acknowledged to it",
                acked[1],
                event.seq,
            )
        stored = self.facts.metadata.current
        if stored is not None and stored.state != CLOSED and not self._unknown_close:
            self.broken(
                "A11",
                f"the application of {event.actor} was told that its ledger is closed, which is {stored.state}",
                stored.seq,
                event.seq,
            )

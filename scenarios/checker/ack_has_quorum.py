"""An acknowledgement needs an ack quorum of the stored write set."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import SYNCED, LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["AckHasQuorum"]


class AckHasQuorum(Family):
    """An acknowledgement needs an ack quorum (A2) that had the entry on disk (D7), and that is in several racks (A13).

    A2: at every APP_ACK of ``e``, Qa distinct bookies of ``ws(e, M)`` had answered OK to that writer, where ``M`` is the
    metadata *stored* at that moment. Other clients may change the stored metadata between the answer and the APP_ACK (a
    recovery that closes with replaced bookies, a re-replicator), so any version stored since this writer's own last change
    is accepted too. A version older than the writer's own last change is not.

    D7: if the acknowledgement is durable, Qa of these bookies had the entry on disk. Only bookies with any BK_SYNC are
    checked, because a bookie without a journal records none.

    A13: after FAULT_DOMAINS the good answers come from more than one rack, under one of the versions of A2. A single copy has no
    more than one.
    """

    clauses = ("A2", "A13", "D7")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        #: The racks of bookies, if the writer demands several.
        self._racks: dict[str, str] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Acknowledgements, and what they need; the facts have the answers."""
        return {Kind.APP_ACK: self.on_ack, Kind.FAULT_DOMAINS: self.on_racks}

    def on_racks(self, event: Event) -> None:
        """The writer demands copies in several racks."""
        fields = event.fields
        self._racks = dict(zip(fields["bookies"].split(","), fields["racks"].split(","), strict=False))

    def on_ack(self, event: Event) -> None:
        """Count the good answers before the acknowledgement."""
        stored = self.facts.stored
        if stored is None:
            return
        entry = event.fields["entry"]
        stream = self.facts.writers.get((event.actor, event.fields["incarnation"]))
        answers = stream.answers.get(entry, {}) if stream is not None else {}
        self.checked["A2"] += 1
        write_set = stored.write_set(entry)
        quorum = [bookie for bookie in write_set if bookie in answers]
        if len(quorum) < stored.ack_quorum_size:
            for older in self.facts.metadata.writer_versions(event.actor):
                if older.is_sound:
                    quorum = [bookie for bookie in older.write_set(entry) if bookie in answers]
                    if len(quorum) >= older.ack_quorum_size:
                        break
            else:
                self.broken(
                    "A2",
                    f"entry {entry} was acknowledged to the application of {event.actor} with good answers from "
                    f"{', '.join(sorted(answers)) or 'no bookie'}; its write set is {', '.join(write_set)}, of which "
                    f"{stored.ack_quorum_size} must have stored it",
                    stored.seq,
                    event.seq,
                    *answers.values(),
                )
                return
        if self._racks and stored.write_quorum_size > 1:
            self._check_spread(event, entry, answers)
        if event.fields["durable"]:
            self._check_durable(event, entry, quorum, stored.ack_quorum_size, answers)

    def _check_spread(self, event: Event, entry: int, answers: Mapping[str, int]) -> None:
        self.checked["A13"] += 1
        stored = self.facts.stored
        assert stored is not None, "the acknowledgement has its quorum of it"
        for version in (stored, *self.facts.metadata.writer_versions(event.actor)):
            if version.is_sound:
                confirmed = [bookie for bookie in version.write_set(entry) if bookie in answers]
                if len({self._racks.get(bookie) for bookie in confirmed}) > 1:
                    return
        told = ", ".join(f"{bookie} in {self._racks.get(bookie, 'no rack')}" for bookie in sorted(answers))
        self.broken(
            "A13",
            f"entry {entry} was acknowledged to the application of {event.actor} with good answers from one rack alone, to its "
            f"write set {', '.join(stored.write_set(entry))}: {told}",
            stored.seq,
            event.seq,
            *answers.values(),
        )

    def _check_durable(
        self, event: Event, entry: int, quorum: list[str], ack_quorum_size: int, answers: Mapping[str, int]
    ) -> None:
        copies = self.facts.copies.get(entry, {})
        syncing = self.facts.syncing
        unsafe = [bookie for bookie in quorum if bookie in syncing and not copies.get(bookie, 0) & SYNCED]
        self.checked["D7"] += 1
        if len(quorum) - len(unsafe) < ack_quorum_size:
            self.broken(
                "D7",
                f"entry {entry} was acknowledged to the application of {event.actor} as durable, but "
                f"{', '.join(unsafe)} answered before the entry was on disk",
                event.seq,
                *(answers[bookie] for bookie in unsafe),
            )

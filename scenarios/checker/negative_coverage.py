"""Recovery rules an entry out only if no ack quorum can have it, and takes it for found only if a bookie returned it."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["NegativeCoverage"]


class _Answers:
    """The answers to one recovery about one entry: the bookies that denied it, and those that returned it."""

    __slots__ = ("found", "negatives", "run_seq")

    def __init__(self, run_seq: int) -> None:
        self.run_seq = run_seq
        self.negatives: dict[str, int] = {}
        self.found: dict[str, int] = {}


class NegativeCoverage(Family):
    """Decisions of a recovery follow from the answers (E3, E4).

    E3: REC_DECIDE of ``e`` as negative needs "no such entry" or "no such ledger" from Qw - Qa + 1 distinct bookies of
    ``ws(e)`` in the ensemble the recovery found. Timeouts and other errors count for nothing: their bookies may have
    the entry.

    E4: REC_DECIDE as positive needs a bookie that answered OK.
    """

    clauses = ("E3", "E4")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._answers: dict[tuple[str, int], _Answers] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Answers to recovery reads, and decisions."""
        return {Kind.REC_READ_RESP: self.on_answer, Kind.REC_DECIDE: self.on_decision}

    def on_answer(self, event: Event) -> None:
        """Note the answer of the bookie."""
        run = self.facts.run_of(event.actor)
        if run is None:
            return
        fields = event.fields
        key = (event.actor, fields["entry"])
        answers = self._answers.get(key)
        if answers is None or answers.run_seq != run.seq:
            answers = self._answers[key] = _Answers(run.seq)
        if fields["code"] == codes.OK:
            answers.found[fields["bookie"]] = event.seq
        elif fields["code"] in codes.NEGATIVES:
            answers.negatives[fields["bookie"]] = event.seq

    def on_decision(self, event: Event) -> None:
        """Check the decision against the answers."""
        run, stored = self.facts.run_of(event.actor), self.facts.stored
        if run is None or stored is None or len(run.ensemble) != stored.ensemble_size:
            return
        fields = event.fields
        entry = fields["entry"]
        answers = self._answers.get((event.actor, entry))
        if answers is None or answers.run_seq != run.seq:
            answers = _Answers(run.seq)
        if fields["verdict"] == "positive":
            self.checked["E4"] += 1
            if not answers.found:
                self.broken(
                    "E4",
                    f"{event.actor} decided that entry {entry} exists without having read it",
                    event.seq,
                )
        elif fields["verdict"] == "negative":
            self.checked["E3"] += 1
            size = len(run.ensemble)
            write_set = [run.ensemble[(entry + i) % size] for i in range(stored.write_quorum_size)]
            needed = stored.write_quorum_size - stored.ack_quorum_size + 1
            deniers = [bookie for bookie in write_set if bookie in answers.negatives]
            if len(deniers) < needed:
                self.broken(
                    "E3",
                    f"{event.actor} ruled entry {entry} out by denials of {', '.join(deniers) or 'no bookie'}; it takes {needed} "
                    f"of {', '.join(write_set)} to exclude that {stored.ack_quorum_size} of them have it",
                    *answers.negatives.values(),
                    event.seq,
                )

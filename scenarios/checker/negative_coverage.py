"""Recovery rules an entry out only if no ack quorum can have it, and then at once; it takes for found what a bookie returned."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts, RecoveryRun
from scenarios.checker.metadata import Metadata
from scenarios.history.schema import Event, Kind

__all__ = ["NegativeCoverage"]


class _Answers:
    """The answers to one recovery about one entry: the bookies that denied it, and those that returned it.

    ``enough_seq`` is the denial with which they were enough, ``waited_seq`` the first answer after the entry could be ruled out.
    """

    __slots__ = ("enough_seq", "found", "negatives", "run_seq", "waited_seq")

    def __init__(self, run_seq: int) -> None:
        self.run_seq = run_seq
        self.negatives: dict[str, int] = {}
        self.found: dict[str, int] = {}
        self.enough_seq = -1
        self.waited_seq = -1


class NegativeCoverage(Family):
    """Decisions of a recovery follow from the answers (E3, E4), as soon as these suffice (L3).

    E3: REC_DECIDE of ``e`` as negative needs "no such entry" or "no such ledger" from Qw - Qa + 1 distinct bookies of
    ``ws(e)`` in the ensemble the recovery found. Timeouts and other errors count for nothing: their bookies may have
    the entry.

    E4: REC_DECIDE as positive needs a bookie that answered OK.

    L3: once so many bookies denied an entry, and the entry before it was decided, no further answer about it comes before
    REC_DECIDE. A bookie that never answers would hold the recovery up. Judged when the entry is decided: a recovery that failed
    before may still get answers.
    """

    clauses = ("E3", "E4", "L3")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._answers: dict[tuple[str, int], _Answers] = {}
        #: The run of each client, and the last entry that it decided.
        self._decided: dict[str, tuple[int, int]] = {}

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
        if answers.enough_seq >= 0 > answers.waited_seq and self._is_next(event.actor, run, fields["entry"]):
            answers.waited_seq = event.seq
        if fields["code"] == codes.OK:
            answers.found[fields["bookie"]] = event.seq
        elif fields["code"] in codes.NEGATIVES:
            answers.negatives[fields["bookie"]] = event.seq
            if answers.enough_seq < 0 and self._is_ruled_out(run, fields["entry"], answers):
                answers.enough_seq = event.seq

    def _is_next(self, actor: str, run: RecoveryRun, entry: int) -> bool:
        return entry == run.first_read or self._decided.get(actor) == (run.seq, entry - 1)

    def _is_ruled_out(self, run: RecoveryRun, entry: int, answers: _Answers) -> bool:
        stored = self.facts.stored
        if stored is None or len(run.ensemble) != stored.ensemble_size:
            return False
        deniers = sum(bookie in answers.negatives for bookie in _write_set(run, entry, stored))
        return deniers > stored.write_quorum_size - stored.ack_quorum_size

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
        self._decided[event.actor] = (run.seq, entry)
        if answers.enough_seq >= 0:
            self.checked["L3"] += 1
            if answers.waited_seq >= 0:
                self.broken(
                    "L3",
                    f"{event.actor} waited for another answer about entry {entry}, which enough bookies had denied",
                    answers.enough_seq,
                    answers.waited_seq,
                    event.seq,
                )
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
            write_set = _write_set(run, entry, stored)
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


def _write_set(run: RecoveryRun, entry: int, stored: Metadata) -> list[str]:
    """The bookies that ``run`` asks for ``entry``."""
    return [run.ensemble[(entry + i) % len(run.ensemble)] for i in range(stored.write_quorum_size)]

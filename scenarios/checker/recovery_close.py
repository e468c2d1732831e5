"""A recovery closes the ledger at the end it proved, with everything before it safely rewritten, or not at all."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler
from scenarios.checker.facts import RecoveryRun
from scenarios.checker.metadata import CLOSED, Metadata
from scenarios.history.schema import Event, Kind

__all__ = ["RecoveryClose"]


class RecoveryClose(Family):
    """A recovery closes at the end it proved, or not at all (E11, E7, E6).

    E11: after an undecided entry (REC_DECIDE unknown) the run does not even try to close.

    E7: a run closes one entry below the entry it ruled out, and never without having ruled one out.

    E6: when a run closes at ``LE``, each entry from its first recovery read to ``LE`` was answered OK, to this run's
    recovery adds, by Qa bookies of its write set in the ensembles that the closing write stores.

    The client that created the ledger is not judged: its close may be that of the writer, which ends at its own last
    confirmed entry.
    """

    clauses = ("E11", "E7", "E6")

    def handlers(self) -> Mapping[Kind, Handler]:
        """Closing writes; the rest is kept by the facts."""
        return {Kind.META_CAS: self.on_cas}

    def on_cas(self, event: Event) -> None:
        """Judge a write that closes."""
        fields = event.fields
        if fields["state"] != CLOSED or fields["cause"] != "close":
            return
        creator = self.facts.metadata.creator
        run = self.facts.run_of(event.actor)
        if run is None or not creator or event.actor == creator:
            return
        self.checked["E11"] += 1
        if run.unknown_seq >= 0:
            self.broken(
                "E11",
                f"{event.actor} moved to close the ledger at entry {fields['last_entry']} after a recovery that could not decide",
                run.unknown_seq,
                event.seq,
            )
        stored = self.facts.stored
        if fields["outcome"] == "ok" and stored is not None and stored.seq == event.seq:
            self._check_end(run, stored)
            self._check_rewritten(run, stored)

    def _check_end(self, run: RecoveryRun, stored: Metadata) -> None:
        self.checked["E7"] += 1
        if run.negative is None:
            self.broken(
                "E7",
                f"{stored.author} closed the ledger at entry {stored.last_entry} without having ruled out that more follows",
                run.seq,
                stored.seq,
            )
        elif stored.last_entry != run.negative - 1:
            self.broken(
                "E7",
                f"{stored.author} ruled out entry {run.negative}, but closed the ledger at entry {stored.last_entry}",
                run.negative_seq,
                stored.seq,
            )

    def _check_rewritten(self, run: RecoveryRun, stored: Metadata) -> None:
        if run.first_read is None:
            return
        self.checked["E6"] += 1
        for entry in range(run.first_read, stored.last_entry + 1):
            answers = run.adds.answers.get(entry, {})
            write_set = stored.write_set(entry)
            safe = [bookie for bookie in write_set if bookie in answers]
            if len(safe) < stored.ack_quorum_size:
                self.broken(
                    "E6",
                    f"{stored.author} closed the ledger at entry {stored.last_entry} when it had rewritten entry {entry} on "
                    f"{', '.join(safe) or 'nobody'} of {', '.join(write_set)}",
                    *answers.values(),
                    stored.seq,
                )
                return

"""A recovery closes the ledger only right below an entry that it ruled out, with all entries that it read written back."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts, RecoveryRun
from scenarios.checker.metadata import CLOSED, Metadata
from scenarios.history.schema import Event, Kind

__all__ = ["RecoveryClose"]


class RecoveryClose(Family):
    """A recovery closes only right below an entry that it ruled out, after its write-backs (E11, E7, E6).

    E11: after an undecided entry (REC_DECIDE unknown) the run does not even try to close.

    E7: a run closes one entry below the entry it ruled out, and never without having ruled one out.

    E6: when a run closes at ``LE``, each entry from its first recovery read to ``LE`` was answered OK, to this run's
    recovery adds, by Qa bookies of its write set in the ensembles that the closing write stores.

    The client that created the ledger may recover it, too, beside a writer that it has not closed. Then a closing write may
    be that of the writer, which ends at its own last confirmed entry; such a write is checked only if its last entry
    excludes that, or after the writer's close has returned.
    """

    clauses = ("E11", "E7", "E6")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._closed: set[str] = set()

    def handlers(self) -> Mapping[Kind, Handler]:
        """Closing writes, and closes of writers."""
        return {
            Kind.META_CAS: self.on_cas,
            Kind.CLOSE_START: self.on_close_start,
            Kind.CLOSE_RESULT: self.on_close_result,
        }

    def on_close_start(self, event: Event) -> None:
        """A writer is closing."""
        self._closed.discard(event.actor)

    def on_close_result(self, event: Event) -> None:
        """A writer has closed, and writes nothing more."""
        self._closed.add(event.actor)

    def on_cas(self, event: Event) -> None:
        """Judge a write that closes."""
        fields = event.fields
        if fields["state"] != CLOSED or fields["cause"] != "close":
            return
        creator = self.facts.metadata.creator
        run = self.facts.run_of(event.actor)
        if run is None or not creator:
            return
        if event.actor == creator and self._may_be_the_writers(event.actor, fields["last_entry"]):
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

    def _may_be_the_writers(self, actor: str, last_entry: int) -> bool:
        """Whether a writer of ``actor`` may have closed it there: not below what it promised, not above what is confirmed.

        An entry that was acknowledged before it was durable, and not forced since, is no such promise.
        """
        if actor in self._closed:
            return False
        streams = [stream for (name, _), stream in self.facts.writers.items() if name == actor]
        acks = self.facts.acked.items()
        kept = max((entry for entry, ack in acks if ack.actor == actor and ack.is_durable), default=-1)
        return kept <= last_entry <= max((stream.confirmed for stream in streams), default=-1)

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
                    f"{', '.join(safe) or 'no bookie'} of {', '.join(write_set)}",
                    *answers.values(),
                    stored.seq,
                )
                return

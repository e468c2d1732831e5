"""The first entry that recovery reads, and the bookies that it reads from."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler
from scenarios.history.schema import Event, Kind

__all__ = ["RecoveryReads"]


class RecoveryReads(Family):
    """Recovery reads from the right entry on and from the right bookies (E1, E2).

    E1: the first recovery read is for ``max(LAC of fenced bookies, first entry of the last fragment - 1) + 1``. Below that
    fragment, recovery would read from bookies that never had the entry, and take their denial for the end; above, it would
    skip entries that may not be confirmed. A start below the LAC but within the fragment is accepted: the recovery may have
    discarded an answer whose digest did not match.

    E2: recovery reads go to the write set of the entry in the ensemble that was stored when the recovery began, never to a
    bookie that the recovery put in.
    """

    clauses = ("E1", "E2")

    def handlers(self) -> Mapping[Kind, Handler]:
        """Recovery reads."""
        return {Kind.REC_READ_SEND: self.on_read}

    def on_read(self, event: Event) -> None:
        """Check one read."""
        run, stored = self.facts.run_of(event.actor), self.facts.stored
        if run is None or stored is None or len(run.ensemble) != stored.ensemble_size:
            return
        fields = event.fields
        entry = fields["entry"]
        if run.first_read_seq == event.seq:
            self._check_start(event, entry)
        if entry < run.first_entry:
            return  # the read that measures the last entry of a ledger without a tail; or a bad start, told already
        self.checked["E2"] += 1
        size = len(run.ensemble)
        write_set = [run.ensemble[(entry + i) % size] for i in range(stored.write_quorum_size)]
        if fields["bookie"] not in write_set:
            self.broken(
                "E2",
                f"{event.actor} read entry {entry} from {fields['bookie']}, its write set is {', '.join(write_set)}",
                run.seq,
                event.seq,
            )

    def _check_start(self, event: Event, entry: int) -> None:
        run = self.facts.run_of(event.actor)
        assert run is not None, "the caller looked"
        self.checked["E1"] += 1
        highest = max(run.fence_lac, run.first_entry - 1) + 1
        if entry < run.first_entry:
            self.broken(
                "E1",
                f"{event.actor} began to read at entry {entry}, below entry {run.first_entry} where the last fragment starts",
                run.seq,
                event.seq,
            )
        elif entry > highest:
            self.broken(
                "E1",
                f"{event.actor} began to read at entry {entry}, but entries from {highest} on may not be confirmed",
                run.seq,
                *run.fenced.values(),
                event.seq,
            )

"""No ack quorum is left unfenced when recovery begins to read."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler
from scenarios.checker.facts import RecoveryRun
from scenarios.history.schema import Event, Kind

__all__ = ["CoverageBeforeReads"]


class CoverageBeforeReads(Family):
    """Recovery reads only when no ack quorum of its ensemble is left unfenced (D4).

    When a recovery sends its first read, every window of Qw neighbouring positions of the ensemble it fences has fewer
    than Qa bookies that did not answer the fencing read with OK, "no such entry" or "no such ledger".

    Fencing reads alone keep acknowledged entries safe. Coverage ensures that the writer can acknowledge nothing more, so
    that the recovery ends. Too few fences therefore lose no data in any run, and only this clause detects them.
    """

    clauses = ("D4",)

    def handlers(self) -> Mapping[Kind, Handler]:
        """The first recovery read; the facts have the fences."""
        return {Kind.REC_READ_SEND: self.on_read}

    def on_read(self, event: Event) -> None:
        """Check the first read of a recovery."""
        run, stored = self.facts.run_of(event.actor), self.facts.stored
        if run is None or run.first_read_seq != event.seq or stored is None:
            return
        if len(run.ensemble) != stored.ensemble_size:
            return
        self.checked["D4"] += 1
        for position in range(len(run.ensemble)):
            window = _window(run, position, stored.write_quorum_size)
            unfenced = [bookie for bookie in window if bookie not in run.fenced]
            if len(unfenced) >= stored.ack_quorum_size:
                self.broken(
                    "D4",
                    f"{event.actor} began to read at entry {event.fields['entry']} while {', '.join(unfenced)}, an ack quorum of "
                    f"the write set {', '.join(window)}, were not known to be fenced",
                    run.seq,
                    *run.fenced.values(),
                    event.seq,
                )
                return


def _window(run: RecoveryRun, position: int, write_quorum_size: int) -> list[str]:
    size = len(run.ensemble)
    return [run.ensemble[(position + i) % size] for i in range(write_quorum_size)]

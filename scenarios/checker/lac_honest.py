"""A LAC is sent, stored or read only after its entry is confirmed."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["LacHonest"]


class LacHonest(Family):
    """No LAC is above the confirmed entries (D6) or the end (F5); none falls (D5); one recovery sends one LAC (E9).

    D6: every last-add-confirmed that is sent with an entry, known to a bookie, or reached by a reader, is at most the
    highest entry up to which each was acknowledged or is on Qa bookies by the word of a writer or a recovery, or that a closed
    ledger ends with.

    Answers of distinct bookies of any ensemble are counted, because a recovery stores its replaced ensembles only when it
    closes, and an APP_ACK may come after the LAC was sent with the next entry. A2 and B4 check the ensembles. LACs in
    answers to reads are not checked: the digest of the body may turn out not to match.

    F5: no LAC of a bookie or reader is above the last entry of the closed ledger.

    D5: the LAC of a bookie does not fall while it runs.

    E9: all adds of one recovery carry the same LAC, the one it started from. Otherwise a reader could read an entry that a
    concurrent recovery leaves out when it closes the ledger.
    """

    clauses = ("D6", "F5", "D5", "E9")

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._bookie_lacs: dict[str, tuple[int, int]] = {}
        self._visible = (-1, -1, "")

    def handlers(self) -> Mapping[Kind, Handler]:
        """Everything that carries a LAC from its source, and the close."""
        return {
            Kind.ADD_SEND: self.on_send,
            Kind.BK_LAC: self.on_bookie_lac,
            Kind.LAC_ADV: self.on_reader_lac,
            Kind.BK_CRASH: self.on_bookie_crash,
            Kind.META_CAS: self.on_metadata,
            Kind.META_READ: self.on_metadata,
        }

    def on_send(self, event: Event) -> None:
        """The LAC in an entry's header."""
        fields = event.fields
        lac = fields["lac"]
        self.checked["D6"] += 1
        if lac > self.facts.confirmed:
            self._report_unconfirmed(event, f"{event.actor} sent entry {fields['entry']} with LAC {lac}")
        if fields["recovery"]:
            run = self.facts.run_of(event.actor)
            if run is None or run.is_over:
                return
            self.checked["E9"] += 1
            if run.frozen_lac is None:
                run.frozen_lac = lac
            elif run.frozen_lac != lac:
                self.broken(
                    "E9",
                    f"the recovery by {event.actor} wrote entry {fields['entry']} back with LAC {lac}, earlier ones with LAC "
                    f"{run.frozen_lac}",
                    run.seq,
                    event.seq,
                )

    def on_bookie_lac(self, event: Event) -> None:
        """The LAC of a bookie."""
        lac = event.fields["lac"]
        self.checked["D6"] += 1
        if lac > self.facts.confirmed:
            self._report_unconfirmed(event, f"{event.actor} has LAC {lac}")
        self.checked["D5"] += 1
        known = self._bookie_lacs.get(event.actor)
        if known is not None and lac < known[0]:
            self.broken("D5", f"the LAC on {event.actor} fell from {known[0]} to {lac}", known[1], event.seq)
        self._bookie_lacs[event.actor] = (lac, event.seq)
        self._see(lac, event)

    def on_bookie_crash(self, event: Event) -> None:
        """A bookie's LAC in memory is lost with the process."""
        self._bookie_lacs.pop(event.actor, None)

    def on_reader_lac(self, event: Event) -> None:
        """The LAC a reader reached."""
        lac = event.fields["lac"]
        self.checked["D6"] += 1
        if lac > self.facts.confirmed:
            self._report_unconfirmed(event, f"{event.actor} reached LAC {lac}")
        self._see(lac, event)

    def _report_unconfirmed(self, event: Event, what: str) -> None:
        if self.facts.stored is None:
            return  # without metadata nothing can be confirmed
        self.broken("D6", f"{what} when no entry above {self.facts.confirmed} was confirmed", event.seq)

    def _see(self, lac: int, event: Event) -> None:
        if lac > self._visible[0]:
            self._visible = (lac, event.seq, event.actor)
            self._check_visible(event.seq)

    def on_metadata(self, event: Event) -> None:
        """Check that the end is not below a visible LAC."""
        self._check_visible(event.seq)

    def _check_visible(self, seq: int) -> None:
        end = self.facts.metadata.end
        if end is None:
            return
        self.checked["F5"] += 1
        lac, lac_seq, actor = self._visible
        if lac > end.last_entry:
            self.broken(
                "F5",
                f"{actor} had LAC {lac}, but the ledger was closed at entry {end.last_entry}",
                lac_seq,
                end.seq,
                seq,
            )

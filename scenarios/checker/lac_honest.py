"""Nobody is told that an entry is confirmed before it is."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.checker.metadata import CLOSED
from scenarios.history.schema import Event, Kind

__all__ = ["LacHonest"]


class LacHonest(Family):
    """No LAC is ahead of what is confirmed (D6), and none goes astray (F5, D5, E9).

    D6: every last-add-confirmed that is sent with an entry, known to a bookie, or reached by a reader, is at most the
    highest entry that was acknowledged, or that a writer or a recovery has on Qa bookies together with everything below
    it, or that a closed ledger ends with.

    Which bookies make up the quorum is not asked: a recovery's replaced ensembles are its own secret until it closes,
    and an application may hear of an acknowledgement after the LAC has left with the next entry. So answers of distinct
    bookies are counted, of whatever ensemble; that the ensembles were right, A2 and B4 see to. LACs in answers to reads
    are not judged: they may stand in a body whose digest will not verify.

    F5: what bookies and readers ever knew as LAC is not above the end of the closed ledger.

    D5: the LAC of a bookie does not fall while it runs.

    E9: all adds of one recovery carry the same LAC, the one it started from. Otherwise a reader could see, on the word
    of this recovery, an entry that a concurrent one closes the ledger without.
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
            self._accuse(event, f"{event.actor} sent entry {fields['entry']} with LAC {lac}")
        if fields["recovery"]:
            run = self.facts.run_of(event.actor)
            if run is None:
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
        """The LAC a bookie knows."""
        lac = event.fields["lac"]
        self.checked["D6"] += 1
        if lac > self.facts.confirmed:
            self._accuse(event, f"{event.actor} knows LAC {lac}")
        self.checked["D5"] += 1
        known = self._bookie_lacs.get(event.actor)
        if known is not None and lac < known[0]:
            self.broken("D5", f"the LAC on {event.actor} fell from {known[0]} to {lac}", known[1], event.seq)
        self._bookie_lacs[event.actor] = (lac, event.seq)
        self._see(lac, event)

    def on_bookie_crash(self, event: Event) -> None:
        """What a bookie knew in memory ends with the process."""
        self._bookie_lacs.pop(event.actor, None)

    def on_reader_lac(self, event: Event) -> None:
        """The LAC a reader reached."""
        lac = event.fields["lac"]
        self.checked["D6"] += 1
        if lac > self.facts.confirmed:
            self._accuse(event, f"{event.actor} took entry {lac} for confirmed")
        self._see(lac, event)

    def _accuse(self, event: Event, what: str) -> None:
        if self.facts.stored is None:
            return  # without metadata nothing can be confirmed
        self.broken("D6", f"{what} when no entry above {self.facts.confirmed} was confirmed", event.seq)

    def _see(self, lac: int, event: Event) -> None:
        if lac > self._visible[0]:
            self._visible = (lac, event.seq, event.actor)
            self._check_visible(event.seq)

    def on_metadata(self, event: Event) -> None:
        """The end must not be below what could be seen."""
        self._check_visible(event.seq)

    def _check_visible(self, seq: int) -> None:
        stored = self.facts.metadata.current
        if stored is None or stored.state != CLOSED:
            return
        self.checked["F5"] += 1
        lac, lac_seq, actor = self._visible
        if lac > stored.last_entry:
            self.broken(
                "F5",
                f"{actor} knew LAC {lac}, but the ledger was closed at entry {stored.last_entry}",
                lac_seq,
                stored.seq,
                seq,
            )

"""A force that succeeds confirms what was acknowledged when it began."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.checker.metadata import Metadata
from scenarios.history.schema import Event, Kind

__all__ = ["ForcesConfirm"]


class ForcesConfirm(Family):
    """What was acknowledged before a force began that succeeded is not above the end of the closed ledger (D16).

    An entry that a bookie lost is passed over: it may have been lost before it was forced, which no bookie can tell. Of several
    forces under way at once by one client the first answer is taken for that to the first, which covers least.
    """

    clauses = ("D16",)

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._began: dict[str, int] = {}
        #: When the last force of each client that succeeded began and ended.
        self._forced: dict[str, tuple[int, int]] = {}
        self._judged: Metadata | None = None

    def handlers(self) -> Mapping[Kind, Handler]:
        """Forces, and events that show the stored metadata."""
        return {
            Kind.FORCE_START: self.on_start,
            Kind.FORCE_RESULT: self.on_result,
            Kind.META_CAS: self.on_metadata,
            Kind.META_READ: self.on_metadata,
        }

    def on_start(self, event: Event) -> None:
        """A client begins a force."""
        self._began.setdefault(event.actor, event.seq)

    def on_result(self, event: Event) -> None:
        """It is told what came of it."""
        began = self._began.pop(event.actor, -1)
        if event.fields["code"] == codes.OK and began >= 0:
            self._forced[event.actor] = began, event.seq
            self._check(event.actor)

    def on_metadata(self, _event: Event) -> None:
        """The ledger may have been closed."""
        end = self.facts.metadata.end
        if end is not self._judged:
            self._judged = end
            for actor in self._forced:
                self._check(actor)

    def _check(self, actor: str) -> None:
        end = self.facts.metadata.end
        if end is None:
            return
        began, ended = self._forced[actor]
        self.checked["D16"] += 1
        cut_off = [
            (entry, ack.seq)
            for entry, ack in self.facts.acked.items()
            if entry > end.last_entry and ack.seq < began and not self.facts.losses_of(entry)
        ]
        if cut_off:
            entry, acked = min(cut_off)
            self.broken(
                "D16",
                f"{actor} was told that its force succeeded, which covers entry {entry}, and the ledger is closed at entry "
                f"{end.last_entry}",
                acked,
                began,
                ended,
                end.seq,
            )

"""What a reader knows to be confirmed stays so."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["ReaderLac"]


class ReaderLac(Family):
    """The last add confirmed of one reader never falls (F2).

    Judged by LAC_ADV, for each handle of each client; histories that do not tell handles apart are passed over. What a
    reader took for confirmed when a read began raises what it has to keep to, but is not judged itself: its event stands
    where the read ended.
    """

    clauses = ("F2",)

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._known: dict[tuple[str, int], tuple[int, int]] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """What readers learn, and what they read by it; clients that start anew have new handles."""
        return {Kind.LAC_ADV: self.on_lac, Kind.READ_RESULT: self.on_read, Kind.CLIENT_START: self.on_start}

    def on_start(self, event: Event) -> None:
        """Its handles are counted from 1 again."""
        for key in [key for key in self._known if key[0] == event.actor]:
            del self._known[key]

    def on_read(self, event: Event) -> None:
        """The reader knew this much before."""
        handle, lac = event.fields.get("handle"), event.fields["lac"]
        if handle is not None and lac is not None:
            key = (event.actor, handle)
            known = self._known.get(key)
            if known is None or lac > known[0]:
                self._known[key] = (lac, event.seq)

    def on_lac(self, event: Event) -> None:
        """Judge what the reader learned."""
        handle, lac = event.fields.get("handle"), event.fields["lac"]
        if handle is None:
            return
        key = (event.actor, handle)
        known = self._known.get(key)
        self.checked["F2"] += 1
        if known is not None and lac < known[0]:
            self.broken(
                "F2",
                f"the last add confirmed of a reader of {event.actor} fell from {known[0]} to {lac}",
                known[1],
                event.seq,
            )
        if known is None or lac > known[0]:
            self._known[key] = (lac, event.seq)

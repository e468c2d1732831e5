"""The last add confirmed of a reader never falls."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["ReaderLac"]


class ReaderLac(Family):
    """The last add confirmed of one reader never falls (F2).

    Checked at LAC_ADV, for each handle of each client; histories without handles are skipped. The LAC in a READ_RESULT
    raises the minimum but is not checked itself: it is that of the beginning of the read, and the event that of the end.
    """

    clauses = ("F2",)

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        self._known: dict[tuple[str, int], tuple[int, int]] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """LACs of readers; a client that starts again has new handles."""
        return {Kind.LAC_ADV: self.on_lac, Kind.READ_RESULT: self.on_read, Kind.CLIENT_START: self.on_start}

    def on_start(self, event: Event) -> None:
        """Forget the handles of the client: their numbers start at 1 again."""
        for key in [key for key in self._known if key[0] == event.actor]:
            del self._known[key]

    def on_read(self, event: Event) -> None:
        """Note the LAC that the reader had when the read began."""
        handle, lac = event.fields.get("handle"), event.fields["lac"]
        if handle is not None and lac is not None:
            key = (event.actor, handle)
            known = self._known.get(key)
            if known is None or lac > known[0]:
                self._known[key] = (lac, event.seq)

    def on_lac(self, event: Event) -> None:
        """Check the new LAC."""
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

"""Nobody is told that a ledger does not exist while it does."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker import codes
from scenarios.checker.base import Family, Handler, Report
from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["ToldAtOpen"]


class ToldAtOpen(Family):
    """Opening a ledger that is stored all the time does not fail with the claim that there is none (L8).

    Nor with a denial of an entry: what bookies deny is no reason why a ledger cannot be opened. Of several openings by one client
    the first answer is taken for that to the first.
    """

    clauses = ("L8",)

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        super().__init__(facts, report)
        #: When each client began to open the ledger, and since when it was stored then; -1 if it was not.
        self._began: dict[str, tuple[int, int]] = {}
        self._deleted_seq = -1

    def handlers(self) -> Mapping[Kind, Handler]:
        """Openings and deletions."""
        return {Kind.OPEN_START: self.on_start, Kind.OPEN_RESULT: self.on_result, Kind.META_CAS: self.on_cas}

    def on_cas(self, event: Event) -> None:
        """Note a deletion."""
        if (event.fields["cause"], event.fields["outcome"]) == ("delete", "ok"):
            self._deleted_seq = event.seq

    def on_start(self, event: Event) -> None:
        """Note whether the ledger is stored."""
        current = self.facts.metadata.current
        self._began.setdefault(event.actor, (event.seq, current.seq if current is not None else -1))

    def on_result(self, event: Event) -> None:
        """Judge what the application is told."""
        began, stored = self._began.pop(event.actor, (-1, -1))
        code = event.fields["code"]
        self.checked["L8"] += 1
        if code in codes.NEGATIVES:
            self.broken("L8", f"{event.actor} was told with code {code} why it cannot open the ledger", event.seq)
        elif code == codes.NO_SUCH_LEDGER and stored >= 0 and self._deleted_seq < began:
            self.broken(
                "L8",
                f"{event.actor} was told that the ledger does not exist, which was stored when it began to open it",
                stored,
                began,
                event.seq,
            )

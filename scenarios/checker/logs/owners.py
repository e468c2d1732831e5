"""One owner at a time: what a deposed one is told."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Handler
from scenarios.checker.logs.base import LogFamily, LogReport, place_of, shown
from scenarios.history.schema import Event, Kind

__all__ = ["LogOwners"]


class LogOwners(LogFamily):
    """One owner at a time (H7, H8).

    H7: what an owner publishes after a ledger of a later owner was listed is never acknowledged to it. Sound, because a later
    owner lists its first ledger after all before it are closed. What was published before may be acknowledged after: it may have
    been stored before the ledger was fenced, and the answers come late.

    H8: an acknowledged message is in a ledger that was listed under the epoch of its publisher, and not above the end that is
    noted.
    """

    clauses = ("H7", "H8")

    def __init__(self, report: LogReport) -> None:
        super().__init__(report)
        #: By epoch, the event that listed its first ledger.
        self._began: dict[int, int] = {}
        #: By ledger, its epoch.
        self._epochs: dict[int, int] = {}
        #: By ledger, the end that was noted, and the event.
        self._ends: dict[int, tuple[int, int]] = {}
        #: By ledger, the highest acknowledged entry, and the event.
        self._highest: dict[int, tuple[int, int]] = {}
        #: Messages that were published too late: the events of the publishing and of the successor's beginning.
        self._late: dict[tuple[int, int], tuple[int, int]] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """What is published and acknowledged, and the list."""
        return {
            Kind.LOG_APPEND: self.on_appended,
            Kind.LOG_END: self.on_ended,
            Kind.LOG_PUB: self.on_published,
            Kind.LOG_ACK: self.on_acknowledged,
        }

    def on_appended(self, event: Event) -> None:
        """An owner begins."""
        epoch = event.fields["epoch"]
        self._began.setdefault(epoch, event.seq)
        self._epochs.setdefault(event.ledger, epoch)

    def on_published(self, event: Event) -> None:
        """Note whether a later owner has begun."""
        epoch = event.fields["epoch"]
        begun = [seq for other, seq in self._began.items() if other > epoch]
        if begun:
            self._late[epoch, event.fields["message"]] = event.seq, min(begun)

    def on_acknowledged(self, event: Event) -> None:
        """Check when it was published, and where it is."""
        epoch, message = event.fields["epoch"], event.fields["message"]
        ledger, entry, _ = place = place_of(event)
        self.checked["H7"] += 1
        late = self._late.get((epoch, message))
        if late is not None:
            text = f"message {message} of epoch {epoch} was published after a later owner had begun, and acknowledged"
            self.broken("H7", ledger, text, *late, event.seq)
        self.checked["H8"] += 1
        listed = self._epochs.get(ledger)
        if listed != epoch:
            under = "not in the list" if listed is None else f"listed in epoch {listed}"
            text = f"message {message} of epoch {epoch} was acknowledged as {shown(place)}, and the ledger is {under}"
            self.broken("H8", ledger, text, event.seq)
        self._highest[ledger] = max(self._highest.get(ledger, (-1, -1)), (entry, event.seq))
        self._check_end(ledger)

    def on_ended(self, event: Event) -> None:
        """Check what was acknowledged before."""
        self._ends.setdefault(event.ledger, (event.fields["last_entry"], event.seq))
        self._check_end(event.ledger)

    def _check_end(self, ledger: int) -> None:
        highest, end = self._highest.get(ledger), self._ends.get(ledger)
        if highest is not None and end is not None and highest[0] > end[0]:
            text = f"entry {highest[0]} was acknowledged, and the ledger was noted to end at entry {end[0]}"
            self.broken("H8", ledger, text, highest[1], end[1])

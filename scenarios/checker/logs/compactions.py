"""What a log was compacted to is whole, stays as long as it is pointed to, and covers no less than before."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Handler
from scenarios.checker.logs.base import LogFamily, LogReport
from scenarios.history.schema import Event, Kind

__all__ = ["LogCompactions"]


class LogCompactions(LogFamily):
    """Compactions, where the list points to them (H17, H18).

    H17: when the list points to a compacted ledger, that is closed; and it is deleted only after the list points to it no more.

    H18: the entry up to which a log is compacted does not go back, and a ledger that is trimmed ends no later than it. What is
    trimmed while the list points to no compaction is nobody's loss.

    Sound, because all of these are recorded where the service applies them.
    """

    clauses = ("H17", "H18")

    def __init__(self, report: LogReport) -> None:
        super().__init__(report)
        self._closed: set[int] = set()
        #: By ledger, its last entry as it was noted.
        self._ends: dict[int, int] = {}
        #: The ledger that the list points to, and the event.
        self._present: tuple[int, int] | None = None
        #: Up to where the log was ever compacted, and the event.
        self._horizon: tuple[tuple[int, int], int] = ((-1, -1), -1)

    def handlers(self) -> Mapping[Kind, Handler]:
        """Compactions, the metadata of their ledgers, and what is trimmed."""
        return {
            Kind.LOG_COMPACT: self.on_compaction,
            Kind.LOG_END: self.on_ended,
            Kind.LOG_TRIM: self.on_trimmed,
            Kind.META_CAS: self.on_metadata,
            Kind.META_READ: self.on_metadata,
        }

    def on_metadata(self, event: Event) -> None:
        """Note that a ledger is closed; check that one that is deleted is not pointed to."""
        fields = event.fields
        if fields["outcome"] != "ok":
            return
        if fields.get("cause") == "delete":
            present = self._present
            if present is not None:
                self.checked["H17"] += 1
            if present is not None and present[0] == event.ledger:
                text = "the ledger was deleted while the log points to it as compacted"
                self.broken("H17", event.ledger, text, present[1], event.seq)
        elif fields["state"] == "CLOSED":
            self._closed.add(event.ledger)

    def on_compaction(self, event: Event) -> None:
        """Check what the list points to."""
        cause = event.fields["cause"]
        if cause == "dropped":
            self._present = None
        if cause != "done":
            return
        self._present = event.ledger, event.seq
        self.checked["H17"] += 1
        if event.ledger not in self._closed:
            self.broken("H17", event.ledger, "the log points to a compacted ledger that is open", event.seq)
        through = event.fields["through"], event.fields["entry"]
        before, seq = self._horizon
        self.checked["H18"] += 1
        if through < before:
            text = f"the log was compacted through {_shown(through)}, and through {_shown(before)} before"
            self.broken("H18", event.ledger, text, seq, event.seq)
        else:
            self._horizon = through, event.seq

    def on_ended(self, event: Event) -> None:
        """Note where the ledger ends."""
        self._ends.setdefault(event.ledger, event.fields["last_entry"])

    def on_trimmed(self, event: Event) -> None:
        """Check that the ledger is covered."""
        end = self._ends.get(event.ledger)
        if self._present is None or end is None:
            return
        self.checked["H18"] += 1
        horizon, seq = self._horizon
        if (event.ledger, end) > horizon:
            text = (
                f"the ledger was trimmed, which ends at entry {end}, and the log is compacted through {_shown(horizon)}"
            )
            self.broken("H18", event.ledger, text, seq, event.seq)


def _shown(horizon: tuple[int, int]) -> str:
    return ":".join(map(str, horizon))

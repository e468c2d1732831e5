"""The list of a log: what is written to is in it, and one ledger at most can be written to."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Handler
from scenarios.checker.logs.base import LogFamily, LogReport
from scenarios.history.schema import Event, Kind

__all__ = ["LogLedgers"]


class LogLedgers(LogFamily):
    """The list of a log (H5, H6, H9, H10).

    H5: nothing is sent to a ledger that was made for a log before it was appended to the list.

    H6: a ledger is deleted only when it is not in the list: never appended, ended empty, or trimmed.

    H9: a ledger is appended only when every one in the list before it is closed, and its end noted.

    H10: the end that is noted is that with which the ledger had been closed.

    Sound, because all of these are recorded where the service applies them; ADD_SEND comes after the answer that showed the
    ledger in the list.
    """

    clauses = ("H5", "H6", "H9", "H10")

    def __init__(self, report: LogReport) -> None:
        super().__init__(report)
        #: By ledger, the event that appended it.
        self._appended: dict[int, int] = {}
        #: By ledger, its last entry as it was closed, and the event.
        self._closed: dict[int, tuple[int, int]] = {}
        self._ended: set[int] = set()
        self._left: set[int] = set()
        #: Ledgers of compactions, which are in no list.
        self._compacted: set[int] = set()

    def handlers(self) -> Mapping[Kind, Handler]:
        """The list, and of each ledger what is sent to it, and its metadata."""
        return {
            Kind.LOG_COMPACT: self.on_compaction,
            Kind.LOG_APPEND: self.on_appended,
            Kind.LOG_END: self.on_ended,
            Kind.LOG_TRIM: self.on_trimmed,
            Kind.ADD_SEND: self.on_sent,
            Kind.META_CAS: self.on_metadata,
            Kind.META_READ: self.on_metadata,
        }

    def on_compaction(self, event: Event) -> None:
        """The ledger is written to without being in the list."""
        self._compacted.add(event.ledger)

    def on_sent(self, event: Event) -> None:
        """Check that the ledger is in the list."""
        if not event.fields["recovery"] and event.ledger not in self._compacted:
            self.checked["H5"] += 1
            if event.ledger not in self._appended:
                text = f"entry {event.fields['entry']} was sent to a ledger that is not in the list"
                self.broken("H5", event.ledger, text, event.seq)

    def on_appended(self, event: Event) -> None:
        """Check that no ledger in the list before can be written to."""
        for other in self._in_list():
            self.checked["H9"] += 1
            missing = "its end is not noted" if other not in self._ended else "it is not closed"
            if other not in self._ended or other not in self._closed:
                text = f"ledger {event.ledger} was appended after ledger {other}, and {missing}"
                self.broken("H9", event.ledger, text, self._appended[other], event.seq)
        self._appended.setdefault(event.ledger, event.seq)

    def on_trimmed(self, event: Event) -> None:
        """The ledger left the list."""
        self._left.add(event.ledger)

    def on_ended(self, event: Event) -> None:
        """Check the end that was noted."""
        ledger, last = event.ledger, event.fields["last_entry"]
        self.checked["H10"] += 1
        closed = self._closed.get(ledger)
        if closed is None:
            self.broken("H10", ledger, f"entry {last} was noted as the end of a ledger that is open", event.seq)
        elif closed[0] != last:
            text = f"entry {last} was noted as the end of a ledger that was closed at entry {closed[0]}"
            self.broken("H10", ledger, text, closed[1], event.seq)
        self._ended.add(ledger)
        if last < 0:
            self._left.add(ledger)

    def on_metadata(self, event: Event) -> None:
        """Note that a ledger is closed; check that one that is deleted is not in the list."""
        fields = event.fields
        if fields["outcome"] != "ok":
            return
        if fields.get("cause") == "delete":
            self.checked["H6"] += 1
            if event.ledger in self._in_list():
                seqs = self._appended[event.ledger], event.seq
                self.broken("H6", event.ledger, "the ledger was deleted while it was in the list", *seqs)
        elif fields["state"] == "CLOSED":
            self._closed.setdefault(event.ledger, (fields["last_entry"], event.seq))

    def _in_list(self) -> list[int]:
        return [ledger for ledger in self._appended if ledger not in self._left]

"""What cursors deliver, and who moves them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

from scenarios.checker.base import Handler
from scenarios.checker.logs.base import LogFamily, LogReport, Place, place_of, shown
from scenarios.history.schema import Event, Kind

__all__ = ["LogCursors"]

Position = tuple[int, int]
"""The ledger and the entry that a cursor needs first."""


class _Cursor:
    """One cursor of the log, as it is stored."""

    __slots__ = ("delivered", "floor", "opened_seq", "opener", "passed", "position", "seq")

    def __init__(self) -> None:
        self.opener = ""
        self.opened_seq = -1
        self.position: Position = (-1, 0)
        self.seq = -1
        #: The first position, before which nothing is asked; None before the cursor was opened.
        self.floor: Position | None = None
        #: Positions up to here were judged.
        self.passed: Position = (-1, 0)
        self.delivered: set[Place] = set()


class LogCursors(LogFamily):
    """What cursors deliver, and who moves them (H12, H13, H14). A group of consumers has a cursor in each partition.

    H12: who opened the cursor last gets no message before the furthest position that was stored. Sound, because positions move
    forward only, an opening begins at the one that it found, and what it moves over was acknowledged and comes no more. Who was
    overtaken and does not know it may deliver anything.

    H13: after a cursor was opened, only the one that did stores its position.

    H14: when a position is stored, every message before it was delivered by the cursor, to anybody; those are asked for that
    publishers were told of, from the first position on, in ledgers that were not trimmed.

    After a cursor was removed or reset nothing is asked of it any more; nor is H14 after something was skipped: acknowledged by
    the application without having been delivered.
    """

    clauses = ("H12", "H13", "H14")

    def __init__(self, report: LogReport) -> None:
        super().__init__(report)
        self._cursors: dict[str, _Cursor] = {}
        self._removed: set[str] = set()
        self._skipped: set[str] = set()
        #: By reader, its cursor.
        self._readers: dict[tuple[str, int], str] = {}
        self._acked: list[Place] = []
        self._ack_seqs: dict[Place, int] = {}
        self._trimmed: set[int] = set()

    def handlers(self) -> Mapping[Kind, Handler]:
        """Cursors, what they deliver, and what there is to deliver."""
        return {
            Kind.LOG_CURSOR: self.on_cursor,
            Kind.LOG_READ_START: self.on_start,
            Kind.LOG_READ: self.on_read,
            Kind.LOG_ACK: self.on_acknowledged,
            Kind.LOG_TRIM: self.on_trimmed,
        }

    def on_start(self, event: Event) -> None:
        """Note by which cursor is read."""
        if event.fields["cursor"]:
            self._readers[event.actor, event.fields["handle"]] = event.fields["cursor"]

    def on_trimmed(self, event: Event) -> None:
        """What is in the ledger need not be delivered any more."""
        self._trimmed.add(event.ledger)

    def on_read(self, event: Event) -> None:
        """Check that the message was not dealt with."""
        name = self._readers.get((event.actor, event.fields["handle"]))
        if name is None or name in self._removed:
            return
        cursor, place = self._cursor(name), place_of(event)
        cursor.delivered.add(place)
        if cursor.opener != event.actor:
            return
        self.checked["H12"] += 1
        if place[:2] < cursor.position:
            where = ":".join(map(str, cursor.position))
            text = f"{event.actor} got {shown(place)} by {name}, which had come to {where}"
            self.broken("H12", place[0], text, cursor.seq, event.seq)

    def on_cursor(self, event: Event) -> None:
        """Check who moves it, and over what."""
        name, cause = event.fields["cursor"], event.fields["cause"]
        if cause in {"removed", "reset"}:
            self._removed.add(name)
        elif cause == "skipped":
            self._skipped.add(name)
        if cause not in {"opened", "stored"} or name in self._removed:
            return
        cursor = self._cursor(name)
        position = event.ledger, event.fields["entry"]
        if cause == "opened":
            cursor.opener, cursor.opened_seq = event.actor, event.seq
            if cursor.floor is None:
                cursor.floor = cursor.passed = position
        elif cursor.opener:
            self.checked["H13"] += 1
            if cursor.opener != event.actor:
                text = f"{event.actor} moved {name}, which {cursor.opener} had opened after it"
                self.broken("H13", event.ledger, text, cursor.opened_seq, event.seq)
        if position > cursor.position:
            cursor.position, cursor.seq = position, event.seq
        if cursor.floor is not None and position > cursor.passed:
            first, last = bisect_left(self._acked, (*cursor.passed, -2)), bisect_left(self._acked, (*position, -2))
            cursor.passed = position
            for place in self._acked[first:last]:
                self._check_delivered(name, cursor, place, event.seq)

    def on_acknowledged(self, event: Event) -> None:
        """Check the positions that are behind it already."""
        place = place_of(event)
        if place in self._ack_seqs:
            return
        self._ack_seqs[place] = event.seq
        insort(self._acked, place)
        for name, cursor in self._cursors.items():
            if name not in self._removed and cursor.floor is not None and cursor.floor <= place[:2] < cursor.passed:
                self._check_delivered(name, cursor, place, event.seq)

    def _check_delivered(self, name: str, cursor: _Cursor, place: Place, seq: int) -> None:
        if place[0] in self._trimmed or name in self._skipped:
            return
        self.checked["H14"] += 1
        if place not in cursor.delivered:
            text = f"{shown(place)} was acknowledged, and {name} is behind it and delivered it to nobody"
            self.broken("H14", place[0], text, self._ack_seqs[place], seq)

    def _cursor(self, name: str) -> _Cursor:
        return self._cursors.setdefault(name, _Cursor())

"""One consumer at a time."""

from __future__ import annotations

from collections.abc import Mapping

from scenarios.checker.base import Handler
from scenarios.checker.logs.base import LogFamily, LogReport, place_of, shown
from scenarios.history.schema import Event, Kind

__all__ = ["LogConsumers"]


class LogConsumers(LogFamily):
    """Of an exclusive or failover group one consumer at a time is active (H19, H20).

    H19: when a consumer of such a group opens the cursor, it is a member, or was one when the cursor was opened last, and nobody
    else is who came before it. Sound, because it replaces the position that it had seen when it was the first of a list of
    members that it got after that, and members that come later get higher numbers. Who left since the cursor was opened last is
    not judged: it may have decided as the member that it was.

    H20: what comes by a cursor comes to one that opened it before. Where no opening is recorded nothing is judged.

    With these, and with H13, a message that two consumers got was got by the second one after it had taken the cursor over, and
    what the first one acknowledges from then on is not stored.
    """

    clauses = ("H19", "H20")

    def __init__(self, report: LogReport) -> None:
        super().__init__(report)
        #: By group and number, the consumers of exclusive and failover groups, and the event.
        self._members: dict[str, dict[int, tuple[str, int]]] = {}
        #: By group and consumer, the event by which it left last.
        self._left: dict[tuple[str, str], int] = {}
        #: By cursor, which consumer opened it, and the last time.
        self._openers: dict[str, set[str]] = {}
        self._opened: dict[str, int] = {}
        #: By reader, its cursor.
        self._readers: dict[tuple[str, int], str] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Members, cursors, and what they deliver."""
        return {
            Kind.LOG_MEMBER: self.on_member,
            Kind.LOG_CURSOR: self.on_cursor,
            Kind.LOG_READ_START: self.on_start,
            Kind.LOG_READ: self.on_read,
        }

    def on_member(self, event: Event) -> None:
        """Note who is a member."""
        group, number = event.fields["cursor"], event.fields["member"]
        members = self._members.setdefault(group, {})
        if event.fields["cause"] == "left":
            if members.pop(number, None) is not None:
                self._left[group, event.actor] = event.seq
        elif event.fields["mode"] != "shared":
            members[number] = event.actor, event.seq

    def on_cursor(self, event: Event) -> None:
        """Check whose turn it is."""
        if event.fields["cause"] != "opened":
            return
        name, actor = event.fields["cursor"], event.actor
        members = self._members.get(name, {})
        own = min((number for number, (who, _) in members.items() if who == actor), default=None)
        left = self._left.get((name, actor), -1)
        if (own is not None or left >= 0) and left <= self._opened.get(name, -1):
            self.checked["H19"] += 1
            first = min(members, default=-1)
            if first >= 0 and (own is None or first < own):
                other, seq = members[first]
                turn = "and is no member any more" if own is None else f"as member {own}"
                text = f"{actor} opened {name} {turn}, and {other} is member {first}"
                self.broken("H19", event.ledger, text, seq, event.seq)
        self._openers.setdefault(name, set()).add(actor)
        self._opened[name] = event.seq

    def on_start(self, event: Event) -> None:
        """Note by which cursor is read."""
        if event.fields["cursor"]:
            self._readers[event.actor, event.fields["handle"]] = event.fields["cursor"]

    def on_read(self, event: Event) -> None:
        """Check that the reader has opened the cursor."""
        name = self._readers.get((event.actor, event.fields["handle"]))
        if name is None or name not in self._openers:
            return
        self.checked["H20"] += 1
        if event.actor not in self._openers[name]:
            text = f"{event.actor} got {shown(place_of(event))} by {name}, which it never opened"
            self.broken("H20", event.ledger, text, self._opened[name], event.seq)

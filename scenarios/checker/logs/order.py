"""Message ids grow: with the order of publishing, and for each reader."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from scenarios.checker.base import Handler
from scenarios.checker.logs.base import LogFamily, LogReport, Place, place_of, shown
from scenarios.history.schema import Event, Kind

__all__ = ["LogOrder"]

Message = tuple[int, int]
"""Which message: the epoch of its owner, and its number there."""


class LogOrder(LogFamily):
    """Message ids grow (H3, H4).

    H3: messages are in the log in the order of their owners, and of each owner in the order in which it published them. Whose a
    message is, its acknowledgement says; of one that was only delivered, its content, if it was published once. Sound, because a
    successor lists its first ledger only after those of its predecessor have ended.

    H4: what one reader or cursor gets has ids that grow.
    """

    clauses = ("H3", "H4")

    def __init__(self, report: LogReport) -> None:
        super().__init__(report)
        #: By content, the one message that has it; None if there are several.
        self._by_content: dict[int, Message | None] = {}
        self._places: list[Place] = []
        #: By place, the message there and an event that shows it.
        self._messages: dict[Place, tuple[Message, int]] = {}
        self._acked: set[Place] = set()
        self._last: dict[tuple[str, int], tuple[Place, int]] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Messages from their publishing to their delivery."""
        return {Kind.LOG_PUB: self.on_published, Kind.LOG_ACK: self.on_acknowledged, Kind.LOG_READ: self.on_read}

    def on_published(self, event: Event) -> None:
        """Note whose content it is."""
        content = event.fields["content"]
        self._by_content[content] = None if content in self._by_content else _message(event)

    def on_acknowledged(self, event: Event) -> None:
        """Check the place of the message."""
        place, message = place_of(event), _message(event)
        known = self._messages.get(place)
        if known is not None and place in self._acked and known[0] != message:
            self._out_of_order(place, message, event.seq, place, *known)
        elif known is None or known[0] != message:
            self._put(place, message, event.seq)
        self._acked.add(place)

    def on_read(self, event: Event) -> None:
        """Check the place of the message, and that it comes after the one that the reader got before."""
        place = place_of(event)
        reader = (event.actor, event.fields["handle"])
        before = self._last.get(reader)
        if before is not None:
            self.checked["H4"] += 1
            if place <= before[0]:
                text = f"{event.actor} got {shown(place)} after {shown(before[0])}"
                self.broken("H4", place[0], text, before[1], event.seq)
        self._last[reader] = place, event.seq
        message = self._by_content.get(event.fields["content"])
        if message is not None and place not in self._messages:
            self._put(place, message, event.seq)

    def _put(self, place: Place, message: Message, seq: int) -> None:
        index = bisect_left(self._places, place)
        if place not in self._messages:
            self._places.insert(index, place)
        self._messages[place] = message, seq
        if index:
            self.checked["H3"] += 1
            left = self._places[index - 1]
            if self._messages[left][0] > message:
                self._out_of_order(place, message, seq, left, *self._messages[left])
        if index + 1 < len(self._places):
            self.checked["H3"] += 1
            right = self._places[index + 1]
            if self._messages[right][0] < message:
                self._out_of_order(place, message, seq, right, *self._messages[right])

    def _out_of_order(
        self, place: Place, message: Message, seq: int, other: Place, other_message: Message, other_seq: int
    ) -> None:
        first, second = sorted(((place, message), (other, other_message)))
        text = f"message {_told(first[1])} is at {shown(first[0])}, and {_told(second[1])} at {shown(second[0])}"
        self.broken("H3", max(place, other)[0], text, seq, other_seq)


def _message(event: Event) -> Message:
    return event.fields["epoch"], event.fields["message"]


def _told(message: Message) -> str:
    return f"{message[1]} of epoch {message[0]}"

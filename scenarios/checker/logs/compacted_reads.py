"""Who reads a log by what its compaction left gets the newest message of each key."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from typing import NamedTuple

from scenarios.checker.base import Handler
from scenarios.checker.logs.base import LogFamily, LogReport, Place, place_of, shown
from scenarios.history.schema import Event, Kind

__all__ = ["LogCompactedReads"]

Number = tuple[int, int]
"""Which message: the epoch of its owner, and its number there. Messages of a log are in this order (H3)."""
Horizon = tuple[int, int]
"""The ledger and the entry up to which a log is compacted."""


class _Message(NamedTuple):
    """What was published: its key, None for none, and whether it is empty, which deletes the key."""

    number: Number
    key: int | None
    is_deletion: bool


class _Reading:
    """What one reader has got, which began when the log was compacted through ``horizon``."""

    __slots__ = ("horizon", "last", "seq")

    def __init__(self, seq: int, horizon: Horizon) -> None:
        self.seq = seq
        self.horizon = horizon
        self.last: Place | None = None


class LogCompactedReads(LogFamily):
    """What readers get that read a log, from its beginning, by what compactions left (H15, H16).

    H15: such a reader passes over an acknowledged message only if a compaction covers it, and it has no key, or deletes one, or a
    newer message of its key may be covered too: one that was published later, and is not known to be behind what is covered.
    Judged when the reader gets something behind the message, or comes to the end; then only ledgers are asked for whose end was
    noted before it began. What was trimmed while the log was not compacted is not asked for, and everything that was trimmed
    since is. Sound, because a message is published before it can be covered, and what is covered grows.

    H16: of what was covered when it began it gets no message that has no key, or deletes one, or is older than an acknowledged
    one of its key that was covered too. Sound, because a compaction reads everything that it covers.
    """

    clauses = ("H15", "H16")

    def __init__(self, report: LogReport) -> None:
        super().__init__(report)
        self._published: dict[Number, _Message] = {}
        self._of_key: dict[int, list[Number]] = {}
        self._places: dict[Number, Place] = {}
        self._acked: list[Place] = []
        #: By place, the message and the event of its acknowledgement.
        self._acks: dict[Place, tuple[_Message, int]] = {}
        #: Ledgers that were trimmed while the log was not compacted.
        self._gone: set[int] = set()
        #: By ledger, the event that noted its end.
        self._ended: dict[int, int] = {}
        self._horizon: Horizon = (-1, -1)
        self._is_compacted = False
        self._readings: dict[tuple[str, int], _Reading] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Messages from their publishing to their delivery, compactions, and what became of ledgers."""
        return {
            Kind.LOG_PUB: self.on_published,
            Kind.LOG_ACK: self.on_acknowledged,
            Kind.LOG_COMPACT: self.on_compaction,
            Kind.LOG_TRIM: self.on_trimmed,
            Kind.LOG_END: self.on_ended,
            Kind.LOG_READ_START: self.on_start,
            Kind.LOG_READ: self.on_read,
            Kind.LOG_READ_END: self.on_end_of_reading,
        }

    def on_published(self, event: Event) -> None:
        """Note its key."""
        number, key = (event.fields["epoch"], event.fields["message"]), event.fields.get("key")
        self._published[number] = _Message(number, key, event.fields.get("size") == 0)
        if key is not None:
            self._of_key.setdefault(key, []).append(number)

    def on_acknowledged(self, event: Event) -> None:
        """Note where it is."""
        number, place = (event.fields["epoch"], event.fields["message"]), place_of(event)
        message = self._published.get(number)
        if message is not None and place not in self._acks:
            self._places.setdefault(number, place)
            self._acks[place] = message, event.seq
            insort(self._acked, place)

    def on_compaction(self, event: Event) -> None:
        """Note what is covered."""
        cause = event.fields["cause"]
        if cause in {"done", "dropped"}:
            self._is_compacted = cause == "done"
        if cause == "done":
            self._horizon = max(self._horizon, (event.fields["through"], event.fields["entry"]))

    def on_trimmed(self, event: Event) -> None:
        """What is in the ledger need not be delivered any more, unless a compaction keeps it."""
        if not self._is_compacted:
            self._gone.add(event.ledger)

    def on_ended(self, event: Event) -> None:
        """What is in the ledger is known from now on."""
        self._ended.setdefault(event.ledger, event.seq)

    def on_start(self, event: Event) -> None:
        """A reader begins."""
        if event.fields["cause"] == "compacted":
            self._readings[_key(event)] = _Reading(event.seq, self._horizon)

    def on_read(self, event: Event) -> None:
        """Check the message, and what lies between it and the one before."""
        reading = self._readings.get(_key(event))
        if reading is None:
            return
        place = place_of(event)
        first = 0 if reading.last is None else bisect_right(self._acked, reading.last)
        for between in self._acked[first : bisect_left(self._acked, place)]:
            if between[0] not in self._gone:
                self._check_passed_over(between, event)
        reading.last = place if reading.last is None else max(place, reading.last)
        if place in self._acks and place[:2] <= reading.horizon:
            self._check_newest(place, reading.horizon, event)

    def on_end_of_reading(self, event: Event) -> None:
        """Check what lies behind the last message."""
        reading = self._readings.pop(_key(event), None)
        if reading is None:
            return
        for place in self._acked[0 if reading.last is None else bisect_right(self._acked, reading.last) :]:
            was_there = max(self._ended.get(place[0], event.seq), self._acks[place][1]) < reading.seq
            if was_there and place[0] not in self._gone:
                self._check_passed_over(place, event)

    def _check_passed_over(self, place: Place, event: Event) -> None:
        self.checked["H15"] += 1
        message, acked = self._acks[place]
        if place[:2] > self._horizon:
            why = "is not covered"
        elif message.key is None or message.is_deletion or self._may_be_replaced(message):
            return
        else:
            why = "is the newest of its key"
        text = f"{shown(place)} was acknowledged and {why}, and {event.actor} passed over it"
        self.broken("H15", place[0], text, acked, event.seq)

    def _may_be_replaced(self, message: _Message) -> bool:
        assert message.key is not None
        return any(
            number > message.number and (number not in self._places or self._places[number][:2] <= self._horizon)
            for number in self._of_key[message.key]
        )

    def _check_newest(self, place: Place, horizon: Horizon, event: Event) -> None:
        self.checked["H16"] += 1
        message, acked = self._acks[place]
        newer = -1
        if message.key is None:
            why = "has no key"
        elif message.is_deletion:
            why = "deletes its key"
        else:
            later = (self._places[number] for number in self._of_key[message.key] if number in self._places)
            found = min((other for other in later if place < other and other[:2] <= horizon), default=None)
            if found is None:
                return
            newer, why = self._acks[found][1], f"is older than {shown(found)} of the same key"
        text = f"{event.actor} got {shown(place)}, which was covered when it began and {why}"
        self.broken("H16", place[0], text, acked, event.seq, *([newer] if newer >= 0 else []))


def _key(event: Event) -> tuple[str, int]:
    return event.actor, event.fields["handle"]

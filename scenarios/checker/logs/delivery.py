"""Acknowledged messages are delivered, once, where they were acknowledged."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Mapping

from scenarios.checker.base import Handler
from scenarios.checker.logs.base import LogFamily, LogReport, Place, place_of, shown
from scenarios.history.schema import Event, Kind

__all__ = ["LogDelivery"]


class _Reading:
    """What one reader that is no cursor has got."""

    __slots__ = ("first", "gone", "is_from_earliest", "last", "seq", "seqs")

    def __init__(self, seq: int, *, is_from_earliest: bool) -> None:
        self.seq = seq
        self.is_from_earliest = is_from_earliest
        self.first: Place | None = None
        self.last: Place | None = None
        #: By place, the event of its delivery.
        self.seqs: dict[Place, int] = {}
        #: Ledgers that had been trimmed when the first message came.
        self.gone: frozenset[int] = frozenset()

    def passes(self, place: Place) -> bool:
        """Whether the reader went from before the place to behind it."""
        if self.last is None or self.first is None or place >= self.last:
            return False
        return place >= self.first or (self.is_from_earliest and place[0] not in self.gone)


class LogDelivery(LogFamily):
    """Acknowledged messages are delivered, once, where they were acknowledged (H1, H2).

    H1: a reader that gets messages on both sides of an acknowledged one gets that too, with the content that was published; so
    does one from the earliest message that there is, and one that comes to the end. Sound, because readers go by ledgers and
    entries in order: nothing that is in the log between two messages may be passed over, whenever its acknowledgement was told.
    What was trimmed before the first message came is not asked of a reader from the earliest one. At the end, only ledgers are
    asked for whose end was noted before the reader began: how much there is of one that is written to, readers learn late. What
    cursors deliver is not asked about, because they pass over what was acknowledged by them; nor is what compactions left out.

    H2: the places at which a content is seen, acknowledged or delivered, are no more than the times that it was published.
    """

    clauses = ("H1", "H2")

    def __init__(self, report: LogReport) -> None:
        super().__init__(report)
        self._readings: dict[tuple[str, int], _Reading] = {}
        self._acked: list[Place] = []
        #: By place, the content and the event of the acknowledgement.
        self._acks: dict[Place, tuple[int, int]] = {}
        #: By place, the content that was delivered and the event.
        self._read: dict[Place, tuple[int, int]] = {}
        self._published: Counter[int] = Counter()
        self._places: dict[int, dict[Place, int]] = {}
        self._trimmed: set[int] = set()
        #: By ledger, the event that noted its end.
        self._ended: dict[int, int] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """Messages from their publishing to their delivery, and what became of ledgers."""
        return {
            Kind.LOG_PUB: self.on_published,
            Kind.LOG_ACK: self.on_acknowledged,
            Kind.LOG_READ_START: self.on_start,
            Kind.LOG_READ: self.on_read,
            Kind.LOG_READ_END: self.on_end_of_reading,
            Kind.LOG_TRIM: self.on_trimmed,
            Kind.LOG_END: self.on_ended,
        }

    def on_trimmed(self, event: Event) -> None:
        """What is in the ledger need not be delivered any more."""
        self._trimmed.add(event.ledger)

    def on_ended(self, event: Event) -> None:
        """What is in a ledger is known from now on."""
        self._ended.setdefault(event.ledger, event.seq)

    def on_published(self, event: Event) -> None:
        """Another place may come to have this content."""
        self._published[event.fields["content"]] += 1

    def on_acknowledged(self, event: Event) -> None:
        """Check what was read before."""
        place, content = place_of(event), event.fields["content"]
        self._see(place, content, event.seq)
        if place not in self._acks:
            insort(self._acked, place)
            self._acks[place] = content, event.seq
        read = self._read.get(place)
        if read is not None:
            self._compare(place, content, event.seq, *read)
        for (actor, _), reading in self._readings.items():
            if reading.passes(place):
                self.checked["H1"] += 1
                if place not in reading.seqs:
                    self._passed_over(place, actor, event.seq)

    def on_start(self, event: Event) -> None:
        """A reader begins; cursors, and readers of what a compaction left, are not looked at."""
        if not event.fields["cursor"] and event.fields["cause"] != "compacted":
            is_from_earliest = event.fields["cause"] == "earliest"
            self._readings[_key(event)] = _Reading(event.seq, is_from_earliest=is_from_earliest)

    def on_read(self, event: Event) -> None:
        """Check the content, and what lies between this message and the one before."""
        place, content = place_of(event), event.fields["content"]
        self._see(place, content, event.seq)
        self._read.setdefault(place, (content, event.seq))
        acked = self._acks.get(place)
        if acked is not None:
            self._compare(place, *acked, content, event.seq)
        reading = self._readings.get(_key(event))
        if reading is None:
            return
        if reading.first is None:
            reading.first, reading.gone = place, frozenset(self._trimmed)
            first = 0 if reading.is_from_earliest else bisect_left(self._acked, place)
        else:
            assert reading.last is not None, "there is a first one"
            first = bisect_right(self._acked, reading.last)
        reading.last = place if reading.last is None else max(place, reading.last)
        reading.seqs.setdefault(place, event.seq)
        for between in self._acked[first : bisect_left(self._acked, place)]:
            if reading.passes(between):
                self.checked["H1"] += 1
                self._passed_over(between, event.actor, event.seq)

    def on_end_of_reading(self, event: Event) -> None:
        """Check that everything was delivered that was acknowledged, and of ledgers that had ended, when the reader began."""
        reading = self._readings.pop(_key(event), None)
        if reading is None:
            return
        lowest = reading.first
        for place in self._acked:
            is_asked = reading.is_from_earliest or (lowest is not None and place >= lowest)
            is_there = self._ended.get(place[0], event.seq) < reading.seq and place[0] not in self._trimmed
            if is_asked and is_there and self._acks[place][1] < reading.seq:
                self.checked["H1"] += 1
                if place not in reading.seqs:
                    self._passed_over(place, event.actor, event.seq)

    def _passed_over(self, place: Place, reader: str, seq: int) -> None:
        acked = self._acks[place][1]
        self.broken("H1", place[0], f"{shown(place)} was acknowledged, and {reader} passed over it", acked, seq)

    def _compare(self, place: Place, acked: int, acked_seq: int, read: int, read_seq: int) -> None:
        self.checked["H1"] += 1
        if acked != read:
            text = f"{shown(place)} was acknowledged with the content {acked}, and delivered with {read}"
            self.broken("H1", place[0], text, acked_seq, read_seq)

    def _see(self, place: Place, content: int, seq: int) -> None:
        places = self._places.setdefault(content, {})
        if place in places:
            return
        places[place] = seq
        self.checked["H2"] += 1
        published = self._published[content]
        if len(places) > published:
            where = " and ".join(map(shown, sorted(places)))
            self.broken(
                "H2", max(places)[0], f"what was published {published} times is in the log at {where}", *places.values()
            )


def _key(event: Event) -> tuple[str, int]:
    return event.actor, event.fields["handle"]

"""Publish times never go back in a log, whichever of its owners published."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from scenarios.checker.base import Handler
from scenarios.checker.logs.base import LogFamily, LogReport, Place, place_of, shown
from scenarios.history.schema import Event, Kind

__all__ = ["LogTimes"]


class LogTimes(LogFamily):
    """Publish times grow with the places of messages (H21).

    A message has one publish time, and none has an earlier one than a message before it: reading from a time on searches by that.
    Owners' clocks may differ, so an owner has to go on from where the log ended. Older histories do not tell publish times, and
    nothing is concluded.
    """

    clauses = ("H21",)

    def __init__(self, report: LogReport) -> None:
        super().__init__(report)
        self._places: list[Place] = []
        #: By place, the publish time of the message there, and the event that told it.
        self._times: dict[Place, tuple[int, int]] = {}

    def handlers(self) -> Mapping[Kind, Handler]:
        """What readers get."""
        return {Kind.LOG_READ: self.on_read}

    def on_read(self, event: Event) -> None:
        """Check the time against that of the message before and of the one after, and of what another reader got here."""
        time = event.fields["publish_ms"]
        if time is None:
            return
        place = place_of(event)
        self.checked["H21"] += 1
        known = self._times.get(place)
        if known is not None:
            if known[0] != time:
                self._went_back(place, *known, place, time, event.seq)
            return
        index = bisect_left(self._places, place)
        self._places.insert(index, place)
        self._times[place] = time, event.seq
        if index:
            before = self._places[index - 1]
            if self._times[before][0] > time:
                self._went_back(before, *self._times[before], place, time, event.seq)
        if index + 1 < len(self._places):
            after = self._places[index + 1]
            if self._times[after][0] < time:
                self._went_back(place, time, event.seq, after, *self._times[after])

    def _went_back(self, first: Place, time: int, seq: int, second: Place, other_time: int, other_seq: int) -> None:
        text = f"{shown(first)} was published at {time} ms, and {shown(second)} at {other_time} ms"
        self.broken("H21", second[0], text, seq, other_seq)

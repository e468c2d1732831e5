"""What was known of a ledger over time: entries appended and acknowledged, LACs by who knew them, fragments, the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scenarios.history.schema import Event, Kind

__all__ = ["curves_of"]

#: Points of a step curve: microseconds since the start of the run, and an entry id from then on.
_Points = list[tuple[int, int]]


class _Curves:
    """The step curves of one ledger, by name, in the order in which they begin."""

    def __init__(self) -> None:
        self.points: dict[str, _Points] = {}

    def rise(self, name: str, time_us: int, entry: int | None) -> None:
        """Add a point if the curve rises."""
        if entry is None or entry < 0:
            return
        points = self.points.setdefault(name, [])
        if points and points[-1][1] >= entry:
            return
        if points and points[-1][0] == time_us:
            points[-1] = (time_us, entry)
        else:
            points.append((time_us, entry))

    def add(self, event: Event) -> None:
        """Note what an event tells."""
        fields, at = event.fields, event.time_us
        if event.kind == Kind.APP_ADD:
            self.rise("appended", at, fields["entry"])
        elif event.kind == Kind.APP_ACK:
            self.rise("acknowledged", at, fields["entry"])
        elif event.kind in {Kind.LAC_ADV, Kind.BK_LAC}:
            self.rise(f"LAC at {event.actor}", at, fields["lac"])


def curves_of(ledger: int, events: Iterable[Event]) -> dict[str, Any]:
    """Plain data about one ledger: ``curves``, ``fragments`` (each version of them) and ``closed``, the times of its end."""
    curves = _Curves()
    versions: list[dict[str, Any]] = []
    closed: list[tuple[int, int]] = []
    for event in events:
        if event.ledger != ledger:
            continue
        curves.add(event)
        if event.kind == Kind.META_CAS and event.fields["outcome"] == "ok":
            fields = event.fields
            versions.append(
                {
                    "us": event.time_us,
                    "version": fields["version"],
                    "state": fields["state"],
                    "cause": fields["cause"],
                    "by": event.actor,
                    "fragments": fields["fragments"] or [],
                    "seq": event.seq,
                }
            )
            if fields["state"] == "CLOSED":
                closed.append((event.time_us, fields["last_entry"]))
    return {"ledger": ledger, "curves": curves.points, "versions": versions, "closed": closed}

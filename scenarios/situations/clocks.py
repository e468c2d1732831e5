"""Situations of wall clocks that are wrong."""

from __future__ import annotations

from typing import Final

from scenarios.history import Kind
from scenarios.situations.base import Occasion, SituationFamily

__all__ = ["FAMILY"]

FAMILY: Final = SituationFamily()


@FAMILY.on(Kind.FAULT, cause="clock-jump")
def clock_jumped_in_add(at: Occasion) -> bool:
    """The wall clock of a writer jumped while its appends had no outcome."""
    target = at.fields["target"]
    return any(ledger.has_pending(target) for ledger in at.run.ledgers.values())


@FAMILY.on(Kind.LOG_READ)
def log_clock_fell_behind(at: Occasion) -> bool:
    """A message of a log has the publish time of one in an earlier ledger, because its owner's clock was behind."""
    before = at.run.log_times.get((at.actor, at.fields["handle"]))
    time = at.fields["publish_ms"]
    return time is not None and before is not None and before[0] < at.event.ledger and before[1] == time

"""Bookies crash when a recovery decides about an entry.

At the first decision, and perhaps at later ones, a member of the last ensemble crashes: one that has just answered a
recovery read, or one that is about to get a write-back. Some restart with the data that their disks kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from scenarios.conditions import draw_varied_conditions
from scenarios.history import Event, Kind
from scenarios.library.parts import Tail, leave_tail, recovering
from scenarios.model import Scenario
from scenarios.stage import LedgerSlot, Stage
from simbookie.storage.base import CrashMode

__all__ = ["KILLED_AT_DECISION"]

_RECOVERER: Final = "recoverer"


@dataclass(frozen=True, slots=True)
class Kill:
    """At decision ``number``, from 1 on, the member at ``position`` (mod E) crashes; it is back after ``back_s``, if ever."""

    number: int
    position: int
    mode: CrashMode
    back_s: float | None

    @classmethod
    def draw(cls, rng: Random, number: int) -> Kill:
        """Any, at this decision."""
        mode = rng.choice((CrashMode.PROCESS, CrashMode.POWER_LOSS))
        return cls(number, rng.randrange(5), mode, rng.choice((None, 0.05, 2.0)))


async def play(stage: Stage) -> None:
    """Members of the last ensemble crash when entries are decided."""
    rng = stage.rng
    tail = Tail.draw(rng)
    kills = [Kill.draw(rng, number) for number in (1, *rng.sample(range(2, 9), rng.randint(0, 3)))]
    ledger = stage.ledger()
    await leave_tail(stage, ledger, tail)
    for kill in kills:
        _arm(stage, ledger, kill)
    await stage.client(_RECOVERER, recovering(ledger)).ended()
    stage.disarm()
    await stage.settle(ledger)


def _arm(stage: Stage, ledger: LedgerSlot, kill: Kill) -> None:
    members = stage.ensemble(ledger)
    victim = members[kill.position % len(members)]
    decided = 0

    def is_due(event: Event) -> bool:
        nonlocal decided
        decided += event.kind == Kind.REC_DECIDE and event.actor == _RECOVERER
        return decided >= kill.number

    def strike() -> None:
        stage.crash_bookie(victim, kill.mode)
        if kill.back_s is not None:
            stage.later(kill.back_s, lambda: stage.restart_bookie(victim))

    stage.on_event(is_due, strike)


KILLED_AT_DECISION = Scenario(
    name="killed-at-decision",
    summary="bookies crash when a recovery decides about an entry",
    expected="decisions stay true; the recovery continues with the other bookies, or fails without effect",
    play=play,
    meets=("recovery", "bookie-lost-in-recovery"),
    draw=draw_varied_conditions,
)

"""Write-backs of a recovery, or their answers, are lost.

Entries that a recovery found have to be on an ack quorum before the ledger is closed. Some bookies of the last ensemble do
not confirm their write-backs: the recovery replaces them if there are spares, continues if the others are an ack quorum, or
fails. A write-back that timed out does not count as stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from scenarios.conditions import draw_varied_conditions
from scenarios.library.parts import Tail, is_write_back, leave_tail, pick_confirmers, recovering
from scenarios.model import Scenario
from scenarios.stage import Stage

__all__ = ["LOST_WRITE_BACKS"]


@dataclass(frozen=True, slots=True)
class LostWriteBacks:
    """The bookies that do not confirm: enough of the last ensemble to prevent an ack quorum, and ``more`` of all bookies."""

    tail: Tail
    answers: bool
    more: int
    attempts: int

    @classmethod
    def draw(cls, rng: Random) -> LostWriteBacks:
        """Any."""
        return cls(
            tail=Tail.draw(rng),
            answers=rng.random() < 0.5,
            more=rng.choice((0, 0, 1, 2)),
            attempts=rng.choice((1, 1, 2)),
        )


async def play(stage: Stage) -> None:
    """Write-backs to some bookies get no answer."""
    plan = LostWriteBacks.draw(stage.rng)
    ledger = stage.ledger()
    await leave_tail(stage, ledger, plan.tail)
    silent = pick_confirmers(stage, stage.rng, stage.ensemble(ledger))
    silent += stage.rng.sample(tuple(stage.bookies), min(plan.more, len(stage.bookies)))
    stage.drop("recoverer", silent, is_write_back, answers=plan.answers)
    await stage.client("recoverer", recovering(ledger, attempts=plan.attempts)).ended()
    await stage.settle(ledger)


LOST_WRITE_BACKS = Scenario(
    name="lost-write-backs",
    summary="some bookies do not confirm write-backs of a recovery; there may be no spare bookies",
    expected="the ledger is closed only when every found entry is on an ack quorum of the stored ensembles",
    play=play,
    meets=("unanswered-write-back",),
    draw=draw_varied_conditions,
)

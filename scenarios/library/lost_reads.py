"""A recovery asks, and too few bookies answer to know anything.

The reads of a recovery to so many bookies that none of their entries can be ruled out without them are lost, or their
answers are, or the answers come when the recovery has long given up waiting. It may have found everything and it may
have found nothing: what it must not do is to take silence for a denial. It fails instead, and a later one finds the
end.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from bkclient.wire.messages import Request
from scenarios.conditions import draw_varied_conditions
from scenarios.history import Event, Kind
from scenarios.library.parts import Tail, is_fence, is_recovery_read, leave_tail, pick_deniers, recovering
from scenarios.model import Scenario
from scenarios.stage import Stage

__all__ = ["LOST_READS"]


@dataclass(frozen=True, slots=True)
class LostReads:
    """What is lost: ``way`` is "request", "answer" or "late"; late answers come ``late`` timeouts after the first question."""

    tail: Tail
    way: str
    with_fences: bool
    late: float
    attempts: int

    @classmethod
    def draw(cls, rng: Random) -> LostReads:
        """Any."""
        return cls(
            tail=Tail.draw(rng),
            way=rng.choice(("request", "answer", "late")),
            with_fences=rng.random() < 0.2,
            late=rng.choice((1.1, 2.0)),
            attempts=rng.choice((1, 1, 2)),
        )


async def play(stage: Stage) -> None:
    """Reads of a recovery get no answer from bookies that it cannot do without."""
    plan = LostReads.draw(stage.rng)
    ledger = stage.ledger()
    await leave_tail(stage, ledger, plan.tail)
    silent = pick_deniers(stage, stage.rng, stage.ensemble(ledger))

    def is_meant(request: Request) -> bool:
        return is_recovery_read(request) or (plan.with_fences and is_fence(request))

    if plan.way == "late":
        held = stage.hold("recoverer", silent, is_meant, answers=True)
        late_s = plan.late * stage.conditions.client.timeouts.read_s
        stage.on_event(_is_question, lambda: stage.later(late_s, held.release))
    else:
        stage.drop("recoverer", silent, is_meant, answers=plan.way == "answer")
    await stage.client("recoverer", recovering(ledger, attempts=plan.attempts)).ended()
    stage.disarm()
    await stage.settle(ledger)


def _is_question(event: Event) -> bool:
    return event.actor == "recoverer" and event.kind in {Kind.FENCE_SEND, Kind.REC_READ_SEND}


LOST_READS = Scenario(
    name="lost-reads",
    summary="a recovery gets no answers, or late ones, from bookies without which it can know nothing",
    expected="silence is no denial: the recovery fails without a trace, or finds everything acknowledged",
    play=play,
    meets=("unknown-answer",),
    draw=draw_varied_conditions,
)

"""Too few bookies answer a recovery to rule an entry out.

The recovery's reads to some bookies are lost, or their answers are lost or come after the timeout; without these bookies no
entry can be ruled out. The recovery must not count a missing answer as a denial. It fails, or has found every acknowledged
entry; a later recovery finds the end.
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
    """``way`` is "request" or "answer" (lost), or "late": answers come ``late`` timeouts after the first request."""

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
    """Reads of a recovery get no answer from bookies without which it cannot rule out an entry."""
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
    summary="a recovery gets no answers, or late ones, from bookies without which it cannot rule out an entry",
    expected="a missing answer is no denial: the recovery fails without effect, or finds every acknowledged entry",
    play=play,
    meets=("unknown-answer",),
    draw=draw_varied_conditions,
)

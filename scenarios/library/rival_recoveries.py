"""Two clients recover one ledger, and a reader looks on.

The first is stopped in the middle, by a long pause or because its messages are held up, until the second is about as
far; then they go on together. Both may come to ends that differ in what was never acknowledged, and only one of them
may become the end. A reader that follows the ledger without recovery must not be shown what the end then leaves out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from scenarios.conditions import draw_varied_conditions
from scenarios.history import Event, Kind
from scenarios.library.parts import (
    Tail,
    following,
    is_recovery_read,
    is_write_back,
    leave_tail,
    pick_bookies,
    recovering,
)
from scenarios.model import Scenario
from scenarios.stage import Stage

__all__ = ["RIVAL_RECOVERIES"]

_FIRST: Final = "recoverer-0"
_SECOND: Final = "recoverer-1"
#: What the first is stopped at, and what the second gets to before the first goes on.
_STOPS: Final = (Kind.REC_START, Kind.REC_READ_SEND, Kind.ADD_SEND)
_GOES: Final = (Kind.REC_START, Kind.REC_READ_SEND, Kind.REC_DECIDE, Kind.ADD_SEND, Kind.OPEN_RESULT)


@dataclass(frozen=True, slots=True)
class Rivals:
    """Where the first is stopped, when it goes on, and which messages of whom are lost; ``dies`` instead of going on."""

    tail: Tail
    stop: Kind
    go: Kind
    dies: bool
    loses_reads: tuple[bool, bool]
    loses_write_backs: tuple[bool, bool]

    @classmethod
    def draw(cls, rng: Random) -> Rivals:
        """Any."""
        return cls(
            tail=Tail.draw(rng),
            stop=rng.choice(_STOPS),
            go=rng.choice(_GOES),
            dies=rng.random() < 0.15,
            loses_reads=(rng.random() < 0.3, rng.random() < 0.3),
            loses_write_backs=(rng.random() < 0.2, rng.random() < 0.2),
        )


async def play(stage: Stage) -> None:
    """The first recovery is paused in the middle until the second has got somewhere."""
    rng = stage.rng
    plan = Rivals.draw(rng)
    ledger = stage.ledger()
    await leave_tail(stage, ledger, plan.tail)
    reader = stage.client("reader", following(ledger))
    members = stage.ensemble(ledger)
    for index, name in enumerate((_FIRST, _SECOND)):
        if plan.loses_reads[index]:
            stage.drop(name, pick_bookies(rng, members), is_recovery_read)
        if plan.loses_write_backs[index]:
            stage.drop(name, pick_bookies(rng, members), is_write_back, answers=True)
    first = stage.client(_FIRST, recovering(ledger, attempts=1))
    stage.on_event(_of(_FIRST, plan.stop), first.pause)
    await stage.until(_of(_FIRST, plan.stop), ended=first)
    stage.on_event(_of(_SECOND, plan.go), first.crash if plan.dies else first.resume)
    second = stage.client(_SECOND, recovering(ledger, attempts=1))
    await second.ended()
    first.resume()
    await first.ended()
    stage.disarm()
    await stage.settle(ledger)
    await reader.ended()


def _of(name: str, kind: Kind) -> Callable[[Event], bool]:
    def is_it(event: Event) -> bool:
        if event.actor != name or event.kind != kind:
            return False
        return kind != Kind.ADD_SEND or bool(event.fields["recovery"])

    return is_it


RIVAL_RECOVERIES = Scenario(
    name="rival-recoveries",
    summary="two clients recover one ledger at the same time, each losing messages, while a reader follows it",
    expected="one end for everybody; nobody was shown an entry that it leaves out",
    play=play,
    meets=("rival-recoveries",),
    draw=draw_varied_conditions,
)

"""Two clients recover one ledger, and a reader follows it.

The first recovery is paused until the second has reached a certain event; then both continue. Their ends may differ in
entries that were never acknowledged, and only one of them may close the ledger. A reader that follows the ledger without
recovery must not read an entry above that end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from bkclient.ledger import LedgerState
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
from simbookie.world.metadata_service import MetadataCall

__all__ = ["RIVAL_RECOVERIES"]

_FIRST: Final = "recoverer-0"
_SECOND: Final = "recoverer-1"
#: The event at which the first is paused, and the event of the second at which the first continues.
_STOPS: Final = (Kind.REC_START, Kind.REC_READ_SEND, Kind.ADD_SEND)
_GOES: Final = (Kind.REC_START, Kind.REC_READ_SEND, Kind.REC_DECIDE, Kind.ADD_SEND, Kind.OPEN_RESULT)


@dataclass(frozen=True, slots=True)
class Rivals:
    """Where the first is paused, when it continues (or crashes, if ``dies``), and which messages of each are lost."""

    tail: Tail
    stop: Kind
    go: Kind
    dies: bool
    loses_reads: tuple[bool, bool]
    loses_write_backs: tuple[bool, bool]

    @classmethod
    def draw(cls, rng: Random) -> Rivals:
        """Any in which the first recovery reaches the event at which it is paused."""
        stop = rng.choice(_STOPS)
        return cls(
            tail=Tail.draw(rng),
            stop=stop,
            go=rng.choice(_GOES),
            dies=rng.random() < 0.15,
            loses_reads=(rng.random() < 0.3 and stop != Kind.ADD_SEND, rng.random() < 0.3),
            loses_write_backs=(rng.random() < 0.2, rng.random() < 0.2),
        )


async def play(stage: Stage) -> None:
    """The first recovery is paused until the second has reached an event."""
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
    # The first does not close before the second has begun, even if there is nothing to recover.
    held = stage.hold_metadata(_is_close_by_the_first)
    stage.on_event(_of(_SECOND, Kind.REC_START), held.release)
    first = stage.client(_FIRST, recovering(ledger, attempts=1))
    stage.on_event(_is_stop(plan.stop), first.pause)
    await stage.until(_is_stop(plan.stop), ended=first)
    stage.on_event(_of(_SECOND, plan.go), first.crash if plan.dies else first.resume)
    second = stage.client(_SECOND, recovering(ledger, attempts=1))
    await second.ended()
    first.resume()
    held.release()
    await first.ended()
    stage.disarm()
    await stage.settle(ledger)
    await reader.ended()


def _is_close_by_the_first(call: MetadataCall) -> bool:
    return call.host == _FIRST and call.metadata is not None and call.metadata.state is LedgerState.CLOSED


def _is_stop(kind: Kind) -> Callable[[Event], bool]:
    """The event at which the first is paused, or the end of its reading if that comes first."""
    is_it, is_over = _of(_FIRST, kind), _of(_FIRST, Kind.REC_DECIDE)
    return lambda event: is_it(event) or (is_over(event) and event.fields["verdict"] == "negative")


def _of(name: str, kind: Kind) -> Callable[[Event], bool]:
    def is_it(event: Event) -> bool:
        if event.actor != name or event.kind != kind:
            return False
        return kind != Kind.ADD_SEND or bool(event.fields["recovery"])

    return is_it


RIVAL_RECOVERIES = Scenario(
    name="rival-recoveries",
    summary="two clients recover one ledger at the same time, each losing messages, while a reader follows it",
    expected="all clients see the same end, and no reader read an entry above it",
    play=play,
    meets=("rival-recoveries",),
    draw=draw_varied_conditions,
)

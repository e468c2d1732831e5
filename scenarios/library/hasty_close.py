"""A writer closes its ledger with appends in flight.

Some bookies get, or confirm, the last entries too late, so that these have no ack quorum when the application closes.
Their appends fail and the ledger ends below them, although bookies may still store them. One bookie may have crashed, so
that an ensemble change is in progress, and another client may recover the ledger at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import anyio

from bkclient import BookKeeper
from bkclient.errors import BookKeeperError
from scenarios.conditions import draw_varied_conditions
from scenarios.library.parts import is_add, pick_confirmers, recovering
from scenarios.model import Scenario
from scenarios.stage import Stage
from simbookie.storage.base import CrashMode

__all__ = ["HASTY_CLOSE"]


@dataclass(frozen=True, slots=True)
class Haste:
    """``settled`` entries are acknowledged, ``pending`` are held back until ``late_s`` after the close began."""

    settled: int
    pending: int
    answers: bool
    kills: bool
    rival: bool
    late_s: float

    @classmethod
    def draw(cls, rng: Random) -> Haste:
        """At least one of them pending."""
        return cls(
            settled=rng.randint(0, 8),
            pending=rng.randint(1, 8),
            answers=rng.random() < 0.5,
            kills=rng.random() < 0.4,
            rival=rng.random() < 0.4,
            late_s=rng.choice((0.0, 0.002, 0.1)),
        )


async def play(stage: Stage) -> None:
    """Adds are held back, the writer closes, the adds are released."""
    plan = Haste.draw(stage.rng)
    ledger = stage.ledger()
    is_settled, is_held = anyio.Event(), anyio.Event()

    async def write(client: BookKeeper) -> None:
        writer = await ledger.create(client)
        await stage.append_entries(writer, plan.settled)
        await stage.flush(writer)
        is_settled.set()
        await is_held.wait()
        try:
            for number in range(min(plan.pending, stage.conditions.client.limits.max_in_flight_entries)):
                writer.append_nowait(b"late %d" % number)
            await writer.close()
        except BookKeeperError:
            return  # another client has closed or fenced the ledger

    writer = stage.client("writer", write)
    await is_settled.wait()
    members = stage.ensemble(ledger)
    held = stage.hold("writer", pick_confirmers(stage, stage.rng, members), is_add, answers=plan.answers)
    if plan.kills:
        stage.crash_bookie(stage.rng.choice(members), CrashMode.PROCESS)
    is_held.set()
    recoverer = stage.client("recoverer", recovering(ledger)) if plan.rival else None
    await stage.sleep(plan.late_s, plan.late_s)
    held.release()
    stage.heal()
    await writer.ended()
    if recoverer is not None:
        await recoverer.ended()
    await stage.settle(ledger)


HASTY_CLOSE = Scenario(
    name="hasty-close",
    summary="a writer closes with appends in flight, perhaps during an ensemble change or a recovery",
    expected="acknowledged entries are in the ledger, appends in flight fail, and entries that arrive late are ignored",
    play=play,
    meets=("close-cuts-off",),
    draw=draw_varied_conditions,
)

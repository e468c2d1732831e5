"""Bookies are killed and lose their fences, after the ledger of an idle writer was recovered.

A writer is idle while another client recovers and closes its ledger. Then bookies are killed and restarted, and lose their
fences, as those of Apache BookKeeper do in three cases: the fence was set before any entry was stored; no checkpoint kept it,
because there was no entry to flush; it was replayed at a start that replayed nothing else. The writer continues, its bookies
store its entries, and no answer shows that the ledger is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import anyio

from bkclient import BookKeeper
from scenarios.conditions import Conditions, draw_conditions
from scenarios.library.parts import is_add, recovering
from scenarios.model import Scenario
from scenarios.stage import Stage
from simbookie.storage.base import CrashMode
from simbookie.storage.forgetful import ForgetsLike
from simbookie.world.rng import split

__all__ = ["FORGOTTEN_FENCE"]

#: Longer than any other operation, so that a run is within one interval or waits for the next one.
_CHECKPOINT_INTERVAL_S: Final = 100.0
_BEFORE_ANY_ENTRY, _NEVER_WRITTEN, _REPLAYED = "before any entry", "never written", "replayed"


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which fences are lost, how long the bookies are down, and how many entries are written before and after."""

    case: str
    like: ForgetsLike
    away_s: float
    before: int
    after: int
    window: int

    @classmethod
    def draw(cls, rng: Random) -> _Plan:
        case, like = rng.choice(
            (
                (_BEFORE_ANY_ENTRY, ForgetsLike.SORTED),
                (_BEFORE_ANY_ENTRY, ForgetsLike.DB),
                (_NEVER_WRITTEN, ForgetsLike.DB),
                (_REPLAYED, ForgetsLike.SORTED),
            )
        )
        # Two entries in a row of three bookies: the recovery writes the last one back, and not to the first bookie.
        before = 2 if case == _REPLAYED else 0
        return cls(case, like, rng.choice((0.0, 0.5, 30.0)), before, rng.randint(1, 12), rng.randint(1, 8))


def _plan(seed: int) -> _Plan:
    return _Plan.draw(split(seed, "forgotten fence"))


async def play(stage: Stage) -> None:
    """An idle writer, a recovery, bookies killed and started, and the writer again."""
    plan = _plan(stage.world.seed)
    ledger = stage.ledger()
    may_go_on = anyio.Event()

    async def write(client: BookKeeper) -> None:
        writer = await ledger.create(client)
        await stage.append_entries(writer, plan.before, window=1)
        await stage.flush(writer)
        await may_go_on.wait()
        await stage.append_entries(writer, plan.after, window=plan.window)
        await stage.finish(writer)

    writer = stage.client("writer", write)
    await ledger.id()
    if plan.before:
        await stage.until_acknowledged(ledger, plan.before - 1)
        await anyio.sleep(_CHECKPOINT_INTERVAL_S)  # so that the fence alone is left to be replayed
    await stage.client("recoverer", recovering(ledger)).ended()
    members = stage.ensemble(ledger)
    forgetful = members[:1] if plan.case == _REPLAYED else members
    if plan.case == _NEVER_WRITTEN:
        await anyio.sleep(_CHECKPOINT_INTERVAL_S)
    await _kill_and_restart(stage, forgetful, plan.away_s)
    if plan.case == _REPLAYED:
        await anyio.sleep(_CHECKPOINT_INTERVAL_S)
        await _kill_and_restart(stage, forgetful, plan.away_s)
        stage.hold("writer", members[1:], is_add)  # these still have their fences, and would refuse
    may_go_on.set()
    await stage.sleep(0.5, 3.0)
    stage.heal()
    await writer.ended()
    await stage.settle(ledger)


async def _kill_and_restart(stage: Stage, bookies: Sequence[str], away_s: float) -> None:
    for name in bookies:
        stage.crash_bookie(name, CrashMode.PROCESS)
    await anyio.sleep(away_s)
    for name in bookies:
        stage.restart_bookie(name)
    for name in bookies:
        await stage.bookies[name].registered()


def _with_forgetful_bookies(seed: int) -> Conditions:
    """No network faults: only the bookies lose data."""
    plan, usual = _plan(seed), draw_conditions(seed)
    drawn = replace(
        usual,
        network=replace(usual.network, slow_probability=0.0, loss_probability=0.0),
        forgets_fences=plan.like,
        checkpoint_interval_s=_CHECKPOINT_INTERVAL_S,
    )
    if plan.case != _REPLAYED:
        return drawn
    return replace(drawn, bookies=4, ensemble_size=3, write_quorum_size=2, ack_quorum_size=1)


FORGOTTEN_FENCE = Scenario(
    name="forgotten-fence",
    summary="the ledger of an idle writer is recovered, and killed bookies lose their fences",
    expected="the writer reads the metadata after it has reconnected, and its appends fail because it is fenced",
    play=play,
    meets=("forgotten-fence",),
    draw=_with_forgetful_bookies,
)

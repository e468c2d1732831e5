"""A reader follows a ledger through ensemble changes.

The writer's bookies crash one after the other, each after some more acknowledged entries, and restart before the spares are
used up. The reader knows the ensembles from when it opened the ledger and later updates; bookies of an old ensemble may never
have had the entry that it reads. In the end the writer closes the ledger, or crashes and another client recovers it, and the
reader has to reach the last entry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final

import anyio

from bkclient import BookKeeper
from scenarios.conditions import Conditions, draw_varied_conditions
from scenarios.history import Event, Kind
from scenarios.library.parts import following, recovering
from scenarios.model import Scenario
from scenarios.stage import Stage
from simbookie.storage.base import CrashMode

__all__ = ["MOVING_READER"]

#: How long a bookie is down: longer than the writer takes to replace it.
_AWAY_S: Final = 1.5


@dataclass(frozen=True, slots=True)
class Moves:
    """After how many more entries each bookie crashes, its position in the ensemble, and whether the writer crashes."""

    gaps: tuple[int, ...]
    positions: tuple[int, ...]
    window: int
    dies: bool

    @classmethod
    def draw(cls, rng: Random) -> Moves:
        """One to three moves."""
        count = rng.randint(1, 3)
        return cls(
            gaps=tuple(rng.randint(2, 8) for _ in range(count)),
            positions=tuple(rng.randrange(5) for _ in range(count)),
            window=rng.randint(1, 6),
            dies=rng.random() < 0.4,
        )


async def play(stage: Stage) -> None:
    """Bookies are replaced while a reader follows the ledger."""
    plan = Moves.draw(stage.rng)
    ledger = stage.ledger()
    entries_after = 2 * stage.conditions.ensemble_size

    async def write(client: BookKeeper) -> None:
        writer = await ledger.create(client)
        for gap in plan.gaps:
            await stage.append_entries(writer, gap, window=plan.window)
            await stage.flush(writer)
            await may_go_on.wait()
        await stage.append_entries(writer, entries_after, window=plan.window)
        await stage.flush(writer)
        if plan.dies:
            await anyio.sleep_forever()
        await stage.finish(writer)

    may_go_on = anyio.Event()
    writer = stage.client("writer", write)
    await ledger.id()
    reader = stage.client("reader", following(ledger))
    await stage.until(_reader_is_there, ended=reader)
    may_go_on.set()
    acknowledged = -1
    for gap, position in zip(plan.gaps, plan.positions, strict=True):
        acknowledged += gap
        await stage.until_acknowledged(ledger, acknowledged)
        members = stage.ensemble(ledger)
        victim = members[position % len(members)]
        stage.crash_bookie(victim, CrashMode.PROCESS)
        stage.later(_AWAY_S, partial(stage.restart_bookie, victim))
    await stage.until_acknowledged(ledger, acknowledged + entries_after)
    if plan.dies:
        writer.crash()
        await stage.client("recoverer", recovering(ledger)).ended()
    await writer.ended()
    await stage.settle(ledger)
    await reader.ended()


def _reader_is_there(event: Event) -> bool:
    return event.kind == Kind.OPEN_RESULT and event.actor == "reader"


def _with_spares(seed: int) -> Conditions:
    """There is a spare for each bookie that crashes, and the network causes no other ensemble changes."""
    drawn = draw_varied_conditions(seed)
    network = replace(drawn.network, slow_probability=0.0, loss_probability=0.0)
    client = drawn.client.with_changes(writing={"delay_ensemble_change": False})
    return replace(drawn, bookies=drawn.ensemble_size + 2, network=network, client=client)


MOVING_READER = Scenario(
    name="moving-reader",
    summary="a reader without recovery follows the ledger through ensemble changes to its end",
    expected="its last add confirmed never falls, and it reads every entry up to the end, always with the same content",
    play=play,
    meets=("reader-crosses-change",),
    draw=_with_spares,
)

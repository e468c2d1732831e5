"""Some bookies have altered copies and do not detect it.

Copies on fewer bookies than an ack quorum have a flipped bit: in the header, in the digest, or in the payload. A reader
has to detect an altered copy and ask another bookie. A recovery must not use the LAC of an altered last entry, nor write
an altered entry back, nor take it for absent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import anyio

from bkclient import BookKeeper
from scenarios.conditions import Conditions, draw_varied_conditions
from scenarios.library.parts import recovering
from scenarios.model import Scenario
from scenarios.stage import Stage

__all__ = ["ALTERED_COPIES"]


@dataclass(frozen=True, slots=True)
class Alteration:
    """On up to ``bookies`` bookies every entry is altered in byte ``byte``, after the writer has crashed or closed."""

    entries: int
    window: int
    byte: int
    bookies: int
    closes: bool

    @classmethod
    def draw(cls, rng: Random) -> Alteration:
        """Ledgers of some length, so that every bookie has several entries."""
        return cls(
            entries=rng.randint(6, 20),
            window=rng.randint(1, 8),
            byte=rng.randrange(64),
            bookies=rng.randint(1, 4),
            closes=rng.random() < 0.3,
        )


async def play(stage: Stage) -> None:
    """Everything on a few bookies is altered before others recover and read the ledger."""
    plan = Alteration.draw(stage.rng)
    ledger = stage.ledger()

    async def write(client: BookKeeper) -> None:
        writer = await ledger.create(client)
        await stage.append_entries(writer, plan.entries, window=plan.window)
        await stage.flush(writer)
        if plan.closes:
            await stage.finish(writer)
        else:
            await anyio.sleep_forever()

    writer = stage.client("writer", write)
    await stage.until_acknowledged(ledger, plan.entries - 1)
    if plan.closes:
        await writer.ended()
    writer.crash()
    members = stage.ensemble(ledger)
    # With fewer than Qa altered copies, every ack quorum has a good copy of every entry that it acknowledged.
    count = min(plan.bookies, stage.conditions.ack_quorum_size - 1)
    for name in stage.rng.sample(members, count):
        stage.alter_copies(ledger, name, plan.byte)
    await stage.client("recoverer", recovering(ledger)).ended()
    await stage.settle(ledger)


def _with_copies(seed: int) -> Conditions:
    """More than one copy of every entry, and no network faults, which would cause ensemble changes."""
    drawn = draw_varied_conditions(seed)
    network = replace(drawn.network, slow_probability=0.0, loss_probability=0.0)
    if drawn.ack_quorum_size > 1:
        return replace(drawn, network=network)
    return replace(
        drawn, network=network, bookies=drawn.bookies + 3, ensemble_size=3, write_quorum_size=3, ack_quorum_size=2
    )


ALTERED_COPIES = Scenario(
    name="altered-copies",
    summary="bookies answer with copies that were altered on their disks",
    expected="readers and recoveries detect altered copies and use the others",
    play=play,
    meets=("altered-copy",),
    draw=_with_copies,
)

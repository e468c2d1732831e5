"""No process fails: a writer, a tailing reader, a close, and readers of the closed ledger.

This checks the guarantees that hold without faults: order, piggybacked LAC, lengths, an exact end. Latencies vary, answers
may come out of order, and a metadata write may meet a conflict. No message is lost: a bookie whose answer is lost is replaced,
and without a spare one the writer fails.
"""

from __future__ import annotations

from dataclasses import replace

import anyio

from bkclient import BookKeeper
from bkclient.errors import BookKeeperError
from scenarios.conditions import Conditions, draw_conditions
from scenarios.model import Scenario
from scenarios.stage import Stage

__all__ = ["CALM_WRITES"]


async def play(stage: Stage) -> None:
    """One writer closes its ledger after a few dozen entries; a tailing reader polls meanwhile."""
    entries = stage.rng.randint(10, 60)
    ledger = stage.ledger()

    async def write(client: BookKeeper) -> None:
        writer = await ledger.create(client)
        await stage.append_entries(writer, entries)
        await writer.flush()
        await writer.close()

    async def tail(client: BookKeeper) -> None:
        reader = await client.open_ledger(await ledger.id(), recover=False)
        next_entry = 0
        while True:
            while next_entry <= reader.last_add_confirmed:
                await reader.read(next_entry)
                next_entry += 1
            if reader.is_closed:
                return
            await anyio.sleep(0.02)
            try:
                await reader.read_last_add_confirmed()
            except BookKeeperError:
                await anyio.sleep(0.5)

    writer = stage.client("writer", write)
    tailer = stage.client("tailer", tail)
    await writer.ended()
    await tailer.ended()
    await stage.settle(ledger)


def _without_loss(seed: int) -> Conditions:
    drawn = draw_conditions(seed)
    return replace(drawn, network=replace(drawn.network, loss_probability=0.0))


CALM_WRITES = Scenario(
    name="calm-writes",
    summary="a writer, a tailing reader, a close, no faults",
    expected="every entry is acknowledged in order and the ledger ends at the last one",
    play=play,
    draw=_without_loss,
)

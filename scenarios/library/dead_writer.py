"""The writer crashes with entries in flight, and other clients recover the ledger.

Each of the last entries reached some of its bookies, perhaps none, perhaps an ack quorum whose answers were lost. One or
two clients recover the ledger, at the same time if there are two. Unacknowledged entries may be in the closed ledger or
not, acknowledged entries must be, and all recoveries must find the same end.
"""

from __future__ import annotations

import anyio

from bkclient import BookKeeper
from bkclient.errors import BookKeeperError
from scenarios.model import Scenario
from scenarios.recording.client import each_entry
from scenarios.stage import Stage

__all__ = ["DEAD_WRITER"]


async def play(stage: Stage) -> None:
    """The writer crashes with a partially stored tail; one or two clients recover, the first of them may crash too."""
    rng = stage.rng
    entries = rng.randint(5, 40)
    ledger = stage.ledger()

    async def write(client: BookKeeper) -> None:
        writer = await ledger.create(client)
        await stage.append_entries(writer, entries, window=rng.randint(1, 12))
        await anyio.sleep_forever()  # until it crashes

    async def recover(client: BookKeeper) -> None:
        try:
            reader = await client.open_ledger(await ledger.id(), recover=True)
            async for _ in each_entry(reader):
                pass
        except BookKeeperError:
            return  # others, or the final clients, will

    writer = stage.client("writer", write)
    await stage.until_acknowledged(ledger, rng.randint(0, entries - 1))
    # From here on the writer's messages reach only some bookies, each independently of the others.
    for bookie in stage.ensemble(ledger):
        if rng.random() < 0.5:
            stage.cut("writer", bookie)
    await stage.sleep(0.0, 0.03)
    writer.crash()
    await stage.sleep(0.0, 1.0)

    recoverers = [stage.client(f"recoverer-{i}", recover) for i in range(rng.randint(1, 2))]
    if rng.random() < 0.3:
        await stage.sleep(0.0, 0.05)
        recoverers[0].crash()
    for recoverer in recoverers:
        await recoverer.ended()
    await stage.settle(ledger)


DEAD_WRITER = Scenario(
    name="dead-writer",
    summary="the writer crashes with an unacknowledged tail; one or two clients recover the ledger",
    expected="no acknowledged entry is lost, and all recoveries find the same end",
    play=play,
)

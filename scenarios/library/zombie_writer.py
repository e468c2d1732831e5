"""A writer is paused or disconnected while another client recovers its ledger, and then continues.

It has entries in flight when it is paused, or cut off from some bookies; another client recovers and closes the ledger; then the
writer resumes. Fenced bookies refuse its earlier and later adds. No entry that is not in the ledger may be acknowledged to it,
and its appends must fail because it is fenced.
"""

from __future__ import annotations

from bkclient import BookKeeper
from bkclient.errors import BookKeeperError
from scenarios.model import Scenario
from scenarios.recording.client import each_entry
from scenarios.stage import Stage

__all__ = ["ZOMBIE_WRITER"]


async def play(stage: Stage) -> None:
    """The writer is paused or cut off, another client recovers the ledger, the writer continues."""
    rng = stage.rng
    entries = rng.randint(20, 60)
    ledger = stage.ledger()

    async def write(client: BookKeeper) -> None:
        writer = await ledger.create(client)
        await stage.append_entries(writer, entries, window=rng.randint(1, 12))
        await stage.finish(writer)

    async def recover(client: BookKeeper) -> None:
        try:
            reader = await client.open_ledger(await ledger.id(), recover=True)
            async for _ in each_entry(reader):
                pass
        except BookKeeperError:
            return

    writer = stage.client("writer", write)
    await stage.until_acknowledged(ledger, rng.randint(0, entries // 2))
    pauses = rng.random() < 0.6
    if pauses:
        writer.pause()
    else:
        for bookie in stage.ensemble(ledger):
            if rng.random() < 0.6:
                stage.cut("writer", bookie)
    await stage.sleep(0.0, 0.1)
    recoverer = stage.client("recoverer", recover)
    if rng.random() < 0.5:
        await stage.sleep(0.0, 0.05)  # the writer returns in the middle of the recovery
    else:
        await recoverer.ended()
    if pauses:
        writer.resume()
    stage.heal()
    await recoverer.ended()
    await writer.ended()
    await stage.settle(ledger)


ZOMBIE_WRITER = Scenario(
    name="zombie-writer",
    summary="a paused or cut-off writer continues while, or after, another client recovers its ledger",
    expected="the writer fails because it is fenced; no acknowledged entry is lost",
    play=play,
)

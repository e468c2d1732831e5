"""A writer that everybody takes for dead is only asleep.

It is paused, or cut off from some bookies, with entries in flight; another client recovers and closes the ledger;
then the writer wakes up and goes on as if nothing had happened. Its messages from before, and from after, meet fenced
bookies. It must not get another entry acknowledged that is not in the ledger, and must learn that it has been fenced.
"""

from __future__ import annotations

from bkclient.errors import BookKeeperError
from scenarios.model import Scenario
from scenarios.recording import RecordedClient
from scenarios.stage import Stage

__all__ = ["ZOMBIE_WRITER"]


async def play(stage: Stage) -> None:
    """Writer sleeps or is cut off, another client takes over, writer returns."""
    rng = stage.rng
    entries = rng.randint(20, 60)
    ledger = stage.ledger()

    async def write(client: RecordedClient) -> None:
        writer = await ledger.create(client)
        await stage.append_entries(writer, entries, window=rng.randint(1, 12))
        await stage.finish(writer)

    async def recover(client: RecordedClient) -> None:
        try:
            reader = await client.open_ledger(await ledger.id(), recover=True)
        except BookKeeperError:
            return
        async for _ in reader.read_all():
            pass

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
    summary="a paused or cut-off writer wakes up while, or after, another client recovers its ledger",
    expected="the writer is told that it is fenced; nothing it had acknowledged is lost",
    play=play,
)

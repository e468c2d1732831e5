"""Bookies crash while entries are on their way to them.

Each crash loses what the bookie had not synced and makes the writer replace it: a new fragment from LAC + 1 on, pending
entries sent again. Sometimes the writer dies right after storing the new fragment, which leaves that fragment empty or
nearly so. Then recovery must not take the silence of the new bookie for the absence of what the earlier fragment holds.
"""

from __future__ import annotations

from scenarios.history import Event, Kind
from scenarios.model import Scenario
from scenarios.recording import RecordedClient
from scenarios.stage import Stage

__all__ = ["BOOKIE_CRASH"]


async def play(stage: Stage) -> None:
    """As many bookies crash in mid-write as there are spare ones; the writer may die with its ensemble change."""
    rng = stage.rng
    entries = rng.randint(15, 60)
    crashes = rng.randint(1, stage.conditions.bookies - stage.conditions.ensemble_size)
    ledger = stage.ledger()

    async def write(client: RecordedClient) -> None:
        writer = await ledger.create(client)
        await stage.append_entries(writer, entries)
        await stage.finish(writer)

    writer = stage.client("writer", write)
    if rng.random() < 0.6:
        delay_s = rng.choice((0.0, 0.0, rng.uniform(0.0, 0.01)))
        stage.on_event(_is_ensemble_change, lambda: stage.later(delay_s, writer.crash))
    for _ in range(crashes):
        first_entry = rng.randint(0, entries // 2)
        await stage.until_acknowledged(ledger, first_entry)
        victim = rng.choice(stage.ensemble(ledger))
        stage.crash_bookie(victim)
        if rng.random() < 0.3:
            await stage.sleep(0.1, 3.0)
            stage.restart_bookie(victim)
    await writer.ended()
    await stage.settle(ledger)


def _is_ensemble_change(event: Event) -> bool:
    return event.kind == Kind.META_CAS and event.fields["cause"] == "ensemble" and event.fields["outcome"] == "ok"


BOOKIE_CRASH = Scenario(
    name="bookie-crash",
    summary="bookies crash in mid-write and are replaced; the writer may die right after its ensemble change",
    expected="every acknowledged entry survives; fragments are well formed; all readers agree on the end",
    play=play,
)

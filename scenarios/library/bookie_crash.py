"""Bookies crash while adds to them are in flight.

Each crash loses the entries that the bookie had not synced and makes the writer replace it: a new fragment from LAC + 1 on,
pending entries sent again. Sometimes the writer crashes right after storing the new fragment, which is then empty or nearly
empty. Recovery must not conclude from the new bookie's denials that entries of the earlier fragment are absent.
"""

from __future__ import annotations

from bkclient import BookKeeper
from scenarios.history import Event, Kind
from scenarios.model import Scenario
from scenarios.stage import Stage

__all__ = ["BOOKIE_CRASH"]


async def play(stage: Stage) -> None:
    """At most as many bookies crash during writes as there are spares; the writer may crash after its ensemble change."""
    rng = stage.rng
    entries = rng.randint(15, 60)
    crashes = rng.randint(1, stage.conditions.bookies - stage.conditions.ensemble_size)
    ledger = stage.ledger()

    async def write(client: BookKeeper) -> None:
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
    summary="bookies crash during writes and are replaced; the writer may crash right after its ensemble change",
    expected="every acknowledged entry survives; fragments are well formed; all readers agree on the end",
    play=play,
)

"""An ensemble change and the start of a recovery write the metadata at the same time.

A bookie crashes, the writer stores another ensemble, and another client begins a recovery. One of the two writes is held back at
the metadata service until the other is applied, so it fails. If the ensemble change was first, the recovery has to begin again
and fence the new ensemble; if the recovery was first, the writer is fenced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from bkclient import BookKeeper
from bkclient.ledger import LedgerState
from scenarios.conditions import Conditions, draw_varied_conditions
from scenarios.history import Event, Kind
from scenarios.library.parts import recovering
from scenarios.model import Scenario
from scenarios.stage import Stage
from simbookie.storage.base import CrashMode
from simbookie.world.metadata_service import MetadataCall

__all__ = ["RACING_CHANGE"]

_RECOVERER: Final = "recoverer"


@dataclass(frozen=True, slots=True)
class Race:
    """Which write is second; it is released ``lag_s`` after the other one was applied."""

    entries: int
    window: int
    killed_after: int
    position: int
    change_is_second: bool
    lag_s: float

    @classmethod
    def draw(cls, rng: Random) -> Race:
        """Any."""
        entries = rng.randint(40, 80)
        return cls(
            entries=entries,
            window=rng.randint(2, 12),
            killed_after=rng.randint(0, entries // 4),
            position=rng.randrange(5),
            change_is_second=rng.random() < 0.5,
            lag_s=rng.choice((0.0, 0.0, 0.001)),
        )


async def play(stage: Stage) -> None:
    """The second of two metadata writes is released when the first is applied."""
    plan = Race.draw(stage.rng)
    ledger = stage.ledger()

    async def write(client: BookKeeper) -> None:
        writer = await ledger.create(client)
        await stage.append_entries(writer, plan.entries, window=plan.window)
        await stage.finish(writer)

    def is_change(call: MetadataCall) -> bool:
        return call.operation == "write_ledger" and call.host == "writer" and _state(call) is LedgerState.OPEN

    def is_mark(call: MetadataCall) -> bool:
        return call.operation == "write_ledger" and call.host == _RECOVERER and _state(call) is LedgerState.IN_RECOVERY

    held = stage.hold_metadata(is_change if plan.change_is_second else is_mark)
    first_cause = "recover" if plan.change_is_second else "ensemble"

    def is_through(event: Event) -> bool:
        return event.kind == Kind.META_CAS and event.fields["cause"] == first_cause and event.fields["outcome"] == "ok"

    stage.on_event(is_through, lambda: stage.later(plan.lag_s, held.release))
    writer = stage.client("writer", write)
    await stage.until_acknowledged(ledger, plan.killed_after)
    if plan.change_is_second:
        _kill(stage, stage.ensemble(ledger), plan.position)
        await held.made()
        recoverer = stage.client(_RECOVERER, recovering(ledger))
    else:
        recoverer = stage.client(_RECOVERER, recovering(ledger))
        await held.made()
        _kill(stage, stage.ensemble(ledger), plan.position)
    await recoverer.ended()
    held.release()
    await writer.ended()
    stage.disarm()
    await stage.settle(ledger)


def _state(call: MetadataCall) -> LedgerState | None:
    return None if call.metadata is None else call.metadata.state


def _kill(stage: Stage, members: Sequence[str], position: int) -> None:
    stage.crash_bookie(members[position % len(members)], CrashMode.PROCESS)


def _with_a_spare(seed: int) -> Conditions:
    """At least one spare bookie, and no network faults, which would change the ensemble earlier."""
    drawn = draw_varied_conditions(seed)
    network = replace(drawn.network, slow_probability=0.0, loss_probability=0.0)
    client = drawn.client.with_changes(writing={"delay_ensemble_change": False})
    metadata = replace(drawn.metadata, conflict_probability=0.0, unknown_probability=0.0)
    return replace(
        drawn, metadata=metadata, bookies=max(drawn.bookies, drawn.ensemble_size + 1), client=client, network=network
    )


RACING_CHANGE = Scenario(
    name="racing-change",
    summary="an ensemble change of the writer and the first metadata write of a recovery conflict",
    expected="one of them is refused: the recovery starts again with the new ensemble, or the writer is fenced",
    play=play,
    meets=("change-meets-recovery",),
    draw=_with_a_spare,
)

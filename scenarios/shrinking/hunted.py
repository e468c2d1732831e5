"""Plans that catch planted defects, made as small as they can be: for each defect the shortest story that gives it away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from scenarios.hunting import MutantHunt
from scenarios.model import TransportKind
from scenarios.plan import print_plan
from scenarios.plan.named import plan_named
from scenarios.plan.schedule import PlanSchedule
from scenarios.shrinking.shrinker import ShrinkBounds, Shrunk, shrink
from scenarios.units import Progress
from simbookie.worker_processes import default_processes, worker_processes

__all__ = ["shrink_caught"]

_SUFFIX: Final = ".scn"


@dataclass(frozen=True, slots=True)
class _Caught:
    """A unit of work: a defect, and the run of a plan that breaks a clause with it."""

    mutant: str
    plan: str
    seed: int
    clause: str
    transport: TransportKind
    bounds: ShrinkBounds
    schedule: PlanSchedule | None


def _shrunk(caught: _Caught) -> Shrunk:
    plan = plan_named(caught.plan, caught.seed)
    return shrink(
        plan if caught.schedule is None else replace(plan, schedule=caught.schedule),
        caught.seed,
        mutant=caught.mutant,
        clause=caught.clause,
        transport=caught.transport,
        bounds=caught.bounds,
    )


def shrink_caught(
    hunts: Sequence[MutantHunt],
    folder: Path,
    *,
    transport: TransportKind = TransportKind.OBJECTS,
    bounds: ShrinkBounds | None = None,
    schedule: PlanSchedule | None = None,
    processes: int | None = None,
    progress: Progress | None = None,
) -> list[MutantHunt]:
    """Shrink the plans that caught defects, write each to ``folder`` under the name of its defect, and tell their sizes.

    ``schedule`` is that of the hunts. All of them have to be for plans: scenarios that draw what happens while they run have
    none. In the order of ``hunts``; defects that were not caught stay as they are. ``OSError`` if a plan cannot be written.
    """
    caught = [index for index, hunt in enumerate(hunts) if hunt.caught]
    units = [
        _Caught(hunt.name, hunt.scenario, hunt.seed, hunt.clause, transport, bounds or ShrinkBounds(), schedule)
        for hunt in (hunts[index] for index in caught)
    ]
    told = list(hunts)
    count = min(default_processes() if processes is None else processes, max(1, len(units)))
    with worker_processes(count, _shrunk) as hand_out:
        for done, (unit, result) in enumerate(hand_out(units), 1):
            hunt, plan = hunts[caught[unit]], replace(result.failure.plan, name=hunts[caught[unit]].name)
            (folder / f"{hunt.name}{_SUFFIX}").write_text(print_plan(plan), encoding="utf-8")
            told[caught[unit]] = replace(
                hunt,
                shrunk_steps=len(plan.steps),
                shrunk_operations=result.failure.size - len(plan.steps),
                shrunk_cpu_seconds=result.cpu_seconds,
            )
            if progress is not None:
                progress(done, len(units), done)
    return told

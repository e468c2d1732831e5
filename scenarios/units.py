"""Units of work of sweeps and hunts: a few runs for one worker process.

A run that raises an unexpected error has the verdict ``unknown`` with the error as its problem, and the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from scenarios.library import SCENARIOS
from scenarios.model import RunResult, TransportKind
from scenarios.mutants import MUTANTS
from scenarios.plan import Plan
from scenarios.plan.named import DRAWN, plan_names
from scenarios.plan.schedule import PlanSchedule
from scenarios.runner import run_plan, run_scenario
from simbookie.worker_processes import default_processes

__all__ = [
    "RUNS_PER_UNIT",
    "Progress",
    "Run",
    "Unit",
    "UnitOutcome",
    "batched",
    "check_names",
    "first_broken",
    "planned_runs",
    "processes_for",
    "work",
]

RUNS_PER_UNIT: Final = 8

Progress = Callable[[int, int, int], None]
"""``(done, in_all, found)``: told after every unit of work."""

Run = tuple[str, int]
"""A scenario, a plan or a file with a plan, and a seed."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A few runs for one worker. It ends early at a run that breaks a clause of ``until``, or any with ``stop_at_first``.

    ``plans`` has those that come from files, under the names by which ``runs`` call them.
    """

    runs: tuple[Run, ...]
    mutant: str | None
    record: Path | None = None
    failing_only: bool = False
    keep_every: int = 0
    stop_at_first: bool = False
    until: tuple[str, ...] = ()
    transport: TransportKind = TransportKind.OBJECTS
    schedule: PlanSchedule | None = None
    plans: Mapping[str, Plan] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """The results of a unit."""

    results: tuple[RunResult, ...]
    cpu_seconds: float


def work(unit: Unit) -> UnitOutcome:
    """Make the runs of a unit."""
    started = time.process_time()
    results: list[RunResult] = []
    for scenario, seed in unit.runs:
        is_kept = not unit.failing_only or (unit.keep_every > 0 and seed % unit.keep_every == 0)
        result = _run(scenario, seed, unit, unit.record if is_kept else None)
        if result.violations and not is_kept:
            result = _kept(result, _run(scenario, seed, unit, unit.record))
        results.append(result)
        if (unit.stop_at_first and result.violations) or first_broken(result, unit.until):
            break
    return UnitOutcome(tuple(results), time.process_time() - started)


def _kept(first: RunResult, again: RunResult) -> RunResult:
    """The same run once more, this time kept; one that came to something else proves that runs depend on more than their seed."""
    if (first.violations, first.events, first.verdict) == (again.violations, again.events, again.verdict):
        return again
    found = ", ".join(dict.fromkeys(violation.invariant for violation in first.violations))
    problem = f"broke {found} after {first.events} events, and not when it was made again to keep its history"
    problem += f" ({again.events} events): it is not deterministic"
    return replace(again, verdict="unknown", violations=first.violations, problem=problem)


def first_broken(result: RunResult, clauses: Iterable[str]) -> str:
    """The first of ``clauses`` that the run broke; "" if none."""
    found = {violation.clause for violation in result.violations}
    return next((clause for clause in clauses if clause in found), "")


def check_names(
    scenarios: Iterable[str], mutant: str | None, schedule: PlanSchedule | None, plans: Mapping[str, Plan] | None = None
) -> None:
    """Raise ``KeyError`` for an unknown scenario or mutant, ``ValueError`` for a schedule of a scenario that is no plan."""
    for name in scenarios:
        if schedule is not None and name in SCENARIOS:
            raise ValueError(f"{name} is no plan, and has no schedule")
        if name not in SCENARIOS and name not in (plans or ()) and name not in plan_names():
            raise KeyError(name)
    if mutant:
        MUTANTS[mutant]


def planned_runs(seeds: Sequence[int], scenarios: Sequence[str], *, in_turn: bool = False) -> Iterator[Run]:
    """Every scenario with every seed, or one scenario in turn with each: then those that are drawn have every second turn."""
    if not in_turn:
        return ((scenario, seed) for seed in seeds for scenario in scenarios)
    drawn = [name for name in scenarios if name in DRAWN]
    fixed = [name for name in scenarios if name not in DRAWN]
    turns = cycle([fixed or drawn, drawn or fixed])
    names = {id(sort): cycle(sort) for sort in (fixed, drawn)}
    return ((next(names[id(sort)]), seed) for seed, sort in zip(seeds, turns, strict=False))


def batched(runs: Iterable[Run], size: int) -> Iterator[tuple[Run, ...]]:
    """The runs in groups of ``size``, of which the last may be smaller."""
    remaining = iter(runs)
    while batch := tuple(islice(remaining, size)):
        yield batch


def processes_for(units: int, asked: int | None) -> int:
    """How many processes work on so many units; ``asked`` is None for as many as there are processors."""
    return min(default_processes() if asked is None else asked, units)


def _run(scenario: str, seed: int, unit: Unit, record: Path | None) -> RunResult:
    plan, schedule = unit.plans.get(scenario), unit.schedule
    options: dict[str, Any] = {
        "mutant": unit.mutant,
        "record": record,
        "transport": unit.transport,
        "with_digest": False,  # of what is not kept nobody asks for it
    }
    try:
        if plan is None:
            return run_scenario(scenario, seed, schedule=schedule, **options)
        result = run_plan(plan if schedule is None else replace(plan, schedule=schedule), seed, **options)
        return replace(result, scenario=scenario)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other runs go on, and it is reported
        return RunResult(
            scenario=scenario,
            seed=seed,
            digest="",
            events=0,
            simulated_seconds=0.0,
            wall_seconds=0.0,
            verdict="unknown",
            problem=f"{type(error).__name__}: {error}",
            mutant=unit.mutant or "",
            transport=unit.transport,
        )

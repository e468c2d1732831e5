"""Hunts for planted defects: one seed after the other, until a clause that the defect breaks is seen broken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scenarios.clauses import CLAUSES
from scenarios.model import RunResult, TransportKind
from scenarios.mutants import MUTANTS, Mutant
from scenarios.plan.schedule import PlanSchedule
from scenarios.units import RUNS_PER_UNIT, Progress, Unit, UnitOutcome, check_names, first_broken, processes_for, work
from simbookie.worker_processes import worker_processes

__all__ = ["MutantHunt", "hunt_mutants"]


@dataclass(frozen=True, slots=True)
class MutantHunt:
    """The result of the hunt for one planted defect.

    ``seeds_to_find`` counts the seeds that were tried, each in every scenario, up to the one that broke a clause;
    ``clause`` is the first of those expected to break that did. What is ``shrunk`` is told of the smallest plan that still breaks
    it, if one was looked for (:func:`~scenarios.shrinking.hunted.shrink_caught`).
    """

    name: str
    caught: bool
    clause: str = ""
    scenario: str = ""
    seed: int = -1
    seeds_to_find: int | None = None
    runs: int = 0
    cpu_seconds: float = 0.0
    shrunk_steps: int | None = None
    shrunk_operations: int | None = None
    shrunk_cpu_seconds: float | None = None

    @property
    def invariant(self) -> str:
        """The invariant that the clause belongs to; "" if the defect was not caught."""
        return CLAUSES[self.clause].invariant if self.clause else ""

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-chaos mutants --json`` prints."""
        return {
            "name": self.name,
            "caught": self.caught,
            "invariant": self.invariant or None,
            "clause": self.clause or None,
            "scenario": self.scenario or None,
            "seed": self.seed if self.caught else None,
            "seeds_to_find": self.seeds_to_find,
            "runs": self.runs,
            "cpu_seconds": round(self.cpu_seconds, 3),
            "shrunk_steps": self.shrunk_steps,
            "shrunk_operations": self.shrunk_operations,
            "shrunk_cpu_seconds": None if self.shrunk_cpu_seconds is None else round(self.shrunk_cpu_seconds, 3),
        }


def hunt_mutants(
    mutants: Iterable[str],
    seeds: Sequence[int],
    scenarios: Sequence[str],
    *,
    processes: int | None = None,
    transport: TransportKind = TransportKind.OBJECTS,
    schedule: PlanSchedule | None = None,
    progress: Progress | None = None,
) -> list[MutantHunt]:
    """Run each mutant with one seed after the other, in every scenario, until one of its clauses is seen broken.

    In the order of ``mutants``. A ``schedule`` takes the place of those that plans have. ``KeyError`` for an unknown mutant or
    scenario, ``ValueError`` for a schedule of a scenario that is no plan.
    """
    check_names(scenarios, None, schedule)
    hunts = [_Hunt(MUTANTS[name], tuple(seeds), tuple(scenarios), transport, schedule) for name in mutants]
    in_all = len(hunts)
    with worker_processes(processes_for(in_all, processes), work) as hand_out:
        waiting = [hunt for hunt in hunts if not hunt.is_over]
        while waiting:
            # One unit of each mutant that is not caught: workers stay busy, and few runs follow the one that catches it.
            for index, unit_done in hand_out([hunt.next_unit() for hunt in waiting]):
                waiting[index].take(unit_done)
            waiting = [hunt for hunt in waiting if not hunt.is_over]
            if progress is not None:
                progress(in_all - len(waiting), in_all, sum(hunt.is_caught for hunt in hunts))
    return [hunt.result() for hunt in hunts]


class _Hunt:
    """The state of the hunt for one mutant."""

    def __init__(
        self,
        mutant: Mutant,
        seeds: tuple[int, ...],
        scenarios: tuple[str, ...],
        transport: TransportKind,
        schedule: PlanSchedule | None,
    ) -> None:
        self._mutant = mutant
        self._schedule = schedule
        self._transport = transport
        self._scenarios = scenarios
        self._runs = [(scenario, seed) for seed in seeds for scenario in scenarios]
        self._tried = 0
        self._cpu_seconds = 0.0
        self._caught_by: RunResult | None = None

    @property
    def is_caught(self) -> bool:
        return self._caught_by is not None

    @property
    def is_over(self) -> bool:
        return self.is_caught or self._tried >= len(self._runs)

    def next_unit(self) -> Unit:
        runs = tuple(self._runs[self._tried : self._tried + RUNS_PER_UNIT])
        until, transport, schedule = self._mutant.clauses, self._transport, self._schedule
        return Unit(runs, self._mutant.name, until=until, transport=transport, schedule=schedule)

    def take(self, done: UnitOutcome) -> None:
        self._tried += len(done.results)
        self._cpu_seconds += done.cpu_seconds
        last = done.results[-1] if done.results else None
        if last is not None and first_broken(last, self._mutant.clauses):
            self._caught_by = last

    def result(self) -> MutantHunt:
        caught_by = self._caught_by
        if caught_by is None:
            return MutantHunt(self._mutant.name, caught=False, runs=self._tried, cpu_seconds=self._cpu_seconds)
        return MutantHunt(
            self._mutant.name,
            caught=True,
            clause=first_broken(caught_by, self._mutant.clauses),
            scenario=caught_by.scenario,
            seed=caught_by.seed,
            seeds_to_find=-(-self._tried // len(self._scenarios)),
            runs=self._tried,
            cpu_seconds=self._cpu_seconds,
        )

"""Hunts for planted defects: one seed after the other, until a clause that the defect breaks is seen broken."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scenarios.clauses import CLAUSES
from scenarios.exploration import Bounds, explore_world
from scenarios.machines.worlds import WORLDS
from scenarios.model import RunResult, TransportKind
from scenarios.mutants import MACHINE_MUTANTS, MUTANTS, Mutant
from scenarios.plan.schedule import PlanSchedule, schedule_word
from scenarios.units import RUNS_PER_UNIT, Progress, Unit, UnitOutcome, check_names, first_broken, processes_for, work
from simbookie.worker_processes import worker_processes

__all__ = ["MutantHunt", "hunt_in_worlds", "hunt_mutants"]

_MACHINES: Final = "machines"
#: A walk of machines takes less than a hundredth of the time of a run.
_WALKS_PER_SEED: Final = 100


@dataclass(frozen=True, slots=True)
class MutantHunt:
    """The result of the hunt for one planted defect.

    ``seeds_to_find`` counts the seeds that were tried, each in every scenario, up to the one that broke a clause;
    ``clause`` is the first of those expected to break that did. What is ``shrunk`` is told of the smallest plan that still breaks
    it, if one was looked for (:func:`~scenarios.shrinking.hunted.shrink_caught`).

    What worlds of machines show is shrunk anyway; ``story`` has the moves that are left, in words.

    ``tier`` is what was searched: ``machines`` in their world, or runs over ``objects`` or ``bytes``. ``policy`` is how:
    ``walks`` or ``search`` of machines, the schedule of runs, "" if plans keep theirs.
    """

    name: str
    caught: bool
    tier: str = TransportKind.OBJECTS.value
    policy: str = ""
    clause: str = ""
    scenario: str = ""
    seed: int = -1
    seeds_to_find: int | None = None
    runs: int = 0
    cpu_seconds: float = 0.0
    shrunk_steps: int | None = None
    shrunk_operations: int | None = None
    shrunk_cpu_seconds: float | None = None
    story: tuple[str, ...] = ()

    @property
    def invariant(self) -> str:
        """The invariant that the clause belongs to; "" if the defect was not caught."""
        return CLAUSES[self.clause].invariant if self.clause else ""

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-chaos mutants --json`` prints."""
        return {
            "name": self.name,
            "caught": self.caught,
            "tier": self.tier,
            "policy": self.policy or None,
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
            return MutantHunt(
                self._mutant.name,
                caught=False,
                tier=self._transport.value,
                policy=schedule_word(self._schedule) or "",
                runs=self._tried,
                cpu_seconds=self._cpu_seconds,
            )
        return MutantHunt(
            self._mutant.name,
            caught=True,
            tier=self._transport.value,
            policy=schedule_word(self._schedule) or "",
            clause=first_broken(caught_by, self._mutant.clauses),
            scenario=caught_by.scenario,
            seed=caught_by.seed,
            seeds_to_find=-(-self._tried // len(self._scenarios)),
            runs=self._tried,
            cpu_seconds=self._cpu_seconds,
        )


# Worlds of machines ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _InWorld:
    """A unit of work: a defect, and how many walks look for it."""

    mutant: str
    first_seed: int
    walks: int


def hunt_in_worlds(
    mutants: Iterable[str],
    seeds: range,
    *,
    processes: int | None = None,
    progress: Progress | None = None,
) -> list[MutantHunt]:
    """Look for each defect in its world of machines, which is searched, or walked 100 times for each of ``seeds``.

    In the order of ``mutants``. ``seeds_to_find`` are walks. What is found is shrunk: ``shrunk_steps`` are the moves of the
    schedule. ``KeyError`` for a defect that no world shows.
    """
    units = [_InWorld(MACHINE_MUTANTS[name].name, seeds.start, len(seeds) * _WALKS_PER_SEED) for name in mutants]
    hunts: list[MutantHunt | None] = [None] * len(units)
    with worker_processes(processes_for(len(units), processes), _hunted_in_world) as hand_out:
        for done, (index, hunt) in enumerate(hand_out(units), 1):
            hunts[index] = hunt
            if progress is not None:
                progress(done, len(units), sum(each is not None and each.caught for each in hunts))
    return [hunt for hunt in hunts if hunt is not None]


def _hunted_in_world(unit: _InWorld) -> MutantHunt:
    mutant = MACHINE_MUTANTS[unit.mutant]
    started = time.process_time()
    found = explore_world(WORLDS[mutant.world], Bounds(seed=unit.first_seed, walks=unit.walks), mutant)
    cpu_seconds = time.process_time() - started
    broken, tried = found.broken, unit.walks if found.seed is None else found.seed - unit.first_seed + 1
    policy = "search" if found.is_search else "walks"
    if broken is None or broken.clause not in mutant.clauses:
        return MutantHunt(mutant.name, caught=False, tier=_MACHINES, policy=policy, runs=tried, cpu_seconds=cpu_seconds)
    return MutantHunt(
        mutant.name,
        caught=True,
        tier=_MACHINES,
        policy=policy,
        clause=broken.clause,
        scenario=mutant.world,
        seed=-1 if found.seed is None else found.seed,
        seeds_to_find=1 if found.is_search else tried,
        runs=1 if found.is_search else tried,
        cpu_seconds=cpu_seconds,
        shrunk_steps=len(found.schedule),
        story=tuple(found.story),
    )

"""Many runs at once: sweeps over seeds, and hunts for planted defects.

Runs are independent and deterministic. A sweep sends them to worker processes in small units, so that stopping takes about a
second, and adds up the results. Results do not depend on the number of workers or on their order; only the times do.

A run that raises an unexpected error has the verdict ``unknown`` with the error as its problem, and the sweep continues. So has a
run that missed what its scenario is about; of many runs a few may.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from scenarios.clauses import CLAUSES
from scenarios.library import SCENARIOS
from scenarios.model import RunResult, TransportKind
from scenarios.mutants import MUTANTS, Mutant
from scenarios.plan.named import DRAWN, plan_names
from scenarios.plan.schedule import PlanSchedule, schedule_word
from scenarios.runner import run_scenario
from scenarios.situations import SITUATIONS
from simbookie.worker_processes import default_processes, in_order, worker_processes

__all__ = ["Failing", "MutantHunt", "Progress", "SweepResult", "hunt_mutants", "misses_too_often", "sweep"]

Progress = Callable[[int, int, int], None]
"""``(done, in_all, found)``: told after every unit of work."""

_RUNS_PER_UNIT: Final = 8
_SECONDS_PER_HOUR: Final = 3600
_MISSED_PART_MAX: Final = 20

Run = tuple[str, int]


@dataclass(frozen=True, slots=True, order=True)
class Failing:
    """One invariant broken in one run; ``path`` is that of the history if it was kept."""

    scenario: str
    seed: int
    invariant: str
    path: str = ""

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-chaos sweep --json`` prints."""
        shown: dict[str, Any] = {"scenario": self.scenario, "seed": self.seed, "invariant": self.invariant}
        return shown | ({"path": self.path} if self.path else {})


@dataclass(slots=True)
class SweepResult:
    """The result of a sweep.

    ``undecided`` runs ended at a limit or with an error: they prove nothing and are not violations. Those that ``missed`` what
    their scenario is about prove nothing either; a few of them are the luck of the draw (:func:`misses_too_often`). In
    ``vacuous`` ones nothing went wrong, so that they prove little.
    ``cpu_seconds`` are those of the runs, summed over workers; ``wall_seconds`` those of the whole sweep. ``met`` counts, for
    each situation, the runs that came across it.
    """

    seeds: int
    scenarios: tuple[str, ...]
    mutant: str = ""
    transport: TransportKind = TransportKind.OBJECTS
    schedule: PlanSchedule | None = None
    runs: int = 0
    vacuous: int = 0
    events: int = 0
    simulated_seconds: float = 0.0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    failing: list[Failing] = field(default_factory=list)
    undecided: list[tuple[str, int, str]] = field(default_factory=list)
    missed: list[tuple[str, int, str]] = field(default_factory=list)
    runs_of: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)

    @property
    def is_fine(self) -> bool:
        """Whether no run broke an invariant and, but for the luck of the draw, every run came to a verdict."""
        return not self.failing and not self.undecided and not self.beside_the_point

    @property
    def beside_the_point(self) -> list[str]:
        """The scenarios of which too many runs missed what they are about."""
        missed = Counter(scenario for scenario, _, _ in self.missed)
        return [name for name, runs in self.runs_of.items() if misses_too_often(runs, missed[name])]

    @property
    def never_met(self) -> list[str]:
        """The situations that no run met."""
        return [name for name in SITUATIONS if name not in self.met]

    def add(self, result: RunResult) -> None:
        """Count one run."""
        self.runs += 1
        self.runs_of[result.scenario] += 1
        self.vacuous += result.is_vacuous
        self.events += result.events
        self.simulated_seconds += result.simulated_seconds
        self.met.update(result.met.keys())
        for invariant in dict.fromkeys(violation.invariant for violation in result.violations):
            self.failing.append(Failing(result.scenario, result.seed, invariant, result.path))
        if result.verdict == "unknown":
            without = self.missed if result.missed else self.undecided
            without.append((result.scenario, result.seed, result.problem))

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-chaos sweep --json`` prints.

        ``seeds`` and ``scenarios`` are counts; ``seeds_per_cpu_hour`` counts a seed once for each scenario it ran in.
        """
        return {
            "seeds": self.seeds,
            "scenarios": len(self.scenarios),
            "scenario_names": list(self.scenarios),
            "mutant": self.mutant,
            "transport": self.transport.value,
            "schedule": schedule_word(self.schedule),
            "runs": self.runs,
            "violations": len(self.failing),
            "unknown": len(self.undecided),
            "missed": len(self.missed),
            "vacuous": self.vacuous,
            "events": self.events,
            "events_per_second": round(_per(self.events, self.wall_seconds), 1),
            "simulated_seconds_per_second": round(_per(self.simulated_seconds, self.wall_seconds), 3),
            "seeds_per_cpu_hour": round(_per(self.runs, self.cpu_seconds) * _SECONDS_PER_HOUR, 1),
            "wall_seconds": round(self.wall_seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "met": dict(sorted(self.met.items())),
            "never_met": self.never_met,
            "failing": [failing.as_json() for failing in self.failing],
            "undecided": [
                {"scenario": scenario, "seed": seed, "problem": problem} for scenario, seed, problem in self.undecided
            ],
            "beside_the_point": self.beside_the_point,
        }


def misses_too_often(runs: int, missed: int) -> bool:
    """Whether so many of a scenario's runs missed what it is about that the others do not stand for it: one in twenty."""
    return missed * _MISSED_PART_MAX > runs


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


# Sweeps ------------------------------------------------------------------------------------------------------------


def sweep(
    seeds: Sequence[int],
    scenarios: Sequence[str],
    *,
    mutant: str | None = None,
    record: Path | None = None,
    failing_only: bool = False,
    processes: int | None = None,
    stop_at_first: bool = False,
    in_turn: bool = False,
    transport: TransportKind = TransportKind.OBJECTS,
    schedule: PlanSchedule | None = None,
    progress: Progress | None = None,
) -> SweepResult:
    """Run every scenario with every seed, or one scenario ``in_turn`` with each, and add up the results.

    Plans that are drawn, other ones with every seed, have every second turn.

    ``record`` is a folder for the histories, with ``failing_only`` just for those of runs that break an invariant. With
    ``stop_at_first`` the sweep ends at the first run, in order of seed and scenario, that does. ``processes`` is by default
    one for each processor; 1 runs everything in this process. A ``schedule`` takes the place of those that plans have.
    ``KeyError`` for an unknown scenario or mutant, ``ValueError`` for a schedule of a scenario that is no plan.
    ``KeyboardInterrupt`` stops the workers after the units they are at, and is passed on.
    """
    started = time.perf_counter()
    _check_names(scenarios, mutant, schedule)
    result = SweepResult(len(seeds), tuple(scenarios), mutant or "", transport, schedule)
    in_all = len(seeds) * (1 if in_turn else len(scenarios))
    runs: Iterable[Run] = ((scenario, seed) for seed in seeds for scenario in scenarios)
    if in_turn:
        runs = _in_turn(seeds, scenarios)
    units = (
        _Unit(
            batch,
            mutant,
            record,
            failing_only=failing_only,
            stop_at_first=stop_at_first,
            transport=transport,
            schedule=schedule,
        )
        for batch in _batched(runs, _RUNS_PER_UNIT)
    )
    with worker_processes(_processes(processes, -(-in_all // _RUNS_PER_UNIT)), _work) as hand_out:
        for unit_done in in_order(hand_out(units)):
            if _add_up(result, unit_done, stop_at_first=stop_at_first):
                break
            if progress is not None:
                progress(result.runs, in_all, len(result.failing))
    result.wall_seconds = time.perf_counter() - started
    return result


def _in_turn(seeds: Sequence[int], scenarios: Sequence[str]) -> Iterator[Run]:
    drawn = [name for name in scenarios if name in DRAWN]
    fixed = [name for name in scenarios if name not in DRAWN]
    turns = cycle([fixed or drawn, drawn or fixed])
    names = {id(sort): cycle(sort) for sort in (fixed, drawn)}
    return ((next(names[id(sort)]), seed) for seed, sort in zip(seeds, turns, strict=False))


def _add_up(result: SweepResult, unit: _Done, *, stop_at_first: bool) -> bool:
    """Count a unit's runs; whether to stop there."""
    result.cpu_seconds += unit.cpu_seconds
    for run in unit.results:
        result.add(run)
        if run.violations and stop_at_first:
            return True
    return False


def _check_names(scenarios: Iterable[str], mutant: str | None, schedule: PlanSchedule | None) -> None:
    for name in scenarios:
        if schedule is not None and name in SCENARIOS:
            raise ValueError(f"{name} is no plan, and has no schedule")
        if name not in SCENARIOS and name not in plan_names():
            raise KeyError(name)
    if mutant:
        MUTANTS[mutant]


def _batched(runs: Iterable[Run], size: int) -> Iterator[tuple[Run, ...]]:
    remaining = iter(runs)
    while batch := tuple(islice(remaining, size)):
        yield batch


def _per(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0


# Hunts -------------------------------------------------------------------------------------------------------------


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
    _check_names(scenarios, None, schedule)
    hunts = [_Hunt(MUTANTS[name], tuple(seeds), tuple(scenarios), transport, schedule) for name in mutants]
    in_all = len(hunts)
    with worker_processes(_processes(processes, in_all), _work) as hand_out:
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

    def next_unit(self) -> _Unit:
        runs = tuple(self._runs[self._tried : self._tried + _RUNS_PER_UNIT])
        until, transport, schedule = self._mutant.clauses, self._transport, self._schedule
        return _Unit(runs, self._mutant.name, None, until=until, transport=transport, schedule=schedule)

    def take(self, done: _Done) -> None:
        self._tried += len(done.results)
        self._cpu_seconds += done.cpu_seconds
        last = done.results[-1] if done.results else None
        if last is not None and _broken(last, self._mutant.clauses):
            self._caught_by = last

    def result(self) -> MutantHunt:
        caught_by = self._caught_by
        if caught_by is None:
            return MutantHunt(self._mutant.name, caught=False, runs=self._tried, cpu_seconds=self._cpu_seconds)
        return MutantHunt(
            self._mutant.name,
            caught=True,
            clause=_broken(caught_by, self._mutant.clauses),
            scenario=caught_by.scenario,
            seed=caught_by.seed,
            seeds_to_find=-(-self._tried // len(self._scenarios)),
            runs=self._tried,
            cpu_seconds=self._cpu_seconds,
        )


def _broken(result: RunResult, clauses: Sequence[str]) -> str:
    """The first of ``clauses`` that the run broke; "" if none."""
    found = {violation.clause for violation in result.violations}
    return next((clause for clause in clauses if clause in found), "")


# Work --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Unit:
    """A few runs for one worker. It ends early at a run that breaks a clause of ``until``, or any with ``stop_at_first``."""

    runs: tuple[Run, ...]
    mutant: str | None
    record: Path | None
    failing_only: bool = False
    stop_at_first: bool = False
    until: tuple[str, ...] = ()
    transport: TransportKind = TransportKind.OBJECTS
    schedule: PlanSchedule | None = None


@dataclass(frozen=True, slots=True)
class _Done:
    """The results of a unit."""

    results: tuple[RunResult, ...]
    cpu_seconds: float


def _work(unit: _Unit) -> _Done:
    started = time.process_time()
    results: list[RunResult] = []
    for scenario, seed in unit.runs:
        result = _run(scenario, seed, unit, None if unit.failing_only else unit.record)
        if result.violations and unit.failing_only:
            result = _run(scenario, seed, unit, unit.record)  # the same once more, and this time kept
        results.append(result)
        if (unit.stop_at_first and result.violations) or _broken(result, unit.until):
            break
    return _Done(tuple(results), time.process_time() - started)


def _run(scenario: str, seed: int, unit: _Unit, record: Path | None) -> RunResult:
    try:
        return run_scenario(
            scenario, seed, mutant=unit.mutant, record=record, transport=unit.transport, schedule=unit.schedule
        )
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


def _processes(asked: int | None, units: int) -> int:
    return min(default_processes() if asked is None else asked, units)

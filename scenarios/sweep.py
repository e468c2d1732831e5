"""Sweeps: many runs at once, over scenarios and seeds.

Runs are independent and deterministic. A sweep sends them to worker processes in small units, so that stopping takes about a
second, and adds up the results in the order of the runs. Results do not depend on the number of workers; only the times do.

A run that raises an unexpected error has the verdict ``unknown`` with the error as its problem, and the sweep continues. So has a
run that missed what its scenario is about; of many runs a few may.

What an interrupted sweep has found is not lost: :class:`SweepInterruptedError` brings it along, and a
:class:`~scenarios.sweep_state.SweepState` keeps it for the sweep that goes on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from scenarios.model import RunResult, TransportKind
from scenarios.plan import Plan
from scenarios.plan.schedule import PlanSchedule, schedule_word
from scenarios.situations import SITUATIONS
from scenarios.sweep_state import SweepState
from scenarios.units import RUNS_PER_UNIT, Unit, UnitOutcome, batched, check_names, planned_runs, processes_for, work
from simbookie.worker_processes import in_order, worker_processes

__all__ = ["Failing", "SweepInterruptedError", "SweepProgress", "SweepResult", "misses_too_often", "sweep"]

_SECONDS_PER_HOUR: Final = 3600
_MISSED_PART_MAX: Final = 20
_COUNTED: Final = ("runs", "vacuous", "events", "simulated_seconds", "cpu_seconds", "wall_seconds")


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
    first_seed: int = 0
    is_interrupted: bool = False
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

    @property
    def runs_per_second(self) -> float:
        """Seeds played in a second of real time; a seed counts once for each scenario it ran in."""
        return _per(self.runs, self.wall_seconds)

    def as_state(self) -> dict[str, Any]:
        """What its runs came to, for :class:`~scenarios.sweep_state.SweepState`."""
        return {name: getattr(self, name) for name in _COUNTED} | {
            "failing": [[found.scenario, found.seed, found.invariant, found.path] for found in self.failing],
            "undecided": [list(run) for run in self.undecided],
            "missed": [list(run) for run in self.missed],
            "runs_of": dict(self.runs_of),
            "met": dict(self.met),
        }

    def take_up(self, finished: Mapping[str, Any]) -> None:
        """Begin with what the runs of an earlier sweep came to."""
        if not finished:
            return
        for name in _COUNTED:
            setattr(self, name, finished[name])
        self.failing = [Failing(*found) for found in finished["failing"]]
        self.undecided = [(scenario, seed, problem) for scenario, seed, problem in finished["undecided"]]
        self.missed = [(scenario, seed, problem) for scenario, seed, problem in finished["missed"]]
        self.runs_of, self.met = Counter(finished["runs_of"]), Counter(finished["met"])

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-chaos sweep --json`` prints.

        ``seeds`` and ``scenarios`` are counts; ``seeds_per_cpu_hour`` counts a seed once for each scenario it ran in.
        """
        return {
            "seeds": self.seeds,
            "first_seed": self.first_seed,
            "interrupted": self.is_interrupted,
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
            "seeds_per_second": round(self.runs_per_second, 1),
            "simulated_seconds": round(self.simulated_seconds, 3),
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


SweepProgress = Callable[[SweepResult, int], None]
"""Told, after every unit of work, the results so far and how many runs there are in all."""


class SweepInterruptedError(KeyboardInterrupt):
    """A sweep was interrupted; ``result`` has what its finished runs came to."""

    def __init__(self, result: SweepResult) -> None:
        super().__init__()
        self.result = result


def sweep(
    seeds: Sequence[int],
    scenarios: Sequence[str],
    *,
    mutant: str | None = None,
    record: Path | None = None,
    failing_only: bool = False,
    keep_every: int = 0,
    processes: int | None = None,
    stop_at_first: bool = False,
    in_turn: bool = False,
    transport: TransportKind = TransportKind.OBJECTS,
    schedule: PlanSchedule | None = None,
    plans: Mapping[str, Plan] | None = None,
    state: SweepState | None = None,
    progress: SweepProgress | None = None,
) -> SweepResult:
    """Run every scenario with every seed, or one scenario ``in_turn`` with each, and add up the results.

    Plans that are drawn, other ones with every seed, have every second turn. ``plans`` has those of ``scenarios`` that are in
    no library, by the names that stand for them there.

    ``record`` is a folder for the histories, with ``failing_only`` just for those of runs that break an invariant, and of every
    seed that ``keep_every`` divides. With ``stop_at_first`` the sweep ends at the first run, in order of seed and scenario, that
    breaks one. ``processes`` is by default one for each processor; 1 runs everything in this process. A ``schedule`` takes the
    place of those that plans have.
    A ``state`` of the same sweep has runs that need not be made again, and keeps those that are.
    ``KeyError`` for an unknown scenario or mutant, ``ValueError`` for a schedule of a scenario that is no plan, ``OSError`` if
    the state cannot be written. ``KeyboardInterrupt`` stops the workers after the units they are at, and is passed on as
    :class:`SweepInterruptedError`.
    """
    started = time.perf_counter()
    check_names(scenarios, mutant, schedule, plans)
    result = SweepResult(len(seeds), tuple(scenarios), mutant or "", transport, schedule, seeds[0] if seeds else 0)
    if state is not None:
        result.take_up(state.finished)
    earlier_seconds = result.wall_seconds
    in_all = len(seeds) * (1 if in_turn else len(scenarios))
    runs = planned_runs(seeds, scenarios, in_turn=in_turn)
    units = (
        Unit(
            batch,
            mutant,
            record,
            failing_only=failing_only,
            keep_every=keep_every,
            stop_at_first=stop_at_first,
            transport=transport,
            schedule=schedule,
            plans={name: plan for name, plan in (plans or {}).items() if any(name == run[0] for run in batch)},
        )
        for batch in batched(islice(runs, result.runs, None), RUNS_PER_UNIT)
    )
    unmade = max(0, in_all - result.runs)
    try:
        with worker_processes(processes_for(-(-unmade // RUNS_PER_UNIT), processes), work) as hand_out:
            for unit_done in in_order(hand_out(units)):
                is_over = _add_up(result, unit_done, stop_at_first=stop_at_first)
                result.wall_seconds = earlier_seconds + time.perf_counter() - started
                if state is not None:
                    state.keep(result.as_state())
                if is_over:
                    break
                if progress is not None:
                    progress(result, in_all)
    except KeyboardInterrupt:
        result.is_interrupted = True
        raise SweepInterruptedError(result) from None
    finally:
        if state is not None:
            state.keep(result.as_state(), now=True)
    return result


def _add_up(result: SweepResult, unit: UnitOutcome, *, stop_at_first: bool) -> bool:
    """Count a unit's runs; whether to stop there."""
    result.cpu_seconds += unit.cpu_seconds
    for run in unit.results:
        result.add(run)
        if run.violations and stop_at_first:
            return True
    return False


def _per(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0

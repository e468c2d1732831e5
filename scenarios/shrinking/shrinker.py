"""The shrinker: plays smaller and smaller plans, and keeps each that still fails the same way.

A plan *fails the same way* if its run breaks the same clause. Where a defect was planted, the run without it also has to be `ok`:
otherwise what is left might show nothing but a plan that no client survives.

One pass takes the schedule back, or leaves few things late, takes parts out (steps, clients, calls), makes the cluster
smaller, takes back unusual values, makes numbers small and lists short, and tries seed 0. Passes are repeated until one changes
nothing, so that nothing more can be taken out by itself. All of it depends on the arguments alone, unless the time is up or
the shrinker is interrupted; then the best so far is the result.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from bkclient.errors import BookKeeperError
from scenarios.clauses import CLAUSES
from scenarios.liveness import CLAUSES as LIVENESS
from scenarios.model import RunResult, TransportKind, Violation
from scenarios.mutants import MUTANTS
from scenarios.plan import Plan, print_plan
from scenarios.plan.named import DRAWN
from scenarios.plan.schedule import ChosenSchedule, LateTurn, late_turns
from scenarios.runner import run_plan
from scenarios.shrinking import parts, values
from scenarios.shrinking.minimal import minimal
from simbookie.worker_processes import NotedInterrupts

__all__ = ["Failure", "ShrinkBounds", "ShrinkError", "Shrunk", "shrink"]

Progress = Callable[[int, int, int], None]
"""``(runs, at_most, smaller)``: told after every run; ``smaller`` counts the plans that failed the same way."""

#: Seeds that may give a smaller cluster the same bookies in the same places.
_OTHER_SEEDS: Final = (0, 1)


class ShrinkError(Exception):
    """There is nothing to shrink; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A plan that breaks a clause with a seed, and with the defect ``mutant`` planted if that is not ""."""

    plan: Plan
    seed: int
    mutant: str
    clause: str
    witness: str = ""

    @property
    def size(self) -> int:
        """How many steps and operations the plan has."""
        return len(self.plan.steps) + sum(len(client.calls) for client in self.plan.clients)


@dataclass(frozen=True, slots=True)
class ShrinkBounds:
    """How long to go on: ``runs`` at most, and ``cpu_seconds``, looked at after each."""

    runs: int = 1_000
    cpu_seconds: float = 60.0

    def __post_init__(self) -> None:
        if not (self.runs >= 1 and self.cpu_seconds > 0):
            raise ValueError(f"runs must be >= 1 and cpu_seconds > 0, got {self}")


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What came of it. ``stopped`` says why it is not minimal: "runs", "time" or "interrupt"; "" if it is."""

    origin: Failure
    failure: Failure
    runs: int
    cpu_seconds: float
    stopped: str = ""


class _Over(Exception):
    """A bound is reached."""


def shrink(
    plan: Plan,
    seed: int,
    *,
    mutant: str = "",
    clause: str = "",
    transport: TransportKind = TransportKind.OBJECTS,
    bounds: ShrinkBounds | None = None,
    progress: Progress | None = None,
) -> Shrunk:
    """Make a failing plan smaller while the same clause breaks.

    ``clause`` is by default the first that the run breaks, of those that ``mutant`` names if one is planted.
    :class:`ShrinkError` if the plan breaks nothing, or not this clause, or breaks something without the defect too. ``KeyError``
    for an unknown mutant. An interrupt ends the search and is not passed on.
    """
    if transport is TransportKind.BYTES:
        plan = replace(plan, cluster=plan.cluster.over(transport))
    started = time.process_time()
    search = _Search(_first(plan, seed, mutant, clause), bounds or ShrinkBounds(), progress)
    origin, stopped = search.best, ""
    try:
        with NotedInterrupts() as search.interrupts:
            search.to_the_end()
    except _Over as over:
        stopped = str(over)
    except KeyboardInterrupt:
        stopped = "interrupt"
    return Shrunk(origin, _commented(search.best, origin), search.runs, time.process_time() - started, stopped)


def _first(plan: Plan, seed: int, mutant: str, clause: str) -> Failure:
    """What is to be shrunk, with the clause that is meant."""
    result = run_plan(plan, seed, mutant=mutant or None)
    broken = {violation.clause: violation for violation in reversed(result.violations)}
    planted = f" with {mutant}" if mutant else ""
    if not broken:
        raise ShrinkError(f"{plan.name} breaks nothing with seed {seed}{planted}, so there is nothing to shrink")
    if clause and clause not in broken:
        raise ShrinkError(f"{plan.name} breaks {', '.join(broken)} with seed {seed}{planted}, and not {clause}")
    wanted = (clause,) if clause else (*(MUTANTS[mutant].clauses if mutant else ()), *broken)
    found = next(broken[name] for name in wanted if name in broken)
    if mutant:
        sound = run_plan(plan, seed)
        if sound.violations:
            raise ShrinkError(f"{plan.name} breaks {sound.violations[0].clause} with seed {seed} without {mutant} too")
    return Failure(plan, seed, mutant, found.clause, found.witness)


class _Search:
    """The best plan so far, and what was tried."""

    def __init__(self, failure: Failure, bounds: ShrinkBounds, progress: Progress | None) -> None:
        self.best = failure
        self.runs = 0
        self.interrupts = NotedInterrupts()
        self._bounds = bounds
        self._progress = progress
        self._smaller = 0
        self._tried: dict[tuple[str, int], Violation | None] = {}
        self._ends_at_s = time.process_time() + bounds.cpu_seconds

    # Trying ------------------------------------------------------------------------------------------------------

    def fails(self, make: Callable[[], Plan], seed: int | None = None) -> bool:
        """Whether the plan that ``make`` makes fails the same way; it is the best then. One that is no plan does not."""
        try:
            plan = make()
        except (ValueError, BookKeeperError):  # values that do not fit each other
            return False
        seed = self.best.seed if seed is None else seed
        found = self._played(plan, seed)
        if found is None:
            return False
        self.best = replace(self.best, plan=plan, seed=seed, witness=found.witness)
        self._smaller += 1
        return True

    def _played(self, plan: Plan, seed: int) -> Violation | None:
        tried = (print_plan(plan), seed)
        if tried not in self._tried:
            found = self._broken(self._run(plan, seed, self.best.mutant))
            if found is not None and self.best.mutant and self._run(plan, seed, "").verdict != "ok":
                found = None
            self._tried[tried] = found
        return self._tried[tried]

    def _run(self, plan: Plan, seed: int, mutant: str) -> RunResult:
        self.interrupts.raise_noted()
        if self.runs >= self._bounds.runs:
            raise _Over("runs")
        if time.process_time() >= self._ends_at_s:
            raise _Over("time")
        result = run_plan(plan, seed, mutant=mutant or None)
        self.runs += 1
        if self._progress is not None:
            self._progress(self.runs, self._bounds.runs, self._smaller)
        return result

    def _broken(self, result: RunResult) -> Violation | None:
        return next((found for found in result.violations if found.clause == self.best.clause), None)

    # Passes ------------------------------------------------------------------------------------------------------

    def to_the_end(self) -> None:
        """Repeat all passes until one round of them changes nothing."""
        before = None
        while before != (self.best.plan, self.best.seed):
            before = (self.best.plan, self.best.seed)
            self._bare()
            self._less_late()
            self._fewer_steps()
            self._fewer_clients()
            self._fewer_calls()
            self._smaller_cluster()
            self._usual_values()
            self._simpler_values()
            self._seed_0()

    def _bare(self) -> None:
        plan, demands_end = self.best.plan, self.best.clause in LIVENESS
        self.fails(lambda: parts.bare(plan, demands_end=demands_end))

    def _less_late(self) -> None:
        """Without the schedule, or with few of the things late that it chose, and those for few others to pass."""
        plan = self.best.plan
        if plan.schedule is None or self.fails(lambda: replace(plan, schedule=None)):
            return
        late = plan.schedule.late if isinstance(plan.schedule, ChosenSchedule) else self._chosen(plan)
        if not self._fails_with(plan, late):
            return
        late = minimal(late, lambda kept: bool(kept) and self._fails_with(plan, kept))
        for index, turn in enumerate(late):
            for passes in values.simpler_values(turn.passes):
                simpler = (*late[:index], *([replace(turn, passes=passes)] if passes else []), *late[index + 1 :])
                if passes and self._fails_with(plan, simpler):
                    late = simpler
                    break

    def _chosen(self, plan: Plan) -> tuple[LateTurn, ...]:
        return late_turns(self._run(plan, self.best.seed, self.best.mutant).choices)

    def _fails_with(self, plan: Plan, late: tuple[LateTurn, ...]) -> bool:
        return self.fails(lambda: replace(plan, schedule=ChosenSchedule(late)))

    def _seed_0(self) -> None:
        plan = self.best.plan
        if self.best.seed:
            self.fails(lambda: plan, 0)

    def _fewer_steps(self) -> None:
        plan = self.best.plan
        minimal(plan.steps, lambda kept: self.fails(lambda: parts.with_steps(plan, kept)))

    def _fewer_clients(self) -> None:
        plan = self.best.plan
        minimal(plan.client_names, lambda kept: self.fails(lambda: parts.with_clients(plan, kept)))

    def _fewer_calls(self) -> None:
        plan = self.best.plan
        minimal(parts.calls_of(plan), lambda kept: self.fails(lambda: parts.with_calls(plan, kept)))

    def _smaller_cluster(self) -> None:
        plan, cluster = self.best.plan, self.best.plan.cluster
        for sizes in (*parts.sizes_below(cluster.sizes), cluster.sizes):
            for count in sorted({sizes.ensemble, cluster.bookies}):
                if (sizes, count) == (cluster.sizes, cluster.bookies):
                    return
                for seed in dict.fromkeys((self.best.seed, *_OTHER_SEEDS)):
                    if self.fails(lambda: parts.with_cluster(plan, sizes, count), seed):  # noqa: B023  called at once
                        return

    def _usual_values(self) -> None:
        plan = self.best.plan
        unusual = tuple(leaf for leaf in values.leaves(plan) if leaf.is_unusual)
        minimal(unusual, lambda kept: self.fails(lambda: values.with_usual(plan, unusual, kept)))

    def _simpler_values(self) -> None:
        for leaf in tuple(values.leaves(self.best.plan)):
            if isinstance(leaf.value, tuple):
                self._shorter(leaf)
            elif leaf.usual is not leaf.value and leaf.value != leaf.usual:
                self._simpler(leaf)

    def _shorter(self, leaf: values.Leaf) -> None:
        plan = self.best.plan
        minimal(leaf.value, lambda kept: bool(kept) and self.fails(lambda: values.with_value(plan, leaf.path, kept)))

    def _simpler(self, leaf: values.Leaf) -> None:
        plan, value = self.best.plan, leaf.value
        is_simpler = True
        while is_simpler:
            is_simpler = False
            for simpler in values.simpler_values(value):
                if self.fails(lambda: values.with_value(plan, leaf.path, simpler)):  # noqa: B023  called at once
                    value, is_simpler = simpler, True
                    break


def _commented(failure: Failure, origin: Failure) -> Failure:
    """The failure with a plan that says in prose what it shows."""
    plan, planted = failure.plan, f" with the defect {failure.mutant}" if failure.mutant else ""
    name = f"{CLAUSES[failure.clause].invariant} ({failure.clause})"
    prose = (
        f"Made smaller from {origin.plan.name}, seed {origin.seed}. Breaks {name} with seed {failure.seed}{planted}:",
        *textwrap.wrap(failure.witness, 116),
    )
    summary = f"breaks {failure.clause} with seed {failure.seed}{planted}"
    drawn = f"-{origin.seed}" if origin.plan.name in DRAWN else ""
    named = replace(plan, name=f"{origin.plan.name}{drawn}-shrunk", summary=summary, prose=prose)
    return replace(failure, plan=named)

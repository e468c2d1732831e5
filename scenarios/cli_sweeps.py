"""``bk-chaos sweep``, ``mutants`` and ``determinism``: many runs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Final

import typer

from scenarios.cli_completion import complete_scenario
from scenarios.cli_options import (
    FirstSeed,
    Json,
    MutantName,
    Processes,
    Scenarios,
    ScheduleWord,
    Seeds,
    Transport,
    check_writable,
    chosen_scenarios,
    exit_codes,
    known_in_runs,
    schedule_for,
)
from scenarios.cli_output import (
    EXIT_FOUND,
    EXIT_UNDECIDED,
    fail,
    known,
    print_difference,
    print_json,
    print_lines,
    print_table,
    watched,
)
from scenarios.determinism import check_determinism
from scenarios.library import SCENARIOS
from scenarios.model import TransportKind
from scenarios.mutants import RUN_MUTANTS
from scenarios.plan.named import plan_names
from scenarios.plan.schedule import PlanSchedule, schedule_word
from scenarios.situations import SITUATIONS
from scenarios.sweep import MutantHunt, Progress, SweepResult, hunt_mutants, sweep

__all__ = ["add_to"]

_SELDOM_SHOWN: Final = 8


def add_to(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("sweep", help=_SWEEP_HELP)(sweep_)
    app.command("mutants", help=_MUTANTS_HELP)(mutants_)
    app.command("determinism", help=_DETERMINISM_HELP)(determinism)


_SWEEP_HELP: Final = f"""Run scenarios with many seeds, on all processors.

With --marks each seed plays one scenario in turn, of all scenarios, plans and swarms unless some are named, and the sweep fails
if no run met one of the situations (docs/reference/marks.md). It takes some 2,000 seeds to meet them all.

With --schedule deliveries and processes are late, as in bk-chaos run; all plans are played unless some are named.

A run may miss what its scenario is about. If more than one in twenty of a scenario's runs does, the sweep has no verdict.

\b
Examples:
  bk-chaos sweep --seeds 1000
  bk-chaos sweep --seeds 200 --first-seed 5000 --scenario dead-writer --scenario zombie-writer
  bk-chaos sweep --seeds 500 --record histories --failing-only
  bk-chaos sweep --seeds 2000 --marks
  bk-chaos sweep --scenario swarm-live --schedule delay:3
  bk-chaos sweep --seeds 50 --mutant recovery-reads-do-not-fence --stop-at-first --json

\b
{exit_codes(found="an invariant was broken, or a situation never met with --marks")}
With --json: {{"seeds", "scenarios", "violations", "unknown", "missed", "vacuous", "events", "events_per_second",
"simulated_seconds_per_second", "seeds_per_cpu_hour", "failing": [{{"scenario", "seed", "invariant"}}],
"met": {{situation: runs}}, "never_met": [...], ...}}.
"""


def sweep_(
    *,
    seeds: Seeds = 100,
    first_seed: FirstSeed = 0,
    scenario: Scenarios = None,
    mutant: MutantName = None,
    transport: Transport = TransportKind.OBJECTS,
    schedule: ScheduleWord = None,
    record: Annotated[
        Path | None, typer.Option(help="Keep histories in this folder.", show_default=False, metavar="DIR")
    ] = None,
    failing_only: Annotated[
        bool, typer.Option("--failing-only", help="Keep only histories of runs that break an invariant.")
    ] = False,
    stop_at_first: Annotated[
        bool, typer.Option("--stop-at-first", help="Stop at the first run that breaks an invariant.")
    ] = False,
    marks: Annotated[
        bool,
        typer.Option("--marks", help="Play one scenario in turn with each seed; fail if a situation is never met."),
    ] = False,
    processes: Processes = None,
    as_json: Json = False,
) -> None:
    """Sweep seeds."""
    everything = list(plan_names()) if schedule else [*SCENARIOS, *plan_names()] if marks else None
    chosen = chosen_scenarios(scenario or everything, mutant)
    policy = schedule_for(schedule, chosen)
    if failing_only and record is None:
        fail("--failing-only says which histories to keep; --record says where")
    check_writable(record)
    with watched("sweeping", "broken") as progress, _pool_errors():
        result = sweep(
            range(first_seed, first_seed + seeds),
            chosen,
            mutant=mutant,
            record=record,
            failing_only=failing_only,
            processes=processes,
            stop_at_first=stop_at_first,
            in_turn=marks,
            transport=transport,
            schedule=policy,
            progress=progress,
        )
    if as_json:
        print_json(result.as_json())
    else:
        _print_sweep(result)
    if result.failing or (marks and result.never_met):
        raise typer.Exit(EXIT_FOUND)
    if result.undecided or result.beside_the_point:
        raise typer.Exit(EXIT_UNDECIDED)


_MUTANTS_HELP: Final = f"""Plant known defects, one at a time, and see whether the invariants give them away.

Unless scenarios or plans are named, the plans of the library and the drawn ones are played, which show every defect. With
--shrink those that catch a defect are made as small as they can be. With --schedule deliveries and processes are late, as in
bk-chaos run.

\b
Examples:
  bk-chaos mutants
  bk-chaos mutants --shrink defects
  bk-chaos mutants --mutant acks-during-ensemble-change --schedule pct:3
  bk-chaos mutants --seeds 500 --mutant recovery-starts-below-last-fragment --json

\b
{exit_codes(found="a defect was not caught")}
With --json: {{"mutants": [{{"name", "caught", "invariant", "clause", "scenario", "seed", "seeds_to_find", "cpu_seconds",
"shrunk_steps", "shrunk_operations", "shrunk_cpu_seconds"}}]}}.
"""


def mutants_(
    *,
    seeds: Seeds = 200,
    first_seed: FirstSeed = 0,
    mutant: Annotated[
        list[str] | None, typer.Option(help="A defect; may be repeated.  [default: all]", show_default=False)
    ] = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            "--scenario",
            help="A scenario or a plan; may be repeated.  [default: all plans]",
            show_default=False,
            autocompletion=complete_scenario,
        ),
    ] = None,
    transport: Transport = TransportKind.OBJECTS,
    schedule: ScheduleWord = None,
    processes: Processes = None,
    shrink: Annotated[
        Path | None,
        typer.Option(help="Shrink what catches each, and write it to this folder.", show_default=False, metavar="DIR"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Hunt planted defects."""
    chosen = chosen_scenarios(scenario, None) if scenario and shrink is None else _chosen_plans(scenario)
    policy = schedule_for(schedule, chosen)
    check_writable(shrink)
    planted = mutant or list(RUN_MUTANTS)
    for name in planted:
        known_in_runs(name)
    with watched("hunting", "caught") as progress, _pool_errors():
        hunts = hunt_mutants(
            planted,
            range(first_seed, first_seed + seeds),
            chosen,
            processes=processes,
            transport=transport,
            schedule=policy,
            progress=progress,
        )
    if shrink is not None:
        with watched("shrinking", "small") as progress, _pool_errors():
            hunts = _shrunk(hunts, shrink, transport, policy, processes, progress)
    if as_json:
        print_json({"mutants": [hunt.as_json() for hunt in hunts]})
    else:
        sizes = ("steps", "operations") if shrink is not None else ()
        rows = [(*_row(hunt, seeds), *(_sizes(hunt) if sizes else ())) for hunt in hunts]
        print_table(("defect", "caught", "by", "in", "seeds", "CPU s", *sizes), rows)
    if not all(hunt.caught for hunt in hunts):
        raise typer.Exit(EXIT_FOUND)


def _chosen_plans(names: list[str] | None) -> list[str]:
    for name in names or ():
        known(name, plan_names(), "plan")
    return list(names or plan_names())


def _shrunk(
    hunts: list[MutantHunt],
    folder: Path,
    transport: TransportKind,
    schedule: PlanSchedule | None,
    processes: int | None,
    progress: Progress | None,
) -> list[MutantHunt]:
    from scenarios.shrinking.hunted import shrink_caught  # noqa: PLC0415  most hunts shrink nothing

    try:
        folder.mkdir(parents=True, exist_ok=True)
        return shrink_caught(
            hunts, folder, transport=transport, schedule=schedule, processes=processes, progress=progress
        )
    except OSError as error:
        fail(f"{folder} cannot be written: {error.strerror}")


def _row(hunt: MutantHunt, seeds: int) -> tuple[object, ...]:
    if not hunt.caught:
        return hunt.name, "NO", "", "", f"> {seeds}", f"{hunt.cpu_seconds:.1f}"
    broken, where = f"{hunt.invariant} ({hunt.clause})", f"{hunt.scenario} {hunt.seed}"
    return hunt.name, "yes", broken, where, hunt.seeds_to_find, f"{hunt.cpu_seconds:.1f}"


def _sizes(hunt: MutantHunt) -> tuple[object, object]:
    return ("", "") if hunt.shrunk_steps is None else (hunt.shrunk_steps, hunt.shrunk_operations)


_DETERMINISM_HELP: Final = f"""Make every run three times, once in a process that hashes strings differently, and compare.

\b
Examples:
  bk-chaos determinism --seeds 20
  bk-chaos determinism --seeds 100 --scenario dead-writer --json

\b
{exit_codes(found="a run did not come out the same")}
With --json: {{"seeds", "runs", "diverged": [{{"scenario", "seed", "where", "difference"}}]}}.
"""


def determinism(
    *,
    seeds: Seeds = 10,
    first_seed: FirstSeed = 0,
    scenario: Scenarios = None,
    mutant: MutantName = None,
    transport: Transport = TransportKind.OBJECTS,
    as_json: Json = False,
) -> None:
    """Check that runs depend on their seed alone."""
    chosen = chosen_scenarios(scenario, mutant)
    with watched("repeating", "different") as progress:
        result = check_determinism(
            range(first_seed, first_seed + seeds), chosen, mutant=mutant, transport=transport, progress=progress
        )
    if as_json:
        print_json(result.as_json())
    else:
        print_lines(f"{result.runs} runs of {seeds} seeds, {len(result.diverged)} different")
        for divergence in result.diverged:
            print_lines(f"{divergence.scenario}, seed {divergence.seed}: different in {divergence.where}")
            if divergence.difference is not None:
                print_difference(divergence.difference, "first", "then")
    if result.diverged:
        raise typer.Exit(EXIT_FOUND)


# Helpers -----------------------------------------------------------------------------------------------------------


def _print_sweep(result: SweepResult) -> None:
    figures = result.as_json()
    print_lines(
        f"{result.runs} runs of {result.seeds} seeds in {len(result.scenarios)} scenarios: "
        f"{figures['violations']} violations, {figures['unknown']} without verdict, "
        f"{figures['missed']} beside what they are about, {figures['vacuous']} in which nothing went wrong",
        f"  {result.events} events, {figures['events_per_second']:.0f} a second; "
        f"{figures['simulated_seconds_per_second']:.0f} simulated seconds a second; "
        f"{figures['seeds_per_cpu_hour']:.0f} seeds an hour of CPU",
    )
    seldom = sorted(result.met.items(), key=itemgetter(1))[:_SELDOM_SHOWN]
    print_lines(
        f"  {len(result.met)} of {len(SITUATIONS)} situations met, the rarest in: "
        + (", ".join(f"{name} {count}" for name, count in seldom) or "none"),
        f"  never met: {', '.join(result.never_met) or 'none'}",
    )
    for failing in result.failing:
        planted = f" --mutant {result.mutant}" if result.mutant else ""
        planted += f" --transport {result.transport}" if result.transport is not TransportKind.OBJECTS else ""
        planted += f" --schedule {schedule_word(result.schedule)}" if result.schedule else ""
        print_lines(f"  {failing.invariant}: bk-chaos run {failing.scenario} --seed {failing.seed}{planted} --timeline")
    for scenario, seed, problem in result.undecided:
        print_lines(f"  no verdict: {scenario} --seed {seed}: {problem}")
    for name in result.beside_the_point:
        missed = [(seed, problem) for scenario, seed, problem in result.missed if scenario == name]
        seed, problem = missed[0]
        print_lines(f"  no verdict: {len(missed)} of {result.runs_of[name]} runs of {name}; --seed {seed}: {problem}")


@contextmanager
def _pool_errors() -> Iterator[None]:
    """Turn the death of a worker process into a plain message."""
    try:
        yield
    except BrokenProcessPool:
        fail("a worker process died, perhaps for lack of memory; try again with fewer --processes")

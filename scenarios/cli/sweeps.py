"""``bk-chaos sweep``: many runs, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Final

import typer

from scenarios.cli.names import Names, chosen_runs
from scenarios.cli.options import (
    FirstSeed,
    Json,
    MutantName,
    Processes,
    Scenarios,
    ScheduleWord,
    Seeds,
    Transport,
    check_writable,
    exit_codes,
    first_seed_of_today,
    schedule_for,
)
from scenarios.cli.output import (
    EXIT_FOUND,
    EXIT_INTERRUPTED,
    EXIT_UNDECIDED,
    fail,
    pool_errors,
    print_json,
    print_lines,
    watched,
)
from scenarios.library import SCENARIOS
from scenarios.model import TransportKind
from scenarios.plan import Plan
from scenarios.plan.named import plan_names
from scenarios.plan.schedule import PlanSchedule, schedule_word
from scenarios.situations import SITUATIONS
from scenarios.sweep import SweepInterruptedError, SweepResult, sweep
from scenarios.sweep_state import SweepState, SweepStateError

__all__ = ["add_to", "pace"]

_SELDOM_SHOWN: Final = 8


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("sweep", help=_SWEEP_HELP)(sweep_)


_SWEEP_HELP: Final = f"""Run scenarios with many seeds, on all processors.

NAMES are scenarios, plans and files with plans (.scn); all scenarios unless some are named. Without --first-seed the seeds are
other ones each day (UTC); the first is printed.

With --marks each seed plays one scenario in turn, of all scenarios, plans and swarms unless some are named, and the sweep fails
if no run met one of the situations (docs/reference/marks.md). It takes some 2,000 seeds to meet them all.

With --schedule deliveries and processes are late, as in bk-chaos run; all plans are played unless some are named.

Ctrl-C ends a sweep after the runs that are under way, and prints what was found so far. With --resume FILE a sweep keeps what is
finished in that file, and the same command goes on from there, with more --seeds too.

A run may miss what its scenario is about. If more than one in twenty of a scenario's runs does, the sweep has no verdict.

\b
Examples:
  bk-chaos sweep --seeds 1000
  bk-chaos sweep dead-writer zombie-writer --seeds 200 --first-seed 5000
  bk-chaos sweep late-add.scn swarm --seeds 500
  bk-chaos sweep --seeds 500 --record histories --failing-only
  bk-chaos sweep --seeds 2000 --marks
  bk-chaos sweep log-two-owners-race log-zombie-wakes --seeds 5000 --in-turn
  bk-chaos sweep swarm swarm-live --seeds 100000 --resume swarms.json
  bk-chaos sweep swarm-live --schedule delay:3
  bk-chaos sweep --seeds 50 --mutant recovery-reads-do-not-fence --stop-at-first --json

\b
{exit_codes(found="an invariant was broken, or a situation never met with --marks")} 130 interrupted.
With --json: {{"seeds", "first_seed", "interrupted", "scenarios", "violations", "unknown", "missed", "vacuous", "events",
"events_per_second", "seeds_per_second", "simulated_seconds", "simulated_seconds_per_second", "seeds_per_cpu_hour",
"failing": [{{"scenario", "seed", "invariant"}}], "met": {{situation: runs}}, "never_met": [...], ...}}.
"""


def sweep_(
    names: Names = None,
    *,
    seeds: Seeds = 100,
    first_seed: FirstSeed = None,
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
    in_turn: Annotated[
        bool, typer.Option("--in-turn", help="Play one scenario in turn with each seed; --marks does, too.")
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(help="Keep what is finished in this file, and go on from there.", metavar="FILE"),
    ] = None,
    processes: Processes = None,
    as_json: Json = False,
) -> None:
    """Sweep seeds."""
    everything = plan_names() if schedule else (*SCENARIOS, *plan_names()) if marks else tuple(SCENARIOS)
    chosen, plans = chosen_runs([*(names or ()), *(scenario or ())] or everything, mutant)
    policy = schedule_for(schedule, chosen)
    in_turn = in_turn or marks
    if failing_only and record is None:
        fail("--failing-only says which histories to keep; --record says where")
    check_writable(record)
    first = first_seed if first_seed is not None else _kept_first_seed(resume)
    begins_at = first_seed_of_today() if first is None else first
    state = None
    if resume is not None:
        state = _state(resume, begins_at, chosen, mutant, transport, policy, plans, in_turn=in_turn)
        in_all = seeds * (1 if in_turn else len(chosen))
        if state.finished and state.finished["runs"] > in_all:
            fail(
                f"{resume} has {state.finished['runs']} runs, more than the {in_all} of {seeds} seeds; ask for more --seeds"
            )
    try:
        with watched("sweeping", "broken") as move, pool_errors():
            result = sweep(
                range(begins_at, begins_at + seeds),
                chosen,
                mutant=mutant,
                record=record,
                failing_only=failing_only,
                processes=processes,
                stop_at_first=stop_at_first,
                in_turn=in_turn,
                transport=transport,
                schedule=policy,
                plans=plans,
                state=state,
                progress=None
                if move is None
                else lambda so_far, in_all: move(so_far.runs, in_all, len(so_far.failing), pace(so_far)),
            )
    except SweepInterruptedError as interrupted:
        result = interrupted.result
    except OSError as error:
        fail(f"{error.filename or resume} cannot be written: {error.strerror}")
    if as_json:
        print_json(result.as_json())
    else:
        _print_sweep(result, is_of_today=first is None, resume=resume)
    if result.is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if result.failing or (marks and result.never_met):
        raise typer.Exit(EXIT_FOUND)
    if result.undecided or result.beside_the_point:
        raise typer.Exit(EXIT_UNDECIDED)


# Helpers -----------------------------------------------------------------------------------------------------------


def _kept_first_seed(resume: Path | None) -> int | None:
    """The first seed of the sweep that goes on, if there is one."""
    if resume is None:
        return None
    try:
        return SweepState.first_seed_of(resume)
    except SweepStateError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{resume} cannot be read: {error.strerror}")


def _state(
    resume: Path,
    first_seed: int,
    chosen: list[str],
    mutant: str | None,
    transport: TransportKind,
    schedule: PlanSchedule | None,
    plans: Mapping[str, Plan],
    *,
    in_turn: bool,
) -> SweepState:
    if not resume.parent.is_dir():
        fail(f"{resume} cannot be written: there is no folder {resume.parent}")
    try:
        return SweepState.open(
            resume,
            first_seed=first_seed,
            scenarios=chosen,
            mutant=mutant,
            transport=transport,
            schedule=schedule,
            in_turn=in_turn,
            plans=plans,
        )
    except SweepStateError as error:
        fail(str(error))


def pace(so_far: SweepResult) -> str:
    """What a progress bar tells beside counts."""
    return f"{so_far.runs_per_second:.0f} seeds/s, {_duration(so_far.simulated_seconds)} simulated"


def _duration(seconds: float) -> str:
    """A time for people: hours and minutes, or minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _print_sweep(result: SweepResult, *, is_of_today: bool, resume: Path | None) -> None:
    figures = result.as_json()
    if result.is_interrupted:
        goes_on = "" if resume is None else f"; the same command with --resume {resume} goes on"
        print_lines(f"interrupted{goes_on}")
    print_lines(
        f"{result.runs} runs of {result.seeds} seeds in {len(result.scenarios)} scenarios: "
        f"{figures['violations']} violations, {figures['unknown']} without verdict, "
        f"{figures['missed']} beside what they are about, {figures['vacuous']} in which nothing went wrong",
        f"  seeds from {result.first_seed} on" + (", which are those of today" if is_of_today else ""),
        f"  {result.events} events, {figures['events_per_second']:.0f} a second; "
        f"{_duration(result.simulated_seconds)} simulated, {figures['simulated_seconds_per_second']:.0f} seconds a second; "
        f"{figures['seeds_per_second']:.0f} seeds a second, {figures['seeds_per_cpu_hour']:.0f} an hour of CPU",
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

"""``bk-chaos mutants``: hunts for planted defects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from scenarios.cli.completion import complete_scenario
from scenarios.cli.options import (
    FixedFirstSeed,
    Json,
    Processes,
    ScheduleWord,
    Seeds,
    Transport,
    check_writable,
    chosen_scenarios,
    exit_codes,
    known_in_runs,
    schedule_for,
)
from scenarios.cli.output import EXIT_FOUND, fail, known, pool_errors, print_json, print_table, watched
from scenarios.hunting import MutantHunt, hunt_in_worlds, hunt_mutants
from scenarios.model import TransportKind
from scenarios.mutants import MUTANTS, RUN_MUTANTS
from scenarios.plan.named import plan_names
from scenarios.plan.schedule import PlanSchedule
from scenarios.units import Progress

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("mutants", help=_MUTANTS_HELP)(mutants_)


_MUTANTS_HELP: Final = f"""Plant known defects, one at a time, and see whether the invariants give them away.

Unless scenarios or plans are named, the plans of the library and the drawn ones are played, which show every defect. With
--shrink those that catch a defect are made as small as they can be. Defects that no run shows are looked for in their world of
machines, as bk-chaos explore does, and with --shrink the moves that show them are written down in words. With --schedule
deliveries and processes are late, as in bk-chaos run.

\b
Examples:
  bk-chaos mutants
  bk-chaos mutants --shrink defects
  bk-chaos mutants --mutant acks-during-ensemble-change --schedule pct:3
  bk-chaos mutants --seeds 500 --mutant recovery-starts-below-last-fragment --json

\b
{exit_codes(found="a defect was not caught")}
With --json: {{"mutants": [{{"name", "caught", "tier", "policy", "invariant", "clause", "scenario", "seed", "seeds_to_find",
"cpu_seconds", "shrunk_steps", "shrunk_operations", "shrunk_cpu_seconds"}}]}}.
"""


def mutants_(
    *,
    seeds: Seeds = 200,
    first_seed: FixedFirstSeed = 0,
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
    everything = mutant or list(MUTANTS)
    for name in everything:
        known(name, list(MUTANTS), "mutant")
    planted = [name for name in everything if name in RUN_MUTANTS]
    alone = [name for name in everything if name not in RUN_MUTANTS]
    if alone and scenario:
        known_in_runs(alone[0])
    with watched("hunting", "caught") as progress, pool_errors():
        hunts = hunt_mutants(
            planted,
            range(first_seed, first_seed + seeds),
            chosen,
            processes=processes,
            transport=transport,
            schedule=policy,
            progress=progress,
        )
        in_worlds = hunt_in_worlds(alone, range(first_seed, first_seed + seeds), processes=processes, progress=progress)
    if shrink is not None:
        with watched("shrinking", "small") as progress, pool_errors():
            hunts = _shrunk(hunts, shrink, transport, policy, processes, progress)
        _write_stories(in_worlds, shrink)
    order = {name: index for index, name in enumerate(everything)}
    hunts = sorted((*hunts, *in_worlds), key=lambda hunt: order[hunt.name])
    if as_json:
        print_json({"mutants": [hunt.as_json() for hunt in hunts]})
    else:
        sizes = ("steps", "operations") if shrink is not None else ()
        rows = [(*_row(hunt, seeds), *(_sizes(hunt) if sizes else ())) for hunt in hunts]
        print_table(("defect", "caught", "by", "in", "tier", "seeds", "CPU s", *sizes), rows)
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


def _write_stories(hunts: list[MutantHunt], folder: Path) -> None:
    """What is left of the schedules that worlds of machines broke by, a file for each defect."""
    for hunt in hunts:
        if hunt.caught:
            lines = (
                f"# {hunt.name}, in the world {hunt.scenario} of bk-chaos explore: {hunt.invariant} ({hunt.clause})",
                *hunt.story,
            )
            path = folder / f"{hunt.name}.txt"
            try:
                path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            except OSError as error:
                fail(f"{path} cannot be written: {error.strerror}")


def _row(hunt: MutantHunt, seeds: int) -> tuple[object, ...]:
    if not hunt.caught:
        return hunt.name, "NO", "", "", _how(hunt), f"> {seeds}", f"{hunt.cpu_seconds:.1f}"
    broken, where = (
        f"{hunt.invariant} ({hunt.clause})",
        f"{hunt.scenario} {hunt.seed}" if hunt.seed >= 0 else hunt.scenario,
    )
    return hunt.name, "yes", broken, where, _how(hunt), hunt.seeds_to_find, f"{hunt.cpu_seconds:.1f}"


def _how(hunt: MutantHunt) -> str:
    return f"{hunt.tier}, {hunt.policy}" if hunt.policy else hunt.tier


def _sizes(hunt: MutantHunt) -> tuple[object, object]:
    steps, operations = hunt.shrunk_steps, hunt.shrunk_operations
    return "" if steps is None else steps, "" if operations is None else operations

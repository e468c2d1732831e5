"""``bk-chaos determinism``: whether runs depend on their seeds alone."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from scenarios.cli.names import Names, chosen_runs
from scenarios.cli.options import (
    FirstSeed,
    Json,
    MutantName,
    Processes,
    Scenarios,
    Seeds,
    Transport,
    exit_codes,
    first_seed_of_today,
)
from scenarios.cli.output import EXIT_FOUND, fail, pool_errors, print_difference, print_json, print_lines, watched
from scenarios.determinism import UnusablePythonError, check_determinism
from scenarios.library import SCENARIOS
from scenarios.model import TransportKind
from scenarios.plan import Plan
from scenarios.plan.named import plan_names

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("determinism", help=_DETERMINISM_HELP)(determinism)


_DETERMINISM_HELP: Final = f"""Make every run three times or more, once in a process that hashes strings differently, and compare.

NAMES are scenarios, plans and files with plans (.scn); all scenarios unless some are named. With --in-turn each seed plays one in
turn, of all scenarios, plans and swarms unless some are named. Without --first-seed the seeds are other ones each day (UTC).

With --audit each run is made once, and what client and bookies take from the real world is named by file and line: clocks,
chance, threads, sockets, id(), and the order of sets of plain objects.

--hash-seeds says in how many processes that hash differently each run is made; --python adds one with another interpreter, which
has the dependencies of this package.

\b
Examples:
  bk-chaos determinism --seeds 20
  bk-chaos determinism dead-writer late-add.scn --seeds 100 --json
  bk-chaos determinism --in-turn --seeds 1000 --hash-seeds 3
  bk-chaos determinism --in-turn --seeds 200 --audit
  bk-chaos determinism --in-turn --seeds 300 --python build/environments/3.13-highest/bin/python

\b
{exit_codes(found="a run did not come out the same, or used the real world")}
With --json: {{"seeds", "first_seed", "runs", "places", "diverged": [{{"scenario", "seed", "where", "difference"}}]}};
with --audit: {{"runs", "real_uses": [{{"file", "line", "sentence"}}]}}.
"""


def determinism(
    names: Names = None,
    *,
    seeds: Seeds = 10,
    first_seed: FirstSeed = None,
    scenario: Scenarios = None,
    mutant: MutantName = None,
    transport: Transport = TransportKind.OBJECTS,
    in_turn: Annotated[bool, typer.Option("--in-turn", help="Play one scenario in turn with each seed.")] = False,
    hash_seeds: Annotated[
        int, typer.Option(min=1, max=100, help="Processes that hash strings differently, for each run.")
    ] = 1,
    python: Annotated[
        list[str] | None,
        typer.Option(help="Another interpreter for each run; may be repeated.", show_default=False, metavar="PATH"),
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Name what client and bookies take from the real world.")
    ] = False,
    processes: Processes = None,
    as_json: Json = False,
) -> None:
    """Check that runs depend on their seed alone."""
    everything = (*SCENARIOS, *plan_names()) if in_turn else tuple(SCENARIOS)
    chosen, plans = chosen_runs([*(names or ()), *(scenario or ())] or everything, mutant)
    begins_at = first_seed_of_today() if first_seed is None else first_seed
    if audit:
        if mutant is not None or python or hash_seeds != 1:
            fail("--audit makes each run once in a process of its own; leave --mutant, --python and --hash-seeds out")
        _audit(
            range(begins_at, begins_at + seeds), chosen, transport, plans, processes, in_turn=in_turn, as_json=as_json
        )
        return
    with watched("repeating", "different") as progress, pool_errors():
        try:
            result = check_determinism(
                range(begins_at, begins_at + seeds),
                chosen,
                mutant=mutant,
                transport=transport,
                in_turn=in_turn,
                plans=plans,
                hash_seeds=hash_seeds,
                pythons=python or (),
                processes=processes,
                progress=progress,
            )
        except UnusablePythonError as error:
            fail(str(error))
    if as_json:
        print_json(result.as_json())
    else:
        print_lines(
            f"{result.runs} runs of {seeds} seeds from {begins_at} on, {len(result.diverged)} different",
            f"  each twice in one process, and once in: {', '.join(result.places)}",
        )
        for divergence in result.diverged:
            print_lines(f"{divergence.scenario}, seed {divergence.seed}: different in {divergence.where}")
            if divergence.difference is not None:
                print_difference(divergence.difference, "first", "then")
    if result.diverged:
        raise typer.Exit(EXIT_FOUND)


def _audit(
    seeds: range,
    chosen: list[str],
    transport: TransportKind,
    plans: dict[str, Plan],
    processes: int | None,
    *,
    in_turn: bool,
    as_json: bool,
) -> None:
    from scenarios.auditing import audit_runs  # noqa: PLC0415  needed here only

    with watched("auditing", "found") as progress, pool_errors():
        result = audit_runs(
            seeds, chosen, transport=transport, in_turn=in_turn, plans=plans, processes=processes, progress=progress
        )
    if as_json:
        print_json(result.as_json())
    else:
        print_lines(
            f"{result.runs} runs of {len(seeds)} seeds from {seeds.start} on, "
            f"{len(result.uses)} places that use the real world",
            *(f"{use.file}:{use.line}: {use.sentence}" for use in result.uses),
        )
    if result.uses:
        raise typer.Exit(EXIT_FOUND)

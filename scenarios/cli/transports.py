"""``bk-chaos transports``: whether runs come to the same over objects and over bytes."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from scenarios.cli.names import Names, chosen_runs
from scenarios.cli.options import FirstSeed, Json, MutantName, Processes, Seeds, exit_codes, first_seed_of_today
from scenarios.cli.output import EXIT_FOUND, EXIT_INTERRUPTED, pool_errors, print_json, print_lines, watched
from scenarios.comparing import compare_transports
from scenarios.library import SCENARIOS
from scenarios.plan.named import plan_names

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("transports", help=_TRANSPORTS_HELP)(transports)


_TRANSPORTS_HELP: Final = f"""Make runs over objects and over bytes, and compare what they come to.

Compared are verdicts, the clauses that are broken, and events that are not specified (see bk-chaos conform). Runs without a
verdict because they did not meet what their plan is about are counted, since chance decides other things over bytes.

NAMES are scenarios, plans and files with plans (.scn); all scenarios, plans and swarms unless some are named. With --in-turn each
seed plays one in turn. Without --first-seed the seeds are other ones each day (UTC).

\b
Examples:
  bk-chaos transports swarm swarm-live --seeds 100
  bk-chaos transports --in-turn --seeds 10000 --first-seed 0
  bk-chaos transports dead-writer --seeds 20 --json

\b
{exit_codes(found="a run came to something else over bytes")}
With --json: {{"seeds", "first_seed", "pairs", "missed", "cpu_seconds", "interrupted",
"differences": [{{"scenario", "seed", "objects", "bytes"}}]}}.
"""


def transports(
    names: Names = None,
    *,
    seeds: Seeds = 10,
    first_seed: FirstSeed = None,
    mutant: MutantName = None,
    in_turn: Annotated[bool, typer.Option("--in-turn", help="Play one scenario in turn with each seed.")] = False,
    processes: Processes = None,
    as_json: Json = False,
) -> None:
    """Compare transports."""
    chosen, plans = chosen_runs(names or (*SCENARIOS, *plan_names()), mutant)
    begins_at = first_seed_of_today() if first_seed is None else first_seed
    with watched("comparing", "different") as progress, pool_errors():
        result = compare_transports(
            range(begins_at, begins_at + seeds),
            chosen,
            mutant=mutant,
            in_turn=in_turn,
            plans=plans,
            processes=processes,
            progress=progress,
        )
    if as_json:
        print_json(result.as_json())
    else:
        print_lines(
            f"{result.pairs} runs of {seeds} seeds from {begins_at} on, over objects and over bytes: "
            f"{len(result.differences)} come to something else",
            f"  {result.missed} of them without a verdict, because one of the two missed what its plan is about",
        )
        for one in result.differences:
            print_lines(
                f"{one.scenario}, seed {one.seed}",
                f"  over objects: {one.over_objects}",
                f"  over bytes:   {one.over_bytes}",
            )
    if result.is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if not result.is_fine:
        raise typer.Exit(EXIT_FOUND)

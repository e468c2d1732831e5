"""``bk-verify sweep``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from scenarios.library import SCENARIOS
from scenarios.model import TransportKind
from scenarios.mutants import RUN_MUTANTS
from scenarios.plan.named import plan_names
from spark_analysis.cli.running import Conf, Json, Master, fail, in_spark, print_json
from spark_analysis.defaults import EXIT_UNDECIDED, EXIT_VIOLATED, MAX_WITNESSES_DEFAULT
from spark_analysis.jobs.sweep import OtherSweepError, SweepPlan, SweepVerdict, chosen, sweep, units_done
from spark_analysis.report import failing_list, met_table, sweep_table

__all__ = ["add_to"]

_LOOK_EVERY_S: Final = 1.0


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("sweep", help=_SWEEP_HELP)(sweep_seeds)


_SWEEP_HELP: Final = """Run scenarios with many seeds on the executors, and judge every run where it is made.

DIR keeps what came of it: a small file for every 50 seeds of a scenario, and the histories of runs that break an invariant. The
same command goes on where an earlier one was ended. On a cluster, executors have to see DIR under the same path.

\b
Examples:
  bk-verify sweep swept --seeds 20000
  bk-verify sweep swarms --seeds 100000 --scenario swarm --scenario swarm-live
  bk-verify sweep swept-bytes --seeds 1000 --scenario dead-writer --transport bytes --keep-every 100
  bk-verify sweep /shared/swept --seeds 1000000 --master spark://host:7077 --json

\b
Exit codes: 0 every run keeps the invariants; 1 one breaks an invariant; 2 unusable input (an unknown name, a folder with another
sweep); 3 nothing was found out, because Spark or this program failed; 5 nothing is broken, but a run came to no verdict.
With --json: {"plan", "units_before", "units", "runs", "events", "simulated_seconds", "cpu_seconds", "scenarios", "met",
"failing", "problems", "seconds"}.
"""


def sweep_seeds(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the results.")],
    *,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 1000,
    first_seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    scenario: Annotated[
        list[str] | None, typer.Option(help="A scenario or plan; may be repeated. Default: all scenarios.")
    ] = None,
    mutant: Annotated[str, typer.Option(help="Plant this known defect.")] = "",
    transport: Annotated[
        TransportKind, typer.Option(help="What clients and bookies exchange: objects, or bytes over simulated TCP.")
    ] = TransportKind.OBJECTS,
    keep_every: Annotated[
        int, typer.Option(min=0, help="Keep the history of every n-th seed as well; 0 keeps none.")
    ] = 0,
    master: Master = None,
    conf: Conf = None,
    max_shown: Annotated[
        int, typer.Option(min=0, help="Broken runs to show; counts are always complete.")
    ] = MAX_WITNESSES_DEFAULT,
    as_json: Json = False,
) -> None:
    """Sweep seeds, and print what came of it."""
    try:
        names = chosen(scenario, [*SCENARIOS, *plan_names()]) if scenario else tuple(SCENARIOS)
    except KeyError as error:
        fail(f"no scenario or plan is called {error.args[0]}; there are: {', '.join([*SCENARIOS, *plan_names()])}")
    if mutant and mutant not in RUN_MUTANTS:
        fail(f"no scenario shows a defect called {mutant}; there are: {', '.join(RUN_MUTANTS)}")
    plan = SweepPlan(names, seeds, first_seed, mutant, transport, keep_every)
    try:
        with in_spark(master, conf, 0, "the sweep has not ended", paths=[folder]) as session, _progress(folder, plan):
            verdict = sweep(session, plan, folder, max_shown=max_shown)
    except OtherSweepError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{folder}: cannot be written ({error.strerror})")
    if as_json:
        print_json(verdict.as_json())
    else:
        _print_verdict(verdict)
    if not verdict.is_clean:
        raise typer.Exit(EXIT_VIOLATED)
    if not verdict.is_decided:
        raise typer.Exit(EXIT_UNDECIDED)


def _print_verdict(verdict: SweepVerdict) -> None:
    console = Console()
    console.print(sweep_table(verdict))
    console.print(met_table(verdict))
    if verdict.failing or verdict.problems:
        console.print(failing_list(verdict))
    earlier = f", {verdict.units_before:,} of {verdict.units:,} units made earlier" if verdict.units_before else ""
    console.print(f"{verdict.cpu_seconds:.1f} s of CPU, {verdict.seconds:.1f} s in Spark{earlier}", highlight=False)


@contextmanager
def _progress(folder: Path, plan: SweepPlan) -> Iterator[None]:
    """Tell on a terminal how many units are done."""
    if not sys.stderr.isatty():
        yield
        return
    in_all, ended = len(plan.units()), threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_EVERY_S):
            try:
                done = len(units_done(folder))
            except OSError:
                continue
            typer.echo(f"\r{done:,} of {in_all:,} units ", nl=False, err=True)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        typer.echo("\r", nl=False, err=True)

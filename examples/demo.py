"""The product at work, on real parts: what ``make demo`` shows.

1. A takeover over real ZooKeeper, TCP and processes (:mod:`examples.takeover`).
2. Seventy seeds of every fault scenario in the simulator, every history recorded.
3. Spark's verdict on all of them.
4. A planted defect, caught by the simulator's own checker and by Spark, with its counterexample.

    python -m examples.demo --input some.log
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from examples.takeover import Takeover, progress_on, take_over
from scenarios.history import read_history
from scenarios.library import SCENARIOS
from scenarios.mutants import MUTANTS
from scenarios.runner import run_scenario
from scenarios.sweep import SweepResult, sweep
from scenarios.timeline import render
from spark_analysis.invariants import INVARIANTS, select
from spark_analysis.jobs.verify import Verdict, verify
from spark_analysis.report import verdict_table
from spark_analysis.session import open_session

SEEDS = 70
MUTANT = "recovery-reads-do-not-fence"
MUTANT_SCENARIO = "lost-fence"
MUTANT_INVARIANT = "NoLacTruncation"
MUTANT_SEEDS = 200
#: What the demo has time for; bk-verify checks all.
HEADLINE = INVARIANTS[:6]
REPOSITORY = Path(__file__).resolve().parent.parent


def chosen_input(path: Path | None) -> tuple[str, bytes]:
    """What to write: the file asked for, else the repository's own history as text, else its README."""
    if path is not None:
        return str(path), path.read_bytes()
    command = ["git", "-C", str(REPOSITORY), "log", "--patch", "--no-color"]
    try:
        log = subprocess.run(command, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        log = b""
    if log:
        return "this repository's git history", log
    readme = REPOSITORY / "README.md"
    return readme.name, readme.read_bytes()


def act_takeover(console: Console, source: str, content: bytes) -> Takeover:
    """Real parts."""
    console.rule("[bold]1  A ledger, a crash, a takeover: real ZooKeeper, real TCP, real processes", align="left")
    console.print(f"   to be written line by line: {source}, {len(content):,} bytes")
    return asyncio.run(take_over(content, console))


def act_simulate(console: Console, folder: Path) -> SweepResult:
    """Simulated faults."""
    console.rule(f"[bold]2  {SEEDS} seeds of {len(SCENARIOS)} fault scenarios, in virtual time", align="left")
    for scenario in SCENARIOS.values():
        console.print(f"   {scenario.name:<14} {scenario.summary}")
    with progress_on(console) as progress:
        task = progress.add_task("   runs", total=SEEDS * len(SCENARIOS))
        result = sweep(
            range(SEEDS),
            tuple(SCENARIOS),
            record=folder,
            progress=lambda so_far, _total: progress.update(task, completed=so_far.runs),
        )
    console.print(
        f"   {result.runs} runs, {result.events:,} events, {result.simulated_seconds:,.0f} simulated seconds "
        f"in {result.wall_seconds:.1f} s; violations {len(result.failing)}, undecided {len(result.undecided)}"
    )
    return result


def act_verify(console: Console, folder: Path) -> Verdict:
    """Spark's verdict."""
    console.rule("[bold]3  Spark verifies every recorded history", align="left")
    with console.status("   starting Spark and reading the histories ..."):
        verdict = verify(open_session(), folder, invariants=HEADLINE)
    console.print(verdict_table(verdict))
    console.print(
        f"   {verdict.seconds:.1f} s in Spark; bk-verify checks {len(INVARIANTS)} invariants, these are the first"
    )
    return verdict


def act_mutant(console: Console, folder: Path) -> bool:
    """A planted defect, seen by both witnesses."""
    mutant = MUTANTS[MUTANT]
    console.rule("[bold]4  Would it have noticed? A planted defect", align="left")
    console.print(f"   {mutant.name}: {mutant.summary}")
    for seed in range(MUTANT_SEEDS):
        result = run_scenario(MUTANT_SCENARIO, seed, mutant=MUTANT)
        found = [violation for violation in result.violations if violation.invariant == MUTANT_INVARIANT]
        if found:
            break
    else:
        console.print(f"   [red]not caught within {MUTANT_SEEDS} seeds[/red]")
        return False
    console.print(f"   caught after {seed + 1} seeds of {MUTANT_SCENARIO}:")
    console.print()
    recorded = run_scenario(MUTANT_SCENARIO, seed, mutant=MUTANT, record=folder)
    header, events = read_history(recorded.path)
    console.print(render(header, events, focus=found[0], color=False), highlight=False, markup=False)
    verdict = verify(open_session(), folder, invariants=select([MUTANT_INVARIANT]))
    witnesses = [violation for violation in verdict.violations if violation.invariant == MUTANT_INVARIANT]
    for violation in witnesses:
        console.print(f"   Spark, from the same history: [red]{violation.invariant}[/red] {violation.witness}")
    return bool(witnesses)


def summary(takeover: Takeover, swept: SweepResult, verdict: Verdict, *, is_caught: bool, seconds: float) -> Table:
    """What was shown, in one table."""
    table = Table("what", "outcome", title="Summary", title_justify="left")
    table.add_row(
        "ledger written, bookie killed, ledger taken over",
        f"{takeover.entries:,} entries in {takeover.fragments} fragments, "
        f"{'identical to the input' if takeover.is_identical else 'NOT identical to the input'}",
    )
    table.add_row("first writer after the takeover", takeover.refusal.partition(":")[0])
    table.add_row("simulated runs", f"{swept.runs}, {len(swept.failing)} violations, {len(swept.undecided)} undecided")
    table.add_row("Spark", f"{verdict.histories} histories, {len(verdict.violations)} violations")
    table.add_row("planted defect", "caught by both witnesses" if is_caught else "NOT caught")
    table.add_row("time", f"{seconds:.0f} s")
    return table


def main(
    input_file: Annotated[
        Path | None,
        typer.Option("--input", help="the file to write line by line", exists=True, dir_okay=False, readable=True),
    ] = None,
) -> None:
    """Show the product at work. Exit status 0 if everything came out as it should, else 1."""
    console = Console()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="bk-demo-") as folder:
        takeover = act_takeover(console, *chosen_input(input_file))
        swept = act_simulate(console, Path(folder) / "histories")
        verdict = act_verify(console, Path(folder) / "histories")
        is_caught = act_mutant(console, Path(folder) / "mutant")
    console.print(summary(takeover, swept, verdict, is_caught=is_caught, seconds=time.perf_counter() - started))
    is_fine = takeover.is_identical and takeover.refusal.startswith("LedgerFenced") and swept.is_fine
    if not (is_fine and verdict.is_clean and is_caught):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)

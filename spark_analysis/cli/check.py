"""``bk-verify check`` and ``compare``: the online checker on executors, alone and beside Spark's formulas."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.console import Console

from spark_analysis.cli.running import Conf, Input, Json, Master, conclude, in_spark, print_json, size_of
from spark_analysis.defaults import EXIT_DISAGREE, EXIT_UNUSABLE, EXIT_VIOLATED, MAX_WITNESSES_DEFAULT
from spark_analysis.jobs.check import check
from spark_analysis.jobs.compare import compare
from spark_analysis.report import broken_list, check_table, copies_shown, disagreement_list

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("check", help=_CHECK_HELP)(check_histories)
    app.command("compare", help=_COMPARE_HELP)(compare_witnesses)


_CHECK_HELP: Final = """Judge every history with the checker that also watches runs, on the executors.

It takes less time than the formulas of "verify", but shares the code with what judged the run when it was recorded.

\b
Examples:
  bk-verify check histories
  bk-verify check histories --master spark://host:7077 --json

\b
Exit codes: 0 every invariant holds; 1 one is violated; 2 unusable input (no folder, no history, a damaged or foreign file; the
others are judged nevertheless); 3 nothing was judged, because Spark or this program failed.
With --json: {"histories", "events", "invariants", "violations", "rejected", "rejected_files", "seconds",
"copies", "copied_files"}.
"""


def check_histories(
    folder: Input,
    *,
    master: Master = None,
    conf: Conf = None,
    max_witnesses: Annotated[
        int, typer.Option(min=0, help="Broken clauses to show per invariant; counts are always complete.")
    ] = MAX_WITNESSES_DEFAULT,
    as_json: Json = False,
) -> None:
    """Check the histories in ``folder``, and print the verdict."""
    with in_spark(master, conf, size_of(folder), "nothing was judged", "checking", [folder]) as session:
        verdict = check(session, folder, max_witnesses=max_witnesses)
    shown = [broken_list(verdict)] if verdict.violations else []
    copied = copies_shown(verdict.copies, verdict.copied_files)
    conclude(verdict, check_table(verdict), *shown, *copied, is_fine=verdict.is_clean, as_json=as_json)


_COMPARE_HELP: Final = """Judge every history by both witnesses, and show where they disagree.

The online checker and Spark's formulas were written apart. What one accuses a ledger of, the other has to, or one of them is
wrong.

\b
Examples:
  bk-verify compare histories
  bk-verify compare histories --json

\b
Exit codes: 0 both accuse nothing; 1 both accuse the same; 2 unusable input (the other files are judged nevertheless); 3 nothing
was judged, because Spark or this program failed; 4 they disagree.
With --json: {"histories", "rejected_files", "accusations", "agreed", "disagreed", "disagreements", "seconds"}.
"""


def compare_witnesses(
    folder: Input,
    *,
    master: Master = None,
    conf: Conf = None,
    max_shown: Annotated[
        int, typer.Option(min=0, help="Disagreements to show; counts are always complete.")
    ] = MAX_WITNESSES_DEFAULT,
    as_json: Json = False,
) -> None:
    """Compare the witnesses on the histories in ``folder``, and print what came of it."""
    with in_spark(master, conf, size_of(folder), "nothing was judged", "comparing", [folder]) as session:
        found = compare(session, folder, max_shown=max_shown)
    if as_json:
        print_json(found.as_json())
    else:
        console = Console()
        console.print(
            f"{found.histories:,} histories judged by both witnesses; of {found.accusations:,} ledgers accused of breaking an "
            f"invariant they agree on {found.agreed:,}",
            highlight=False,
        )
        if found.disagreements:
            console.print(disagreement_list(found))
        console.print(f"{found.seconds:.1f} s in Spark")
    if found.disagreed:
        raise typer.Exit(EXIT_DISAGREE)
    if not found.is_clean:
        raise typer.Exit(EXIT_VIOLATED)
    if found.rejected_files:
        typer.echo(f"bk-verify: {found.rejected_files} files are not usable; verify names them", err=True)
        raise typer.Exit(EXIT_UNUSABLE)

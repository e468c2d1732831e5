"""``bk-verify verify`` and ``list``."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from scenarios.cli.completion import complete_invariant
from spark_analysis.cli.running import (
    Conf,
    Input,
    Json,
    Master,
    conclude,
    fail,
    in_spark,
    parts_shown,
    print_json,
    size_of,
)
from spark_analysis.defaults import MAX_WITNESSES_DEFAULT
from spark_analysis.invariants import INVARIANTS, select
from spark_analysis.jobs.verify import verify
from spark_analysis.report import copies_shown, verdict_table, witness_list

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("verify", help=_VERIFY_HELP)(verify_histories)
    app.command("list", help=_LIST_HELP)(list_invariants)


_VERIFY_HELP: Final = """Check every ledger of every recorded history against the protocol's guarantees.

\b
Examples:
  bk-chaos sweep --seeds 100 --record histories && bk-verify verify histories
  bk-verify verify histories --invariant NoLacTruncation --json
  bk-verify verify histories --master spark://host:7077

\b
Exit codes: 0 every invariant holds; 1 one is violated; 2 unusable input (no folder, no history, a damaged or foreign file; the
others are judged nevertheless); 3 nothing was judged, because Spark or this program failed.
With --json: {"histories", "ledgers", "events", "rejected", "rejected_files", "invariants", "violations", "seconds",
"copies", "copied_files"}.
"""


def verify_histories(
    folder: Input,
    *,
    master: Master = None,
    conf: Conf = None,
    invariant: Annotated[
        list[str] | None,
        typer.Option(
            help="Check only this invariant; may be given again. Default: all.", autocompletion=complete_invariant
        ),
    ] = None,
    max_witnesses: Annotated[
        int, typer.Option(min=0, help="Broken clauses to show per invariant; counts are always complete.")
    ] = MAX_WITNESSES_DEFAULT,
    as_json: Json = False,
) -> None:
    """Judge the histories in ``folder``, and print the verdict."""
    try:
        chosen = select(invariant or ())
    except ValueError as error:
        fail(str(error))
    size = size_of(folder)
    with (
        parts_shown("verifying") as tell,
        in_spark(master, conf, size, "nothing was judged", paths=[folder]) as session,
    ):
        verdict = verify(session, folder, invariants=chosen, max_witnesses=max_witnesses, progress=tell)
    shown = [witness_list(verdict)] if verdict.violations else []
    copied = copies_shown(verdict.copies, verdict.copied_files)
    conclude(verdict, verdict_table(verdict), *shown, *copied, is_fine=verdict.is_clean, as_json=as_json)


_LIST_HELP: Final = """List the invariants with the clauses that they judge and their statements.

\b
Examples:
  bk-verify list
  bk-verify list --json

\b
Exit codes: 0 listed; 2 wrong usage.
With --json: {"invariants": [{"name", "statement", "clauses"}]}.
"""


def list_invariants(*, as_json: Json = False) -> None:
    """Print the invariants with their statements."""
    if as_json:
        shown = [
            {"name": invariant.name, "statement": invariant.statement, "clauses": list(invariant.clauses)}
            for invariant in INVARIANTS
        ]
        print_json({"invariants": shown})
        return
    for invariant in INVARIANTS:
        typer.echo(f"{invariant.name:<22} {', '.join(invariant.clauses):<36} {invariant.statement}")

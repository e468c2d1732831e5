"""``bk-verify lac``."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from spark_analysis.cli.running import Conf, Input, Json, Master, conclude, in_spark, size_of
from spark_analysis.defaults import MAX_WITNESSES_DEFAULT
from spark_analysis.jobs.lac import analyze_lacs
from spark_analysis.report import lac_table, lag_table, truncated_list

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("lac", help=_LAC_HELP)(follow_lacs)


_LAC_HELP: Final = """Follow the last add confirmed of every ledger, and prove that none was truncated.

A ledger was truncated if it is closed below an entry that was acknowledged as durable. "margin" is how many entries its end is
above the highest of those, at least. Lags tell how far others are behind a writer: entries sent beyond its LAC, and the simulated
time until the first bookie and the first reader know a LAC that covers an acknowledged entry.

\b
Examples:
  bk-verify lac histories
  bk-verify lac histories --json --max-ledgers 100000

\b
Exit codes: 0 no ledger was truncated; 1 one was; 2 unusable input (no folder, no history, a damaged or foreign file; the others
are looked at nevertheless); 3 nothing was found out, because Spark or this program failed.
With --json: {"histories", "scenarios", "ledgers", "rejected", "rejected_files", "seconds"}.
"""


def follow_lacs(
    folder: Input,
    *,
    master: Master = None,
    conf: Conf = None,
    max_ledgers: Annotated[
        int, typer.Option(min=0, help="Ledgers to show, those with the least margin first; counts are always complete.")
    ] = MAX_WITNESSES_DEFAULT,
    as_json: Json = False,
) -> None:
    """Analyze the histories in ``folder``, and print what came of it."""
    with in_spark(master, conf, size_of(folder), "nothing was found out", "following LACs", [folder]) as session:
        verdict = analyze_lacs(session, folder, max_ledgers=max_ledgers)
    truncated = [] if verdict.is_clean else [truncated_list(verdict)]
    conclude(verdict, lac_table(verdict), lag_table(verdict), *truncated, is_fine=verdict.is_clean, as_json=as_json)

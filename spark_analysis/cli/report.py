"""``bk-verify report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from spark_analysis.cli.running import Conf, Input, Json, Master, conclude, fail, in_spark, size_of
from spark_analysis.defaults import MAX_WITNESSES_DEFAULT
from spark_analysis.jobs.report import report
from spark_analysis.report import copies_shown, verdict_table
from spark_analysis.report_page.page import report_html

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("report", help=_REPORT_HELP)(write_report)


_REPORT_HELP: Final = """Write what "verify", "lac" and "analyse" find as one HTML page, which needs nothing else and no network.

The page has the verdict on every invariant, the events that show each violation, lags, how the LAC of some ledgers became known,
and what follows which faults.

\b
Examples:
  bk-verify report histories --to report.html
  bk-verify report dataset --to report.html --json > report.json

\b
Exit codes: 0 every invariant holds; 1 one is violated; 2 unusable input (no folder, no history, a damaged or foreign file; the
others are judged nevertheless), or the page cannot be written; 3 nothing was judged, because Spark or this program failed.
With --json: {"folder", "verdict", "lac", "courses", "faults"}.
"""


def write_report(
    folder: Input,
    *,
    to: Annotated[Path, typer.Option(metavar="FILE", help="The page to write; a file that is there is replaced.")],
    master: Master = None,
    conf: Conf = None,
    max_witnesses: Annotated[
        int, typer.Option(min=0, help="Broken clauses to show per invariant; counts are always complete.")
    ] = MAX_WITNESSES_DEFAULT,
    as_json: Json = False,
) -> None:
    """Judge the histories in ``folder``, and write the page."""
    size = size_of(folder)
    if not to.parent.is_dir():
        fail(f"{to}: there is no folder {to.parent}")
    with in_spark(master, conf, size, "there is no report", "reporting", [folder]) as session:
        found = report(session, folder, max_witnesses=max_witnesses)
    try:
        to.write_text(report_html(found), encoding="utf-8")
    except OSError as error:
        fail(f"{to}: cannot be written ({error.strerror})")
    if not as_json:
        typer.echo(f"{to}: written")
    copied = copies_shown(found.verdict.copies, found.verdict.copied_files)
    conclude(found, verdict_table(found.verdict), *copied, is_fine=found.is_clean, as_json=as_json)

"""``bk-verify analyse``."""

from __future__ import annotations

from typing import Final

import typer

from spark_analysis.cli.running import Conf, Input, Json, Master, conclude, in_spark, size_of
from spark_analysis.jobs.analyse import analyse
from spark_analysis.report_faults import appends_table, effects_table, never_met_text

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("analyse", help=_ANALYSE_HELP)(analyse_histories)


_ANALYSE_HELP: Final = """Tell what follows which faults, how appends fare under them, and which situations no run met.

An effect that followed a fault need not come from it; its lift says how much more often it followed the fault than it occurs at
all.

\b
Examples:
  bk-chaos sweep --seeds 100 --record histories && bk-verify analyse histories
  bk-verify analyse dataset --json

\b
Exit codes: 0 analysed, whatever was found; 2 unusable input (no folder, no history, a damaged or foreign file; the others are
analysed nevertheless); 3 nothing was found out, because Spark or this program failed.
With --json: {"histories", "events", "base", "long_us", "effects", "appends", "met", "never_met", "rejected", "rejected_files",
"seconds"}.
"""


def analyse_histories(folder: Input, *, master: Master = None, conf: Conf = None, as_json: Json = False) -> None:
    """Analyse the histories in ``folder``, and print what was found."""
    with in_spark(master, conf, size_of(folder), "nothing was found out", "analysing", [folder]) as session:
        found = analyse(session, folder)
    conclude(found, effects_table(found), appends_table(found), never_met_text(found), is_fine=True, as_json=as_json)

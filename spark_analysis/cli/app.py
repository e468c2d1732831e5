"""``bk-verify``: Spark's work on recorded histories, from the command line.

Exit codes of every command: 0 no problem; 1 a problem was found (a broken invariant, a run that differs from what was recorded);
2 unusable input; 3 nothing was found out, because Spark or this program failed; 4 the two witnesses disagree;
5 runs came to no verdict.
"""

from __future__ import annotations

import sys
import traceback
from typing import Final

import typer

from bkclient.cli.late import Late, late_group
from spark_analysis.defaults import EXIT_FAILED

__all__ = ["app", "run"]

_COMMANDS: Final = {
    "ingest": Late(
        "spark_analysis.cli.ingest", "Take histories into a data set, decoded once, for all checks to come."
    ),
    "verify": Late("spark_analysis.cli.verify", "Check every ledger of every history against the guarantees."),
    "check": Late("spark_analysis.cli.check", "Judge every history with the checker that also watches runs."),
    "compare": Late("spark_analysis.cli.check", "Judge by both witnesses, and show where they disagree."),
    "replay": Late("spark_analysis.cli.replay", "Make every recorded run again, and compare event by event."),
    "sweep": Late("spark_analysis.cli.sweep", "Run scenarios with many seeds on executors, and judge every run there."),
    "stream": Late("spark_analysis.cli.stream", "Judge histories while runs still write them."),
    "report": Late("spark_analysis.cli.report", "Write what verify, lac and analyse find as one HTML page."),
    "lac": Late("spark_analysis.cli.lac", "Follow the LAC of every ledger, and prove that none was truncated."),
    "analyse": Late("spark_analysis.cli.analyse", "Tell what follows which faults, and how appends fare under them."),
    "list": Late("spark_analysis.cli.verify", "List the invariants with their statements."),
}

app = typer.Typer(
    name="bk-verify",
    cls=late_group(_COMMANDS),
    help="Spark's verdict on recorded histories of BookKeeper clients.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def root() -> None:
    """Make a group of commands."""


def run() -> None:
    """Run ``bk-verify``."""
    try:
        app()
    except ModuleNotFoundError:
        raise  # a package that was not asked for at installation is told by the caller
    except Exception:  # noqa: BLE001  Python would exit with 1, which says that a problem was found
        traceback.print_exc()
        sys.exit(EXIT_FAILED)

"""The ``bk`` application: its root options, and the groups of commands. A new group is a module with ``add_to``, named here."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Annotated

import typer

from bkclient.cli import autorecovery, bookies, ledger, repair
from bkclient.cli.help import ROOT_HELP
from bkclient.cli.text import SafeFormatter

__all__ = ["app", "run"]

app = typer.Typer(
    name="bk",
    help=ROOT_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

for group in (ledger, bookies, repair, autorecovery):
    group.add_to(app)


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@app.callback()
def root(
    *,
    log_level: Annotated[LogLevel, typer.Option(help="What to log on standard error.")] = LogLevel.ERROR,
) -> None:
    """Set up logging. Errors of commands are told in any case; what libraries log about them would say it twice."""
    level = logging.getLevelNamesMapping()[log_level.value.upper()]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    # Which keys of a configuration file mean nothing to this client is for whoever wrote it.
    logging.getLogger("bkclient.config").setLevel(min(level, logging.WARNING))


def run() -> None:
    """Run the command of this process's command line."""
    app(prog_name="bk")

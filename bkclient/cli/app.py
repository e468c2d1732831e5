"""The ``bk`` application: its root options, and the groups of commands. A new group is a module with ``add_to``, named here."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Annotated, Final

import typer

from bkclient.cli import autorecovery, bookies, ledger, repair
from bkclient.cli.text import SafeFormatter

__all__ = ["app", "run"]

_ROOT_HELP: Final = """Write, read and maintain the ledgers of a BookKeeper cluster.

The cluster is given by --metadata, by BK_METADATA_URI, or by metadataServiceUri in a --config file. bk --version prints the
version.

\b
Examples:
  export BK_METADATA_URI=zk://localhost:2181/ledgers
  seq 1000 | bk ledger append --create
  bk ledger read 0

\b
Exit codes of every command: 0 done; 1 the answer is no; 2 wrong usage or input; 3 the metadata store or bookies are not
available, a retry may help; 4 the ledger does not allow it; 130 Ctrl-C; 141 the output was closed; 143 SIGTERM.
"""

app = typer.Typer(
    name="bk",
    help=_ROOT_HELP,
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
    # Which keys of a configuration file mean nothing to this client is a matter of its author.
    logging.getLogger("bkclient.config").setLevel(min(level, logging.WARNING))


def run() -> None:
    """Run the command of this process's command line."""
    app(prog_name="bk")

"""The ``bk`` application: its root options, and a line about each command. The modules of commands are loaded when these run."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Annotated, Final

import typer

from bkclient.cli.late import Late, late_group
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

_COMMANDS: Final = {"bookies": Late("bkclient.cli.bookies", "List the bookies.")}

_GROUPS: Final = {
    "ledger": (
        "Create, write, read, follow, list, recover and delete ledgers.",
        {
            "create": Late("bkclient.cli.ledger", "Create an empty ledger."),
            "append": Late("bkclient.cli.ledger_data", "Create a ledger from standard input."),
            "read": Late("bkclient.cli.ledger_data", "Print entries of a ledger."),
            "tail": Late("bkclient.cli.ledger_data", "Print entries as they are confirmed."),
            "info": Late("bkclient.cli.ledger", "Show a ledger's metadata."),
            "list": Late("bkclient.cli.ledger", "List ledgers."),
            "check": Late("bkclient.cli.repair", "Check the copies of ledgers."),
            "recover": Late("bkclient.cli.ledger", "Take a ledger over and close it."),
            "delete": Late("bkclient.cli.ledger", "Delete ledgers."),
        },
    ),
    "log": (
        "Publish to, read and look after unbounded logs.",
        {
            "create": Late("bkclient.cli.log", "Create a log."),
            "publish": Late("bkclient.cli.log", "Publish standard input."),
            "read": Late("bkclient.cli.log", "Print messages of a log."),
            "tail": Late("bkclient.cli.log", "Print messages as they are published."),
            "info": Late("bkclient.cli.log_admin", "Show a log's manifest."),
            "trim": Late("bkclient.cli.log_admin", "Delete what need not be kept."),
            "cursors": Late("bkclient.cli.log_admin", "List, reset or remove cursors."),
            "set": Late("bkclient.cli.log_change", "Change settings of a log."),
            "list": Late("bkclient.cli.log_admin", "List logs."),
            "compact": Late("bkclient.cli.log_admin", "Keep the newest message of each key."),
            "check": Late("bkclient.cli.log_admin", "Check the ledgers of a log."),
            "drop-ledger": Late("bkclient.cli.log_change", "Give up a ledger that is lost."),
            "delete": Late("bkclient.cli.log_admin", "Delete logs."),
        },
    ),
    "repair": (
        "Restore missing copies of ledgers, once.",
        {
            "ledger": Late("bkclient.cli.repair", "Repair ledgers."),
            "bookie": Late("bkclient.cli.repair", "Copy what bookies store to others."),
            "decommission": Late("bkclient.cli.repair", "Wait until a bookie is not needed."),
        },
    ),
    "autorecovery": (
        "Find and repair under-replicated ledgers, continuously.",
        {
            "run": Late("bkclient.cli.autorecovery", "Run an auditor and a worker."),
            "status": Late("bkclient.cli.autorecovery", "Show under-replicated ledgers."),
            "enable": Late("bkclient.cli.autorecovery", "Enable auto-recovery."),
            "disable": Late("bkclient.cli.autorecovery", "Disable auto-recovery."),
            "audit": Late("bkclient.cli.autorecovery", "Trigger an audit."),
        },
    ),
}

app = typer.Typer(
    name="bk",
    cls=late_group(_COMMANDS),
    help=_ROOT_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

for _name, (_help, _commands) in _GROUPS.items():
    app.add_typer(
        typer.Typer(cls=late_group(_commands), help=_help, no_args_is_help=True, rich_markup_mode=None), name=_name
    )


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

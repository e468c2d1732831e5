"""``bk-sim``: bookies and a metadata service for development, on one machine.

Exit codes of every command: 0 after an orderly stop (Ctrl-C or SIGTERM), 1 if it could not start or lost something it cannot do
without, 2 for wrong usage. Standard output holds what was asked for, one JSON object with ``--json``; logs and errors go to
standard error.
"""

from __future__ import annotations

from typing import Final

import typer

from bkclient.cli.late import Late, late_group

__all__ = ["app", "run"]

_COMMANDS: Final = {
    "bookie": Late("simbookie.cli.bookie", "Run one bookie."),
    "zookeeper": Late("simbookie.cli.cluster", "Run one ZooKeeper server."),
    "cluster": Late("simbookie.cli.cluster", "Run a ZooKeeper and several bookies."),
    "export": Late("simbookie.cli.transfer", "Write the disk of a killed bookie into a folder."),
    "import": Late("simbookie.cli.transfer", "Tell what a bookie would serve from a folder."),
    "picture": Late("simbookie.cli.picture", "Draw a bookie under load."),
    "crashes": Late("simbookie.cli.crashes", "Kill a bookie at random steps, and check what it promised."),
}
_INSPECT: Final = {
    "journal": Late("simbookie.cli.inspect_journal", "List the records in a journal."),
    "log": Late("simbookie.cli.inspect_log", "List the entries in an entry log."),
    "index": Late("simbookie.cli.inspect_index", "List the locations in an index file."),
    "mark": Late("simbookie.cli.inspect_small", "Show how far a journal is behind what the store has."),
    "cookie": Late("simbookie.cli.inspect_small", "Show whose data a folder has."),
}

app = typer.Typer(
    name="bk-sim",
    cls=late_group(_COMMANDS),
    help="Simulated BookKeeper bookies and a ZooKeeper to register them in, for development on one machine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(
    typer.Typer(cls=late_group(_INSPECT), no_args_is_help=True, rich_markup_mode=None),
    name="inspect",
    help="Look into the files that a bookie keeps, ours or one of Apache BookKeeper.",
)


@app.callback()
def root() -> None:
    """Has commands, and nothing of its own."""


def run() -> None:
    """Run the command that the arguments name."""
    app()

"""``bk``: the command line of the client.

One file for each group of commands (:mod:`~bkclient.cli.ledger`, :mod:`~bkclient.cli.ledger_data`, :mod:`~bkclient.cli.bookies`);
what they share is beside them: options, how a command runs and ends, streams, records. ``docs/using/commands.md`` describes every
command for who uses it.

The library does not need this package, nor what it is made of: typer and rich come with the extra ``bkclient[cli]``.
"""

from __future__ import annotations

from bkclient.program import run_program

__all__ = ["main"]


def main() -> None:
    """The console script."""
    run_program("bk", "bkclient.cli.app", "cli")

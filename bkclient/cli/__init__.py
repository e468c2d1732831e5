"""``bk``: the command line of the client.

One file for each group of commands (:mod:`~bkclient.cli.ledger`, :mod:`~bkclient.cli.ledger_data`, :mod:`~bkclient.cli.bookies`);
what they share is beside them: options, how a command runs and ends, streams, records. ``docs/commands.md`` describes every
command for who uses it.

The library does not need this package, nor what it is made of: typer and rich come with the extra ``bkclient[cli]``.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

_EXIT_UNAVAILABLE = 3


def main() -> None:
    """The console script; says what to install where the extra is missing."""
    try:
        from bkclient.cli.app import run  # noqa: PLC0415  what it needs may not be there
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"click", "rich", "shellingham", "typer"}:
            raise
        sys.stderr.write(f"bk: the command line needs {error.name}: install bkclient[cli]\n")
        sys.exit(_EXIT_UNAVAILABLE)
    run()

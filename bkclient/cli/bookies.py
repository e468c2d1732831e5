"""``bk bookies``."""

from __future__ import annotations

from typing import Final

import typer

from bkclient import BookKeeper
from bkclient.cli.access import connection_for
from bkclient.cli.help import exit_codes
from bkclient.cli.options import ConfigFile, Json, Metadata, Settings
from bkclient.cli.output import print_json, print_lines, print_table
from bkclient.cli.running import run_with_client

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("bookies", help=_BOOKIES_HELP)(bookies)


_BOOKIES_HELP: Final = f"""List the registered bookies.

\b
Examples:
  bk bookies
  bk bookies --json

\b
{exit_codes(ok="listed, even if there are none")}
With --json: {{"writable": [ids], "readOnly": [ids]}}.
"""


def bookies(
    *, metadata: Metadata = None, config: ConfigFile = None, settings: Settings = None, as_json: Json = False
) -> None:
    """List the bookies."""

    async def work(client: BookKeeper) -> None:
        found = await client.bookies()
        if as_json:
            print_json({"writable": list(found.writable), "readOnly": list(found.read_only)})
        elif not found.writable and not found.read_only:
            print_lines("no bookie is registered")
        else:
            rows = [(bookie_id, "writable") for bookie_id in found.writable]
            print_table(("bookie", "state"), [*rows, *((bookie_id, "read-only") for bookie_id in found.read_only)])

    run_with_client(connection_for(metadata, config, settings), work, as_json=as_json)

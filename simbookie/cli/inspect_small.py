"""``bk-sim inspect cookie`` and ``bk-sim inspect mark``: small files that say whose folders are whose, and how far they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bkclient.errors import MetadataSerializationError
from bkclient.metadata.records import decode_cookie
from simbookie.cli.options import Json
from simbookie.inspection import inspected
from simbookie.storage.base import StorageError
from simbookie.storage.journal.mark import LogMark
from simbookie.storage.journal.records import file_name

__all__ = ["add_to"]

#: More than any cookie has.
_COOKIE_BYTES_MAX: Final = 1 << 20

_COOKIE_HELP: Final = """Show the cookie of a folder: the bookie, the folders and the cluster that belong together.

\b
Examples:
  bk-sim inspect cookie data/ledgers/current/VERSION
  bk-sim inspect cookie data/journal/current/VERSION --json

\b
Exit codes: 0 read; 1 the file is damaged or cannot be read; 2 wrong usage.
With --json: {"file", "bookie", "journals", "ledgers", "indexes", "instance"}.
"""

_MARK_HELP: Final = """Show the mark of a journal: what stands before it there is in the ledger store, durably.

\b
Examples:
  bk-sim inspect mark data/ledgers/current/lastMark
  bk-sim inspect mark data/ledgers/current/lastMark --json

\b
Exit codes: 0 read; 1 the file is damaged or cannot be read; 2 wrong usage.
With --json: {"file", "journal", "offset"}.
"""


def add_to(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("cookie", help=_COOKIE_HELP)(cookie)
    app.command("mark", help=_MARK_HELP)(mark)


def cookie(
    file: Annotated[Path, typer.Argument(help="The file VERSION of a folder.", show_default=False)],
    *,
    json_output: Json = False,
) -> None:
    """See the help."""
    with inspected(file, as_json=json_output) as opened:
        try:
            found = decode_cookie("?", opened.read_now(0, _COOKIE_BYTES_MAX))
        except MetadataSerializationError as error:
            raise StorageError(str(error)) from None
        _print(
            {
                "file": str(file),
                "bookie": found.bookie_host,
                "journals": list(found.journal_dirs),
                "ledgers": list(found.ledger_dirs),
                "indexes": list(found.index_dirs) if found.index_dirs is not None else None,
                "instance": found.instance_id,
            },
            as_json=json_output,
        )


def mark(
    file: Annotated[Path, typer.Argument(help="The file lastMark of a folder of ledgers.", show_default=False)],
    *,
    json_output: Json = False,
) -> None:
    """See the help."""
    with inspected(file, as_json=json_output) as opened:
        found = LogMark.decode(opened.read_now(0, opened.size))
        if found is None:
            raise StorageError("this is no mark: one has 16 bytes")
        facts = {"file": str(file), "journal": file_name(found.file_id), "offset": found.offset}
        _print(facts, as_json=json_output)


def _print(facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        typer.echo(f"{name}: {', '.join(value) if isinstance(value, list) else '-' if value is None else value}")

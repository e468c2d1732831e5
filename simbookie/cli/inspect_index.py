"""``bk-sim inspect index``: what is in the index file of a ledger, or in a database of a store that has one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from simbookie.cli.inspect_database import list_database
from simbookie.cli.options import Json
from simbookie.inspection import InspectedFile, inspected
from simbookie.storage.entry_logs.format import log_id_of, position_of
from simbookie.storage.indexes.index_file import (
    HEADER_SIZE,
    PAGE_SIZE,
    PAGE_SLOTS,
    SLOT_BYTES,
    IndexHeader,
    ledger_of,
    page_position,
)

__all__ = ["add_to"]

_HELP: Final = """List what the index file of a ledger knows of it, and where its entries are.

Stores with a database (bk-sim bookie --storage db, DbLedgerStorage) have two folders instead, ledgers and locations, of all
ledgers.

\b
Examples:
  bk-sim inspect index data/ledgers/current/0/7/7.idx
  bk-sim inspect index 7.idx --json
  bk-sim inspect index data/ledgers/current/ledgers
  bk-sim inspect index data/ledgers/current/locations --ledger 7

\b
Exit codes: 0 read; 1 the file is damaged or cannot be read; 2 wrong usage.
With --json: {"file", "ledger", "version", "master_key", "fenced", "in_limbo", "explicit_lac", "bytes", "entries": [{"entry",
"log", "position"}]}; of a folder what it holds for each ledger.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("index", help=_HELP)(index)


def index(
    file: Annotated[
        Path,
        typer.Argument(
            help="The index file, named LEDGER.idx, or the folder locations or ledgers.", show_default=False
        ),
    ],
    *,
    ledger: Annotated[
        int | None, typer.Option(min=0, help="In a folder: this ledger alone.  [default: all]", show_default=False)
    ] = None,
    json_output: Json = False,
) -> None:
    """See the help."""
    if file.is_dir():
        list_database(file, ledger, as_json=json_output)
        return
    with inspected(file, as_json=json_output) as opened:
        header = IndexHeader.decode(opened.read_now(0, HEADER_SIZE))
        facts = {
            "file": str(file),
            "ledger": ledger_of(file.name),
            "version": header.version,
            "master_key": (header.master_key or b"").hex(),
            "fenced": header.fenced,
            "in_limbo": header.in_limbo,
            "explicit_lac": header.explicit_lac.hex() if header.explicit_lac is not None else None,
            "bytes": max(0, opened.size - HEADER_SIZE),
        }
        locations = (
            {"entry": entry_id, "log": log_id_of(location), "position": position_of(location)}
            for entry_id, location in _locations(opened)
        )
        if json_output:
            typer.echo(json.dumps({**facts, "entries": list(locations)}))
            return
        for name, value in facts.items():
            typer.echo(f"{name.replace('_', ' ')}: {value}")
        for location in locations:
            typer.echo("entry {entry}: log {log}, position {position}".format(**location))


def _locations(file: InspectedFile) -> Iterator[tuple[int, int]]:
    for first in range(0, max(0, file.size - HEADER_SIZE) // SLOT_BYTES, PAGE_SLOTS):
        page = file.read_now(page_position(first), PAGE_SIZE)
        for slot in range(len(page) // SLOT_BYTES):
            location = int.from_bytes(page[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES])
            if location:
                yield first + slot, location

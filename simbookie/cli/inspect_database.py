"""What is in the databases of a store that has them: where each entry is, and what is known of each ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from simbookie.cli.options import EXIT_FAILURE, errors_end_the_program
from simbookie.storage.base import StorageError
from simbookie.storage.db.ledger_index import LedgerRecord, ledger_key, parse_ledger_id
from simbookie.storage.db.locations import keys_of, parse_location
from simbookie.storage.db.rocks import RocksDatabase
from simbookie.storage.entry_logs.format import log_id_of, position_of

__all__ = ["list_database"]


def list_database(path: Path, ledger_id: int | None, *, as_json: bool) -> None:
    """Print the rows of the database in ``path``, of one ledger or of all; nothing is changed."""
    with errors_end_the_program(as_json=as_json):
        if path.name not in ("ledgers", "locations"):
            raise typer.BadParameter(f"{path} is a folder, and named neither ledgers nor locations", param_hint="FILE")
        try:
            _list(path, ledger_id, as_json=as_json)
        except StorageError as error:
            typer.echo(f"bk-sim: {error}", err=True)
            raise typer.Exit(EXIT_FAILURE) from None


def _list(path: Path, ledger_id: int | None, *, as_json: bool) -> None:
    has_locations = path.name == "locations"
    database = RocksDatabase(path, is_read_only=True)
    try:
        rows = (_locations if has_locations else _ledgers)(database, ledger_id)
        if as_json:
            typer.echo(json.dumps({"file": str(path), "entries" if has_locations else "ledgers": list(rows)}))
            return
        for row in rows:
            typer.echo(_LOCATION.format(**row) if has_locations else _ledger_line(row))
    finally:
        database.close()


_LOCATION = "ledger {ledger}, entry {entry}: log {log}, position {position}"


def _locations(database: RocksDatabase, ledger_id: int | None) -> Iterator[dict[str, Any]]:
    first, end = keys_of(ledger_id) if ledger_id is not None else (b"", None)
    for key, value in database.items(first, end):
        ledger, entry_id, location = parse_location(key, value)
        yield {"ledger": ledger, "entry": entry_id, "log": log_id_of(location), "position": position_of(location)}


def _ledgers(database: RocksDatabase, ledger_id: int | None) -> Iterator[dict[str, Any]]:
    for key, value in database.items(ledger_key(ledger_id) if ledger_id is not None else b""):
        ledger = parse_ledger_id(key)
        if ledger < 0 or ledger_id not in (None, ledger):
            continue  # a bookie's flags, which come last
        record = LedgerRecord.decode(value)
        yield {
            "ledger": ledger,
            "master_key": (record.master_key or b"").hex(),
            "fenced": record.fenced,
            "in_limbo": record.in_limbo,
            "explicit_lac": record.explicit_lac.hex() if record.explicit_lac is not None else None,
        }


def _ledger_line(row: dict[str, Any]) -> str:
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in row.items() if name != "ledger")
    return f"ledger {row['ledger']}: {facts}"

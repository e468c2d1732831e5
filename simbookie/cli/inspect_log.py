"""``bk-sim inspect log``: what is in an entry log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from simbookie.cli.options import Json
from simbookie.inspection import ENTRY_HEAD, InspectedFile, Payload, inspected
from simbookie.storage.entry_logs.format import RECORD_HEAD, SIZE_BYTES
from simbookie.storage.entry_logs.scan import LogRecord, ledgers_of, read_header, scan

__all__ = ["add_to"]


_HELP: Final = """List the entries in an entry log, and how many bytes of each ledger it has.

A log that its bookie did not complete has no map of its ledgers; it is scanned for them. A log that is cut short is listed as
far as it goes.

\b
Examples:
  bk-sim inspect log data/ledgers/current/0.log
  bk-sim inspect log 1f.log --ledger 7 --json

\b
Exit codes: 0 read; 1 the file is damaged or cannot be read; 2 wrong usage.
With --json: {"file", "bytes", "version", "map_offset", "ledgers": {id: bytes}, "entries": [{"position", "ledger", "entry",
"bytes", "lac", "payload"}]}; "payload" with --payload only.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("log", help=_HELP)(log)


def log(
    file: Annotated[Path, typer.Argument(help="The entry log, named ID.log.", show_default=False)],
    *,
    ledger: Annotated[int | None, typer.Option(min=0, help="List entries of this ledger only.")] = None,
    payload: Payload = False,
    json_output: Json = False,
) -> None:
    """See the help."""
    with inspected(file, as_json=json_output) as opened:
        header = read_header(opened)
        facts: dict[str, Any] = {
            "file": str(file),
            "bytes": opened.size,
            "version": header.version,
            "map_offset": header.map_offset,
            "ledgers": {str(ledger_id): size for ledger_id, size in sorted(ledgers_of(opened).items())},
        }
        if json_output:
            entries = [_facts_of(record, with_payload=payload) for record in _records(opened, ledger)]
            typer.echo(json.dumps({**facts, "entries": entries}))
            return
        is_complete = f"ledgers map at {header.map_offset}" if header.has_map else "not complete: no ledgers map"
        typer.echo(f"entry log {file}: {opened.size} bytes, version {header.version}, {is_complete}")
        for ledger_id, size in facts["ledgers"].items():
            typer.echo(f"ledger {ledger_id}: {size} bytes")
        for record in _records(opened, ledger):
            entry = _facts_of(record, with_payload=payload)
            line = "at {position}: ledger {ledger}, entry {entry}, {bytes} bytes, LAC {lac}".format(**entry)
            typer.echo(line + (f": {entry['payload']}" if payload else ""))


def _records(file: InspectedFile, ledger: int | None) -> list[LogRecord]:
    accepted = (lambda ledger_id: ledger_id == ledger) if ledger is not None else (lambda _: True)
    return [record for record in scan(file, accepted) if len(record.entry) >= RECORD_HEAD.size - SIZE_BYTES]


def _facts_of(record: LogRecord, *, with_payload: bool) -> dict[str, Any]:
    """``position`` is that of the entry behind its length, as in locations; an entry without a LAC has ``None``."""
    ledger_id, entry_id, lac, _ = ENTRY_HEAD.unpack(record.entry[: ENTRY_HEAD.size].ljust(ENTRY_HEAD.size, b"\xff"))
    facts: dict[str, Any] = {
        "position": record.offset + SIZE_BYTES,
        "ledger": ledger_id,
        "entry": entry_id,
        "bytes": len(record.entry),
        "lac": lac if len(record.entry) >= ENTRY_HEAD.size else None,
    }
    if with_payload:
        facts["payload"] = record.entry[ENTRY_HEAD.size :].hex()
    return facts

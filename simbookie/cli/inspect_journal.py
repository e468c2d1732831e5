"""``bk-sim inspect journal``: what is in a journal file, or in all files of a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from simbookie.cli.options import EXIT_FAILURE, Json
from simbookie.inspection import ENTRY_HEAD, InspectedFile, Payload, inspected
from simbookie.storage.journal.reader import JournalScan, ScanEnd
from simbookie.storage.journal.records import (
    JournalFormatError,
    JournalRecord,
    JournalRecordKind,
    file_id_of,
    parse_body,
)
from simbookie.storage.known import PACKET_BYTES_MIN, lac_of_packet

__all__ = ["add_to"]


_HELP: Final = """List the records in a journal file, or in all journal files of a folder in the order they were written.

A file ends at a length of zero (space that was allocated ahead), at its end, or at a record that is not all there; which one it
was is told. A damaged file is listed up to the damage. The master key of a ledger is told as the journal has it, in hexadecimal.

\b
Examples:
  bk-sim inspect journal data/journal/current
  bk-sim inspect journal 18e2f6a3b01.txn --ledger 7 --json

\b
Exit codes: 0 read to its end; 1 the file is damaged or cannot be read; 2 wrong usage.
With --json: {"journals": [{"file", "id", "bytes", "version", "end", "position", "error", "records": [{"position", "kind",
"ledger", "entry", "bytes", ...}]}]}. "position" is where a record begins, with its length, as marks count.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("journal", help=_HELP)(journal)


def journal(
    path: Annotated[
        Path, typer.Argument(help="A journal file, named ID.txn, or a folder of them.", exists=True, show_default=False)
    ],
    *,
    ledger: Annotated[int | None, typer.Option(min=0, help="List records of this ledger only.")] = None,
    payload: Payload = False,
    json_output: Json = False,
) -> None:
    """See the help."""
    told: list[dict[str, Any]] = []
    is_damaged = False
    for file in _files(path):
        with inspected(file, as_json=json_output) as opened:
            facts = _facts_of_file(opened, ledger, with_payload=payload)
        is_damaged |= facts["error"] is not None
        if json_output:
            told.append(facts)
        else:
            _print(facts)
    if json_output:
        typer.echo(json.dumps({"journals": told}))
    if is_damaged:
        raise typer.Exit(EXIT_FAILURE)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = [file for file in path.iterdir() if file_id_of(file.name) is not None]
    if not files:
        raise typer.BadParameter(f"there is no journal file in {path}")
    return sorted(files, key=lambda file: file_id_of(file.name) or 0)


def _facts_of_file(file: InspectedFile, ledger: int | None, *, with_payload: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"file": str(file.path), "id": file_id_of(file.path.name), "bytes": file.size}
    records: list[dict[str, Any]] = []
    scan, error = None, None
    try:
        scan = JournalScan(file)
        for position, body in scan:
            record = parse_body(body, scan.version)
            if ledger in (None, record.ledger_id):
                records.append(_facts_of(position, len(body), record, with_payload=with_payload))
    except JournalFormatError as damage:
        error = str(damage)
    end = scan.end if scan is not None and error is None else ScanEnd.DAMAGED
    return {
        **facts,
        "version": scan.version if scan is not None else None,
        "end": end.value if end is not None else None,
        "position": scan.position if scan is not None else 0,
        "error": error,
        "records": records,
    }


def _facts_of(position: int, size: int, record: JournalRecord, *, with_payload: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "position": position,
        "kind": record.kind.value,
        "ledger": record.ledger_id,
        "entry": record.entry_id,
        "bytes": size,
    }
    content = record.content
    if record.kind is JournalRecordKind.ENTRY:
        facts["lac"] = ENTRY_HEAD.unpack_from(content)[2] if size >= ENTRY_HEAD.size else None
        if with_payload:
            facts["payload"] = content[ENTRY_HEAD.size :].hex()
    elif record.kind is JournalRecordKind.KEY:
        facts["master_key"] = content.hex()
    elif record.kind is JournalRecordKind.EXPLICIT_LAC:
        facts["lac"] = lac_of_packet(content) if len(content) >= PACKET_BYTES_MIN else None
    return facts


def _print(facts: dict[str, Any]) -> None:
    typer.echo(f"journal {facts['file']}: {facts['bytes']} bytes, version {facts['version']}")
    for line in _lines(facts["records"]):
        typer.echo(line)
    typer.echo(f"ends at {facts['position']}: {facts['end']}" + (f": {facts['error']}" if facts["error"] else ""))


def _lines(records: list[dict[str, Any]]) -> Iterator[str]:
    for record in records:
        what = f"entry {record['entry']}" if record["kind"] == "entry" else record["kind"]
        line = f"at {record['position']}: ledger {record['ledger']}, {what}, {record['bytes']} bytes"
        for name in ("lac", "master_key", "payload"):
            if name in record:
                line += f", {'LAC' if name == 'lac' else name.replace('_', ' ')} {record[name]}"
        yield line

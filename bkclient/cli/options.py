"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bkclient.cli.access import METADATA_VARIABLE
from bkclient.cli.completion import complete_bookie, complete_ledger

__all__ = [
    "AckQuorum",
    "AskPassword",
    "BookieIds",
    "ConfigFile",
    "Custom",
    "DeferredSync",
    "Digest",
    "Ensemble",
    "Json",
    "JsonLines",
    "LedgerId",
    "LedgerIds",
    "Metadata",
    "NewLedgerId",
    "PasswordFile",
    "Settings",
    "Thorough",
    "WriteQuorum",
]

LedgerId = Annotated[
    int,
    typer.Argument(
        help="The ledger.",
        metavar="LEDGER",
        min=0,
        show_default=False,
        autocompletion=complete_ledger,
    ),
]

LedgerIds = Annotated[
    list[int] | None,
    typer.Argument(
        help="The ledgers.",
        metavar="LEDGER...",
        min=0,
        show_default=False,
        autocompletion=complete_ledger,
    ),
]
BookieIds = Annotated[
    list[str],
    typer.Argument(
        help="The bookies.",
        metavar="BOOKIE...",
        show_default=False,
        autocompletion=complete_bookie,
    ),
]
Thorough = Annotated[bool, typer.Option("--thorough", help="Read and compare every copy of every entry.")]

Metadata = Annotated[
    str | None,
    typer.Option(
        "--metadata",
        "-m",
        envvar=METADATA_VARIABLE,
        help="Metadata URI of the cluster, such as zk://host:port/ledgers.",
        metavar="URI",
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="A properties file with BookKeeper's keys.", metavar="FILE", show_default=False),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "-c", help="One property; may be repeated, overrides the file.", metavar="KEY=VALUE", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else.")]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Print JSON objects on standard output, one per line, and nothing else.")
]

PasswordFile = Annotated[
    Path | None,
    typer.Option(
        help="Read the password from this file.  [default: BK_LEDGER_PASSWORD, or none]",
        show_default=False,
        metavar="FILE",
    ),
]
AskPassword = Annotated[bool, typer.Option("--ask-password", help="Ask for the password.")]

Ensemble = Annotated[
    int, typer.Option("--ensemble", "-e", min=1, help="Bookies that entries are striped over.", metavar="E")
]
WriteQuorum = Annotated[
    int, typer.Option("--write-quorum", "-w", min=1, help="Bookies that store each entry.", metavar="QW")
]
AckQuorum = Annotated[
    int, typer.Option("--ack-quorum", "-a", min=1, help="Bookies that must acknowledge each entry.", metavar="QA")
]
Digest = Annotated[str, typer.Option(help="Digest of entries: crc32c, crc32, mac or dummy.", metavar="TYPE")]
Custom = Annotated[
    list[str] | None,
    typer.Option("--custom", help="Custom metadata; may be repeated.", metavar="KEY=VALUE", show_default=False),
]
NewLedgerId = Annotated[
    int | None,
    typer.Option(
        "--ledger-id", min=0, help="The id of the new ledger.  [default: generated]", metavar="ID", show_default=False
    ),
]
DeferredSync = Annotated[
    bool,
    typer.Option("--deferred-sync", help="Acknowledge entries before they are durable; make all durable at the end."),
]

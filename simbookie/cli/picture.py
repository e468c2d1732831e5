"""``bk-sim picture``: a bookie under load in virtual time, drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final

import typer

from simbookie.cli.options import Json, errors_end_the_program
from simbookie.pictures.load import OfferedLoad, load_picture, sampled_load
from simbookie.storage.kinds import StoreKind

__all__ = ["add_to"]

_HELP: Final = """Draw what a bookie does under load: journal queue, write cache, flushes, syncs, garbage, as SVG.

Clients offer more than the disk takes for a while. Back-pressure sets in (the store is full, the journal has a line before its
queue, adds wait with their clients), and lets go again. All of it happens in virtual time, on a simulated disk, in a few seconds;
the same options give the same picture.

\b
Examples:
  bk-sim picture load.svg
  bk-sim picture load.svg --storage sorted --peak 8000
  bk-sim picture load.svg --json > samples.json

\b
Exit codes: 0 drawn; 1 the file cannot be written; 2 wrong usage.
With --json: {"picture", "times", "series": {name: values}}, the names those of metrics, and of what the clients count.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("picture", help=_HELP)(picture)


def picture(
    file: Annotated[Path, typer.Argument(help="Where to write the picture.", dir_okay=False, show_default=False)],
    *,
    storage: Annotated[StoreKind, typer.Option(help="The ledger store.")] = StoreKind.DB,
    usual: Annotated[int, typer.Option(min=1, help="Entries offered in a second, of 4 KiB.")] = 500,
    peak: Annotated[int, typer.Option(min=1, max=100_000, help="The same, for four seconds.")] = 4_000,
    seed: Annotated[int, typer.Option(min=0, help="Chance of the run.")] = 0,
    as_json: Json = False,
) -> None:
    """Draw."""
    try:
        load = OfferedLoad(usual=usual, peak=peak)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--peak") from error
    samples = sampled_load(storage, load, seed)
    with errors_end_the_program(as_json=as_json):
        file.write_text(load_picture(storage, samples), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps({"picture": str(file), "times": samples.times, "series": samples.series}))
    else:
        typer.echo(f"{file}: {samples.times[-1]:g} seconds, {int(samples.of('acknowledged')[-1])} entries acknowledged")

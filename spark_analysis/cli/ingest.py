"""``bk-verify ingest``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from spark_analysis.cli.running import Conf, Folder, Json, Master, in_spark, print_json, usable_files
from spark_analysis.dataset.layout import Reason
from spark_analysis.defaults import EXIT_UNUSABLE
from spark_analysis.jobs.ingest import ingest
from spark_analysis.report import ingested_table

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("ingest", help=_INGEST_HELP)(ingest_histories)


_INGEST_HELP: Final = """Take histories into a data set: decoded once, in columns (Parquet), placed so that no check moves them.

verify, check, compare and lac accept the data set in place of the folder, and come to the same verdict. Another ingest into it
takes the files that are new. Files that are no usable histories, and copies of histories, are set aside in a table of their own.

\b
Examples:
  bk-verify ingest histories --to dataset && bk-verify verify dataset
  bk-verify ingest histories --to dataset --buckets 256

\b
Exit codes: 0 all files are histories; 2 unusable input (no folder, no history, a damaged or foreign file; the others are taken
nevertheless), or the data set cannot be written; 3 nothing was taken, because Spark or this program failed.
With --json: {"files", "unchanged", "taken", "events", "set_aside", "named", "histories", "all_events", "buckets", "seconds"}.
"""


def ingest_histories(
    folder: Folder,
    *,
    to: Annotated[Path, typer.Option(metavar="DATASET", help="The data set; made if it is not there.")],
    buckets: Annotated[
        int | None,
        typer.Option(
            min=1, help="Parts of a new data set, each judged by one task. Default: one for 32 MiB of histories."
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Take the histories in ``folder`` into a data set, and print what came of it."""
    size = sum(file.size for file in usable_files(folder))
    with in_spark(master, conf, size, "nothing was taken", "ingesting", [folder, to]) as session:
        found = ingest(session, folder, to, buckets=buckets)
    if as_json:
        print_json(found.as_json())
    else:
        console = Console()
        console.print(ingested_table(found))
        console.print(f"{found.seconds:.1f} s in Spark")
    for one in found.named:
        if one.reason != Reason.DUPLICATE:
            typer.echo(f"bk-verify: {one.file}: {one.problem}", err=True)
    if not found.is_clean:
        raise typer.Exit(EXIT_UNUSABLE)

"""``bk-verify stream``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from spark_analysis.cli.running import Conf, Json, Master, conclude, fail, in_spark
from spark_analysis.defaults import MAX_WITNESSES_DEFAULT
from spark_analysis.jobs.check import Broken
from spark_analysis.jobs.stream import OtherStreamError, stream
from spark_analysis.report import broken_text, stream_table

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("stream", help=_STREAM_HELP)(stream_histories)


_STREAM_HELP: Final = """Judge histories while runs still write them, and tell each violation when it is found.

A history is judged from where the last look at it ended, by the checker that also watches runs. The same command goes on where an
earlier one was ended. On a cluster, executors have to see both folders under the same paths.

\b
Examples:
  bk-verify stream histories --to streamed
  bk-verify stream histories --to streamed --idle 60 --json
  bk-verify stream /shared/histories --to /shared/streamed --master spark://host:7077

\b
Exit codes: 0 every invariant holds; 1 one is violated; 2 unusable input (a damaged or foreign file, or a history without an end;
the others are judged nevertheless; or another stream's results); 3 nothing was judged, because Spark or this program failed.
With --json: {"histories", "events", "invariants", "violations", "rejected", "rejected_files", "seconds", "open", "duplicates"}.
"""


def stream_histories(
    folder: Annotated[
        Path, typer.Argument(help="Folder of *.bkh files, searched below; it may be empty, or come later.")
    ],
    *,
    to: Annotated[Path, typer.Option(help="Folder for the results and for what is needed to go on.")],
    every: Annotated[float, typer.Option(min=0.01, help="Seconds between looks at the folder.")] = 1.0,
    idle: Annotated[
        float | None, typer.Option(min=0, help="End when nothing has come for so many seconds. Default: at Ctrl-C.")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    max_witnesses: Annotated[
        int, typer.Option(min=0, help="Broken clauses to show per invariant; counts are always complete.")
    ] = MAX_WITNESSES_DEFAULT,
    as_json: Json = False,
) -> None:
    """Judge what is in ``folder`` and what comes to it, and print the verdict."""

    def tell(found: tuple[Broken, ...]) -> None:
        for broken in found:
            typer.echo(broken_text(broken).plain, err=as_json)

    try:
        with in_spark(master, conf, 0, "nothing was judged", "judging what comes", [folder, to]) as session:
            verdict = stream(session, folder, to, every_s=every, idle_s=idle, max_witnesses=max_witnesses, tell=tell)
    except OtherStreamError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{to}: cannot be written ({error.strerror})")
    conclude(verdict, stream_table(verdict), is_fine=verdict.is_clean, as_json=as_json)
    if verdict.open:
        fail(f"{verdict.open:,} histories have no end yet")

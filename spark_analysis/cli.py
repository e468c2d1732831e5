"""``bk-verify``: Spark's verdict on recorded histories, from the command line."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated, Final

import typer

from bkclient.program import loading
from spark_analysis.defaults import EXIT_FAILED, LOCAL_MASTER, MAX_WITNESSES_DEFAULT

__all__ = ["app", "main"]

_HELP: Final = """Check every ledger of every recorded history against the protocol's guarantees.

\b
Examples:
  bk-chaos sweep --seeds 100 --record histories && bk-verify histories
  bk-verify histories --invariant NoLacTruncation --json
  bk-verify histories --master spark://host:7077

\b
Exit codes: 0 every invariant holds; 1 one is violated; 2 unusable input (no folder, no history, a damaged or foreign file; the
others are judged nevertheless); 3 nothing was judged, because Spark or this program failed.
"""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(help=_HELP)
def verify_histories(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of *.bkh files, searched below; or one such file.")
    ] = None,
    *,
    master: Annotated[
        str | None,
        typer.Option(help=f"Spark master to run on. Default: what spark-submit was told, or {LOCAL_MASTER}."),
    ] = None,
    invariant: Annotated[
        list[str] | None, typer.Option(help="Check only this invariant; may be given again. Default: all.")
    ] = None,
    max_witnesses: Annotated[
        int, typer.Option(min=0, help="Broken ledgers to show per invariant; counts are always complete.")
    ] = MAX_WITNESSES_DEFAULT,
    list_invariants: Annotated[bool, typer.Option("--list", help="List the invariants and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Check every ledger of every recorded history against the protocol's guarantees."""
    with loading():
        from spark_analysis import cli_verify  # noqa: PLC0415  see there
    if list_invariants:
        cli_verify.list_invariants(as_json=as_json)
    else:
        cli_verify.verify_folder(
            folder, master=master, invariants=invariant or (), max_witnesses=max_witnesses, as_json=as_json
        )


def main() -> None:
    """Run ``bk-verify``."""
    try:
        app()
    except ModuleNotFoundError:
        raise  # a package that was not asked for at installation is told by the caller
    except Exception:  # noqa: BLE001  Python would exit with 1, which says that an invariant is violated
        traceback.print_exc()
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()

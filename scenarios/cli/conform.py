"""``bk-chaos conform``: histories, held to the published specification."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Final

import typer

from scenarios.cli.options import Json
from scenarios.cli.output import EXIT_FOUND, fail, print_json, print_lines
from scenarios.cli.plan import HISTORY_SUFFIX
from scenarios.history import History, HistoryError
from scenarios.specification.histories.conformance import ConformedHistory, conform_history

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("conform", help=_CONFORM_HELP)(conform)


_CONFORM_HELP: Final = """Compare histories with the actions of the published TLA+ specification, ledger by ledger.

Each event of a writer, a recovery, a bookie or the metadata store is an action of the specification, the half of one, or a listed
difference from it. Events of readers are in no specification. Folders are searched for histories.

\b
Examples:
  bk-chaos conform histories/dead-writer-7.bkh
  bk-chaos conform histories
  bk-chaos conform histories --json

\b
Exit codes: 0 every event is specified; 1 an event is not; 2 the input cannot be used.
With --json: {"histories": [{"file", "events", "steps", "ledgers", "left": {ledger: why}, "actions": {name: how often},
"wrong": [{"seq", "actor", "kind", "ledger", "what"}]}]}.
"""

_Files = Annotated[
    list[Path],
    typer.Argument(help="Recorded histories (.bkh), and folders of them.", metavar="FILE...", show_default=False),
]


def conform(files: _Files, *, as_json: Json = False) -> None:
    """Compare histories with the specification."""
    found: dict[Path, ConformedHistory] = {}
    try:
        for path in _histories(files):
            found[path] = conform_history(History(path).events())
    except HistoryError as error:
        fail(str(error))
    if as_json:
        print_json({"histories": [{"file": str(path), **one.as_json()} for path, one in found.items()]})
    else:
        _print(found)
    if not all(one.holds for one in found.values()):
        raise typer.Exit(EXIT_FOUND)


def _histories(files: list[Path]) -> list[Path]:
    found: dict[Path, None] = {}
    for path in files:
        if path.is_dir():
            inside = sorted(path.rglob(f"*{HISTORY_SUFFIX}"))
            if not inside:
                fail(f"{path}: has no history (*{HISTORY_SUFFIX}) in it")
            found.update(dict.fromkeys(inside))
        else:
            found[path] = None
    return list(found)


def _print(found: dict[Path, ConformedHistory]) -> None:
    actions: Counter[str] = Counter()
    for path, one in found.items():
        actions += one.actions
        if not one.holds:
            print_lines(f"{path}: not specified")
            print_lines(*(f"  {wrong}" for wrong in one.wrong))
    events, ledgers = (sum(getattr(one, name) for one in found.values()) for name in ("events", "ledgers"))
    wrong = sum(not one.holds for one in found.values())
    print_lines(
        f"{len(found)} histories, {ledgers} ledgers, {events} events; {wrong} with events that are not specified"
    )
    print_lines(
        *(f"  {count:>9}  {name}" for name, count in sorted(actions.items(), key=lambda item: (-item[1], item[0])))
    )

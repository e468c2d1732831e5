"""``bk-chaos plan``: the text of a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from scenarios.cli.completion import complete_plan
from scenarios.cli.options import Json
from scenarios.cli.output import fail, known, print_json, print_lines
from scenarios.history import History, HistoryError
from scenarios.library import SCENARIOS
from scenarios.plan import Plan, PlanError, parse_plan, print_plan
from scenarios.plan.named import plan_named, plan_names
from scenarios.playing import scenario_of

__all__ = ["HISTORY_SUFFIX", "SUFFIX", "add_to", "find_plan", "read_plan"]

#: Of files with plans.
SUFFIX: Final = ".scn"
HISTORY_SUFFIX: Final = ".bkh"


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("plan", help=_PLAN_HELP)(plan_)


_PLAN_HELP: Final = """Print a plan: one of the library, a file's, or that of a recorded run.

NAME is a plan of bk-chaos list, a file with a plan (.scn), or a history (.bkh) that was recorded of one. With --full every value
is named, those that are the usual ones too, as in the headers of histories. swarm and swarm-live draw another plan with every
seed.

\b
Examples:
  bk-chaos plan fence-lost-late-add
  bk-chaos plan swarm --seed 7
  bk-chaos plan late-add.scn
  bk-chaos plan histories/fence-lost-late-add-7.bkh --full

\b
Exit codes: 0 printed; 2 the input cannot be used.
With --json: {"name", "summary", "expected", "text"}.
"""


def plan_(
    name: Annotated[
        str,
        typer.Argument(
            help="The plan, a file with one, or a history of one.", metavar="NAME", autocompletion=complete_plan
        ),
    ],
    *,
    seed: Annotated[int, typer.Option(min=0, help="The seed, for a plan that is drawn.")] = 0,
    full: Annotated[bool, typer.Option("--full", help="Name every value.")] = False,
    as_json: Json = False,
) -> None:
    """Print a plan."""
    plan = find_plan(name, seed)
    text = print_plan(plan, full=full)
    if as_json:
        expected = scenario_of(plan).expected
        print_json({"name": plan.name, "summary": plan.summary, "expected": expected, "text": text})
    else:
        print_lines(text.rstrip("\n"))


def read_plan(path: Path) -> Plan:
    """The plan in a file; ends the program where there is none."""
    try:
        return parse_plan(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        fail(f"{path} is no text in UTF-8")
    except PlanError as error:
        fail(str(error))


def find_plan(name: str, seed: int) -> Plan:
    """The plan of this name, of a file, or of a history; ends the program where there is none."""
    if name.endswith(SUFFIX):
        return read_plan(Path(name))
    if name.endswith(HISTORY_SUFFIX):
        return _of_history(Path(name))
    if name in SCENARIOS:
        fail(f"{name} is a scenario that draws what happens while it runs; it has no plan")
    known(name, plan_names(), "plan")
    return plan_named(name, seed)


def _of_history(path: Path) -> Plan:
    try:
        text = History(path).header.get("plan")
        if text is None:
            fail(f"{path} was not recorded of a plan")
        return parse_plan(str(text), str(path))
    except (HistoryError, PlanError) as error:
        fail(str(error))

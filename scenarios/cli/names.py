"""Names of what is run many times: scenarios, plans, and files with plans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from scenarios.cli.completion import complete_scenario
from scenarios.cli.options import check_names
from scenarios.cli.output import fail
from scenarios.cli.plan import SUFFIX, read_plan
from scenarios.plan import Plan

__all__ = ["Names", "chosen_runs"]

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="Scenarios, plans, and files with plans (.scn).",
        metavar="[NAMES]...",
        show_default=False,
        autocompletion=complete_scenario,
    ),
]


def chosen_runs(names: Sequence[str], mutant: str | None) -> tuple[list[str], dict[str, Plan]]:
    """Each name once, and the plans of those that are files; ends the program for what cannot be used.

    Histories are called after plans, so no two of these may have one name.
    """
    chosen = list(dict.fromkeys(names))
    plans = {name: read_plan(Path(name)) for name in chosen if name.endswith(SUFFIX)}
    check_names([name for name in chosen if name not in plans], mutant)
    owners: dict[str, str] = {}
    for name in chosen:
        called = plans[name].name if name in plans else name
        if called in owners:
            fail(f"{owners[called]} and {name} are plans of one name, {called}; give one of them another")
        owners[called] = name
    return chosen, plans

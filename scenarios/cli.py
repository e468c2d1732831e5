"""``bk-chaos``: run fault scenarios, show their histories, sweep seeds, hunt planted defects.

Exit codes of every command: 0 no problem; 1 a problem was found (a broken invariant, a defect that was not caught, runs that
differ); 2 the input cannot be used (an unknown name, an unreadable history, a wrong option); 3 no problem was found, but a run
has no verdict and proves nothing. The result goes to standard output, as one JSON object with ``--json``; errors, and progress
on a terminal, go to standard error.
"""

from __future__ import annotations

from typing import Final

import typer

from bkclient.cli.late import Late, late_group
from scenarios.cli_help import (
    DETERMINISM_HELP,
    EXPLORE_HELP,
    LIST_HELP,
    MUTANTS_HELP,
    REPLAY_HELP,
    RUN_HELP,
    SHOW_HELP,
    SWEEP_HELP,
)

__all__ = ["app", "main"]

_COMMANDS: Final = {
    name: Late(module, text.partition("\n")[0])
    for name, module, text in (
        ("list", "scenarios.cli_list", LIST_HELP),
        ("run", "scenarios.cli_runs", RUN_HELP),
        ("replay", "scenarios.cli_runs", REPLAY_HELP),
        ("show", "scenarios.cli_runs", SHOW_HELP),
        ("sweep", "scenarios.cli_sweeps", SWEEP_HELP),
        ("mutants", "scenarios.cli_sweeps", MUTANTS_HELP),
        ("determinism", "scenarios.cli_sweeps", DETERMINISM_HELP),
        ("explore", "scenarios.cli_explore", EXPLORE_HELP),
    )
}

app = typer.Typer(
    name="bk-chaos",
    cls=late_group(_COMMANDS),
    help="Fault scenarios for BookKeeper clients: the shipped client in a simulated world, replayable from a seed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def root() -> None:
    """Make a group of commands."""


def main() -> None:
    """The console script."""
    app()

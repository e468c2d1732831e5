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

__all__ = ["app", "run"]

_COMMANDS: Final = {
    "list": Late(
        "scenarios.cli.list",
        "List the scenarios, the plans, the worlds of machines and the defects that can be planted.",
    ),
    "run": Late("scenarios.cli.runs", "Run one scenario or plan with one seed, and judge it."),
    "plan": Late("scenarios.cli.plan", "Print a plan: one of the library, a file's, or that of a recorded run."),
    "replay": Late("scenarios.cli.runs", "Run again what a history recorded, and compare event by event."),
    "show": Late("scenarios.cli.runs", "Judge a recorded history without running anything, and show it as a timeline."),
    "diff": Late("scenarios.cli.diff", "Show where two histories part."),
    "conform": Late(
        "scenarios.cli.conform",
        "Compare histories with the actions of the published TLA+ specification, ledger by ledger.",
    ),
    "shrink": Late("scenarios.cli.shrink", "Make a failing plan smaller while the same clause breaks."),
    "sweep": Late("scenarios.cli.sweeps", "Run scenarios with many seeds, on all processors."),
    "mutants": Late(
        "scenarios.cli.mutants", "Plant known defects, one at a time, and see whether the invariants give them away."
    ),
    "determinism": Late(
        "scenarios.cli.determinism",
        "Make every run three times or more, once in a process that hashes strings differently, and compare.",
    ),
    "transports": Late(
        "scenarios.cli.transports", "Make runs over objects and over bytes, and compare what they come to."
    ),
    "explore": Late("scenarios.cli.explore", "Search worlds of protocol machines for a schedule that breaks a clause."),
    "exhaustive": Late(
        "scenarios.cli.exhaustive",
        "Search small clusters exhaustively: every order of sends, arrivals, timeouts, crashes and writes.",
    ),
}

app = typer.Typer(
    name="bk-chaos",
    cls=late_group(_COMMANDS),
    help="Fault scenarios for BookKeeper clients: the shipped client in a simulated world, replayable from a seed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def root() -> None:
    """Make a group of commands."""


def run() -> None:
    """Run the command that the arguments name."""
    app()

"""``bk-chaos list``: scenarios, worlds of machines, and defects."""

from __future__ import annotations

from typing import Final

import typer

from scenarios.cli_options import Json
from scenarios.cli_output import print_json, print_lines, print_table
from scenarios.library import SCENARIOS
from scenarios.machines.worlds import PREPARED, WORLDS
from scenarios.mutants import MUTANTS

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("list", help=_LIST_HELP)(list_)


_LIST_HELP: Final = """List the scenarios, the worlds of machines and the defects that can be planted.

\b
Examples:
  bk-chaos list
  bk-chaos list --json

\b
Exit codes: 0.
With --json: {"scenarios": [{"name", "summary", "expected"}], "worlds": [{"name", "summary"}],
"mutants": [{"name", "summary", "invariants", "clauses", "world", "in_runs"}]}.
"""


def list_(*, as_json: Json = False) -> None:
    """List scenarios, worlds and defects."""
    if as_json:
        print_json(
            {
                "scenarios": [
                    {"name": scenario.name, "summary": scenario.summary, "expected": scenario.expected}
                    for scenario in SCENARIOS.values()
                ],
                "worlds": [
                    {"name": named.name, "summary": named.summary} for named in (*PREPARED.values(), *WORLDS.values())
                ],
                "mutants": [
                    {
                        "name": mutant.name,
                        "summary": mutant.summary,
                        "invariants": list(mutant.invariants),
                        "clauses": list(mutant.clauses),
                        "world": mutant.world or None,
                        "in_runs": mutant.in_runs,
                    }
                    for mutant in MUTANTS.values()
                ],
            }
        )
        return
    print_table(("scenario", "what happens"), [(found.name, found.summary) for found in SCENARIOS.values()])
    print_lines("")
    print_table(
        ("world of machines", "what is in it"),
        [(named.name, named.summary) for named in (*PREPARED.values(), *WORLDS.values())],
    )
    print_lines("")
    print_table(("defect", "what is wrong"), [(found.name, found.summary) for found in MUTANTS.values()])

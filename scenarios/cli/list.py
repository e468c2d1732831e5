"""``bk-chaos list``: scenarios, plans, worlds of machines, and defects."""

from __future__ import annotations

from typing import Final

import typer

from scenarios.cli.options import Json
from scenarios.cli.output import print_json, print_lines, print_table
from scenarios.library import SCENARIOS
from scenarios.machines.worlds import PREPARED, WORLDS
from scenarios.mutants import MUTANTS
from scenarios.plan.library import library_names, library_plan
from scenarios.plan.named import DRAWN, plan_named
from scenarios.playing import scenario_of

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("list", help=_LIST_HELP)(list_)


_LIST_HELP: Final = """List the scenarios, the plans, the worlds of machines and the defects that can be planted.

\b
Examples:
  bk-chaos list
  bk-chaos list --json

\b
Exit codes: 0 listed; 2 wrong usage.
With --json: {"scenarios": [{"name", "summary", "expected"}], "plans": the same, "worlds": [{"name", "summary"}],
"mutants": [{"name", "summary", "invariants", "clauses", "world", "in_runs"}]}.
"""


def list_(*, as_json: Json = False) -> None:
    """List scenarios, plans, worlds and defects."""
    if as_json:
        print_json(
            {
                "scenarios": [
                    {"name": scenario.name, "summary": scenario.summary, "expected": scenario.expected}
                    for scenario in SCENARIOS.values()
                ],
                "plans": [
                    {"name": name, "summary": summary, "expected": expected} for name, summary, expected in _plans()
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
    print_table(("plan", "what happens"), [(name, summary) for name, summary, _ in _plans()])
    print_lines("")
    print_table(
        ("world of machines", "what is in it"),
        [(named.name, named.summary) for named in (*PREPARED.values(), *WORLDS.values())],
    )
    print_lines("")
    print_table(("defect", "what is wrong"), [(found.name, found.summary) for found in MUTANTS.values()])


def _plans() -> list[tuple[str, str, str]]:
    """Name, summary and expectation of every plan."""
    pinned = [scenario_of(library_plan(name)) for name in library_names()]
    drawn = [(name, summary, scenario_of(plan_named(name, 0)).expected) for name, summary in DRAWN.items()]
    return [*((plan.name, plan.summary, plan.expected) for plan in pinned), *drawn]

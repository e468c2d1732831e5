"""Catalogues of what the code has: scenarios and plans, faults and operations, invariants and clauses, planted defects.

They are made when the site is built, so they cannot be out of date.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from scenarios.clauses import CLAUSES, INVARIANTS, STATEMENTS
from scenarios.library import SCENARIOS
from scenarios.machines.worlds import PREPARED, WORLDS
from scenarios.mutants import MUTANTS
from scenarios.plan import print_plan
from scenarios.plan.faults import FAULTS
from scenarios.plan.library import library_names, library_plan
from scenarios.plan.named import DRAWN
from scenarios.plan.operations import OPERATIONS
from scenarios.playing import scenario_of
from scenarios.situations import SITUATIONS

__all__ = ["catalogues"]


def catalogues() -> dict[str, str]:
    """The pages by their paths in the site."""
    return {
        "catalogue/scenarios.md": _scenarios(),
        "catalogue/faults.md": _faults(),
        "catalogue/clauses.md": _clauses(),
        "catalogue/mutants.md": _mutants(),
    }


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |" for cells in lines)


def _prose(value: Any) -> str:
    """A docstring as one line of Markdown."""
    text = " ".join((value.__doc__ or "").split())
    return re.sub(r":\w+:`~?[\w.]*?(\w+)`|``(.*?)``", r"`\1\2`", text)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:].rstrip('.')}."


def _scenarios() -> str:
    parts = [
        "# Scenarios and plans",
        (
            f"The {len(SCENARIOS)} scenarios and {len(library_names())} plans that `bk-chaos run NAME --seed N` plays. "
            "This page is made from the code. "
            "What a plan's lines mean is in [plans](../reference/plans.md); [how to write one](../using/chaos.md)."
        ),
        "## Scenarios",
        "Programs with faults that the seed draws.",
        _table(
            ["scenario", "what happens", "expected"],
            [[f"`{each.name}`", each.summary, each.expected] for each in SCENARIOS.values()],
        ),
        "## Drawn plans",
        _table(["name", "what is drawn"], [[f"`{name}`", summary] for name, summary in DRAWN.items()]),
        "## Worlds of machines",
        "Small clusters of protocol machines alone, for `bk-chaos explore` and `bk-chaos exhaustive`.",
        _table(
            ["world", "what is in it"],
            [[f"`{named.name}`", named.summary] for named in (*PREPARED.values(), *WORLDS.values())],
        ),
        "## Plans",
    ]
    for name in library_names():
        plan = library_plan(name)
        parts += [f"### {name}", f"Expected: {scenario_of(plan).expected}.", f"```text\n{print_plan(plan)}```"]
    return "\n\n".join(parts) + "\n"


def _faults() -> str:
    return (
        "\n\n".join(
            [
                "# Faults and operations",
                (
                    "What a plan may break, and what its clients may do. This page is made from the code; how each "
                    "is written, with its parameters and their "
                    "defaults, is in [plans](../reference/plans.md)."
                ),
                f"## Faults\n\nThere are {len(FAULTS)}.",
                _table(
                    ["fault", "lasts", "meaning"],
                    [
                        [f"`{name}`", "until it is ended" if cls.is_lasting else "at once", _prose(cls)]
                        for name, cls in FAULTS.items()
                    ],
                ),
                f"## Operations\n\nThere are {len(OPERATIONS)}.",
                _table(["operation", "meaning"], [[f"`{name}`", _prose(cls)] for name, cls in OPERATIONS.items()]),
                (
                    "## Situations\n\nWhat a run may come across, and `meets` in a plan may demand. There are "
                    f"{len(SITUATIONS)}; "
                    "[marks](../reference/marks.md) tells which code marks them."
                ),
                _table(["situation", "meaning"], [[f"`{name}`", found] for name, found in SITUATIONS.items()]),
            ]
        )
        + "\n"
    )


def _clauses() -> str:
    parts = [
        "# Invariants and clauses",
        (
            f"What must hold of every ledger: {len(INVARIANTS)} invariants with {len(CLAUSES)} clauses. A "
            "violation is reported by the name of the invariant and the "
            "number of the clause. This page is made from the code; "
            "[invariants](../reference/invariants.md) has the formulas and tells who judges each clause."
        ),
    ]
    for name, numbers in INVARIANTS.items():
        rows = []
        for number in numbers:
            links = [f"[{each.name}](mutants.md#{each.name})" for each in MUTANTS.values() if number in each.clauses]
            broken = f"Planted defects that break it: {', '.join(links)}." if links else "No planted defect breaks it."
            rows.append(f"* **{number}**: {CLAUSES[number].statement}. {broken}")
        parts += [f"## {name}", _sentence(STATEMENTS[name]), "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def _mutants() -> str:
    parts = [
        "# Planted defects",
        (
            f"{len(MUTANTS)} defects that can be planted into the client from outside (mutants): mistakes "
            "that BookKeeper clients had, or nearly had. "
            "Each must be caught, or the build fails. This page is made from the code. Run one with "
            "`bk-chaos run SCENARIO --mutant NAME`; `bk-chaos mutants` "
            "tells how many seeds it takes to find each."
        ),
    ]
    for mutant in MUTANTS.values():
        clauses = ", ".join(
            f"{number} ([{CLAUSES[number].invariant}](clauses.md#{CLAUSES[number].invariant.lower()}))"
            for number in mutant.clauses
        )
        facts = [
            f"Breaks clause {clauses}." if clauses else "Breaks no clause: only worlds of machines show it.",
            "Shown by runs of scenarios." if mutant.in_runs else "",
            f"Shown in the world of machines `{mutant.world}`." if mutant.world else "",
            f"In the past: {mutant.past}." if mutant.past else "",
        ]
        parts += [f"## {mutant.name}", _sentence(mutant.summary), " ".join(filter(None, facts))]
    return "\n\n".join(parts) + "\n"

"""Writes the tables of ``docs/reference/invariants.md``: every clause, who judges it, and which planted defects break it.

Everything is read from the vocabulary, the witnesses and the mutants themselves; there is no list here that could be forgotten.

Run as ``python -m tests.tools.invariants_page`` after one of them has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from scenarios import liveness
from scenarios.checker import CLAUSES as ONLINE
from scenarios.clauses import CLAUSES, INVARIANTS, STATEMENTS
from scenarios.machines.guarantees import Guarantees
from scenarios.machines.options_world import OptionsGuarantees
from scenarios.machines.storage_world import StorageGuarantees
from scenarios.mutants import MUTANTS
from tests.tools.conformance import ROOT
from tests.tools.interop_page import replaced

__all__ = ["COMMAND", "PAGE", "main", "tables", "unexercised", "witnesses"]

PAGE: Final = ROOT / "docs" / "reference" / "invariants.md"
COMMAND: Final = "python -m tests.tools.invariants_page"


def witnesses() -> Mapping[str, frozenset[str]]:
    """The clauses that each witness says it judges, Spark's aside, which needs pyspark to be asked."""
    machines = (Guarantees, OptionsGuarantees, StorageGuarantees)
    return {
        "online": frozenset(ONLINE),
        "machines": frozenset(number for guarantees in machines for number in guarantees.clauses),
        "stage": frozenset(liveness.CLAUSES),
    }


def unexercised() -> tuple[str, ...]:
    """The clauses that no mutant breaks, in the order of the vocabulary."""
    exercised = {number for mutant in MUTANTS.values() for number in mutant.clauses}
    return tuple(number for number in CLAUSES if number not in exercised)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _table(head: Iterable[str], rows: Iterator[tuple[str, ...]]) -> str:
    names = tuple(head)
    return "\n".join([_row(*names), _row(*("---" for _ in names)), *(_row(*cells) for cells in rows)])


def _clause_rows(judges: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, ...]]:
    for name, numbers in INVARIANTS.items():
        yield f"**{name}**", STATEMENTS[name], "", "", ""
        for number in numbers:
            clause = CLAUSES[number]
            judged_by = ", ".join(witness for witness, judged in judges.items() if number in judged)
            defects = sum(number in mutant.clauses for mutant in MUTANTS.values())
            yield number, clause.statement, f"`{clause.formula}`", judged_by, str(defects)


def _mutant_rows() -> Iterator[tuple[str, ...]]:
    for mutant in MUTANTS.values():
        runs = "yes" if mutant.in_runs else ""
        yield f"`{mutant.name}`", mutant.summary, mutant.past, ", ".join(mutant.clauses), mutant.world, runs


def tables(judges: Mapping[str, frozenset[str]]) -> Mapping[str, str]:
    """What stands between the markers of the page."""
    return {
        "clauses": _table(("clause", "says", "formula", "judged by", "mutants"), _clause_rows(judges)),
        "mutants": _table(("mutant", "what is wrong", "past", "clauses", "world", "runs"), _mutant_rows()),
        "unexercised": ", ".join(f"{number} ({CLAUSES[number].invariant})" for number in unexercised()) + ".",
    }


def main() -> None:
    """Write the page."""
    from spark_analysis.invariants import INVARIANTS as OF_SPARK  # noqa: PLC0415 - pyspark may be missing

    spark = frozenset(number for invariant in OF_SPARK for number in invariant.clauses)
    found = witnesses()
    judges = {"online": found["online"], "Spark": spark} | {name: found[name] for name in ("machines", "stage")}
    page = PAGE.read_text(encoding="utf-8")
    for name, content in tables(judges).items():
        page = replaced(page, name, content, by=COMMAND)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()

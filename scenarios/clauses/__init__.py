"""The vocabulary that all checkers share: the invariants by name, and their clauses by number.

Four checkers test the same guarantees independently: the online checker (:mod:`scenarios.checker`), the Spark invariants
(``spark_analysis.invariants``), the guarantees of the machines' worlds (:mod:`scenarios.machines`), and the stage, which detects
operations that never end. They share this table and no code, so a name has the same meaning in every report. Each checker
declares which clauses it checks, and each planted defect (:mod:`scenarios.mutants`) declares which ones it breaks;
docs/reference/invariants.md is generated from all three.

A clause has a number, a statement and a formula, and belongs to one invariant. Formulas are in the notation of
docs/reference/invariants.md, over the events of a history (docs/reference/history-format.md). In a world of machines, a call of
a port is the event of that name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from scenarios.clauses.formulas import FORMULAS
from scenarios.clauses.table import TABLE

__all__ = ["CLAUSES", "INVARIANTS", "STATEMENTS", "Clause", "invariants_of"]


class Clause(NamedTuple):
    """The invariant that the clause belongs to, the statement in words, and the same statement as a formula."""

    invariant: str
    statement: str
    formula: str


CLAUSES: Final[Mapping[str, Clause]] = MappingProxyType(
    {number: Clause(name, said, FORMULAS[number]) for name, _, clauses in TABLE for number, said in clauses.items()}
)
"""Every clause by its number."""

INVARIANTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {name: tuple(clauses) for name, _, clauses in TABLE}
)
"""Every invariant with the numbers of its clauses, the most important invariant first. Violations are reported by these names."""

STATEMENTS: Final[Mapping[str, str]] = MappingProxyType({name: statement for name, statement, _ in TABLE})
"""Each invariant in a sentence."""


def invariants_of(clauses: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """The invariants with at least one of these clauses, each with the given clauses that belong to it.

    Raises ``KeyError`` for a number that no clause has.
    """
    for number in clauses:
        CLAUSES[number]
    found = {name: tuple(number for number in numbers if number in clauses) for name, numbers in INVARIANTS.items()}
    return MappingProxyType({name: numbers for name, numbers in found.items() if numbers})


assert len(INVARIANTS) == len(TABLE), "names are unique"
assert len(CLAUSES) == sum(len(clauses) for _, _, clauses in TABLE), "a clause belongs to one invariant"
assert CLAUSES.keys() == FORMULAS.keys(), "every clause has a formula, and every formula a clause"

"""One vocabulary for everything that judges: the invariants by name, and the clauses they consist of by number.

Witnesses are independent statements of the same guarantees: the online checker (:mod:`scenarios.checker`), the Spark invariants
(``spark_analysis.invariants``), the guarantees of the machines' worlds (:mod:`scenarios.machines`), and the stage, which notices
what never ends. They share no code; what they share is this table, so that a name means the same wherever it is reported. Each
witness declares at itself which clauses it judges, and each planted defect (:mod:`scenarios.mutants`) which ones it breaks;
docs/reference/invariants.md is made of all three.

A clause has a number, a statement and a formula, and belongs to one invariant. Formulas are in the notation of
docs/reference/invariants.md,
over the events of a history (docs/reference/history-format.md); to a world of machines, a call of a port is the event of
that name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from scenarios.clause_formulas import FORMULAS
from scenarios.clause_table import TABLE

__all__ = ["CLAUSES", "INVARIANTS", "STATEMENTS", "Clause", "invariants_of"]


class Clause(NamedTuple):
    """The invariant under whose name a violation is reported, what the clause says, and the same as a formula."""

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
"""The names under which violations are reported, each with the clauses it stands for; the most important first."""

STATEMENTS: Final[Mapping[str, str]] = MappingProxyType({name: statement for name, statement, _ in TABLE})
"""Each invariant in a sentence."""


def invariants_of(clauses: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """The invariants that consist of these clauses, in part at least, each with those of them that belong to it.

    ``KeyError`` for a number that no clause has.
    """
    for number in clauses:
        CLAUSES[number]
    found = {name: tuple(number for number in numbers if number in clauses) for name, numbers in INVARIANTS.items()}
    return MappingProxyType({name: numbers for name, numbers in found.items() if numbers})


assert len(INVARIANTS) == len(TABLE), "names are unique"
assert len(CLAUSES) == sum(len(clauses) for _, _, clauses in TABLE), "a clause belongs to one invariant"
assert CLAUSES.keys() == FORMULAS.keys(), "no formula is left over"

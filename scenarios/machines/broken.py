"""How a broken clause is told by a world of machines."""

from __future__ import annotations

from scenarios.clauses import CLAUSES

__all__ = ["BrokenClause"]


class BrokenClause(AssertionError):
    """A clause does not hold after the last move; ``clause`` is its number, ``witness`` says how."""

    def __init__(self, clause: str, witness: str) -> None:
        self.clause = clause
        self.witness = witness
        super().__init__(f"{self.invariant} ({clause}): {witness}")

    @property
    def invariant(self) -> str:
        """The invariant that the clause belongs to."""
        return CLAUSES[self.clause].invariant

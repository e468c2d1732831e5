"""The errors by which a world of machines reports a broken clause."""

from __future__ import annotations

from scenarios.clauses import CLAUSES

__all__ = ["BrokenAssertion", "BrokenClause"]


class BrokenClause(AssertionError):
    """A clause does not hold after the last move; ``clause`` is its number, ``witness`` the explanation."""

    def __init__(self, clause: str, witness: str) -> None:
        self.clause = clause
        self.witness = witness
        super().__init__(f"{self.name}: {witness}")

    @property
    def invariant(self) -> str:
        """The invariant that the clause belongs to."""
        return CLAUSES[self.clause].invariant

    @property
    def name(self) -> str:
        """Invariant and clause, for people."""
        return f"{self.invariant} ({self.clause})"


class BrokenAssertion(BrokenClause):
    """An assertion of a machine failed: its state is inconsistent. No clause belongs to that."""

    def __init__(self, witness: str) -> None:
        super().__init__("", witness)

    @property
    def invariant(self) -> str:
        """Always empty."""
        return ""

    @property
    def name(self) -> str:
        """For people."""
        return "an assertion of a machine"

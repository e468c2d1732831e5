"""What runs are held to beside the clauses over their histories: that things end.

A history cannot tell what would have come of a run that was stopped; the stage can, because it heals everything and waits.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ADD_RESOLVES", "CLAUSES", "EVENTUALLY_CLOSED", "StuckError"]

#: With everything healed, a ledger can be recovered and read.
EVENTUALLY_CLOSED: Final = "L1"
#: With nothing in its way, an append ends.
ADD_RESOLVES: Final = "L2"
CLAUSES: Final = (EVENTUALLY_CLOSED, ADD_RESOLVES)
"""The numbers of the clauses that the stage judges."""


class StuckError(Exception):
    """Everything was healed, and still something does not end: liveness is broken; ``clause`` is its number."""

    def __init__(self, ledger_id: int, problem: str, clause: str = EVENTUALLY_CLOSED) -> None:
        super().__init__(f"ledger {ledger_id}: {problem}")
        self.ledger_id = ledger_id
        self.problem = problem
        self.clause = clause

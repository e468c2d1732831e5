"""Liveness: the clauses that the stage checks, because a history cannot show whether an operation would have ended later.

At the end of a run the stage heals every fault and waits; an operation that does not end then breaks its clause.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ADD_RESOLVES", "CLAUSES", "EVENTUALLY_CLOSED", "StuckError"]

#: After all faults have ended, a ledger can be recovered and read.
EVENTUALLY_CLOSED: Final = "L1"
#: After all faults have ended, every append ends.
ADD_RESOLVES: Final = "L2"
CLAUSES: Final = (EVENTUALLY_CLOSED, ADD_RESOLVES)
"""The numbers of the clauses that the stage checks."""


class StuckError(Exception):
    """An operation did not end after all faults had ended; ``clause`` is the number of the broken clause."""

    def __init__(self, ledger_id: int, problem: str, clause: str = EVENTUALLY_CLOSED) -> None:
        super().__init__(f"ledger {ledger_id}: {problem}")
        self.ledger_id = ledger_id
        self.problem = problem
        self.clause = clause

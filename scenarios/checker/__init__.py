"""The online checker: an independent witness that judges a run by its events alone.

It imports nothing of the code it judges, neither the client nor the bookies; it restates the few rules it needs. What it
looks for are the clauses of the protocol's list of invariants (:data:`CLAUSES`), reported under the names of the invariants
they make up (:data:`INVARIANTS`). The families that judge them say in their docstrings why they never accuse a correct run.
"""

from scenarios.checker.online import CLAUSES, FAMILIES, INVARIANTS, OnlineChecker

__all__ = ["CLAUSES", "FAMILIES", "INVARIANTS", "OnlineChecker"]

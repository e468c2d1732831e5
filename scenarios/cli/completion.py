"""What a shell completes in ``bk-chaos`` and ``bk-verify``: scenarios, plans, defects, clauses, invariants."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["complete_clause", "complete_invariant", "complete_mutant", "complete_plan", "complete_scenario"]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def complete_scenario(incomplete: str) -> list[str]:
    """The names of scenarios and plans."""
    from scenarios.library import SCENARIOS  # noqa: PLC0415  most commands complete nothing
    from scenarios.plan.named import plan_names  # noqa: PLC0415

    return _beginning(incomplete, dict.fromkeys((*SCENARIOS, *plan_names())))


def complete_plan(incomplete: str) -> list[str]:
    """The names of plans."""
    from scenarios.plan.named import plan_names  # noqa: PLC0415  most commands complete nothing

    return _beginning(incomplete, plan_names())


def complete_mutant(incomplete: str) -> list[str]:
    """The names of defects that can be planted."""
    from scenarios.mutants import MUTANTS  # noqa: PLC0415  most commands complete nothing

    return _beginning(incomplete, MUTANTS)


def complete_invariant(incomplete: str) -> list[str]:
    """The names of invariants."""
    from scenarios.checker import INVARIANTS  # noqa: PLC0415  most commands complete nothing

    return _beginning(incomplete, INVARIANTS)


def complete_clause(incomplete: str) -> list[str]:
    """The numbers of clauses."""
    from scenarios.clauses import CLAUSES  # noqa: PLC0415  most commands complete nothing

    return _beginning(incomplete, CLAUSES)

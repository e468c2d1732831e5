"""What all operations of programs have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from scenarios.plan.errors import PlanError

__all__ = ["ENTRIES_MAX", "ClientOperation", "within"]

#: What one operation appends, publishes or reads at most.
ENTRIES_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class ClientOperation:
    """One call of an application, or several of the same sort."""

    #: The word that an operation's line begins with.
    verb: ClassVar[str]


def within(name: str, value: int, low: int, high: int) -> None:
    """:class:`PlanError` unless ``value`` is in the range."""
    if not low <= value <= high:
        raise PlanError(f"expected {name} from {low} to {high}, found {value}")

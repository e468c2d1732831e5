"""Triggers: when a step of a plan is taken, in seconds of the run or in the vocabulary of histories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from scenarios.history import FIELDS, KINDS, Event, FieldType
from scenarios.plan.errors import PlanError
from scenarios.plan.words import check_name

__all__ = ["At", "Condition", "Trigger", "When"]

_LEDGER: Final = "ledger"
_TYPES: Final = {FieldType.LONG: int, FieldType.STRING: str, FieldType.BOOLEAN: bool}


@dataclass(frozen=True, slots=True)
class At:
    """``time_s`` after the bookies are up; with ``times`` above 1 again every ``every_s``."""

    time_s: float
    every_s: float = 1.0
    times: int = 1

    def __post_init__(self) -> None:
        if not (self.time_s >= 0 and self.every_s > 0 and self.times >= 1):
            raise PlanError(f"expected a time >= 0, every > 0 and times >= 1, found {self}")


@dataclass(frozen=True, slots=True)
class Condition:
    """A field of an event with its value; ``ledger`` has the ledger's name in the plan."""

    field: str
    value: int | str | bool

    def __post_init__(self) -> None:
        wanted = str if self.field == _LEDGER else _TYPES.get(FIELDS[self.field]) if self.field in FIELDS else None
        if wanted is None:
            raise PlanError(f"expected a field of an event, found {self.field!r}")
        if type(self.value) is not wanted:
            raise PlanError(f"expected {self.field}=... of type {wanted.__name__}, found {self.value!r}")
        if isinstance(self.value, str):
            for name in self.value.split(","):
                check_name(name, self.field, is_host=self.field == "bookie")


@dataclass(frozen=True, slots=True)
class When:
    """Right after the ``nth`` event of a kind by ``actor`` (anyone if empty) that meets all conditions, ``after_s`` later.

    With ``times`` above 1 again after every further ``nth`` one. A run in which it never comes proves nothing, unless ``maybe``.
    """

    kind: str
    actor: str = ""
    nth: int = 1
    times: int = 1
    after_s: float = 0.0
    maybe: bool = False
    where: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", str(self.kind))  # a member of the enumeration would be printed as one
        if self.kind not in KINDS:
            raise PlanError(f"expected a kind of event, found {self.kind!r}")
        if self.actor:
            check_name(self.actor, "an actor", is_host=True)
        if not (self.nth >= 1 and self.times >= 1 and self.after_s >= 0):
            raise PlanError(f"expected nth >= 1, times >= 1 and after >= 0, found {self}")
        for condition in self.where:
            if condition.field != _LEDGER and condition.field not in KINDS[self.kind]:
                raise PlanError(f"expected a field of {self.kind}, found {condition.field!r}")

    def matches(self, event: Event, ledgers: Mapping[str, int], place: Callable[[str], str]) -> bool:
        """Whether the event is of the kind, the actor and the conditions.

        ``ledgers`` has the ids of the plan's ledgers, ``place`` gives the host that a name stands for.
        """
        if event.kind != self.kind or (self.actor and place(self.actor) != event.actor):
            return False
        for condition in self.where:
            wanted = condition.value
            if condition.field == _LEDGER:
                if event.ledger != ledgers.get(str(wanted)):
                    return False
            elif event.fields[condition.field] != (place(wanted) if isinstance(wanted, str) else wanted):
                return False
        return True


Trigger = At | When

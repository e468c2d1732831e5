"""What a situation is: a named question about an event and what was known before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import eq
from typing import Any

from scenarios.history import Event, Kind
from scenarios.situations.facts import LedgerSoFar, RunSoFar

__all__ = ["Occasion", "Situation", "SituationFamily"]


class Occasion:
    """An event, the facts before it about its ledger, and those about the run.

    ``entry`` is the entry that the event is about, where it is about one. A run has one of these, which is filled for each event.
    """

    __slots__ = ("actor", "entry", "event", "fields", "ledger", "run")

    actor: str
    entry: int
    event: Event
    fields: Mapping[str, Any]
    ledger: LedgerSoFar

    def __init__(self, run: RunSoFar) -> None:
        self.run = run


@dataclass(frozen=True, slots=True)
class Situation:
    """A situation: the kinds of events that may bring it about, what has to be true of their fields, and all else."""

    name: str
    meaning: str
    kinds: tuple[Kind, ...]
    where: Mapping[str, Callable[[Any], bool]]
    is_met: Callable[[Occasion], bool]


class SituationFamily(list[Situation]):
    """Situations of one sort, in the order in which they are declared."""

    def on(self, *kinds: Kind, **where: Any) -> Callable[[Callable[[Occasion], bool]], Callable[[Occasion], bool]]:
        """Declare a situation that events of these kinds may bring about, unless ``where`` rules them out.

        ``where`` gives, for fields that have few values, the value, or a function of it that has to be true. Where True or False
        is wanted, what is unknown counts as false. The function that is declared is asked only if all of that holds.
        """
        conditions = {name: _condition(wanted) for name, wanted in where.items()}

        def declare(is_met: Callable[[Occasion], bool]) -> Callable[[Occasion], bool]:
            meaning = " ".join((is_met.__doc__ or "").split()).rstrip(".")
            assert meaning, "a situation has a meaning"
            name = is_met.__name__.replace("_", "-")
            self.append(Situation(name, meaning[0].lower() + meaning[1:], kinds, conditions, is_met))
            return is_met

        return declare


def _condition(wanted: Any) -> Callable[[Any], bool]:
    if callable(wanted):
        condition: Callable[[Any], bool] = wanted
        return condition
    if isinstance(wanted, bool):
        return lambda value: bool(value) is wanted
    return partial(eq, wanted)

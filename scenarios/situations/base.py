"""What a situation is: a named question about an event and what was known before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scenarios.history import Event, Kind
from scenarios.situations.facts import LedgerSoFar, RunSoFar

__all__ = ["Occasion", "Situation", "SituationFamily"]


@dataclass(slots=True)
class Occasion:
    """An event, the facts before it about its ledger, and those about the run."""

    event: Event
    fields: Mapping[str, Any]
    ledger: LedgerSoFar
    run: RunSoFar

    @property
    def actor(self) -> str:
        """Whose event it is."""
        return self.event.actor

    @property
    def entry(self) -> int:
        """The entry that it is about."""
        found: int = self.fields["entry"]
        return found


@dataclass(frozen=True, slots=True)
class Situation:
    """A situation, and the kinds of events that may bring it about."""

    name: str
    meaning: str
    kinds: tuple[Kind, ...]
    is_met: Callable[[Occasion], bool]


class SituationFamily(list[Situation]):
    """Situations of one sort, in the order in which they are declared."""

    def on(self, *kinds: Kind) -> Callable[[Callable[[Occasion], bool]], Callable[[Occasion], bool]]:
        """Declare a situation that events of these kinds may bring about."""

        def declare(is_met: Callable[[Occasion], bool]) -> Callable[[Occasion], bool]:
            meaning = " ".join((is_met.__doc__ or "").split()).rstrip(".")
            assert meaning, "a situation has a meaning"
            self.append(Situation(is_met.__name__.replace("_", "-"), meaning[0].lower() + meaning[1:], kinds, is_met))
            return is_met

        return declare

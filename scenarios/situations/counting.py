"""Counting the situations of a history while it is recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from scenarios.history import Event
from scenarios.situations import at_bookies, at_metadata, clocks, reading, recovering, writing
from scenarios.situations.base import Occasion
from scenarios.situations.facts import RunSoFar

__all__ = ["SITUATIONS", "Situations"]

_FAMILIES: Final = (
    writing.FAMILY,
    recovering.FAMILY,
    reading.FAMILY,
    at_bookies.FAMILY,
    at_metadata.FAMILY,
    clocks.FAMILY,
)

SITUATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {situation.name: situation.meaning for family in _FAMILIES for situation in family}
)
"""Every situation with its meaning."""

assert len(SITUATIONS) == sum(map(len, _FAMILIES)), "names are unique"


def _by_kind() -> dict[str, tuple[tuple[str, Callable[[Occasion], bool]], ...]]:
    known: dict[str, list[tuple[str, Callable[[Occasion], bool]]]] = {}
    for family in _FAMILIES:
        for situation in family:
            for kind in situation.kinds:
                known.setdefault(kind, []).append((situation.name, situation.is_met))
    return {kind: tuple(situations) for kind, situations in known.items()}


_BY_KIND: Final = _by_kind()


class Situations:
    """Counts the situations of one history, as a listener of its writer. ``met`` has a count for each that was met."""

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()
        self._facts = RunSoFar()

    def feed(self, event: Event) -> None:
        """Take in the next event."""
        ledger = self._facts.ledger(event.ledger)
        situations = _BY_KIND.get(event.kind)
        if situations is not None:
            moment = Occasion(event, event.fields, ledger, self._facts)
            for name, is_met in situations:
                if is_met(moment):
                    self.met[name] += 1
        self._facts.take(event, ledger)

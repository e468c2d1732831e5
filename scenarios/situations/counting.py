"""Counting the situations of a history while it is recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final

from scenarios.history import Event
from scenarios.situations import at_bookies, at_metadata, clocks, reading, recovering, writing
from scenarios.situations.base import Occasion, Situation
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

assert len(SITUATIONS) == len({situation.is_met for family in _FAMILIES for situation in family}), "names are unique"

#: For so many combinations of values it is remembered which situations they leave.
_REMEMBERED_MAX: Final = 1_000

_Asked = tuple[tuple[str, Callable[[Occasion], bool]], ...]


class _OfKind:
    """The situations that events of one kind may bring about. Which of them are asked depends on some fields of the event."""

    __slots__ = ("_fields", "_situations", "known", "values_of")

    def __init__(self, situations: list[Situation]) -> None:
        self._situations = situations
        self._fields = tuple(sorted({name for situation in situations for name in situation.where}))
        #: What takes the values of these fields out of those of an event; None if none has to be looked at.
        self.values_of: Callable[[Mapping[str, Any]], Any] | None = itemgetter(*self._fields) if self._fields else None
        #: By these values, the situations that they leave.
        self.known: dict[Any, _Asked] = {} if self._fields else {(): self._left(())}

    def learn(self, values: Any) -> _Asked:
        """The situations that these values leave; remembered."""
        if len(self.known) >= _REMEMBERED_MAX:
            self.known.clear()
        found = self.known[values] = self._left(values if len(self._fields) > 1 else (values,))
        return found

    def _left(self, values: tuple[Any, ...]) -> _Asked:
        value_of = dict(zip(self._fields, values, strict=True))
        return tuple(
            (situation.name, situation.is_met)
            for situation in self._situations
            if all(holds(value_of[name]) for name, holds in situation.where.items())
        )


def _by_kind() -> dict[str, _OfKind]:
    known: dict[str, list[Situation]] = {}
    for family in _FAMILIES:
        for situation in family:
            for kind in situation.kinds:
                known.setdefault(kind, []).append(situation)
    return {kind: _OfKind(situations) for kind, situations in known.items()}


_BY_KIND: Final = _by_kind()


class Situations:
    """Counts the situations of one history, as a listener of its writer. ``met`` has a count for each that was met."""

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()
        self._facts = RunSoFar()
        self._ledgers = self._facts.ledgers
        self._takers = self._facts.takers
        self._moment = Occasion(self._facts)

    def feed(self, event: Event) -> None:
        """Take in the next event."""
        _, _, actor, kind, ledger_id, fields = event
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            ledger = self._facts.ledger(ledger_id)
        of_kind = _BY_KIND.get(kind)
        if of_kind is not None:
            values = () if of_kind.values_of is None else of_kind.values_of(fields)
            asked = of_kind.known.get(values)
            if asked is None:
                asked = of_kind.learn(values)
            if asked:
                moment = self._moment
                moment.event, moment.fields, moment.ledger, moment.actor = event, fields, ledger, actor
                if "entry" in fields:
                    moment.entry = fields["entry"]
                for name, is_met in asked:
                    if is_met(moment):
                        self.met[name] += 1
        take = self._takers.get(kind)
        if take is not None:
            take(event, ledger)

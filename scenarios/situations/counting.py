"""Counting the situations of a history while it is recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final

from scenarios.history import Event
from scenarios.situations import at_bookies, at_metadata, clocks, reading, recovering, writing
from scenarios.situations.base import Occasion, Situation
from scenarios.situations.facts import LedgerSoFar, RunSoFar

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
"""Situations to be asked about an event, with their names."""


class _OfKind:
    """The situations that events of one kind may bring about; ``known`` has them by the values of the fields that matter."""

    __slots__ = ("_fields", "_situations", "known", "values_of")

    def __init__(self, situations: Sequence[Situation] = ()) -> None:
        self.known: dict[Any, _Asked] = {}
        self._situations = situations
        self._fields = tuple(sorted({name for situation in situations for name in situation.where}))
        #: What takes these values out of the fields of an event; None if no field matters.
        self.values_of: Callable[[Mapping[str, Any]], Any] | None = itemgetter(*self._fields) if self._fields else None

    def find(self, values: Any) -> _Asked:
        """The situations that these values leave, which are known from now on."""
        if len(self.known) >= _REMEMBERED_MAX:
            self.known.clear()
        found = self.known[values] = self.left(values if len(self._fields) > 1 else (values,))
        return found

    def left(self, values: Sequence[Any] = ()) -> _Asked:
        """The situations that these values leave."""
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
#: The same of kinds of events that bring no situation about.
_NONE: Final = _OfKind()
#: By kind, what is asked whatever the fields say, where no field matters.
_ALWAYS_ASKED: Final = {kind: of_kind.left() for kind, of_kind in _BY_KIND.items() if of_kind.values_of is None}

_Route = tuple[Callable[[Mapping[str, Any]], Any] | None, _OfKind, _Asked, Callable[[Event, LedgerSoFar], None] | None]
"""Of a kind of event: the fields that matter, what is asked by their values, or if none matters, and what makes it a fact."""


class Situations:
    """Counts the situations of one history, as a reader of its writer. ``met`` has a count for each that was met."""

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()
        self._facts = RunSoFar()
        self._moment = Occasion(self._facts)
        takers = self._facts.takers()
        self._routes: dict[str, _Route] = {}
        for kind in {**_BY_KIND, **takers}:
            of_kind = _BY_KIND.get(kind, _NONE)
            self._routes[kind] = of_kind.values_of, of_kind, _ALWAYS_ASKED.get(kind, ()), takers.get(kind)

    def feed(self, event: Event) -> None:
        """Take in the next event."""
        self.feed_all((event,))

    def feed_all(self, events: Sequence[Event]) -> None:
        """Take in the next events: faster than one by one."""
        routes, ledgers, moment = self._routes, self._facts.ledgers, self._moment
        for event in events:
            route = routes.get(event.kind)
            if route is None:
                continue
            values_of, of_kind, asked, take = route
            fields = event.fields
            try:
                ledger = ledgers[event.ledger]
            except KeyError:
                ledger = ledgers[event.ledger] = LedgerSoFar()
            if values_of is not None:
                values = values_of(fields)
                try:
                    asked = of_kind.known[values]
                except KeyError:
                    asked = of_kind.find(values)
            if asked:
                moment.event, moment.fields, moment.ledger, moment.actor = event, fields, ledger, event.actor
                if "entry" in fields:
                    moment.entry = fields["entry"]
                for name, is_met in asked:
                    if is_met(moment):
                        self.met[name] += 1
            if take is not None:
                take(event, ledger)

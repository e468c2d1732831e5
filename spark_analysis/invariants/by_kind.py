"""The events kept apart by kind, so that a question about one kind does not pass over all others.

Each question is about a few kinds of fifty, and a row of the table of all events has a column for every field of every kind. So a
relation is kept for each set of kinds that are asked for together, in the columns of these kinds: few rows, and short ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from threading import Lock
from typing import Final

from pyspark.sql import DataFrame

from scenarios.history import KINDS, Kind
from spark_analysis.invariants.expressions import LEDGER_KEY, is_kind
from spark_analysis.invariants.logs import LOG_KINDS

__all__ = ["KIND_SETS", "LOGS", "RARE", "EventsByKind", "KindSet"]

KindSet = frozenset[Kind]

#: The events of logs.
LOGS: Final[KindSet] = frozenset(LOG_KINDS)

_FREQUENT: Final[tuple[KindSet, ...]] = (
    frozenset({Kind.ADD_SEND}),
    frozenset({Kind.ADD_RESP}),
    frozenset({Kind.BK_STORE, Kind.BK_LOSS}),
    frozenset({Kind.BK_SYNC}),
    frozenset({Kind.APP_ADD, Kind.APP_ACK, Kind.APP_FAIL, Kind.APP_CANCEL}),
    frozenset({Kind.READ_RESULT}),
    frozenset({Kind.READ_SEND, Kind.READ_RESP, Kind.REC_READ_SEND, Kind.REC_READ_RESP}),
    frozenset({Kind.BK_RECV}),
    frozenset({Kind.BK_ANSWER}),
    frozenset({Kind.BK_LAC, Kind.LAC_ADV}),
)

#: Kinds in a set of frequent ones that are few in every history, and belong to the rare ones as well.
_RARE_AS_WELL: Final = frozenset({Kind.APP_FAIL, Kind.APP_CANCEL, Kind.REC_READ_SEND, Kind.REC_READ_RESP})

#: The events that do not occur once or more per entry, to be looked at one by one.
RARE: Final[KindSet] = (
    frozenset(Kind).difference(*_FREQUENT, {Kind.LOG_PUB, Kind.LOG_ACK, Kind.LOG_READ}) | _RARE_AS_WELL
)

#: What is kept apart. A kind may be in several sets; the first one that has all kinds which are asked for is looked at.
KIND_SETS: Final[tuple[KindSet, ...]] = (*_FREQUENT, LOGS, RARE)

#: The columns that are there for every kind.
_COMMON: Final = frozenset({*LEDGER_KEY, "seq", "time_us", "actor", "kind"})


class EventsByKind:
    """Some events, a relation for each of :data:`KIND_SETS`: made when it is first asked for, once, whichever threads ask.

    Each is kept by ``keep``.
    """

    def __init__(self, events: DataFrame, keep: Callable[[DataFrame], DataFrame]) -> None:
        self._events = events
        self._keep = keep
        self._alone = Lock()
        self._made: dict[KindSet, DataFrame] = {}

    def of_set(self, kinds: KindSet) -> DataFrame:
        """All events of one of :data:`KIND_SETS`, in the columns that its kinds have, of those that were read."""
        with self._alone:
            if kinds not in self._made:
                fields = _COMMON.union(*(KINDS[kind] for kind in kinds))
                columns = [name for name in self._events.columns if name in fields]
                self._made[kinds] = self._keep(self._events.filter(is_kind(*_in_order(kinds))).select(*columns))
            return self._made[kinds]

    def of(self, kinds: Sequence[Kind]) -> DataFrame:
        """The events of ``kinds``; of several sets united, and a column that one of them does not have is null there."""
        wanted = frozenset(kinds)
        for together in KIND_SETS:
            if wanted <= together:
                rows = self.of_set(together)
                return rows if wanted == together else rows.filter(is_kind(*_in_order(wanted)))
        parts, left = [], set(wanted)
        for together in KIND_SETS:
            if here := together & left:
                parts.append(self.of(_in_order(here)))
                left -= here
        return reduce(lambda united, part: united.unionByName(part, allowMissingColumns=True), parts)


def _in_order(kinds: Iterable[Kind]) -> list[Kind]:
    """``kinds`` in the order of the vocabulary, so that the same question has the same plan in every process."""
    return sorted(kinds, key=list(Kind).index)

"""Statistics in memory: for tests, for a report at the end of a command, and as the storage of other ways to show them.

Everything is a number in a dict. A client calls from its event loop; reading from another thread, as a metrics server does,
is safe and sees each number as it is at that moment, without an order between two numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from bkclient.errors import Code
from bkclient.observability.latencies import Latencies
from bkclient.observability.stats import METRICS, Metric, MetricKind

__all__ = ["OTHER_BOOKIES", "MemoryStats", "Operations"]

#: What further bookies are counted as once there are too many to keep apart.
OTHER_BOOKIES: Final = "other"

Key = tuple[str, str | None]
"""A name, and the bookie it is about, None if it is about none."""


@dataclass(slots=True)
class Operations:
    """Everything about the operations of one name."""

    succeeded: Latencies = field(default_factory=Latencies)
    failed: Latencies = field(default_factory=Latencies)
    #: How many failed with each code.
    codes: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Count:
    times: int = 0
    total: int = 0


class MemoryStats:
    """Remembers numbers; it implements both interfaces of :mod:`bkclient.observability.stats`.

    May be shared by several clients, whose numbers then add up. ``clock``, in seconds, is that of the running event loop
    unless another is given. At most ``max_bookies`` bookies are kept apart, in the order in which they appear; what is
    beyond is counted under :data:`OTHER_BOOKIES`, so that a cluster whose bookies come and go does not fill the memory.
    """

    def __init__(self, *, clock: Callable[[], float] | None = None, max_bookies: int = 1000) -> None:
        self._clock = clock or _loop_time
        self._max_bookies = max_bookies
        self._bookies: dict[str, None] = {}
        self._operations: dict[Key, Operations] = {}
        self._events: dict[Key, _Count] = {}
        self._levels: dict[Key, int] = {}

    # What a client calls -----------------------------------------------------------------------------------------

    def now(self) -> float:
        """See :class:`~bkclient.observability.stats.ClientStats`."""
        return self._clock()

    def operation(self, name: str, seconds: float, code: int) -> None:
        """See :class:`~bkclient.observability.stats.ClientStats`."""
        self._operation((name, None), seconds, code)

    def event(self, name: str, amount: int = 1) -> None:
        """See :class:`~bkclient.observability.stats.ClientStats`."""
        self._event((name, None), amount)

    def level(self, name: str, change: int) -> None:
        """See :class:`~bkclient.observability.stats.ClientStats`."""
        self._levels[name, None] = self._levels.get((name, None), 0) + change

    def request(self, bookie_id: str, name: str, seconds: float, code: int) -> None:
        """See :class:`~bkclient.observability.stats.BookieStats`."""
        self._operation((name, self._known(bookie_id)), seconds, code)

    def bookie_event(self, bookie_id: str, name: str, amount: int = 1) -> None:
        """See :class:`~bkclient.observability.stats.BookieStats`."""
        self._event((name, self._known(bookie_id)), amount)

    def bookie_level(self, bookie_id: str, name: str, change: int) -> None:
        """See :class:`~bkclient.observability.stats.BookieStats`."""
        key = (name, self._known(bookie_id))
        self._levels[key] = self._levels.get(key, 0) + change

    def _operation(self, key: Key, seconds: float, code: int) -> None:
        operations = self._operations.get(key)
        if operations is None:
            operations = self._operations[key] = Operations()
        if code == Code.OK:
            operations.succeeded.add(seconds)
        else:
            operations.failed.add(seconds)
            operations.codes[int(code)] = operations.codes.get(int(code), 0) + 1

    def _event(self, key: Key, amount: int) -> None:
        count = self._events.get(key)
        if count is None:
            count = self._events[key] = _Count()
        count.times += 1
        count.total += amount

    def _known(self, bookie_id: str) -> str:
        if bookie_id in self._bookies:
            return bookie_id
        if len(self._bookies) >= self._max_bookies:
            return OTHER_BOOKIES
        self._bookies[bookie_id] = None
        return bookie_id

    # What is known -----------------------------------------------------------------------------------------------

    def operations_of(self, name: str, bookie_id: str | None = None) -> Operations:
        """Everything about the operations ``name``, or the requests ``name`` to a bookie."""
        return self._operations.get((name, bookie_id), Operations())

    def total_of(self, name: str, bookie_id: str | None = None) -> int:
        """The sum of the amounts of the events ``name``."""
        return self._events.get((name, bookie_id), _Count()).total

    def level_of(self, name: str, bookie_id: str | None = None) -> int:
        """How many there are at present."""
        return self._levels.get((name, bookie_id), 0)

    def all_operations(self) -> Iterator[tuple[Metric, str | None, Operations]]:
        """Operations and requests that ended at least once, by name and bookie."""
        for name, bookie_id in _sorted(self._operations):
            yield metric_of(name, MetricKind.OPERATION), bookie_id, self._operations[name, bookie_id]

    def all_events(self) -> Iterator[tuple[Metric, str | None, int, int]]:
        """Events that happened, by name and bookie: how often, and the sum of their amounts."""
        for name, bookie_id in _sorted(self._events):
            count = self._events[name, bookie_id]
            yield metric_of(name, MetricKind.EVENT), bookie_id, count.times, count.total

    def all_levels(self) -> Iterator[tuple[Metric, str | None, int]]:
        """Levels that ever changed, by name and bookie."""
        for name, bookie_id in _sorted(self._levels):
            yield metric_of(name, MetricKind.LEVEL), bookie_id, self._levels[name, bookie_id]

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it: full metric names, with the bookie in braces; durations in milliseconds."""
        operations = {
            _label(metric, bookie_id): {
                "succeeded": ended.succeeded.count,
                "failed": ended.failed.count,
                "codes": {str(code): count for code, count in sorted(ended.codes.items())},
                "mean_ms": round(ended.succeeded.mean_ms, 3),
                "p50_ms": round(ended.succeeded.quantile_ms(0.5), 3),
                "p99_ms": round(ended.succeeded.quantile_ms(0.99), 3),
                "max_ms": round(ended.succeeded.max_ms, 3),
            }
            for metric, bookie_id, ended in self.all_operations()
        }
        return {
            "operations": operations,
            "events": {_label(metric, bookie_id): total for metric, bookie_id, _, total in self.all_events()},
            "levels": {_label(metric, bookie_id): level for metric, bookie_id, level in self.all_levels()},
        }

    def as_text(self) -> str:
        """Everything, one line each, for people."""
        everything = self.as_dict()
        lines = [
            f"{name}: {op['succeeded']} ok, {op['failed']} failed"
            + "".join(f", {count} with code {code}" for code, count in op["codes"].items())
            + f"; mean {op['mean_ms']} ms, median {op['p50_ms']} ms, 99% {op['p99_ms']} ms, max {op['max_ms']} ms"
            for name, op in everything["operations"].items()
        ]
        lines += [f"{name}: {value}" for kind in ("events", "levels") for name, value in everything[kind].items()]
        return "\n".join(lines)


def metric_of(name: str, kind: MetricKind) -> Metric:
    """What is declared about ``name``; an undeclared name is shown as it is."""
    return METRICS.get(name) or Metric(name, kind, "not declared", is_bookkeepers=False)


def _label(metric: Metric, bookie_id: str | None) -> str:
    return metric.full_name if bookie_id is None else f"{metric.full_name}{{{bookie_id}}}"


def _sorted(keys: dict[Key, Any]) -> list[Key]:
    # sorted() copies before it calls anything, so the event loop may add keys while another thread goes through them.
    return sorted(keys, key=lambda key: (key[0], key[1] or ""))


def _loop_time() -> float:
    return asyncio.get_running_loop().time()

"""All families of logs, and which events they get."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from scenarios.checker.base import Handler
from scenarios.checker.logs.base import LogFamily, LogReport
from scenarios.checker.logs.compacted_reads import LogCompactedReads
from scenarios.checker.logs.compactions import LogCompactions
from scenarios.checker.logs.consumers import LogConsumers
from scenarios.checker.logs.cursors import LogCursors
from scenarios.checker.logs.delivery import LogDelivery
from scenarios.checker.logs.ledgers import LogLedgers
from scenarios.checker.logs.order import LogOrder
from scenarios.checker.logs.owners import LogOwners
from scenarios.checker.logs.times import LogTimes
from scenarios.checker.logs.trimming import LogTrimming
from scenarios.history.schema import Event, Kind

__all__ = ["LOG_FAMILIES", "LogsChecker"]

LOG_FAMILIES: Final[tuple[type[LogFamily], ...]] = (
    LogDelivery,
    LogOrder,
    LogTimes,
    LogLedgers,
    LogOwners,
    LogTrimming,
    LogCursors,
    LogConsumers,
    LogCompactedReads,
    LogCompactions,
)


#: Events that say which ledgers were made for a log.
_OF_LEDGERS: Final = frozenset({Kind.LOG_LEDGER, Kind.LOG_APPEND, Kind.LOG_COMPACT})


class _Log:
    """The families of one log, and the handlers of each kind of event."""

    def __init__(self, report: LogReport) -> None:
        self.families = tuple(family(report) for family in LOG_FAMILIES)
        table: dict[str, list[Handler]] = {}
        for family in self.families:
            for kind, handler in family.handlers().items():
                table.setdefault(kind, []).append(handler)
        self.table: Mapping[str, tuple[Handler, ...]] = {kind: tuple(handlers) for kind, handlers in table.items()}


class LogsChecker:
    """All logs of one history.

    ``ledgers`` are those that were made for a log or a compaction; their events are fed too. ``on_ledger`` is told of each.
    """

    def __init__(self, report: LogReport, on_ledger: Callable[[int], None]) -> None:
        self.ledgers: dict[int, str] = {}
        self._report = report
        self._on_ledger = on_ledger
        self._logs: dict[str, _Log] = {}

    def feed(self, event: Event) -> None:
        """Take in an event of a log."""
        name: str = event.fields["log"]
        log = self._logs.get(name)
        if log is None:
            log = self._logs[name] = _Log(self._report)
        if event.ledger >= 0 and event.kind in _OF_LEDGERS and event.ledger not in self.ledgers:
            self.ledgers[event.ledger] = name
            self._on_ledger(event.ledger)
        for handle in log.table.get(event.kind, ()):
            handle(event)

    def feed_ledger(self, event: Event) -> None:
        """Take in an event of one of :attr:`ledgers`."""
        for handle in self._logs[self.ledgers[event.ledger]].table.get(event.kind, ()):
            handle(event)

    @property
    def families(self) -> Iterator[LogFamily]:
        """The families of all logs."""
        return (family for log in self._logs.values() for family in log.families)

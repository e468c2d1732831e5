"""The base class of the families that judge logs.

As a :class:`~scenarios.checker.base.Family`, but one instance judges one log, and gets the events of the ledgers that were made
for it too. A violation is reported for the ledger that it shows in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from scenarios.checker.base import Handler
from scenarios.history.schema import Event, Kind

__all__ = ["LogFamily", "LogReport", "Place", "place_of", "shown"]

LogReport = Callable[[int, str, str, tuple[int, ...]], None]
"""``(ledger, clause, witness, seqs)``."""

Place = tuple[int, int, int]
"""Where a message is: ledger, entry, and which message of the entry; places of one log sort in its order."""


class LogFamily:
    """Base of the families of logs."""

    #: The numbers of the clauses that the family checks; :mod:`scenarios.clauses` has their statements.
    clauses: ClassVar[tuple[str, ...]]

    def __init__(self, report: LogReport) -> None:
        self.checked = dict.fromkeys(self.clauses, 0)
        self._report = report

    def handlers(self) -> Mapping[Kind, Handler]:
        """The handler of each kind of event that the family needs."""
        raise NotImplementedError

    def broken(self, clause: str, ledger: int, witness: str, *seqs: int) -> None:
        """Report a violation. Only the first one of each clause and ledger is kept."""
        self._report(ledger, clause, witness, tuple(dict.fromkeys(sorted(seqs))))


def place_of(event: Event) -> Place:
    """Where the message of a LOG_ACK or LOG_READ is."""
    return event.ledger, event.fields["entry"], event.fields["batch"]


def shown(place: Place) -> str:
    """A place in words."""
    return ":".join(map(str, place))

"""The base class of invariant families.

A family checks a few related clauses on one ledger. It may read the shared :class:`~scenarios.checker.facts.LedgerFacts`, which
get each event before the family does, and keeps any other state itself. It never changes the facts and never reads another
family.

Three rules apply to a family. It is *sound*: it reports no violation in a correct run, whatever the timing, so it checks nothing
that the history does not determine. It is *fast*: its handlers run for every event of their kinds. It *counts* every check in
``checked``, so a clause that was never checked is visible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["Family", "Handler", "Report"]

Handler = Callable[[Event], None]

Report = Callable[[str, str, tuple[int, ...]], None]
"""``(clause, witness, seqs)``: the clause is broken; ``witness`` is the explanation, ``seqs`` are the events that show it."""


class Family:
    """Base of all families; one instance judges one ledger."""

    #: The numbers of the clauses that the family checks; :mod:`scenarios.clauses` has their statements.
    clauses: ClassVar[tuple[str, ...]]
    #: Whether it has nothing to check of a bookie's requests before any bookie was restarted: until then it is not told of them.
    awaits_restart: ClassVar[bool] = False

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        self.facts = facts
        self.checked = dict.fromkeys(self.clauses, 0)
        self._report = report

    def handlers(self) -> Mapping[Kind, Handler]:
        """The handler of each kind of event that the family needs."""
        raise NotImplementedError

    def broken(self, clause: str, witness: str, *seqs: int) -> None:
        """Report a violation. Only the first one of each clause and ledger is kept."""
        self._report(clause, witness, tuple(dict.fromkeys(sorted(seqs))))

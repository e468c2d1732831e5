"""What an invariant family is.

A family judges one ledger by a few related clauses of the protocol that look at the same events. It may read the shared
:class:`~scenarios.checker.facts.LedgerFacts`, which have taken in the event already when the family sees it, and keeps whatever
else it needs itself. It never changes the facts and never looks at another family.

Three rules for writing one. It must be *sound*: a correct run must never be accused, whatever the timing, so wherever a
history cannot tell, the family lets go. It must be *quick*: its handlers run for every event of their kinds. And it must be
*awake*: it counts each judgement in ``checked``, so that a clause that never had anything to judge is seen to be vacuous.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from scenarios.checker.facts import LedgerFacts
from scenarios.history.schema import Event, Kind

__all__ = ["Family", "Handler", "Report"]

Handler = Callable[[Event], None]

Report = Callable[[str, str, tuple[int, ...]], None]
"""``(clause, witness, seqs)``: the clause is broken, as ``witness`` tells and the events ``seqs`` show."""


class Family:
    """Base of all families; one instance judges one ledger."""

    #: The numbers of the clauses it judges; :mod:`scenarios.clauses` says what they state.
    clauses: ClassVar[tuple[str, ...]]

    def __init__(self, facts: LedgerFacts, report: Report) -> None:
        self.facts = facts
        self.checked = dict.fromkeys(self.clauses, 0)
        self._report = report

    def handlers(self) -> Mapping[Kind, Handler]:
        """Which events the family wants, and who takes them."""
        raise NotImplementedError

    def broken(self, clause: str, witness: str, *seqs: int) -> None:
        """Report a violation. Only the first one of each clause and ledger is kept."""
        self._report(clause, witness, tuple(dict.fromkeys(sorted(seqs))))

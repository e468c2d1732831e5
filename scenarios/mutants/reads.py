"""Defects of reads that a recovery decides by: what answers are taken to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bkclient.ledger import BookieId
from bkclient.protocol.quorum import EXPLICIT_NEGATIVES
from bkclient.protocol.read import EntryRead, ReadOutcome
from scenarios.mutants.base import Mutant, Replacement

__all__ = ["READ_MUTANTS"]


OnReply = Callable[[EntryRead, BookieId, int], ReadOutcome]


def _believing_the_last_answer(on_reply: OnReply) -> OnReply:
    """What the last of all bookies says is the result, as that of an ordinary read once was."""

    def mutated(self: EntryRead, bookie_id: BookieId, code: int) -> ReadOutcome:
        was_waiting = self.outcome is ReadOutcome.WAITING
        on_reply(self, bookie_id, code)
        if self._is_parallel and was_waiting and self.outcome is ReadOutcome.FAILED and code in EXPLICIT_NEGATIVES:
            self.code, self.code_from, self.outcome = code, bookie_id, ReadOutcome.ABSENT
        return self.outcome

    return mutated


READ_MUTANTS: Final = (
    Mutant(
        name="recovery-believes-the-last-answer",
        summary="an entry that recovery can neither find nor rule out ends the ledger if the last bookie to answer denies it",
        clauses=("A1", "E3"),
        world="either-copy",
        in_runs=True,
        past="M15",
        replaces=(Replacement(EntryRead, "on_reply", _believing_the_last_answer),),
    ),
)

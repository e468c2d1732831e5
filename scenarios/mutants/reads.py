"""Defects of reads that a recovery decides by: what its answers are taken to say, and how many it waits for."""

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


def _counting_when_all_have_answered(on_reply: OnReply) -> OnReply:
    """Denials decide when there is nobody left to wait for."""

    def mutated(self: EntryRead, bookie_id: BookieId, code: int) -> ReadOutcome:
        if not self._is_parallel:
            return on_reply(self, bookie_id, code)
        needed, self._negatives_to_deny = self._negatives_to_deny, len(self._replicas) + 1
        outcome = on_reply(self, bookie_id, code)
        self._negatives_to_deny = needed
        if outcome is ReadOutcome.FAILED and len(self.deniers) >= needed:
            self.outcome = ReadOutcome.ABSENT
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
    Mutant(
        name="recovery-waits-for-every-bookie",
        summary="recovery rules no entry out before all bookies have answered (issue 1067)",
        clauses=("L3",),
        in_runs=True,
        past="M50",
        replaces=(Replacement(EntryRead, "on_reply", _counting_when_all_have_answered),),
    ),
)

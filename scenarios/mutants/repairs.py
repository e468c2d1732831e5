"""Defects of repair: what is copied before other bookies take the places of lost ones, and what is stored then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from bkclient.ledger import Fragment, LedgerMetadata
from bkclient.protocol.intents import Choose
from bkclient.repair.fragments import LedgerFragment, ReplaceInFragment
from bkclient.repair.ledger import OpenedLedger
from bkclient.repair.replicator import FragmentReplicator
from scenarios.mutants.base import Function, Mutant, Replacement

__all__ = ["REPAIR_MUTANTS"]

Copy = Callable[..., Awaitable[tuple[int, int]]]


def _copying_nothing(_copy: Copy) -> Copy:
    async def mutated(*_arguments: Any, **_options: Any) -> tuple[int, int]:
        return 0, 0

    return mutated


def _without_the_last_entry(copy: Copy) -> Copy:
    async def mutated(
        self: FragmentReplicator, ledger: OpenedLedger, fragment: LedgerFragment, *arguments: Any, **options: Any
    ) -> tuple[int, int]:
        shorter = replace(fragment, last_entry_id=fragment.last_entry_id - 1)
        return await copy(self, ledger, shorter, *arguments, **options)

    return mutated


def _from_the_front(_applied: Function) -> Function:
    """New bookies take the first positions instead of those that were lost."""

    def mutated(self: ReplaceInFragment, metadata: LedgerMetadata, choose: Choose) -> LedgerMetadata:
        members = list(self.ensemble)
        for place, (_, bookie_id) in enumerate(self.replacements):
            members[place] = bookie_id
        del choose
        fragments = tuple(
            Fragment(f.first_entry_id, tuple(members)) if f.first_entry_id == self.first_entry_id else f
            for f in metadata.fragments
        )
        return replace(metadata, fragments=fragments)

    return mutated


REPAIR_MUTANTS: Final = (
    Mutant(
        name="repair-copies-nothing",
        summary="a repair names new bookies in the metadata and gives them no copies",
        clauses=("A5", "B4"),
        in_runs=True,
        replaces=(Replacement(FragmentReplicator, "_copy", _copying_nothing),),
    ),
    Mutant(
        name="repair-leaves-the-last-entry-out",
        summary="a repair copies all entries of a fragment but the last",
        clauses=("A5", "B4"),
        in_runs=True,
        replaces=(Replacement(FragmentReplicator, "_copy", _without_the_last_entry),),
    ),
    Mutant(
        name="repair-replaces-the-wrong-bookie",
        summary="a repair puts new bookies in the first places of a fragment instead of those that were lost",
        clauses=("A5", "B4"),
        in_runs=True,
        replaces=(Replacement(ReplaceInFragment, "applied", _from_the_front),),
    ),
)

"""Defects in what the options of a writer do. Some are what the Java client does; see docs/reference/better-than-java.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from bkclient.ledger import BookieId, Ensemble
from bkclient.protocol.adds import NewEntry, PendingAdd, PendingAdds
from bkclient.protocol.append import AppendMachine
from bkclient.protocol.force import ForceMachine
from scenarios.mutants.base import Function, Mutant, Replacement

__all__ = ["OPTION_MUTANTS"]


# Deferred sync -----------------------------------------------------------------------------------------------------


def _without_deferred_sync(make: Function) -> Function:
    return lambda self, sizes, ensemble, **_: make(self, sizes, ensemble)


def _with_one_answer_less(start: Function) -> Function:
    def mutated(self: ForceMachine) -> None:
        start(self)
        self._outstanding &= self._outstanding - 1

    return mutated


def _covering_what_came_meanwhile(on_forced: Function) -> Function:
    def mutated(self: AppendMachine, _entry_id: int, _length: int) -> Any:
        return on_forced(self, self.last_add_acknowledged, self.adds.acknowledged_length)

    return mutated


def _always_successful(on_forced: Function) -> Function:
    def mutated(self: AppendMachine, entry_id: int, length: int) -> bool:
        on_forced(self, entry_id, length)
        return True

    return mutated


def _closing_with_all_bytes(close: Function) -> Function:
    def mutated(self: AppendMachine, *arguments: Any) -> None:
        self._deferred.length = self.adds.acknowledged_length
        close(self, *arguments)

    return mutated


def _closing_at_the_sequence_head(close: Function) -> Function:
    def mutated(self: AppendMachine, *arguments: Any) -> None:
        self._deferred.length = self.adds.acknowledged_length
        self.adds.last_add_confirmed = self.adds.last_add_acknowledged
        close(self, *arguments)

    return mutated


def _as_if_sync_were_not_deferred(request: Function) -> Function:
    def mutated(self: AppendMachine, failures: Mapping[int, BookieId], **options: Any) -> None:
        honest = self.options.deferred_sync
        object.__setattr__(self.options, "deferred_sync", False)
        try:
            request(self, failures, **options)
        finally:
            object.__setattr__(self.options, "deferred_sync", honest)  # other writers may share the options

    return mutated


# Given ids ---------------------------------------------------------------------------------------------------------


def _compared_with_the_lac(append_at: Function) -> Function:
    def mutated(self: AppendMachine, entry_id: int, payload: bytes) -> Any:
        honest, self.adds.last_add_acknowledged = self.adds.last_add_acknowledged, self.adds.last_add_confirmed
        try:
            return append_at(self, entry_id, payload)
        finally:
            self.adds.last_add_acknowledged = honest

    return mutated


def _taken_up_to_the_lac(_original: Function) -> Function:
    return lambda self, entry_id: entry_id <= self.adds.last_add_confirmed or entry_id in self.adds.pending


def _completing_above_gaps(_original: Function) -> Function:
    def mutated(self: PendingAdds) -> list[NewEntry]:
        done = [add.entry for add in self.in_id_order() if add.has_quorum]
        for entry in done:
            del self.pending[entry.entry_id]
            self.last_add_acknowledged = self.last_add_confirmed = entry.entry_id
        return done

    return mutated


# Delayed and disabled changes --------------------------------------------------------------------------------------


def _telling_of_one(failures_of: Function) -> Function:
    def mutated(self: PendingAdds, add: PendingAdd) -> dict[int, BookieId]:
        return dict(list(failures_of(self, add).items())[:1])

    return mutated


def _forgetting_failures(switch: Function) -> Function:
    def mutated(self: PendingAdds, *arguments: Any) -> Any:
        for add in self.pending.values():
            add.failed = 0
        return switch(self, *arguments)

    return mutated


def _resending_the_first_only(resend: Function) -> Function:
    def mutated(self: AppendMachine, failed: list[tuple[PendingAdd, dict[int, BookieId]]]) -> None:
        for add, _ in failed:
            add.failed = 0
        resend(self, failed[:1])

    return mutated


def _switching_what_was_replaced_only(switch: Function) -> Function:
    def mutated(self: PendingAdds, ensemble: Ensemble, positions: Iterable[int], *arguments: Any) -> Any:
        replaced = [p for p in positions if ensemble[p] != self.ensemble[p]]
        return switch(self, ensemble, replaced, *arguments)

    return mutated


def _doing_nothing(_original: Function) -> Function:
    return lambda _self: None


def _saying_no(_original: Function) -> Function:
    return lambda *_arguments: False


OPTION_MUTANTS: Final = (
    Mutant(
        name="lac-follows-acks-in-spite-of-deferred-sync",
        summary="with deferred sync the LAC rises with acknowledgements, before anything was forced",
        clauses=("A1", "B4", "D6", "L1"),
        world="deferred-2-2-2",
        in_runs=True,
        replaces=(Replacement(PendingAdds, "__init__", _without_deferred_sync),),
    ),
    Mutant(
        name="fault-domains-ignored",
        summary="an entry is acknowledged by bookies of one fault domain although several are demanded",
        clauses=("A13",),
        world="fault-domains",
        in_runs=True,
        replaces=(Replacement(PendingAdds, "spans", lambda _original: lambda *_arguments: True),),
    ),
    Mutant(
        name="force-needs-ack-quorum-only",
        summary="a force succeeds although one bookie has not carried it out",
        clauses=("A1", "A5", "B4", "L1"),
        world="deferred-2-2-2",
        in_runs=True,
        replaces=(Replacement(ForceMachine, "start", _with_one_answer_less),),
    ),
    Mutant(
        name="force-covers-what-came-meanwhile",
        summary="a force confirms what was acknowledged when it ended, instead of when it began",
        clauses=("B4", "D6", "D16", "L1"),
        world="deferred-2-2-2",
        in_runs=True,
        replaces=(Replacement(AppendMachine, "on_forced", _covering_what_came_meanwhile),),
    ),
    Mutant(
        name="force-after-close-succeeds",
        summary="a force that ends after the close claims success for entries that the close cut off",
        clauses=("D16",),
        world="deferred-2-2-2",
        in_runs=True,
        replaces=(Replacement(AppendMachine, "on_forced", _always_successful),),
    ),
    Mutant(
        name="close-counts-what-it-cuts-off",
        summary="with deferred sync the closing length includes entries above the end",
        clauses=("B6",),
        world="deferred-2-2-2",
        in_runs=True,
        replaces=(Replacement(AppendMachine, "close", _closing_with_all_bytes),),
    ),
    Mutant(
        name="close-includes-what-was-not-forced",
        summary="with deferred sync the ledger is closed after entries that were never forced",
        clauses=("A1", "B4", "L1"),
        world="deferred-2-2-2",
        in_runs=True,
        replaces=(Replacement(AppendMachine, "close", _closing_at_the_sequence_head),),
    ),
    Mutant(
        name="deferred-sync-allows-ensemble-changes",
        summary="an ensemble changes although entries on its bookies may not be durable",
        clauses=("C6", "C12"),
        world="deferred-2-2-2",
        in_runs=True,
        replaces=(Replacement(AppendMachine, "_request_change", _as_if_sync_were_not_deferred),),
    ),
    Mutant(
        name="duplicates-below-sequence-head-accepted",
        summary="duplicates of acknowledged entries above the LAC are taken",
        clauses=("A6", "A8", "D9", "D14", "G4"),
        world="given-and-deferred",
        in_runs=True,
        replaces=(
            Replacement(AppendMachine, "is_taken", _taken_up_to_the_lac),
            Replacement(AppendMachine, "append_at", _compared_with_the_lac),
        ),
    ),
    Mutant(
        name="acks-above-gaps",
        summary="entries above one that was not appended yet are acknowledged",
        clauses=("A3", "A9", "B4", "L1"),
        world="given-1-1-1",
        in_runs=True,
        replaces=(Replacement(PendingAdds, "complete", _completing_above_gaps),),
    ),
    Mutant(
        name="delayed-failures-not-counted",
        summary="with delayed ensemble changes an entry that can get no quorum any more waits for ever",
        clauses=("L2",),
        world="delayed-3-3-2",
        in_runs=True,
        replaces=(Replacement(PendingAdds, "is_stuck", _saying_no),),
    ),
    Mutant(
        name="only-last-failed-bookie-replaced",
        summary="the failure that breaks the quorum has one bookie replaced, and the others are forgotten",
        clauses=("L2",),
        world="delayed-3-3-2",
        in_runs=True,
        replaces=(
            Replacement(PendingAdds, "failures_of", _telling_of_one),
            Replacement(PendingAdds, "switch", _forgetting_failures),
        ),
    ),
    Mutant(
        name="disabled-change-never-retried",
        summary="what failed while ensemble changes were disabled is not sent again",
        clauses=("L2",),
        world="disabled-2-2-2",
        in_runs=True,
        replaces=(Replacement(AppendMachine, "on_retry", _doing_nothing),),
    ),
    Mutant(
        name="only-first-entry-retried",
        summary="of what failed while ensemble changes were disabled only the first entry is sent again",
        clauses=("L2",),
        world="disabled-2-2-2",
        in_runs=True,
        replaces=(Replacement(AppendMachine, "_resend", _resending_the_first_only),),
    ),
    Mutant(
        name="irreplaceable-bookies-forgotten",
        summary="entries are not sent again to failed bookies for which there was no other one",
        clauses=("L2",),
        world="delayed-3-3-3",
        in_runs=True,
        replaces=(Replacement(PendingAdds, "switch", _switching_what_was_replaced_only),),
    ),
)

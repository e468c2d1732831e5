"""Defects of metadata updates: writes that compare nothing, conflicts and unknown outcomes that are taken for something else."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from bkclient.errors import MetadataOutcomeUnknown
from bkclient.ledger import Ensemble, LedgerMetadata, LedgerState, Versioned
from bkclient.protocol.intents import Choose, MarkInRecovery, ReplaceBookies, SealAsRecovered, SealAsWritten
from bkclient.protocol.recovery import RecoveryMachine
from bkclient.protocol.update import LocalMetadata, MetadataUpdate, ReadMetadata, UpdateHandle, WriteMetadata
from scenarios.mutants.base import Function, Mutant, Replacement, always

__all__ = ["METADATA_MUTANTS"]


def _unless_closed(_self: Any, metadata: LedgerMetadata) -> bool:
    return not metadata.is_closed


def _whatever_is_stored(_self: Any, _metadata: LedgerMetadata) -> bool:
    return True


def _sorted(applied: Function) -> Function:
    """Bookies of the new fragment stand in the order of their names."""

    def mutated(self: ReplaceBookies, metadata: LedgerMetadata, choose: Choose) -> LedgerMetadata:
        changed: LedgerMetadata = applied(self, metadata, choose)
        last = changed.last_fragment
        return changed.with_ensemble(last.first_entry_id, tuple(sorted(last.ensemble)))

    return mutated


def _with_the_old_image(on_update_answer: Function) -> Function:
    """What is read after a conflict gives the version, and the image stays."""

    def mutated(self: LocalMetadata, number: int, answer: Any, *choose: Any) -> None:
        if isinstance(answer, Versioned) and isinstance(self._updates[number].action, ReadMetadata):
            answer = Versioned(self.value.metadata, answer.version)
        on_update_answer(self, number, answer, *choose)

    return mutated


def _unknown_is_success(on_conflict: Function) -> Function:
    def mutated(self: UpdateHandle) -> None:
        action = self.action
        if isinstance(sys.exc_info()[1], MetadataOutcomeUnknown) and isinstance(action, WriteMetadata):
            self.on_written(Versioned(action.metadata, action.expected_version + 1))
        else:
            on_conflict(self)

    return mutated


def _conflict_is_success(on_conflict: Function) -> Function:
    def mutated(self: UpdateHandle) -> None:
        action = self.action
        if self.cause == "close" and isinstance(action, WriteMetadata):
            self.on_written(Versioned(action.metadata, action.expected_version + 1))
        else:
            on_conflict(self)

    return mutated


@dataclass(frozen=True, slots=True)
class _Publish:
    """The ensemble that a recovery writes back to, while it is under way."""

    cause: ClassVar[str] = "ensemble"
    first_entry_id: int
    ensemble: Ensemble

    def is_needed(self, metadata: LedgerMetadata) -> bool:
        return metadata.state is LedgerState.IN_RECOVERY and metadata.last_fragment.ensemble != self.ensemble

    def applied(self, metadata: LedgerMetadata, _choose: Choose) -> LedgerMetadata:
        return metadata.with_ensemble(self.first_entry_id, self.ensemble)


def _publishing(switch: Function) -> Function:
    def mutated(self: RecoveryMachine, ensemble: Ensemble, positions: Any) -> None:
        number = self.local.begin(_Publish(self.adds.last_add_confirmed + 1, ensemble))
        self.ports.run_update(number)
        switch(self, ensemble, positions)

    return mutated


METADATA_MUTANTS: Final = (
    Mutant(
        name="recovery-does-not-mark",
        summary="a recovery fences and reads without having marked the ledger, and closes it from open",
        clauses=("E8",),
        in_runs=True,
        past="M11",
        replaces=(
            Replacement(MarkInRecovery, "is_needed", always(lambda _self, _metadata: False)),
            Replacement(SealAsRecovered, "is_needed", always(_unless_closed)),
        ),
    ),
    Mutant(
        name="recovery-closes-over-closed",
        summary="a recovery closes a ledger that another client has closed once more, where it found the end",
        clauses=("B1", "B2", "B3", "F3"),
        in_runs=True,
        past="M12",
        replaces=(Replacement(SealAsRecovered, "is_needed", always(_whatever_is_stored)),),
    ),
    Mutant(
        name="close-takes-conflict-for-success",
        summary="a close whose write finds another version counts as made",
        clauses=("A11",),
        in_runs=True,
        past="M13",
        replaces=(Replacement(UpdateHandle, "on_conflict", _conflict_is_success),),
    ),
    Mutant(
        name="writer-closes-over-closed",
        summary="a writer closes a ledger that a recovery has closed once more, at its own end",
        clauses=("B1", "B2", "B3"),
        in_runs=True,
        past="M29",
        replaces=(Replacement(SealAsWritten, "is_needed", always(_whatever_is_stored)),),
    ),
    Mutant(
        name="change-sorts-its-ensemble",
        summary="an ensemble change stores its bookies in the order of their names",
        clauses=("C5",),
        in_runs=True,
        past="M21",
        replaces=(Replacement(ReplaceBookies, "applied", _sorted),),
    ),
    Mutant(
        name="conflict-refreshes-the-version-only",
        summary="after a conflict the old metadata is written over what another client stored",
        clauses=("B1", "B2", "C3"),
        in_runs=True,
        past="M30",
        replaces=(Replacement(LocalMetadata, "on_update_answer", _with_the_old_image),),
    ),
    Mutant(
        name="unknown-write-counts-as-made",
        summary="a metadata write without an answer counts as made",
        clauses=("C8",),
        in_runs=True,
        past="M31",
        replaces=(Replacement(UpdateHandle, "on_conflict", _unknown_is_success),),
    ),
    Mutant(
        name="given-up-change-may-come-later",
        summary="a change of the ensemble is given up although its write has no outcome",
        clauses=("C6",),
        world="late-writes",
        in_runs=True,
        replaces=(Replacement(MetadataUpdate, "_give_up", lambda _original: MetadataUpdate.fail),),
    ),
    Mutant(
        name="recovery-publishes-ensembles",
        summary="a recovery stores the ensemble that it writes back to before the copies are there",
        clauses=("C7",),
        in_runs=True,
        past="M10",
        replaces=(Replacement(RecoveryMachine, "_switch_ensemble", _publishing),),
    ),
)

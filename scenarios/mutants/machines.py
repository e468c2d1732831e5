"""Known defects of BookKeeper clients in the rules themselves, planted into the machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import bkclient.protocol.recovery
from bkclient.errors import BookKeeperError
from bkclient.ledger import Ensemble
from bkclient.protocol.adds import PendingAdds
from bkclient.protocol.append import AppendMachine, WriterState
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.reconnect import ReconnectCheck
from bkclient.protocol.recovery import RecoveryMachine, RecoveryPhase
from scenarios.mutants.base import Mutant, Replacement

__all__ = ["MACHINE_MUTANTS"]

# ruff: noqa: SLF001 - a defect has no interface

Function = Callable[..., Any]


def _vouching_for_every_connection(make: Function) -> Function:
    def mutated(self: ReconnectCheck, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options | {"verified": None})

    return mutated


def _always(value: object) -> Callable[[object], object]:
    return lambda _original: value


def _start_at_found_lac(_original: Function) -> Function:
    return lambda found_lac, _first_entry_id: found_lac


def _close_at_once(_original: Function) -> Function:
    def mutated(self: RecoveryMachine) -> None:
        if self._end_found:
            self.adds.last_add_confirmed = self.adds.last_add_pushed
            self.adds.pending.clear()
            self._close()

    return mutated


def _close_at_the_lac(_original: Function) -> Function:
    def mutated(self: RecoveryMachine, found: Any) -> None:
        self._enter(RecoveryPhase.READING)
        self.adds.last_add_confirmed = found.last_add_confirmed
        self._close()

    return mutated


def _reading_from_replacements(switch: Function) -> Function:
    def mutated(self: RecoveryMachine, ensemble: Ensemble, positions: Iterable[int]) -> None:
        if self._reads is not None:
            self._reads._ensemble = ensemble
        switch(self, ensemble, positions)

    return mutated


def _closing_when_undecided(fail: Function) -> Function:
    def mutated(self: RecoveryMachine, code: int, why: str, **details: Any) -> None:
        if "ruled out" not in why:
            fail(self, code, why, **details)
            return
        self._end_found = True
        self._reads = None
        self._close_if_written_back()

    return mutated


def _with_an_advancing_lac(write_back: Function) -> Function:
    def mutated(self: RecoveryMachine, payload: bytes, length: int) -> None:
        self._frozen_lac = self.adds.last_add_confirmed
        write_back(self, payload, length)

    return mutated


def _off_by_one(_original: Function) -> Function:
    return lambda self, acknowledged: acknowledged.bit_count() >= max(1, self.ack_quorum_size - 1)


def _keeping_what_is_in_flight(_original: Function) -> Function:
    def mutated(self: AppendMachine, state: WriterState, _reason: BookKeeperError) -> None:
        self._enter(state)
        self.adds.length -= sum(len(add.entry.payload) for add in self.adds.pending.values())

    return mutated


def _ignoring_failures_after_the_end(on_failure: Function) -> Function:
    def mutated(self: AppendMachine, *args: Any) -> None:
        if self.state in (WriterState.OPEN, WriterState.CHANGING):  # or the machine would notice
            on_failure(self, *args)

    return mutated


def _keeping_what_was_pushed(_original: Function) -> Function:
    return lambda *_arguments: None


def _closing_at_what_was_pushed(close: Function) -> Function:
    def mutated(self: AppendMachine, *args: Any, **options: Any) -> None:
        self.adds.last_add_confirmed = self.adds.last_add_pushed
        close(self, *args, **options)

    return mutated


def _completing_during_changes(_original: Function) -> Function:
    def mutated(self: AppendMachine) -> None:
        self.ports.confirm_adds(self.adds.complete())

    return mutated


MACHINE_MUTANTS: Final = (
    Mutant(
        name="recovery-starts-below-last-fragment",
        summary="recovery trusts the LAC of bookies that joined with the last fragment and never saw the earlier ones "
        "(issue 2615)",
        clauses=("A1", "B9", "E1", "F5"),
        replaces=(Replacement(bkclient.protocol.recovery, "starting_lac", _start_at_found_lac),),
    ),
    Mutant(
        name="one-denial-decides",
        summary="recovery takes the first denial of an entry for the end",
        clauses=("E3",),
        replaces=(Replacement(QuorumSizes, "negatives_to_deny", _always(1)),),
    ),
    Mutant(
        name="recovery-closes-before-write-back",
        summary="recovery does not wait for the ack quorums of what it writes back",
        clauses=("E6",),
        replaces=(Replacement(RecoveryMachine, "_close_if_written_back", _close_at_once),),
    ),
    Mutant(
        name="recovery-closes-at-found-lac",
        summary="recovery trusts the best LAC that it is told, and does not read on",
        clauses=("A1", "B6", "E7", "F5"),
        replaces=(Replacement(RecoveryMachine, "_begin_reading", _close_at_the_lac),),
    ),
    Mutant(
        name="recovery-reads-from-replacements",
        summary="recovery asks the bookies that it has put in the place of others for entries that they never got",
        clauses=("E2", "E3"),
        replaces=(Replacement(RecoveryMachine, "_switch_ensemble", _reading_from_replacements),),
    ),
    Mutant(
        name="undecided-entry-ends-ledger",
        summary="recovery closes the ledger below an entry that it can neither find nor rule out",
        clauses=("A1", "E7", "E11"),
        replaces=(Replacement(RecoveryMachine, "_fail", _closing_when_undecided),),
    ),
    Mutant(
        name="recovery-lac-advances",
        summary="what recovery writes back carries a LAC that advances with it, which a rival recovery may undo",
        clauses=("E9",),
        replaces=(Replacement(RecoveryMachine, "_write_back", _with_an_advancing_lac),),
    ),
    Mutant(
        name="ack-quorum-one-short",
        summary="one answer too few makes an ack quorum",
        clauses=("A2", "A5"),
        replaces=(Replacement(QuorumSizes, "is_ack_quorum", _off_by_one),),
    ),
    Mutant(
        name="acks-after-close",
        summary="entries in flight when the writer closes are acknowledged afterwards",
        clauses=("A1", "A7", "L2"),
        replaces=(
            Replacement(AppendMachine, "_end", _keeping_what_is_in_flight),
            Replacement(AppendMachine, "_on_failure", _ignoring_failures_after_the_end),
            Replacement(PendingAdds, "cut_off", _keeping_what_was_pushed),
        ),
    ),
    Mutant(
        name="writer-closes-at-last-pushed",
        summary="the writer closes the ledger after entries that have no ack quorum",
        clauses=("A9", "B4", "B6", "L1"),
        replaces=(Replacement(AppendMachine, "close", _closing_at_what_was_pushed),),
    ),
    Mutant(
        name="acks-during-ensemble-change",
        summary="entries are acknowledged while a new ensemble that begins with them is being stored (issue 4651)",
        clauses=("C6",),
        replaces=(Replacement(AppendMachine, "_complete", _completing_during_changes),),
    ),
    Mutant(
        name="writer-trusts-new-connections",
        summary="what a bookie stored counts although it may have been killed, and have forgotten its fence (issue 4843)",
        clauses=("A1", "F5"),
        replaces=(Replacement(ReconnectCheck, "__init__", _vouching_for_every_connection),),
    ),
)

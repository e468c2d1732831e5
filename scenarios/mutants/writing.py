"""Defects of the writer: what counts as an ack quorum, ensemble changes, and the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from bkclient.errors import BookKeeperError, Code
from bkclient.ledger import BookieId, LedgerMetadata
from bkclient.protocol.adds import NewEntry, PendingAdd, PendingAdds
from bkclient.protocol.append import AppendMachine, WriterState
from bkclient.protocol.ensemble_change import EnsembleChange
from bkclient.protocol.intents import Intent, ReplaceBookies
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.reconnect import ReconnectCheck
from bkclient.protocol.update import LocalMetadata, WriteMetadata
from scenarios.mutants.base import Function, Mutant, Replacement

__all__ = ["WRITING_MUTANTS"]


#: Answers that come together are counted as the defect counts each of them.
_ONE_BY_ONE: Final = Replacement(PendingAdds, "acknowledge_all", lambda _: PendingAdds.acknowledge_each)

# Ensemble changes --------------------------------------------------------------------------------------------------


def _starting_after(lac_of: Callable[[PendingAdds], int]) -> Callable[[Function], Function]:
    """Ensemble changes start one above what ``lac_of`` says."""

    def make(begin: Function) -> Function:
        def mutated(self: LocalMetadata, intent: Intent, *arguments: Any) -> Any:
            if isinstance(intent, ReplaceBookies):
                writer: AppendMachine = arguments[0].__self__
                intent = replace(intent, first_entry_id=lac_of(writer.adds) + 1)
            return begin(self, intent, *arguments)

        return mutated

    return make


def _keeping_acknowledgements(switch: Function) -> Function:
    def mutated(self: PendingAdds, *arguments: Any) -> Any:
        before = {entry_id: add.acknowledged for entry_id, add in self.pending.items()}
        resent = switch(self, *arguments)
        for entry_id, add in self.pending.items():
            add.acknowledged |= before[entry_id]
            add.has_quorum = self.sizes.is_ack_quorum(add.acknowledged)
        return resent

    return mutated


def _as_if_of_a_member(on_outcome: Function) -> Function:
    def mutated(self: PendingAdds, bookie_id: BookieId, entry_id: int, *arguments: Any) -> Any:
        write_set = self.write_set(entry_id)
        member = bookie_id if bookie_id in write_set else write_set[0]
        return on_outcome(self, member, entry_id, *arguments)

    return mutated


def _completing_during_changes(_original: Function) -> Function:
    def mutated(self: AppendMachine) -> None:
        if done := self.adds.complete():
            self.ports.confirm_adds(done)

    return mutated


def _sending_before_it_is_stored(next_pass: Function) -> Function:
    def mutated(self: AppendMachine, change: EnsembleChange, failures: Mapping[int, BookieId]) -> None:
        next_pass(self, change, failures)
        action = self.update(change.update).action if self.state is WriterState.CHANGING else None
        if isinstance(action, WriteMetadata):
            for entry, bookies in self.adds.switch(action.metadata.last_fragment.ensemble, failures):
                self.ports.send_add(entry, bookies)

    return mutated


def _needed_while_the_bookie_is_there(_original: Function) -> Function:
    def mutated(self: ReplaceBookies, metadata: LedgerMetadata) -> bool:
        return any(metadata.last_fragment.ensemble[p] == bookie_id for p, bookie_id in self.failures)

    return mutated


def _resending_nothing(switch: Function) -> Function:
    def mutated(self: PendingAdds, *arguments: Any) -> list[Any]:
        switch(self, *arguments)
        return []

    return mutated


# Quorums and order -------------------------------------------------------------------------------------------------


def _off_by_one(_original: Function) -> Function:
    return lambda self, acknowledged: acknowledged.bit_count() >= max(1, self.ack_quorum_size - 1)


def _counting_answers(acknowledge: Function) -> Function:
    """A second answer of one bookie counts for another one that has not answered."""

    def mutated(self: PendingAdds, bookie_id: BookieId, entry_id: int) -> PendingAdd | None:
        add = self.pending.get(entry_id)
        if add is not None and bookie_id in self.write_set(entry_id):
            position = self.ensemble.index(bookie_id)
            if add.acknowledged >> position & 1:
                free = (p for p in self.sizes.write_set(entry_id) if not add.acknowledged >> p & 1)
                bookie_id = self.ensemble[next(free, position)]
        found: PendingAdd | None = acknowledge(self, bookie_id, entry_id)
        return found

    return mutated


def _completing_whatever_has_a_quorum(_original: Function) -> Function:
    def mutated(self: PendingAdds) -> list[NewEntry]:
        done = [add.entry for add in self.pending.values() if add.has_quorum]
        for entry in done:
            del self.pending[entry.entry_id]
            self.last_add_confirmed = self.last_add_acknowledged = max(self.last_add_confirmed, entry.entry_id)
        return done

    return mutated


# The end -----------------------------------------------------------------------------------------------------------


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


#: The LAC that each writer sent with its last entry; only a writer that is planted with the defect notes any.
_told: Final[dict[int, int]] = {}


def _noting_what_it_tells(push: Function) -> Function:
    def mutated(self: PendingAdds, payload: bytes, header_lac: int) -> NewEntry:
        _told[id(self)] = header_lac
        entry: NewEntry = push(self, payload, header_lac)
        return entry

    return mutated


def _closing_at_what_was_told(close: Function) -> Function:
    def mutated(self: AppendMachine, *args: Any, **options: Any) -> None:
        told = _told.pop(id(self.adds), None)
        if told is not None and not self.adds.defers_lac:
            self.adds.last_add_confirmed = min(told, self.adds.last_add_confirmed)
        close(self, *args, **options)

    return mutated


def _taking_a_fence_for_a_failure(fail: Function) -> Function:
    def mutated(self: PendingAdds, bookie_id: BookieId, entry_id: int, code: int) -> Any:
        return fail(self, bookie_id, entry_id, Code.BOOKIE_NOT_AVAILABLE if code == Code.LEDGER_FENCED else code)

    return mutated


def _verifying_no_connection(make: Function) -> Function:
    def mutated(self: ReconnectCheck, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options | {"verified": None})

    return mutated


WRITING_MUTANTS: Final = (
    Mutant(
        name="change-starts-above-next-entry",
        summary="an ensemble change leaves entries that are not confirmed to the old ensemble",
        clauses=("A2", "C6", "C8"),
        world="one-copy",
        in_runs=True,
        past="M16",
        replaces=(Replacement(LocalMetadata, "begin", _starting_after(lambda adds: adds.last_add_pushed)),),
    ),
    Mutant(
        name="change-starts-at-confirmed-entry",
        summary="an ensemble change gives the last confirmed entry to bookies that never get it",
        clauses=("A5", "B4", "C6"),
        world="one-copy-2",
        in_runs=True,
        past="M17",
        replaces=(
            Replacement(LocalMetadata, "begin", _starting_after(lambda adds: max(-1, adds.last_add_confirmed - 1))),
        ),
    ),
    Mutant(
        name="replaced-bookie-keeps-acknowledgements",
        summary="what a bookie acknowledged counts after it was replaced",
        clauses=("A2", "B4"),
        world="both-copies-spare",
        in_runs=True,
        past="M18",
        replaces=(Replacement(PendingAdds, "switch", _keeping_acknowledgements),),
    ),
    Mutant(
        name="replaced-bookie-still-answers",
        summary="the answer of a bookie that was replaced counts as that of a member",
        clauses=("A2", "B4"),
        world="one-copy-2",
        in_runs=True,
        past="M18",
        replaces=(
            Replacement(PendingAdds, "acknowledge", _as_if_of_a_member),
            _ONE_BY_ONE,
            Replacement(PendingAdds, "fail", _as_if_of_a_member),
        ),
    ),
    Mutant(
        name="acks-during-ensemble-change",
        summary="entries are acknowledged while a new ensemble that begins with them is being stored (issue 4651)",
        clauses=("A2", "C6"),
        world="one-copy-2",
        in_runs=True,
        past="M19",
        replaces=(Replacement(AppendMachine, "_complete", _completing_during_changes),),
    ),
    Mutant(
        name="ensemble-used-before-stored",
        summary="entries go to a new ensemble, and are acknowledged by it, before it is stored",
        clauses=("A2", "A5", "B4", "C6", "C8"),
        world="one-copy",
        in_runs=True,
        past="M20",
        replaces=(
            Replacement(AppendMachine, "_next_pass", _sending_before_it_is_stored),
            Replacement(AppendMachine, "_complete", _completing_during_changes),
        ),
    ),
    Mutant(
        name="ack-quorum-one-short",
        summary="one answer too few makes an ack quorum",
        clauses=("A2", "A5"),
        world="both-copies",
        in_runs=True,
        past="M22",
        replaces=(Replacement(QuorumSizes, "is_ack_quorum", _off_by_one), _ONE_BY_ONE),
    ),
    Mutant(
        name="answers-count-instead-of-bookies",
        summary="two answers of one bookie count as those of two",
        clauses=("A2",),
        world="both-copies",
        in_runs=True,
        past="M23",
        replaces=(Replacement(PendingAdds, "acknowledge", _counting_answers), _ONE_BY_ONE),
    ),
    Mutant(
        name="acks-out-of-order",
        summary="an entry is acknowledged while one below it has no ack quorum",
        clauses=("A3", "A9", "B4", "L1", "L9", "L10"),
        world="one-copy-2",
        in_runs=True,
        past="M24",
        replaces=(Replacement(PendingAdds, "complete", _completing_whatever_has_a_quorum),),
    ),
    Mutant(
        name="acks-after-close",
        summary="entries in flight when the writer closes are acknowledged afterwards",
        clauses=("A1", "A7", "L2"),
        world="one-copy",
        in_runs=True,
        past="M25",
        replaces=(
            Replacement(AppendMachine, "_end", _keeping_what_is_in_flight),
            Replacement(AppendMachine, "_on_failure", _ignoring_failures_after_the_end),
            Replacement(PendingAdds, "cut_off", _keeping_what_was_pushed),
        ),
    ),
    Mutant(
        name="writer-closes-at-last-pushed",
        summary="the writer closes the ledger after entries that have no ack quorum",
        clauses=("A1", "A9", "B4", "B6", "L1"),
        world="one-copy",
        in_runs=True,
        past="M26",
        replaces=(Replacement(AppendMachine, "close", _closing_at_what_was_pushed),),
    ),
    Mutant(
        name="writer-closes-at-the-lac-it-told",
        summary="the writer closes the ledger at the LAC in the header of its last entry, below what it acknowledged",
        clauses=("A1", "A11", "B6", "G2"),
        world="one-copy",
        in_runs=True,
        past="M27",
        replaces=(
            Replacement(PendingAdds, "push", _noting_what_it_tells),
            Replacement(AppendMachine, "close", _closing_at_what_was_told),
        ),
    ),
    Mutant(
        name="writer-takes-fence-for-failure",
        summary="a writer that a bookie calls fenced looks for another bookie, instead of ending with that",
        clauses=("A12",),
        in_runs=True,
        past="M32",
        replaces=(Replacement(PendingAdds, "fail", _taking_a_fence_for_a_failure),),
    ),
    Mutant(
        name="change-ignores-takeover",
        summary="an ensemble change is stored although a recovery has marked or closed the ledger",
        clauses=("B2", "C7"),
        world="one-copy",
        in_runs=True,
        past="M28",
        replaces=(Replacement(ReplaceBookies, "is_needed", _needed_while_the_bookie_is_there),),
    ),
    Mutant(
        name="nothing-resent-after-change",
        summary="after an ensemble change entries are not sent to the bookies that came in",
        clauses=("L2", "L9"),
        world="one-copy",
        in_runs=True,
        past="M56",
        replaces=(Replacement(PendingAdds, "switch", _resending_nothing),),
    ),
    Mutant(
        name="writer-trusts-new-connections",
        summary="what a bookie stored counts although it may have been killed, and have forgotten its fence (issue 4843)",
        clauses=("A1", "F5"),
        in_runs=True,
        replaces=(Replacement(ReconnectCheck, "__init__", _verifying_no_connection),),
    ),
)

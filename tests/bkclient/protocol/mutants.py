"""Defects planted into the machines, to show that the world's guarantees find them.

Each is a defect that a BookKeeper client really had or nearly had. It replaces one function of the shipped machines for
the duration of a test; ``M`` numbers are those of the list of known defects that ``docs/reference/conformance.md`` uses,
others are rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from bkclient.errors import BookKeeperError, Code, NotEnoughBookies
from bkclient.ledger import BookieId, Ensemble, LedgerMetadata
from bkclient.protocol import lac, read, recovery
from bkclient.protocol.adds import NewEntry, PendingAdd, PendingAdds
from bkclient.protocol.append import AppendMachine, WriterState
from bkclient.protocol.ensemble_change import EnsembleChange
from bkclient.protocol.intents import Intent, ReplaceBookies
from bkclient.protocol.quorum import EXPLICIT_NEGATIVES, CoverageSet, QuorumSizes
from bkclient.protocol.recovery import RecoveryMachine, RecoveryPhase
from bkclient.protocol.update import LocalMetadata, WriteMetadata
from tests.bkclient.protocol.world import Configuration, RecoveryClient

Plant = Callable[[pytest.MonkeyPatch], None]


class Mutant(NamedTuple):
    """One defect: how to plant it, a world that is big enough to show it, and the guarantees that it breaks."""

    rule: str
    plant: Plant
    configuration: Configuration
    breaks: frozenset[str]


def recovery_reads_do_not_fence(patch: pytest.MonkeyPatch) -> None:
    send_read = RecoveryClient.send_read

    def without_fence(self: RecoveryClient, entry_id: int, bookie_id: BookieId, *, fence: bool) -> None:
        send_read(self, entry_id, bookie_id, fence=False)

    patch.setattr(RecoveryClient, "send_read", without_fence)


def timeouts_count_as_negatives(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(read, "EXPLICIT_NEGATIVES", EXPLICIT_NEGATIVES | {Code.TIMEOUT, Code.BOOKIE_NOT_AVAILABLE})


def one_negative_decides(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QuorumSizes, "negatives_to_deny", 1)


def reading_starts_without_coverage(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CoverageSet, "is_covered", True)


def coverage_counts_bookies_in_total(patch: pytest.MonkeyPatch) -> None:
    def enough_in_total(self: QuorumSizes, known: int) -> bool:
        return known.bit_count() >= self.write_quorum_size - self.ack_quorum_size + 1

    patch.setattr(QuorumSizes, "is_covered", enough_in_total)


def recovery_closes_before_the_write_back(patch: pytest.MonkeyPatch) -> None:
    def close_at_once(self: RecoveryMachine) -> None:
        if self._end_found:
            self.adds.last_add_confirmed = self.adds.last_add_pushed
            self.adds.pending.clear()
            self._close()

    patch.setattr(RecoveryMachine, "_close_if_written_back", close_at_once)


def recovery_closes_at_the_lac_it_found(patch: pytest.MonkeyPatch) -> None:
    def close(self: RecoveryMachine, found: lac.LacRead) -> None:
        self._enter(RecoveryPhase.READING)
        self.adds.last_add_confirmed = found.last_add_confirmed
        self._close()

    patch.setattr(RecoveryMachine, "_begin_reading", close)


def recovery_starts_below_the_last_fragment(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "starting_lac", lambda found_lac, _first_entry_id: found_lac)


def recovery_reads_follow_its_own_replacements(patch: pytest.MonkeyPatch) -> None:
    switch = RecoveryMachine._switch_ensemble

    def and_read_from_it(self: RecoveryMachine, ensemble: Ensemble, positions: Iterable[int]) -> None:
        if self._reads is not None:
            self._reads._ensemble = ensemble
        switch(self, ensemble, positions)

    patch.setattr(RecoveryMachine, "_switch_ensemble", and_read_from_it)


def what_is_undecided_ends_the_ledger(patch: pytest.MonkeyPatch) -> None:
    fail = RecoveryMachine._fail

    def close_instead(self: RecoveryMachine, code: int, why: str, **details: Any) -> None:
        if "ruled out" not in why:
            fail(self, code, why, **details)
            return
        self._end_found = True
        self._close_if_written_back()

    patch.setattr(RecoveryMachine, "_fail", close_instead)


def written_back_entries_carry_an_advancing_lac(patch: pytest.MonkeyPatch) -> None:
    write_back = RecoveryMachine._write_back

    def with_own_lac(self: RecoveryMachine, payload: bytes, length: int) -> None:
        self._frozen_lac = self.adds.last_add_confirmed
        write_back(self, payload, length)

    patch.setattr(RecoveryMachine, "_write_back", with_own_lac)


def changes_start_above_the_next_entry(patch: pytest.MonkeyPatch) -> None:
    _begin_passes_at(patch, lambda adds: adds.last_add_pushed)


def changes_start_at_the_last_confirmed_entry(patch: pytest.MonkeyPatch) -> None:
    _begin_passes_at(patch, lambda adds: max(-1, adds.last_add_confirmed - 1))


def _begin_passes_at(patch: pytest.MonkeyPatch, lac_of: Callable[[PendingAdds], int]) -> None:
    begin = LocalMetadata.begin

    def elsewhere(self: LocalMetadata, intent: Intent, *arguments: Any) -> int:
        if isinstance(intent, ReplaceBookies):
            writer: AppendMachine = arguments[0].__self__
            intent = replace(intent, first_entry_id=lac_of(writer.adds) + 1)
        return begin(self, intent, *arguments)

    patch.setattr(LocalMetadata, "begin", elsewhere)


def replaced_bookies_keep_their_acknowledgements(patch: pytest.MonkeyPatch) -> None:
    switch = PendingAdds.switch

    def keep(self: PendingAdds, *arguments: Any) -> Any:
        before = {entry_id: add.acknowledged for entry_id, add in self.pending.items()}
        resent = switch(self, *arguments)
        for entry_id, add in self.pending.items():
            add.acknowledged |= before[entry_id]
            add.has_quorum = self.sizes.is_ack_quorum(add.acknowledged)
        return resent

    patch.setattr(PendingAdds, "switch", keep)


def answers_of_replaced_bookies_count(patch: pytest.MonkeyPatch) -> None:
    acknowledge, fail = PendingAdds.acknowledge, PendingAdds.fail

    def a_member(self: PendingAdds, bookie_id: BookieId, entry_id: int) -> BookieId:
        write_set = self.write_set(entry_id)
        return bookie_id if bookie_id in write_set else write_set[0]

    def count(self: PendingAdds, bookie_id: BookieId, entry_id: int) -> Any:
        return acknowledge(self, a_member(self, bookie_id, entry_id), entry_id)

    def count_failure(self: PendingAdds, bookie_id: BookieId, entry_id: int, code: int) -> Any:
        return fail(self, a_member(self, bookie_id, entry_id), entry_id, code)

    patch.setattr(PendingAdds, "acknowledge", count)
    patch.setattr(PendingAdds, "fail", count_failure)


def entries_are_confirmed_during_a_change(patch: pytest.MonkeyPatch) -> None:
    def in_any_state(self: AppendMachine) -> None:
        self.ports.confirm_adds(self.adds.complete())

    patch.setattr(AppendMachine, "_complete", in_any_state)


def a_new_ensemble_is_used_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    next_pass = AppendMachine._next_pass

    def begin(self: AppendMachine, change: EnsembleChange, failures: Mapping[int, BookieId]) -> None:
        next_pass(self, change, failures)
        action = self.update(change.update).action if self.state is WriterState.CHANGING else None
        if isinstance(action, WriteMetadata):
            for entry, bookies in self.adds.switch(action.metadata.last_fragment.ensemble, failures):
                self.ports.send_add(entry, bookies)

    patch.setattr(AppendMachine, "_next_pass", begin)
    entries_are_confirmed_during_a_change(patch)


def one_acknowledgement_too_few_suffices(patch: pytest.MonkeyPatch) -> None:
    def off_by_one(self: QuorumSizes, acknowledged: int) -> bool:
        return acknowledged.bit_count() >= self.ack_quorum_size - 1

    patch.setattr(QuorumSizes, "is_ack_quorum", off_by_one)


def answers_are_counted_instead_of_bookies(patch: pytest.MonkeyPatch) -> None:
    acknowledge = PendingAdds.acknowledge

    def next_free(self: PendingAdds, bookie_id: BookieId, entry_id: int) -> PendingAdd | None:
        add = self.pending.get(entry_id)
        if add is not None and bookie_id in self.write_set(entry_id):
            position = self.ensemble.index(bookie_id)
            if add.acknowledged >> position & 1:
                free = (p for p in self.sizes.write_set(entry_id) if not add.acknowledged >> p & 1)
                bookie_id = self.ensemble[next(free, position)]
        return acknowledge(self, bookie_id, entry_id)

    patch.setattr(PendingAdds, "acknowledge", next_free)


def entries_are_confirmed_out_of_order(patch: pytest.MonkeyPatch) -> None:
    def whatever_is_complete(self: PendingAdds) -> list[NewEntry]:
        done = [add.entry for add in self.pending.values() if add.has_quorum]
        for entry in done:
            del self.pending[entry.entry_id]
            self.last_add_confirmed = self.last_add_acknowledged = max(self.last_add_confirmed, entry.entry_id)
        return done

    patch.setattr(PendingAdds, "complete", whatever_is_complete)


def entries_in_flight_are_confirmed_after_the_close(patch: pytest.MonkeyPatch) -> None:
    def keep(self: AppendMachine, state: WriterState, _reason: BookKeeperError) -> None:
        self._enter(state)
        self.adds.length -= sum(len(add.entry.payload) for add in self.adds.pending.values())

    on_failure = AppendMachine._on_failure

    def while_it_lasts(self: AppendMachine, *arguments: Any) -> None:
        if self.state in (WriterState.OPEN, WriterState.CHANGING):  # or the machine would notice
            on_failure(self, *arguments)

    patch.setattr(AppendMachine, "_end", keep)
    patch.setattr(AppendMachine, "_on_failure", while_it_lasts)
    patch.setattr(PendingAdds, "cut_off", lambda self, forced_length: None)


def the_writer_closes_at_what_it_pushed(patch: pytest.MonkeyPatch) -> None:
    close = AppendMachine.close

    def at_last_pushed(self: AppendMachine, error: BookKeeperError | None = None) -> None:
        self.adds.last_add_confirmed = self.adds.last_add_pushed
        close(self, error)

    patch.setattr(AppendMachine, "close", at_last_pushed)


def changes_ignore_that_the_ledger_was_taken_over(patch: pytest.MonkeyPatch) -> None:
    def still_there(self: ReplaceBookies, metadata: LedgerMetadata) -> bool:
        return any(metadata.last_fragment.ensemble[p] == bookie_id for p, bookie_id in self.failures)

    patch.setattr(ReplaceBookies, "is_needed", still_there)


def entries_are_not_sent_again_after_a_change(patch: pytest.MonkeyPatch) -> None:
    switch = PendingAdds.switch

    def forget(self: PendingAdds, *arguments: Any) -> list[Any]:
        switch(self, *arguments)
        return []

    patch.setattr(PendingAdds, "switch", forget)


def recovery_counts_a_failed_bookie_for_every_entry(patch: pytest.MonkeyPatch) -> None:
    start = RecoveryMachine.start
    on_bookies_failed, do_without = RecoveryMachine._on_bookies_failed, RecoveryMachine._do_without
    given_up: dict[int, set[int]] = {}

    def begin(self: RecoveryMachine) -> None:
        given_up[id(self)] = set()
        start(self)

    def note(self: RecoveryMachine, failures: Mapping[int, BookieId]) -> None:
        given_up[id(self)].update(failures)
        on_bookies_failed(self, failures)

    def count_all(self: RecoveryMachine, error: NotEnoughBookies) -> None:
        failed = sum(1 << position for position in given_up[id(self)])
        for entry_id, add in self.adds.pending.items():
            add.failed |= failed & sum(1 << position for position in self.sizes.write_set(entry_id))
        do_without(self, error)

    patch.setattr(RecoveryMachine, "start", begin)
    patch.setattr(RecoveryMachine, "_on_bookies_failed", note)
    patch.setattr(RecoveryMachine, "_do_without", count_all)


ONE = Configuration(1, 1, 1, bookies=2, entries=1, recoveries=1)
TWO_ENTRIES = Configuration(1, 1, 1, bookies=2, entries=2, recoveries=1)
THREE_ENTRIES = Configuration(1, 1, 1, bookies=2, entries=3, recoveries=1)
BOTH = Configuration(2, 2, 2, bookies=2, entries=1, recoveries=1)
BOTH_AND_A_SPARE = Configuration(2, 2, 2, bookies=3, entries=2, recoveries=1)
EITHER = Configuration(2, 2, 1, bookies=2, entries=1, recoveries=1)
STRIPED = Configuration(3, 2, 2, bookies=3, entries=1, recoveries=1)
NO_SPARE = Configuration(3, 3, 2, bookies=3, entries=2, recoveries=2)
TWO_RECOVERIES = Configuration(2, 2, 2, bookies=2, entries=2, recoveries=2)

_TABLE: tuple[tuple[str, Plant, Configuration, str], ...] = (
    ("M01", recovery_reads_do_not_fence, BOTH, "A1 E5"),
    ("M02", timeouts_count_as_negatives, ONE, "A1 E3"),
    ("M03", one_negative_decides, EITHER, "A1 E3"),
    ("M04", reading_starts_without_coverage, EITHER, "D4"),
    ("M05", coverage_counts_bookies_in_total, STRIPED, "D4"),
    ("M06", recovery_closes_before_the_write_back, BOTH, "B4"),
    ("M07", recovery_closes_at_the_lac_it_found, ONE, "A1"),
    ("M08", recovery_starts_below_the_last_fragment, TWO_ENTRIES, "A1 E2 E3"),
    ("M09", recovery_reads_follow_its_own_replacements, THREE_ENTRIES, "A1 E2"),
    ("M14", what_is_undecided_ends_the_ledger, EITHER, "A1"),
    ("M16", changes_start_above_the_next_entry, ONE, "A2 A5 C6"),
    ("M17", changes_start_at_the_last_confirmed_entry, TWO_ENTRIES, "C6 A5"),
    ("M18", replaced_bookies_keep_their_acknowledgements, BOTH_AND_A_SPARE, "A2 A5 B4"),
    ("M18", answers_of_replaced_bookies_count, TWO_ENTRIES, "A2 A5"),
    ("M19", entries_are_confirmed_during_a_change, TWO_ENTRIES, "C6 A5"),
    ("M20", a_new_ensemble_is_used_before_it_is_stored, ONE, "A2 A5"),
    ("M22", one_acknowledgement_too_few_suffices, BOTH, "A2"),
    ("M23", answers_are_counted_instead_of_bookies, BOTH, "A2 A5"),
    ("M24", entries_are_confirmed_out_of_order, TWO_ENTRIES, "A3"),
    ("M25", entries_in_flight_are_confirmed_after_the_close, ONE, "A1 A6 L2 L12"),
    ("M26", the_writer_closes_at_what_it_pushed, ONE, "B4 B6"),
    ("M28", changes_ignore_that_the_ledger_was_taken_over, ONE, "B2 C7"),
    ("M56", entries_are_not_sent_again_after_a_change, ONE, "L2"),
    ("M36", written_back_entries_carry_an_advancing_lac, TWO_RECOVERIES, "D6"),
    ("REC-28", recovery_counts_a_failed_bookie_for_every_entry, NO_SPARE, "L10"),
)

MUTANTS = tuple(Mutant(rule, plant, where, frozenset(breaks.split())) for rule, plant, where, breaks in _TABLE)

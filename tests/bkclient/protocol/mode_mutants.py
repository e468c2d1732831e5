"""Defects planted into what a writer's options do, to show that the guarantees of a world with modes find them.

Some are what the Java client does; see docs/reference/better-than-java.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pytest

from bkclient.errors import BookKeeperError
from bkclient.ledger import BookieId, Ensemble
from bkclient.protocol.adds import NewEntry, PendingAdd, PendingAdds
from bkclient.protocol.append import AppendMachine
from bkclient.protocol.force import ForceMachine
from tests.bkclient.protocol.mutants import Plant


class Mutant(NamedTuple):
    """One defect: how to plant it, the name of a configuration that shows it, and the guarantees that it breaks."""

    plant: Plant
    configuration: str
    breaks: frozenset[str]


def the_lac_follows_acknowledgements_in_spite_of_deferred_sync(patch: pytest.MonkeyPatch) -> None:
    init = PendingAdds.__init__
    patch.setattr(PendingAdds, "__init__", lambda self, sizes, ensemble, **_: init(self, sizes, ensemble))


def fault_domains_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingAdds, "spans", lambda self, add, spans: True)


def a_force_is_content_with_an_ack_quorum(patch: pytest.MonkeyPatch) -> None:
    start = ForceMachine.start

    def with_one_answer_less(self: ForceMachine) -> None:
        start(self)
        self._outstanding &= self._outstanding - 1

    patch.setattr(ForceMachine, "start", with_one_answer_less)


def a_force_covers_what_was_acknowledged_when_it_ended(patch: pytest.MonkeyPatch) -> None:
    on_forced = AppendMachine.on_forced

    def all_of_it(self: AppendMachine, entry_id: int, length: int) -> bool:
        return on_forced(self, self.last_add_acknowledged, self.adds.acknowledged_length)

    patch.setattr(AppendMachine, "on_forced", all_of_it)


def a_force_that_ends_after_the_close_claims_success(patch: pytest.MonkeyPatch) -> None:
    on_forced = AppendMachine.on_forced

    def always(self: AppendMachine, entry_id: int, length: int) -> bool:
        on_forced(self, entry_id, length)
        return True

    patch.setattr(AppendMachine, "on_forced", always)


def closing_counts_what_it_cuts_off(patch: pytest.MonkeyPatch) -> None:
    close = AppendMachine.close

    def with_all_bytes(self: AppendMachine, error: BookKeeperError | None = None) -> None:
        self._deferred.length = self.adds.acknowledged_length
        close(self, error)

    patch.setattr(AppendMachine, "close", with_all_bytes)


def closing_includes_what_was_not_forced(patch: pytest.MonkeyPatch) -> None:
    close = AppendMachine.close

    def at_the_sequence_head(self: AppendMachine, error: BookKeeperError | None = None) -> None:
        self._deferred.length = self.adds.acknowledged_length
        self.adds.last_add_confirmed = self.adds.last_add_acknowledged
        close(self, error)

    patch.setattr(AppendMachine, "close", at_the_sequence_head)


def duplicates_are_looked_for_above_the_lac_only(patch: pytest.MonkeyPatch) -> None:
    append_at = AppendMachine.append_at

    def compared_with_the_lac(self: AppendMachine, entry_id: int, payload: bytes) -> NewEntry:
        honest, self.adds.last_add_acknowledged = self.adds.last_add_acknowledged, self.adds.last_add_confirmed
        try:
            return append_at(self, entry_id, payload)
        finally:
            self.adds.last_add_acknowledged = honest

    patch.setattr(AppendMachine, "append_at", compared_with_the_lac)


def entries_above_a_gap_are_reported(patch: pytest.MonkeyPatch) -> None:
    def whatever_is_complete(self: PendingAdds) -> list[NewEntry]:
        done = [add.entry for add in self.in_id_order() if add.has_quorum]
        for entry in done:
            del self.pending[entry.entry_id]
            self.last_add_acknowledged = self.last_add_confirmed = entry.entry_id
        return done

    patch.setattr(PendingAdds, "complete", whatever_is_complete)


def delayed_failures_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingAdds, "is_stuck", lambda self, add: False)


def a_failure_that_breaks_the_quorum_replaces_the_last_bookie_only(patch: pytest.MonkeyPatch) -> None:
    failures_of, switch = PendingAdds.failures_of, PendingAdds.switch

    def one(self: PendingAdds, add: PendingAdd) -> dict[int, BookieId]:
        return dict(list(failures_of(self, add).items())[:1])

    def and_forget(self: PendingAdds, *arguments: Any) -> Any:
        for add in self.pending.values():
            add.failed = 0
        return switch(self, *arguments)

    patch.setattr(PendingAdds, "failures_of", one)
    patch.setattr(PendingAdds, "switch", and_forget)


def what_failed_while_changes_were_disabled_is_not_sent_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AppendMachine, "on_retry", lambda self: None)


def only_the_first_entry_is_sent_again(patch: pytest.MonkeyPatch) -> None:
    resend = AppendMachine._resend

    def first(self: AppendMachine, failed: list[tuple[PendingAdd, dict[int, BookieId]]]) -> None:
        for add, _ in failed:
            add.failed = 0
        resend(self, failed[:1])

    patch.setattr(AppendMachine, "_resend", first)


def bookies_that_nobody_could_replace_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    switch = PendingAdds.switch

    def replaced_only(self: PendingAdds, ensemble: Ensemble, positions: Iterable[int], *arguments: Any) -> Any:
        replaced = [p for p in positions if ensemble[p] != self.ensemble[p]]
        return switch(self, ensemble, replaced, *arguments)

    patch.setattr(PendingAdds, "switch", replaced_only)


def deferred_sync_does_not_forbid_ensemble_changes(patch: pytest.MonkeyPatch) -> None:
    request = AppendMachine._request_change

    def allowed(self: AppendMachine, failures: Mapping[int, BookieId], *, is_voluntary: bool = False) -> None:
        object.__setattr__(self.options, "deferred_sync", False)
        try:
            request(self, failures, is_voluntary=is_voluntary)
        finally:
            object.__setattr__(self.options, "deferred_sync", True)

    patch.setattr(AppendMachine, "_request_change", allowed)


_TABLE: tuple[tuple[Plant, str, str], ...] = (
    (the_lac_follows_acknowledgements_in_spite_of_deferred_sync, "deferred 2/2/2", "D6 A1 A5 B4"),
    (fault_domains_are_ignored, "fault domains 3/3/2", "A13"),
    (a_force_is_content_with_an_ack_quorum, "deferred 2/2/2", "A1 A5 B4"),
    (a_force_covers_what_was_acknowledged_when_it_ended, "deferred 2/2/2", "D6 A1 A5 D16 B4"),
    (a_force_that_ends_after_the_close_claims_success, "deferred 2/2/2", "A1 D16"),
    (closing_counts_what_it_cuts_off, "deferred 2/2/2", "B6"),
    (closing_includes_what_was_not_forced, "deferred 2/2/2", "B4"),
    (duplicates_are_looked_for_above_the_lac_only, "given ids, deferred 2/2/1", "G4"),
    (entries_above_a_gap_are_reported, "given ids 1/1/1", "A3"),
    (delayed_failures_are_not_counted, "delayed 3/3/2", "L2"),
    (a_failure_that_breaks_the_quorum_replaces_the_last_bookie_only, "delayed 3/3/2", "L2"),
    (what_failed_while_changes_were_disabled_is_not_sent_again, "disabled 2/2/2", "L2"),
    (only_the_first_entry_is_sent_again, "disabled 2/2/2", "L2"),
    (bookies_that_nobody_could_replace_are_forgotten, "delayed 3/3/3", "L2"),
    (deferred_sync_does_not_forbid_ensemble_changes, "deferred 2/2/2", "C6 C12"),
)

MUTANTS = tuple(Mutant(plant, where, frozenset(breaks.split())) for plant, where, breaks in _TABLE)

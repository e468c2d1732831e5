"""The metadata update loop: conflicts, unknown outcomes, stale reads, several loops at once, limits."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bkclient.errors import Code, IllegalOperation, MetadataStoreError, NoSuchLedger, NotEnoughBookies, code_of
from bkclient.ledger import LedgerMetadata, LedgerState, Versioned
from bkclient.protocol.intents import Choose, ReplaceBookies
from bkclient.protocol.update import LocalMetadata, ReadMetadata, UpdateHandle, WriteMetadata
from scenarios.machines.store import LEDGER_ID, Store, ledger
from tests.bkclient.protocol.harness import Recovery, Wanted, begin

OPEN = ledger((3, 2, 2), "abc")


def seat(position: int, bookie_id: str, local: LocalMetadata, *, max_attempts: int = 1000) -> UpdateHandle:
    """An update that puts a bookie at a position of the only ensemble."""

    def needs_update(metadata: LedgerMetadata) -> bool:
        return metadata.last_fragment.ensemble[position] != bookie_id

    def transform(metadata: LedgerMetadata) -> LedgerMetadata:
        members = list(metadata.last_fragment.ensemble)
        members[position] = bookie_id
        return metadata.with_ensemble(0, tuple(members))

    return begin(local, Wanted(needs_update, transform), max_attempts=max_attempts)


@pytest.mark.rule("W-48")
@pytest.mark.behaviour("T-210")
def test_a_simple_update_is_stored_and_becomes_the_local_value() -> None:
    store, local = Store(OPEN), LocalMetadata(OPEN)
    update = seat(0, "d", local)

    store.finish(update)

    assert store.ensembles == {0: "dbc"}
    assert local.value is store.value
    assert update.error is None


@pytest.mark.rule("W-48")
def test_an_update_that_is_not_needed_writes_nothing() -> None:
    store, local = Store(OPEN), LocalMetadata(OPEN)

    update = seat(0, "a", local)

    assert update.action is None
    assert update.error is None
    assert store.attempts == 0


@pytest.mark.rule("W-48")
def test_a_write_is_conditional_on_the_version_it_was_computed_from() -> None:
    value = replace(OPEN, version=41)

    update = seat(0, "d", LocalMetadata(value))

    assert update.action == WriteMetadata(value.metadata.with_ensemble(0, ("d", "b", "c")), expected_version=41)


@pytest.mark.rule("W-48")
@pytest.mark.behaviour("T-211")
def test_two_loops_with_different_changes_conflict_and_both_succeed_with_three_writes() -> None:
    store = Store(OPEN)
    ours, theirs = LocalMetadata(OPEN), LocalMetadata(OPEN)
    first, second = seat(0, "d", ours), seat(1, "e", theirs)

    store.carry_out(first)
    store.carry_out(second)
    assert second.action == ReadMetadata(LEDGER_ID)
    store.finish(second)

    assert store.ensembles == {0: "dec"}
    assert store.attempts == 3
    assert theirs.value is store.value


@pytest.mark.rule("W-48")
@pytest.mark.behaviour("T-212")
def test_the_second_of_two_loops_that_want_the_same_finds_nothing_left_to_do() -> None:
    store = Store(OPEN)
    ours, theirs = LocalMetadata(OPEN), LocalMetadata(OPEN)
    first, second = seat(0, "d", ours), seat(0, "d", theirs)

    store.finish(first)
    store.finish(second)

    assert store.ensembles == {0: "dbc"}
    assert store.attempts == 2
    assert store.writes == 1
    assert second.error is None


@pytest.mark.rule("W-48")
@pytest.mark.behaviour("T-213")
def test_a_loop_whose_local_value_changed_under_its_write_merges_with_what_it_finds() -> None:
    store, local = Store(OPEN), LocalMetadata(OPEN)
    first, second = seat(0, "d", local), seat(1, "e", local)
    action = first.action
    assert isinstance(action, WriteMetadata)
    written = store.write(action.metadata, action.expected_version)
    assert written is not None

    # The answer to the first write is under way while the second loop conflicts, reads, and writes.
    store.finish(second)
    assert local.value is store.value
    first.on_written(written)

    assert first.action is None
    assert local.value is store.value
    assert store.ensembles == {0: "dec"}
    assert store.writes == 2


@pytest.mark.rule("W-48")
@pytest.mark.behaviour("T-213")
def test_a_write_that_succeeds_while_the_local_value_changes_is_followed_by_another_if_it_is_still_needed() -> None:
    store, local = Store(OPEN), LocalMetadata(OPEN)
    update = seat(0, "d", local)
    action = update.action
    assert isinstance(action, WriteMetadata)
    written = store.write(action.metadata, action.expected_version)
    assert written is not None

    store.edit(lambda metadata: metadata.with_ensemble(0, ("a", "e", "c")))
    local.value = store.value
    update.on_written(written)
    store.finish(update)

    assert store.ensembles == {0: "dec"}
    assert local.value is store.value


@pytest.mark.rule("W-48")
@pytest.mark.behaviour("T-214")
@pytest.mark.parametrize("seed", range(5))
def test_a_hundred_loops_that_share_a_local_value_all_get_their_change_in(seed: int) -> None:
    rng = Random(seed)
    size = 100
    old = Versioned(
        replace(
            OPEN.metadata,
            ensemble_size=size,
            fragments=(replace(OPEN.metadata.fragments[0], ensemble=tuple(f"old{i}" for i in range(size))),),
        ),
        0,
    )
    store, local = Store(old), LocalMetadata(old)
    running = [seat(position, f"new{position}", local) for position in range(size)]

    while running:
        update = rng.choice(running)
        store.carry_out(update)
        if update.action is None:
            assert update.error is None
            running.remove(update)

    assert store.metadata.last_fragment.ensemble == tuple(f"new{i}" for i in range(size))
    assert local.value is store.value


@pytest.mark.rule("W-48")
@pytest.mark.behaviour("T-215")
def test_a_newer_value_that_is_read_counts_even_if_the_local_value_changed_meanwhile() -> None:
    store, local = Store(replace(OPEN, version=3)), LocalMetadata(OPEN)
    update = seat(0, "d", local)
    store.carry_out(update)

    local.value = replace(OPEN, version=1)
    store.carry_out(update)

    assert local.value is store.value


@pytest.mark.rule("W-48")
def test_a_read_that_is_older_than_the_local_value_is_not_believed() -> None:
    store, local = Store(OPEN), LocalMetadata(OPEN)
    store.edit(lambda metadata: metadata.with_ensemble(0, ("a", "b", "e")))
    fresh = local.value = store.value
    update = seat(0, "d", local)

    update.on_conflict()
    update.on_read(OPEN)  # a replica of the store that lags behind

    assert local.value is fresh
    assert update.action == WriteMetadata(fresh.metadata.with_ensemble(0, ("d", "b", "e")), expected_version=1)


@pytest.mark.rule("W-48")
def test_a_read_of_the_same_version_keeps_the_local_value_and_tries_again() -> None:
    local = LocalMetadata(OPEN)
    update = seat(0, "d", local)

    update.on_conflict()
    update.on_read(replace(OPEN))

    assert local.value is OPEN
    assert isinstance(update.action, WriteMetadata)


@pytest.mark.rule("M31")
def test_a_write_of_unknown_outcome_that_took_effect_is_found_again_and_not_repeated() -> None:
    store, local = Store(OPEN), LocalMetadata(OPEN)
    update = seat(0, "d", local)

    store.carry_out(update, lose_answer=True)
    store.finish(update)

    assert update.error is None
    assert store.writes == 1
    assert local.value is store.value


@pytest.mark.rule("M31")
def test_a_write_of_unknown_outcome_that_took_no_effect_is_repeated() -> None:
    store, local = Store(OPEN), LocalMetadata(OPEN)
    update = seat(0, "d", local)

    update.on_conflict()
    store.finish(update)

    assert store.ensembles == {0: "dbc"}
    assert store.writes == 1


@pytest.mark.rule("M30")
def test_after_a_conflict_the_change_is_computed_anew_from_what_was_read() -> None:
    store, local = Store(OPEN), LocalMetadata(OPEN)
    update = seat(0, "d", local)
    store.edit(lambda metadata: metadata.with_ensemble(0, ("a", "e", "c")).with_state(LedgerState.IN_RECOVERY))

    store.carry_out(update)
    store.carry_out(update)

    assert update.action == WriteMetadata(store.metadata.with_ensemble(0, ("d", "e", "c")), store.value.version)


@pytest.mark.rule("W-48")
def test_conflicts_are_retried_as_often_as_allowed_and_then_reported() -> None:
    store, local = Store(OPEN), LocalMetadata(OPEN)
    update = seat(0, "d", local, max_attempts=3)

    while update.action is not None:
        store.edit(lambda metadata: metadata)
        store.carry_out(update)

    assert store.attempts == 3
    assert store.writes == 0
    assert update.error is not None
    assert update.error.code is Code.METADATA_VERSION
    assert update.error.ledger_id == LEDGER_ID
    assert "ensemble" in str(update.error)


@pytest.mark.rule("W-49")
@pytest.mark.parametrize("error", [MetadataStoreError("down"), NoSuchLedger(ledger_id=LEDGER_ID)])
def test_an_error_of_the_store_ends_the_update(error: MetadataStoreError | NoSuchLedger) -> None:
    local = LocalMetadata(OPEN)
    update = seat(0, "d", local)

    update.on_error(error)

    assert update.action is None
    assert update.error is error
    assert local.value is OPEN


@pytest.mark.rule("W-48")
def test_an_error_of_the_predicate_ends_the_update_before_anything_is_written() -> None:
    def refuse(metadata: LedgerMetadata) -> bool:
        raise IllegalOperation(ledger_id=metadata.ledger_id)

    update = begin(LocalMetadata(OPEN), Wanted(refuse, lambda metadata: metadata))

    assert update.action is None
    assert isinstance(update.error, IllegalOperation)


@pytest.mark.rule("W-48")
def test_an_error_of_the_transformation_ends_the_update() -> None:
    def refuse(metadata: LedgerMetadata) -> LedgerMetadata:
        raise IllegalOperation(ledger_id=metadata.ledger_id)

    update = begin(LocalMetadata(OPEN), Wanted(lambda _: True, refuse))

    assert update.action is None
    assert isinstance(update.error, IllegalOperation)


@pytest.mark.rule("W-30")
@pytest.mark.rule("REC-35")
def test_a_transformation_that_would_break_the_metadata_fails_the_update_as_a_defect() -> None:
    value = ledger((3, 2, 2), {0: "abc", 5: "abd"})

    intent = Wanted(lambda _: True, lambda metadata: metadata.with_ensemble(3, ("a", "b", "e")))
    update = begin(LocalMetadata(value), intent)

    assert update.action is None
    assert update.error is not None
    assert update.error.code is Code.UNEXPECTED_CONDITION
    assert update.error.ledger_id == LEDGER_ID
    assert "below the last one at 5" in str(update.error)
    assert "unknown result code" not in str(update.error)
    assert isinstance(update.error.__cause__, ValueError)


def test_updates_of_one_view_are_told_apart_by_number() -> None:
    local = LocalMetadata(OPEN)
    first, second = seat(0, "d", local), seat(1, "e", local)

    assert first.number != second.number
    assert (first.cause, first.ledger_id) == ("ensemble", LEDGER_ID)
    assert first.action != second.action
    first.on_error(NoSuchLedger(ledger_id=LEDGER_ID))
    assert local.end(first.number).error is not None
    assert second.error is None


def test_nobody_chooses_bookies_for_a_view_that_belongs_to_no_writer() -> None:
    with pytest.raises(AssertionError, match=r"nothing chooses bookies for \{0: 'a'\} of ledger 7"):
        begin(LocalMetadata(OPEN), ReplaceBookies(0, ((0, "a"),)))


def test_a_recovery_wants_no_ensemble_chosen_in_the_store() -> None:
    with pytest.raises(NotImplementedError):
        Recovery().machine.choose_ensemble(OPEN.metadata, {0: "a"})


# Giving up while a write may be applied still ---------------------------------------------------------------------


class Choice:
    """Puts a bookie at the first position, as long as there is one."""

    cause = "ensemble"

    def __init__(self, *bookies: str) -> None:
        self.bookies = list(bookies)

    def is_needed(self, metadata: LedgerMetadata) -> bool:
        return metadata.last_fragment.ensemble[0] == "a"

    def applied(self, metadata: LedgerMetadata, choose: Choose) -> LedgerMetadata:
        del choose
        if not self.bookies:
            raise NotEnoughBookies(ledger_id=LEDGER_ID)
        return metadata.with_ensemble(0, (self.bookies.pop(0), *metadata.last_fragment.ensemble[1:]))


def in_doubt(store: Store, local: LocalMetadata, **options: int) -> tuple[UpdateHandle, WriteMetadata]:
    """An update that has no bookie left, after it read that its write was not applied; and that write."""
    update = begin(local, Choice("d"), **options)
    under_way = update.action
    assert isinstance(under_way, WriteMetadata)
    update.on_conflict()
    assert update.action == ReadMetadata(LEDGER_ID)
    store.carry_out(update)
    return update, under_way


@pytest.mark.rule("W-48")
def test_an_update_that_gives_up_first_makes_sure_that_its_write_is_not_applied_later() -> None:
    store, local = Store(OPEN), LocalMetadata(OPEN)
    update, under_way = in_doubt(store, local)
    assert update.action == WriteMetadata(OPEN.metadata, OPEN.version), "the metadata as they are"
    store.finish(update)
    assert isinstance(update.error, NotEnoughBookies)
    assert local.value == Versioned(OPEN.metadata, OPEN.version + 1) == store.value
    assert store.write(under_way.metadata, under_way.expected_version) is None, "it comes too late"


@pytest.mark.rule("W-48")
def test_a_write_that_was_applied_after_all_is_what_the_update_wanted() -> None:
    store, local = Store(OPEN), LocalMetadata(OPEN)
    update, under_way = in_doubt(store, local)
    assert store.write(under_way.metadata, under_way.expected_version) is not None
    store.finish(update)
    assert update.error is None
    assert local.value is store.value
    assert store.ensembles == {0: "dbc"}


@pytest.mark.rule("W-48")
def test_the_write_that_makes_sure_may_stay_without_an_answer_too() -> None:
    store, local = Store(OPEN), LocalMetadata(OPEN)
    update, under_way = in_doubt(store, local)
    update.on_conflict()
    store.carry_out(update)
    assert update.action == WriteMetadata(OPEN.metadata, OPEN.version), "again"
    store.carry_out(update, lose_answer=True)
    store.finish(update)
    assert isinstance(update.error, NotEnoughBookies)
    assert local.value == store.value == Versioned(OPEN.metadata, OPEN.version + 1), "a newer version is sure enough"
    assert store.write(under_way.metadata, under_way.expected_version) is None


@pytest.mark.rule("W-48")
def test_making_sure_ends_with_the_attempts_or_with_what_the_store_says() -> None:
    local = LocalMetadata(OPEN)
    update, _ = in_doubt(Store(OPEN), local, max_attempts=2)
    update.on_conflict()
    update.on_read(OPEN)
    assert (update.action, code_of(update.error)) == (None, Code.METADATA_VERSION), (
        "no error that a writer goes on after"
    )
    other, _ = in_doubt(Store(OPEN), local)
    other.on_error(MetadataStoreError())
    assert other.action is None
    assert isinstance(other.error, MetadataStoreError)


@pytest.mark.rule("W-48")
def test_an_update_without_a_write_under_way_gives_up_at_once() -> None:
    update = begin(LocalMetadata(OPEN), Choice())
    assert update.action is None
    assert isinstance(update.error, NotEnoughBookies)
    store, local = Store(OPEN), LocalMetadata(OPEN)
    conflicting = begin(local, Choice("d"))
    store.edit(lambda metadata: metadata.with_ensemble(0, ("a", "e", "c")))
    store.finish(conflicting)
    assert isinstance(conflicting.error, NotEnoughBookies)
    assert store.writes == 0, "another version is there, so the write was refused"

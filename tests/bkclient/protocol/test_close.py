"""Closing by the writer: where the ledger ends, what becomes of entries in flight, and who else may be at it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkclient.errors import ClientClosed, Code, MetadataStoreError, UnexpectedCondition
from bkclient.ledger import Fragment, LedgerState
from scenarios.machines.store import LEDGER_ID
from tests.bkclient.protocol.harness import Writer


def writer_with_one_confirmed() -> Writer:
    """Entry 0 (4 bytes) is confirmed, entry 1 (3 bytes) in flight."""
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"zero", b"one")
    writer.ok("0a 0b")
    return writer


@pytest.mark.rule("W-51")
@pytest.mark.rule("M27")
def test_closing_seals_the_ledger_at_the_last_confirmed_entry_with_the_bytes_up_to_it() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append(b"zero", b"one")
    writer.ok("0a 0b 1a 1b")

    writer.close()
    assert writer.closed == []
    writer.metadata_arrives()

    assert writer.closed == [None]
    metadata = writer.store.metadata
    assert (metadata.state, metadata.last_entry_id, metadata.length) == (LedgerState.CLOSED, 1, 7)
    assert writer.store.ensembles == {0: "abc"}


@pytest.mark.rule("W-51")
def test_an_empty_ledger_closes_at_minus_one() -> None:
    writer = Writer()

    writer.close()
    writer.metadata_arrives()

    assert (writer.store.metadata.last_entry_id, writer.store.metadata.length) == (-1, 0)


@pytest.mark.rule("W-51")
@pytest.mark.rule("W-52")
@pytest.mark.behaviour("T-103")
@pytest.mark.rule("M26")
def test_an_entry_in_flight_at_close_fails_and_is_not_part_of_the_ledger() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append(b"lost")

    writer.close()
    assert writer.failed == [(0, Code.LEDGER_CLOSED)]
    writer.metadata_arrives()

    assert (writer.store.metadata.last_entry_id, writer.store.metadata.length) == (-1, 0)
    assert writer.errors[0].ledger_id == LEDGER_ID


@pytest.mark.rule("W-52")
@pytest.mark.rule("M25")
def test_an_entry_in_flight_at_close_fails_even_if_all_its_bookies_store_it_afterwards() -> None:
    writer = writer_with_one_confirmed()

    writer.close()
    writer.ok("1a 1b 1c")
    writer.metadata_arrives()

    assert writer.acked == [0]
    assert writer.failed == [(1, Code.LEDGER_CLOSED)]
    assert (writer.store.metadata.last_entry_id, writer.store.metadata.length) == (0, 4)


@pytest.mark.rule("W-52")
@pytest.mark.behaviour("T-80")
def test_entries_that_only_wait_for_an_ensemble_change_fail_at_close_too() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"", b"")
    writer.timeout("1a")
    writer.ok("0b 0c")

    writer.close()
    assert writer.failed == [(0, Code.LEDGER_CLOSED), (1, Code.LEDGER_CLOSED)]
    change, close = writer.updates
    writer.store.finish(close)
    writer.ended(close)
    writer.store.finish(change)
    writer.ended(change)

    assert writer.store.ensembles == {0: "abc"}
    assert writer.store.metadata.last_entry_id == -1
    assert writer.closed == [None]


@pytest.mark.rule("W-51")
@pytest.mark.rule("W-3")
@pytest.mark.behaviour("T-98")
def test_a_writer_accepts_nothing_from_the_moment_it_closes() -> None:
    writer = writer_with_one_confirmed()

    writer.close()

    assert not writer.machine.is_writable
    assert writer.machine.refusal().code is Code.LEDGER_CLOSED
    assert writer.machine.refusal().ledger_id == LEDGER_ID


@pytest.mark.rule("W-58")
def test_failed_entries_are_reported_before_the_close_is() -> None:
    writer = writer_with_one_confirmed()

    writer.close()

    assert writer.failed == [(1, Code.LEDGER_CLOSED)]
    assert writer.closed == []


@pytest.mark.rule("W-55")
@pytest.mark.behaviour("T-104")
def test_closing_twice_is_closing_once() -> None:
    writer = writer_with_one_confirmed()

    writer.close()
    writer.close()
    assert len(writer.updates) == 1
    assert writer.closed == []
    writer.metadata_arrives()
    writer.close()

    assert writer.closed == [None]
    assert writer.updates == []
    assert writer.store.writes == 1


@pytest.mark.rule("W-53")
@pytest.mark.behaviour("T-99")
def test_a_close_that_conflicts_with_re_replication_keeps_the_other_change() -> None:
    writer = writer_with_one_confirmed()
    writer.timeout("1a")
    writer.metadata_arrives()
    writer.store.edit(
        lambda metadata: replace(metadata, fragments=(Fragment(0, tuple("xbc")), *metadata.fragments[1:]))
    )

    writer.close()
    writer.metadata_arrives()

    assert writer.closed == [None]
    assert writer.store.ensembles == {0: "xbc", 1: "dbc"}
    assert writer.store.metadata.last_entry_id == 0


@pytest.mark.rule("W-54")
@pytest.mark.behaviour("T-100")
def test_a_ledger_that_somebody_else_closed_at_the_same_end_is_closed() -> None:
    writer = writer_with_one_confirmed()
    writer.store.edit(lambda metadata: metadata.closed(0, 4))

    writer.close()
    writer.metadata_arrives()

    assert writer.closed == [None]
    assert writer.store.writes == 0


@pytest.mark.rule("W-54")
@pytest.mark.rule("W-50")
@pytest.mark.behaviour("T-101")
@pytest.mark.rule("M29")
@pytest.mark.parametrize(("last_entry_id", "length"), [(1, 7), (0, 5)])
def test_a_ledger_that_somebody_else_closed_at_another_end_stays_so_and_the_close_fails(
    last_entry_id: int, length: int
) -> None:
    writer = writer_with_one_confirmed()
    writer.store.edit(lambda metadata: metadata.closed(last_entry_id, length))

    writer.close()
    writer.metadata_arrives()

    assert writer.closed == [Code.METADATA_VERSION]
    assert f"closed the ledger at entry {last_entry_id}" in str(writer.errors[-1])
    assert writer.store.writes == 0
    assert (writer.machine.last_add_confirmed, writer.machine.length) == (last_entry_id, length)


@pytest.mark.rule("W-43")
@pytest.mark.rule("W-54")
@pytest.mark.behaviour("T-102")
def test_a_ledger_in_recovery_is_closed_by_its_writer_where_the_writers_confirmations_end() -> None:
    writer = writer_with_one_confirmed()
    writer.store.edit(lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))

    writer.close()
    writer.metadata_arrives()

    assert writer.closed == [None]
    assert (writer.store.metadata.state, writer.store.metadata.last_entry_id) == (LedgerState.CLOSED, 0)


@pytest.mark.rule("M31")
def test_a_close_whose_outcome_is_unknown_is_found_to_have_taken_effect() -> None:
    writer = writer_with_one_confirmed()
    writer.close()
    update = writer.updates.pop()

    writer.store.carry_out(update, lose_answer=True)
    writer.store.finish(update)
    writer.ended(update)

    assert writer.closed == [None]
    assert writer.store.writes == 1


@pytest.mark.rule("M31")
def test_a_close_whose_outcome_is_unknown_is_repeated_if_it_took_no_effect() -> None:
    writer = writer_with_one_confirmed()
    writer.close()
    update = writer.updates.pop()

    update.on_conflict()
    writer.store.finish(update)
    writer.ended(update)

    assert writer.closed == [None]
    assert writer.store.writes == 1
    assert writer.store.metadata.is_closed


@pytest.mark.rule("W-49")
def test_a_store_that_fails_the_close_leaves_the_ledger_open_and_says_so() -> None:
    writer = writer_with_one_confirmed()
    writer.close()
    update = writer.updates.pop()

    update.on_error(MetadataStoreError("down"))
    writer.ended(update)

    assert writer.closed == [Code.METADATA_STORE]
    assert writer.store.metadata.state is LedgerState.OPEN
    assert writer.machine.last_add_confirmed == 0


@pytest.mark.behaviour("T-105")
@pytest.mark.rule("W-42")
def test_after_one_refusal_the_late_answers_of_other_bookies_do_not_move_the_end() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"zero", b"one", b"two")
    writer.ok("0a 0b")

    writer.answer("1a", Code.UNAUTHORIZED)
    assert writer.failed == [(1, Code.UNAUTHORIZED), (2, Code.UNAUTHORIZED)]
    writer.metadata_arrives()
    sealed = writer.store.value
    writer.timeout("0c 1b 1c 2a 2b 2c")
    writer.ok("1b 1c 2b 2c")

    assert writer.store.value is sealed
    assert writer.updates == []
    assert writer.closed == [None]


@pytest.mark.rule("W-52")
def test_an_answer_of_the_quorum_after_the_close_began_does_not_move_the_end_of_a_conflicting_close() -> None:
    writer = writer_with_one_confirmed()
    writer.store.edit(lambda metadata: metadata)  # a new version, so that the close has to try again
    writer.close()
    update = writer.updates.pop()

    writer.store.carry_out(update)
    writer.ok("1a 1b 1c")
    writer.store.finish(update)
    writer.ended(update)

    assert (writer.store.metadata.last_entry_id, writer.store.metadata.length) == (0, 4)


@pytest.mark.rule("API-19")
def test_a_writer_that_is_abandoned_fails_what_is_in_flight_and_leaves_its_ledger_open() -> None:
    writer = writer_with_one_confirmed()

    writer.machine.abandon(ClientClosed())
    assert writer.failed == [(1, Code.CLIENT_CLOSED)]
    assert not writer.machine.is_writable
    writer.machine.abandon(ClientClosed())
    writer.ok("1a 1b")

    assert writer.failed == [(1, Code.CLIENT_CLOSED)]
    assert writer.closed == []
    assert writer.store.metadata.state is LedgerState.OPEN


def test_a_writer_that_is_stopped_hands_back_what_is_in_flight_and_does_nothing_more() -> None:
    writer = writer_with_one_confirmed()
    why = UnexpectedCondition("a handler raised")

    assert [add.entry_id for add in writer.machine.stop(why)] == [1]
    assert (writer.machine.last_add_pushed, writer.machine.length) == (0, 4)
    assert writer.machine.stop(UnexpectedCondition()) == []
    writer.ok("1a 1b")
    writer.answer("1c", Code.TIMEOUT)
    writer.machine.act_on_late_failures()

    assert not writer.machine.is_writable
    assert writer.machine.fatal_error is why
    assert writer.machine.refusal().code == Code.UNEXPECTED_CONDITION
    assert (writer.failed, writer.closed) == ([], [])
    assert writer.machine.last_add_confirmed == 0
    assert writer.store.metadata.state is LedgerState.OPEN


@pytest.mark.rule("API-19")
def test_abandoning_a_writer_that_is_closed_changes_nothing() -> None:
    writer = writer_with_one_confirmed()
    writer.close()

    writer.machine.abandon(ClientClosed())
    assert writer.machine.fatal_error is None
    writer.metadata_arrives()
    writer.close()

    assert writer.closed == [None]
    assert writer.store.metadata.last_entry_id == 0

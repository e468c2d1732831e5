"""Ensemble changes against the metadata store and against other clients of the ledger."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkclient.errors import Code, MetadataStoreError
from bkclient.ledger import Fragment, LedgerMetadata, LedgerState
from tests.bkclient.protocol.harness import Writer


@pytest.mark.rule("W-32")
@pytest.mark.rule("W-50")
@pytest.mark.behaviour("T-81")
@pytest.mark.rule("M28")
def test_a_ledger_that_somebody_else_closed_stays_as_closed_and_its_writer_learns_so() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"zero", b"one")
    writer.ok("0a 0b")
    writer.store.edit(lambda metadata: metadata.closed(1, 7))

    writer.timeout("1a")
    writer.metadata_arrives()

    assert writer.failed == [(1, Code.LEDGER_CLOSED)]
    assert writer.store.metadata == writer.machine.metadata
    assert (writer.machine.last_add_confirmed, writer.machine.last_add_pushed, writer.machine.length) == (1, 1, 7)
    writer.metadata_arrives()
    assert writer.closed == [None]
    assert writer.store.writes == 0


@pytest.mark.rule("W-32")
@pytest.mark.rule("W-41")
@pytest.mark.rule("W-44")
@pytest.mark.rule("REC-4")
@pytest.mark.rule("REC-43")
@pytest.mark.behaviour("T-82")
@pytest.mark.rule("M28")
def test_a_writer_that_finds_its_ledger_in_recovery_fails_its_entries_and_leaves_the_end_to_the_other_client() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"", b"")
    writer.store.edit(lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))

    writer.timeout("1a")
    writer.ok("0b 0c")
    writer.metadata_arrives()

    assert writer.failed == [(0, Code.LEDGER_FENCED), (1, Code.LEDGER_FENCED)]
    assert writer.updates == []
    assert writer.closed == []
    assert writer.store.metadata.state is LedgerState.IN_RECOVERY
    assert writer.store.ensembles == {0: "abc"}
    assert not writer.machine.is_writable
    assert writer.machine.refusal().code is Code.LEDGER_FENCED


@pytest.mark.rule("W-44")
@pytest.mark.rule("W-54")
def test_a_writer_that_found_its_ledger_in_recovery_may_still_close_it_where_its_confirmations_end() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"zero", b"one")
    writer.ok("0a 0b")
    writer.store.edit(lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))
    writer.timeout("1a")
    writer.metadata_arrives()

    writer.close()
    writer.metadata_arrives()

    assert writer.closed == [None]
    assert (writer.store.metadata.last_entry_id, writer.store.metadata.length) == (0, 4)
    assert writer.machine.refusal().code is Code.LEDGER_FENCED


@pytest.mark.rule("W-30")
@pytest.mark.behaviour("T-83")
def test_a_change_that_conflicts_with_re_replication_of_an_older_fragment_keeps_both() -> None:
    writer = Writer((3, 3, 2), "abc", spares="de")
    writer.append(b"", b"")
    writer.ok("0a 0b 0c")
    writer.timeout("1a")
    writer.metadata_arrives()
    writer.append()
    writer.ok("1d 1b 2b 2d")

    def re_replicate(metadata: LedgerMetadata) -> LedgerMetadata:
        return replace(metadata, fragments=(Fragment(0, tuple("xbc")), *metadata.fragments[1:]))

    writer.append()
    writer.timeout("3b")
    writer.store.edit(re_replicate)
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "xbc", 1: "dbc", 3: "dec"}


@pytest.mark.rule("M31")
def test_a_change_whose_outcome_is_unknown_is_found_to_have_taken_effect() -> None:
    writer = Writer((3, 3, 2), "abc", spares="de")
    writer.append()
    writer.timeout("0b")
    update = writer.updates.pop()

    writer.store.carry_out(update, lose_answer=True)
    writer.store.finish(update)
    writer.ended(update)

    assert writer.store.ensembles == {0: "adc"}
    assert writer.store.writes == 1
    assert writer.sent().endswith("0d")
    writer.ok("0a 0d")
    assert writer.acked == [0]


@pytest.mark.rule("W-32")
@pytest.mark.rule("W-49")
def test_a_store_that_fails_the_change_fails_the_entries_and_the_writer_tries_to_close() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.timeout("0b")
    update = writer.updates.pop()

    update.on_error(MetadataStoreError("down"))
    writer.ended(update)
    assert writer.failed == [(0, Code.METADATA_STORE)]

    writer.metadata_arrives()
    assert writer.closed == [None]
    assert writer.store.metadata.is_closed


@pytest.mark.rule("W-49")
@pytest.mark.rule("DEL-3")
def test_a_writer_of_a_deleted_ledger_learns_so_from_its_next_change() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.store.is_deleted = True

    writer.timeout("0b")
    writer.metadata_arrives()
    assert writer.failed == [(0, Code.NO_SUCH_LEDGER)]

    writer.metadata_arrives()
    assert writer.closed == [Code.NO_SUCH_LEDGER]


@pytest.mark.rule("W-30")
def test_a_fragment_that_starts_above_the_next_entry_is_somebody_elses_defect() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"", b"")
    writer.store.edit(lambda metadata: metadata.with_ensemble(5, tuple("abc")))

    writer.timeout("0b")
    writer.metadata_arrives()

    assert writer.failed == [(0, Code.UNEXPECTED_CONDITION), (1, Code.UNEXPECTED_CONDITION)]


@pytest.mark.rule("W-56")
def test_a_change_that_ends_after_the_writer_has_ended_has_no_effect_on_it() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.timeout("0b")
    writer.answer("0a", Code.LEDGER_FENCED)
    assert writer.failed == [(0, Code.LEDGER_FENCED)]
    writer.sent()

    writer.metadata_arrives()  # the change is stored
    assert writer.sent() == ""
    writer.metadata_arrives()  # the close conflicts with it, reads, and closes

    assert writer.closed == [None]
    assert writer.store.ensembles == {0: "adc"}
    assert writer.store.metadata.last_entry_id == -1


@pytest.mark.rule("W-56")
def test_a_change_that_finds_the_ledger_closed_by_its_own_writer_writes_nothing() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.timeout("0b")
    writer.close()
    change, close = writer.updates

    writer.store.finish(close)
    writer.ended(close)
    writer.store.finish(change)
    writer.ended(change)

    assert writer.closed == [None]
    assert writer.failed == [(0, Code.LEDGER_CLOSED)]
    assert writer.store.ensembles == {0: "abc"}
    assert writer.store.writes == 1


@pytest.mark.rule("W-43")
def test_a_fenced_writer_closes_over_recovery_at_its_own_end() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append(b"zero", b"one")
    writer.ok("0a 0b")
    writer.store.edit(lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))

    writer.answer("1a", Code.LEDGER_FENCED)
    writer.metadata_arrives()

    assert writer.failed == [(1, Code.LEDGER_FENCED)]
    assert writer.closed == [None]
    assert (writer.store.metadata.last_entry_id, writer.store.metadata.length) == (0, 4)


@pytest.mark.rule("W-56")
@pytest.mark.rule("API-19")
def test_a_change_that_fails_after_the_client_was_closed_does_not_close_the_ledger() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.timeout("0b")
    writer.answer("0a", Code.CLIENT_CLOSED)
    change = writer.updates.pop()

    change.on_error(MetadataStoreError("down"))
    writer.ended(change)

    assert writer.failed == [(0, Code.CLIENT_CLOSED)]
    assert writer.updates == []
    assert writer.machine.refusal().code is Code.CLIENT_CLOSED

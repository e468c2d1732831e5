"""Recovery closes the ledger: its length, conflicts, and other clients that want to close it too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkclient.errors import ClientClosed, Code, MetadataStoreError, UnexpectedCondition
from bkclient.ledger import Fragment, LedgerState
from bkclient.protocol.recovery import EntryVerdict
from scenarios.machines.store import LEDGER_ID, Store, ledger
from tests.bkclient.protocol.harness import Recovery, Writer, end_of, reading

POSITIVE, NEGATIVE, UNKNOWN = EntryVerdict.POSITIVE, EntryVerdict.NEGATIVE, EntryVerdict.UNKNOWN
CLOSED, IN_RECOVERY = LedgerState.CLOSED, LedgerState.IN_RECOVERY


# Length and close ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-14")
def test_when_nothing_was_recovered_the_length_is_read_from_the_last_entry() -> None:
    recovery = reading((3, 3, 2), "abc", lac=4, length=99)  # 99: the header that carried LAC 4 is that of a later entry
    recovery.denied("5c 5a")
    assert recovery.sent().endswith("r4b r4c r4a")
    assert recovery.phase == "measuring"

    recovery.denied("4b")
    assert recovery.updates == []
    recovery.found("4a", length=40)
    recovery.found("4c", length=77)
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 4, 40)
    assert recovery.decided == [(5, NEGATIVE, "ca")]


@pytest.mark.rule("REC-14")
@pytest.mark.rule("H-28")
def test_the_length_of_a_ledger_with_a_single_confirmed_entry_is_read_too() -> None:
    recovery = reading((1, 1, 1), "a", lac=0, length=99)
    recovery.denied("1a")
    assert recovery.phase == "measuring"

    recovery.found("0a", length=10)
    assert recovery.phase == "closing"
    recovery.metadata_arrives()

    assert recovery.phase == "done"
    assert end_of(recovery) == (CLOSED, 0, 10)


@pytest.mark.rule("REC-14")
@pytest.mark.rule("H-28")
def test_the_length_of_a_ledger_with_an_empty_last_fragment_is_read_from_the_fragment_before() -> None:
    recovery = Recovery((1, 1, 1), {0: "a", 3: "b"})
    recovery.start()
    recovery.fenced("b")
    recovery.denied("3b")
    assert recovery.sent() == "F.b R3b r2a"

    recovery.found("2a", length=33)
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 2, 33)


@pytest.mark.rule("REC-14")
def test_if_the_last_entry_cannot_be_read_the_length_found_with_the_lac_has_to_do() -> None:
    recovery = reading((2, 2, 2), "ab", lac=4, length=50)
    recovery.denied("5a")

    recovery.unknown("4a 4b")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 4, 50)


@pytest.mark.rule("REC-33")
def test_the_length_is_that_of_the_last_entry_written_back() -> None:
    recovery = reading((1, 1, 1), "a", lac=0, length=10)
    recovery.found("1a", payload=b"abc", length=8)
    recovery.written("1a")
    recovery.denied("2a")

    assert "r" not in recovery.sent()
    recovery.metadata_arrives()
    assert end_of(recovery) == (CLOSED, 1, 8)


@pytest.mark.rule("REC-36")
def test_a_conflict_with_re_replication_while_closing_keeps_the_other_change() -> None:
    recovery = Recovery((1, 1, 1), {0: "a", 1: "b"}, spares="c")
    recovery.start()
    recovery.fenced("b")
    recovery.found("1b")
    recovery.not_written("1b")
    recovery.written("1c")
    recovery.denied("2b")
    recovery.store.edit(lambda metadata: replace(metadata, fragments=(Fragment(0, ("x",)), *metadata.fragments[1:])))

    recovery.metadata_arrives()

    assert recovery.finished == [None]
    assert recovery.store.ensembles == {0: "x", 1: "c"}
    assert end_of(recovery) == (CLOSED, 1, 2)


@pytest.mark.rule("REC-35")
@pytest.mark.behaviour("T-129")
def test_a_fragment_that_somebody_appended_during_recovery_is_reported_as_a_defect() -> None:
    recovery = reading((1, 1, 1), "a", spares="b")
    recovery.found("0a")
    recovery.not_written("0a")
    recovery.written("0b")
    recovery.denied("1a")
    recovery.store.edit(lambda metadata: metadata.with_ensemble(1, ("x",)))

    recovery.metadata_arrives()

    assert recovery.finished == [Code.LEDGER_RECOVERY]
    assert "UNEXPECTED_CONDITION" in str(recovery.errors[0])
    assert recovery.store.metadata.state is IN_RECOVERY


@pytest.mark.rule("REC-34")
@pytest.mark.rule("M11")
def test_a_ledger_that_is_open_again_when_recovery_wants_to_close_it_is_reported_as_a_defect() -> None:
    recovery = reading((1, 1, 1), "a")
    recovery.denied("0a")
    recovery.store.edit(lambda metadata: metadata.with_state(LedgerState.OPEN))

    recovery.metadata_arrives()

    assert recovery.finished == [Code.LEDGER_RECOVERY]
    assert recovery.store.metadata.state is LedgerState.OPEN
    cause = recovery.errors[0].__cause__
    assert isinstance(cause, UnexpectedCondition)
    assert cause.ledger_id == LEDGER_ID
    assert cause.message == "the ledger is open again during recovery"
    assert str(cause) in str(recovery.errors[0])


@pytest.mark.rule("REC-37")
@pytest.mark.behaviour("T-128")
@pytest.mark.rule("M12")
@pytest.mark.rule("M13")
def test_a_ledger_that_somebody_else_closed_meanwhile_is_adopted_without_comparison() -> None:
    recovery = reading((1, 1, 1), "a", spares="b")
    recovery.found("0a")
    recovery.not_written("0a")
    recovery.store.edit(lambda metadata: metadata.closed(-1, 0))
    recovery.written("0b")
    recovery.denied("1a")

    recovery.metadata_arrives()

    assert recovery.finished == [None]
    assert end_of(recovery) == (CLOSED, -1, 0)
    assert recovery.store.ensembles == {0: "a"}
    assert (recovery.machine.last_add_confirmed, recovery.machine.length) == (-1, 0)


@pytest.mark.rule("REC-40")
def test_a_store_that_fails_the_close_fails_the_recovery() -> None:
    recovery = reading((1, 1, 1), "a")
    recovery.denied("0a")
    update = recovery.updates.pop()

    update.on_error(MetadataStoreError("down"))
    recovery.ended(update)

    assert recovery.finished == [Code.LEDGER_RECOVERY]
    assert recovery.phase == "failed"


@pytest.mark.rule("REC-38")
@pytest.mark.rule("REC-39")
def test_replacements_are_forgotten_with_the_attempt_to_close() -> None:
    first = reading((1, 1, 1), "a", spares="b")
    first.found("0a")
    first.not_written("0a")
    first.written("0b")
    first.denied("1a")
    first.updates[0].on_error(MetadataStoreError("down"))
    first.ended(first.updates.pop())
    assert first.finished == [Code.LEDGER_RECOVERY]
    assert first.store.ensembles == {0: "a"}

    second = Recovery(store=first.store)
    second.start()
    assert second.sent() == "F.a"
    second.fenced("a", lac=-1)
    second.found("0a")
    second.written("0a")
    second.denied("1a")
    second.metadata_arrives()

    assert end_of(second) == (CLOSED, 0, 1)
    assert second.store.ensembles == {0: "a"}


@pytest.mark.rule("M31")
def test_a_close_whose_outcome_is_unknown_is_found_to_have_taken_effect() -> None:
    recovery = reading((1, 1, 1), "a")
    recovery.denied("0a")
    update = recovery.updates.pop()

    recovery.store.carry_out(update, lose_answer=True)
    recovery.store.finish(update)
    recovery.ended(update)

    assert recovery.finished == [None]
    assert recovery.store.writes == 2


@pytest.mark.rule("API-17")
@pytest.mark.rule("REC-40")
@pytest.mark.parametrize("cause", ["recover", "close"])
def test_a_client_that_is_closed_during_an_update_fails_the_recovery_as_closed(cause: str) -> None:
    if cause == "recover":
        recovery = Recovery((1, 1, 1), "a")
        recovery.machine.start()
    else:
        recovery = reading((1, 1, 1), "a")
        recovery.denied("0a")
    (update,) = recovery.updates
    assert update.cause == cause  # observers and recordings tell the two apart by it

    update.on_error(ClientClosed("gone", ledger_id=LEDGER_ID))
    recovery.ended(update)

    assert recovery.finished == [Code.CLIENT_CLOSED]
    assert "gone" in str(recovery.errors[0])


def test_a_metadata_result_that_belongs_to_no_update_under_way_is_ignored() -> None:
    recovery = Recovery((1, 1, 1), "a")
    recovery.machine.start()
    update = recovery.updates[0]
    recovery.metadata_arrives()

    recovery.ended(update)

    assert recovery.sent() == "F.a"
    assert recovery.phase == "fencing"


# Two clients at once ------------------------------------------------------------------------------------------------


def two_recoveries() -> tuple[Recovery, Recovery]:
    """Two recoveries of one ledger at [a, b] with both copies needed; both have marked and sent their fences."""
    store = Store(ledger((2, 2, 2), "ab"))
    first, second = Recovery(store=store), Recovery(store=store)
    first.machine.start()
    second.machine.start()
    first.metadata_arrives()
    second.metadata_arrives()
    assert store.writes == 1
    return first, second


@pytest.mark.rule("REC-41")
@pytest.mark.behaviour("T-111")
def test_two_recoveries_of_a_half_written_tail_agree_with_whoever_closes_first() -> None:
    first, second = two_recoveries()
    # Entry 0 is on a alone; its writer never got an ack quorum.
    first.fenced("a", lac=-1)
    second.fenced("b")
    first.found("0a")
    second.denied("0b")  # before the first recovery writes it there
    first.written("0a 0b")
    first.denied("1a")

    second.metadata_arrives()
    first.metadata_arrives()

    assert second.finished == [None]
    assert first.finished == [None]
    assert end_of(first) == (CLOSED, -1, 0)
    assert first.machine.metadata == second.machine.metadata


@pytest.mark.rule("REC-41")
@pytest.mark.rule("M12")
def test_the_other_order_keeps_the_entry_for_both() -> None:
    first, second = two_recoveries()
    first.fenced("a", lac=-1)
    second.fenced("b")
    first.found("0a")
    second.denied("0b")
    first.written("0a 0b")
    first.denied("1a")

    first.metadata_arrives()
    second.metadata_arrives()

    assert end_of(first) == (CLOSED, 0, 1)
    assert second.finished == [None]
    assert (second.machine.last_add_confirmed, second.machine.length) == (0, 1)


@pytest.mark.rule("REC-41")
@pytest.mark.rule("M36")
def test_no_entry_of_a_recovery_tells_a_lac_that_another_recovery_may_close_below() -> None:
    first, second = two_recoveries()
    # Entries 0 and 1 are on a alone, unacknowledged.
    first.fenced("a", lac=-1)
    second.fenced("b")
    first.found("0a")
    second.denied("0b")
    first.written("0a 0b")
    first.found("1a")
    second.metadata_arrives()

    assert end_of(second) == (CLOSED, -1, 0)
    assert {add.last_add_confirmed for add in first.adds.values()} == {-1}


@pytest.mark.rule("REC-42")
@pytest.mark.rule("W-43")
@pytest.mark.behaviour("T-102")
def test_a_writer_that_closes_first_is_followed_by_the_recovery() -> None:
    store = Store(ledger((1, 1, 1), "a"))
    writer, recovery = Writer(store=store), Recovery(store=store)
    writer.append(b"zero", b"one")
    writer.ok("0a")
    recovery.start()
    recovery.fenced("a", lac=-1)
    recovery.found("0a", payload=b"zero", length=4)
    recovery.found("1a", payload=b"one", length=7)  # stored, but its acknowledgement never reached the writer
    recovery.written("0a 1a")
    recovery.denied("2a")

    writer.close()
    writer.metadata_arrives()
    recovery.metadata_arrives()

    assert writer.closed == [None]
    assert recovery.finished == [None]
    assert end_of(recovery) == (CLOSED, 0, 4)
    assert recovery.machine.last_add_confirmed == 0


@pytest.mark.rule("REC-42")
@pytest.mark.rule("W-54")
@pytest.mark.behaviour("T-101")
@pytest.mark.rule("M29")
def test_a_recovery_that_closes_first_is_followed_by_the_writer() -> None:
    store = Store(ledger((1, 1, 1), "a"))
    writer, recovery = Writer(store=store), Recovery(store=store)
    writer.append(b"zero", b"one")
    writer.ok("0a")
    recovery.start()
    recovery.fenced("a", lac=-1)
    recovery.found("0a", payload=b"zero", length=4)
    recovery.found("1a", payload=b"one", length=7)
    recovery.written("0a 1a")
    recovery.denied("2a")
    recovery.metadata_arrives()

    writer.close()
    writer.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 1, 7)
    assert writer.closed == [Code.METADATA_VERSION]
    assert writer.failed == [(1, Code.LEDGER_CLOSED)]


@pytest.mark.behaviour("T-100")
@pytest.mark.rule("REC-14")
def test_writer_and_recovery_that_find_the_same_end_agree_on_the_length_too() -> None:
    store = Store(ledger((1, 1, 1), "a"))
    writer, recovery = Writer(store=store), Recovery(store=store)
    writer.append(b"zero", b"one")
    writer.ok("0a 1a")
    recovery.start()
    recovery.fenced("a", lac=0, length=7)  # entry 1 carries LAC 0 and the length with entry 1
    recovery.found("1a", payload=b"one", length=7)
    recovery.written("1a")
    recovery.denied("2a")
    recovery.metadata_arrives()

    writer.close()
    writer.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 1, 7)
    assert writer.closed == [None]


@pytest.mark.rule("REC-5")
@pytest.mark.rule("M11")
@pytest.mark.rule("M28")
def test_a_writer_that_moves_on_before_the_mark_is_followed_and_one_that_comes_after_it_is_stopped() -> None:
    store = Store(ledger((1, 1, 1), "a"))
    writer, recovery = Writer(store=store, spares="b"), Recovery(store=store)
    recovery.machine.start()
    writer.append()
    writer.timeout("0a")
    writer.metadata_arrives()  # the writer's change is first
    recovery.metadata_arrives()
    assert recovery.sent() == "F.b"

    writer.spares = "c"
    writer.timeout("0b")
    writer.metadata_arrives()  # too late for another one

    assert writer.failed == [(0, Code.LEDGER_FENCED)]
    assert store.ensembles == {0: "b"}
    assert store.metadata.state is IN_RECOVERY

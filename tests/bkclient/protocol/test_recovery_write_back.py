"""Recovery makes what it found durable: writing back, and bookies that fail meanwhile."""

from __future__ import annotations

import pytest

from bkclient.errors import Code, NotEnoughBookies, UnexpectedCondition
from bkclient.ledger import LedgerState
from bkclient.protocol.recovery import EntryVerdict
from scenarios.machines.store import LEDGER_ID
from tests.bkclient.protocol.harness import Recovery, end_of, reading

POSITIVE, NEGATIVE, UNKNOWN = EntryVerdict.POSITIVE, EntryVerdict.NEGATIVE, EntryVerdict.UNKNOWN
CLOSED, IN_RECOVERY = LedgerState.CLOSED, LedgerState.IN_RECOVERY


# Writing back -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-24")
def test_a_written_back_entry_keeps_its_payload_and_length() -> None:
    recovery = reading((3, 3, 2), "abc", lac=4, length=50)

    recovery.found("5a", payload=b"five!", length=61)

    assert (recovery.adds[5].payload, recovery.adds[5].length) == (b"five!", 61)
    assert recovery.machine.length == 61


@pytest.mark.rule("REC-22")
@pytest.mark.rule("REC-24")
@pytest.mark.rule("M36")
def test_written_back_entries_carry_the_lac_that_recovery_started_from() -> None:
    recovery = reading((1, 1, 1), "a", lac=3, length=4)

    for entry_id in (4, 5, 6):
        recovery.found(f"{entry_id}a")
        recovery.written(f"{entry_id}a")

    assert [add.last_add_confirmed for add in recovery.adds.values()] == [3, 3, 3]
    assert recovery.machine.last_add_confirmed == 6


@pytest.mark.rule("REC-23")
def test_the_next_entry_is_read_without_waiting_for_the_write_back() -> None:
    recovery = reading((1, 1, 1), "a")

    recovery.found("0a")
    recovery.found("1a")

    assert recovery.sent() == "F.a R0a W0a R1a W1a R2a"


@pytest.mark.rule("REC-23")
def test_write_backs_under_way_are_limited() -> None:
    recovery = reading((1, 1, 1), "a", max_write_backs=2)
    recovery.found("0a")
    recovery.found("1a")
    assert recovery.sent() == "F.a R0a W0a R1a W1a"
    assert recovery.machine.pending_count == 2

    recovery.written("1a")
    assert recovery.sent() == ""
    recovery.written("0a")
    assert recovery.sent() == "R2a"

    recovery.denied("2a")
    recovery.metadata_arrives()
    assert end_of(recovery) == (CLOSED, 1, 2)


@pytest.mark.rule("REC-25")
@pytest.mark.rule("REC-30")
@pytest.mark.rule("M06")
def test_the_ledger_is_closed_only_when_every_entry_reached_an_ack_quorum_in_order() -> None:
    recovery = reading((3, 3, 2), "abc")
    recovery.found("0a")
    recovery.found("1a")
    recovery.denied("2a 2b")

    recovery.written("1a 1b 1c 0a")
    assert recovery.updates == []
    recovery.written("0c")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 1, 2)


@pytest.mark.rule("DS-6")
@pytest.mark.behaviour("T-142")
def test_an_ack_quorum_counts_different_bookies_and_stays_reached() -> None:
    recovery = reading((3, 3, 2), "abc")
    recovery.found("0a")
    recovery.denied("1a 1b")

    recovery.written("0a 0a 0a")
    assert recovery.updates == []
    recovery.written("0c")
    assert len(recovery.updates) == 1
    recovery.written("0b 0c")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 0, 1)


@pytest.mark.rule("M49")
@pytest.mark.rule("REC-28")
@pytest.mark.rule("REC-40")
@pytest.mark.parametrize(
    ("code", "reported"),
    [
        (Code.LEDGER_FENCED, Code.LEDGER_RECOVERY),
        (Code.ILLEGAL_OPERATION, Code.LEDGER_RECOVERY),
        (Code.UNAUTHORIZED, Code.UNAUTHORIZED),
        (Code.CLIENT_CLOSED, Code.CLIENT_CLOSED),
    ],
)
def test_a_refused_write_back_fails_the_recovery(code: Code, reported: Code) -> None:
    recovery = reading((3, 3, 2), "abc", spares="d")
    recovery.found("0a")

    recovery.not_written("0b", code)
    recovery.denied("1a 1b")
    recovery.written("0a 0c")

    assert recovery.finished == [reported]
    assert recovery.errors[0].message.startswith("a bookie refused a recovery add")
    assert end_of(recovery) == (IN_RECOVERY, -1, 0)
    assert recovery.updates == []


# Bookies that fail while writing back -------------------------------------------------------------------------------


@pytest.mark.rule("REC-27")
@pytest.mark.rule("REC-34")
@pytest.mark.behaviour("T-130")
@pytest.mark.rule("M10")
def test_a_replacement_stays_in_memory_until_the_ledger_is_closed() -> None:
    recovery = reading((3, 3, 2), "abc", spares="d")
    recovery.found("0a")
    recovery.sent()

    recovery.not_written("0b")
    assert recovery.sent() == "W0d"
    assert recovery.store.ensembles == {0: "abc"}
    recovery.written("0a 0d")
    recovery.denied("1a 1b")
    assert recovery.store.ensembles == {0: "abc"}
    recovery.metadata_arrives()

    assert recovery.store.ensembles == {0: "adc"}
    assert end_of(recovery) == (CLOSED, 0, 1)
    assert recovery.store.writes == 2


@pytest.mark.rule("REC-27")
@pytest.mark.behaviour("T-131")
def test_a_bookie_that_fails_at_the_second_entry_is_replaced_from_there_on() -> None:
    recovery = reading((3, 3, 2), "abc", spares="d")
    recovery.found("0a")
    recovery.written("0a 0b 0c")
    recovery.found("1a")

    recovery.not_written("1b")
    recovery.written("1a 1d")
    recovery.denied("2a 2b")
    recovery.metadata_arrives()

    assert recovery.store.ensembles == {0: "abc", 1: "adc"}
    assert end_of(recovery) == (CLOSED, 1, 2)


@pytest.mark.rule("REC-27")
@pytest.mark.behaviour("T-124")
@pytest.mark.behaviour("T-132")
def test_two_bookies_that_fail_the_same_entry_are_replaced_in_one_ensemble() -> None:
    recovery = reading((3, 3, 2), "abc", spares="de")
    recovery.found("0a")

    recovery.not_written("0a 0b")
    recovery.written("0d 0e")
    recovery.denied("1a 1b")
    recovery.metadata_arrives()

    assert recovery.store.ensembles == {0: "dec"}


@pytest.mark.rule("REC-27")
@pytest.mark.rule("REC-34")
def test_replacements_at_several_entries_become_fragments_in_order() -> None:
    recovery = reading((2, 2, 2), "ab", spares="cde")
    for entry_id, failing, others in ((0, "a", "bc"), (1, "b", "cd"), (2, "c", "de")):
        recovery.found(f"{entry_id}a")
        recovery.not_written(f"{entry_id}{failing}")
        recovery.written(" ".join(f"{entry_id}{bookie}" for bookie in others))
    recovery.denied("3a")
    recovery.metadata_arrives()

    assert recovery.store.ensembles == {0: "cb", 1: "cd", 2: "ed"}
    assert end_of(recovery) == (CLOSED, 2, 3)


@pytest.mark.rule("W-38")
@pytest.mark.rule("REC-27")
def test_write_backs_that_a_replaced_bookie_stored_do_not_count() -> None:
    recovery = reading((2, 2, 2), "ab", spares="c")
    recovery.found("0a")
    recovery.found("1a")
    recovery.written("1b")
    recovery.denied("2a")
    recovery.sent()

    recovery.not_written("0b")
    assert recovery.sent() == "W0c W1c"
    recovery.written("0a 0b 1a 1b 0c")
    assert recovery.updates == []
    recovery.written("1c")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 1, 2)
    assert recovery.store.ensembles == {0: "ac"}


@pytest.mark.rule("REC-28")
@pytest.mark.behaviour("T-120")
@pytest.mark.behaviour("T-127")
@pytest.mark.rule("H-33")
def test_without_a_spare_bookie_a_write_back_that_needs_every_bookie_fails_the_recovery() -> None:
    recovery = reading((3, 3, 3), "abc")
    recovery.found("0a")

    recovery.not_written("0b")

    assert recovery.finished == [Code.LEDGER_RECOVERY]
    (error,) = recovery.errors
    assert error.message.endswith(" (NOT_ENOUGH_BOOKIES)")
    assert "(b: A bookie did not answer within the request timeout)" in str(error.__cause__), (
        "why it had to be replaced"
    )
    assert "entry 0 cannot be written back" in str(recovery.errors[0])
    cause = recovery.errors[0].__cause__
    assert isinstance(cause, NotEnoughBookies)
    assert "entry 0" not in str(cause)  # it says which bookies could not be replaced, the recovery what that meant
    assert str(cause) in str(recovery.errors[0])
    assert end_of(recovery) == (IN_RECOVERY, -1, 0)
    assert recovery.store.ensembles == {0: "abc"}


@pytest.mark.rule("REC-25")
@pytest.mark.rule("REC-28")
def test_without_a_spare_bookie_an_ack_quorum_suffices() -> None:
    recovery = reading((3, 3, 2), "abc")
    recovery.found("0a")
    recovery.not_written("0b")
    assert recovery.finished == []

    recovery.found("1a")
    recovery.not_written("1b")
    recovery.written("0a 0c 1a 1c")
    recovery.denied("2a 2c")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 1, 2)
    assert recovery.store.ensembles == {0: "abc"}


@pytest.mark.rule("REC-28")
def test_a_second_failure_that_leaves_no_ack_quorum_fails_the_recovery() -> None:
    recovery = reading((3, 3, 2), "abc")
    recovery.found("0a")
    recovery.written("0a")

    recovery.not_written("0b")
    assert recovery.finished == []
    recovery.not_written("0c")

    assert recovery.finished == [Code.LEDGER_RECOVERY]


@pytest.mark.rule("REC-28")
def test_a_bookie_that_failed_one_entry_may_still_store_the_next() -> None:
    recovery = reading((3, 3, 2), "abc")
    recovery.found("0a")
    recovery.not_written("0b")
    recovery.written("0a 0c")
    recovery.found("1a")

    recovery.not_written("1c")
    assert recovery.finished == []  # the answers of a and b to entry 1 are still to come
    recovery.written("1b 1a")
    recovery.denied("2a 2c")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 1, 2)


@pytest.mark.rule("REC-28")
def test_a_recovery_without_spares_gives_up_when_the_last_answer_that_could_help_has_come() -> None:
    recovery = reading((3, 3, 2), "abc")
    recovery.found("0a")
    recovery.not_written("0b")
    recovery.written("0a 0c")
    recovery.found("1a")
    recovery.not_written("1c")
    assert recovery.finished == []

    recovery.not_written("1b")

    assert recovery.finished == [Code.LEDGER_RECOVERY]
    assert "entry 1 cannot be written back" in recovery.errors[0].message


@pytest.mark.rule("REC-28")
def test_a_bookie_that_was_done_without_may_be_replaced_once_a_spare_appears() -> None:
    recovery = reading((3, 3, 2), "abc")
    recovery.found("0a")
    recovery.not_written("0b")
    recovery.spares = "d"
    recovery.found("1a")
    recovery.sent()

    recovery.not_written("1b")
    assert recovery.sent() == "W0d W1d"
    recovery.not_written("0c")  # with d, entry 0 still has a and d
    recovery.written("0a 0d 1a 1d")
    recovery.denied("2a 2b")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 1, 2)
    assert recovery.store.ensembles == {0: "adc"}


@pytest.mark.rule("REC-28")
def test_a_bookie_that_failed_a_write_back_is_not_offered_another_place_in_the_same_recovery() -> None:
    recovery = reading((2, 2, 2), "ab", spares="abcd")
    recovery.found("0a")
    recovery.sent()

    recovery.not_written("0b")
    recovery.not_written("0c")
    recovery.not_written("0d")

    assert recovery.sent() == "W0c W0d"
    assert recovery.finished == [Code.LEDGER_RECOVERY]


@pytest.mark.rule("PL-4")
@pytest.mark.rule("H-33")
def test_a_placement_that_offers_a_failed_bookie_fails_the_recovery_as_a_defect() -> None:
    recovery = reading((2, 2, 2), "ab")
    recovery.replace_bookie = lambda ensemble, position, excluded: "b"  # type: ignore[method-assign]
    recovery.found("0a")

    recovery.not_written("0b")

    assert recovery.finished == [Code.LEDGER_RECOVERY]
    cause = recovery.errors[0].__cause__
    assert isinstance(cause, UnexpectedCondition)
    assert recovery.errors[0].message.endswith(" (UNEXPECTED_CONDITION)")
    assert (cause.ledger_id, cause.bookie_id) == (LEDGER_ID, "b")
    assert str(cause) in str(recovery.errors[0])
    assert end_of(recovery) == (IN_RECOVERY, -1, 0)


@pytest.mark.rule("REC-25")
def test_a_write_back_that_fails_after_its_ack_quorum_is_left_to_re_replication() -> None:
    recovery = reading((3, 3, 2), "abc", spares="d")
    recovery.found("0a")
    recovery.found("1a")
    recovery.written("1a 1b")

    recovery.not_written("1c")
    recovery.written("0a 0b")
    recovery.not_written("0c", Code.UNAUTHORIZED)
    recovery.denied("2a 2b")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 1, 2)
    assert recovery.store.ensembles == {0: "abc"}


def with_a_quorum_that_lost_a_bookie(spares: str) -> Recovery:
    """Entry 1 has a and b and failed at c; then a fails entry 0 and is replaced, and entry 1 has only b again."""
    recovery = reading((3, 3, 2), "abc", spares=spares)
    recovery.found("0a")
    recovery.found("1a")
    recovery.denied("2a 2b")
    recovery.written("1a 1b 0c")
    recovery.not_written("1c")
    recovery.sent()
    recovery.not_written("0a")
    return recovery


@pytest.mark.rule("REC-27")
@pytest.mark.rule("W-28")
def test_a_bookie_that_failed_after_the_quorum_is_replaced_with_the_next_one_that_fails() -> None:
    recovery = with_a_quorum_that_lost_a_bookie(spares="de")

    assert recovery.sent() == "W0d W0e W1d W1e"
    recovery.written("0b 0d 1d")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 1, 2)
    assert recovery.store.ensembles == {0: "dbe"}


@pytest.mark.rule("REC-28")
@pytest.mark.rule("L2")
def test_a_bookie_that_failed_after_the_quorum_and_cannot_be_replaced_is_asked_again_instead_of_waited_for() -> None:
    recovery = with_a_quorum_that_lost_a_bookie(spares="d")
    assert recovery.sent() == "W0d W0c W1d W1c"

    recovery.written("0b 0d")
    recovery.not_written("1d")
    assert recovery.finished == []
    recovery.not_written("1c")

    assert recovery.finished == [Code.LEDGER_RECOVERY]


@pytest.mark.rule("REC-28")
@pytest.mark.rule("L2")
def test_without_any_spare_bookie_nothing_is_replaced_and_the_quorum_stays() -> None:
    recovery = with_a_quorum_that_lost_a_bookie(spares="")
    assert recovery.finished == []  # entry 1 still has a and b, and entry 0 has c and waits for b

    recovery.written("0b")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 1, 2)


@pytest.mark.rule("REC-39")
@pytest.mark.behaviour("T-122")
@pytest.mark.behaviour("T-123")
@pytest.mark.rule("M10")
def test_a_recovery_that_fails_leaves_nothing_but_the_mark_and_can_be_repeated() -> None:
    first = reading((2, 2, 2), "ab", spares="c")
    first.found("0a")
    first.not_written("0b")
    first.not_written("0c", Code.WRITE)
    assert first.finished == [Code.LEDGER_RECOVERY]
    assert first.store.ensembles == {0: "ab"}

    second = Recovery(store=first.store, spares="d")
    second.start()
    assert second.sent() == "F.a F.b"
    second.fenced("ab", lac=-1)
    second.found("0a")
    second.not_written("0b")
    second.written("0a 0d")
    second.denied("1a")
    second.metadata_arrives()

    assert second.finished == [None]
    assert end_of(second) == (CLOSED, 0, 1)
    assert second.store.ensembles == {0: "ad"}


@pytest.mark.behaviour("T-194")
def test_a_ledger_whose_old_metadata_names_a_bookie_twice_can_be_recovered() -> None:
    recovery = Recovery((2, 2, 2), "aa")
    recovery.start()
    recovery.fenced("aa", lac=-1)
    recovery.found("0a")

    recovery.written("0a 0a")
    recovery.denied("1a")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 0, 1)

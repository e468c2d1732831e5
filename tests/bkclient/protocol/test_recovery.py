"""Recovery, phase by phase, and against writers, other recoveries and re-replication."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkclient.errors import Code, MetadataStoreError
from bkclient.metadata.model import Fragment, LedgerState
from bkclient.protocol.recovery import Verdict, starting_lac
from tests.bkclient.protocol.harness import LEDGER_ID, Recovery, Store, Writer, ledger

POSITIVE, NEGATIVE, UNKNOWN = Verdict.POSITIVE, Verdict.NEGATIVE, Verdict.UNKNOWN


def reading(
    sizes: tuple[int, int, int] = (3, 3, 2),
    ensembles: str | dict[int, str] = "abc",
    *,
    lac: int | None = None,
    length: int = 0,
    spares: str = "",
    max_write_backs: int = 256,
) -> Recovery:
    """A recovery whose fences were answered by all bookies; what it has sent so far is forgotten."""
    recovery = Recovery(sizes, ensembles, spares=spares, max_write_backs=max_write_backs)
    recovery.start()
    recovery.fenced("".join(recovery.store.metadata.last_fragment.ensemble), lac=lac, length=length)
    return recovery


def end_of(recovery: Recovery) -> tuple[LedgerState, int, int]:
    metadata = recovery.store.metadata
    return metadata.state, metadata.last_entry_id, metadata.length


CLOSED, IN_RECOVERY = LedgerState.CLOSED, LedgerState.IN_RECOVERY


# Marking -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-3")
@pytest.mark.rule("REC-5")
def test_the_ledger_is_marked_before_any_bookie_is_asked() -> None:
    recovery = Recovery()

    recovery.machine.start()
    assert recovery.sent() == ""
    recovery.metadata_arrives()

    assert recovery.store.metadata.state is IN_RECOVERY
    assert recovery.sent() == "F.a F.b F.c"


@pytest.mark.rule("REC-3")
def test_a_ledger_that_is_in_recovery_already_is_recovered_without_marking_it_again() -> None:
    store = Store(ledger((3, 3, 2), "abc", state=IN_RECOVERY))
    recovery = Recovery(store=store)

    recovery.start()

    assert store.attempts == 0
    assert recovery.sent() == "F.a F.b F.c"


@pytest.mark.rule("REC-2")
@pytest.mark.rule("REC-3")
@pytest.mark.rule("T-137")
def test_a_ledger_that_turns_out_closed_is_left_alone_and_no_bookie_is_asked() -> None:
    recovery = Recovery()
    recovery.store.edit(lambda metadata: metadata.closed(4, 44))

    recovery.start()

    assert recovery.finished == [None]
    assert recovery.sent() == ""
    assert recovery.store.writes == 0
    assert (recovery.machine.last_add_confirmed, recovery.machine.length) == (4, 44)
    assert recovery.machine.metadata.is_closed


@pytest.mark.rule("REC-3")
@pytest.mark.rule("REC-15")
def test_a_conflict_while_marking_is_resolved_and_the_newest_ensemble_is_fenced() -> None:
    recovery = Recovery(ensembles="abc")
    recovery.store.edit(lambda metadata: metadata.with_ensemble(0, tuple("abd")))

    recovery.start()

    assert recovery.sent() == "F.a F.b F.d"
    assert recovery.store.metadata.state is IN_RECOVERY


@pytest.mark.rule("M31")
def test_a_mark_whose_outcome_is_unknown_is_read_again_before_anything_is_fenced() -> None:
    recovery = Recovery()
    recovery.machine.start()
    update = recovery.updates.pop()

    recovery.store.carry_out(update, lose_answer=True)
    assert recovery.sent() == ""
    recovery.store.finish(update)
    recovery.machine.on_update_done(update)

    assert recovery.store.writes == 1
    assert recovery.sent() == "F.a F.b F.c"


@pytest.mark.rule("REC-40")
@pytest.mark.rule("W-49")
def test_a_store_that_fails_the_mark_fails_the_recovery() -> None:
    recovery = Recovery()
    recovery.machine.start()
    update = recovery.updates.pop()

    update.on_error(MetadataStoreError("down"))
    recovery.machine.on_update_done(update)

    assert recovery.finished == [Code.LEDGER_RECOVERY]
    assert "METADATA_STORE" in str(recovery.errors[0])
    assert recovery.errors[0].ledger_id == LEDGER_ID


# Fencing -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-6")
@pytest.mark.rule("REC-8")
@pytest.mark.rule("M04")
def test_reading_begins_only_when_no_unfenced_ack_quorum_is_left() -> None:
    recovery = Recovery((3, 3, 2), "abc")
    recovery.start()
    recovery.sent()

    recovery.fenced("b", lac=-1)
    assert recovery.sent() == ""

    recovery.fenced("a")
    assert recovery.sent() == "R0a R0b R0c"
    assert recovery.phase == "reading"


@pytest.mark.rule("DS-11")
@pytest.mark.rule("M05")
def test_in_a_striped_ensemble_every_write_set_must_be_covered() -> None:
    recovery = Recovery((3, 2, 2), "abc")
    recovery.start()
    recovery.sent()

    recovery.fenced("a")
    assert recovery.sent() == ""

    recovery.fenced("b")
    assert recovery.sent() == "R0a R0b"


@pytest.mark.rule("REC-8")
def test_one_silent_bookie_does_not_hold_up_the_fencing() -> None:
    recovery = Recovery((3, 3, 2), "abc")
    recovery.start()

    recovery.fenced("ac", lac=2, length=3)

    assert recovery.phase == "reading"
    assert recovery.sent().endswith("R3a R3b R3c")


@pytest.mark.rule("REC-8")
def test_fences_that_are_answered_late_change_nothing() -> None:
    recovery = Recovery((3, 3, 3), "abc")
    recovery.start()
    recovery.fenced("a", lac=1, length=2)
    recovery.sent()

    recovery.fenced("b", lac=9, length=10)
    recovery.fenced("c", code=Code.UNAUTHORIZED)

    assert recovery.sent() == ""
    assert recovery.finished == []
    assert recovery.machine.last_add_confirmed == 1


@pytest.mark.rule("REC-7")
def test_a_fence_answer_with_a_wrong_digest_neither_covers_nor_tells_a_lac() -> None:
    recovery = Recovery((2, 2, 2), "ab")
    recovery.start()
    recovery.sent()

    recovery.fenced("a", code=Code.DIGEST_MATCH)
    assert recovery.sent() == ""

    recovery.fenced("b", lac=0, length=1)
    assert recovery.sent() == "R1b R1a"


@pytest.mark.rule("REC-9")
@pytest.mark.rule("REC-40")
@pytest.mark.rule("T-116")
def test_a_refused_fence_fails_the_recovery_at_once() -> None:
    recovery = Recovery((3, 3, 2), "abc")
    recovery.start()

    recovery.fenced("b", code=Code.UNAUTHORIZED)

    assert recovery.finished == [Code.UNAUTHORIZED]
    assert recovery.store.metadata.state is IN_RECOVERY


@pytest.mark.rule("REC-9")
@pytest.mark.rule("REC-10")
@pytest.mark.rule("REC-40")
@pytest.mark.rule("T-18")
@pytest.mark.rule("T-126")
@pytest.mark.parametrize(
    ("code", "reported"),
    [
        (Code.TIMEOUT, Code.TIMEOUT),
        (Code.CLIENT_CLOSED, Code.CLIENT_CLOSED),
        (Code.BOOKIE_NOT_AVAILABLE, Code.LEDGER_RECOVERY),
        (Code.READ, Code.LEDGER_RECOVERY),
        (Code.DATA_UNKNOWN, Code.LEDGER_RECOVERY),
        (-4711, Code.LEDGER_RECOVERY),
    ],
)
def test_too_few_fences_fail_the_recovery_with_a_timeout_as_such_and_else_as_recovery_failed(
    code: int, reported: Code
) -> None:
    recovery = Recovery((3, 3, 2), "abc")
    recovery.start()

    recovery.fenced("a", lac=0, length=1)
    recovery.fenced("bc", code=code)

    assert recovery.finished == [reported]
    assert recovery.errors[0].ledger_id == LEDGER_ID
    assert recovery.updates == []
    assert recovery.store.metadata.state is IN_RECOVERY


@pytest.mark.rule("REC-40")
def test_the_error_of_a_failed_recovery_names_what_went_wrong() -> None:
    recovery = Recovery((1, 1, 1), "a")
    recovery.start()
    recovery.fenced("a", code=Code.BOOKIE_NOT_AVAILABLE)
    assert "BOOKIE_NOT_AVAILABLE" in str(recovery.errors[0])

    recovery = Recovery((1, 1, 1), "a")
    recovery.start()
    recovery.fenced("a", code=-4711)
    assert "-4711" in str(recovery.errors[0])


# Starting point ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-13")
@pytest.mark.parametrize(("found", "first", "start"), [(-1, 0, -1), (3, 0, 3), (-1, 5, 4), (4, 5, 4), (9, 5, 9)])
def test_recovery_starts_at_the_lac_but_never_below_the_last_fragment(found: int, first: int, start: int) -> None:
    assert starting_lac(found, first) == start


@pytest.mark.rule("REC-13")
@pytest.mark.rule("T-134")
@pytest.mark.rule("M08")
def test_entries_of_earlier_fragments_are_settled_even_if_the_last_ensemble_knows_no_lac() -> None:
    recovery = Recovery((1, 1, 1), {0: "a", 1: "b"}, spares="c")
    recovery.start()
    assert recovery.sent() == "F.b"

    recovery.fenced("b")
    assert recovery.sent() == "R1b"
    recovery.found("1b", length=2)
    recovery.not_written("1b")  # replaced at entry 1, where the fragment starts
    recovery.denied("2b")
    recovery.written("1c")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 1, 2)
    assert recovery.store.ensembles == {0: "a", 1: "c"}


@pytest.mark.rule("REC-13")
def test_entries_up_to_the_lac_found_are_not_read() -> None:
    recovery = reading(lac=6, length=7)

    assert recovery.sent().endswith("F.c R7b R7c R7a")


@pytest.mark.rule("REC-12")
def test_fencing_asks_for_last_entries_and_for_no_explicit_lac() -> None:
    recovery = Recovery()
    recovery.start()

    assert set(recovery.sent().split()) == {"F.a", "F.b", "F.c"}


# Reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-17")
@pytest.mark.rule("M01")
def test_every_recovery_read_fences_its_bookie() -> None:
    recovery = reading(lac=1, length=2)
    recovery.found("2a")
    recovery.found("3a")

    reads = [cue for cue in recovery.sent().split() if cue[0] in "Rr"]

    assert reads == ["R2c", "R2a", "R2b", "R3a", "R3b", "R3c", "R4b", "R4c", "R4a"]


@pytest.mark.rule("REC-18")
@pytest.mark.rule("REC-33")
@pytest.mark.rule("T-118")
def test_an_empty_ledger_is_closed_at_minus_one_without_measuring_anything() -> None:
    recovery = reading((3, 3, 2), "abc")

    recovery.denied("0a")
    assert recovery.updates == []
    recovery.denied("0c")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, -1, 0)
    assert recovery.finished == [None]
    assert recovery.decided == [(0, NEGATIVE, "ac")]
    assert "r" not in recovery.sent()


@pytest.mark.rule("REC-19")
@pytest.mark.rule("REC-23")
@pytest.mark.rule("REC-26")
@pytest.mark.rule("T-118")
@pytest.mark.rule("M07")
def test_an_entry_above_the_lac_is_written_back_to_its_whole_write_set() -> None:
    recovery = reading((3, 2, 2), "abc")
    recovery.sent()

    recovery.found("0b", payload=b"zero", length=4)
    assert recovery.sent() == "W0a W0b R1b R1c"
    recovery.written("0a 0b")
    recovery.denied("1c")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 0, 4)
    assert recovery.decided == [(0, POSITIVE, "b"), (1, NEGATIVE, "c")]


@pytest.mark.rule("REC-18")
@pytest.mark.rule("M02")
@pytest.mark.rule("M14")
def test_a_timeout_is_no_negative() -> None:
    recovery = reading((3, 3, 2), "abc")

    recovery.denied("0a")
    recovery.unknown("0b")
    assert recovery.decided == []

    recovery.unknown("0c")
    assert recovery.finished == [Code.TIMEOUT]
    assert recovery.decided == [(0, UNKNOWN, "")]
    assert end_of(recovery) == (IN_RECOVERY, -1, 0)


@pytest.mark.rule("REC-20")
@pytest.mark.rule("REC-32")
@pytest.mark.rule("REC-39")
@pytest.mark.rule("REC-40")
@pytest.mark.rule("M14")
@pytest.mark.parametrize(
    ("code", "reported"),
    [
        (Code.TIMEOUT, Code.TIMEOUT),
        (Code.UNAUTHORIZED, Code.UNAUTHORIZED),
        (Code.CLIENT_CLOSED, Code.CLIENT_CLOSED),
        (Code.BOOKIE_NOT_AVAILABLE, Code.LEDGER_RECOVERY),
        (Code.DIGEST_MATCH, Code.LEDGER_RECOVERY),
        (Code.READ, Code.LEDGER_RECOVERY),
        (Code.DATA_UNKNOWN, Code.LEDGER_RECOVERY),
    ],
)
def test_what_can_be_neither_found_nor_denied_fails_the_recovery_and_closes_nothing(code: Code, reported: Code) -> None:
    recovery = reading((3, 3, 2), "abc")

    recovery.denied("0a")
    recovery.unknown("0b 0c", code)

    assert recovery.finished == [reported]
    assert recovery.updates == []
    assert end_of(recovery) == (IN_RECOVERY, -1, 0)
    assert "entry 0 can be neither read nor ruled out" in str(recovery.errors[0])


@pytest.mark.rule("REC-18")
@pytest.mark.rule("M03")
def test_one_negative_does_not_decide_when_an_ack_quorum_may_be_elsewhere() -> None:
    recovery = reading((2, 2, 1), "ab")

    recovery.denied("0a")
    assert recovery.decided == []
    recovery.found("0b")
    recovery.written("0b")
    recovery.denied("1a 1b")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 0, 1)


@pytest.mark.rule("REC-18")
@pytest.mark.rule("T-121")
@pytest.mark.rule("T-191")
@pytest.mark.rule("M50")
def test_one_hung_bookie_does_not_hold_up_the_decision() -> None:
    recovery = reading((3, 3, 2), "abc")
    recovery.found("0c")
    recovery.written("0c 0b")
    recovery.denied("1b 1c")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 0, 1)


@pytest.mark.rule("REC-19")
def test_the_first_good_answer_decides_and_the_others_are_ignored() -> None:
    recovery = reading((3, 3, 2), "abc")
    recovery.found("0a")
    recovery.sent()

    recovery.found("0b 0c")
    recovery.denied("0b 0c")

    assert recovery.sent() == ""
    assert recovery.decided == [(0, POSITIVE, "a")]
    assert recovery.machine.pending_count == 1


@pytest.mark.rule("REC-30")
@pytest.mark.rule("REC-31")
@pytest.mark.rule("T-136")
def test_answers_that_arrive_after_the_end_was_found_change_nothing() -> None:
    recovery = reading((3, 3, 2), "abc")
    recovery.found("0a")
    recovery.denied("1a 1b")
    assert recovery.decided == [(0, POSITIVE, "a"), (1, NEGATIVE, "ba")]
    recovery.sent()

    recovery.found("1c 0b 0c")
    recovery.unknown("1c")
    recovery.fenced("abc", lac=7, length=8)
    assert recovery.sent() == ""
    recovery.written("0a 0b")
    recovery.found("1c")
    recovery.metadata_arrives()
    recovery.written("0c", Code.LEDGER_FENCED)
    recovery.unknown("1c")

    assert recovery.finished == [None]
    assert end_of(recovery) == (CLOSED, 0, 1)


@pytest.mark.rule("REC-15")
@pytest.mark.rule("M09")
def test_reads_go_to_the_ensemble_recovery_started_with_whatever_it_replaced_since() -> None:
    recovery = reading((1, 1, 1), "a", spares="b")
    recovery.found("0a")
    recovery.not_written("0a")
    recovery.written("0b")
    recovery.sent()

    recovery.found("1a")
    assert recovery.sent() == "W1b R2a"
    recovery.found("2a")
    recovery.denied("3a")
    recovery.written("1b 2b")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 2, 3)
    assert recovery.store.ensembles == {0: "b"}


# Writing back ------------------------------------------------------------------------------------------------------


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
    assert end_of(recovery) == (IN_RECOVERY, -1, 0)
    assert recovery.updates == []


# Bookies that fail while writing back ------------------------------------------------------------------------------


@pytest.mark.rule("REC-27")
@pytest.mark.rule("REC-34")
@pytest.mark.rule("T-130")
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
@pytest.mark.rule("T-131")
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
@pytest.mark.rule("T-124")
@pytest.mark.rule("T-132")
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
@pytest.mark.rule("T-120")
@pytest.mark.rule("T-127")
def test_without_a_spare_bookie_a_write_back_that_needs_every_bookie_fails_the_recovery() -> None:
    recovery = reading((3, 3, 3), "abc")
    recovery.found("0a")

    recovery.not_written("0b")

    assert recovery.finished == [Code.LEDGER_RECOVERY]
    assert "NOT_ENOUGH_BOOKIES" in str(recovery.errors[0])
    assert "entry 0 cannot be written back" in str(recovery.errors[0])
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


@pytest.mark.rule("REC-39")
@pytest.mark.rule("T-122")
@pytest.mark.rule("T-123")
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


@pytest.mark.rule("T-194")
def test_a_ledger_whose_old_metadata_names_a_bookie_twice_can_be_recovered() -> None:
    recovery = Recovery((2, 2, 2), "aa")
    recovery.start()
    recovery.fenced("aa", lac=-1)
    recovery.found("0a")

    recovery.written("0a 0a")
    recovery.denied("1a")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 0, 1)


# Length and close --------------------------------------------------------------------------------------------------


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
@pytest.mark.rule("T-129")
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


@pytest.mark.rule("REC-37")
@pytest.mark.rule("T-128")
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
    recovery.machine.on_update_done(update)

    assert recovery.finished == [Code.LEDGER_RECOVERY]
    assert recovery.phase == "failed"


@pytest.mark.rule("M31")
def test_a_close_whose_outcome_is_unknown_is_found_to_have_taken_effect() -> None:
    recovery = reading((1, 1, 1), "a")
    recovery.denied("0a")
    update = recovery.updates.pop()

    recovery.store.carry_out(update, lose_answer=True)
    recovery.store.finish(update)
    recovery.machine.on_update_done(update)

    assert recovery.finished == [None]
    assert recovery.store.writes == 2


def test_a_metadata_result_that_belongs_to_no_update_under_way_is_ignored() -> None:
    recovery = Recovery((1, 1, 1), "a")
    recovery.machine.start()
    update = recovery.updates[0]
    recovery.metadata_arrives()

    recovery.machine.on_update_done(update)

    assert recovery.sent() == "F.a"
    assert recovery.phase == "fencing"


# Two clients at once -----------------------------------------------------------------------------------------------


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
@pytest.mark.rule("T-111")
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
@pytest.mark.rule("T-102")
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
@pytest.mark.rule("T-101")
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


@pytest.mark.rule("T-100")
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

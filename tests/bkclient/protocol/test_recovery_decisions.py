"""Recovery up to its decisions: marking, fencing, where it starts, what it may conclude from answers."""

from __future__ import annotations

import pytest

from bkclient.errors import Code, DataUnknown, DigestMismatch, MetadataStoreError, code_of
from bkclient.ledger import LedgerState
from bkclient.protocol.recovery import EntryVerdict, starting_lac
from scenarios.machines.store import LEDGER_ID, Store, ledger
from tests.bkclient.protocol.harness import Recovery, end_of, reading

POSITIVE, NEGATIVE, UNKNOWN = EntryVerdict.POSITIVE, EntryVerdict.NEGATIVE, EntryVerdict.UNKNOWN
CLOSED, IN_RECOVERY = LedgerState.CLOSED, LedgerState.IN_RECOVERY


# Marking ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-3")
@pytest.mark.rule("REC-5")
def test_the_ledger_is_marked_before_any_bookie_is_asked() -> None:
    recovery = Recovery()

    recovery.machine.start()
    assert recovery.sent() == ""
    assert recovery.phase == "marking"
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
@pytest.mark.behaviour("T-137")
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
    recovery.ended(update)

    assert recovery.store.writes == 1
    assert recovery.sent() == "F.a F.b F.c"


@pytest.mark.rule("REC-40")
@pytest.mark.rule("W-49")
def test_a_store_that_fails_the_mark_fails_the_recovery() -> None:
    recovery = Recovery()
    recovery.machine.start()
    update = recovery.updates.pop()

    update.on_error(MetadataStoreError("down"))
    recovery.ended(update)

    assert recovery.finished == [Code.LEDGER_RECOVERY]
    assert "METADATA_STORE" in str(recovery.errors[0])
    assert recovery.errors[0].ledger_id == LEDGER_ID


# Fencing ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-7")
@pytest.mark.rule("M39")
def test_a_bookie_that_denies_the_ledger_counts_as_heard_and_makes_recovery_start_lower_and_end_where_it_has_to() -> (
    None
):
    recovery = Recovery((3, 3, 2), "abc")
    recovery.start()
    assert recovery.sent() == "F.a F.b F.c"

    recovery.fenced("c", code=Code.NO_SUCH_LEDGER_ON_BOOKIE)
    recovery.fenced("b", lac=-1)
    assert recovery.sent() == "R0a R0b R0c", "entry 0 was acknowledged, and bookie c was emptied since"

    recovery.denied("0c")
    recovery.found("0b")
    recovery.written("0a 0b")
    recovery.denied("1b 1c")
    recovery.metadata_arrives()
    assert recovery.store.metadata.last_entry_id == 0


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
@pytest.mark.behaviour("T-116")
def test_a_refused_fence_fails_the_recovery_at_once() -> None:
    recovery = Recovery((3, 3, 2), "abc")
    recovery.start()

    recovery.fenced("b", code=Code.UNAUTHORIZED)

    assert recovery.finished == [Code.UNAUTHORIZED]
    assert recovery.store.metadata.state is IN_RECOVERY


@pytest.mark.rule("REC-9")
@pytest.mark.rule("REC-10")
@pytest.mark.rule("REC-40")
@pytest.mark.rule("M55")
@pytest.mark.behaviour("T-18")
@pytest.mark.behaviour("T-126")
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


@pytest.mark.rule("H-33")
@pytest.mark.rule("REC-40")
def test_a_failed_recovery_has_the_error_behind_it_as_its_cause() -> None:
    fencing, recovery, marking = Recovery((3, 3, 2), "abc"), reading((3, 3, 2), "abc"), Recovery()
    fencing.start()
    fencing.fenced("bc", code=Code.DATA_UNKNOWN)
    fencing.fenced("a", lac=1, length=2)
    recovery.denied("0a")
    recovery.unknown("0b 0c", Code.DIGEST_MATCH)
    marking.machine.start()
    store_error = MetadataStoreError("down")
    marking.updates[0].on_error(store_error)
    marking.ended(marking.updates[0])

    (fence_error,), (read_error,), (mark_error,) = fencing.errors, recovery.errors, marking.errors
    assert isinstance(fence_error.__cause__, DataUnknown)
    assert fence_error.message.startswith("too few bookies of the last ensemble could be fenced")
    assert "too few bookies" in str(fence_error.__cause__)
    assert "down" in str(mark_error)
    assert (fence_error.bookie_id, fence_error.__cause__.bookie_id) == ("c", "c")
    assert isinstance(read_error.__cause__, DigestMismatch)
    assert (read_error.__cause__.ledger_id, read_error.__cause__.entry_id) == (LEDGER_ID, 0)
    assert (read_error.entry_id, read_error.bookie_id) == (0, "b")
    assert mark_error.__cause__ is store_error
    assert code_of(read_error) == Code.LEDGER_RECOVERY


@pytest.mark.rule("H-33")
@pytest.mark.parametrize("code", [Code.TIMEOUT, Code.UNAUTHORIZED, Code.CLIENT_CLOSED])
def test_an_error_that_is_reported_as_such_needs_no_cause(code: Code) -> None:
    recovery = Recovery((1, 1, 1), "a")
    recovery.start()
    recovery.fenced("a", code=code)

    (error,) = recovery.errors
    assert (error.code, error.__cause__, error.bookie_id) == (code, None, "a")


# Starting point -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-13")
@pytest.mark.parametrize(("found", "first", "start"), [(-1, 0, -1), (3, 0, 3), (-1, 5, 4), (4, 5, 4), (9, 5, 9)])
def test_recovery_starts_at_the_lac_but_never_below_the_last_fragment(found: int, first: int, start: int) -> None:
    assert starting_lac(found, first) == start


@pytest.mark.rule("REC-13")
@pytest.mark.behaviour("T-134")
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


# Reading ------------------------------------------------------------------------------------------------------------


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
@pytest.mark.behaviour("T-118")
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
@pytest.mark.behaviour("T-118")
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
@pytest.mark.behaviour("T-121")
@pytest.mark.behaviour("T-191")
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
@pytest.mark.behaviour("T-136")
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

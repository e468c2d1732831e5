"""Reading one entry: which bookie to ask, when to stop, and which error to report."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from bkclient.errors import Code
from bkclient.protocol.quorum import EXPLICIT_NEGATIVES, QuorumSizes
from bkclient.protocol.read import EntryRead, ReadOutcome

NO_ENTRY, NO_LEDGER = Code.NO_SUCH_ENTRY, Code.NO_SUCH_LEDGER_ON_BOOKIE
GONE, SLOW, CORRUPT, REFUSED = Code.BOOKIE_NOT_AVAILABLE, Code.TIMEOUT, Code.DIGEST_MATCH, Code.UNAUTHORIZED
LIMBO = Code.DATA_UNKNOWN


def asked(read: EntryRead) -> str:
    return "".join(read.to_ask())


def read_in_turn(*answers: Code) -> EntryRead:
    """An ordinary read whose replicas answer one after the other."""
    read = EntryRead(3, "abc"[: len(answers)])
    for code in answers:
        (bookie_id,) = read.to_ask()
        read.on_reply(bookie_id, code)
    return read


# Ordinary reads ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("R-7")
def test_an_error_makes_room_for_one_more_replica_however_often_it_is_asked_for() -> None:
    read = EntryRead(3, "cab")
    asked(read)
    read.on_reply("c", SLOW)

    assert [asked(read), asked(read), asked(read)] == ["a", "", ""]


@pytest.mark.rule("R-7")
def test_replicas_are_asked_one_after_the_other_in_the_order_given() -> None:
    read = EntryRead(3, "cab")

    assert asked(read) == "c"
    assert asked(read) == ""
    assert read.on_reply("c", SLOW) is ReadOutcome.WAITING
    assert asked(read) == "a"
    assert read.on_reply("a", NO_ENTRY) is ReadOutcome.WAITING
    assert asked(read) == "b"
    assert read.on_reply("b", Code.OK) is ReadOutcome.FOUND
    assert read.code == Code.OK


@pytest.mark.rule("R-3")
def test_the_first_good_answer_ends_the_read() -> None:
    read = EntryRead(3, "abc")
    read.to_ask()

    assert read.on_reply("a", Code.OK) is ReadOutcome.FOUND
    assert asked(read) == ""


@pytest.mark.rule("R-10")
@pytest.mark.rule("R-14")
@pytest.mark.parametrize("negative", [NO_ENTRY, NO_LEDGER])
def test_one_negative_proves_nothing_to_an_ordinary_reader(negative: Code) -> None:
    read = EntryRead(3, "ab")
    read.to_ask()

    assert read.on_reply("a", negative) is ReadOutcome.WAITING
    assert asked(read) == "b"


@pytest.mark.rule("R-14")
def test_an_entry_is_absent_when_every_replica_denies_it() -> None:
    read = read_in_turn(NO_ENTRY, NO_LEDGER, NO_ENTRY)

    assert read.outcome is ReadOutcome.ABSENT
    assert read.code == NO_ENTRY
    assert read.deniers == ("a", "b", "c")


@pytest.mark.rule("R-13")
@pytest.mark.parametrize(
    ("answers", "reported"),
    [
        ((NO_ENTRY, NO_LEDGER), NO_LEDGER),
        ((NO_LEDGER, NO_ENTRY), NO_ENTRY),
        ((NO_ENTRY, GONE), GONE),
        ((GONE, NO_ENTRY), GONE),
        ((GONE, SLOW), SLOW),
        ((SLOW, GONE), SLOW),
        ((SLOW, CORRUPT), SLOW),
        ((CORRUPT, SLOW), CORRUPT),
        ((NO_ENTRY, GONE, CORRUPT), CORRUPT),
        ((GONE, NO_ENTRY, CORRUPT), CORRUPT),
        ((GONE, GONE, GONE), GONE),
        ((SLOW, SLOW, SLOW), SLOW),
        ((SLOW, NO_ENTRY, NO_ENTRY), SLOW),
        ((GONE, GONE, CORRUPT), CORRUPT),
    ],
)
def test_any_specific_error_outranks_unavailable_which_outranks_negatives(
    answers: tuple[Code, ...], reported: Code
) -> None:
    assert read_in_turn(*answers).code == reported


@pytest.mark.rule("R-13")
@pytest.mark.parametrize("order", list(permutations([NO_ENTRY, GONE, REFUSED])))
def test_the_most_telling_error_is_reported_with_the_replica_that_gave_it(order: tuple[Code, ...]) -> None:
    read = read_in_turn(*order)

    assert read.code == REFUSED
    assert read.code_from == "abc"[order.index(REFUSED)]


@pytest.mark.rule("R-13")
@pytest.mark.parametrize("answers", list(product([NO_ENTRY, NO_LEDGER, GONE, SLOW, CORRUPT, LIMBO], repeat=3)))
def test_the_reported_error_is_the_one_the_rule_selects(answers: tuple[Code, ...]) -> None:
    specific = [code for code in answers if code not in EXPLICIT_NEGATIVES and code != GONE]
    unavailable = [code for code in answers if code == GONE]
    selected = (specific or unavailable or [answers[-1]])[0]

    read = read_in_turn(*answers)

    assert read.code == selected
    assert read.outcome is (ReadOutcome.FAILED if specific or unavailable else ReadOutcome.ABSENT)


@pytest.mark.rule("R-15")
@pytest.mark.rule("R-16")
@pytest.mark.parametrize("code", [REFUSED, LIMBO, CORRUPT])
def test_a_refusal_a_bookie_in_limbo_and_a_corrupt_replica_only_cost_the_next_question(code: Code) -> None:
    read = EntryRead(3, "ab")
    read.to_ask()

    read.on_reply("a", code)

    assert asked(read) == "b"
    assert read.on_reply("b", Code.OK) is ReadOutcome.FOUND
    assert read.code == Code.OK


@pytest.mark.rule("API-18")
@pytest.mark.parametrize("parallel", [False, True])
def test_a_closed_client_ends_the_read_whatever_was_answered_before(parallel: bool) -> None:
    read = EntryRead(3, "abc", parallel=parallel)
    read.to_ask()
    read.on_reply("a", SLOW)
    read.to_ask()

    assert read.on_reply("b", Code.CLIENT_CLOSED) is ReadOutcome.FAILED
    assert (read.code, read.code_from) == (Code.CLIENT_CLOSED, "b")
    assert asked(read) == ""


@pytest.mark.rule("R-8")
def test_answers_after_the_end_and_second_answers_change_nothing() -> None:
    read = EntryRead(3, "abc", parallel=True)
    read.to_ask()
    read.on_reply("a", SLOW)

    assert read.on_reply("a", Code.OK) is ReadOutcome.WAITING
    assert read.on_reply("b", Code.OK) is ReadOutcome.FOUND
    assert read.on_reply("c", CORRUPT) is ReadOutcome.FOUND
    assert read.code == Code.OK


@pytest.mark.behaviour("T-194")
def test_a_bookie_that_old_metadata_names_twice_is_asked_once() -> None:
    read = EntryRead(3, "aba")

    assert asked(read) == "a"
    read.on_reply("a", NO_ENTRY)
    assert asked(read) == "b"
    read.on_reply("b", NO_ENTRY)

    assert read.outcome is ReadOutcome.ABSENT


@pytest.mark.behaviour("T-194")
def test_a_bookie_that_old_metadata_names_twice_may_deny_the_entry_alone() -> None:
    read = EntryRead(3, "aa", negatives_to_deny=2, parallel=True)
    read.to_ask()

    assert read.on_reply("a", NO_ENTRY) is ReadOutcome.ABSENT


# Recovery reads ----------------------------------------------------------------------------------------------------


def recovery_read(sizes: tuple[int, int, int]) -> EntryRead:
    quorum = QuorumSizes(*sizes)
    return EntryRead(0, "abcde"[: sizes[1]], negatives_to_deny=quorum.negatives_to_deny, parallel=True)


@pytest.mark.rule("R-18")
@pytest.mark.rule("REC-18")
def test_a_recovery_read_asks_all_replicas_at_once() -> None:
    read = recovery_read((3, 3, 2))

    assert asked(read) == "abc"
    read.on_reply("a", SLOW)
    assert asked(read) == ""


@pytest.mark.rule("REC-18")
@pytest.mark.behaviour("T-191")
@pytest.mark.rule("M50")
def test_enough_negatives_deny_the_entry_though_other_replicas_are_silent() -> None:
    read = recovery_read((5, 5, 3))

    assert read.on_reply("b", NO_ENTRY) is ReadOutcome.WAITING
    assert read.on_reply("e", NO_LEDGER) is ReadOutcome.WAITING
    assert read.on_reply("c", NO_ENTRY) is ReadOutcome.ABSENT
    assert read.deniers == ("b", "c", "e")


@pytest.mark.rule("REC-21")
def test_with_ack_quorum_equal_to_write_quorum_one_negative_denies_the_entry() -> None:
    assert recovery_read((3, 3, 3)).on_reply("b", NO_ENTRY) is ReadOutcome.ABSENT


@pytest.mark.rule("REC-18")
@pytest.mark.rule("M03")
def test_with_an_ack_quorum_of_one_every_replica_must_deny() -> None:
    read = recovery_read((2, 2, 1))

    assert read.on_reply("a", NO_ENTRY) is ReadOutcome.WAITING
    assert read.on_reply("b", Code.OK) is ReadOutcome.FOUND


@pytest.mark.rule("REC-18")
@pytest.mark.rule("M02")
@pytest.mark.parametrize("code", [c for c in Code if c not in {Code.OK, Code.CLIENT_CLOSED, *EXPLICIT_NEGATIVES}])
def test_no_other_answer_counts_as_a_negative(code: Code) -> None:
    read = recovery_read((2, 2, 2))

    assert read.on_reply("a", code) is ReadOutcome.WAITING
    assert read.on_reply("b", code) is ReadOutcome.FAILED
    assert read.deniers == ()
    assert read.code == code


@pytest.mark.rule("REC-19")
def test_one_good_answer_makes_the_entry_recoverable_whatever_the_others_said() -> None:
    read = recovery_read((4, 4, 2))
    read.on_reply("a", NO_ENTRY)
    read.on_reply("b", SLOW)

    assert read.on_reply("c", Code.OK) is ReadOutcome.FOUND


@pytest.mark.rule("REC-20")
@pytest.mark.rule("M14")
@pytest.mark.rule("M15")
def test_what_is_neither_found_nor_denied_fails_with_an_error_that_is_no_negative() -> None:
    read = recovery_read((2, 2, 1))

    read.on_reply("a", GONE)
    assert read.on_reply("b", NO_ENTRY) is ReadOutcome.FAILED

    assert read.code == GONE


@pytest.mark.rule("REC-20")
@pytest.mark.parametrize("sizes", [(e, e, a) for e in range(1, 6) for a in range(1, e + 1)])
def test_a_recovery_read_fails_if_an_ack_quorum_may_hide_the_entry_and_denies_it_if_none_can(
    sizes: tuple[int, int, int],
) -> None:
    for codes in product([NO_ENTRY, NO_LEDGER, SLOW], repeat=sizes[1]):
        read = recovery_read(sizes)
        for bookie_id, code in zip("abcde", codes, strict=False):
            read.on_reply(bookie_id, code)

        undecided = sum(code == SLOW for code in codes)
        if undecided >= sizes[2]:
            assert read.outcome is ReadOutcome.FAILED
            assert read.code not in EXPLICIT_NEGATIVES
        else:
            assert read.outcome is ReadOutcome.ABSENT


# Late answers ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("R-11")
def test_a_late_answer_lets_the_next_replica_be_asked_as_well() -> None:
    read = EntryRead(3, "abc")
    assert asked(read) == "a"

    assert read.on_late()
    assert asked(read) == "b"
    assert asked(read) == ""
    assert read.on_late()
    assert asked(read) == "c"


@pytest.mark.rule("R-12")
@pytest.mark.behaviour("T-199")
def test_no_replica_is_asked_twice_however_late_it_gets() -> None:
    read = EntryRead(3, "ab")
    read.to_ask()
    read.on_late()
    read.to_ask()

    assert not read.on_late()
    assert asked(read) == ""


@pytest.mark.rule("R-11")
@pytest.mark.behaviour("T-199")
def test_no_other_replica_is_asked_while_one_of_those_asked_answers_other_requests() -> None:
    read = EntryRead(3, "abc")
    read.to_ask()

    assert not read.on_late({"a"})
    assert read.on_late({"b", "c"})
    assert asked(read) == "b"
    assert not read.on_late({"b"})


@pytest.mark.rule("R-12")
@pytest.mark.behaviour("T-198")
def test_nothing_is_late_after_the_end() -> None:
    read = EntryRead(3, "abc")
    read.to_ask()
    read.on_reply("a", Code.OK)

    assert not read.on_late()
    assert asked(read) == ""


def test_a_parallel_read_has_nobody_left_to_ask_when_it_is_late() -> None:
    read = EntryRead(3, "abc", parallel=True)
    read.to_ask()

    assert not read.on_late()


@pytest.mark.rule("R-9")
@pytest.mark.behaviour("T-197")
def test_the_answer_of_a_replica_that_was_overtaken_counts() -> None:
    read = EntryRead(3, "abc")
    read.to_ask()
    read.on_late()
    read.to_ask()

    assert read.on_reply("a", Code.OK) is ReadOutcome.FOUND
    assert read.code_from == "a"
    assert read.overtaken == ()


@pytest.mark.rule("R-7")
def test_an_error_asks_nobody_while_another_answer_is_outstanding() -> None:
    read = EntryRead(3, "abcd")
    read.to_ask()
    read.on_late()
    read.to_ask()

    read.on_reply("b", SLOW)
    assert asked(read) == ""
    assert read.on_late()
    assert asked(read) == "c"
    read.on_reply("a", SLOW)
    assert asked(read) == ""
    read.on_reply("c", SLOW)
    assert asked(read) == "d"
    assert read.on_reply("d", SLOW) is ReadOutcome.FAILED


@pytest.mark.rule("RO-6")
@pytest.mark.behaviour("T-196")
def test_those_asked_before_the_last_are_slow_whether_silent_or_failed() -> None:
    read = EntryRead(3, "abcd")
    read.to_ask()
    read.on_late()
    read.to_ask()
    read.on_reply("b", SLOW)
    read.on_late()
    read.to_ask()

    read.on_reply("c", Code.OK)
    assert read.overtaken == ("a", "b")
    assert read.tried == 3


@pytest.mark.rule("RO-6")
@pytest.mark.rule("H-27")
def test_neither_who_answered_nor_who_denied_the_entry_is_slow() -> None:
    read = EntryRead(3, "abcd")
    read.to_ask()
    read.on_reply("a", NO_ENTRY)
    read.to_ask()
    read.on_late()
    read.to_ask()

    read.on_reply("b", Code.OK)
    assert read.overtaken == ()

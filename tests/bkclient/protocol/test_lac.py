"""Asking an ensemble for its LAC: which answers count, when enough is known, and which error is reported."""

from __future__ import annotations

import pytest

from bkclient.errors import Code
from bkclient.protocol.lac import LacOutcome, LacProgress, LacRead
from bkclient.protocol.quorum import EXPLICIT_NEGATIVES, QuorumSizes

GONE, SLOW = Code.BOOKIE_NOT_AVAILABLE, Code.TIMEOUT
AT_ONCE = [Code.UNAUTHORIZED, Code.CLIENT_CLOSED]


def lac_read(*sizes: int) -> LacRead:
    return LacRead(QuorumSizes(*sizes), tuple("abcdef"[: sizes[0]]))


@pytest.mark.rule("R-34")
@pytest.mark.rule("REC-6")
def test_the_whole_ensemble_is_asked() -> None:
    assert "".join(lac_read(5, 2, 2).bookies) == "abcde"


@pytest.mark.rule("REC-7")
@pytest.mark.rule("R-34")
def test_the_greatest_lac_wins_with_the_least_length_that_came_with_it() -> None:
    read = lac_read(5, 5, 2)

    read.on_reply("a", Code.OK, 3, 30)
    read.on_reply("b", Code.OK, 5, 60)  # from entry 7
    assert read.on_reply("c", Code.OK, 4, 40) is LacOutcome.WAITING
    assert read.length == 60
    assert read.on_reply("d", Code.OK, 5, 50) is LacOutcome.COVERED  # from entry 6, which knows

    assert (read.last_add_confirmed, read.length) == (5, 50)


@pytest.mark.rule("REC-7")
def test_a_greater_length_that_comes_later_with_the_same_lac_is_not_taken() -> None:
    read = lac_read(4, 4, 3)

    read.on_reply("a", Code.OK, 5, 50)
    read.on_reply("b", Code.OK, 5, 60)

    assert (read.outcome, read.length) == (LacOutcome.COVERED, 50)


@pytest.mark.rule("REC-7")
def test_before_any_entry_the_lac_is_minus_one_and_the_length_zero() -> None:
    read = lac_read(1, 1, 1)

    assert read.on_reply("a", Code.OK, -1, 12) is LacOutcome.COVERED
    assert (read.last_add_confirmed, read.length) == (-1, 0)


@pytest.mark.rule("REC-7")
@pytest.mark.behaviour("T-138")
@pytest.mark.behaviour("T-141")
@pytest.mark.parametrize(
    ("sizes", "answers", "outcome"),
    [
        ((3, 3, 2), [Code.OK, Code.NO_SUCH_LEDGER_ON_BOOKIE, GONE], LacOutcome.COVERED),
        ((3, 3, 2), [Code.OK, GONE, GONE], LacOutcome.FAILED),
        ((2, 2, 2), [Code.OK, GONE], LacOutcome.COVERED),
        ((2, 2, 2), [Code.OK, Code.NO_SUCH_LEDGER_ON_BOOKIE], LacOutcome.COVERED),
        ((2, 2, 2), [Code.NO_SUCH_LEDGER_ON_BOOKIE, GONE], LacOutcome.COVERED),
        ((2, 2, 2), [GONE, Code.NO_SUCH_ENTRY], LacOutcome.COVERED),
        ((2, 2, 2), [GONE, GONE], LacOutcome.FAILED),
        ((3, 3, 1), [Code.OK, Code.OK, SLOW], LacOutcome.FAILED),
        ((5, 2, 2), [Code.OK, SLOW, Code.OK, SLOW, Code.OK], LacOutcome.COVERED),
        ((5, 2, 2), [Code.OK, SLOW, SLOW, Code.OK, Code.OK], LacOutcome.FAILED),
    ],
)
def test_coverage_decides(sizes: tuple[int, int, int], answers: list[Code], outcome: LacOutcome) -> None:
    read = lac_read(*sizes)

    for bookie_id, code in zip("abcdef", answers, strict=False):
        read.on_reply(bookie_id, code, 0, 1)

    assert read.outcome is outcome


@pytest.mark.rule("REC-8")
@pytest.mark.rule("DS-15")
def test_an_invalid_answer_does_not_complete_the_read_and_silence_does_not_cover() -> None:
    read = lac_read(3, 3, 2)

    assert read.on_reply("a", Code.OK, 0, 1) is LacOutcome.WAITING
    assert read.on_reply("b", SLOW) is LacOutcome.WAITING
    assert read.on_reply("c", Code.NO_SUCH_ENTRY) is LacOutcome.COVERED


@pytest.mark.rule("REC-8")
@pytest.mark.rule("R-8")
def test_answers_after_the_end_change_nothing() -> None:
    read = lac_read(3, 3, 3)
    read.on_reply("a", Code.OK, 4, 40)

    assert read.on_reply("b", Code.OK, 9, 90) is LacOutcome.COVERED
    assert read.on_reply("c", Code.UNAUTHORIZED) is LacOutcome.COVERED
    assert (read.last_add_confirmed, read.length) == (4, 40)


@pytest.mark.rule("REC-7")
@pytest.mark.rule("R-36")
def test_an_answer_with_a_wrong_digest_is_unknown_and_its_lac_is_not_believed() -> None:
    read = lac_read(2, 2, 1)

    assert read.on_reply("a", Code.OK, 1, 10) is LacOutcome.WAITING
    assert read.on_reply("b", Code.DIGEST_MATCH, 99, 990) is LacOutcome.FAILED
    assert read.last_add_confirmed == 1
    assert read.failure_code == Code.DIGEST_MATCH


@pytest.mark.rule("REC-9")
@pytest.mark.rule("R-34")
@pytest.mark.rule("API-18")
@pytest.mark.parametrize("code", AT_ONCE)
def test_a_refusal_and_a_closed_client_fail_the_read_at_once(code: Code) -> None:
    read = lac_read(3, 3, 2)

    assert read.on_reply("a", code) is LacOutcome.FAILED
    assert read.failure_code == code
    assert read.on_reply("b", Code.OK, 0, 1) is LacOutcome.FAILED


@pytest.mark.rule("REC-9")
def test_the_last_error_seen_is_reported() -> None:
    read = lac_read(3, 3, 1)

    read.on_reply("a", GONE)
    read.on_reply("b", SLOW)
    assert read.on_reply("c", Code.OK, 0, 1) is LacOutcome.FAILED

    assert read.failure_code == SLOW


@pytest.mark.rule("REC-9")
def test_negatives_are_no_errors_to_report() -> None:
    read = lac_read(2, 2, 1)

    read.on_reply("a", GONE)
    read.on_reply("b", Code.NO_SUCH_ENTRY)

    assert read.outcome is LacOutcome.FAILED
    assert read.failure_code == GONE


@pytest.mark.rule("DS-10")
@pytest.mark.parametrize("code", [c for c in Code if c not in {Code.OK, *AT_ONCE, *EXPLICIT_NEGATIVES}])
def test_every_other_code_leaves_the_bookie_unknown(code: Code) -> None:
    read = lac_read(2, 2, 2)

    assert read.on_reply("a", code, 5, 50) is LacOutcome.WAITING
    assert read.on_reply("b", code, 5, 50) is LacOutcome.FAILED
    assert (read.last_add_confirmed, read.failure_code) == (-1, code)


@pytest.mark.behaviour("T-194")
def test_a_bookie_that_old_metadata_names_twice_answers_for_both_positions() -> None:
    read = LacRead(QuorumSizes(2, 2, 1), ("a", "a"))

    assert read.on_reply("a", Code.OK, 2, 20) is LacOutcome.COVERED


# The first sign of progress ----------------------------------------------------------------------------------------


@pytest.mark.rule("R-38")
@pytest.mark.behaviour("T-147")
def test_the_first_lac_above_the_one_known_is_the_answer() -> None:
    read = LacProgress(("a", "b", "c"), 3)
    assert tuple(read.bookies) == ("a", "b", "c")

    assert read.on_reply("a", Code.OK, 3) is LacOutcome.WAITING
    assert read.on_reply("b", Code.OK, 4) is LacOutcome.COVERED
    assert read.last_add_confirmed == 4
    assert read.on_reply("c", Code.OK, 9) is LacOutcome.COVERED
    assert read.last_add_confirmed == 4


@pytest.mark.rule("R-38")
@pytest.mark.parametrize("answer", [Code.OK, Code.NO_SUCH_ENTRY, Code.NO_SUCH_LEDGER_ON_BOOKIE])
def test_without_progress_one_answer_of_any_kind_makes_the_known_lac_the_answer(answer: Code) -> None:
    read = LacProgress(("a", "b", "c"), 3)

    outcomes = [read.on_reply(b, code) for b, code in zip("abc", (Code.TIMEOUT, answer, Code.TIMEOUT), strict=True)]
    assert outcomes == [LacOutcome.WAITING, LacOutcome.WAITING, LacOutcome.COVERED]
    assert read.last_add_confirmed == 3


@pytest.mark.rule("R-38")
@pytest.mark.behaviour("T-149")
def test_nobody_answering_is_a_failure_with_the_most_telling_error() -> None:
    read = LacProgress(("a", "b", "c"), 3)
    for bookie_id, code in zip("abc", (Code.BOOKIE_NOT_AVAILABLE, Code.TIMEOUT, Code.DIGEST_MATCH), strict=True):
        read.on_reply(bookie_id, code)

    assert read.outcome is LacOutcome.FAILED
    assert (read.failure_code, read.failed_by) == (Code.TIMEOUT, "b")


@pytest.mark.rule("R-38")
@pytest.mark.rule("API-18")
@pytest.mark.parametrize("code", [Code.UNAUTHORIZED, Code.CLIENT_CLOSED])
def test_a_refusal_and_a_closed_client_fail_it_at_once(code: Code) -> None:
    read = LacProgress(("a", "b", "c"), 3)
    read.on_reply("a", Code.OK, 3)

    assert read.on_reply("b", code) is LacOutcome.FAILED
    assert (read.failure_code, read.failed_by) == (code, "b")


def test_second_answers_and_bookies_named_twice_count_once() -> None:
    read = LacProgress(("a", "b", "a"), 3)
    read.on_reply("a", Code.TIMEOUT)

    assert read.on_reply("a", Code.OK, 9) is LacOutcome.WAITING
    assert read.on_reply("b", Code.TIMEOUT) is LacOutcome.FAILED

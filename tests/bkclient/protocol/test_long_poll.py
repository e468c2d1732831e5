"""Waiting at the bookies: which bookies to ask, what ends a poll, and which error to report."""

from __future__ import annotations

from itertools import product

import pytest

from bkclient.errors import Code
from bkclient.protocol.long_poll import LongPollRead, PollOutcome
from bkclient.protocol.quorum import QuorumSizes

WAITING, ENDED, FAILED = PollOutcome.WAITING, PollOutcome.ENDED, PollOutcome.FAILED
NO_ENTRY, NO_LEDGER, GONE, SLOW = (
    Code.NO_SUCH_ENTRY,
    Code.NO_SUCH_LEDGER_ON_BOOKIE,
    Code.BOOKIE_NOT_AVAILABLE,
    Code.TIMEOUT,
)


def poll(candidates: str = "abc", *, qa: int = 2, parallel: bool = False, lac: int = 4) -> LongPollRead:
    """A poll for entry 5 of a ledger confirmed up to 4."""
    sizes = QuorumSizes(len(set(candidates)), len(set(candidates)), qa)
    return LongPollRead(sizes, 5, candidates, last_add_confirmed=lac, parallel=parallel)


def asked(read: LongPollRead) -> str:
    return "".join(read.to_ask())


@pytest.mark.rule("R-41")
def test_bookies_are_asked_one_after_the_other_the_next_after_an_error_or_an_empty_answer() -> None:
    read = poll("bca", qa=1)

    assert asked(read) == "b"
    assert asked(read) == ""
    assert read.on_reply("b", SLOW) is WAITING
    assert asked(read) == "c"
    assert read.on_reply("c", Code.OK, 4) is WAITING
    assert asked(read) == "a"


@pytest.mark.rule("R-43")
def test_an_entry_that_is_the_last_one_confirmed_is_taken_from_who_sent_it() -> None:
    read = poll("abc")
    asked(read)

    assert read.on_reply("a", Code.OK, 5, has_entry=True) is ENDED
    assert (read.found_by, read.last_add_confirmed) == ("a", 5)


@pytest.mark.rule("R-41")
def test_no_further_bookie_is_asked_while_an_answer_is_outstanding_unless_it_is_late() -> None:
    read = poll("abcd", qa=1)
    read.to_ask()

    assert read.on_late()
    assert asked(read) == "b"
    read.on_reply("b", SLOW)
    assert asked(read) == ""
    read.on_reply("a", SLOW)
    assert asked(read) == "c"


@pytest.mark.rule("R-41")
def test_a_parallel_poll_asks_all_at_once() -> None:
    read = poll(parallel=True)

    assert asked(read) == "abc"
    assert not read.on_late()


def test_a_bookie_named_twice_is_asked_once() -> None:
    read = poll("abcab", parallel=True)

    assert asked(read) == "abc"


@pytest.mark.rule("R-43")
@pytest.mark.behaviour("T-150")
def test_the_entry_ends_the_poll() -> None:
    read = poll()
    read.to_ask()

    assert read.on_reply("a", Code.OK, 7, has_entry=True) is ENDED
    assert (read.found_by, read.last_add_confirmed) == ("a", 7)
    assert asked(read) == ""
    assert not read.on_late()


@pytest.mark.rule("R-42")
@pytest.mark.rule("R-43")
@pytest.mark.behaviour("T-152")
def test_a_lac_that_reached_the_entry_ends_the_poll_without_it() -> None:
    read = poll()
    read.to_ask()

    assert read.on_reply("a", Code.OK, 5) is ENDED
    assert (read.found_by, read.last_add_confirmed) == (None, 5)


def test_an_entry_without_a_lac_that_covers_it_is_not_taken_for_confirmed() -> None:
    read = poll()
    read.to_ask()

    assert read.on_reply("a", Code.OK, 4, has_entry=True) is WAITING
    assert read.found_by is None


@pytest.mark.rule("R-42")
def test_a_lac_that_moved_without_reaching_the_entry_is_noted_and_the_poll_goes_on() -> None:
    read = poll(lac=1)
    read.to_ask()

    assert read.on_reply("a", Code.OK, 3) is WAITING
    assert read.last_add_confirmed == 3


@pytest.mark.rule("R-44")
@pytest.mark.rule("R-45")
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize(("qa", "enough"), [(1, 5), (2, 4), (3, 3), (5, 1)])
def test_as_many_empty_answers_as_leave_no_ack_quorum_end_the_poll(qa: int, enough: int, parallel: bool) -> None:
    read = poll("abcde", qa=qa, parallel=parallel)

    outcomes = []
    for bookie_id in "abcde"[:enough]:
        read.to_ask()
        outcomes.append(read.on_reply(bookie_id, Code.OK, 4))
    assert outcomes == [WAITING] * (enough - 1) + [ENDED]
    assert (read.found_by, read.last_add_confirmed) == (None, 4)


@pytest.mark.rule("R-43")
@pytest.mark.behaviour("T-151")
def test_one_good_answer_among_failures_is_no_failure() -> None:
    read = poll()
    read.to_ask()
    for bookie_id, code in zip("abc", (GONE, Code.OK, SLOW), strict=True):
        read.on_reply(bookie_id, code, 4)
        read.to_ask()

    assert read.outcome is ENDED


@pytest.mark.rule("R-43")
@pytest.mark.parametrize("parallel", [False, True])
def test_without_any_answer_the_poll_fails_with_the_most_telling_error(parallel: bool) -> None:
    read = poll(parallel=parallel)
    for bookie_id, code in zip("abc", (GONE, SLOW, NO_ENTRY), strict=True):
        read.to_ask()
        read.on_reply(bookie_id, code)

    assert read.outcome is FAILED
    assert (read.code, read.code_from) == (SLOW, "b")


@pytest.mark.rule("R-43")
def test_enough_denials_end_a_parallel_poll_and_a_sequential_one_asks_the_rest() -> None:
    for parallel in (True, False):
        read = poll(parallel=parallel)
        for bookie_id in "ab":
            read.to_ask()
            read.on_reply(bookie_id, NO_LEDGER)
        assert read.outcome is (FAILED if parallel else WAITING)
        assert read.code == NO_LEDGER


@pytest.mark.rule("R-43")
def test_denials_that_suffice_outrank_bookies_that_are_away() -> None:
    read = poll()
    for bookie_id, code in zip("abc", (NO_ENTRY, GONE, NO_LEDGER), strict=True):
        read.to_ask()
        read.on_reply(bookie_id, code)
    assert (read.outcome, read.code) == (FAILED, NO_ENTRY)

    read = poll()
    for bookie_id, code in zip("abc", (NO_ENTRY, GONE, GONE), strict=True):
        read.to_ask()
        read.on_reply(bookie_id, code)
    assert (read.outcome, read.code) == (FAILED, GONE)


@pytest.mark.rule("R-43")
@pytest.mark.rule("API-18")
@pytest.mark.parametrize("code", [Code.UNAUTHORIZED, Code.CLIENT_CLOSED])
def test_a_refusal_and_a_closed_client_end_the_poll_at_once(code: Code) -> None:
    read = poll(parallel=True)
    read.to_ask()
    read.on_reply("a", SLOW)

    assert read.on_reply("b", code) is FAILED
    assert (read.code, read.code_from) == (code, "b")


@pytest.mark.behaviour("T-154")
@pytest.mark.behaviour("T-155")
def test_answers_after_the_end_and_second_answers_change_nothing() -> None:
    read = poll(parallel=True)
    read.to_ask()
    assert read.on_reply("a", Code.OK, 4) is WAITING
    assert read.on_reply("a", Code.OK, 9, has_entry=True) is WAITING
    assert read.on_reply("b", Code.OK, 6, has_entry=True) is ENDED

    assert read.on_reply("c", Code.UNAUTHORIZED) is ENDED
    assert (read.found_by, read.last_add_confirmed, read.code) == ("b", 6, Code.OK)


@pytest.mark.rule("R-43")
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("answers", list(product([Code.OK, NO_ENTRY, GONE, SLOW], repeat=3)))
def test_every_poll_without_news_ends_and_fails_only_if_nobody_answered(
    answers: tuple[Code, ...], parallel: bool
) -> None:
    read = poll(parallel=parallel)
    heard: list[Code] = []
    for bookie_id, code in zip("abc", answers, strict=True):
        if read.outcome is WAITING:
            heard.append(code)
        read.to_ask()
        read.on_reply(bookie_id, code, 4)

    assert read.outcome is (ENDED if Code.OK in heard else FAILED)

"""What the checker says about requests and answers: for each clause stories that keep it, and stories that break it."""

from __future__ import annotations

import pytest

from scenarios.history import Kind
from tests.scenarios.stories import DENIED, TIMEOUT, Story, assert_broken, assert_holds


def asked(number: int | None = 1, *, entry: int = 0, bookie: str = "b0", story: Story | None = None) -> Story:
    """A reader asks a bookie for an entry."""
    story = story or Story()
    story.event(Kind.READ_SEND, "reader", entry=entry, bookie=bookie, request=number)
    return story


def heard(story: Story, number: int | None = 1, *, code: int = 0, entry: int = 0, bookie: str = "b0") -> int:
    return story.event(Kind.READ_RESP, "reader", entry=entry, bookie=bookie, code=code, request=number)


def arrived(
    story: Story, number: int | None = 1, *, entry: int = 0, bookie: str = "b0", operation: str = "read"
) -> int:
    known = {"source": "reader", "operation": operation, "entry": entry, "request": number}
    return story.event(Kind.BK_RECV, bookie, **known)


def said(
    story: Story,
    number: int | None = 1,
    *,
    code: int = 0,
    entry: int = 0,
    bookie: str = "b0",
    operation: str = "read",
    source: str = "reader",
) -> int:
    known = {"source": source, "operation": operation, "entry": entry, "code": code, "request": number}
    return story.event(Kind.BK_ANSWER, bookie, **known)


@pytest.mark.rule("M1")
def test_each_request_has_its_answer_in_any_order() -> None:
    story = asked(2, story=asked(1))
    heard(story, 2)
    heard(story, 1, code=TIMEOUT)
    assert_holds(story, "M1")


@pytest.mark.rule("M1")
def test_a_second_answer_is_to_no_request() -> None:
    story = asked()
    heard(story)
    again = heard(story)
    assert_broken(story, "M1", again, says="awaited none")


@pytest.mark.rule("M1")
def test_an_answer_to_what_was_never_asked() -> None:
    story = asked(1)
    assert_broken(story, "M1", heard(story, 7), says="request 7")


@pytest.mark.rule("M1")
def test_the_answer_of_another_bookie_or_about_another_entry_or_kind() -> None:
    for wrong in ({"bookie": "b1"}, {"entry": 4}):
        story = asked()
        assert_broken(story, "M1", 0, heard(story, 1, **wrong), says="asked b0 for entry 0 (read, request 1)")
    story = asked()
    told = {"entry": 0, "bookie": "b0", "code": 0, "fence": True, "request": 1}
    assert_broken(story, "M1", 0, story.event(Kind.REC_READ_RESP, "reader", **told), says="(recovery-read)")


@pytest.mark.rule("M1")
def test_an_add_and_a_write_back_of_the_same_entry_are_different_things() -> None:
    story = Story()
    known = {"incarnation": 1, "entry": 0, "bookie": "b0", "lac": -1, "request": 1}
    sent = story.event(Kind.ADD_SEND, "writer", recovery=False, **known)
    del known["lac"]
    assert_broken(story, "M1", sent, story.event(Kind.ADD_RESP, "writer", recovery=True, code=0, **known))


@pytest.mark.rule("M1")
@pytest.mark.rule("M2")
def test_the_answer_to_a_fence_names_the_last_entry_of_the_bookie() -> None:
    story = Story()
    story.event(Kind.FENCE_SEND, "reader", bookie="b0", request=1)
    arrived(story, operation="fence", entry=-1)
    story.fence_set("b0", actor="reader")
    said(story, operation="fence", entry=-1)
    story.event(Kind.FENCE_RESP, "reader", bookie="b0", code=0, lac=3, entry=4, request=1)
    assert_holds(story, "M1")
    assert_holds(story, "M2")


@pytest.mark.rule("M1")
def test_clients_number_their_requests_each_for_itself() -> None:
    story = asked(1)
    story.event(Kind.READ_SEND, "other", entry=5, bookie="b1", request=1)
    heard(story, 1)
    story.event(Kind.READ_RESP, "other", entry=5, bookie="b1", code=0, request=1)
    assert_holds(story, "M1")


@pytest.mark.rule("M1")
@pytest.mark.rule("M2")
def test_what_has_no_number_is_passed_over() -> None:
    story = asked(None)
    arrived(story, None)
    heard(story, None)
    heard(story, None)
    checker = story.checked()
    assert not checker.finish()
    assert checker.judged["M1"] == checker.judged["M2"] == 0


@pytest.mark.rule("M2")
@pytest.mark.parametrize("code", [0, DENIED, -7, -101])
def test_what_a_bookie_said_is_heard(code: int) -> None:
    story = asked()
    arrived(story)
    said(story, code=code)
    heard(story, code=code)
    assert_holds(story, "M2")


@pytest.mark.rule("M2")
@pytest.mark.parametrize("code", [0, DENIED, -7, -101])
def test_what_a_bookie_has_not_said_is_heard(code: int) -> None:
    story = asked()
    arrived(story)
    answer = heard(story, code=code)
    said(story, code=code)
    assert_broken(story, "M2", 0, answer, says="had not answered request 1")


@pytest.mark.rule("M2")
def test_something_else_is_heard_than_was_said() -> None:
    story = asked()
    arrived(story)
    said(story, code=DENIED)
    assert_broken(story, "M2", 0, heard(story), says="answered with -13 request 1")


@pytest.mark.rule("M2")
def test_the_answer_to_an_earlier_request_counts_for_no_later_one() -> None:
    story = asked(1)
    arrived(story, 1)
    said(story, 1)
    heard(story, 1, code=TIMEOUT)
    second = len(asked(2, story=story).events) - 1
    assert_broken(story, "M2", second, heard(story, 2), says="request 2")


@pytest.mark.rule("M2")
def test_the_answer_to_another_client_counts_for_nobody_else() -> None:
    story = asked()
    arrived(story)
    said(story, source="other")
    assert_broken(story, "M2", 0, heard(story))


@pytest.mark.rule("M2")
def test_an_answer_to_a_request_without_a_number_may_be_to_any_that_asks_for_the_same() -> None:
    story = asked()
    arrived(story, None)
    said(story, None)
    heard(story)
    assert_holds(story, "M2")
    other = asked(entry=1)
    arrived(other, None)
    said(other, None)
    assert_broken(other, "M2", 0, heard(other, entry=1))


@pytest.mark.rule("M2")
def test_outcomes_that_arise_at_the_client_need_no_bookie() -> None:
    story = asked()
    arrived(story)
    heard(story, code=TIMEOUT)
    checker = story.checked()
    assert not checker.finish()
    assert checker.judged["M2"] == 0


@pytest.mark.rule("M2")
def test_a_bookie_that_records_no_arrivals_is_not_judged() -> None:
    story = asked(bookie="b1", story=asked(1))
    arrived(story)
    said(story)
    heard(story)
    story.event(Kind.READ_SEND, "reader", entry=0, bookie="b1", request=2)
    heard(story, 2, bookie="b1")
    assert "M2" not in [violation.clause for violation in story.checked().finish()]

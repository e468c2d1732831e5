"""What breaks, or nearly breaks, the invariant about requests and their answers."""

from __future__ import annotations

from scenarios.history import Kind
from tests.scenarios.stories import DENIED, TIMEOUT, Story
from tests.spark_analysis.planting import near_miss, plant


def asked(story: Story, number: int = 1, *, entry: int = 0) -> None:
    """A reader asks b0 for an entry, and b0 records that it is asked."""
    story.event(Kind.READ_SEND, "reader", entry=entry, bookie="b0", request=number)
    story.event(Kind.BK_RECV, "b0", source="reader", operation="read", entry=entry, request=number)


def said(story: Story, number: int = 1, *, code: int = 0) -> None:
    """What b0 answers about entry 0."""
    story.event(Kind.BK_ANSWER, "b0", source="reader", operation="read", entry=0, code=code, request=number)


def heard(story: Story, number: int = 1, *, code: int = 0, entry: int = 0, bookie: str = "b0") -> None:
    """What the reader hears."""
    content = 1000 + entry if code == 0 else None
    story.event(Kind.READ_RESP, "reader", entry=entry, bookie=bookie, code=code, content=content, request=number)


@plant("AnswersMatch", "awaited none")
def a_request_is_answered_twice(story: Story) -> None:
    asked(story)
    said(story)
    heard(story)
    heard(story)


@plant("AnswersMatch", "asked b0 for entry 0")
def the_answer_is_about_another_entry(story: Story) -> None:
    asked(story)
    said(story, code=TIMEOUT)
    heard(story, code=TIMEOUT, entry=1)


@plant("AnswersMatch", "asked b0 for entry 0")
def the_answer_comes_from_another_bookie(story: Story) -> None:
    asked(story)
    heard(story, bookie="b1")


@plant("AnswersMatch", "had not answered request 2")
def a_late_answer_is_taken_for_that_to_the_next_request(story: Story) -> None:
    asked(story, 1)
    said(story, 1)
    heard(story, 1, code=TIMEOUT)
    asked(story, 2)
    heard(story, 2)


@plant("AnswersMatch", f"answered with {DENIED} request 1")
def a_denial_is_heard_as_success(story: Story) -> None:
    asked(story)
    said(story, code=DENIED)
    heard(story)


@near_miss("AnswersMatch")
def a_late_answer_is_dropped_and_the_next_request_has_its_own(story: Story) -> None:
    asked(story, 1)
    heard(story, 1, code=TIMEOUT)
    asked(story, 2)
    said(story, 1)
    said(story, 2)
    heard(story, 2)


@near_miss("AnswersMatch")
def answers_overtake_each_other(story: Story) -> None:
    asked(story, 1)
    asked(story, 2)
    said(story, 2)
    said(story, 1)
    heard(story, 2)
    heard(story, 1)

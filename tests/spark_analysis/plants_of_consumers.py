"""What breaks, or nearly breaks, the invariant of one active consumer. Log ``l``, ledger 7, group and cursor ``c``."""

from __future__ import annotations

from scenarios.history import Kind
from tests.scenarios.stories import Story
from tests.spark_analysis.planting import near_miss, plant
from tests.spark_analysis.plants_of_cursors import gets_by_cursor, opens
from tests.spark_analysis.plants_of_logs import log, starts, with_three


def member(story: Story, number: int, actor: str = "reader", *, cause: str = "joined", mode: str = "failover") -> None:
    log(story, Kind.LOG_MEMBER, actor, cursor="c", cause=cause, member=number, mode=mode)


# H19 -----------------------------------------------------------------------------------------------------------------


@plant("LogOneConsumer", "other is member 0", entries=0)
def a_consumer_is_active_before_its_turn(story: Story) -> None:
    with_three(story)
    member(story, 0, "other")
    member(story, 1)
    opens(story, 7)


@plant("LogOneConsumer", "other is member 0", entries=0)
def a_consumer_takes_over_from_one_that_is_there(story: Story) -> None:
    with_three(story)
    member(story, 0, "other", mode="exclusive")
    opens(story, 7, actor="other")
    member(story, 1, mode="exclusive")
    opens(story, 7)


@plant("LogOneConsumer", "is no member any more, and other is member 1", entries=0)
def a_consumer_that_is_no_member_any_more_takes_over(story: Story) -> None:
    with_three(story)
    member(story, 0)
    member(story, 1, "other")
    member(story, 0, cause="left")
    opens(story, 7, actor="other")
    opens(story, 7)


@near_miss("LogOneConsumer", entries=0)
def one_that_has_left_opens_what_it_had_decided_on_before(story: Story) -> None:
    with_three(story)
    member(story, 0)
    opens(story, 7)
    member(story, 1, "other")
    member(story, 0, cause="left")
    opens(story, 7)


@near_miss("LogOneConsumer", entries=0)
def one_that_is_no_member_any_more_opens_when_nobody_is(story: Story) -> None:
    with_three(story)
    member(story, 0)
    member(story, 1, "other")
    member(story, 0, cause="left")
    opens(story, 7, actor="other")
    member(story, 1, "other", cause="left")
    opens(story, 7)


@near_miss("LogOneConsumer", entries=0)
def a_program_that_never_was_a_member_takes_the_cursor_over(story: Story) -> None:
    with_three(story)
    member(story, 1, "other")
    opens(story, 7, actor="other")
    opens(story, 7)


@near_miss("LogOneConsumer", entries=0)
def the_next_consumer_takes_over_when_the_first_has_left(story: Story) -> None:
    with_three(story)
    member(story, 0, "other")
    opens(story, 7, actor="other")
    member(story, 1)
    member(story, 0, "other", cause="left")
    member(story, 2, "other")
    opens(story, 7)


@near_miss("LogOneConsumer", entries=0)
def consumers_of_a_shared_group_come_in_any_order(story: Story) -> None:
    with_three(story)
    member(story, 0, "other", mode="shared")
    member(story, 1, mode="shared")
    opens(story, 7)


@near_miss("LogOneConsumer", entries=0)
def one_that_came_again_opens_what_it_had_decided_on_before(story: Story) -> None:
    with_three(story)
    member(story, 0)
    member(story, 1, "other")
    member(story, 0, cause="left")
    member(story, 2)
    opens(story, 7)


# H20 -----------------------------------------------------------------------------------------------------------------


@plant("LogOneConsumer", "reader got 7:0:-1 by c", entries=0)
def a_consumer_reads_by_a_cursor_that_another_one_has_open(story: Story) -> None:
    with_three(story)
    opens(story, 7, actor="other")
    starts(story, "other", cursor="c")
    gets_by_cursor(story, 0)


@plant("LogOneConsumer", "reader got 7:0:-1 by c", entries=0)
def a_consumer_reads_before_it_opens_the_cursor(story: Story) -> None:
    with_three(story)
    opens(story, 7, actor="other")
    starts(story, "other", cursor="c")
    gets_by_cursor(story, 0)
    opens(story, 7)


@near_miss("LogOneConsumer", entries=0)
def one_that_was_overtaken_has_opened_the_cursor_too(story: Story) -> None:
    with_three(story)
    starts(story, "other", cursor="c")
    opens(story, 7)
    opens(story, 7, actor="other")
    gets_by_cursor(story, 0)

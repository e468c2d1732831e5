"""What breaks, or nearly breaks, the invariant of cursors, which groups of consumers share. Log ``l``, ledger 7, cursor ``c``."""

from __future__ import annotations

from scenarios.history import Kind
from tests.scenarios.stories import Story
from tests.spark_analysis.planting import near_miss, plant
from tests.spark_analysis.plants_of_logs import acked, ended, gets, listed, log, published, starts, trimmed, with_three


def moves(story: Story, ledger: int, entry: int, *, cause: str = "stored", actor: str = "reader") -> None:
    log(story, Kind.LOG_CURSOR, actor, ledger=ledger, cursor="c", cause=cause, entry=entry, version=0)


def opens(story: Story, ledger: int = -1, entry: int = 0, *, actor: str = "reader") -> None:
    moves(story, ledger, entry, cause="opened", actor=actor)


def skips(story: Story) -> None:
    log(story, Kind.LOG_CURSOR, "reader", cursor="c", cause="skipped", entry=-1, version=-1)


def gets_by_cursor(story: Story, *entries: int, batch: int = -1) -> None:
    for entry in entries:
        gets(story, 100 + entry, entry, batch=batch)


def begins(story: Story) -> None:
    with_three(story)
    starts(story, "other", cursor="c")
    opens(story)


# H12 -----------------------------------------------------------------------------------------------------------------


@plant("LogCursorsKeep", "reader got 7:0:-1 by c", entries=0)
def a_cursor_delivers_what_was_dealt_with_before_it_was_opened(story: Story) -> None:
    begins(story)
    gets_by_cursor(story, 0)
    moves(story, 7, 1)
    opens(story, 7, 1)
    starts(story, "other", handle=2, cursor="c")
    gets(story, 100, 0, handle=2)


@plant("LogCursorsKeep", "which had come to 7:2", entries=0)
def a_cursor_delivers_again_what_it_moved_over(story: Story) -> None:
    begins(story)
    gets_by_cursor(story, 0, 1)
    moves(story, 7, 2)
    starts(story, "other", handle=2, cursor="c")
    gets(story, 101, 1, handle=2)


@plant("LogCursorsKeep", "which had come to 7:2", entries=0)
def a_cursor_is_opened_before_where_it_was(story: Story) -> None:
    begins(story)
    gets_by_cursor(story, 0, 1)
    moves(story, 7, 2)
    opens(story, 7, 0, actor="other")
    log(story, Kind.LOG_READ_START, "other", handle=2, cursor="c", cause="other")
    log(story, Kind.LOG_READ, "other", ledger=7, handle=2, content=100, entry=0, batch=-1)


@near_miss("LogCursorsKeep", entries=0)
def a_cursor_delivers_again_what_was_not_stored(story: Story) -> None:
    begins(story)
    gets_by_cursor(story, 0, 1)
    opens(story)
    starts(story, "other", handle=2, cursor="c")
    gets(story, 100, 0, handle=2)


@near_miss("LogCursorsKeep", entries=0)
def one_that_was_overtaken_delivers_what_the_other_dealt_with(story: Story) -> None:
    begins(story)
    gets_by_cursor(story, 0)
    opens(story, 7, 0, actor="other")
    moves(story, 7, 1, actor="other")
    starts(story, "other", handle=2, cursor="c")
    gets(story, 100, 0, handle=2)


# H13 -----------------------------------------------------------------------------------------------------------------


@plant("LogCursorsKeep", "reader moved c", entries=0)
def one_that_was_overtaken_moves_the_cursor(story: Story) -> None:
    begins(story)
    gets_by_cursor(story, 0)
    opens(story, actor="other")
    moves(story, 7, 1)


@plant("LogCursorsKeep", "other moved c", entries=0)
def one_that_never_opened_a_cursor_moves_it(story: Story) -> None:
    begins(story)
    gets_by_cursor(story, 0)
    moves(story, 7, 1, actor="other")


@near_miss("LogCursorsKeep", entries=0)
def a_cursor_is_moved_by_one_opener_after_the_other(story: Story) -> None:
    begins(story)
    gets_by_cursor(story, 0, 1, 2)
    moves(story, 7, 1)
    opens(story, 7, 1, actor="other")
    moves(story, 7, 2, actor="other")
    opens(story, 7, 2)
    moves(story, 7, 3)


# H14 -----------------------------------------------------------------------------------------------------------------


@plant("LogCursorsKeep", "7:1:-1 was acknowledged", entries=0)
def a_cursor_moves_over_a_message_that_nobody_got(story: Story) -> None:
    begins(story)
    gets_by_cursor(story, 0, 2)
    moves(story, 7, 3)


@plant("LogCursorsKeep", "7:2:-1 was acknowledged", entries=0)
def a_message_is_acknowledged_that_a_cursor_had_moved_over(story: Story) -> None:
    listed(story)
    story.write_all(0, 2)
    published(story, 0, 1, 2)
    acked(story, 0, 0)
    acked(story, 1, 1)
    starts(story, "other", cursor="c")
    opens(story)
    gets_by_cursor(story, 0, 1)
    moves(story, 7, 3)
    acked(story, 2, 2)
    story.close(2)
    ended(story, 2)


@plant("LogCursorsKeep", "7:1:-1 was acknowledged", entries=0)
def a_cursor_is_opened_behind_a_message_that_nobody_got(story: Story) -> None:
    begins(story)
    gets_by_cursor(story, 0)
    moves(story, 7, 1)
    opens(story, 7, 2, actor="other")


@plant("LogCursorsKeep", "7:0:1 was acknowledged", entries=0)
def a_cursor_moves_over_a_part_of_an_entry(story: Story) -> None:
    listed(story)
    story.write_all(0, 0)
    published(story, 0, 1)
    for number in range(2):
        acked(story, number, 0, batch=number)
    starts(story, "other", cursor="c")
    opens(story)
    gets_by_cursor(story, 0, batch=0)
    moves(story, 7, 1)
    story.close(0)
    ended(story, 0)


@plant("LogCursorsKeep", "7:1:-1 was acknowledged", entries=0)
def what_another_reader_got_the_cursor_did_not(story: Story) -> None:
    begins(story)
    gets_by_cursor(story, 0)
    starts(story, "other", handle=2)
    gets(story, 101, 1, handle=2)
    moves(story, 7, 2)


@near_miss("LogCursorsKeep", entries=0)
def a_cursor_moves_over_what_another_one_of_the_group_got(story: Story) -> None:
    begins(story)
    gets_by_cursor(story, 0)
    log(story, Kind.LOG_READ_START, "other", handle=2, cursor="c", cause="other")
    opens(story, actor="other")
    log(story, Kind.LOG_READ, "other", ledger=7, handle=2, content=101, entry=1, batch=-1)
    moves(story, 7, 2, actor="other")


@near_miss("LogCursorsKeep", entries=0)
def a_cursor_begins_behind_messages(story: Story) -> None:
    with_three(story)
    starts(story, "other", cursor="c")
    opens(story, 7, 2)
    gets_by_cursor(story, 2)
    moves(story, 7, 3)


@near_miss("LogCursorsKeep", entries=0)
def a_cursor_moves_over_what_was_trimmed(story: Story) -> None:
    begins(story)
    trimmed(story)
    moves(story, 8, 0)


@plant("LogCursorsKeep", "7:0:-1 was acknowledged", entries=0)
def a_cursor_moves_over_a_message_before_something_is_skipped(story: Story) -> None:
    begins(story)
    moves(story, 7, 1)
    skips(story)


@near_miss("LogCursorsKeep", entries=0)
def a_cursor_moves_over_what_the_application_skips(story: Story) -> None:
    begins(story)
    gets_by_cursor(story, 0)
    skips(story)
    moves(story, 7, 3)


@near_miss("LogCursorsKeep", entries=0)
def a_cursor_is_reset(story: Story) -> None:
    begins(story)
    gets_by_cursor(story, 0, 1)
    moves(story, 7, 2)
    log(story, Kind.LOG_CURSOR, "reader", cursor="c", cause="reset", entry=-1, version=-1)
    opens(story, 7, 0)
    starts(story, "other", handle=2, cursor="c")
    gets(story, 100, 0, handle=2)
    moves(story, 7, 3, actor="other")


@near_miss("LogCursorsKeep", entries=0)
def a_cursor_that_was_removed_comes_again(story: Story) -> None:
    begins(story)
    gets_by_cursor(story, 0, 1)
    moves(story, 7, 2)
    log(story, Kind.LOG_CURSOR, "reader", cursor="c", cause="removed", entry=-1, version=5)
    opens(story)
    starts(story, "other", handle=2, cursor="c")
    gets(story, 100, 0, handle=2)

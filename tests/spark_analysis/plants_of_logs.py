"""What breaks, or nearly breaks, the invariants of logs. All of it is about log ``l``; ledger 7 is the one that is accused.

Message ``m`` of epoch ``f`` has the content ``100 * f + m``.
"""

from __future__ import annotations

from typing import Any

from scenarios.history import Kind
from tests.scenarios.stories import Story
from tests.spark_analysis.planting import near_miss, plant

OWNER = "owner"


def log(story: Story, kind: Kind, actor: str = OWNER, *, ledger: int = -1, **fields: Any) -> None:
    story.event(kind, actor, ledger=ledger, log="l", **fields)


def listed(story: Story, ledger: int = 7, *, epoch: int = 1) -> None:
    """A ledger is made for the log, and appended to its list."""
    log(story, Kind.LOG_LEDGER, ledger=ledger)
    log(story, Kind.LOG_APPEND, ledger=ledger, epoch=epoch, version=ledger)


def ended(story: Story, last: int, ledger: int = 7) -> None:
    log(story, Kind.LOG_END, ledger=ledger, last_entry=last, length=10 * (last + 1), version=10 + ledger)


def trimmed(story: Story, ledger: int = 7) -> None:
    log(story, Kind.LOG_TRIM, ledger=ledger, version=30)


def other(story: Story, ledger: int = 6, *, epoch: int = 1, entries: int = 2, is_closed: bool = True) -> None:
    """Another ledger, with entries, is appended, and closed if not told otherwise."""
    part = Story(ledger=ledger)
    part.create()
    listed(part, ledger, epoch=epoch)
    part.write_all(0, entries - 1)
    if is_closed:
        part.close(entries - 1)
    for event in part.events:
        story.event(Kind(event.kind), event.actor, ledger=event.ledger, **event.fields)


def published(
    story: Story, *messages: int, epoch: int = 1, content: int | None = None, key: int | None = None, size: int = 9
) -> None:
    for message in messages:
        what = 100 * epoch + message if content is None else content
        log(story, Kind.LOG_PUB, epoch=epoch, message=message, content=what, size=size, key=key)


def acked(
    story: Story,
    message: int,
    entry: int,
    ledger: int = 7,
    *,
    epoch: int = 1,
    batch: int = -1,
    content: int | None = None,
) -> None:
    what = 100 * epoch + message if content is None else content
    log(story, Kind.LOG_ACK, ledger=ledger, epoch=epoch, message=message, entry=entry, content=what, batch=batch)


def starts(story: Story, cause: str = "earliest", *, handle: int = 1, cursor: str = "") -> None:
    log(story, Kind.LOG_READ_START, "reader", handle=handle, cursor=cursor, cause=cause)


def gets(
    story: Story,
    content: int,
    entry: int,
    ledger: int = 7,
    *,
    handle: int = 1,
    batch: int = -1,
    time: int | None = None,
) -> None:
    where = {"entry": entry, "batch": batch, "publish_ms": time}
    log(story, Kind.LOG_READ, "reader", ledger=ledger, handle=handle, content=content, **where)


def ends(story: Story) -> None:
    log(story, Kind.LOG_READ_END, "reader", handle=1)


def with_three(story: Story) -> None:
    """Three messages are published, acknowledged, and the ledger is closed."""
    listed(story)
    story.write_all(0, 2)
    published(story, 0, 1, 2)
    for number in range(3):
        acked(story, number, number)
    story.close(2)
    ended(story, 2)


# LogDelivers ---------------------------------------------------------------------------------------------------------


@plant("LogDelivers", "7:1:-1", entries=0)
def a_reader_passes_over_an_acknowledged_message(story: Story) -> None:
    with_three(story)
    starts(story, "other")
    gets(story, 100, 0)
    gets(story, 102, 2)


@plant("LogDelivers", "7:1:-1", entries=0)
def a_message_is_acknowledged_that_a_reader_had_passed_over(story: Story) -> None:
    listed(story)
    story.write_all(0, 2)
    published(story, 0, 1, 2)
    starts(story)
    gets(story, 100, 0)
    gets(story, 102, 2)
    acked(story, 1, 1)


@plant("LogDelivers", "7:0:-1", entries=0)
def a_reader_from_the_earliest_message_begins_at_a_later_one(story: Story) -> None:
    with_three(story)
    starts(story)
    gets(story, 101, 1)


@plant("LogDelivers", "7:2:-1", entries=0)
def a_reader_comes_to_an_end_before_the_last_message(story: Story) -> None:
    with_three(story)
    starts(story)
    gets(story, 100, 0)
    gets(story, 101, 1)
    ends(story)


@plant("LogDelivers", "7:0:-1", entries=0)
def a_reader_comes_to_an_end_and_has_got_nothing(story: Story) -> None:
    with_three(story)
    starts(story)
    ends(story)


@plant("LogDelivers", "content 100", entries=0)
def a_message_is_delivered_with_another_content(story: Story) -> None:
    with_three(story)
    published(story, 3, content=999)
    starts(story)
    gets(story, 999, 0)


@plant("LogDelivers", "7:1:-1", entries=0)
def a_message_is_sent_again_that_was_stored(story: Story) -> None:
    listed(story)
    story.write_all(0, 1)
    published(story, 0)
    acked(story, 0, 1)
    starts(story)
    gets(story, 100, 0)
    gets(story, 100, 1)


@plant("LogDelivers", "0 times", entries=0)
def a_message_is_delivered_that_nobody_published(story: Story) -> None:
    listed(story)
    story.write(0)
    starts(story)
    gets(story, 555, 0)


@near_miss("LogDelivers", entries=0)
def a_reader_begins_in_the_middle(story: Story) -> None:
    with_three(story)
    starts(story, "other")
    gets(story, 101, 1)
    gets(story, 102, 2)
    ends(story)


@near_miss("LogDelivers", entries=0)
def a_reader_begins_after_what_was_trimmed(story: Story) -> None:
    other(story)
    published(story, 0)
    acked(story, 0, 0, 6)
    ended(story, 1, 6)
    published(story, 1)
    listed(story)
    story.write(0)
    acked(story, 1, 0)
    starts(story)
    trimmed(story, 6)
    gets(story, 101, 0)
    ends(story)


@near_miss("LogDelivers", entries=0)
def a_reader_ends_before_what_is_confirmed_late_in_an_open_ledger(story: Story) -> None:
    listed(story)
    story.write_all(0, 1)
    published(story, 0, 1)
    acked(story, 0, 0)
    acked(story, 1, 1)
    starts(story)
    gets(story, 100, 0)
    ends(story)
    story.close(1)
    ended(story, 1)


@near_miss("LogDelivers", entries=0)
def a_cursor_passes_over_what_it_has_acknowledged(story: Story) -> None:
    with_three(story)
    starts(story, "other", cursor="c")
    gets(story, 100, 0)
    gets(story, 102, 2)


@near_miss("LogDelivers", entries=0)
def a_content_is_published_twice(story: Story) -> None:
    listed(story)
    story.write_all(0, 1)
    published(story, 0, 1, content=100)
    acked(story, 0, 0)
    acked(story, 1, 1, content=100)
    starts(story)
    gets(story, 100, 0)
    gets(story, 100, 1)


# LogTimesGrow --------------------------------------------------------------------------------------------------------


@plant("LogTimesGrow", "7:1:-1 at 4999 ms", entries=0)
def a_message_has_an_earlier_publish_time_than_the_one_before(story: Story) -> None:
    with_three(story)
    starts(story)
    for number, time in enumerate((5000, 4999, 6000)):
        gets(story, 100 + number, number, time=time)


@plant("LogTimesGrow", "6:1:-1 was published at 9000 ms", entries=0)
def a_successor_publishes_by_a_clock_that_is_behind(story: Story) -> None:
    other(story, epoch=1)
    published(story, 0, 1)
    for number in range(2):
        acked(story, number, number, 6)
    ended(story, 1, 6)
    listed(story, epoch=2)
    story.write(0)
    published(story, 0, epoch=2)
    acked(story, 0, 0, epoch=2)
    starts(story, "other")
    gets(story, 200, 0, time=8000)
    starts(story, handle=2)
    for number in range(2):
        gets(story, 100 + number, number, 6, handle=2, time=9000)


@plant("LogTimesGrow", "7:0:-1 was published at", entries=0)
def two_readers_get_a_message_with_different_publish_times(story: Story) -> None:
    with_three(story)
    for handle in (1, 2):
        starts(story, handle=handle)
        gets(story, 100, 0, handle=handle, time=4000 + 1000 * handle)


@near_miss("LogTimesGrow", entries=0)
def messages_have_one_publish_time_and_some_tell_none(story: Story) -> None:
    with_three(story)
    starts(story)
    for number, time in enumerate((5000, None, 5000)):
        gets(story, 100 + number, number, time=time)


# LogInOrder ----------------------------------------------------------------------------------------------------------


@plant("LogInOrder", "message 1 of epoch 1", entries=0)
def what_is_sent_again_is_sent_in_another_order(story: Story) -> None:
    listed(story)
    story.write_all(0, 1)
    published(story, 0, 1)
    acked(story, 1, 0)
    acked(story, 0, 1)


@plant("LogInOrder", "message 1 of epoch 1", entries=0)
def messages_that_were_never_acknowledged_are_out_of_order(story: Story) -> None:
    listed(story)
    story.write_all(0, 1)
    published(story, 0, 1)
    starts(story)
    gets(story, 101, 0)
    gets(story, 100, 1)


@plant("LogInOrder", "of epoch 2", entries=0)
def the_predecessor_is_behind_its_successor(story: Story) -> None:
    published(story, 0)
    other(story, epoch=2)
    published(story, 0, epoch=2)
    acked(story, 0, 0, 6, epoch=2)
    ended(story, 1, 6)
    listed(story)
    story.write(0)
    acked(story, 0, 0)


@plant("LogInOrder", "at 7:0:-1", entries=0)
def two_messages_are_acknowledged_as_one(story: Story) -> None:
    listed(story)
    story.write(0)
    published(story, 0)
    published(story, 1, content=100)
    acked(story, 0, 0)
    acked(story, 1, 0, content=100)


@plant("LogInOrder", "7:0:-1", entries=0)
def a_reader_goes_back(story: Story) -> None:
    with_three(story)
    starts(story, "other")
    gets(story, 101, 1)
    gets(story, 100, 0)


@plant("LogInOrder", "7:0:-1", entries=0)
def a_cursor_delivers_a_message_twice(story: Story) -> None:
    with_three(story)
    starts(story, "other", cursor="c")
    gets(story, 100, 0)
    gets(story, 100, 0)


@near_miss("LogInOrder", entries=0)
def a_cursor_is_opened_again_and_delivers_again(story: Story) -> None:
    with_three(story)
    starts(story, "other", cursor="c")
    gets(story, 100, 0)
    starts(story, "other", cursor="c", handle=2)
    gets(story, 100, 0, handle=2)


@near_miss("LogInOrder", entries=0)
def acknowledgements_come_in_another_order_than_messages_are_in(story: Story) -> None:
    listed(story)
    story.write_all(0, 1)
    published(story, 0, 1, 2)
    acked(story, 2, 1, batch=0)
    acked(story, 1, 0, batch=1)
    acked(story, 0, 0, batch=0)


# LogListed -----------------------------------------------------------------------------------------------------------


@plant("LogListed", "is not in the list", entries=0)
def a_ledger_is_written_to_before_it_is_listed(story: Story) -> None:
    log(story, Kind.LOG_LEDGER, ledger=7)
    story.write(0)
    log(story, Kind.LOG_APPEND, ledger=7, epoch=1, version=3)


@plant("LogListed", "is not in the list", entries=0)
def a_ledger_is_written_to_and_never_listed(story: Story) -> None:
    log(story, Kind.LOG_LEDGER, ledger=7)
    story.write_all(0, 1)
    story.close(1)


@plant("LogListed", "was deleted", entries=0)
def a_ledger_is_deleted_before_it_is_trimmed(story: Story) -> None:
    with_three(story)
    story.cas("delete", OWNER, state="CLOSED", last_entry=2, length=30)
    trimmed(story)


@plant("LogListed", "was deleted", entries=0)
def the_ledger_that_is_written_to_is_deleted(story: Story) -> None:
    listed(story)
    story.cas("delete", OWNER)


@near_miss("LogListed", entries=0)
def a_ledger_that_was_never_listed_is_left_behind(story: Story) -> None:
    log(story, Kind.LOG_LEDGER, ledger=7)
    story.cas("delete", OWNER)


@near_miss("LogListed", entries=0)
def a_ledger_is_deleted_after_it_was_trimmed(story: Story) -> None:
    with_three(story)
    trimmed(story)
    story.cas("delete", OWNER, state="CLOSED", last_entry=2, length=30)


@near_miss("LogListed", entries=0)
def a_ledger_that_ended_empty_is_deleted(story: Story) -> None:
    listed(story)
    story.close(-1)
    ended(story, -1)
    story.cas("delete", OWNER, state="CLOSED")


# LogOneOwner ---------------------------------------------------------------------------------------------------------


@plant("LogOneOwner", "message 2 of epoch 1", entries=0)
def a_zombie_gets_an_acknowledgement(story: Story) -> None:
    listed(story)
    story.write_all(0, 2)
    published(story, 0, 1)
    acked(story, 0, 0)
    acked(story, 1, 1)
    story.close(2)
    ended(story, 2)
    other(story, 9, epoch=2)
    published(story, 2)
    acked(story, 2, 2)


@plant("LogOneOwner", "message 0 of epoch 1", entries=0)
def a_message_is_acknowledged_in_the_ledger_of_another_owner(story: Story) -> None:
    published(story, 0)
    listed(story, epoch=2)
    story.write(0)
    acked(story, 0, 0)


@plant("LogOneOwner", "not in the list", entries=0)
def a_message_is_acknowledged_in_a_ledger_that_is_not_listed(story: Story) -> None:
    log(story, Kind.LOG_LEDGER, ledger=7)
    published(story, 0)
    acked(story, 0, 0)
    log(story, Kind.LOG_APPEND, ledger=7, epoch=1, version=3)


@plant("LogOneOwner", "entry 2", entries=0)
def a_message_is_acknowledged_above_the_end(story: Story) -> None:
    listed(story)
    story.write_all(0, 1)
    published(story, 0, 1, 2)
    story.close(1)
    ended(story, 1)
    acked(story, 2, 2)


@near_miss("LogOneOwner", entries=0)
def what_was_stored_in_time_is_acknowledged_late(story: Story) -> None:
    listed(story)
    story.write_all(0, 1)
    published(story, 0, 1)
    story.close(1)
    ended(story, 1)
    other(story, 9, epoch=2)
    acked(story, 0, 0)
    acked(story, 1, 1)


@near_miss("LogOneOwner", entries=0)
def a_zombie_publishes_and_is_told_no(story: Story) -> None:
    with_three(story)
    other(story, 9, epoch=2)
    published(story, 3)
    log(story, Kind.LOG_FAIL, epoch=1, message=3, code=-101)
    log(story, Kind.LOG_LOST, epoch=1, code=-101)


@near_miss("LogOneOwner", entries=0)
def an_owner_goes_on_while_its_successor_has_claimed_only(story: Story) -> None:
    listed(story)
    log(story, Kind.LOG_CLAIM, "successor", epoch=2, version=4)
    story.write(0)
    published(story, 0)
    acked(story, 0, 0)


# LogOneOpen ----------------------------------------------------------------------------------------------------------


@plant("LogOneOpen", "ledger 6", entries=0)
def a_ledger_is_appended_while_another_one_is_open(story: Story) -> None:
    other(story, is_closed=False)
    listed(story, epoch=2)


@plant("LogOneOpen", "ledger 6", entries=0)
def a_ledger_is_appended_before_the_end_of_the_last_one_is_noted(story: Story) -> None:
    other(story)
    listed(story)
    ended(story, 1, 6)


@plant("LogOneOpen", "entry 1", entries=0)
def another_end_is_noted_than_the_ledger_has(story: Story) -> None:
    listed(story)
    story.write_all(0, 2)
    story.close(2)
    ended(story, 1)


@plant("LogOneOpen", "is open", entries=0)
def an_end_is_noted_of_a_ledger_that_is_open(story: Story) -> None:
    listed(story)
    story.write_all(0, 1)
    ended(story, 1)
    story.close(1)


@near_miss("LogOneOpen", entries=0)
def a_ledger_is_appended_after_one_that_ended_empty(story: Story) -> None:
    log(story, Kind.LOG_LEDGER, ledger=6)
    listed(story)
    story.close(-1)
    ended(story, -1)
    other(story, 9)


@near_miss("LogOneOpen", entries=0)
def a_ledger_is_appended_after_one_that_was_trimmed(story: Story) -> None:
    with_three(story)
    trimmed(story)
    other(story, 9)


# LogTrimKeeps --------------------------------------------------------------------------------------------------------


def stored(story: Story, ledger: int, entry: int, cursor: str = "c") -> None:
    log(story, Kind.LOG_CURSOR, "reader", ledger=ledger, cursor=cursor, cause="stored", entry=entry, version=0)


def noted(story: Story, cause: str, cursor: str = "c") -> None:
    log(story, Kind.LOG_CURSOR, "reader", cursor=cursor, cause=cause, entry=-1, version=5)


@plant("LogTrimKeeps", "cursor c is at 7:1", entries=0)
def a_ledger_is_trimmed_in_which_a_cursor_is(story: Story) -> None:
    with_three(story)
    stored(story, 7, 1)
    noted(story, "listed")
    trimmed(story)


@plant("LogTrimKeeps", "cursor c is at 7:1", entries=0)
def a_ledger_is_trimmed_that_a_cursor_needs_which_skipped_something(story: Story) -> None:
    with_three(story)
    stored(story, 7, 1)
    noted(story, "listed")
    noted(story, "skipped")
    trimmed(story)


@plant("LogTrimKeeps", "cursor c is at -1:0", entries=0)
def a_ledger_is_trimmed_before_a_cursor_came_to_it(story: Story) -> None:
    with_three(story)
    stored(story, 9, 0, "d")
    noted(story, "listed", "d")
    stored(story, -1, 0)
    noted(story, "listed")
    trimmed(story)
    stored(story, 9, 0)


@near_miss("LogTrimKeeps", entries=0)
def a_ledger_is_trimmed_that_all_cursors_have_passed(story: Story) -> None:
    with_three(story)
    stored(story, -1, 0)
    noted(story, "listed")
    stored(story, 8, 0)
    trimmed(story)


@near_miss("LogTrimKeeps", entries=0)
def a_ledger_is_trimmed_before_a_cursor_is_listed(story: Story) -> None:
    with_three(story)
    stored(story, -1, 0)
    trimmed(story)
    noted(story, "listed")


@near_miss("LogTrimKeeps", entries=0)
def a_ledger_is_trimmed_after_the_cursor_was_removed(story: Story) -> None:
    with_three(story)
    stored(story, 7, 0)
    noted(story, "listed")
    noted(story, "removed")
    trimmed(story)

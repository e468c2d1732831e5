"""What breaks, or nearly breaks, the invariants of compaction by key. Log ``l``; ledger 9 is what it is compacted to."""

from __future__ import annotations

from scenarios.history import Kind
from tests.scenarios.stories import Story
from tests.spark_analysis.planting import near_miss, plant
from tests.spark_analysis.plants_of_logs import acked, ended, ends, gets, listed, log, other, published, starts, trimmed


def keyed(story: Story, *keys: int | None, empty: int = -1) -> None:
    """Messages with these keys are published, one in an entry, and acknowledged; the ledger is closed. One may be empty."""
    listed(story)
    story.write_all(0, len(keys) - 1)
    for number, key in enumerate(keys):
        published(story, number, key=key, size=0 if number == empty else 9)
        acked(story, number, number)
    story.close(len(keys) - 1)
    ended(story, len(keys) - 1)


def points(story: Story, entry: int, *, ledger: int = 9, through: int = 7, is_closed: bool = True) -> None:
    """A compaction is announced, written and concluded."""
    compaction(story, "begun", ledger=ledger, through=-1, entry=-1)
    part = Story(ledger=ledger)
    part.create()
    part.write_all(0, 0)
    if is_closed:
        part.close(0)
    for event in part.events:
        story.event(Kind(event.kind), event.actor, ledger=event.ledger, **event.fields)
    compaction(story, "done", ledger=ledger, through=through, entry=entry)


def compaction(story: Story, cause: str, *, ledger: int = 9, through: int = 7, entry: int = 0) -> None:
    log(story, Kind.LOG_COMPACT, "compactor", ledger=ledger, cause=cause, through=through, entry=entry, version=40)


def deleted(story: Story, ledger: int) -> None:
    """The metadata of the closed ledger are deleted."""
    (closing,) = (event for event in story.events if event.ledger == ledger and event.fields.get("cause") == "close")
    fields = {**closing.fields, "cause": "delete", "expected_version": -1}
    story.event(Kind.META_CAS, "compactor", ledger=ledger, **fields)


# H15 -----------------------------------------------------------------------------------------------------------------


@plant("LogCompactionKeeps", "7:2:-1 was acknowledged", entries=0)
def a_compaction_leaves_out_a_key(story: Story) -> None:
    keyed(story, 1, 1, 2)
    points(story, 2)
    starts(story, "compacted")
    gets(story, 101, 1)
    ends(story)


@plant("LogCompactionKeeps", "is not covered", entries=0)
def a_reader_passes_over_what_is_not_covered(story: Story) -> None:
    keyed(story, 1, 1, 1)
    points(story, 1)
    starts(story, "compacted")
    gets(story, 101, 1)
    ends(story)


@plant("LogCompactionKeeps", "7:0:-1 was acknowledged", entries=0)
def a_key_is_gone_whose_newer_message_is_not_covered(story: Story) -> None:
    keyed(story, 1, 2, 1)
    points(story, 1)
    starts(story, "compacted")
    gets(story, 101, 1)
    gets(story, 102, 2)
    ends(story)


@plant("LogCompactionKeeps", "7:0:-1 was acknowledged", entries=0)
def what_is_trimmed_is_not_kept(story: Story) -> None:
    keyed(story, 1, 2)
    points(story, 1)
    trimmed(story)
    starts(story, "compacted")
    gets(story, 101, 1)
    ends(story)


@near_miss("LogCompactionKeeps", entries=0)
def older_messages_deletions_and_those_without_a_key_are_left_out(story: Story) -> None:
    keyed(story, 1, 1, None, 2, 2, empty=4)
    points(story, 4)
    trimmed(story)
    starts(story, "compacted")
    gets(story, 101, 1)
    ends(story)


@near_miss("LogCompactionKeeps", entries=0)
def a_message_gives_way_to_one_that_nobody_knows_to_be_there(story: Story) -> None:
    listed(story)
    story.write_all(0, 1)
    published(story, 0, key=1)
    acked(story, 0, 0)
    published(story, 1, key=1, size=0)
    story.close(1)
    ended(story, 1)
    points(story, 1)
    starts(story, "compacted")
    ends(story)


@near_miss("LogCompactionKeeps", entries=0)
def what_was_trimmed_before_the_compaction_is_not_there(story: Story) -> None:
    keyed(story, 1, 2)
    trimmed(story)
    points(story, -1, through=8)
    starts(story, "compacted")
    ends(story)


# H16 -----------------------------------------------------------------------------------------------------------------


@plant("LogCompactionKeeps", "is older than 7:1:-1", entries=0)
def a_compaction_keeps_an_older_message(story: Story) -> None:
    keyed(story, 1, 1)
    points(story, 1)
    starts(story, "compacted")
    gets(story, 100, 0)
    gets(story, 101, 1)
    ends(story)


@plant("LogCompactionKeeps", "deletes its key", entries=0)
def a_compaction_keeps_a_deletion(story: Story) -> None:
    keyed(story, 1, 2, empty=0)
    points(story, 1)
    starts(story, "compacted")
    gets(story, 100, 0)
    gets(story, 101, 1)
    ends(story)


@plant("LogCompactionKeeps", "has no key", entries=0)
def a_compaction_keeps_a_message_without_a_key(story: Story) -> None:
    keyed(story, None, 2)
    points(story, 1)
    starts(story, "compacted")
    gets(story, 100, 0)
    gets(story, 101, 1)
    ends(story)


@near_miss("LogCompactionKeeps", entries=0)
def a_reader_that_began_before_gets_older_messages(story: Story) -> None:
    keyed(story, 1, 1)
    starts(story, "compacted")
    gets(story, 100, 0)
    points(story, 1)
    gets(story, 101, 1)
    ends(story)


@near_miss("LogCompactionKeeps", entries=0)
def what_is_not_covered_comes_as_it_is(story: Story) -> None:
    keyed(story, 1, 1, 1, None, empty=2)
    points(story, 0)
    starts(story, "compacted")
    for number in range(4):
        gets(story, 100 + number, number)
    ends(story)


# H17 -----------------------------------------------------------------------------------------------------------------


def compacts(story: Story, entry: int = 1, *, is_closed: bool = True) -> None:
    """Ledger 6 of the log is compacted through this entry, to ledger 7."""
    other(story)
    ended(story, 1, 6)
    compaction(story, "begun", ledger=7, through=-1, entry=-1)
    story.write_all(0, 0)
    if is_closed:
        story.close(0)
    compaction(story, "done", ledger=7, through=6, entry=entry)


@plant("LogCompactionWhole", "that is open", entries=0)
def a_log_points_to_an_open_ledger(story: Story) -> None:
    compacts(story, is_closed=False)


@plant("LogCompactionWhole", "the ledger was deleted", entries=0)
def a_compacted_ledger_is_deleted_while_the_log_points_to_it(story: Story) -> None:
    compacts(story)
    compaction(story, "begun", ledger=10, through=-1, entry=-1)
    deleted(story, 7)


@near_miss("LogCompactionWhole", entries=0)
def a_compacted_ledger_is_deleted_after_it_was_dropped(story: Story) -> None:
    compacts(story, 0)
    compaction(story, "dropped", ledger=7, through=6)
    points(story, 1, ledger=10, through=6)
    deleted(story, 7)
    trimmed(story, 6)


# H18 -----------------------------------------------------------------------------------------------------------------


@plant("LogCompactionWhole", "and through 6:2 before", entries=0)
def a_later_compaction_covers_less(story: Story) -> None:
    points(story, 2, ledger=10, through=6)
    compaction(story, "dropped", ledger=10, through=6, entry=2)
    compacts(story)


@plant("LogCompactionWhole", "which ends at entry 1", entries=0)
def a_ledger_is_trimmed_that_is_covered_in_part(story: Story) -> None:
    keyed(story, 1, 2)
    points(story, 0)
    trimmed(story)


@near_miss("LogCompactionWhole", entries=0)
def a_ledger_is_trimmed_while_the_log_is_not_compacted(story: Story) -> None:
    keyed(story, 1, 2)
    compaction(story, "begun", through=-1, entry=-1)
    trimmed(story)
    compaction(story, "abandoned", through=-1, entry=-1)

"""What breaks, or nearly breaks, invariants about ends where a ledger has more than one: closed again, deleted, created anew; and
what is promised of entries that were acknowledged before they were durable."""

from __future__ import annotations

from scenarios.history import Kind
from tests.scenarios.stories import DENIED, Story
from tests.spark_analysis.planting import near_miss, plant


def _store(story: Story, entry: int) -> None:
    """The entry is on all its bookies, and they have said so."""
    story.send(entry, "b0", "b1", "b2", lac=entry - 1)
    story.store(entry, "b0", "b1", "b2")
    story.answer(entry, "b0", "b1", "b2")


def _take_over(story: Story, last_entry: int) -> None:
    """Another client closes the ledger after this entry."""
    story.mark()
    story.fence("b0", "b1", "b2", lac=last_entry)
    story.rule_out(last_entry + 1, "b0", "b1")
    story.close(last_entry, "r0")


def _delete(story: Story) -> None:
    now = story.version
    story.cas(
        *("delete", "admin"),
        state=story.state,
        last_entry=story.last_entry,
        length=story.length,
        expected=now,
        version=now,
    )


def _create_anew(story: Story) -> None:
    """Another client creates a ledger of the same id, and writes one entry."""
    story.version, story.confirmed, story.state = -1, -1, "OPEN"
    story.fragments = [(0, ("b4", "b5", "b6"))]
    story.create("another")
    story.send(0, "b4", "b5", "b6", actor="another", content=77)
    story.store(0, "b4", "b5", "b6", source="another", content=77)
    story.answer(0, "b4", "b5", "b6", actor="another")
    story.ack(0, actor="another", content=77)


def _repair(story: Story, bookies: tuple[str, ...]) -> None:
    """An auditor gives the ledger, up to its end, other bookies."""
    for entry in range(story.last_entry + 1):
        if entry < 2:
            story.store(entry, *(bookie for bookie in bookies if bookie not in story.bookies(3)), source="auditor")
    story.cas("rereplicate", "auditor", fragments=[(0, bookies)], last_entry=story.last_entry, length=story.length)


def _acked_before_durable(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1", "b2", sync=False)
    story.answer(2, "b0", "b1", "b2")
    story.ack(2, durable=False)


# Closed again --------------------------------------------------------------------------------------------------------


@plant("ReadStability", "entry 2 was read (event ", "RecoveriesAgree")
def read_after_a_second_close_took_it_in(story: Story) -> None:
    """One recovery left the entry out, another one put it in: who opened in between and who reads now disagree."""
    _store(story, 2)
    story.close(1)
    story.opened("r1")
    story.close(2, "r0")
    story.read(2)


@plant("NoLacTruncation", "the ledger is closed after entry 1", "NoAckAfterEnd", "RecoveriesAgree")
def acknowledged_after_a_second_close_took_it_in(story: Story) -> None:
    _store(story, 2)
    story.close(1)
    story.close(2, "r0")
    story.ack(2)


@plant("VisibleLacBounded", "the ledger is closed after entry 1", "RecoveriesAgree")
def a_lac_reached_after_a_second_close_took_it_in(story: Story) -> None:
    _store(story, 2)
    story.close(1)
    story.close(2, "r0")
    story.event(Kind.LAC_ADV, "reader", lac=2)


@plant("NoLacTruncation", "the ledger is closed after entry 1", "RecoveriesAgree")
def seen_closed_lower_by_a_late_look(story: Story) -> None:
    _store(story, 2)
    story.ack(2)
    version = story.version + 1
    story.close(2)
    story.look("reader", version=version, last_entry=1, length=20)


@near_miss("ReadStability")
def read_and_closed_twice_above_it(story: Story) -> None:
    story.read(1)
    story.close(1)
    story.look("r1")
    story.cas("rereplicate", "auditor", last_entry=1, length=20)
    story.read(1)


# Deleted -------------------------------------------------------------------------------------------------------------


@plant("NoLacTruncation", "the ledger is closed after entry 1", "FencedStaysFenced", "NegativeStays")
def acknowledged_above_the_end_of_a_deleted_ledger(story: Story) -> None:
    _take_over(story, 1)
    _delete(story)
    _store(story, 2)
    story.ack(2)


@plant("ReadStability", "the ledger is closed after entry 1")
def read_above_the_end_of_a_deleted_ledger(story: Story) -> None:
    _store(story, 2)
    version = story.version
    story.close(1)
    _delete(story)
    story.read(2, version=version)


@plant("RecoveriesAgree", "but also entry 2, length 30")
def told_another_end_than_it_had_after_it_was_deleted(story: Story) -> None:
    story.close(1)
    _delete(story)
    story.opened("r1", last_entry=2, length=30)


@near_miss("NoLacTruncation", entries=1)
def a_slow_writer_learns_after_the_deletion_what_is_in_the_ledger(story: Story) -> None:
    _store(story, 1)
    _take_over(story, 1)
    _delete(story)
    story.ack(1)


@near_miss("NoLacTruncation")
def acknowledged_though_the_open_ledger_was_deleted(story: Story) -> None:
    """Nobody fenced it: its bookies go on until they collect it, and it never had an end."""
    _delete(story)
    _store(story, 2)
    story.ack(2)


# Acknowledged twice --------------------------------------------------------------------------------------------------


@plant("AckedReadable", "was acknowledged with content 1001", "AcksInOrder", "NothingInvented")
def acknowledged_with_another_content_than_the_second_time(story: Story) -> None:
    """One of the two applications was told of what nobody will ever read."""
    story.ack(1, content=77)
    story.close(1)
    story.read(1, content=77)


@near_miss("AcksInOrder")
def acknowledged_by_two_writers_in_order(story: Story) -> None:
    """That there are two is another matter, as long as no add of the second one was seen."""
    for entry in (0, 1):
        story.answer(entry, "b0", "b1", actor="other")
        story.ack(entry, actor="other")


# Created anew --------------------------------------------------------------------------------------------------------


@near_miss("NoLacTruncation")
def another_ledger_gets_the_id_of_a_deleted_one(story: Story) -> None:
    """It is shorter, and its entries are others. What is still on its way to the former one comes to it."""
    story.read(1)
    story.event(Kind.BK_LAC, "b0", lac=0)
    story.close(1)
    _delete(story)
    for bookie in ("b0", "b1", "b2"):
        story.event(Kind.BK_GC, bookie)
    _create_anew(story)
    story.ack(1)
    story.close(0, "another")
    story.read(0, content=77)
    story.read(1, code=DENIED)


@near_miss("RecoveriesAgree")
def another_ledger_gets_the_id_of_one_that_was_deleted_perhaps(story: Story) -> None:
    story.close(1)
    story.cas("delete", "writer", state="CLOSED", last_entry=1, length=20, outcome="unknown")
    _create_anew(story)
    story.close(0, "another")


# Acknowledged before it was durable ----------------------------------------------------------------------------------


@near_miss("AckedReplication")
def a_repair_copies_nothing_above_the_end_of_a_ledger_with_deferred_sync(story: Story) -> None:
    _acked_before_durable(story)
    story.close(1)
    _repair(story, ("b0", "b3", "b4"))


@near_miss("AckedReadable")
def no_bookie_has_what_was_acknowledged_and_cut_off(story: Story) -> None:
    _acked_before_durable(story)
    story.close(1)
    _repair(story, ("b3", "b4", "b5"))


@near_miss("AckedReadable")
def a_reader_is_denied_what_was_acknowledged_and_not_durable(story: Story) -> None:
    _acked_before_durable(story)
    story.lose(2, "b0")
    story.read(2, "b0", code=DENIED, lac=2)


@plant("AckedReplication", "entry 2 was acknowledged (event ", "AcksInOrder", "ClosedAtQuorum")
def a_repair_copies_nothing_of_what_a_later_acknowledgement_called_durable(story: Story) -> None:
    _acked_before_durable(story)
    for bookie in ("b0", "b1", "b2"):
        story.sync(2, bookie)
    story.ack(2)
    story.close(2)
    _repair(story, ("b0", "b3", "b4"))

"""What breaks, or nearly breaks, the invariants about what applications are told."""

from __future__ import annotations

from scenarios.history import Kind
from tests.scenarios.stories import FENCED, TIMEOUT, Story
from tests.spark_analysis.planting import near_miss, plant


def end(story: Story, *, completed: bool = True) -> None:
    story.event(Kind.RUN_END, "run", ledger=-1, completed=completed)


def closed(story: Story, last_entry: int, *, code: int = 0, actor: str = "writer") -> None:
    length = 10 * (last_entry + 1) if code == 0 else 0
    story.event(Kind.CLOSE_RESULT, actor, code=code, last_entry=last_entry, length=length)


# LengthConsistent ----------------------------------------------------------------------------------------------------


def give_ids_backwards(story: Story) -> None:
    """Entry 3 is sent before entry 2, and both are stored and acknowledged."""
    for entry, length in ((3, 30), (2, 40)):
        story.send(entry, "b0", "b1", "b2", lac=1, length=length)
        story.add(entry, given=True)
    for entry, length in ((2, 40), (3, 30)):
        story.store(entry, "b0", "b1", "b2", length=length)
        story.answer(entry, "b0", "b1", "b2")
        story.ack(entry)


@plant("LengthConsistent", "entry 2")
def an_entry_carries_a_length_that_does_not_add_up(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1, length=31)
    story.add(2)


@plant("LengthConsistent", "length 19")
def closed_with_a_length_that_does_not_add_up(story: Story) -> None:
    story.close(1, length=19)


@plant("LengthConsistent", "length 30")
def closed_with_the_length_of_what_was_cut_off(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.close(1, length=30)


def recover_nothing(story: Story) -> None:
    """A recovery finds that the ledger ends at entry 1, which it has no reason to write back."""
    story.mark()
    story.fence("b0", "b1", "b2", lac=1)
    story.rule_out(2, "b0", "b1")


@near_miss("LengthConsistent")
def a_recovery_closes_with_a_length_that_it_could_not_read(story: Story) -> None:
    recover_nothing(story)
    for bookie in ("b0", "b1", "b2"):
        story.event(Kind.READ_SEND, "r0", entry=1, bookie=bookie)
    story.event(Kind.READ_RESP, "r0", entry=1, bookie="b0", code=-23, lac=-1)
    story.close(1, actor="r0", length=30)


@plant("LengthConsistent", "length 30")
def a_recovery_that_was_given_the_last_entry_closes_with_another_length(story: Story) -> None:
    recover_nothing(story)
    story.read(1, "b0", actor="r0")
    story.close(1, actor="r0", length=30)


@plant("LengthConsistent", "length 30")
def a_recovery_that_asked_nobody_closes_with_another_length(story: Story) -> None:
    recover_nothing(story)
    story.close(1, actor="r0", length=30)


@plant("LengthConsistent", "length 30")
def a_recovery_that_wrote_the_last_entry_back_closes_with_another_length(story: Story) -> None:
    story.mark()
    story.event(Kind.READ_SEND, "r0", entry=1, bookie="b0")
    story.fence("b0", "b1", "b2", lac=0)
    story.find(1, "b0")
    story.rewrite(1, "b0", "b1", "b2")
    story.rule_out(2, "b0", "b1")
    story.close(1, actor="r0", length=30)


@plant("LengthConsistent", "length 30")
def what_was_asked_in_vain_before_another_recovery_began_is_no_excuse(story: Story) -> None:
    story.mark()
    story.event(Kind.READ_SEND, "r0", entry=1, bookie="b0")
    story.opened("r0", code=-10)
    recover_nothing(story)
    story.close(1, actor="r0", length=30)


@near_miss("LengthConsistent")
def given_ids_are_sent_before_what_is_below_them(story: Story) -> None:
    give_ids_backwards(story)


@plant("LengthConsistent", "length 30")
def a_writer_of_given_ids_closes_with_the_length_of_its_last_entry(story: Story) -> None:
    give_ids_backwards(story)
    story.close(3, length=30)


@near_miss("LengthConsistent")
def the_same_client_recovers_the_ledger_and_has_the_length_from_there(story: Story) -> None:
    give_ids_backwards(story)
    story.mark("writer")
    story.close(3, length=30)


@near_miss("LengthConsistent", entries=0)
def an_empty_ledger_has_no_length(story: Story) -> None:
    story.close(-1)


# ReaderLacMonotonic --------------------------------------------------------------------------------------------------


@plant("ReaderLacMonotonic", "from 1 to 0")
def a_reader_forgets_what_it_knew(story: Story) -> None:
    story.event(Kind.LAC_ADV, "reader", lac=1, source="open", handle=1)
    story.event(Kind.LAC_ADV, "reader", lac=0, source="read-lac", handle=1)


@near_miss("ReaderLacMonotonic")
def another_reader_of_the_same_client_knows_less(story: Story) -> None:
    story.event(Kind.LAC_ADV, "reader", lac=1, source="open", handle=1)
    story.event(Kind.LAC_ADV, "reader", lac=0, source="open", handle=2)
    story.event(Kind.LAC_ADV, "reader", lac=1, source="read-lac", handle=1)


@near_miss("ReaderLacMonotonic")
def a_history_that_does_not_tell_readers_apart(story: Story) -> None:
    story.event(Kind.LAC_ADV, "reader", lac=1, source="open")
    story.event(Kind.LAC_ADV, "reader", lac=0, source="open")


# AddResolves ---------------------------------------------------------------------------------------------------------


@plant("AddResolves", "entry 2")
def nobody_is_told_what_became_of_an_append(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.add(2)
    end(story)


@plant("AddResolves", "entry 2")
def a_close_returns_and_an_append_is_still_open(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.add(2)
    story.close(1)
    closed(story, 1)
    end(story, completed=False)


@near_miss("AddResolves")
def a_cancelled_append_and_one_of_a_client_that_died(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.add(2)
    story.cancel(2)
    story.send(3, "b0", "b1", "b2", lac=1)
    story.add(3)
    story.event(Kind.CLIENT_CRASH, "writer", ledger=-1, incarnation=1)
    end(story)


@near_miss("AddResolves")
def an_append_under_way_when_the_run_was_cut_short(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.add(2)
    end(story, completed=False)


@near_miss("AddResolves")
def a_history_that_does_not_say_how_it_ended(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.add(2)


# NoAckAfterEnd -------------------------------------------------------------------------------------------------------


@plant("NoAckAfterEnd", "entry 2", "FencedIsTold")
def acknowledged_after_the_application_was_told_of_the_fence(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1")
    story.answer(2, "b2", code=FENCED)
    story.fail(3, FENCED)
    story.answer(2, "b0", "b1")
    story.ack(2)


@plant("NoAckAfterEnd", "entry 2")
def acknowledged_after_a_failure(story: Story) -> None:
    story.fail(2, TIMEOUT)
    story.write(2)


@near_miss("NoAckAfterEnd")
def acknowledged_before_a_later_one_fails(story: Story) -> None:
    story.write(2)
    story.fail(3, FENCED)


# CloseKeepsAcks ------------------------------------------------------------------------------------------------------


@plant("CloseKeepsAcks", "entry 2", "NoLacTruncation", "NoFalseNegative", entries=3)
def a_writer_is_told_that_all_is_well_when_its_entries_were_cut_off(story: Story) -> None:
    recover_nothing(story)
    story.close(1, "r0")
    closed(story, 1)


@plant("CloseKeepsAcks", "OPEN")
def a_writer_is_told_of_a_close_that_never_was(story: Story) -> None:
    closed(story, 1)


@near_miss("CloseKeepsAcks", entries=3)
def a_writer_whose_entries_were_kept_by_another_client(story: Story) -> None:
    story.mark()
    story.fence("b0", "b1", lac=2)
    story.rule_out(3, "b0", "b1")
    story.close(2, "r0")
    closed(story, 2)


@near_miss("CloseKeepsAcks")
def a_close_that_fails_promises_nothing(story: Story) -> None:
    closed(story, -1, code=TIMEOUT)


@near_miss("CloseKeepsAcks")
def a_close_ends_where_a_writer_with_deferred_sync_was_durable(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1")
    story.answer(2, "b0", "b1")
    story.ack(2, durable=False)
    story.close(1)
    closed(story, 1)


# FencedIsTold --------------------------------------------------------------------------------------------------------


@plant("FencedIsTold", "entry 2")
def acknowledged_in_spite_of_a_bookie_that_is_fenced(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.answer(2, "b2", code=FENCED)
    story.store(2, "b0", "b1")
    story.answer(2, "b0", "b1")
    story.ack(2)


@plant("FencedIsTold", "-23")
def a_fenced_writer_says_that_it_timed_out(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.answer(2, "b2", code=FENCED)
    story.fail(2, TIMEOUT)


@near_miss("FencedIsTold")
def confirmed_before_the_refusal_and_told_after_it(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.send(3, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1")
    story.answer(2, "b0", "b1")
    story.answer(3, "b2", code=FENCED)
    story.ack(2)
    story.fail(3, FENCED)


@near_miss("FencedIsTold")
def a_bookie_that_is_not_in_the_write_set_any_more_is_fenced(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.change(2, "b0", "b1", "b3")
    story.answer(2, "b2", code=FENCED)
    story.store(2, "b0", "b1")
    story.answer(2, "b0", "b1")
    story.ack(2)


# ReadWithinLac -------------------------------------------------------------------------------------------------------


@plant("ReadWithinLac", "entry 1")
def read_above_the_last_add_confirmed(story: Story) -> None:
    story.read(1, lac=0)


@near_miss("ReadWithinLac")
def read_at_the_last_add_confirmed(story: Story) -> None:
    story.read(1, lac=1)


# VisibleLacBounded ---------------------------------------------------------------------------------------------------


@plant("VisibleLacBounded", "after entry 1", "NoLacTruncation", entries=3)
def a_reader_knew_more_than_the_ledger_has_in_the_end(story: Story) -> None:
    story.event(Kind.LAC_ADV, "reader", lac=2, source="open", handle=1)
    story.close(1)


@near_miss("VisibleLacBounded")
def a_reader_knew_the_end_before_it_was_one(story: Story) -> None:
    story.event(Kind.LAC_ADV, "reader", lac=1, source="open", handle=1)
    story.close(1)


# SingleWriterOrder ---------------------------------------------------------------------------------------------------


@plant("SingleWriterOrder", "incarnation 2", "ReplicasAgree")
def another_writer_goes_on(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.send(2, "b0", "b1", "b2", lac=1, incarnation=2, content=77)


@near_miss("SingleWriterOrder")
def an_entry_is_sent_again(story: Story) -> None:
    story.write(2)
    story.send(2, "b0", lac=1)

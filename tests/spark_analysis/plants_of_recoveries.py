"""What breaks, or nearly breaks, the invariants about recoveries: what they may read, decide, write back and close."""

from __future__ import annotations

from scenarios.history import Kind
from tests.scenarios.stories import DENIED, TIMEOUT, Story
from tests.spark_analysis.planting import near_miss, plant


def begin(story: Story, *, actor: str = "r0", lac: int = 0) -> None:
    """A recovery has fenced its ensemble, and learned a LAC."""
    story.mark(actor)
    story.fence(*story.write_set(2), actor=actor, lac=lac)


def half_written(story: Story) -> None:
    """Entry 2 is on b0 alone, unacknowledged."""
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")


# RewriteBeforeClose --------------------------------------------------------------------------------------------------


@plant("RewriteBeforeClose", "entry 1", entries=2)
def closed_before_anything_is_written_back(story: Story) -> None:
    begin(story)
    story.find(1, "b0")
    story.rule_out(2, "b0", "b1")
    story.close(1, "r0")


@plant("RewriteBeforeClose", "entry 2")
def closed_when_one_bookie_confirmed_the_write_back(story: Story) -> None:
    half_written(story)
    begin(story, lac=1)
    story.find(2, "b0")
    story.send(2, "b0", "b1", "b2", actor="r0", recovery=True, lac=1)
    story.store(2, "b1", "b2", recovery=True, source="r0", lac=1)
    story.answer(2, "b0", actor="r0", recovery=True)
    story.answer(2, "b1", actor="r0", recovery=True, code=TIMEOUT)
    story.rule_out(3, "b0", "b1")
    story.close(2, "r0")
    story.event(Kind.LAC_ADV, "reader", lac=2)  # which is honest: the ledger is closed with it


@plant("RewriteBeforeClose", "entry 2")
def a_recovery_by_the_creator_closes_without_writing_back(story: Story) -> None:
    half_written(story)
    story.event(Kind.CLOSE_START, "writer")
    story.event(Kind.CLOSE_RESULT, "writer", code=-17, last_entry=-1, length=0)
    story.store(2, "b1")
    story.answer(2, "b0")
    begin(story, actor="writer", lac=1)
    story.find(2, "b0", actor="writer")
    story.rule_out(3, "b0", "b1", actor="writer")
    story.close(2, "writer")


@near_miss("RewriteBeforeClose")
def closed_when_just_an_ack_quorum_confirmed(story: Story) -> None:
    half_written(story)
    begin(story, lac=1)
    story.find(2, "b0")
    story.rewrite(2, "b0", "b1", lac=1)
    story.rule_out(3, "b0", "b1")
    story.close(2, "r0")
    story.opened()


@near_miss("RewriteBeforeClose")
def a_writer_closes_beside_a_recovery_of_its_own_client(story: Story) -> None:
    half_written(story)
    begin(story, actor="writer", lac=1)
    story.ask(2, actor="writer")
    story.close(1, "writer")


@near_miss("RewriteBeforeClose")
def a_recovery_fails_to_close_after_the_writer_of_its_own_client_has(story: Story) -> None:
    """The write that closed the ledger is the writer's; the recovery's comes when the writer's close has returned."""
    half_written(story)
    story.event(Kind.CLOSE_START, "writer")
    begin(story, actor="writer", lac=1)
    story.find(2, "b0", actor="writer")
    story.close(1, "writer")
    story.event(Kind.CLOSE_RESULT, "writer", code=0, last_entry=1, length=20)
    story.rule_out(3, "b0", "b1", actor="writer")
    story.close(2, "writer", outcome="conflict", expected=1)


# CloseAtDecision -----------------------------------------------------------------------------------------------------


@plant("CloseAtDecision", "closed the ledger after entry 1")
def closed_below_an_entry_that_it_found(story: Story) -> None:
    half_written(story)
    begin(story, lac=1)
    story.find(2, "b0")
    story.rewrite(2, "b0", "b1", lac=1)
    story.rule_out(3, "b0", "b1")
    story.close(1, "r0")


@plant("CloseAtDecision", "without having ruled out")
def closed_without_having_ruled_anything_out(story: Story) -> None:
    begin(story, lac=1)
    story.close(1, "r0")


@near_miss("CloseAtDecision")
def closed_right_below_what_was_ruled_out_in_the_second_attempt(story: Story) -> None:
    half_written(story)
    begin(story, lac=1)
    story.ask(2)
    story.told(2, "b1", code=DENIED)
    story.decide(2, "unknown")
    story.opened(code=TIMEOUT)
    begin(story, lac=1)
    story.find(2, "b0")
    story.rewrite(2, "b0", "b1", lac=1)
    story.rule_out(3, "b0", "b1")
    story.close(2, "r0")


# UnknownAborts -------------------------------------------------------------------------------------------------------


@plant("UnknownAborts", "entry 2", "CloseAtDecision")
def closed_below_an_entry_that_it_could_not_decide(story: Story) -> None:
    half_written(story)
    begin(story, lac=1)
    story.ask(2)
    story.told(2, "b1", code=DENIED)
    story.told(2, "b0", "b2", code=TIMEOUT)
    story.decide(2, "unknown")
    story.close(1, "r0")


@near_miss("UnknownAborts")
def another_client_closes_what_one_could_not_decide(story: Story) -> None:
    half_written(story)
    begin(story, lac=1)
    story.ask(2)
    story.told(2, "b1", code=DENIED)
    story.decide(2, "unknown")
    begin(story, actor="r1", lac=1)
    story.rule_out(2, "b1", "b2", actor="r1")
    story.close(1, "r1")


# CoverageBeforeReads -------------------------------------------------------------------------------------------------


@plant("CoverageBeforeReads", "r0")
def reading_begins_when_one_bookie_is_fenced(story: Story) -> None:
    story.mark()
    story.fence("b0", lac=1)
    story.ask(2)


@plant("CoverageBeforeReads", "r0", sizes="4/2/2")
def one_write_set_of_a_striped_ensemble_is_not_fenced(story: Story) -> None:
    story.mark()
    story.fence("b0", "b1", lac=1)
    story.ask(2)


@near_miss("CoverageBeforeReads", sizes="4/2/2")
def two_bookies_cover_a_striped_ensemble(story: Story) -> None:
    story.mark()
    story.fence("b0", "b2", lac=1)
    story.ask(2)


@near_miss("CoverageBeforeReads")
def a_bookie_that_knows_nothing_of_the_ledger_is_fenced_too(story: Story) -> None:
    story.mark()
    story.fence("b0", lac=1)
    story.fence("b2", code=DENIED)
    story.ask(2)


# RecoveryReads: the upper end ----------------------------------------------------------------------------------------


@plant("RecoveryReads", "entry 4")
def an_entry_that_nobody_vouches_for_is_skipped(story: Story) -> None:
    begin(story, lac=2)
    story.ask(4)


@near_miss("RecoveryReads")
def reading_begins_below_the_lac_within_the_fragment(story: Story) -> None:
    begin(story, lac=1)
    story.ask(1)


# PositiveVerified ----------------------------------------------------------------------------------------------------


@plant("PositiveVerified", "entry 2")
def taken_for_found_on_a_timeout(story: Story) -> None:
    half_written(story)
    begin(story, lac=1)
    story.ask(2)
    story.told(2, "b0", code=TIMEOUT)
    story.decide(2, "positive", "b0")


@near_miss("PositiveVerified")
def found_on_the_last_bookie_that_answered(story: Story) -> None:
    half_written(story)
    begin(story, lac=1)
    story.ask(2)
    story.told(2, "b1", code=TIMEOUT)
    story.told(2, "b0")
    story.decide(2, "positive", "b0")


# NoWaitForAll --------------------------------------------------------------------------------------------------------


@plant("NoWaitForAll", "could rule entry 2 out")
def a_third_denial_is_waited_for(story: Story) -> None:
    begin(story, lac=1)
    story.rule_out(2, "b0", "b1", "b2")


@plant("NoWaitForAll", "could rule entry 2 out")
def an_answer_is_waited_for_when_the_entry_before_was_found(story: Story) -> None:
    begin(story)
    story.ask(1)
    story.ask(2)
    story.told(2, "b0", "b1", code=DENIED)
    story.told(1, "b0")
    story.decide(1, "positive", "b0")
    story.told(2, "b2", code=TIMEOUT)
    story.decide(2, "negative", "b0", "b1")


@near_miss("NoWaitForAll")
def an_answer_comes_while_the_entry_before_is_undecided(story: Story) -> None:
    begin(story)
    story.ask(1)
    story.ask(2)
    story.told(2, "b0", "b1", "b2", code=DENIED)
    story.told(1, "b0")
    story.decide(1, "positive", "b0")
    story.decide(2, "negative", "b0", "b1", "b2")


@near_miss("NoWaitForAll")
def answers_come_when_the_recovery_has_failed(story: Story) -> None:
    begin(story, lac=1)
    story.ask(2)
    story.opened(code=TIMEOUT)
    story.told(2, "b0", "b1", "b2", code=DENIED)


@near_miss("NoWaitForAll")
def the_second_denial_of_one_bookie_is_not_enough(story: Story) -> None:
    begin(story, lac=1)
    story.ask(2)
    story.told(2, "b0", "b0", "b1", code=DENIED)
    story.decide(2, "negative", "b0", "b1")
    story.told(2, "b2", code=DENIED)


# NegativeStays -------------------------------------------------------------------------------------------------------


@plant("NegativeStays", "entry 2", "FencedStaysFenced")
def a_bookie_stores_for_the_old_writer_what_it_denied(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    begin(story, lac=1)
    story.rule_out(2, "b0", "b1")
    story.store(2, "b0")


def _denied_by_two(story: Story) -> None:
    """A recovery hears from b0 and b1 that they do not have entry 2."""
    story.send(2, "b0", "b1", "b2", lac=1)
    story.mark()
    story.fence("b0", "b1", lac=1)
    story.ask(2, "b0", "b1")
    story.told(2, "b0", "b1", code=DENIED)


@near_miss("NegativeStays")
def a_bookie_that_has_collected_the_ledger_stores_it(story: Story) -> None:
    _denied_by_two(story)
    story.decide(2, "negative", "b0", "b1")
    story.cas("delete", "r0")
    story.event(Kind.BK_GC, "b0")
    story.crash("b0")
    story.store(2, "b0")


@near_miss("NegativeStays")
def a_bookie_forgets_its_fence_before_its_denial_counts(story: Story) -> None:
    _denied_by_two(story)
    story.forget_fence("b0")
    story.decide(2, "negative", "b0", "b1")
    story.store(2, "b0")


@near_miss("NegativeStays")
def a_bookie_that_was_not_asked_stores_it(story: Story) -> None:
    _denied_by_two(story)
    story.decide(2, "negative", "b0", "b1")
    story.store(2, "b2")


# ClosedFromInRecovery ------------------------------------------------------------------------------------------------


@plant("ClosedFromInRecovery", "r0")
def another_client_closes_an_open_ledger(story: Story) -> None:
    story.close(1, "r0")


@near_miss("ClosedFromInRecovery")
def another_client_closes_what_it_has_marked(story: Story) -> None:
    begin(story, lac=1)
    story.rule_out(2, "b0", "b1")
    story.close(1, "r0")


# RecoveryLacFrozen ---------------------------------------------------------------------------------------------------


@plant("RecoveryLacFrozen", "r0")
def a_write_back_carries_the_lac_of_the_one_before(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.send(3, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.store(3, "b0")
    begin(story, lac=1)
    story.find(2, "b0")
    story.rewrite(2, "b0", "b1", lac=1)
    story.find(3, "b0")
    story.rewrite(3, "b0", "b1", lac=2)


@near_miss("RecoveryLacFrozen")
def two_recoveries_carry_the_lac_that_each_has_found(story: Story) -> None:
    half_written(story)
    begin(story, lac=0)
    story.find(1, "b0")
    story.rewrite(1, "b0", "b1", lac=0)
    story.find(2, "b0")
    story.rewrite(2, "b0", "b1", lac=0)
    story.opened(code=TIMEOUT)
    begin(story, lac=1)
    story.find(2, "b0")
    story.rewrite(2, "b0", "b1", lac=1)


@near_miss("RecoveryLacFrozen")
def copies_of_a_repair_carry_the_lac_that_they_had(story: Story) -> None:
    half_written(story)
    begin(story, lac=1)
    story.find(2, "b0")
    story.rewrite(2, "b0", "b1", lac=1)
    story.rule_out(3, "b0", "b1")
    story.close(2, actor="r0")
    story.send(1, "b3", actor="r0", recovery=True, lac=0)


@near_miss("RecoveryLacFrozen")
def copies_of_a_repair_come_when_another_one_has_closed(story: Story) -> None:
    half_written(story)
    begin(story, lac=1)
    story.find(2, "b0")
    story.rewrite(2, "b0", "b1", lac=1)
    story.close(2, actor="r1")
    story.look("r0")
    story.send(1, "b3", actor="r0", recovery=True, lac=0)


# NothingInvented -----------------------------------------------------------------------------------------------------


@plant("NothingInvented", "entry 2")
def an_entry_that_nobody_sent_is_written_back(story: Story) -> None:
    begin(story, lac=1)
    story.find(2, "b0")
    story.send(2, "b0", "b1", actor="r0", recovery=True, lac=1)


@plant("NothingInvented", "entry 1")
def written_back_without_having_been_read(story: Story) -> None:
    begin(story, lac=0)
    story.ask(1)
    story.told(1, "b0", code=TIMEOUT)
    story.send(1, "b0", "b1", actor="r0", recovery=True, lac=0)


@near_miss("NothingInvented")
def a_repair_copies_what_its_recovery_did_not_have_to_read(story: Story) -> None:
    half_written(story)
    begin(story, lac=1)
    story.find(2, "b0")
    story.rewrite(2, "b0", "b1", lac=1)
    story.rule_out(3, "b0", "b1")
    story.close(2, actor="r0")
    story.send(1, "b3", actor="r0", recovery=True, lac=0)


@near_miss("NothingInvented")
def written_back_as_it_was_read(story: Story) -> None:
    begin(story, lac=0)
    story.find(1, "b2")
    story.rewrite(1, "b0", "b1", lac=0)


# RecoveryResolves ----------------------------------------------------------------------------------------------------

NO_END = -10
UNAUTHORIZED = -102


def writing_back(story: Story, *bookies: str) -> None:
    """A recovery has found entry 2, and sent it to these bookies."""
    half_written(story)
    begin(story, lac=1)
    story.find(2, "b0")
    story.send(2, *bookies, actor="r0", recovery=True, lac=1)


@plant("RecoveryResolves", "entry 2")
def given_up_when_one_of_three_failed(story: Story) -> None:
    writing_back(story, "b0", "b1", "b2")
    story.answer(2, "b1", actor="r0", recovery=True, code=TIMEOUT)
    story.opened(code=NO_END)


@plant("RecoveryResolves", "entry 2")
def given_up_when_each_entry_was_failed_by_another_bookie(story: Story) -> None:
    story.send(3, "b0", "b1", "b2", lac=1)
    writing_back(story, "b0", "b1", "b2")
    story.answer(2, "b0", "b1", actor="r0", recovery=True)
    story.find(3, "b0")
    story.send(3, "b0", "b1", "b2", actor="r0", recovery=True, lac=1)
    story.answer(2, "b2", actor="r0", recovery=True, code=TIMEOUT)
    story.answer(3, "b1", actor="r0", recovery=True, code=TIMEOUT)
    story.opened(code=NO_END)


@near_miss("RecoveryResolves")
def given_up_when_two_of_three_failed(story: Story) -> None:
    writing_back(story, "b0", "b1", "b2")
    story.answer(2, "b1", "b2", actor="r0", recovery=True, code=TIMEOUT)
    story.opened(code=NO_END)


@near_miss("RecoveryResolves")
def given_up_when_the_newcomer_failed_too(story: Story) -> None:
    writing_back(story, "b0", "b1", "b2")
    story.answer(2, "b1", actor="r0", recovery=True, code=TIMEOUT)
    story.send(2, "b3", actor="r0", recovery=True, lac=1)
    story.answer(2, "b3", actor="r0", recovery=True, code=TIMEOUT)
    story.opened(code=NO_END)


@near_miss("RecoveryResolves")
def given_up_when_the_next_entry_could_not_be_decided(story: Story) -> None:
    writing_back(story, "b0", "b1", "b2")
    story.answer(2, "b1", actor="r0", recovery=True, code=TIMEOUT)
    story.ask(3)
    story.decide(3, "unknown")
    story.opened(code=NO_END)


@near_miss("RecoveryResolves")
def given_up_when_a_bookie_refused_the_client(story: Story) -> None:
    writing_back(story, "b0", "b1", "b2")
    story.answer(2, "b1", actor="r0", recovery=True, code=UNAUTHORIZED)
    story.opened(code=NO_END)


@near_miss("RecoveryResolves")
def given_up_when_the_store_could_not_be_told_of_the_end(story: Story) -> None:
    writing_back(story, "b0", "b1", "b2")
    story.answer(2, "b0", "b2", actor="r0", recovery=True)
    story.answer(2, "b1", actor="r0", recovery=True, code=TIMEOUT)
    story.rule_out(3, "b0", "b1")
    story.opened(code=NO_END)


@near_miss("RecoveryResolves")
def a_call_that_ran_out_of_time_may_have_ended_anywhere(story: Story) -> None:
    writing_back(story, "b0", "b1", "b2")
    story.answer(2, "b1", actor="r0", recovery=True, code=TIMEOUT)
    story.opened(code=TIMEOUT)


@near_miss("RecoveryResolves")
def two_recoveries_of_one_client_cannot_be_told_apart(story: Story) -> None:
    writing_back(story, "b0", "b1", "b2")
    story.answer(2, "b1", actor="r0", recovery=True, code=TIMEOUT)
    story.event(Kind.OPEN_START, "r0", recovery=True)
    story.opened(code=NO_END)

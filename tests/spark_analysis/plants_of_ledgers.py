"""What breaks, or nearly breaks, the invariants about the fate of ledgers: their ends, fences, metadata and recoveries."""

from __future__ import annotations

from scenarios.history import Kind
from tests.scenarios.stories import DENIED, FENCED, NO_LEDGER, TIMEOUT, Story
from tests.spark_analysis.planting import near_miss, plant

# NoLacTruncation -----------------------------------------------------------------------------------------------------


@plant("NoLacTruncation", "entry 2 was acknowledged (event ", entries=3)
def closed_below_an_acknowledged_entry(story: Story) -> None:
    story.close(1)


@plant("NoLacTruncation", "the ledger is closed after entry 1", "NoAckAfterEnd", "AckHasQuorum", "AckedReadable")
def acknowledged_above_the_end(story: Story) -> None:
    story.close(1)
    story.ack(2)


@near_miss("NoLacTruncation")
def closed_below_an_entry_that_nobody_acknowledged(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1", "b2")
    story.answer(2, "b0", "b1", "b2")
    story.close(1)


@near_miss("NoLacTruncation")
def closed_below_an_acknowledgement_that_promised_no_durability(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1", "b2", sync=False)
    story.answer(2, "b0", "b1", "b2")
    story.ack(2, durable=False)
    story.close(1)


# AckedReadable -------------------------------------------------------------------------------------------------------


@plant("AckedReadable", "no bookie of the write set of entry", "ClosedAtQuorum")
def closed_on_bookies_that_have_nothing(story: Story) -> None:
    story.close(1, fragments=[(0, ("b3", "b4", "b5"))])


@plant("AckedReadable", "entry 1 was acknowledged (event ", "NoFalseNegative")
def denied_to_a_reader_of_the_closed_ledger(story: Story) -> None:
    story.close(1)
    story.read(1, code=DENIED)


@plant("AckedReadable", "read with content 55", "NothingInvented", "ReadStability")
def delivered_with_another_content(story: Story) -> None:
    story.close(1)
    story.read(1)
    story.read(1, content=55)


@near_miss("AckedReadable")
def denied_to_a_reader_with_old_metadata(story: Story) -> None:
    version = story.version
    story.change(2, "b0", "b1", "b3")
    story.write(2)
    story.close(2)
    story.read(2, "b2", code=DENIED, version=version)


@near_miss("AckedReadable")
def lost_by_an_ack_quorum_and_denied(story: Story) -> None:
    story.close(1)
    story.lose(1, "b0", "b1")
    story.read(1, "b0", code=DENIED)


@near_miss("AckedReadable")
def denied_above_the_end(story: Story) -> None:
    story.close(1)
    story.read(2, code=DENIED)


@near_miss("AckedReadable")
def lost_everywhere_after_the_ledger_was_deleted(story: Story) -> None:
    story.close(1)
    story.cas("delete", "writer", state="CLOSED", last_entry=1, length=20)
    for bookie in ("b0", "b1", "b2"):
        story.event(Kind.BK_GC, bookie)


@near_miss("AckedReadable", entries=0, is_alone=True)
def acknowledged_where_no_bookie_records(story: Story) -> None:
    story.add(0)
    story.send(0, "b0", "b1", "b2")
    story.answer(0, "b0")
    story.answer(0, "b1")
    story.ack(0)
    story.close(0)


# RecoveriesAgree -----------------------------------------------------------------------------------------------------


@plant("RecoveriesAgree", "but also entry 2, length 30")
def told_another_end_than_the_stored_one(story: Story) -> None:
    story.close(1)
    story.opened("r1", last_entry=2, length=30)


@plant("RecoveriesAgree", "the end is entry 1, length 10 (event ")
def seen_closed_with_another_length(story: Story) -> None:
    story.close(1)
    story.look("r0", length=10)


@plant("RecoveriesAgree", "2 metadata writes closed the ledger")
def closed_twice_at_the_same_end(story: Story) -> None:
    story.close(1)
    story.close(1, "r0")


@plant("RecoveriesAgree", "is closed (event ", "FragmentsWellFormed")
def opened_again(story: Story) -> None:
    story.close(1)
    story.cas("recover", "r0", state="IN_RECOVERY")


@near_miss("RecoveriesAgree")
def a_second_close_was_refused(story: Story) -> None:
    story.close(1)
    story.close(0, "r0", expected=0, outcome="conflict")
    story.opened("r0", last_entry=1, length=20)


@near_miss("RecoveriesAgree")
def a_failed_opening_tells_no_end(story: Story) -> None:
    story.close(1)
    story.opened("r0", code=TIMEOUT, last_entry=-1, length=0)


@near_miss("RecoveriesAgree")
def a_closed_ledger_is_replicated_again(story: Story) -> None:
    story.close(1)
    story.store(0, "b3", source="auditor")
    story.store(1, "b3", source="auditor")
    story.cas("rereplicate", "auditor", fragments=[(0, ("b0", "b1", "b3"))], last_entry=1, length=20)


def _take_over(story: Story) -> None:
    """Another client closes the ledger after entry 1."""
    story.mark()
    story.fence("b0", "b1", "b2", lac=0)
    story.find(1, "b0")
    story.rewrite(1, "b0", "b1", "b2", lac=0)
    story.rule_out(2, "b0", "b1")
    story.close(1, "r0")


# FencedStaysFenced ---------------------------------------------------------------------------------------------------


@plant("FencedStaysFenced", "bookie b1 was fenced")
def stored_after_a_durable_fence(story: Story) -> None:
    story.fence_set("b1")
    story.crash("b1")
    story.send(2, "b1", lac=1)
    story.store(2, "b1")


@plant("FencedStaysFenced", "bookie b1 was fenced")
def stored_after_a_fence_that_came_after_a_forgotten_one(story: Story) -> None:
    story.fence_set("b1")
    story.forget_fence("b1")
    story.fence_set("b1", actor="r1")
    story.send(2, "b1", lac=1)
    story.store(2, "b1")


@plant("FencedStaysFenced", "bookie b1 was fenced")
def stored_after_another_bookie_forgot_its_fence(story: Story) -> None:
    story.fence_set("b1")
    story.forget_fence("b2")
    story.send(2, "b1", lac=1)
    story.store(2, "b1")


@near_miss("FencedStaysFenced")
def stored_after_the_fence_was_forgotten(story: Story) -> None:
    story.fence_set("b1")
    story.forget_fence("b1")
    story.send(2, "b1", lac=1)
    story.store(2, "b1")


@near_miss("FencedStaysFenced")
def stored_after_the_bookie_had_collected_the_ledger_and_crashed(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.mark()
    story.fence_set("b1")
    story.cas("delete", "r0")
    story.event(Kind.BK_GC, "b1")
    story.crash("b1")
    story.store(2, "b1")


@plant("FencedStaysFenced", "bookie b1 was fenced (event ")
def stored_although_the_bookie_remembers_what_it_collected(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.mark()
    story.fence_set("b1")
    story.cas("delete", "r0")
    story.event(Kind.BK_GC, "b1")
    story.store(2, "b1")


@near_miss("FencedStaysFenced", entries=0, is_alone=True)
def answers_about_fences_where_no_bookie_records(story: Story) -> None:
    story.mark()
    story.event(Kind.FENCE_RESP, "r0", bookie="b0", code=0, lac=-1, entry=-1)
    story.event(Kind.FENCE_RESP, "r0", bookie="b1", code=DENIED, lac=-1, entry=-1)


@plant("FencedStaysFenced", "b1")
def a_bookie_says_that_it_is_fenced_before_its_fence_is_durable(story: Story) -> None:
    story.mark()
    story.fence_set("b1", durable=False)
    story.event(Kind.FENCE_RESP, "r0", bookie="b1", code=0, lac=1, entry=1)
    story.fence_set("b1", durable=True)


@plant("FencedStaysFenced", "b1")
def a_bookie_denies_an_entry_to_a_recovery_without_being_fenced(story: Story) -> None:
    story.mark()
    story.fence("b0", "b2", lac=1)
    story.ask(2, fence=False)
    story.told(2, "b1", code=DENIED, fence=False)


@near_miss("FencedStaysFenced")
def stored_after_a_fence_that_was_not_durable(story: Story) -> None:
    story.fence_set("b1", durable=False)
    story.crash("b1")
    story.write(2)


@near_miss("FencedStaysFenced")
def a_recovery_add_is_stored_in_spite_of_the_fence(story: Story) -> None:
    _take_over(story)


@near_miss("NoAckAfterEnd", entries=1)
def a_slow_writer_learns_after_the_close_what_was_decided(story: Story) -> None:
    story.send(1, "b0", "b1", "b2", lac=0)
    story.store(1, "b0", "b1", "b2")
    _take_over(story)
    story.answer(1, "b0", "b1", "b2")
    story.ack(1)


@plant("NoAckAfterEnd", "entry 2", "NoLacTruncation")
def acknowledged_above_the_end_after_the_close(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1", "b2")
    story.answer(2, "b0", "b1", "b2")
    story.close(1)
    story.ack(2)


# FragmentsWellFormed -------------------------------------------------------------------------------------------------


@plant("FragmentsWellFormed", "an ensemble does not have E distinct bookies")
def a_refused_write_names_a_bookie_twice(story: Story) -> None:
    story.change(2, "b0", "b1", "b1", outcome="conflict")


@plant("FragmentsWellFormed", "the first fragment does not start at entry 0", entries=0)
def the_first_fragment_starts_at_one(story: Story) -> None:
    story.cas("ensemble", "writer", fragments=[(1, ("b0", "b1", "b2"))], outcome="conflict")


@plant("FragmentsWellFormed", "first entries do not ascend")
def fragments_descend(story: Story) -> None:
    members = ("b0", "b1", "b2")
    story.cas("recover", "r0", fragments=[(0, members), (2, members), (1, members)], outcome="conflict")


@plant("FragmentsWellFormed", "not E >= Qw >= Qa >= 1", entries=0)
def an_ack_quorum_above_the_write_quorum(story: Story) -> None:
    story.cas("create", "writer", sizes=(3, 2, 3), outcome="conflict")


@plant("FragmentsWellFormed", "the last fragment starts above the end")
def closed_below_the_last_fragment(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.close(0, outcome="conflict")


@plant("FragmentsWellFormed", "a bookie that stays changed its position")
def a_bookie_that_stays_moves(story: Story) -> None:
    story.change(2, "b1", "b0", "b3")


@plant("FragmentsWellFormed", "fragments changed while the ledger is in recovery")
def recovery_stores_its_replacements_before_the_close(story: Story) -> None:
    story.cas("recover", "r0", state="IN_RECOVERY", fragments=[(0, ("b0", "b1", "b3"))])


@plant("FragmentsWellFormed", "two writes")
def two_writes_succeed_on_the_same_version(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.cas("recover", "r0", state="IN_RECOVERY", fragments=[(0, story.bookies(3))], expected=0)


@plant("FragmentsWellFormed", "the new version does not follow the expected one")
def a_version_is_skipped(story: Story) -> None:
    story.close(1, version=story.version + 2)


@plant("FragmentsWellFormed", "the boundary of an existing fragment moved")
def a_boundary_moves(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.close(1, fragments=[(0, ("b0", "b1", "b2")), (1, ("b0", "b1", "b3"))])


@plant("FragmentsWellFormed", "a fragment other than the last one changed")
def an_earlier_fragment_changes(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.close(1, fragments=[(0, ("b0", "b1", "b4")), (2, ("b0", "b1", "b3"))])


@near_miss("FragmentsWellFormed")
def an_empty_last_fragment(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.close(1)


@near_miss("FragmentsWellFormed")
def a_step_hidden_by_a_write_of_unknown_outcome(story: Story) -> None:
    story.cas("ensemble", "writer", fragments=[(0, ("b0", "b1", "b2")), (2, ("b0", "b1", "b3"))], outcome="unknown")
    story.close(1, expected=1, fragments=[(0, ("b0", "b1", "b2")), (2, ("b0", "b1", "b3"))])


# RecoveryReads -------------------------------------------------------------------------------------------------------


@plant("RecoveryReads", "recovery by r0 read entry 1")
def recovery_reads_an_earlier_fragment(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.mark()
    story.fence("b0", "b1", "b3", lac=0)
    story.ask(1, "b0")


@plant("RecoveryReads", "recovery by r0 asked b3 for entry 2")
def recovery_asks_its_own_replacement(story: Story) -> None:
    story.mark()
    story.fence("b0", "b1", "b2", lac=1)
    story.ask(2, "b0", "b1", "b3")


@plant("RecoveryReads", "recovery by r0 asked b1 for entry 2", sizes="3/2/2")
def recovery_asks_a_bookie_outside_the_write_set(story: Story) -> None:
    story.mark()
    story.fence("b0", "b1", "b2", lac=1)
    story.ask(2, "b2", "b0")
    story.ask(2, "b1")


@near_miss("RecoveryReads")
def recovery_reads_the_first_entry_of_the_last_fragment(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.mark()
    story.fence("b0", "b1", "b3", lac=1)
    story.ask(2, "b0", "b1", "b3")


# NegativeCoverage ----------------------------------------------------------------------------------------------------


@plant("NegativeCoverage", "declared entry 2 absent (event ")
def ruled_out_by_one_bookie(story: Story) -> None:
    story.mark()
    story.fence("b0", "b1", "b2", lac=1)
    story.rule_out(2, "b0")


@plant("NegativeCoverage", "on the word of 1 bookies instead of 2: [b0]")
def a_timeout_taken_for_a_denial(story: Story) -> None:
    story.mark()
    story.fence("b0", "b1", "b2", lac=1)
    story.ask(2)
    story.told(2, "b0", code=DENIED)
    story.told(2, "b1", code=TIMEOUT)
    story.decide(2, "negative", "b0", "b1")
    story.told(2, "b2", code=DENIED)


@plant("NegativeCoverage", "instead of 2: [b2]", "RecoveryReads", sizes="4/3/2")
def a_bookie_outside_the_write_set_is_believed(story: Story) -> None:
    story.mark()
    story.fence("b0", "b1", "b2", "b3", lac=1)
    story.ask(2, "b1", "b2")
    story.told(2, "b1", "b2", code=DENIED)
    story.decide(2, "negative", "b1", "b2")


@near_miss("NegativeCoverage")
def ruled_out_by_just_enough_bookies(story: Story) -> None:
    story.mark()
    story.fence("b0", "b1", "b2", lac=1)
    story.ask(2)
    story.told(2, "b0", code=DENIED)
    story.told(2, "b1", code=TIMEOUT)
    story.told(2, "b2", code=NO_LEDGER)
    story.decide(2, "negative", "b0", "b2")


@near_miss("NegativeCoverage")
def found_on_the_only_bookie_that_has_it(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.fail(2, FENCED)
    story.mark()
    story.fence("b0", "b1", lac=1)
    story.told(2, "b1", code=DENIED)
    story.find(2, "b0")

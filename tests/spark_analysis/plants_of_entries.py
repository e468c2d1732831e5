"""What breaks, or nearly breaks, the invariants about single entries: when they are confirmed, and where and what they are."""

from __future__ import annotations

from scenarios.history import Kind
from tests.scenarios.stories import TIMEOUT, Story
from tests.spark_analysis.planting import near_miss, plant


def _confirm(story: Story, *entries: int) -> None:
    """Everything but the acknowledgement."""
    for entry in entries:
        story.send(entry, "b0", "b1", "b2")
        story.store(entry, "b0", "b1", "b2")
        story.answer(entry, "b0", "b1", "b2")


# LacHonest -----------------------------------------------------------------------------------------------------------


@plant("LacHonest", "entry 2 was called the last add confirmed (event ", "WriterLacMonotonic")
def an_add_claims_itself_confirmed(story: Story) -> None:
    story.write(2, lac=2)


@plant("LacHonest", "but entry 2 was never confirmed by 2 bookies")
def a_reader_advances_to_what_one_bookie_has(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.event(Kind.LAC_ADV, "reader", lac=2)


@plant("LacHonest", "entry 3 was called the last add confirmed")
def a_bookie_is_told_more_than_is_confirmed(story: Story) -> None:
    story.event(Kind.BK_LAC, "b0", lac=3)


@plant("LacHonest", "entry 2 was called the last add confirmed")
def stored_by_a_quorum_of_which_nobody_has_heard(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b2")
    story.event(Kind.BK_LAC, "b0", lac=2)


@plant("LacHonest", "but entry 2 was never confirmed by 2 bookies", "AcksInOrder")
def an_entry_acknowledged_above_a_gap_is_called_confirmed(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.answer(2, "b0")
    _confirm(story, 3)
    story.ack(3)
    story.event(Kind.BK_LAC, "b0", lac=3)


@near_miss("LacHonest")
def confirmed_in_the_wrong_order_and_then_called_so(story: Story) -> None:
    _confirm(story, 3, 2)
    story.ack(2)
    story.ack(3)
    story.event(Kind.BK_LAC, "b0", lac=3)


@near_miss("LacHonest")
def confirmed_by_answers_before_the_application_is_told(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b2")
    story.answer(2, "b0", "b2")
    story.event(Kind.BK_LAC, "b0", lac=2)
    story.ack(2)


@near_miss("LacHonest")
def confirmed_on_replacements_that_recovery_alone_knows(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.mark()
    story.fence("b0", "b1", "b2", lac=1)
    story.find(2, "b0")
    story.rewrite(2, "b4", "b5", lac=1)
    story.event(Kind.BK_LAC, "b4", lac=2)
    story.rule_out(3, "b0", "b1")
    story.close(2, "r0", fragments=[(0, ("b0", "b1", "b2")), (2, ("b0", "b4", "b5"))])


# AcksInOrder ---------------------------------------------------------------------------------------------------------


@plant("AcksInOrder", "entry 3 was acknowledged (event ")
def an_entry_is_passed_over(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.answer(2, "b0")
    _confirm(story, 3)
    story.ack(3)


@plant("AcksInOrder", "before entry 2")
def two_entries_are_acknowledged_the_wrong_way_round(story: Story) -> None:
    _confirm(story, 2, 3)
    story.ack(3)
    story.ack(2)


@plant("AcksInOrder", "entry 1 was acknowledged 2 times")
def an_entry_is_acknowledged_twice(story: Story) -> None:
    story.ack(1)


@near_miss("AcksInOrder")
def an_append_is_cancelled_when_its_entry_has_a_quorum(story: Story) -> None:
    _confirm(story, 2, 3)
    story.cancel(2)
    story.ack(3)


@near_miss("AcksInOrder")
def answers_come_in_the_wrong_order(story: Story) -> None:
    _confirm(story, 3, 2)
    story.ack(2)
    story.ack(3)


# AckHasQuorum --------------------------------------------------------------------------------------------------------


@plant("AckHasQuorum", "on the word of 1 bookies of its write set instead of 2: [b0]")
def acknowledged_on_one_answer(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1", "b2")
    story.answer(2, "b0")
    story.answer(2, "b1", code=TIMEOUT)
    story.ack(2)
    story.answer(2, "b2")


@plant(
    "AckHasQuorum",
    "on the word of 1 bookies of its write set instead of 2: [b1]",
    "AckedReplication",
    "MetadataBeforeUse",
    sizes="3/2/2",
    entries=0,
)
def acknowledged_on_the_answer_of_a_bookie_outside_the_write_set(story: Story) -> None:
    story.write(0, "b1", "b2")


@plant("AckHasQuorum", "instead of 2: [b0]", "StartIsLacPlusOne", "AckedReplication", "MetadataBeforeUse")
def acknowledged_on_bookies_that_are_not_stored_yet(story: Story) -> None:
    story.send(2, "b0", "b3", "b4", lac=1)
    story.store(2, "b0", "b3", "b4")
    story.answer(2, "b0", "b3", "b4")
    story.ack(2)
    story.change(2, "b0", "b3", "b4")


@plant("AckHasQuorum", "instead of 2: [b0]")
def a_bookie_is_counted_twice(story: Story) -> None:
    story.send(2, "b0", "b0", "b1", lac=1)
    story.store(2, "b0", "b0", "b1")
    story.answer(2, "b0", "b0")
    story.ack(2)


RACKS = {"bookies": "b0,b1,b2", "racks": "east,east,west"}


@plant("AckHasQuorum", "all in one rack: east")
def acknowledged_by_bookies_of_one_rack_where_several_are_demanded(story: Story) -> None:
    story.event(Kind.FAULT_DOMAINS, "writer", **RACKS)
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1", "b2")
    story.answer(2, "b0", "b1")
    story.ack(2)
    story.answer(2, "b2")


@near_miss("AckHasQuorum")
def acknowledged_by_bookies_of_two_racks(story: Story) -> None:
    story.event(Kind.FAULT_DOMAINS, "writer", **RACKS)
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1", "b2")
    story.answer(2, "b0", "b1", "b2")
    story.ack(2)


@near_miss("AckHasQuorum", sizes="3/1/1")
def the_only_copy_is_in_one_rack(story: Story) -> None:
    story.event(Kind.FAULT_DOMAINS, "writer", **RACKS)
    story.write(2)


@near_miss("AckHasQuorum")
def acknowledged_on_exactly_an_ack_quorum(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b2")
    story.answer(2, "b0", "b2")
    story.ack(2)


@near_miss("AckHasQuorum")
def an_answer_from_before_the_ensemble_change_counts(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.answer(2, "b0")
    story.change(2, "b0", "b3", "b4")
    story.send(2, "b3", "b4", lac=1)
    story.store(2, "b3")
    story.answer(2, "b3")
    story.ack(2)


# ClosedAtQuorum ------------------------------------------------------------------------------------------------------


@plant("ClosedAtQuorum", "entry 2 is on 1 bookies of its write set, not 2")
def closed_with_an_entry_on_one_bookie(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.close(2)


@plant("ClosedAtQuorum", "closed after entry 2 (event ")
def closed_after_an_entry_that_nobody_sent(story: Story) -> None:
    story.close(2)


@plant(
    "ClosedAtQuorum", "entry 0 is on 1 bookies of its write set, not 2, and bookies lost 0 copies", "AckedReplication"
)
def closed_on_bookies_of_which_one_has_the_entry(story: Story) -> None:
    story.close(1, fragments=[(0, ("b0", "b3", "b4"))])


@plant("ClosedAtQuorum", "entry 0 is on 1 bookies of its write set, not 2", "AckedReplication", "GcOnlyDead")
def members_drop_a_closed_ledger(story: Story) -> None:
    story.close(1)
    story.event(Kind.BK_GC, "b0")
    story.event(Kind.BK_GC, "b2")


@plant("GcOnlyDead", "b0")
def a_member_drops_a_closed_ledger_that_has_copies_enough(story: Story) -> None:
    story.close(1)
    story.event(Kind.BK_GC, "b0")


@plant("ClosedAtQuorum", "entry 2 is on 1 bookies of its write set, not 2")
def closed_before_the_last_copy_came(story: Story) -> None:
    """Which is mended later, and was wrong meanwhile."""
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.close(2)
    story.store(2, "b1", "b2")


@plant("AckedReadable", "no bookie of the write set of entry 0", "ClosedAtQuorum")
def placed_anew_before_anything_was_copied(story: Story) -> None:
    """Which is mended later, and was wrong meanwhile."""
    story.close(1)
    story.send(0, "b3", "b4", recovery=True, lac=1, actor="auditor")
    story.send(1, "b3", "b4", recovery=True, lac=1, actor="auditor")
    story.cas("rereplicate", "auditor", fragments=[(0, ("b3", "b4", "b5"))], last_entry=1, length=20)
    story.store(0, "b3", "b4", recovery=True, source="auditor")
    story.store(1, "b3", "b4", recovery=True, source="auditor")


@plant("AckedReplication", "is on 1 bookies of its write set instead of 2", "GcOnlyDead", sizes="2/2/2")
def dropped_got_again_and_dropped_when_no_longer_needed(story: Story) -> None:
    story.event(Kind.BK_GC, "b0")
    story.store(0, "b0", "b2", source="auditor")
    story.store(1, "b0", "b2", source="auditor")
    story.close(1, fragments=[(0, ("b2", "b1"))])
    story.event(Kind.BK_GC, "b0")


@near_miss("AckedReplication")
def lost_and_got_again_before_the_others_lost_it(story: Story) -> None:
    story.lose(0, "b0")
    story.store(0, "b0")
    story.lose(0, "b1")
    story.change(2, "b0", "b1", "b3")


@near_miss("ClosedAtQuorum")
def a_bookie_that_has_left_drops_a_closed_ledger(story: Story) -> None:
    story.close(1)
    story.store(0, "b3", source="auditor")
    story.store(1, "b3", source="auditor")
    story.cas("rereplicate", "auditor", fragments=[(0, ("b3", "b1", "b2"))], last_entry=1, length=20)
    story.lose(0, "b1")
    story.event(Kind.BK_GC, "b0")


@near_miss("ClosedAtQuorum")
def a_bookie_lost_a_durable_copy(story: Story) -> None:
    story.close(1)
    story.lose(1, "b0", "b1")


@near_miss("ClosedAtQuorum")
def an_entry_above_the_end_is_on_one_bookie(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.close(1)


# StartIsLacPlusOne ---------------------------------------------------------------------------------------------------


@plant("StartIsLacPlusOne", "above entry 2")
def a_fragment_starts_too_high(story: Story) -> None:
    story.change(3, "b0", "b1", "b3")


@plant("StartIsLacPlusOne", "entry 1 was acknowledged (event ")
def an_acknowledged_entry_is_handed_to_others(story: Story) -> None:
    story.change(1, "b0", "b1", "b3")


@near_miss("StartIsLacPlusOne")
def the_change_starts_right_above_the_acknowledgements(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.write(2)


@near_miss("StartIsLacPlusOne")
def the_change_was_refused(story: Story) -> None:
    story.change(1, "b0", "b1", "b3", outcome="conflict")


# ReplicasAgree -------------------------------------------------------------------------------------------------------


@plant("ReplicasAgree", "entry 2 was sent or stored with content 66")
def a_bookie_stores_something_else(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1")
    story.store(2, "b2", content=66)


@plant("ReplicasAgree", "length")
def recovery_writes_back_with_another_length(story: Story) -> None:
    story.mark()
    story.fence("b0", "b1", lac=0)
    story.find(1, "b0")
    story.send(1, "b0", actor="r0", recovery=True, length=21)


@plant("ReplicasAgree", "with content 9999", "NothingInvented")
def recovery_writes_something_else_back(story: Story) -> None:
    story.mark()
    story.send(1, "b0", actor="r0", recovery=True, content=9999)


@near_miss("ReplicasAgree")
def recovery_rewrites_with_its_own_header(story: Story) -> None:
    story.mark()
    story.fence("b0", "b1", lac=0)
    story.find(1, "b0")
    story.rewrite(1, "b0", "b1", "b2", lac=0)

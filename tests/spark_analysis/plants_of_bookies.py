"""What breaks, or nearly breaks, the invariants about where copies are and what bookies say of them."""

from __future__ import annotations

from scenarios.history import Kind
from tests.scenarios.stories import DENIED, NO_LEDGER, TIMEOUT, Story
from tests.spark_analysis.planting import near_miss, plant

# AckedReplication ----------------------------------------------------------------------------------------------------


@plant("AckedReplication", "is on 1 bookies of its write set instead of 2")
def a_bookie_is_replaced_by_one_without_the_entries(story: Story) -> None:
    story.cas("rereplicate", "auditor", fragments=[(0, ("b0", "b3", "b4"))])


@near_miss("AckedReplication")
def a_bookie_that_lost_its_copies_is_replaced_by_one_without_them(story: Story) -> None:
    story.lose(0, "b1")
    story.lose(1, "b1")
    story.cas("rereplicate", "auditor", fragments=[(0, ("b0", "b3", "b2"))])


# DurableBeforeAck ----------------------------------------------------------------------------------------------------


@plant("DurableBeforeAck", "entry 2")
def acknowledged_before_it_is_on_disk(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1", sync=False)
    story.answer(2, "b0", "b1")
    story.ack(2)


@near_miss("DurableBeforeAck")
def on_the_disks_of_just_an_ack_quorum(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0", "b1")
    story.store(2, "b2", sync=False)
    story.answer(2, "b0", "b1", "b2")
    story.ack(2)


def acknowledged_before_it_is_durable(story: Story) -> None:
    """Entry 2, by a writer with deferred sync."""
    story.send(2, "b0", "b1", "b2")
    story.add(2)
    story.store(2, "b0", "b1", "b2", sync=False)
    story.answer(2, "b0", "b1")
    story.ack(2, durable=False)


@plant("DurableBeforeAck", "its force succeeded")
def a_force_succeeds_for_what_the_close_cut_off(story: Story) -> None:
    acknowledged_before_it_is_durable(story)
    story.event(Kind.FORCE_START, "writer")
    story.close(1)
    story.event(Kind.FORCE_RESULT, "writer", code=0)


@plant("DurableBeforeAck", "its force succeeded")
def what_was_forced_is_cut_off_later(story: Story) -> None:
    acknowledged_before_it_is_durable(story)
    story.event(Kind.FORCE_START, "writer")
    story.event(Kind.FORCE_RESULT, "writer", code=0)
    story.close(1)


@near_miss("DurableBeforeAck")
def a_force_fails_for_what_the_close_cut_off(story: Story) -> None:
    acknowledged_before_it_is_durable(story)
    story.event(Kind.FORCE_START, "writer")
    story.close(1)
    story.event(Kind.FORCE_RESULT, "writer", code=-11)


@near_miss("DurableBeforeAck")
def what_was_acknowledged_during_a_force_is_cut_off(story: Story) -> None:
    story.event(Kind.FORCE_START, "writer")
    acknowledged_before_it_is_durable(story)
    story.event(Kind.FORCE_RESULT, "writer", code=0)
    story.close(1)


@near_miss("DurableBeforeAck")
def what_was_forced_is_cut_off_when_a_bookie_has_lost_it(story: Story) -> None:
    acknowledged_before_it_is_durable(story)
    story.lose(2, "b1")
    story.event(Kind.FORCE_START, "writer")
    story.event(Kind.FORCE_RESULT, "writer", code=0)
    story.close(1)


@near_miss("DurableBeforeAck")
def the_first_of_two_forces_under_way_covers_less(story: Story) -> None:
    story.event(Kind.FORCE_START, "writer")
    acknowledged_before_it_is_durable(story)
    story.event(Kind.FORCE_START, "writer")
    story.event(Kind.FORCE_RESULT, "writer", code=0)
    story.event(Kind.FORCE_RESULT, "writer", code=-11)
    story.close(1)


# MetadataBeforeUse ---------------------------------------------------------------------------------------------------


@plant("MetadataBeforeUse", "b3")
def sent_to_a_bookie_that_is_not_stored_yet(story: Story) -> None:
    story.send(2, "b0", "b1", "b3", lac=1)
    story.change(2, "b0", "b1", "b3")


@near_miss("MetadataBeforeUse")
def sent_to_a_bookie_that_was_replaced_meanwhile(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.send(2, "b0", "b1", "b2", lac=1)


# BookieLacMonotonic --------------------------------------------------------------------------------------------------


@plant("BookieLacMonotonic", "b0")
def the_lac_of_a_running_bookie_falls(story: Story) -> None:
    story.event(Kind.BK_LAC, "b0", lac=1)
    story.event(Kind.BK_LAC, "b0", lac=0)


@near_miss("BookieLacMonotonic")
def the_lac_of_a_bookie_is_lower_after_a_crash(story: Story) -> None:
    story.event(Kind.BK_LAC, "b0", lac=1)
    story.crash("b0")
    story.event(Kind.BK_LAC, "b0", lac=0)


# NoFalseNegative -----------------------------------------------------------------------------------------------------


@plant("NoFalseNegative", "b0")
def a_bookie_denies_what_it_has(story: Story) -> None:
    story.event(Kind.READ_SEND, "reader", entry=1, bookie="b0")
    story.event(Kind.READ_RESP, "reader", entry=1, bookie="b0", code=DENIED, lac=-1)


@near_miss("NoFalseNegative")
def a_bookie_denies_what_it_lost(story: Story) -> None:
    story.lose(1, "b0")
    story.event(Kind.READ_SEND, "reader", entry=1, bookie="b0")
    story.event(Kind.READ_RESP, "reader", entry=1, bookie="b0", code=NO_LEDGER, lac=-1)


# LimboNeverDenies ----------------------------------------------------------------------------------------------------


@plant("LimboNeverDenies", "b0")
def a_bookie_in_limbo_denies_an_entry(story: Story) -> None:
    story.event(Kind.BK_LIMBO, "b0", verdict="on")
    story.event(Kind.READ_SEND, "reader", entry=2, bookie="b0")
    story.event(Kind.READ_RESP, "reader", entry=2, bookie="b0", code=DENIED, lac=-1)


@near_miss("LimboNeverDenies")
def a_bookie_out_of_limbo_denies_an_entry(story: Story) -> None:
    story.event(Kind.BK_LIMBO, "b0", verdict="on")
    story.event(Kind.BK_LIMBO, "b0", verdict="off")
    story.event(Kind.READ_SEND, "reader", entry=2, bookie="b0")
    story.event(Kind.READ_RESP, "reader", entry=2, bookie="b0", code=DENIED, lac=-1)


# GcOnlyDead ----------------------------------------------------------------------------------------------------------


@plant("GcOnlyDead", "b0")
def a_bookie_drops_a_ledger_that_needs_it(story: Story) -> None:
    story.event(Kind.BK_GC, "b0")


@near_miss("GcOnlyDead")
def a_bookie_drops_a_ledger_that_has_left_it(story: Story) -> None:
    story.store(0, "b3", source="auditor")
    story.store(1, "b3", source="auditor")
    story.cas("rereplicate", "auditor", fragments=[(0, ("b3", "b1", "b2"))])
    story.event(Kind.BK_GC, "b0")


# ReadStability -------------------------------------------------------------------------------------------------------


@plant("ReadStability", "entry 2")
def read_and_then_left_out_of_the_ledger(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=1)
    story.store(2, "b0")
    story.read(2, "b0", lac=2)
    story.close(1)


@near_miss("ReadStability")
def read_and_later_not_to_be_had(story: Story) -> None:
    story.read(1)
    story.read(1, code=TIMEOUT)

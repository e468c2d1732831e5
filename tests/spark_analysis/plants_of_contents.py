"""What breaks, or nearly breaks, the invariants about what is sent, stored, read and told."""

from __future__ import annotations

from scenarios.history import Kind
from tests.scenarios.stories import DENIED, FENCED, NO_LEDGER, TIMEOUT, Story
from tests.spark_analysis.planting import near_miss, plant

NO_SUCH_LEDGER = -25


# NothingBeyondClose --------------------------------------------------------------------------------------------------


@plant("NothingBeyondClose", "reader read entry 2 (event ", "ReadStability")
def read_above_the_end_that_the_reader_knew(story: Story) -> None:
    story.send(2, "b0", "b1", "b2")
    story.store(2, "b0")
    story.close(1)
    story.read(2, "b0")


@plant("NothingBeyondClose", "that it knew to be closed after entry -1", "ReadStability", entries=0)
def read_of_a_ledger_that_is_empty(story: Story) -> None:
    story.send(0, "b0", "b1", "b2")
    story.store(0, "b0")
    story.close(-1)
    story.read(0, "b0")


@near_miss("NothingBeyondClose")
def the_last_entry_is_read(story: Story) -> None:
    story.close(1)
    story.read(1)


# ReplicasAgree (D14) -------------------------------------------------------------------------------------------------


@plant("ReplicasAgree", "b0 stored entry 1 (event ")
def a_bookie_stores_an_entry_again_with_another_content(story: Story) -> None:
    story.store(1, "b0", content=55)


@plant("ReplicasAgree", "b0 stored entry 1 (event ")
def a_bookie_stores_an_entry_again_with_another_length(story: Story) -> None:
    story.store(1, "b0", length=21)


@near_miss("ReplicasAgree")
def a_bookie_stores_an_entry_again(story: Story) -> None:
    story.lose(1, "b0")
    story.store(1, "b0", "b1")


# NothingInvented (F4) ------------------------------------------------------------------------------------------------


@plant("NothingInvented", "entry 2 was read (event ")
def read_as_nobody_sent_it(story: Story) -> None:
    story.send(2, "b0", "b1", "b2")
    story.store(2, "b0")
    story.read(2, "b0", content=55)


@plant("NothingInvented", "entry 2 was read (event ", "ReplicasAgree")
def read_before_the_writer_sent_it_so(story: Story) -> None:
    story.send(2, "b0")
    story.read(2, "b0", content=55)
    story.send(2, "b1", content=55)


@near_miss("NothingInvented")
def read_while_it_is_on_its_way(story: Story) -> None:
    story.send(2, "b0", "b1", "b2")
    story.store(2, "b0")
    story.read(2, "b0")


@near_miss("NothingInvented", entries=0)
def read_where_nobody_records_what_is_sent(story: Story) -> None:
    story.store(0, "b0", "b1", "b2")
    story.read(0, content=55)


# StoredWhereSent -----------------------------------------------------------------------------------------------------


@plant("StoredWhereSent", "b3 stored entry 2 of writer (event ")
def stored_by_a_bookie_that_it_was_not_sent_to(story: Story) -> None:
    story.send(2, "b0", "b1", "b2")
    story.store(2, "b0", "b3")


@plant("StoredWhereSent", "b2 stored entry 2 of writer (event ")
def stored_before_it_was_sent(story: Story) -> None:
    story.send(2, "b0", "b1")
    story.store(2, "b2")
    story.send(2, "b2")


@near_miss("StoredWhereSent")
def stored_twice_of_one_sending(story: Story) -> None:
    story.send(2, "b0", "b1", "b2")
    story.store(2, "b0", "b0")


@near_miss("StoredWhereSent")
def stored_for_one_that_does_not_record_what_it_sends(story: Story) -> None:
    story.close(1)
    story.store(1, "b3", source="auditor")


# RecoveryAddAccepted -------------------------------------------------------------------------------------------------


def _write_back(story: Story) -> None:
    """A recovery is about to write entry 1 back to b0."""
    story.mark()
    story.fence("b0", "b1", "b2", lac=0)
    story.find(1, "b1")
    story.send(1, "b0", actor="r0", recovery=True, lac=0)


@plant("RecoveryAddAccepted", "b0 refused entry 1, which r0 wrote back, as fenced (event ")
def a_bookie_refuses_what_a_recovery_writes_back(story: Story) -> None:
    _write_back(story)
    story.event(Kind.BK_ANSWER, "b0", source="r0", operation="write-back", entry=1, code=FENCED)


@plant("RecoveryAddAccepted", "b0 refused entry 1, which r0 wrote back, as fenced (event ")
def a_recovery_is_told_that_the_ledger_is_fenced(story: Story) -> None:
    _write_back(story)
    story.answer(1, "b0", actor="r0", recovery=True, code=FENCED)


@near_miss("RecoveryAddAccepted")
def a_bookie_refuses_what_the_writer_sends_and_is_out_of_reach_for_the_recovery(story: Story) -> None:
    _write_back(story)
    story.event(Kind.BK_ANSWER, "b0", source="writer", operation="add", entry=2, code=FENCED)
    story.answer(1, "b0", actor="r0", recovery=True, code=TIMEOUT)


@near_miss("RecoveryAddAccepted")
def a_bookie_has_collected_the_ledger_that_is_recovered(story: Story) -> None:
    _write_back(story)
    story.cas("delete", "admin")
    story.event(Kind.BK_GC, "b0")
    story.event(Kind.BK_ANSWER, "b0", source="r0", operation="write-back", entry=1, code=FENCED)
    story.answer(1, "b0", actor="r0", recovery=True, code=FENCED)


# WriterLacMonotonic --------------------------------------------------------------------------------------------------


@plant("WriterLacMonotonic", "the last add confirmed of writer fell from 1, sent with entry 2")
def the_lac_of_a_writer_falls(story: Story) -> None:
    story.write(2)
    story.write(3, lac=0)


@plant("WriterLacMonotonic", "writer sent entry 2 with entry 2 as its last add confirmed", "LacHonest")
def an_entry_is_called_confirmed_by_itself(story: Story) -> None:
    story.send(2, "b0", "b1", "b2", lac=2)


@near_miss("WriterLacMonotonic")
def an_entry_is_sent_again_as_it_was(story: Story) -> None:
    story.write(2, lac=0)
    story.write(3, lac=2)
    story.send(2, "b1", lac=0)


@near_miss("WriterLacMonotonic")
def a_recovery_begins_at_a_lower_lac(story: Story) -> None:
    story.mark()
    story.fence("b0", "b1", "b2", lac=-1)
    story.find(0, "b0")
    story.rewrite(0, "b0", "b1", "b2", lac=-1)


# FailureIsNoDenial ---------------------------------------------------------------------------------------------------


@plant("FailureIsNoDenial", f"told with code {DENIED} why")
def an_opening_fails_with_a_denial(story: Story) -> None:
    story.event(Kind.OPEN_START, "r0", recovery=True)
    story.opened(code=DENIED, last_entry=-1, length=0)


@plant("FailureIsNoDenial", "told that the ledger does not exist")
def a_ledger_that_exists_is_said_not_to(story: Story) -> None:
    story.event(Kind.OPEN_START, "r0", recovery=False)
    story.opened(code=NO_SUCH_LEDGER, recovery=False, last_entry=-1, length=0)


@plant("FailureIsNoDenial", f"told with code {NO_LEDGER} why", entries=0)
def what_one_bookie_says_is_told_of_the_ledger(story: Story) -> None:
    story.event(Kind.OPEN_START, "r0", recovery=True)
    story.opened(code=NO_LEDGER, last_entry=-1, length=0)


@near_miss("FailureIsNoDenial")
def a_ledger_is_deleted_while_it_is_opened(story: Story) -> None:
    story.close(1)
    story.event(Kind.OPEN_START, "r0", recovery=True)
    story.cas("delete", "writer", state="CLOSED", last_entry=1, length=20)
    story.opened(code=NO_SUCH_LEDGER, last_entry=-1, length=0)


@near_miss("FailureIsNoDenial")
def an_opening_takes_too_long(story: Story) -> None:
    story.event(Kind.OPEN_START, "r0", recovery=True)
    story.opened(code=TIMEOUT, last_entry=-1, length=0)


# FragmentsWellFormed (C11) -------------------------------------------------------------------------------------------


@plant("FragmentsWellFormed", "after it had been deleted")
def closed_after_it_was_deleted(story: Story) -> None:
    story.cas("delete", "admin")
    story.close(1)


@plant("FragmentsWellFormed", "after it had been deleted")
def changed_after_it_was_deleted(story: Story) -> None:
    story.cas("delete", "admin")
    story.change(2, "b0", "b1", "b3")


@near_miss("FragmentsWellFormed")
def created_anew_after_it_was_deleted(story: Story) -> None:
    story.cas("delete", "admin", expected=-1)
    story.version = -1
    story.create()


@near_miss("FragmentsWellFormed")
def a_write_is_refused_after_a_deletion(story: Story) -> None:
    story.cas("delete", "admin")
    story.change(2, "b0", "b1", "b3", outcome="error")

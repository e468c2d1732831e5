"""For clauses that one other story breaks, another one that breaks them in another way."""

from __future__ import annotations

from scenarios.history import Kind
from tests.scenarios.stories import DENIED, NO_LEDGER, Story
from tests.spark_analysis.planting import plant
from tests.spark_analysis.plants_of_logs import acked, ended, listed, other, published
from tests.spark_analysis.plants_of_recoveries import begin, half_written

DIGEST_MISMATCH = -5


# What was acknowledged and read --------------------------------------------------------------------------------------


@plant("AckedReadable", "read with content 55", "NothingInvented")
def delivered_with_another_content_before_it_is_acknowledged(story: Story) -> None:
    story.send(2, "b0", "b1", "b2")
    story.store(2, "b0", "b1", "b2")
    story.read(2, "b0", content=55)
    story.answer(2, "b0", "b1", "b2")
    story.ack(2)


@plant("AckedReadable", "entry 2 was part of the closed ledger (event ")
def denied_though_it_is_in_the_closed_ledger(story: Story) -> None:
    """It was never acknowledged, and one bookie has lost it."""
    story.send(2, "b0", "b1", "b2")
    story.store(2, "b0", "b1", "b2")
    story.close(2)
    story.lose(2, "b2")
    story.read(2, "b2", code=DENIED)


@plant("NoAckAfterEnd", "entry 2")
def acknowledged_although_it_had_failed(story: Story) -> None:
    story.send(2, "b0", "b1", "b2")
    story.store(2, "b0", "b1", "b2")
    story.answer(2, "b0", "b1", "b2")
    story.fail(2, -23)
    story.ack(2)


@plant("ReadWithinLac", "reader read entry 0")
def read_by_one_that_knew_of_nothing(story: Story) -> None:
    story.read(0, lac=-1)


@plant("ReaderLacMonotonic", "from 1 to 0")
def a_reader_knows_less_than_when_it_read(story: Story) -> None:
    result = {"entry": 0, "code": 0, "content": 1000, "size": 10, "lac": 1, "version": 0, "handle": 1}
    story.event(Kind.READ_RESULT, "reader", **result)
    story.event(Kind.LAC_ADV, "reader", lac=0, source="long-poll", handle=1)


@plant("VisibleLacBounded", "2")
def a_bookie_knew_more_than_the_ledger_has_in_the_end(story: Story) -> None:
    """All bookies had answered; the writer closes below it, and had told nobody."""
    story.send(2, "b0", "b1", "b2")
    story.store(2, "b0", "b1", "b2")
    story.answer(2, "b0", "b1", "b2")
    story.event(Kind.BK_LAC, "b0", lac=2)
    story.close(1)


@plant("BookieLacMonotonic", "b0")
def the_lac_of_a_bookie_falls_when_another_one_crashes(story: Story) -> None:
    story.event(Kind.BK_LAC, "b0", lac=1)
    story.crash("b1")
    story.event(Kind.BK_LAC, "b0", lac=0)


@plant("DurableBeforeAck", "entry 2")
def on_disk_when_it_is_acknowledged_already(story: Story) -> None:
    story.send(2, "b0", "b1", "b2")
    story.store(2, "b0")
    story.store(2, "b1", sync=False)
    story.answer(2, "b0", "b1")
    story.ack(2)
    story.sync(2, "b1")


@plant("SingleWriterOrder", "sent entry 3 (event ")
def an_entry_is_sent_before_the_one_below(story: Story) -> None:
    story.send(3, "b0", "b1", "b2")
    story.add(3)
    story.send(2, "b0", "b1", "b2")
    story.add(2)


# Ends and metadata ---------------------------------------------------------------------------------------------------


@plant("RecoveriesAgree", "2 metadata writes closed the ledger")
def closed_again_after_it_was_repaired(story: Story) -> None:
    story.close(1)
    story.store(0, "b3", source="auditor")
    story.store(1, "b3", source="auditor")
    story.cas("rereplicate", "auditor", fragments=[(0, ("b0", "b1", "b3"))], last_entry=1, length=20)
    story.close(1, "r0")


@plant("RecoveriesAgree", "has other fragments")
def a_repair_moves_a_boundary(story: Story) -> None:
    story.close(1)
    story.cas(
        "rereplicate", "auditor", fragments=[(0, story.bookies(3)), (1, story.bookies(3))], last_entry=1, length=20
    )


@plant("FragmentsWellFormed", "the new version does not follow the expected one")
def an_ensemble_change_skips_a_version(story: Story) -> None:
    story.change(2, "b0", "b1", "b3", version=5)


@plant("FragmentsWellFormed", "two writes")
def a_recovery_is_marked_over_a_change(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.change(2, "b0", "b1", "b4")
    story.cas("recover", "r0", state="IN_RECOVERY", expected=0)


@plant("FragmentsWellFormed", "fragments changed while the ledger is in recovery")
def another_recovery_changes_the_ensemble(story: Story) -> None:
    story.mark()
    story.cas("recover", "r1", state="IN_RECOVERY", fragments=[(0, ("b0", "b1", "b3"))])


@plant("FragmentsWellFormed", "illegal step IN_RECOVERY>OPEN")
def a_writer_goes_on_after_the_recovery_has_begun(story: Story) -> None:
    story.mark()
    story.change(2, "b0", "b1", "b3", state="OPEN")


@plant("FragmentsWellFormed", "E, Qw and Qa are not what they were")
def closed_with_another_ack_quorum(story: Story) -> None:
    story.close(1, sizes=(3, 3, 1))


@plant("FragmentsWellFormed", "the last fragment starts above the end")
def a_refused_close_by_a_recovery_ends_below_the_last_fragment(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.close(-1, "r0", outcome="conflict")


@plant("ClosedFromInRecovery", "r0")
def another_client_closes_after_an_ensemble_change(story: Story) -> None:
    story.change(2, "b0", "b1", "b3")
    story.close(1, "r0")


# Fences and recoveries -----------------------------------------------------------------------------------------------


@plant("FencedStaysFenced", "b1")
def a_fencing_read_is_answered_before_the_fence_is_durable(story: Story) -> None:
    story.mark()
    story.fence("b0", "b2", lac=0)
    story.ask(1)
    story.fence_set("b1", durable=False)
    story.event(Kind.REC_READ_RESP, "r0", entry=1, bookie="b1", fence=True, code=0, content=1001)
    story.fence_set("b1", durable=True)


@plant("FencedStaysFenced", "b1")
def a_fencing_read_is_denied_by_a_bookie_that_has_no_fence(story: Story) -> None:
    story.mark()
    story.fence("b0", "b2", lac=1)
    story.ask(2)
    story.event(Kind.REC_READ_RESP, "r0", entry=2, bookie="b1", fence=True, code=NO_LEDGER, content=None)


@plant("PositiveVerified", "entry 2")
def taken_for_found_though_the_digest_did_not_fit(story: Story) -> None:
    half_written(story)
    begin(story, lac=1)
    story.ask(2)
    story.told(2, "b0", code=DIGEST_MISMATCH)
    story.decide(2, "positive", "b0")


@plant("NegativeStays", "entry 2", "FencedStaysFenced")
def the_second_of_those_that_denied_it_stores_it_when_the_ledger_is_closed(story: Story) -> None:
    story.send(2, "b0", "b1", "b2")
    begin(story, lac=1)
    story.rule_out(2, "b0", "b1")
    story.close(1, "r0")
    story.store(2, "b1")


@plant("UnknownAborts", "entry 3")
def closed_though_a_later_entry_could_not_be_decided(story: Story) -> None:
    begin(story, lac=1)
    story.rule_out(2, "b0", "b1")
    story.decide(3, "unknown")
    story.close(1, "r0")


@plant("RecoveryLacFrozen", "r0")
def an_entry_is_written_back_again_with_another_lac(story: Story) -> None:
    begin(story, lac=0)
    story.find(1, "b0")
    story.rewrite(1, "b0", lac=0)
    story.rewrite(1, "b1", lac=-1)


@plant("NothingInvented", "entry 2")
def an_entry_is_written_back_before_its_writer_sends_it(story: Story) -> None:
    begin(story, lac=1)
    story.find(2, "b0")
    story.send(2, "b0", "b1", actor="r0", recovery=True, lac=1)
    story.send(2, "b0", "b1", "b2")


@plant("LimboNeverDenies", "b1")
def a_bookie_in_limbo_denies_an_entry_to_a_recovery(story: Story) -> None:
    story.event(Kind.BK_LIMBO, "b1", verdict="on")
    begin(story, lac=1)
    story.ask(2)
    story.told(2, "b1", code=DENIED)


# Logs ----------------------------------------------------------------------------------------------------------------


@plant("LogOneOwner", "message 2 of epoch 1", entries=0)
def acknowledged_to_one_that_was_taken_over_twice(story: Story) -> None:
    listed(story)
    story.write_all(0, 2)
    published(story, 0, 1)
    acked(story, 0, 0)
    acked(story, 1, 1)
    story.close(2)
    ended(story, 2)
    other(story, 9, epoch=2, is_closed=True)
    ended(story, 1, 9)
    other(story, 10, epoch=3)
    published(story, 2)
    acked(story, 2, 2)

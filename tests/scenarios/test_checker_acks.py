"""What the checker says about acknowledgements: for each clause a story that keeps it, one that breaks it, and a near miss."""

from __future__ import annotations

import pytest

from tests.scenarios.stories import FENCED, TIMEOUT, Story, assert_broken, assert_holds


def written(sizes: str = "3/3/2", last: int = 2) -> Story:
    story = Story(sizes)
    story.create()
    story.write_all(0, last)
    return story


class TestNoLacTruncation:
    @pytest.mark.rule("A1")
    def test_a_ledger_closed_at_its_last_acknowledged_entry_keeps_the_promise(self) -> None:
        story = written()
        story.close(2)
        assert_holds(story, "A1")

    @pytest.mark.rule("A1")
    def test_a_close_below_an_acknowledged_entry_truncates(self) -> None:
        story = Story()
        story.create()
        story.write(0)
        acked = story.write(1)
        closed = story.close(0)
        violation = assert_broken(story, "A1", acked, closed, says="entry 1 was acknowledged")
        assert violation.invariant == "NoLacTruncation"

    @pytest.mark.rule("A1")
    def test_an_acknowledgement_above_the_end_of_the_closed_ledger_truncates_too(self) -> None:
        story = written()
        closed = story.close(2, actor="r0")
        late = story.write(3)
        assert_broken(story, "A1", closed, late, says="closed by r0 at entry 2")

    @pytest.mark.rule("A1")
    def test_all_entries_cut_off_are_named(self) -> None:
        story = written(last=5)
        story.close(1)
        assert_broken(story, "A1", says="entries 2 to 5 were acknowledged")

    @pytest.mark.rule("A1")
    def test_an_end_above_the_last_acknowledged_entry_is_legal(self) -> None:
        story = written()
        story.send(3, "b0", "b1")
        story.store(3, "b0", "b1")
        story.close(3)
        assert_holds(story, "A1")

    @pytest.mark.rule("A1")
    def test_a_late_acknowledgement_of_an_entry_that_is_in_the_closed_ledger_is_legal(self) -> None:
        story = written(last=1)
        story.send(2, "b0", "b1", lac=1)
        story.store(2, "b0", "b1")
        story.answer(2, "b0", "b1")
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.find(2, "b0")
        story.rewrite(2, "b0", "b1", lac=1)
        story.rule_out(3, "b0", "b1")
        story.close(2, actor="r0")
        story.ack(2)
        assert_holds(story, "A1")

    @pytest.mark.rule("A1")
    def test_an_entry_acknowledged_before_it_was_durable_is_not_promised(self) -> None:
        story = written()
        story.send(3, "b0", "b1")
        story.store(3, "b0", "b1")
        story.answer(3, "b0", "b1")
        story.ack(3, durable=False)
        story.close(2, actor="r0", fragments=story.fragments)
        assert "A1" not in [violation.clause for violation in story.checked().finish()]

    @pytest.mark.rule("A1")
    def test_a_close_that_did_not_happen_truncates_nothing(self) -> None:
        story = written()
        story.mark()
        story.cas("close", "r0", state="CLOSED", last_entry=0, length=10, outcome="conflict")
        story.opened(code=-10)
        assert "NoLacTruncation" not in [violation.invariant for violation in story.checked().finish()]

    @pytest.mark.rule("A1")
    def test_a_close_of_unknown_outcome_counts_once_it_is_read(self) -> None:
        story = written()
        story.mark()
        story.cas("close", "r0", state="CLOSED", last_entry=0, length=10, outcome="unknown")
        before = len(story.events)
        assert not [violation for violation in story.checked().finish() if violation.invariant == "NoLacTruncation"]
        seen = story.look("reader", version=story.version + 1, state="CLOSED", last_entry=0, length=10)
        assert seen == before
        assert_broken(story, "A1", seen, says="closed by r0 at entry 0")


class TestAckHasQuorum:
    @pytest.mark.rule("A2")
    def test_answers_of_an_ack_quorum_are_enough(self) -> None:
        story = Story()
        story.create()
        story.write(0, "b0", "b2")
        assert_holds(story, "A2")

    @pytest.mark.rule("A2")
    def test_one_answer_too_few_is_seen(self) -> None:
        story = Story()
        story.create()
        story.send(0, "b0", "b1", "b2", lac=-1)
        story.store(0, "b0", "b1")
        answered = story.answer(0, "b0")
        acked = story.ack(0)
        assert_broken(story, "A2", answered, acked, says="good answers from b0")

    @pytest.mark.rule("A2")
    def test_the_same_answer_twice_is_one_answer(self) -> None:
        story = Story("2/2/2")
        story.create()
        story.send(0, "b0", "b1")
        story.store(0, "b0", "b1")
        story.answer(0, "b0", "b0")
        acked = story.ack(0)
        assert_broken(story, "A2", acked)

    @pytest.mark.rule("A2")
    def test_refusals_are_no_answers(self) -> None:
        story = Story("2/2/2")
        story.create()
        story.send(0, "b0", "b1")
        story.store(0, "b0", "b1")
        story.answer(0, "b0")
        story.answer(0, "b1", code=FENCED)
        story.ack(0)
        assert_broken(story, "A2")

    @pytest.mark.rule("A2")
    def test_the_answer_of_a_bookie_the_writer_itself_replaced_does_not_count(self) -> None:
        story = Story("1/1/1")
        story.create()
        story.send(0, "b0")
        story.store(0, "b0")
        changed = story.change(0, "b1")
        story.answer(0, "b0")
        acked = story.ack(0)
        assert_broken(story, "A2", changed, acked, says="its write set is b1")

    @pytest.mark.rule("A2")
    def test_answers_from_outside_the_write_set_do_not_count(self) -> None:
        story = Story("4/2/2")
        story.create()
        story.send(0, "b0", "b1")
        story.store(0, "b0", "b3")
        story.answer(0, "b0", "b3")
        story.ack(0)
        assert_broken(story, "A2", says="write set is b0, b1")

    @pytest.mark.rule("A2")
    def test_an_ensemble_that_is_not_stored_yet_gives_no_quorum(self) -> None:
        story = Story("1/1/1")
        story.create()
        story.cas("ensemble", "writer", fragments=[(0, ("b1",))], outcome="unknown")
        story.send(0, "b1")
        story.store(0, "b1")
        story.answer(0, "b1")
        story.ack(0)
        assert_broken(story, "A2")

    @pytest.mark.rule("A2")
    def test_an_ensemble_of_unknown_outcome_counts_once_it_was_read(self) -> None:
        story = Story("1/1/1")
        story.create()
        story.cas("ensemble", "writer", fragments=[(0, ("b1",))], outcome="unknown")
        story.look("writer", version=1, fragments=[[0, ["b1"]]])
        story.fragments, story.version = [(0, ("b1",))], 1
        story.write(0)
        assert_holds(story, "A2")

    @pytest.mark.rule("A2")
    def test_a_write_that_builds_on_one_of_unknown_outcome_shows_that_it_was_applied(self) -> None:
        story = Story("1/1/1")
        story.create()
        story.cas("ensemble", "writer", fragments=[(0, ("b1",))], outcome="unknown")
        story.change(0, "b2", expected=1)
        story.write(0)
        assert_holds(story, "A2")

    @pytest.mark.rule("A2")
    def test_what_others_stored_since_does_not_take_the_quorum_away(self) -> None:
        """The application was paused between the second answer and hearing of it; a recovery replaced b1 and closed."""
        story = Story("2/2/2")
        story.create()
        story.send(0, "b0", "b1")
        story.store(0, "b0", "b1")
        story.answer(0, "b0", "b1")
        story.mark()
        story.fence("b0", "b1")
        story.find(0, "b0")
        story.rewrite(0, "b0", "b3")
        story.rule_out(1, "b0")
        story.close(0, actor="r0", fragments=[(0, ("b0", "b3"))])
        story.ack(0)
        assert_holds(story, "A2")


class TestDurableBeforeAck:
    @pytest.mark.rule("D7")
    def test_answers_after_the_sync_are_durable(self) -> None:
        assert_holds(written(), "D7")

    @pytest.mark.rule("D7")
    def test_an_answer_before_the_sync_is_seen_on_a_bookie_that_does_sync(self) -> None:
        story = written("2/2/2", last=0)
        story.send(1, "b0", "b1", lac=0)
        story.store(1, "b0")
        story.store(1, "b1", sync=False)
        answered = story.answer(1, "b0", "b1")
        acked = story.ack(1)
        assert_broken(story, "D7", answered, acked, says="b1 answered before")

    @pytest.mark.rule("D7")
    def test_a_bookie_that_never_syncs_makes_no_such_promise(self) -> None:
        story = Story("2/2/2")
        story.create()
        for entry in (0, 1):
            story.send(entry, "b0", "b1", lac=entry - 1)
            story.store(entry, "b0", "b1", sync=False)
            story.answer(entry, "b0", "b1")
            story.ack(entry)
        assert_holds(story, "D7")

    @pytest.mark.rule("D7")
    def test_an_acknowledgement_that_does_not_say_durable_needs_no_sync(self) -> None:
        story = written("2/2/2", last=0)
        story.send(1, "b0", "b1", lac=0)
        story.store(1, "b0", "b1", sync=False)
        story.answer(1, "b0", "b1")
        story.ack(1, durable=False)
        assert_holds(story, "D7")


class TestAcksInOrder:
    @pytest.mark.rule("A3")
    def test_entries_acknowledged_one_after_the_other_are_in_order(self) -> None:
        assert_holds(written(), "A3")

    @pytest.mark.rule("A3")
    def test_an_acknowledgement_that_overtakes_another_is_seen(self) -> None:
        story = Story("1/1/1")
        story.create()
        for entry in (0, 1):
            story.send(entry, "b0")
        story.store(1, "b0")
        story.answer(1, "b0")
        acked = story.ack(1)
        assert_broken(story, "A3", acked, says="where entry 0 was due")

    @pytest.mark.rule("A3")
    def test_the_same_entry_is_not_acknowledged_twice(self) -> None:
        story = written()
        first = story.ack(2)
        assert_broken(
            story, "A3", first, says="entry 2 was acknowledged to the application of writer where entry 3 was due"
        )

    @pytest.mark.rule("A3")
    def test_answers_may_come_in_any_order(self) -> None:
        story = Story("1/1/1")
        story.create()
        for entry in (0, 1):
            story.send(entry, "b0")
        for entry in (1, 0):
            story.store(entry, "b0")
            story.answer(entry, "b0")
        story.ack(0)
        story.ack(1)
        assert_holds(story, "A3")

    @pytest.mark.rule("A3")
    def test_nobody_is_told_of_a_cancelled_append_and_what_follows_is_acknowledged(self) -> None:
        story = written()
        story.send(3, "b0", "b1", "b2", lac=2)
        story.add(3)
        story.cancel(3)
        story.store(3, "b0", "b1")
        story.answer(3, "b0", "b1")
        story.write(4)
        assert_holds(story, "A3")

    @pytest.mark.rule("A3")
    def test_an_acknowledgement_above_a_cancelled_entry_without_its_quorum_is_seen(self) -> None:
        story = written()
        story.send(3, "b0", "b1", "b2", lac=2)
        story.add(3)
        story.cancel(3)
        story.store(3, "b0")
        story.answer(3, "b0")
        acked = story.write(4, lac=2)
        assert_broken(story, "A3", acked, says="where entry 3 was due")


class TestSingleWriterOrder:
    @pytest.mark.rule("G1")
    def test_one_writer_that_sends_some_entries_again_is_in_order(self) -> None:
        story = written()
        story.send(1, "b2", lac=0)
        assert_holds(story, "G1")

    @pytest.mark.rule("G1")
    def test_another_incarnation_that_goes_on_writing_is_seen(self) -> None:
        story = written("2/2/1", last=0)
        second = story.send(0, "b1", incarnation=2)
        assert_broken(
            story, "G1", second, says="writer (incarnation 2) adds to a ledger that writer (incarnation 1) wrote"
        )

    @pytest.mark.rule("G1")
    def test_a_skipped_entry_is_seen(self) -> None:
        story = written()
        skipped = story.send(4, "b0", lac=2)
        story.add(4)
        assert_broken(story, "G1", skipped, says="before it ever sent entry 3")

    @pytest.mark.rule("G1")
    def test_an_application_that_gives_the_ids_may_give_them_in_any_order(self) -> None:
        story = Story("1/1/1")
        story.create()
        for entry in (2, 0, 1):
            story.send(entry, "b0")
            story.add(entry, given=True)
        for entry in range(3):
            story.store(entry, "b0")
            story.answer(entry, "b0")
            story.ack(entry)
        assert_holds(story, "G1")

    @pytest.mark.rule("G1")
    def test_a_history_that_does_not_say_who_numbers_the_entries_accuses_nobody_of_their_order(self) -> None:
        story = written()
        story.send(4, "b0", lac=2)
        assert_holds(story, "G1")

    @pytest.mark.rule("G1")
    def test_a_recovery_by_another_client_is_not_another_writer(self) -> None:
        story = written(last=0)
        story.mark()
        story.fence("b0", "b1", lac=-1)
        story.find(0, "b0")
        story.rewrite(0, "b0", "b1")
        assert_holds(story, "G1")


class TestNoAckAfterEnd:
    @pytest.mark.rule("A6")
    def test_acknowledgements_below_a_failed_entry_may_still_be_heard_of(self) -> None:
        story = written(last=0)
        for entry in (1, 2):
            story.send(entry, "b0", "b1", lac=0)
        story.store(1, "b0", "b1")
        story.answer(1, "b0", "b1")
        story.fail(2, TIMEOUT)
        story.ack(1)
        assert_holds(story, "A6")

    @pytest.mark.rule("A6")
    def test_an_acknowledgement_after_a_failure_is_seen(self) -> None:
        story = written()
        failed = story.fail(3, FENCED)
        acked = story.write(3)
        violation = assert_broken(story, "A6", failed, acked, says="after entry 3 failed")
        assert violation.invariant == "NoAckAfterEnd"

    @pytest.mark.rule("A6")
    def test_an_append_refused_without_a_number_fails_nothing(self) -> None:
        story = written()
        story.fail(-1)
        story.write(3)
        assert not story.checked().finish()

    @pytest.mark.rule("A7")
    def test_an_acknowledgement_up_to_the_own_end_may_come_late(self) -> None:
        story = written(last=1)
        story.send(2, "b0", "b1", lac=1)
        story.store(2, "b0", "b1")
        story.answer(2, "b0", "b1")
        story.close(2)
        story.ack(2)
        assert_holds(story, "A7")

    @pytest.mark.rule("A7")
    def test_an_acknowledgement_above_the_own_end_is_seen_even_if_the_close_did_not_succeed(self) -> None:
        story = Story("1/1/1")
        story.create()
        closing = story.close(-1, outcome="unknown")
        acked = story.write(0)
        assert_broken(story, "A7", closing, acked, says="at entry -1")

    @pytest.mark.rule("A7")
    def test_the_end_another_client_sets_is_not_the_writers_own(self) -> None:
        story = written()
        story.close(2, actor="r0", outcome="conflict")
        story.write(3)
        assert not story.checked().finish()

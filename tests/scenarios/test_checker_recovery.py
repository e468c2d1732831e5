"""What the checker says about recovery: for each clause a story that keeps it, one that breaks it, and a near miss."""

from __future__ import annotations

import pytest

from scenarios.history import Kind
from tests.scenarios.stories import DENIED, FENCED, NO_LEDGER, TIMEOUT, Story, assert_broken, assert_holds


def half_written(sizes: str = "3/3/2") -> Story:
    """Entries 0 and 1 are acknowledged, entry 2 is on one bookie alone: b0, where that is in its write set."""
    story = Story(sizes)
    story.create()
    story.write_all(0, 1)
    story.send(2, *story.write_set(2), lac=1)
    story.store(2, "b0" if "b0" in story.write_set(2) else story.write_set(2)[0])
    return story


def recovered(sizes: str = "3/3/2") -> Story:
    """That ledger, recovered with entry 2 and closed there."""
    story = half_written(sizes)
    story.mark()
    story.fence("b0", "b1", lac=1)
    story.find(2, "b0")
    story.rewrite(2, "b0", "b1", lac=1)
    story.rule_out(3, "b0", "b1")
    story.close(2, actor="r0")
    story.opened()
    return story


class TestFences:
    @pytest.mark.rule("D1")
    def test_a_fenced_bookie_takes_recovery_adds(self) -> None:
        story = half_written()
        story.fence_set("b0")
        story.store(2, "b0", recovery=True, source="r0")
        assert not story.checked().finish()

    @pytest.mark.rule("D1")
    def test_a_fenced_bookie_that_takes_an_ordinary_add_is_seen(self) -> None:
        story = half_written()
        fenced = story.fence_set("b1")
        story.event(Kind.BK_CRASH, "b1", ledger=-1, clean=False, detail="")
        stored = story.store(2, "b1", sync=False)
        violation = assert_broken(story, "D1", fenced, stored, says="b1 stored entry 2 of writer")
        assert violation.invariant == "FencedStaysFenced"

    @pytest.mark.rule("D1")
    def test_a_fence_that_was_not_durable_may_go_with_a_crash(self) -> None:
        story = half_written()
        story.fence_set("b1", durable=False)
        story.crash("b1")
        story.store(2, "b1")
        assert_holds(story, "D1")

    @pytest.mark.rule("D1")
    @pytest.mark.parametrize("durable", [True, False])
    def test_a_fence_that_was_forgotten_binds_nobody_until_it_is_set_again(self, *, durable: bool) -> None:
        story = half_written()
        story.fence_set("b1", durable=durable)
        story.forget_fence("b1")
        story.store(2, "b1")
        assert_holds(story, "D1")
        again = story.fence_set("b1", actor="r1")
        stored = story.store(2, "b1", sync=False)
        assert_broken(story, "D1", again, stored)

    @pytest.mark.rule("D1")
    def test_a_bookie_that_forgot_nothing_is_bound_by_its_fence(self) -> None:
        story = half_written()
        story.fence_set("b1")
        story.forget_fence("b2")
        story.store(2, "b1")
        assert_broken(story, "D1")

    @pytest.mark.rule("D1")
    def test_without_a_crash_it_holds_before_it_is_durable(self) -> None:
        story = half_written()
        story.fence_set("b1", durable=False)
        story.store(2, "b1")
        assert_broken(story, "D1")

    @pytest.mark.rule("D1")
    def test_the_fence_of_one_bookie_does_not_bind_another(self) -> None:
        story = half_written()
        story.fence_set("b1")
        story.store(2, "b2")
        assert not story.checked().finish()

    @pytest.mark.rule("D2")
    def test_an_answer_after_the_fence_is_durable_is_right(self) -> None:
        assert_holds(recovered(), "D2")

    @pytest.mark.rule("D2")
    def test_a_good_answer_before_the_fence_is_durable_is_seen(self) -> None:
        story = half_written()
        story.mark()
        story.fence_set("b0", durable=False)
        answered = story.event(Kind.FENCE_RESP, "r0", bookie="b0", code=0, lac=1, entry=2)
        assert_broken(story, "D2", answered, says="before its fence was durable")

    @pytest.mark.rule("D2")
    @pytest.mark.rule("D3")
    def test_nothing_is_known_of_fences_where_bookies_do_not_record(self) -> None:
        story = Story()
        story.create()
        story.mark()
        story.event(Kind.FENCE_RESP, "r0", bookie="b0", code=0, lac=-1, entry=-1)
        story.event(Kind.FENCE_RESP, "r0", bookie="b1", code=DENIED, lac=-1, entry=-1)
        checker = story.checked()
        assert not checker.finish()
        assert checker.judged["D2"] == checker.judged["D3"] == 0

    @pytest.mark.rule("D2")
    def test_a_fence_may_have_become_durable_in_the_moment_of_a_crash(self) -> None:
        story = half_written()
        story.mark()
        story.fence_set("b0", durable=False)
        story.crash("b0")
        story.event(Kind.FENCE_RESP, "r0", bookie="b0", code=0, lac=1, entry=2)
        assert_holds(story, "D2")

    @pytest.mark.rule("D3")
    def test_a_denial_need_not_wait_until_the_fence_is_durable(self) -> None:
        story = half_written()
        story.mark()
        story.fence_set("b2", durable=False)
        story.event(Kind.FENCE_RESP, "r0", bookie="b2", code=DENIED, lac=-1, entry=-1)
        assert_holds(story, "D3")

    @pytest.mark.rule("D3")
    @pytest.mark.parametrize("code", [DENIED, NO_LEDGER])
    def test_a_denial_without_any_fence_is_seen(self, code: int) -> None:
        story = half_written()
        story.mark()
        denied = story.event(Kind.FENCE_RESP, "r0", bookie="b2", code=code, lac=-1, entry=-1)
        assert_broken(story, "D3", denied, says="b2 denied r0 an entry without being fenced")

    @pytest.mark.rule("D3")
    def test_a_recovery_read_that_does_not_fence_is_seen_by_its_denial(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.ask(2, fence=False)
        denied = story.told(2, "b2", code=DENIED, fence=False)
        assert_broken(story, "D3", denied, says="the read did not ask for it")

    @pytest.mark.rule("D3")
    def test_the_read_that_measures_the_last_entry_need_not_fence(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.rule_out(2, "b1", "b0")
        story.ask(1, "b2", fence=False)
        story.lose(1, "b2")
        story.told(1, "b2", code=DENIED, fence=False)
        assert "D3" not in [violation.clause for violation in story.checked().finish()]

    @pytest.mark.rule("D3")
    def test_a_bookie_that_collected_the_ledger_denies_without_a_fence(self) -> None:
        story = half_written()
        story.mark()
        story.cas("delete", "admin")
        story.event(Kind.BK_GC, "b2")
        story.event(Kind.FENCE_RESP, "r0", bookie="b2", code=NO_LEDGER, lac=-1, entry=-1)
        assert_holds(story, "D3")

    @pytest.mark.rule("E5")
    def test_a_fence_that_is_lost_before_the_denial_counts_is_not_held_against_the_bookie(self) -> None:
        for is_fenced_again in (False, True):
            story = half_written()
            story.mark()
            story.fence("b1", "b2", lac=1)
            story.ask(2)
            story.told(2, "b1", "b2", code=DENIED)
            story.forget_fence("b1")
            if is_fenced_again:
                story.fence_set("b1")
            decided = story.decide(2, "negative", "b1", "b2")
            story.forget_fence("b2")
            story.store(2, "b2", sync=False)
            stored = story.store(2, "b1", sync=False)
            if is_fenced_again:
                assert_broken(story, "E5", decided, stored)
            else:
                assert_holds(story, "E5")

    @pytest.mark.rule("D13")
    def test_a_bookie_that_collected_the_ledger_refuses_what_a_recovery_writes_back(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b1", "b2", lac=1)
        story.find(1, "b1")
        story.send(1, "b2", actor="r0", recovery=True, lac=1)
        story.cas("delete", "admin")
        story.event(Kind.BK_GC, "b2")
        story.answer(1, "b2", actor="r0", recovery=True, code=FENCED)
        assert_holds(story, "D13")
        story.send(1, "b1", actor="r0", recovery=True, lac=1)
        refused = story.answer(1, "b1", actor="r0", recovery=True, code=FENCED)
        assert_broken(story, "D13", refused)

    @pytest.mark.rule("D1")
    @pytest.mark.rule("E5")
    def test_with_a_collected_ledger_goes_its_fence_when_the_bookie_crashes(self) -> None:
        """The ledger was deleted. Its old writer knows nothing of that, and a bookie nothing of the ledger any more."""
        story = half_written()
        story.mark()
        story.fence("b1", "b2", lac=1)
        story.rule_out(2, "b1", "b2")
        story.cas("delete", "admin")
        story.event(Kind.BK_GC, "b1")
        story.crash("b1")
        story.store(2, "b1")
        assert_holds(story, "D1")
        assert_holds(story, "E5")
        story.event(Kind.BK_GC, "b2")
        stored = story.store(2, "b2", sync=False)
        assert_broken(story, "D1", stored)

    @pytest.mark.rule("E5")
    def test_what_was_denied_before_a_fence_was_lost_and_stored_then_is_seen(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b1", "b2", lac=1)
        decided = story.rule_out(2, "b1", "b2")
        stored = story.store(2, "b1", sync=False)
        violation = assert_broken(
            story, "E5", decided, stored, says="after a recovery had ruled the entry out by its denial"
        )
        assert violation.invariant == "NegativeStays"

    @pytest.mark.rule("E5")
    def test_a_bookie_that_forgot_its_fence_may_take_what_it_denied(self) -> None:
        """It has broken its word already, and the history says so."""
        story = half_written()
        story.mark()
        story.fence("b1", "b2", lac=1)
        story.rule_out(2, "b1", "b2")
        story.forget_fence("b1")
        story.store(2, "b1")
        assert_holds(story, "E5")
        story.store(2, "b2")
        assert_broken(story, "E5")

    @pytest.mark.rule("E5")
    def test_a_bookie_on_whose_word_nothing_was_decided_may_still_take_the_entry(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b1", "b2", lac=1)
        story.rule_out(2, "b1", "b2")
        story.store(2, "b0")
        assert_holds(story, "E5")


class TestCoverageBeforeReads:
    @pytest.mark.rule("D4")
    def test_fences_that_leave_no_ack_quorum_are_coverage(self) -> None:
        assert_holds(recovered(), "D4")

    @pytest.mark.rule("D4")
    def test_one_fence_too_few_is_seen(self) -> None:
        story = half_written()
        started = story.mark()
        fenced = story.fence("b0", lac=1)
        first = story.ask(2, "b0")
        story.ask(2, "b1", "b2")
        assert_broken(story, "D4", started, fenced, first, says="b1, b2, an ack quorum")

    @pytest.mark.rule("D4")
    def test_a_striped_ensemble_is_covered_window_by_window(self) -> None:
        """Qw - Qa + 1 = 1 fence in all would do if there were one write set; 3/2/2 has three."""
        story = half_written("3/2/2")
        story.mark()
        story.fence("b0", lac=1)
        story.ask(2)
        assert_broken(story, "D4", says="b1, b2, an ack quorum")

    @pytest.mark.rule("D4")
    def test_opposite_bookies_cover_four_in_pairs(self) -> None:
        """Fewer than the E - Qa + 1 = 3 that always suffice."""
        story = half_written("4/2/2")
        story.mark()
        story.fence("b0", "b2", lac=1)
        story.ask(2)
        assert_holds(story, "D4")

    @pytest.mark.rule("D4")
    @pytest.mark.parametrize("code", [DENIED, NO_LEDGER])
    def test_a_denial_is_as_good_a_fence(self, code: int) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", lac=1)
        story.fence("b2", code=code)
        story.ask(2)
        assert_holds(story, "D4")

    @pytest.mark.rule("D4")
    def test_a_timeout_is_no_fence(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", lac=1)
        story.fence("b2", code=TIMEOUT)
        story.ask(2)
        assert_broken(story, "D4")

    @pytest.mark.rule("D4")
    def test_the_fences_of_an_earlier_try_do_not_count_for_the_next(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.opened(code=-10)
        story.mark()
        story.ask(2)
        assert_broken(story, "D4")


class TestRecoveryReads:
    @pytest.mark.rule("E1")
    @pytest.mark.rule("E2")
    def test_reading_above_the_lac_in_the_last_fragment_is_right(self) -> None:
        story = recovered()
        assert_holds(story, "E1")
        assert_holds(story, "E2")

    @pytest.mark.rule("E1")
    def test_reading_below_the_last_fragment_is_seen(self) -> None:
        story = Story("1/1/1")
        story.create()
        story.write(0)
        story.change(1, "b1")
        story.mark()
        story.fence("b1", code=DENIED)
        first = story.ask(0, "b1")
        violation = assert_broken(story, "E1", first, says="below entry 1 where the last fragment starts")
        assert violation.invariant == "RecoveryReads"

    @pytest.mark.rule("E1")
    def test_skipping_an_entry_that_may_not_be_confirmed_is_seen(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", "b1", lac=0)
        story.ask(2)
        assert_broken(story, "E1", says="entries from 1 on may not be confirmed")

    @pytest.mark.rule("E1")
    def test_starting_lower_than_necessary_costs_time_only(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.ask(1)
        assert_holds(story, "E1")

    @pytest.mark.rule("E2")
    def test_asking_a_bookie_that_recovery_itself_put_in_is_seen(self) -> None:
        story = Story("1/1/1")
        story.create()
        story.write_all(0, 2)
        story.mark()
        story.fence("b0", lac=1)
        story.find(2, "b0")
        story.rewrite(2, "b1", lac=1)
        asked = story.ask(3, "b1")
        assert_broken(story, "E2", asked, says="read entry 3 from b1, its write set is b0")

    @pytest.mark.rule("E2")
    def test_asking_a_member_that_does_not_store_the_entry_is_seen(self) -> None:
        story = half_written("4/2/2")
        story.mark()
        story.fence("b0", "b2", lac=1)
        story.ask(2, "b0")
        assert_broken(story, "E2", says="its write set is b2, b3")

    @pytest.mark.rule("E2")
    def test_two_recoveries_of_one_client_at_once_cannot_be_told_apart_and_are_not_judged(self) -> None:
        story = half_written()
        story.event(Kind.OPEN_START, "r0", recovery=True)
        story.mark()
        story.ask(9, "b4")
        assert not story.checked().finish()


class TestNegativeCoverage:
    @pytest.mark.rule("E3")
    def test_denials_that_exclude_an_ack_quorum_rule_an_entry_out(self) -> None:
        assert_holds(recovered(), "E3")

    @pytest.mark.rule("E3")
    def test_one_denial_too_few_is_seen(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", "b1", lac=1)
        decided = story.rule_out(2, "b1")
        assert_broken(story, "E3", decided, says="by denials of b1; it takes 2 of b2, b0, b1")

    @pytest.mark.rule("E3")
    def test_timeouts_rule_nothing_out(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.ask(2)
        story.told(2, "b1", code=DENIED)
        story.told(2, "b2", code=TIMEOUT)
        story.decide(2, "negative", "b1", "b2")
        assert_broken(story, "E3")

    @pytest.mark.rule("E3")
    def test_the_same_denial_twice_is_one(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.ask(2)
        story.told(2, "b1", "b1", code=DENIED)
        story.decide(2, "negative", "b1")
        assert_broken(story, "E3")

    @pytest.mark.rule("E3")
    def test_where_ack_and_write_quorum_are_equal_one_denial_is_enough(self) -> None:
        story = half_written("2/2/2")
        story.mark()
        story.fence("b1", lac=1)
        story.rule_out(2, "b1")
        assert_holds(story, "E3")

    @pytest.mark.rule("E3")
    def test_the_denials_of_an_earlier_try_do_not_count_for_the_next(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.rule_out(3, "b0", "b1")
        story.opened(code=-10)
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.ask(3)
        story.decide(3, "negative", "b0", "b1")
        assert_broken(story, "E3", says="by denials of no bookie")

    @pytest.mark.rule("L3")
    def test_what_enough_bookies_denied_is_ruled_out_at_once(self) -> None:
        assert_holds(recovered(), "L3")

    @pytest.mark.rule("L3")
    def test_an_answer_more_than_needed_is_seen(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", "b1", "b2", lac=1)
        story.ask(2)
        enough = story.told(2, "b1", "b2", code=DENIED)
        waited = story.told(2, "b0", code=TIMEOUT)
        decided = story.decide(2, "negative", "b1", "b2")
        assert_broken(story, "L3", enough, waited, decided, says="waited for another answer about entry 2")

    @pytest.mark.rule("L3")
    def test_answers_about_an_entry_whose_turn_has_not_come_are_not_waited_for(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", "b1", "b2", lac=1)
        story.ask(2)
        story.ask(3)
        story.told(3, "b0", "b1", "b2", code=DENIED)
        story.told(2, "b0")
        story.decide(2, "positive", "b0")
        story.decide(3, "negative", "b0", "b1", "b2")
        assert_holds(story, "L3")

    @pytest.mark.rule("E4")
    def test_an_entry_nobody_gave_cannot_be_recovered(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.ask(2)
        decided = story.decide(2, "positive", "b0")
        assert_broken(story, "E4", decided)

    @pytest.mark.rule("E4")
    def test_one_copy_is_enough_to_recover_an_entry(self) -> None:
        assert_holds(recovered(), "E4")


class TestRecoveryClose:
    @pytest.mark.rule("E11")
    @pytest.mark.rule("E7")
    @pytest.mark.rule("E6")
    def test_a_close_at_the_decided_end_with_everything_rewritten_is_right(self) -> None:
        story = recovered()
        for clause in ("E11", "E7", "E6"):
            assert_holds(story, clause)

    @pytest.mark.rule("E11")
    def test_a_close_after_an_undecided_entry_is_seen_even_if_it_fails(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.ask(2)
        undecided = story.decide(2, "unknown")
        closing = story.close(1, actor="r0", outcome="conflict")
        violation = assert_broken(story, "E11", undecided, closing)
        assert violation.invariant == "UnknownAborts"

    @pytest.mark.rule("E11")
    def test_a_new_try_after_an_undecided_entry_may_close(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.ask(2)
        story.decide(2, "unknown")
        story.opened(code=-10, state=None, last_entry=-1, length=0)
        story.mark()
        story.fence("b1", "b2", lac=1)
        story.rule_out(2, "b1", "b2")
        story.close(1, actor="r0")
        assert_holds(story, "E11")

    @pytest.mark.rule("E7")
    def test_a_close_at_the_lac_without_reading_on_is_seen(self) -> None:
        story = half_written()
        started = story.mark()
        story.fence("b0", "b1", lac=1)
        closed = story.close(1, actor="r0")
        assert_broken(story, "E7", started, closed, says="without having ruled out that more follows")

    @pytest.mark.rule("E7")
    def test_a_close_below_the_decided_end_is_seen(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.find(2, "b0")
        story.rewrite(2, "b0", "b1", lac=1)
        decided = story.rule_out(3, "b0", "b1")
        closed = story.close(1, actor="r0")
        assert_broken(story, "E7", decided, closed, says="ruled out entry 3, but closed the ledger at entry 1")

    @pytest.mark.rule("E7")
    def test_the_writer_closes_without_deciding_anything(self) -> None:
        story = half_written()
        story.mark()
        story.close(1, actor="writer")
        assert not story.checked().finish()

    @pytest.mark.rule("E7")
    @pytest.mark.parametrize("durable", [True, False])
    def test_a_client_that_recovers_its_own_ledger_may_end_its_writer_below_what_was_not_durable(
        self, durable: bool
    ) -> None:
        """With deferred sync the writer's last add confirmed, where it ends, is below what it acknowledged and did not force."""
        story = Story("3/3/2")
        story.create()
        for entry in (0, 1):
            story.send(entry)
            story.store(entry, "b0", "b1", "b2")
            for bookie in ("b0", "b1"):
                story.answer(entry, bookie)
            story.ack(entry, durable=durable)
        story.mark("writer")
        story.fence("b0", "b1", actor="writer")
        closed = story.close(-1, actor="writer")
        if durable:
            assert_broken(story, "E7", closed, says="without having ruled out that more follows")
        else:
            assert not story.checked().finish()

    @pytest.mark.rule("E6")
    def test_a_close_before_the_rewrite_is_answered_is_seen(self) -> None:
        story = half_written()
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.find(2, "b0")
        story.send(2, "b0", "b1", actor="r0", recovery=True, lac=1)
        story.store(2, "b0", "b1", recovery=True, source="r0")
        story.answer(2, "b0", actor="r0", recovery=True)
        story.rule_out(3, "b0", "b1")
        closed = story.close(2, actor="r0")
        assert_broken(story, "E6", closed, says="had rewritten entry 2 on b0 of b2, b0, b1")

    @pytest.mark.rule("E6")
    def test_a_rewrite_on_bookies_that_the_closing_write_does_not_name_is_seen(self) -> None:
        story = half_written("2/2/2")
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.find(2, "b0")
        story.rewrite(2, "b0", "b3", lac=1)
        story.rule_out(3, "b0")
        story.close(2, actor="r0")
        assert_broken(story, "E6")

    @pytest.mark.rule("E6")
    def test_a_rewrite_on_replaced_bookies_counts_once_the_closing_write_names_them(self) -> None:
        story = half_written("2/2/2")
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.find(2, "b0")
        story.rewrite(2, "b0", "b3", lac=1)
        story.rule_out(3, "b0")
        story.close(2, actor="r0", fragments=[*story.fragments, (2, ("b0", "b3"))])
        assert_holds(story, "E6")


class TestRecoveryLacFrozen:
    @pytest.mark.rule("E9")
    def test_a_lac_that_stays_is_frozen(self) -> None:
        assert_holds(recovered(), "E9")

    @pytest.mark.rule("E9")
    def test_a_lac_that_advances_with_the_rewritten_entries_is_seen(self) -> None:
        story = half_written()
        story.send(3, "b0", lac=1)
        story.store(3, "b0")
        started = story.mark()
        story.fence("b0", "b1", lac=1)
        story.find(2, "b0")
        story.rewrite(2, "b0", "b1", lac=1)
        story.find(3, "b0")
        advanced = story.send(3, "b0", actor="r0", recovery=True, lac=2)
        assert_broken(story, "E9", started, advanced, says="with LAC 2, earlier ones with LAC 1")

    @pytest.mark.rule("E9")
    def test_the_next_recovery_may_start_from_another_lac(self) -> None:
        story = half_written()
        story.mark("r1")
        story.fence("b1", "b2", actor="r1", lac=0)
        story.find(1, "b1", actor="r1")
        story.rewrite(1, "b1", actor="r1", lac=0)
        story.opened("r1", code=-10, state=None, last_entry=-1, length=0)
        story.mark("r1")
        story.fence("b0", "b1", actor="r1", lac=1)
        story.find(2, "b0", actor="r1")
        story.rewrite(2, "b0", actor="r1", lac=1)
        assert_holds(story, "E9", but=["L10"])  # it gave up before it sent a copy to each bookie

    @pytest.mark.rule("E9")
    @pytest.mark.parametrize("closer", ["r0", "r1"])
    def test_what_a_client_copies_when_the_ledger_is_closed_is_no_part_of_its_recovery(self, closer: str) -> None:
        def told(*, closes: bool) -> Story:
            story = half_written()
            story.mark()
            story.fence("b0", "b1", lac=1)
            story.find(2, "b0")
            story.rewrite(2, "b0", "b1", lac=1)
            story.rule_out(3, "b0", "b1")
            if closes:
                story.close(2, actor=closer)
                story.look("r0")
            story.send(1, "b3", actor="r0", recovery=True, lac=0)
            return story

        for clause in ("E9", "E10"):
            assert_holds(told(closes=True), clause, but=("E7", "E8") if closer == "r1" else ())
            assert clause in {violation.clause for violation in told(closes=False).checked().finish()}

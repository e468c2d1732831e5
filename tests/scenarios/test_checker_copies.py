"""What the checker says about copies on bookies: for each clause a story that keeps it, one that breaks it, and a near miss."""

from __future__ import annotations

import pytest

from scenarios.history import Kind
from tests.scenarios.stories import DENIED, NO_LEDGER, TIMEOUT, Story, assert_broken, assert_holds


def written(sizes: str = "2/2/2", last: int = 2) -> Story:
    story = Story(sizes)
    story.create()
    story.write_all(0, last)
    return story


class TestAckedCopies:
    @pytest.mark.rule("A4")
    @pytest.mark.rule("A5")
    def test_copies_on_an_ack_quorum_are_enough(self) -> None:
        story = Story()
        story.create()
        story.write(0, "b0", "b1")
        assert_holds(story, "A4")
        assert_holds(story, "A5")

    @pytest.mark.rule("A4")
    def test_an_ensemble_change_that_gives_an_acknowledged_entry_to_others_makes_it_unreadable(self) -> None:
        story = Story("1/1/1")
        story.create()
        acked = story.write(0)
        changed = story.change(0, "b1")
        violation = assert_broken(story, "A4", acked, changed, says="on no bookie of its write set b1")
        assert violation.invariant == "AckedReadable"

    @pytest.mark.rule("A5")
    def test_one_copy_too_few_is_seen(self) -> None:
        story = Story("2/2/2")
        story.create()
        story.send(0, "b0", "b1")
        story.store(0, "b0", "b1")
        story.answer(0, "b0", "b1")
        story.change(0, "b0", "b2")
        acked = story.ack(0)
        assert_broken(story, "A5", acked, says="on 1 of its write set b0, b2")

    @pytest.mark.rule("A5")
    def test_a_change_from_the_next_entry_on_leaves_acknowledged_entries_where_they_are(self) -> None:
        story = written(last=0)
        story.change(1, "b0", "b2")
        story.write(1)
        assert_holds(story, "A5")

    @pytest.mark.rule("A5")
    def test_a_lost_disk_is_nobodys_fault(self) -> None:
        story = written(last=0)
        story.lose(0, "b0")
        story.cas("rereplicate", "replicator", fragments=[(0, ("b2", "b1"))])
        assert_holds(story, "A5")

    @pytest.mark.rule("A5")
    def test_a_replicator_that_forgets_to_copy_is_seen(self) -> None:
        story = written(last=0)
        replaced = story.cas("rereplicate", "replicator", fragments=[(0, ("b2", "b1"))])
        assert_broken(story, "A5", replaced)

    @pytest.mark.rule("A5")
    def test_a_replicator_that_copied_first_is_right(self) -> None:
        story = written(last=0)
        story.store(0, "b2", recovery=True, source="replicator")
        story.cas("rereplicate", "replicator", fragments=[(0, ("b2", "b1"))])
        assert_holds(story, "A5")


class TestClosedAtQuorum:
    @pytest.mark.rule("B4")
    def test_a_closed_ledger_has_each_entry_on_an_ack_quorum(self) -> None:
        story = written()
        story.close(2)
        assert_holds(story, "B4")

    @pytest.mark.rule("B4")
    def test_a_close_at_an_entry_that_was_only_sent_is_seen(self) -> None:
        story = Story("1/1/1")
        story.create()
        story.store(0, "b0")
        story.send(1, "b0")
        closed = story.close(1)
        assert_broken(story, "B4", closed, says="entry 1 is on 0 of b0")

    @pytest.mark.rule("B4")
    def test_nothing_is_known_of_copies_where_bookies_do_not_record(self) -> None:
        story = Story("1/1/1")
        story.create()
        story.send(0, "b0")
        story.answer(0, "b0")
        story.ack(0)
        story.close(0)
        checker = story.checked()
        assert not checker.finish()
        assert checker.judged["A4"] == checker.judged["A5"] == checker.judged["B4"] == 0

    @pytest.mark.rule("B4")
    def test_losses_are_allowed_for(self) -> None:
        story = written()
        story.lose(1, "b0")
        story.close(2)
        assert_holds(story, "B4")

    @pytest.mark.rule("B4")
    def test_copies_that_a_member_drops_later_are_missed(self) -> None:
        story = written()
        closed = story.close(2)
        dropped = story.event(Kind.BK_GC, "b0")
        assert_broken(story, "B4", closed, dropped, says="entry 0 is on 1 of b0, b1 instead of 2")

    @pytest.mark.rule("B4")
    def test_copies_that_no_reader_is_sent_to_may_be_dropped(self) -> None:
        story = written()
        story.close(2)
        for entry in range(3):
            story.store(entry, "b2", recovery=True, source="replicator")
        story.cas("rereplicate", "replicator", fragments=[(0, ("b2", "b1"))], last_entry=2, length=30)
        story.event(Kind.BK_GC, "b0")
        assert_holds(story, "B4")


class TestGcOnlyDead:
    @pytest.mark.rule("D12")
    def test_a_deleted_ledger_may_be_collected(self) -> None:
        story = written()
        story.cas("delete", "admin")
        story.event(Kind.BK_GC, "b0")
        assert_holds(story, "D12")

    @pytest.mark.rule("D12")
    def test_a_bookie_without_a_fragment_may_collect_its_leftovers(self) -> None:
        story = written()
        story.event(Kind.BK_GC, "b4")
        assert_holds(story, "D12")

    @pytest.mark.rule("D12")
    def test_collecting_a_live_ledger_is_seen_and_so_is_what_it_costs(self) -> None:
        story = written()
        collected = story.event(Kind.BK_GC, "b0")
        assert_broken(story, "D12", collected)
        assert_broken(story, "A5")


class TestReads:
    @pytest.mark.rule("A9")
    def test_a_denial_of_an_acknowledged_entry_is_seen(self) -> None:
        story = written()
        denied = story.read(1, "b1", "b0", code=DENIED)
        assert_broken(story, "A9", denied, says="reader was told that entry 1 does not exist")

    @pytest.mark.rule("A9")
    def test_a_denial_after_too_many_losses_is_legal(self) -> None:
        story = written()
        story.lose(1, "b0", "b1")
        story.read(1, code=DENIED)
        assert not story.checked().finish()

    @pytest.mark.rule("A9")
    def test_a_timeout_denies_nothing(self) -> None:
        story = written()
        story.read(1, code=TIMEOUT)
        assert not story.checked().finish()

    @pytest.mark.rule("A9")
    def test_a_read_that_began_before_the_acknowledgement_may_miss_the_entry(self) -> None:
        story = written()
        story.event(Kind.READ_SEND, "reader", entry=3, bookie="b0")
        story.write(3)
        story.event(Kind.READ_RESULT, "reader", entry=3, code=DENIED, size=0, lac=3, version=0)
        assert not story.checked().finish()

    @pytest.mark.rule("A9")
    def test_a_reader_with_old_metadata_may_ask_the_wrong_bookies(self) -> None:
        story = written("1/1/1", last=0)
        story.change(1, "b1")
        story.write(1)
        story.read(1, "b0", code=DENIED, version=0)
        assert not story.checked().finish()

    @pytest.mark.rule("A8")
    def test_reading_what_was_acknowledged_is_right(self) -> None:
        story = written()
        story.read(1)
        assert_holds(story, "A8")

    @pytest.mark.rule("A8")
    def test_reading_something_else_is_seen(self) -> None:
        story = written()
        found = story.read(1, content=5)
        violation = assert_broken(story, "A8", found)
        assert violation.invariant == "AckedReadable"

    @pytest.mark.rule("A8")
    def test_reading_something_else_before_the_acknowledgement_is_seen_then(self) -> None:
        story = Story("1/1/1")
        story.create()
        story.send(0, "b0")
        story.store(0, "b0")
        found = story.read(0, content=5)
        story.answer(0, "b0")
        acked = story.ack(0)
        assert_broken(story, "A8", found, acked)


class TestReplicasAgree:
    @pytest.mark.rule("D9")
    def test_equal_copies_agree(self) -> None:
        assert_holds(written(), "D9")

    @pytest.mark.rule("D9")
    def test_another_payload_is_seen(self) -> None:
        story = written()
        story.send(1, "b1", lac=0)
        rotten = story.store(1, "b1", content=4, sync=False)
        assert_broken(story, "D9", rotten, says="another payload at b1")

    @pytest.mark.rule("D9")
    def test_another_length_is_seen(self) -> None:
        story = written()
        sent = story.send(1, "b1", lac=0, length=21)
        assert_broken(story, "D9", sent, says="length 21 instead of 20")

    @pytest.mark.rule("D9")
    def test_another_lac_is_no_difference(self) -> None:
        story = written()
        story.store(1, "b1", lac=1)
        assert_holds(story, "D9")

    @pytest.mark.rule("B8")
    def test_writing_back_what_nobody_sent_is_seen(self) -> None:
        story = written()
        story.mark()
        invented = story.rewrite(3, "b0", lac=2)
        assert_broken(story, "B8", says="entry 3 back, which no writer ever sent")
        assert invented == len(story.events) - 1

    @pytest.mark.rule("B8")
    def test_writing_back_what_was_sent_is_right(self) -> None:
        story = written()
        story.mark()
        story.fence("b0", "b1", lac=1)
        story.find(2, "b1")
        story.rewrite(2, "b0", lac=1)
        assert_holds(story, "B8")


class TestNoFalseNegative:
    @pytest.mark.rule("D10")
    def test_denying_what_was_never_there_is_right(self) -> None:
        story = written()
        story.ask(3, "b0")
        story.told(3, "b0", code=DENIED)
        assert_holds(story, "D10")

    @pytest.mark.rule("D10")
    @pytest.mark.parametrize("code", [DENIED, NO_LEDGER])
    def test_denying_what_is_there_is_seen(self, code: int) -> None:
        story = written()
        story.ask(2, "b0")
        answered = story.told(2, "b0", code=code)
        assert_broken(story, "D10", answered, says="b0 held entry 2")

    @pytest.mark.rule("D10")
    def test_denying_what_was_lost_is_right(self) -> None:
        story = written()
        story.lose(2, "b0")
        story.ask(2, "b0")
        story.told(2, "b0", code=DENIED)
        assert_holds(story, "D10")

    @pytest.mark.rule("D10")
    def test_an_entry_may_arrive_while_the_denial_is_on_its_way(self) -> None:
        story = written()
        story.send(3, "b0", lac=2)
        story.ask(3, "b0")
        story.store(3, "b0")
        story.told(3, "b0", code=DENIED)
        assert_holds(story, "D10")

    @pytest.mark.rule("D10")
    def test_the_answer_to_an_older_question_is_not_held_against_the_bookie(self) -> None:
        story = written()
        story.send(3, "b0", lac=2)
        story.ask(3, "b0")
        story.store(3, "b0")
        story.ask(3, "b0")
        story.told(3, "b0", code=DENIED)
        story.told(3, "b0")
        assert_holds(story, "D10")

    @pytest.mark.rule("D11")
    def test_a_bookie_in_limbo_must_not_deny(self) -> None:
        story = written()
        limbo = story.event(Kind.BK_LIMBO, "b0", verdict="on")
        story.ask(3, "b0")
        answered = story.told(3, "b0", code=DENIED)
        assert_broken(story, "D11", limbo, answered)

    @pytest.mark.rule("D11")
    def test_out_of_limbo_it_may_deny_again(self) -> None:
        story = written()
        story.event(Kind.BK_LIMBO, "b0", verdict="on")
        story.event(Kind.BK_LIMBO, "b0", verdict="off")
        story.ask(3, "b0")
        story.told(3, "b0", code=DENIED)
        assert not story.checked().finish()

    @pytest.mark.rule("D11")
    def test_a_denial_given_before_limbo_began_may_arrive_after(self) -> None:
        story = written()
        story.ask(3, "b0")
        story.event(Kind.BK_LIMBO, "b0", verdict="on")
        story.told(3, "b0", code=DENIED)
        assert_holds(story, "D11")

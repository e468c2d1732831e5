"""What the checker says about LACs and readers: for each clause a story that keeps it, one that breaks it, and a near miss."""

from __future__ import annotations

import pytest

from scenarios.history import Kind
from tests.scenarios.stories import DENIED, TIMEOUT, Story, assert_broken, assert_holds


def written(sizes: str = "2/2/2", last: int = 2) -> Story:
    story = Story(sizes)
    story.create()
    story.write_all(0, last)
    return story


def knows(story: Story, bookie: str, lac: int) -> int:
    return story.event(Kind.BK_LAC, bookie, lac=lac)


def reaches(story: Story, lac: int, actor: str = "reader") -> int:
    return story.event(Kind.LAC_ADV, actor, lac=lac, source="read-lac")


class TestLacHonest:
    @pytest.mark.rule("D6")
    def test_a_lac_up_to_the_last_acknowledged_entry_is_honest(self) -> None:
        story = written()
        knows(story, "b0", 1)
        knows(story, "b0", 2)
        reaches(story, 2)
        assert_holds(story, "D6")

    @pytest.mark.rule("D6")
    def test_an_entry_that_carries_itself_as_confirmed_is_seen(self) -> None:
        story = written()
        sent = story.send(3, "b0", lac=3)
        assert_broken(story, "D6", sent, says="writer sent entry 3 with LAC 3 when no entry above 2 was confirmed")

    @pytest.mark.rule("D6")
    def test_a_bookie_that_knows_too_much_is_seen(self) -> None:
        story = written()
        known = knows(story, "b0", 3)
        assert_broken(story, "D6", known, says="b0 has LAC 3")

    @pytest.mark.rule("D6")
    def test_a_reader_that_takes_too_much_for_confirmed_is_seen(self) -> None:
        story = written()
        story.send(3, "b0", "b1", lac=2)
        story.store(3, "b0", "b1")
        reached = reaches(story, 3)
        assert_broken(story, "D6", reached)

    @pytest.mark.rule("D6")
    def test_a_lac_may_leave_before_the_application_hears_of_the_acknowledgement(self) -> None:
        story = written()
        story.send(3, "b0", "b1", lac=2)
        story.store(3, "b0", "b1")
        story.answer(3, "b0", "b1")
        story.send(4, "b0", "b1", lac=3)
        story.ack(3)
        assert_holds(story, "D6")

    @pytest.mark.rule("D6")
    def test_an_answered_entry_behind_a_gap_is_not_confirmed(self) -> None:
        story = written()
        for entry in (3, 4):
            story.send(entry, "b0", "b1", lac=2)
        story.store(4, "b0", "b1")
        story.answer(4, "b0", "b1")
        story.send(5, "b0", lac=4)
        assert_broken(story, "D6", says="no entry above 2 was confirmed")

    @pytest.mark.rule("D6")
    def test_what_a_recovery_has_on_an_ack_quorum_of_its_own_ensemble_is_confirmed(self) -> None:
        """Clients that advance the LAC of recovery writes are honest too, if not wise; the ensemble is the recovery's secret."""
        story = written()
        story.send(3, "b0", lac=2)
        story.store(3, "b0")
        story.mark()
        story.fence("b0", "b1", lac=2)
        story.find(3, "b0")
        story.rewrite(3, "b0", "b4", lac=2)
        knows(story, "b4", 3)
        assert_holds(story, "D6")

    @pytest.mark.rule("D6")
    def test_one_rewritten_copy_confirms_nothing(self) -> None:
        story = written()
        story.send(3, "b0", lac=2)
        story.store(3, "b0")
        story.mark()
        story.fence("b0", "b1", lac=2)
        story.find(3, "b0")
        story.rewrite(3, "b0", lac=2)
        knows(story, "b0", 3)
        assert_broken(story, "D6")

    @pytest.mark.rule("D6")
    def test_the_end_of_a_closed_ledger_is_confirmed(self) -> None:
        story = written()
        story.send(3, "b0", "b1")
        story.store(3, "b0", "b1")
        story.close(3)
        reaches(story, 3)
        assert_holds(story, "D6")


class TestVisibleLacBounded:
    @pytest.mark.rule("F5")
    def test_an_end_at_the_visible_lac_is_right(self) -> None:
        story = written()
        reaches(story, 2)
        story.close(2)
        assert_holds(story, "F5")

    @pytest.mark.rule("F5")
    def test_an_end_below_a_visible_lac_is_seen(self) -> None:
        """Two recoveries: one confirms entry 0 and lets it be seen, the other closes the ledger without it."""
        story = Story("2/2/2")
        story.create()
        story.send(0, "b0", "b1")
        story.store(0, "b0")
        story.mark("r0")
        story.mark("r1")
        story.fence("b0", actor="r0")
        story.fence("b1", actor="r1")
        story.find(0, "b0", actor="r0")
        story.rule_out(0, "b1", actor="r1")
        story.rewrite(0, "b0", "b1", actor="r0")
        seen = reaches(story, 0)
        closed = story.close(-1, actor="r1")
        assert_broken(story, "F5", seen, closed, says="reader had LAC 0, but the ledger was closed at entry -1")

    @pytest.mark.rule("F5")
    def test_a_visible_lac_after_the_close_is_bounded_too(self) -> None:
        story = written()
        story.close(1)
        late = knows(story, "b0", 2)
        assert_broken(story, "F5", late)


class TestBookieLacMonotonic:
    @pytest.mark.rule("D5")
    def test_a_lac_that_rises_is_monotonic(self) -> None:
        story = written()
        knows(story, "b0", 0)
        knows(story, "b0", 1)
        assert_holds(story, "D5")

    @pytest.mark.rule("D5")
    def test_a_lac_that_falls_is_seen(self) -> None:
        story = written()
        high = knows(story, "b0", 1)
        low = knows(story, "b0", 0)
        assert_broken(story, "D5", high, low, says="fell from 1 to 0")

    @pytest.mark.rule("D5")
    def test_after_a_crash_a_bookie_may_know_less(self) -> None:
        story = written()
        knows(story, "b0", 1)
        story.crash("b0")
        knows(story, "b0", 0)
        assert_holds(story, "D5")


class TestReadWithinLac:
    @pytest.mark.rule("F1")
    def test_reading_the_last_confirmed_entry_is_right(self) -> None:
        story = written()
        story.read(2, lac=2)
        assert_holds(story, "F1")

    @pytest.mark.rule("F1")
    def test_reading_above_it_is_seen(self) -> None:
        story = written()
        found = story.read(2, lac=1)
        assert_broken(story, "F1", found, says="read entry 2 when its last add confirmed was 1")

    @pytest.mark.rule("F1")
    def test_a_refused_read_returned_nothing(self) -> None:
        story = written()
        story.read(3, code=-1, lac=2)
        assert not story.checked().finish()


class TestReadStability:
    @pytest.mark.rule("F3")
    def test_the_same_entry_for_everybody_is_stable(self) -> None:
        story = written()
        story.read(1)
        story.read(1, actor="other")
        story.close(2)
        assert_holds(story, "F3")

    @pytest.mark.rule("F3")
    def test_another_content_the_second_time_is_seen(self) -> None:
        story = written()
        first = story.read(1)
        second = story.read(1, actor="other", content=7)
        assert_broken(story, "F3", first, second, says="other read entry 1 with another content than reader")

    @pytest.mark.rule("F3")
    def test_an_entry_that_was_read_and_is_denied_later_is_seen(self) -> None:
        story = Story("2/2/2")
        story.create()
        story.send(0, "b0", "b1")
        story.store(0, "b0", "b1")
        first = story.read(0)
        second = story.read(0, "b0", "b1", actor="other", code=DENIED)
        assert_broken(story, "F3", first, second)

    @pytest.mark.rule("F3")
    def test_an_entry_that_was_read_and_is_cut_off_is_seen(self) -> None:
        story = Story("2/2/2")
        story.create()
        story.send(0, "b0", "b1")
        story.store(0, "b0")
        found = story.read(0)
        closed = story.close(-1)
        assert_broken(story, "F3", found, closed, says="read entry 0, but the ledger was closed at entry -1")

    @pytest.mark.rule("F3")
    def test_a_timeout_later_is_no_definite_answer(self) -> None:
        story = written()
        story.read(1)
        story.read(1, actor="other", code=TIMEOUT)
        assert_holds(story, "F3")

    @pytest.mark.rule("F3")
    def test_a_denial_after_every_bookie_lost_the_entry_is_legal(self) -> None:
        story = written()
        story.read(1)
        story.lose(1, "b0", "b1")
        story.read(1, actor="other", code=DENIED)
        assert_holds(story, "F3")

    @pytest.mark.rule("F3")
    def test_a_denial_of_a_read_that_began_before_the_first_one_ended_is_legal(self) -> None:
        story = Story("2/2/2")
        story.create()
        story.send(0, "b0", "b1")
        story.store(0, "b0")
        story.event(Kind.READ_SEND, "other", entry=0, bookie="b1")
        story.read(0)
        story.event(Kind.READ_RESULT, "other", entry=0, code=DENIED, size=0, lac=0, version=0)
        assert_holds(story, "F3")

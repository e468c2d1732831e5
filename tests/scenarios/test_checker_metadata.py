"""What the checker says about metadata: for each clause a story that keeps it, one that breaks it, and a near miss."""

from __future__ import annotations

import pytest

from scenarios.history import Kind
from tests.scenarios.stories import Story, assert_broken, assert_holds


def created(sizes: str = "3/3/2") -> Story:
    story = Story(sizes)
    story.create()
    return story


def recovered(last: int = 1, actor: str = "r0") -> Story:
    """A ledger of two acknowledged entries, recovered and closed."""
    story = created()
    story.write_all(0, 1)
    story.mark(actor)
    story.fence("b0", "b1", actor=actor, lac=0)
    story.find(1, "b0", actor=actor)
    story.rewrite(1, "b0", "b1", actor=actor, lac=0)
    story.rule_out(2, "b0", "b1", actor=actor)
    story.close(last, actor=actor)
    return story


class TestRecoveriesAgree:
    @pytest.mark.rule("B1")
    @pytest.mark.rule("B3")
    def test_one_close_that_everybody_sees_alike_is_agreement(self) -> None:
        story = recovered()
        story.opened()
        story.look("r1")
        story.event(Kind.CLOSE_RESULT, "writer", code=0, last_entry=1, length=20)
        assert_holds(story, "B1")
        assert_holds(story, "B3")

    @pytest.mark.rule("B1")
    def test_a_second_close_is_seen_even_at_the_same_end(self) -> None:
        story = recovered()
        first = len(story.events) - 1
        second = story.close(1, actor="r1")
        assert_broken(story, "B1", first, second, says="r1 closed the ledger at entry 1, but it had been closed by r0")

    @pytest.mark.rule("B1")
    def test_re_replication_of_a_closed_ledger_is_no_close(self) -> None:
        story = recovered()
        story.store(0, "b4", recovery=True, source="replicator")
        story.store(1, "b4", recovery=True, source="replicator")
        story.cas(
            "rereplicate", "replicator", fragments=[(0, ("b0", "b1", "b4"))], state="CLOSED", last_entry=1, length=20
        )
        assert_holds(story, "B1")
        assert_holds(story, "B2")

    @pytest.mark.rule("B2")
    def test_a_closed_ledger_that_gets_another_end_is_seen(self) -> None:
        story = recovered()
        first = len(story.events) - 1
        second = story.close(0, actor="r1")
        assert_broken(story, "B2", first, second, says="CLOSED at entry 1 with 20 bytes")

    @pytest.mark.rule("B2")
    def test_a_closed_ledger_that_opens_again_is_seen(self) -> None:
        story = recovered()
        story.change(2, "b0", "b1", "b3", state="OPEN")
        assert_broken(story, "B2", says="is OPEN")

    @pytest.mark.rule("B2")
    def test_moving_a_fragment_boundary_of_a_closed_ledger_is_seen(self) -> None:
        story = recovered()
        fragments = [(0, ("b0", "b1", "b2")), (1, ("b0", "b1", "b2"))]
        story.cas("rereplicate", "replicator", fragments=fragments, state="CLOSED", last_entry=1, length=20)
        assert_broken(story, "B2", says="fragments from 0, 1")

    @pytest.mark.rule("B3")
    def test_whoever_opens_it_at_another_end_is_seen(self) -> None:
        story = recovered()
        opened = story.opened("r1", last_entry=0, length=10)
        assert_broken(
            story, "B3", opened, says="r1 saw the ledger end at entry 0 with 10 bytes, r0 at entry 1 with 20 bytes"
        )

    @pytest.mark.rule("B3")
    def test_the_same_end_with_another_length_is_another_end(self) -> None:
        story = recovered()
        story.look("r1", length=19)
        assert_broken(story, "B3")

    @pytest.mark.rule("B3")
    def test_a_failed_open_tells_no_end(self) -> None:
        story = recovered()
        story.opened("r1", code=-23, state=None, last_entry=-1, length=0)
        assert_holds(story, "B3")


class TestFragmentsWellFormed:
    @pytest.mark.rule("C4")
    def test_fragments_at_ascending_entries_are_well_formed(self) -> None:
        story = created()
        story.write_all(0, 1)
        story.change(2, "b0", "b1", "b3")
        assert_holds(story, "C4")

    @pytest.mark.rule("C4")
    def test_a_fragment_below_an_existing_one_is_seen_even_if_the_store_refuses_it(self) -> None:
        story = created()
        wrong = [(0, ("b0", "b1", "b2")), (3, ("b0", "b1", "b3")), (3, ("b0", "b4", "b3"))]
        refused = story.cas("close", "r0", fragments=wrong, state="CLOSED", last_entry=5, outcome="conflict")
        violation = assert_broken(story, "C4", refused, says="start at 0, 3, 3")
        assert violation.invariant == "FragmentsWellFormed"

    @pytest.mark.rule("C4")
    def test_a_first_fragment_above_entry_0_is_seen(self) -> None:
        story = Story()
        story.fragments = [(1, ("b0", "b1", "b2"))]
        story.create()
        assert_broken(story, "C4")

    @pytest.mark.rule("C5")
    def test_a_replaced_position_leaves_the_others_where_they_are(self) -> None:
        story = created()
        story.change(0, "b0", "b3", "b2")
        assert_holds(story, "C5")

    @pytest.mark.rule("C5")
    def test_an_ensemble_in_another_order_is_seen(self) -> None:
        story = created("2/1/1")
        moved = story.change(0, "b1", "b2")
        assert_broken(story, "C5", moved, says="moves b1")

    @pytest.mark.rule("C5")
    def test_a_bookie_twice_is_seen(self) -> None:
        story = created()
        story.change(0, "b0", "b3", "b3")
        assert_broken(story, "C5", says="needs 3 distinct bookies")

    @pytest.mark.rule("C5")
    def test_a_recovery_may_have_moved_bookies_in_several_steps(self) -> None:
        """b0 was replaced by b3, then b1 by the meanwhile recovered b0, both from entry 0 on."""
        story = created()
        story.mark()
        story.cas("close", "r0", state="CLOSED", fragments=[(0, ("b3", "b0", "b2"))], outcome="conflict")
        assert_holds(story, "C5")

    @pytest.mark.rule("C10")
    def test_other_quorum_sizes_are_seen(self) -> None:
        story = created()
        changed = story.cas("ensemble", "writer", sizes=(3, 3, 3))
        assert_broken(story, "C10", changed, says="they were (3, 3, 2)")

    @pytest.mark.rule("C10")
    def test_impossible_quorum_sizes_are_seen(self) -> None:
        story = Story("3/2/3")
        story.create()
        assert_broken(story, "C10", says="E, Qw, Qa = (3, 2, 3)")

    @pytest.mark.rule("C10")
    def test_sizes_that_stay_are_right(self) -> None:
        assert_holds(recovered(), "C10")

    @pytest.mark.rule("B9")
    def test_an_empty_last_fragment_is_legal(self) -> None:
        story = created()
        story.write_all(0, 1)
        story.change(2, "b0", "b1", "b3")
        story.close(1)
        assert_holds(story, "B9")

    @pytest.mark.rule("B9")
    def test_a_fragment_further_above_the_end_is_seen(self) -> None:
        story = created()
        story.write_all(0, 1)
        story.change(2, "b0", "b1", "b3")
        closed = story.close(0)
        assert_broken(story, "B9", closed, says="with a fragment from entry 2")


class TestMetadataLawful:
    @pytest.mark.rule("C1")
    @pytest.mark.rule("C2")
    def test_versions_that_count_by_one_are_lawful(self) -> None:
        story = created()
        story.change(0, "b0", "b1", "b3")
        story.look("writer")
        story.change(0, "b0", "b4", "b3")
        assert_holds(story, "C1")
        assert_holds(story, "C2")

    @pytest.mark.rule("C1")
    def test_a_version_that_jumps_is_seen(self) -> None:
        story = created()
        jumped = story.change(0, "b0", "b1", "b3", version=2)
        assert_broken(story, "C1", jumped)

    @pytest.mark.rule("C2")
    def test_two_writes_on_the_same_version_are_seen(self) -> None:
        story = created()
        first = story.change(0, "b0", "b1", "b3")
        second = story.cas("recover", "r0", state="IN_RECOVERY", expected=0)
        assert_broken(story, "C2", first, second, says="r0 wrote over version 0")

    @pytest.mark.rule("C2")
    def test_a_version_made_by_a_write_of_unknown_outcome_is_no_gap(self) -> None:
        story = created()
        changed = [(0, ("b0", "b1", "b3"))]
        story.cas("ensemble", "writer", fragments=changed, outcome="unknown")
        story.cas("recover", "r0", state="IN_RECOVERY", fragments=changed, expected=1)
        assert_holds(story, "C2")

    @pytest.mark.rule("C2")
    def test_a_creation_that_finds_itself_done_is_no_second_write(self) -> None:
        story = created()
        story.cas("create", "writer", expected=-1, version=0)
        assert_holds(story, "C2")

    @pytest.mark.rule("C3")
    def test_open_in_recovery_closed_is_the_way(self) -> None:
        assert_holds(recovered(), "C3")

    @pytest.mark.rule("C3")
    def test_a_way_back_is_seen(self) -> None:
        story = created()
        marked = story.cas("recover", "r0", state="IN_RECOVERY")
        back = story.change(0, "b0", "b1", "b3", state="OPEN")
        assert_broken(story, "C3", marked, back, says="from IN_RECOVERY to OPEN")

    def test_a_deleted_ledger_stays_deleted(self) -> None:
        story = created()
        story.cas("delete", "admin")
        story.change(0, "b0", "b1", "b3")
        assert_broken(story, "C11", says="after it had been deleted")

    @pytest.mark.rule("C3")
    def test_a_ledger_created_closed_is_seen(self) -> None:
        story = Story()
        story.create(state="CLOSED")
        assert_broken(story, "C3", says="from nothing to CLOSED")

    @pytest.mark.rule("C6")
    def test_a_change_right_after_the_last_confirmed_entry_is_right(self) -> None:
        story = created()
        story.write_all(0, 1)
        story.change(2, "b0", "b1", "b3")
        assert_holds(story, "C6")

    @pytest.mark.rule("C6")
    def test_a_change_that_covers_an_acknowledged_entry_is_seen(self) -> None:
        story = created()
        story.write(0)
        acked = story.write(1)
        changed = story.change(1, "b0", "b1", "b3")
        assert_broken(story, "C6", acked, changed, says="but entry 1 was acknowledged")

    @pytest.mark.rule("C6")
    def test_a_change_that_leaves_an_unconfirmed_entry_behind_is_seen(self) -> None:
        story = created("1/1/1")
        story.send(0, "b0")
        changed = story.change(1, "b1")
        assert_broken(story, "C6", changed, says="left entry 0 to the old ensemble")

    @pytest.mark.rule("C6")
    def test_an_acknowledgement_the_application_has_not_heard_of_yet_counts(self) -> None:
        story = created("1/1/1")
        story.send(0, "b0")
        story.store(0, "b0")
        story.answer(0, "b0")
        story.change(1, "b1")
        story.ack(0)
        assert_holds(story, "C6")

    @pytest.mark.rule("C6")
    def test_a_change_of_earlier_fragments_is_seen(self) -> None:
        story = created("1/1/1")
        story.write(0)
        story.cas("ensemble", "writer", fragments=[(0, ("b2",)), (1, ("b1",))])
        assert_broken(story, "C6", says="changed fragments below entry 1")

    @pytest.mark.rule("C7")
    def test_a_recovery_that_stores_its_replacements_early_is_seen(self) -> None:
        story = created()
        marked = story.cas("recover", "r0", state="IN_RECOVERY")
        stored = story.cas("recover", "r0", state="IN_RECOVERY", fragments=[(0, ("b0", "b1", "b3"))])
        assert_broken(story, "C7", marked, stored)

    @pytest.mark.rule("C7")
    def test_re_replication_during_recovery_is_legal(self) -> None:
        story = created()
        story.cas("recover", "r0", state="IN_RECOVERY")
        story.cas("rereplicate", "replicator", state="IN_RECOVERY", fragments=[(0, ("b0", "b1", "b3"))])
        story.cas("recover", "r1", state="IN_RECOVERY")
        assert_holds(story, "C7")

    @pytest.mark.rule("E8")
    def test_another_client_that_closes_an_open_ledger_is_seen(self) -> None:
        story = created()
        story.write(0)
        closed = story.close(0, actor="r0")
        assert_broken(story, "E8", closed, says="closed the ledger while it was OPEN")

    @pytest.mark.rule("E8")
    def test_another_client_that_closes_it_in_recovery_is_right(self) -> None:
        assert_holds(recovered(), "E8")

    @pytest.mark.rule("E8")
    def test_the_writer_closes_it_open(self) -> None:
        story = created()
        story.write(0)
        story.close(0)
        assert not story.checked().finish()


class TestMetadataBeforeUse:
    @pytest.mark.rule("C8")
    def test_adds_to_the_stored_write_set_are_right(self) -> None:
        story = created("4/2/2")
        story.write_all(0, 4)
        assert_holds(story, "C8")

    @pytest.mark.rule("C8")
    def test_an_add_to_a_bookie_whose_ensemble_is_still_being_stored_is_seen(self) -> None:
        story = created()
        early = story.send(0, "b3")
        story.change(0, "b0", "b1", "b3")
        assert_broken(story, "C8", early, says="sent entry 0 to b3")

    @pytest.mark.rule("C8")
    def test_an_add_to_a_member_of_the_ensemble_that_does_not_store_the_entry_is_seen(self) -> None:
        story = created("4/2/2")
        story.send(0, "b2")
        assert_broken(story, "C8", says="is b0, b1")

    @pytest.mark.rule("C8")
    def test_a_writer_that_has_not_heard_of_anothers_change_goes_by_what_was_stored(self) -> None:
        story = created()
        story.cas("rereplicate", "replicator", fragments=[(0, ("b3", "b1", "b2"))])
        story.send(0, "b0", "b1", "b2")
        assert_holds(story, "C8")

    @pytest.mark.rule("C8")
    def test_recovery_adds_go_where_the_recovery_thinks_right(self) -> None:
        story = created()
        story.send(0, "b0")
        story.mark()
        story.fence("b0", "b1")
        story.find(0, "b0")
        story.send(0, "b4", actor="r0", recovery=True)
        assert_holds(story, "C8")

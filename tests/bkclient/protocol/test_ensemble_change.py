"""Ensemble changes by the writer: when, from where, what happens to entries under way, and who may interfere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkclient.errors import Code, MetadataStoreError
from bkclient.metadata.model import Fragment, LedgerMetadata, LedgerState
from bkclient.protocol.ensemble import replace_failed
from tests.bkclient.protocol.harness import LEDGER_ID, Writer

# Where the new fragment starts -------------------------------------------------------------------------------------


@pytest.mark.rule("W-24")
@pytest.mark.rule("T-74")
@pytest.mark.rule("T-76")
def test_a_bookie_that_fails_before_anything_is_confirmed_is_replaced_in_place_with_one_write() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"", b"", b"", b"", b"")

    writer.timeout("0b 1b 2b 3b 4b")
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "adc"}
    assert writer.store.writes == 1
    assert writer.updates == []
    assert writer.state == "open"


@pytest.mark.rule("W-30")
@pytest.mark.rule("T-77")
@pytest.mark.rule("M17")
def test_a_bookie_that_fails_after_a_confirmation_opens_a_fragment_at_the_next_entry() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"", b"")
    writer.ok("0a 0b 0c")

    writer.timeout("1b")
    writer.metadata_arrives()
    writer.ok("1a 1d")
    writer.close()
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "abc", 1: "adc"}
    assert writer.store.metadata.last_entry_id == 1
    assert writer.acked == [0, 1]


@pytest.mark.rule("W-34")
@pytest.mark.rule("W-35")
@pytest.mark.rule("M16")
def test_the_fragment_starts_above_the_last_confirmed_entry_not_at_the_entry_that_failed() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"", b"", b"", b"")
    writer.ok("0a 0b")

    writer.timeout("3c")
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "abc", 1: "abd"}


@pytest.mark.rule("W-31")
@pytest.mark.rule("PL-4")
@pytest.mark.rule("M21")
def test_only_failed_positions_change_and_the_others_keep_their_bookies_and_order() -> None:
    asked: list[tuple[str, int, frozenset[str]]] = []

    def choose(ensemble: tuple[str, ...], position: int, excluded: frozenset[str]) -> str | None:
        asked.append(("".join(ensemble), position, excluded))
        return "xyz"[len(asked) - 1]

    ensemble = replace_failed(LEDGER_ID, tuple("dcba"), {3: "a", 0: "d"}, choose)

    assert "".join(ensemble) == "xcby"
    assert asked == [("dcba", 0, frozenset("ad")), ("xcba", 3, frozenset("ad"))]


@pytest.mark.rule("W-31")
def test_a_position_that_another_bookie_holds_by_now_is_skipped() -> None:
    ensemble = replace_failed(LEDGER_ID, tuple("abc"), {0: "z", 1: "b"}, lambda *_: "d")

    assert "".join(ensemble) == "adc"


@pytest.mark.parametrize("offered", ["a", "b", "c"])
def test_a_placement_that_offers_a_failed_bookie_or_a_member_is_a_defect(offered: str) -> None:
    with pytest.raises(AssertionError, match="placement offered"):
        replace_failed(LEDGER_ID, tuple("abc"), {1: "b"}, lambda *_: offered)


# Entries under way -------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-36")
@pytest.mark.rule("W-38")
def test_pending_entries_are_sent_to_the_new_bookie_where_they_belong_to_the_replaced_position() -> None:
    writer = Writer((3, 2, 2), "abc", spares="d")
    writer.append(b"", b"", b"")
    writer.sent()

    writer.timeout("0b")  # entries 0 and 1 live at position 1, entry 2 does not
    assert writer.sent() == ""
    writer.metadata_arrives()

    assert writer.sent() == "0d 1d"


@pytest.mark.rule("W-11")
def test_an_entry_that_is_sent_again_is_the_same_entry() -> None:
    writer = Writer((2, 2, 2), "ab", spares="c")
    writer.append(b"0", b"1")
    before = [(add, add.last_add_confirmed, add.length) for add in writer.adds.values()]
    writer.ok("0a 0b")

    writer.timeout("1b")
    writer.metadata_arrives()

    assert writer.sent().endswith("1c")
    assert [(add, add.last_add_confirmed, add.length) for add in writer.adds.values()] == before


@pytest.mark.rule("W-10")
def test_entries_appended_during_a_change_go_to_the_old_ensemble_and_again_to_the_new_bookie() -> None:
    writer = Writer((2, 2, 2), "ab", spares="c")
    writer.append()
    writer.timeout("0b")
    writer.sent()

    writer.append()
    assert writer.sent() == "1b 1a"
    writer.metadata_arrives()

    assert writer.sent() == "0c 1c"


@pytest.mark.rule("W-22")
@pytest.mark.rule("W-39")
@pytest.mark.rule("T-84")
@pytest.mark.rule("M19")
def test_nothing_is_confirmed_while_the_ensemble_changes() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"", b"")
    writer.timeout("1c")

    writer.ok("0a 0b 1a 1b")
    assert writer.acked == []
    assert writer.machine.last_add_confirmed == -1
    assert writer.state == "changing"

    writer.metadata_arrives()
    assert writer.store.ensembles == {0: "abd"}
    assert writer.acked == [0, 1]


@pytest.mark.rule("W-22")
@pytest.mark.rule("LAC-1")
def test_entries_sent_during_a_change_carry_the_frozen_lac() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"", b"")
    writer.timeout("1c")
    writer.ok("0a 0b 1a 1b")

    writer.append()

    assert writer.adds[2].last_add_confirmed == -1


@pytest.mark.rule("M20")
def test_no_entry_is_sent_to_or_confirmed_by_a_new_bookie_before_the_metadata_names_it() -> None:
    writer = Writer((1, 1, 1), "a", spares="b")
    writer.append()
    writer.sent()
    writer.timeout("0a")

    writer.ok("0b")
    assert writer.sent() == ""
    assert writer.acked == []

    writer.metadata_arrives()
    assert writer.sent() == "0b"
    writer.ok("0b")
    assert writer.acked == [0]


@pytest.mark.rule("W-39")
@pytest.mark.rule("T-85")
def test_an_entry_outside_the_replaced_position_is_confirmed_when_the_change_ends() -> None:
    writer = Writer((3, 1, 1), "abc", spares="d")
    writer.append(b"", b"")
    writer.timeout("1b")
    writer.ok("0a")
    assert writer.acked == []

    writer.metadata_arrives()

    assert writer.acked == [0]
    assert writer.sent() == "0a 1b 1d"


@pytest.mark.rule("W-39")
def test_a_change_that_turns_out_unnecessary_still_confirms_what_waited_for_it() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"", b"")
    writer.store.edit(lambda metadata: metadata.with_ensemble(0, tuple("abd")))  # a tool was faster
    writer.timeout("1c")
    writer.ok("0a 0b 1a 1b")

    writer.metadata_arrives()

    assert writer.store.writes == 0
    assert writer.acked == [0, 1]
    assert writer.sent().endswith("0d 1d")


# Answers of replaced bookies ---------------------------------------------------------------------------------------


@pytest.mark.rule("W-14")
@pytest.mark.rule("M18")
def test_a_late_acknowledgement_of_a_replaced_bookie_does_not_count() -> None:
    writer = Writer((1, 1, 1), "a", spares="b")
    writer.append()
    writer.timeout("0a")
    writer.metadata_arrives()

    writer.ok("0a")
    assert writer.acked == []

    writer.ok("0b")
    assert writer.acked == [0]


@pytest.mark.rule("W-38")
@pytest.mark.rule("M18")
def test_an_earlier_acknowledgement_of_a_bookie_is_void_once_it_is_replaced() -> None:
    writer = Writer((2, 2, 2), "ab", spares="c")
    writer.append(b"", b"")
    writer.ok("1a")

    writer.timeout("0a")
    writer.metadata_arrives()
    writer.ok("0c 0b 1b")
    assert writer.acked == [0]

    writer.ok("1c")
    assert writer.acked == [0, 1]


@pytest.mark.rule("W-38")
@pytest.mark.rule("M18")
@pytest.mark.rule("M19")
def test_a_quorum_that_includes_the_replaced_bookie_is_lost_with_it() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"", b"")
    writer.ok("1a 1b")  # entry 1 has its quorum, waiting for entry 0

    writer.timeout("0b")
    writer.ok("0a 0b")  # the failed bookie had it after all; but it is leaving
    writer.metadata_arrives()
    assert writer.acked == []

    writer.ok("0c 1c")
    assert writer.acked == [0, 1]


@pytest.mark.rule("W-14")
def test_a_late_failure_of_a_replaced_bookie_does_not_change_the_ensemble_again() -> None:
    writer = Writer((3, 3, 2), "abc", spares="de")
    writer.append(b"", b"")
    writer.timeout("0b")
    writer.metadata_arrives()

    writer.timeout("1b")
    writer.answer("0b 1b", Code.LEDGER_FENCED)

    assert writer.updates == []
    assert writer.machine.is_writable


@pytest.mark.rule("W-14")
def test_a_replaced_bookie_that_comes_back_at_another_position_counts_there() -> None:
    writer = Writer((2, 2, 2), "ab", spares="ca")
    writer.append()
    writer.timeout("0a")
    writer.metadata_arrives()  # c b
    writer.timeout("0b")
    writer.metadata_arrives()  # c a
    assert writer.store.ensembles == {0: "ca"}

    writer.ok("0c 0a")

    assert writer.acked == [0]


@pytest.mark.rule("M18")
def test_whoever_replaced_a_bookie_acknowledgements_at_its_position_are_void() -> None:
    writer = Writer((3, 3, 3), "abc", spares="d")
    writer.append()
    writer.ok("0c")
    writer.timeout("0a")
    writer.store.edit(lambda metadata: metadata.with_ensemble(0, tuple("abe")))  # somebody else replaces c

    writer.metadata_arrives()
    assert writer.store.ensembles == {0: "dbe"}
    assert writer.sent() == "0a 0b 0c 0d 0e"
    writer.ok("0b 0d")
    assert writer.acked == []

    writer.ok("0e")
    assert writer.acked == [0]


# Several failures --------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-28")
@pytest.mark.rule("W-32")
@pytest.mark.rule("T-75")
def test_a_second_bookie_that_fails_during_a_change_is_replaced_by_a_second_pass() -> None:
    writer = Writer((3, 3, 2), "abc", spares="de")
    writer.append(b"", b"", b"")
    writer.timeout("0a")
    writer.timeout("0b 1b")
    assert len(writer.updates) == 1

    writer.metadata_arrives()
    assert writer.state == "changing"
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "dec"}
    assert writer.store.writes == 2
    assert writer.sent().endswith("0d 0e 1d 1e 2d 2e")
    assert writer.state == "open"


@pytest.mark.rule("W-28")
def test_everything_that_fails_on_a_dying_bookie_takes_one_change() -> None:
    writer = Writer((3, 3, 2), "abc", spares="def")
    writer.append(*(b"" for _ in range(20)))

    writer.timeout(" ".join(f"{i}b" for i in range(10)))
    writer.metadata_arrives()
    writer.timeout(" ".join(f"{i}b" for i in range(10, 20)))

    assert writer.store.writes == 1
    assert writer.updates == []


@pytest.mark.rule("W-16")
@pytest.mark.rule("W-28")
def test_a_failure_after_the_quorum_during_a_change_is_part_of_it() -> None:
    writer = Writer((3, 3, 2), "abc", spares="de")
    writer.append(b"", b"")
    writer.timeout("1a")
    writer.ok("0b 0c")
    writer.timeout("0a")  # leaving anyway
    writer.ok("1b 1c")
    writer.answer("0b", Code.WRITE)

    writer.metadata_arrives()
    assert writer.state == "changing"
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "dec"}
    assert writer.acked == []
    writer.ok("0d 1d")
    assert writer.acked == [0, 1]


@pytest.mark.rule("M56")
def test_entries_are_sent_again_to_every_position_that_failed_even_if_its_bookie_is_back() -> None:
    writer = Writer((2, 2, 2), "ab", spares="cd")
    writer.append()
    writer.timeout("0a")
    writer.timeout("0b")
    writer.metadata_arrives()  # c b
    writer.store.edit(lambda metadata: metadata.with_ensemble(0, tuple("ab")))
    writer.sent()

    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "ac"}
    assert writer.sent() == "0a 0c"


@pytest.mark.rule("M56")
def test_an_ensemble_that_is_as_before_after_a_change_gets_the_failed_entries_again() -> None:
    writer = Writer((2, 2, 2), "ab", spares="cd")
    writer.append()
    writer.timeout("0b")
    update = writer.updates.pop()
    writer.store.finish(update)
    writer.store.edit(lambda metadata: metadata.with_ensemble(0, tuple("ab")))
    writer.machine.local.value = writer.store.value
    writer.sent()

    writer.machine.on_update_done(update)

    assert writer.sent() == "0b"
    writer.ok("0a 0b")
    assert writer.acked == [0]


# Failures after the ack quorum -------------------------------------------------------------------------------------


@pytest.mark.rule("W-16")
@pytest.mark.rule("W-33")
@pytest.mark.rule("T-59")
def test_a_failure_after_the_quorum_is_acted_upon_by_the_next_append() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.ok("0a 0b")
    writer.timeout("0c")
    assert writer.updates == []

    writer.append()
    assert writer.sent() == "0a 0b 0c 1b 1c 1a"
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "abc", 1: "abd"}
    assert writer.sent() == "1d"


@pytest.mark.rule("W-33")
def test_without_another_append_a_failure_after_the_quorum_is_left_to_re_replication() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.ok("0a 0b")
    writer.timeout("0c")

    writer.close()
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "abc"}
    assert writer.closed == [None]


@pytest.mark.rule("W-33")
def test_a_failure_after_the_quorum_of_an_entry_that_still_waits_for_its_turn_is_remembered() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"", b"")
    writer.ok("1a 1b")
    writer.timeout("1c")
    assert writer.updates == []

    writer.ok("0a 0b")
    writer.append()
    writer.metadata_arrives()

    assert writer.acked == [0, 1]
    assert writer.store.ensembles == {0: "abc", 2: "abd"}


@pytest.mark.rule("W-28")
@pytest.mark.rule("W-33")
def test_failures_after_the_quorum_are_merged_into_the_next_change() -> None:
    writer = Writer((3, 3, 2), "abc", spares="de")
    writer.append(b"", b"")
    writer.ok("0a 0b")
    writer.timeout("0c")

    writer.timeout("1a")
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "abc", 1: "dbe"}
    assert writer.store.writes == 1


@pytest.mark.rule("W-33")
def test_a_late_failure_of_a_bookie_that_was_replaced_meanwhile_is_forgotten() -> None:
    writer = Writer((3, 3, 2), "abc", spares="de")
    writer.append(b"", b"")
    writer.ok("0a 0b")
    writer.timeout("1c")
    writer.metadata_arrives()
    assert writer.store.ensembles == {0: "abc", 1: "abd"}

    writer.timeout("0c")
    writer.append()

    assert writer.updates == []


@pytest.mark.rule("W-16")
@pytest.mark.rule("W-33")
def test_a_fenced_answer_after_the_quorum_ends_the_writer_at_the_next_append() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.ok("0a 0b")
    writer.store.edit(lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))
    writer.answer("0c", Code.LEDGER_FENCED)

    writer.append()
    writer.metadata_arrives()

    assert writer.failed == [(1, Code.LEDGER_FENCED)]
    assert writer.store.metadata.state is LedgerState.IN_RECOVERY


@pytest.mark.rule("W-16")
def test_failures_reported_to_a_writer_that_has_ended_are_ignored() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.ok("0a 0b")
    writer.close()
    writer.metadata_arrives()

    writer.timeout("0c")

    assert writer.updates == []


# Too few bookies, too many changes ---------------------------------------------------------------------------------


@pytest.mark.rule("W-31")
@pytest.mark.rule("W-32")
@pytest.mark.rule("T-78")
def test_without_a_spare_bookie_the_entry_fails_and_the_ledger_is_closed_empty() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append(b"lost")
    writer.timeout("0a")
    writer.timeout("0b")

    writer.metadata_arrives()
    assert writer.failed == [(0, Code.NOT_ENOUGH_BOOKIES)]
    assert "a" in str(writer.errors[0])
    assert writer.errors[0].ledger_id == LEDGER_ID

    writer.metadata_arrives()
    assert writer.closed == [None]
    assert writer.store.ensembles == {0: "abc"}
    assert (writer.store.metadata.last_entry_id, writer.store.metadata.length) == (-1, 0)


@pytest.mark.rule("T-79")
@pytest.mark.rule("T-97")
def test_without_a_spare_bookie_the_ledger_ends_at_its_last_confirmed_entry() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append(b"kept", b"lost")
    writer.ok("0a 0b 0c")
    writer.timeout("1a")

    writer.metadata_arrives()
    writer.metadata_arrives()

    assert writer.failed == [(1, Code.NOT_ENOUGH_BOOKIES)]
    assert (writer.store.metadata.last_entry_id, writer.store.metadata.length) == (0, 4)
    assert (writer.machine.last_add_confirmed, writer.machine.length) == (0, 4)


@pytest.mark.rule("W-40")
def test_with_fewer_spares_than_failures_the_change_is_partial_and_goes_on_with_an_ack_quorum() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"", b"")
    writer.ok("0a 0b")
    writer.timeout("0c")
    writer.timeout("1a")  # c and a fail, d is the only spare

    writer.metadata_arrives()
    assert writer.store.ensembles == {0: "abc", 1: "dbc"}
    assert writer.sent().endswith("1d 1c")

    writer.ok("1d 1b")
    assert writer.acked == [0, 1]


@pytest.mark.rule("W-40")
def test_an_entry_that_needs_a_bookie_nobody_could_replace_fails_instead_of_waiting_for_ever() -> None:
    writer = Writer((3, 3, 3), "abc", spares="d")
    writer.append()
    writer.timeout("0a")
    writer.timeout("0c")
    writer.metadata_arrives()  # first pass: a is replaced by d
    assert writer.store.ensembles == {0: "dbc"}

    writer.metadata_arrives()  # second pass: nobody is left to replace c

    assert writer.failed == [(0, Code.NOT_ENOUGH_BOOKIES)]


@pytest.mark.rule("W-40")
def test_a_bookie_that_nobody_could_replace_gets_the_entry_again_and_may_fail_it_again() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"", b"")
    writer.ok("0a 0b")
    writer.timeout("0c")
    writer.timeout("1a")
    writer.metadata_arrives()
    assert writer.sent().endswith("1d 1c")

    writer.timeout("1c")
    writer.metadata_arrives()

    assert writer.failed == [(1, Code.NOT_ENOUGH_BOOKIES)]


@pytest.mark.rule("W-29")
@pytest.mark.rule("T-96")
def test_after_the_allowed_number_of_changes_the_next_failure_ends_the_writer() -> None:
    writer = Writer((1, 1, 1), "a", spares="bcd", max_ensemble_changes=2)
    writer.append()
    writer.timeout("0a")
    writer.metadata_arrives()
    writer.timeout("0b")
    writer.metadata_arrives()
    assert writer.store.ensembles == {0: "c"}

    writer.timeout("0c")

    assert writer.failed == [(0, Code.WRITE)]
    assert "2 ensemble changes" in str(writer.errors[0])
    writer.metadata_arrives()
    assert writer.closed == [None]


@pytest.mark.rule("W-29")
def test_further_passes_of_one_change_count_too() -> None:
    writer = Writer((2, 2, 2), "ab", spares="cd", max_ensemble_changes=1)
    writer.append()
    writer.timeout("0a 0b")

    writer.metadata_arrives()

    assert writer.failed == [(0, Code.WRITE)]
    assert writer.store.ensembles == {0: "cb"}


@pytest.mark.rule("W-29")
@pytest.mark.rule("W-33")
def test_an_append_that_would_begin_one_change_too_many_fails_at_once_and_is_not_sent() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d", max_ensemble_changes=0)
    writer.append(b"zero")
    writer.ok("0a 0b")
    writer.timeout("0c")
    writer.sent()

    writer.append(b"one")

    assert writer.failed == [(1, Code.WRITE)]
    assert writer.sent() == ""
    assert writer.machine.length == 4
    assert writer.machine.last_add_pushed == 0
    writer.metadata_arrives()
    assert (writer.store.metadata.last_entry_id, writer.store.metadata.length) == (0, 4)


# Interference ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-32")
@pytest.mark.rule("W-50")
@pytest.mark.rule("T-81")
@pytest.mark.rule("M28")
def test_a_ledger_that_somebody_else_closed_stays_as_closed_and_its_writer_learns_so() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"zero", b"one")
    writer.ok("0a 0b")
    writer.store.edit(lambda metadata: metadata.closed(1, 7))

    writer.timeout("1a")
    writer.metadata_arrives()

    assert writer.failed == [(1, Code.LEDGER_CLOSED)]
    assert writer.store.metadata == writer.machine.metadata
    assert (writer.machine.last_add_confirmed, writer.machine.last_add_pushed, writer.machine.length) == (1, 1, 7)
    writer.metadata_arrives()
    assert writer.closed == [None]
    assert writer.store.writes == 0


@pytest.mark.rule("W-32")
@pytest.mark.rule("W-41")
@pytest.mark.rule("W-44")
@pytest.mark.rule("REC-4")
@pytest.mark.rule("REC-43")
@pytest.mark.rule("T-82")
@pytest.mark.rule("M28")
def test_a_writer_that_finds_its_ledger_in_recovery_fails_its_entries_and_leaves_the_end_to_the_other_client() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"", b"")
    writer.store.edit(lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))

    writer.timeout("1a")
    writer.ok("0b 0c")
    writer.metadata_arrives()

    assert writer.failed == [(0, Code.LEDGER_FENCED), (1, Code.LEDGER_FENCED)]
    assert writer.updates == []
    assert writer.closed == []
    assert writer.store.metadata.state is LedgerState.IN_RECOVERY
    assert writer.store.ensembles == {0: "abc"}
    assert not writer.machine.is_writable
    assert writer.machine.refusal().code is Code.LEDGER_FENCED


@pytest.mark.rule("W-44")
@pytest.mark.rule("W-54")
def test_a_writer_that_found_its_ledger_in_recovery_may_still_close_it_where_its_confirmations_end() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"zero", b"one")
    writer.ok("0a 0b")
    writer.store.edit(lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))
    writer.timeout("1a")
    writer.metadata_arrives()

    writer.close()
    writer.metadata_arrives()

    assert writer.closed == [None]
    assert (writer.store.metadata.last_entry_id, writer.store.metadata.length) == (0, 4)
    assert writer.machine.refusal().code is Code.LEDGER_CLOSED


@pytest.mark.rule("W-30")
@pytest.mark.rule("T-83")
def test_a_change_that_conflicts_with_re_replication_of_an_older_fragment_keeps_both() -> None:
    writer = Writer((3, 3, 2), "abc", spares="de")
    writer.append(b"", b"")
    writer.ok("0a 0b 0c")
    writer.timeout("1a")
    writer.metadata_arrives()
    writer.append()
    writer.ok("1d 1b 2b 2d")

    def re_replicate(metadata: LedgerMetadata) -> LedgerMetadata:
        return replace(metadata, fragments=(Fragment(0, tuple("xbc")), *metadata.fragments[1:]))

    writer.append()
    writer.timeout("3b")
    writer.store.edit(re_replicate)
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "xbc", 1: "dbc", 3: "dec"}


@pytest.mark.rule("M31")
def test_a_change_whose_outcome_is_unknown_is_found_to_have_taken_effect() -> None:
    writer = Writer((3, 3, 2), "abc", spares="de")
    writer.append()
    writer.timeout("0b")
    update = writer.updates.pop()

    writer.store.carry_out(update, lose_answer=True)
    writer.store.finish(update)
    writer.machine.on_update_done(update)

    assert writer.store.ensembles == {0: "adc"}
    assert writer.store.writes == 1
    assert writer.sent().endswith("0d")
    writer.ok("0a 0d")
    assert writer.acked == [0]


@pytest.mark.rule("W-32")
@pytest.mark.rule("W-49")
def test_a_store_that_fails_the_change_fails_the_entries_and_the_writer_tries_to_close() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.timeout("0b")
    update = writer.updates.pop()

    update.on_error(MetadataStoreError("down"))
    writer.machine.on_update_done(update)
    assert writer.failed == [(0, Code.METADATA_STORE)]

    writer.metadata_arrives()
    assert writer.closed == [None]
    assert writer.store.metadata.is_closed


@pytest.mark.rule("W-49")
@pytest.mark.rule("DEL-3")
def test_a_writer_of_a_deleted_ledger_learns_so_from_its_next_change() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.store.is_deleted = True

    writer.timeout("0b")
    writer.metadata_arrives()
    assert writer.failed == [(0, Code.NO_SUCH_LEDGER)]

    writer.metadata_arrives()
    assert writer.closed == [Code.NO_SUCH_LEDGER]


@pytest.mark.rule("W-30")
def test_a_fragment_that_starts_above_the_next_entry_is_somebody_elses_defect() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append(b"", b"")
    writer.store.edit(lambda metadata: metadata.with_ensemble(5, tuple("abc")))

    writer.timeout("0b")
    writer.metadata_arrives()

    assert writer.failed == [(0, Code.UNEXPECTED_CONDITION), (1, Code.UNEXPECTED_CONDITION)]


@pytest.mark.rule("W-56")
def test_a_change_that_ends_after_the_writer_has_ended_has_no_effect_on_it() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.timeout("0b")
    writer.answer("0a", Code.LEDGER_FENCED)
    assert writer.failed == [(0, Code.LEDGER_FENCED)]
    writer.sent()

    writer.metadata_arrives()  # the change is stored
    assert writer.sent() == ""
    writer.metadata_arrives()  # the close conflicts with it, reads, and closes

    assert writer.closed == [None]
    assert writer.store.ensembles == {0: "adc"}
    assert writer.store.metadata.last_entry_id == -1


@pytest.mark.rule("W-56")
def test_a_change_that_finds_the_ledger_closed_by_its_own_writer_writes_nothing() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.timeout("0b")
    writer.close()
    change, close = writer.updates

    writer.store.finish(close)
    writer.machine.on_update_done(close)
    writer.store.finish(change)
    writer.machine.on_update_done(change)

    assert writer.closed == [None]
    assert writer.failed == [(0, Code.LEDGER_CLOSED)]
    assert writer.store.ensembles == {0: "abc"}
    assert writer.store.writes == 1


@pytest.mark.rule("W-43")
def test_a_fenced_writer_closes_over_recovery_at_its_own_end() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append(b"zero", b"one")
    writer.ok("0a 0b")
    writer.store.edit(lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))

    writer.answer("1a", Code.LEDGER_FENCED)
    writer.metadata_arrives()

    assert writer.failed == [(1, Code.LEDGER_FENCED)]
    assert writer.closed == [None]
    assert (writer.store.metadata.last_entry_id, writer.store.metadata.length) == (0, 4)

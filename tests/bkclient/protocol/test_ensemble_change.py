"""One ensemble change by the writer: where it starts, and what becomes of entries and answers under way."""

from __future__ import annotations

import pytest

from bkclient.errors import Code, NotEnoughBookies, UnexpectedCondition
from bkclient.ledger import BookieId, Ensemble
from bkclient.protocol.ensemble import replace_failed
from scenarios.machines.store import LEDGER_ID
from tests.bkclient.protocol.harness import Writer

# Where the new fragment starts --------------------------------------------------------------------------------------


@pytest.mark.rule("W-24")
@pytest.mark.behaviour("T-74")
@pytest.mark.behaviour("T-76")
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
@pytest.mark.behaviour("T-77")
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


@pytest.mark.rule("W-31")
def test_a_position_that_cannot_be_filled_keeps_nobody_from_filling_the_next() -> None:
    def only_at_the_last(_ensemble: Ensemble, position: int, _excluded: frozenset[BookieId]) -> BookieId | None:
        return "d" if position == 2 else None

    ensemble = replace_failed(LEDGER_ID, tuple("abc"), {0: "a", 1: "b", 2: "c"}, only_at_the_last)

    assert ensemble == tuple("abd")


@pytest.mark.rule("PL-4")
@pytest.mark.parametrize("offered", ["a", "b", "c"])
def test_a_placement_that_offers_a_failed_bookie_or_a_member_fails_the_change_and_is_named(offered: str) -> None:
    with pytest.raises(UnexpectedCondition, match="rack-aware offered") as caught:
        replace_failed(LEDGER_ID, tuple("abc"), {1: "b"}, lambda *_: offered, policy="rack-aware")

    assert (caught.value.ledger_id, caught.value.bookie_id) == (LEDGER_ID, offered)


@pytest.mark.rule("PL-4")
def test_a_placement_that_offers_what_it_must_not_ends_the_writer_and_not_the_program() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d", placement_policy="random")
    writer.replace_bookie = lambda *_: "a"  # type: ignore[method-assign]
    writer.append()

    writer.timeout("0b")
    writer.metadata_arrives()

    assert writer.failed == [(0, Code.UNEXPECTED_CONDITION)]
    assert "random offered a member of the ensemble in place of b" in str(writer.errors[0])
    writer.metadata_arrives()
    assert writer.closed == [None]


# Entries under way --------------------------------------------------------------------------------------------------


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


@pytest.mark.rule("W-37")
def test_an_entry_that_is_appended_after_the_change_goes_to_the_new_ensemble_only() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.timeout("0b")
    writer.metadata_arrives()
    writer.sent()

    writer.append()

    assert writer.sent() == "1d 1c 1a"


@pytest.mark.rule("W-22")
@pytest.mark.rule("W-39")
@pytest.mark.behaviour("T-84")
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
@pytest.mark.behaviour("T-85")
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


# Answers of replaced bookies ----------------------------------------------------------------------------------------


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


@pytest.mark.rule("DS-8")
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


@pytest.mark.rule("W-31")
def test_a_shortage_of_which_no_failure_is_known_has_no_cause() -> None:
    with pytest.raises(
        NotEnoughBookies, match="no writable bookie is left to replace b in the ensemble a, b"
    ) as caught:
        replace_failed(LEDGER_ID, tuple("ab"), {1: "b"}, lambda *_: None)
    assert caught.value.__cause__ is None

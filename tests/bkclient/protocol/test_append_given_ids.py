"""Writers whose caller chooses the ids of entries: what is refused, the order in which entries are done, and the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import ArgumentError, Code, DuplicateEntryId, IllegalOperation
from bkclient.ledger import LedgerState
from bkclient.protocol.append_options import MAX_ENTRY_ID
from scenarios.machines.store import LEDGER_ID
from tests.bkclient.protocol.harness import Writer


def advanced(
    sizes: tuple[int, int, int] = (3, 3, 2), ensemble: str = "abc", *, spares: str = "", deferred_sync: bool = False
) -> Writer:
    return Writer(sizes, ensemble, spares=spares, entry_ids_given=True, deferred_sync=deferred_sync)


# What is accepted ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-5")
@pytest.mark.behaviour("T-22")
def test_an_entry_goes_under_its_callers_id_to_the_write_set_of_that_id() -> None:
    writer = advanced((3, 2, 2), "abc")

    writer.append_at(4, 0)

    assert writer.sent() == "4b 4c 0a 0b"
    assert sorted(writer.adds) == [0, 4]


@pytest.mark.rule("W-10")
@pytest.mark.rule("LAC-1")
def test_an_entry_carries_what_was_confirmed_when_it_was_sent() -> None:
    writer = advanced((1, 1, 1), "a")
    writer.append_at(0, 1)
    writer.ok("0a 1a")

    entry = writer.machine.append_at(7, b"x")

    assert (entry.last_add_confirmed, entry.payload) == (1, b"x")


@pytest.mark.rule("W-5")
@pytest.mark.rule("W-6")
@pytest.mark.rule("H-2")
@pytest.mark.behaviour("T-70")
def test_an_id_that_is_pending_is_refused_and_the_first_entry_is_unharmed() -> None:
    writer = advanced()
    writer.append_at(0, payload=b"first")
    sent = writer.sent()

    with pytest.raises(DuplicateEntryId) as caught:
        writer.append_at(0, payload=b"second")

    assert (caught.value.ledger_id, caught.value.entry_id) == (LEDGER_ID, 0)
    assert sent == "0a 0b 0c"
    assert writer.sent() == ""
    assert (writer.machine.length, writer.machine.pending_count) == (5, 1)
    writer.ok("0a 0b")
    assert writer.acked == [0]


@pytest.mark.rule("W-5")
@pytest.mark.behaviour("T-70")
@pytest.mark.parametrize("entry_id", [0, 1, -1, -7])
def test_an_id_that_is_acknowledged_or_negative_is_a_duplicate(entry_id: int) -> None:
    writer = advanced((1, 1, 1), "a")
    writer.append_at(0, 1)
    writer.ok("0a 1a")

    with pytest.raises(DuplicateEntryId):
        writer.append_at(entry_id)

    assert writer.acked == [0, 1]


@pytest.mark.rule("W-6")
@pytest.mark.rule("H-3")
def test_an_id_that_is_acknowledged_and_not_yet_forced_is_a_duplicate_too() -> None:
    writer = advanced((1, 1, 1), "a", deferred_sync=True)
    writer.append_at(0)
    writer.ok("0a")
    assert (writer.machine.last_add_confirmed, writer.machine.last_add_acknowledged) == (-1, 0)

    with pytest.raises(DuplicateEntryId):
        writer.append_at(0)

    writer.append_at(1)
    writer.ok("1a")
    assert writer.acked == [0, 1]


@pytest.mark.rule("W-5")
def test_ids_reach_to_the_last_one_that_the_wire_can_carry() -> None:
    writer = advanced((1, 1, 1), "a")

    writer.append_at(MAX_ENTRY_ID)
    with pytest.raises(ArgumentError, match=r"2\*\*63"):
        writer.append_at(MAX_ENTRY_ID + 1)

    assert writer.machine.last_add_pushed == MAX_ENTRY_ID
    assert writer.machine.pending_count == 1


@pytest.mark.rule("API-14")
@pytest.mark.behaviour("T-62")
def test_a_writer_that_is_given_ids_takes_no_entry_without_one() -> None:
    writer = advanced()

    with pytest.raises(IllegalOperation):
        writer.append()

    assert (writer.sent(), writer.machine.pending_count) == ("", 0)


@pytest.mark.rule("API-14")
@pytest.mark.behaviour("T-63")
def test_an_ordinary_writer_takes_no_entry_with_an_id() -> None:
    writer = Writer()

    with pytest.raises(IllegalOperation):
        writer.append_at(0)

    assert (writer.sent(), writer.machine.pending_count) == ("", 0)


@pytest.mark.rule("W-3")
@pytest.mark.behaviour("T-66")
def test_a_closed_writer_refuses_given_ids_as_closed() -> None:
    writer = advanced()
    writer.close()

    assert not writer.machine.is_writable
    assert writer.machine.refusal().code is Code.LEDGER_CLOSED
    with pytest.raises(AssertionError, match="refuses"):
        writer.append_at(0)


# Order --------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-21")
@pytest.mark.rule("W-23")
@pytest.mark.behaviour("T-61")
def test_entries_out_of_order_are_reported_in_order_as_gaps_are_filled() -> None:
    writer = advanced((1, 1, 1), "a")
    writer.append_at(3, 1)
    writer.ok("3a 1a")
    assert writer.acked == []

    writer.append_at(0)
    writer.ok("0a")
    assert writer.acked == [0, 1]

    writer.append_at(2)
    writer.ok("2a")
    assert writer.acked == [0, 1, 2, 3]
    assert writer.machine.last_add_confirmed == 3


@pytest.mark.rule("W-21")
@pytest.mark.rule("H-4")
def test_entry_0_waits_for_nobody_and_everybody_waits_for_entry_0() -> None:
    writer = advanced((1, 1, 1), "a")
    writer.append_at(1)
    writer.ok("1a")
    assert writer.acked == []

    writer.append_at(0)
    writer.ok("0a")

    assert writer.acked == [0, 1]


@pytest.mark.rule("W-5")
@pytest.mark.rule("W-21")
@given(st.permutations(range(6)), st.data())
def test_whatever_the_order_of_ids_and_answers_each_entry_is_reported_once_in_order(
    ids: list[int], data: st.DataObject
) -> None:
    writer = advanced((3, 2, 2), "abc")
    writer.append_at(*ids)
    answers = writer.sent().split()

    writer.ok(" ".join(data.draw(st.permutations(answers))))

    assert writer.acked == list(range(6))
    assert writer.machine.length == 6


# Gaps ---------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-23")
@pytest.mark.rule("W-51")
@pytest.mark.behaviour("T-69")
def test_entries_above_a_gap_fail_at_close_and_the_ledger_ends_before_the_gap() -> None:
    writer = advanced((1, 1, 1), "a")
    for entry_id, payload in ((0, b"zero"), (2, b"lost"), (4, b"lost too")):
        writer.append_at(entry_id, payload=payload)
    writer.ok("0a 2a 4a")

    writer.close()
    writer.metadata_arrives()

    assert writer.acked == [0]
    assert writer.failed == [(2, Code.LEDGER_CLOSED), (4, Code.LEDGER_CLOSED)]
    assert writer.store.metadata.state is LedgerState.CLOSED
    assert (writer.store.metadata.last_entry_id, writer.store.metadata.length) == (0, 4)
    assert (writer.machine.last_add_pushed, writer.machine.length) == (0, 4)


@pytest.mark.rule("W-23")
def test_entries_that_fail_above_a_gap_are_reported_in_id_order_however_they_came() -> None:
    writer = advanced((1, 1, 1), "a")
    writer.append_at(5, 2, 9)

    writer.close()

    assert [entry_id for entry_id, _ in writer.failed] == [2, 5, 9]


@pytest.mark.rule("W-36")
@pytest.mark.rule("W-38")
@pytest.mark.behaviour("T-68")
def test_an_entry_far_ahead_with_its_quorum_is_written_again_to_bookies_that_replace_its_own() -> None:
    writer = advanced((3, 3, 2), "abc", spares="def")
    writer.append_at(0, 1, 2, 3, 4, 10)
    writer.ok(" ".join(f"{i}{bookie}" for i in (0, 1, 2, 3, 4, 10) for bookie in "abc"))
    assert writer.acked == [0, 1, 2, 3, 4]
    writer.append_at(5)
    writer.sent()

    writer.timeout("5a 5b 5c")
    writer.metadata_arrives()
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "abc", 5: "def"}
    assert writer.sent() == "5d 5e 5f 10d 10e 10f"
    writer.ok("5d 5e 10d")
    writer.append_at(6, 7, 8, 9)
    writer.ok("6d 6e 7d 7e 8d 8e 9d 9e")
    assert writer.acked == list(range(10))  # entry 10 needs an ack quorum of its new bookies
    writer.ok("10e")
    assert writer.acked == list(range(11))


@pytest.mark.rule("W-28")
@pytest.mark.behaviour("T-67")
@given(st.permutations(range(8)), st.integers(0, 7))
def test_given_ids_survive_the_failure_of_a_bookie_at_any_moment(ids: list[int], moment: int) -> None:
    writer = advanced((2, 2, 2), "ab", spares="c")
    for entry_id in ids[:moment]:
        writer.append_at(entry_id)
        writer.ok(f"{entry_id}a {entry_id}b")
    writer.append_at(ids[moment])
    writer.timeout(f"{ids[moment]}b")
    for entry_id in ids[moment + 1 :]:
        writer.append_at(entry_id)
        writer.ok(f"{entry_id}a {entry_id}b")
    writer.metadata_arrives()

    writer.ok(" ".join(f"{entry_id}{bookie}" for entry_id in range(8) for bookie in "ac"))

    assert writer.acked == list(range(8))
    assert writer.failed == []


# Lengths ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-6")
@pytest.mark.rule("H-4")
def test_the_length_in_a_header_is_that_of_all_entries_handed_in_so_far_up_to_it() -> None:
    writer = advanced((1, 1, 1), "a")
    writer.append_at(0, payload=b"1")
    writer.ok("0a")
    writer.append_at(3, payload=b"1000")
    writer.append_at(1, payload=b"10")
    writer.append_at(2, payload=b"100")
    writer.append_at(4, payload=b"10000")

    assert {entry_id: add.length for entry_id, add in writer.adds.items()} == {0: 1, 3: 5, 1: 3, 2: 6, 4: 15}
    assert writer.machine.length == 15


@pytest.mark.rule("W-6")
@given(st.permutations(range(5)))
def test_the_last_entry_that_is_handed_in_after_all_others_tells_the_exact_length(ids: list[int]) -> None:
    writer = advanced((1, 1, 1), "a")
    for entry_id in [*ids, 5]:
        writer.append_at(entry_id, payload=b"x" * (entry_id + 1))

    assert writer.adds[5].length == writer.machine.length == 21


@pytest.mark.rule("W-6")
@pytest.mark.rule("H-4")
def test_lap_is_the_highest_id_handed_in() -> None:
    writer = advanced((1, 1, 1), "a")
    seen = []
    for entry_id in (7, 3, 9):
        writer.append_at(entry_id)
        seen.append(writer.machine.last_add_pushed)

    assert seen == [7, 7, 9]


# Failures -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-29")
@pytest.mark.rule("W-33")
def test_an_entry_that_would_begin_one_change_too_many_fails_under_its_own_id() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d", entry_ids_given=True, max_ensemble_changes=0)
    writer.append_at(0)
    writer.ok("0a 0b")
    writer.timeout("0c")
    writer.sent()

    writer.append_at(4)

    assert writer.failed == [(4, Code.WRITE)]
    assert (writer.sent(), writer.machine.length, writer.machine.last_add_pushed) == ("", 1, 0)


@pytest.mark.rule("W-33")
def test_a_late_failure_is_acted_upon_by_the_next_entry_whatever_its_id() -> None:
    writer = advanced((3, 3, 2), "abc", spares="d")
    writer.append_at(0)
    writer.ok("0a 0b")
    writer.timeout("0c")

    writer.append_at(5)
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "abc", 1: "abd"}

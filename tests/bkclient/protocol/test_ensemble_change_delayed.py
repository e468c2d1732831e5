"""Delayed ensemble changes: a writer that goes on with fewer copies until an entry cannot reach its ack quorum."""

from __future__ import annotations

import pytest

from bkclient.errors import Code
from tests.bkclient.protocol.harness import Writer

FIVE = (5, 5, 3)


def delaying(sizes: tuple[int, int, int] = FIVE, ensemble: str = "abcde", *, spares: str = "") -> Writer:
    return Writer(sizes, ensemble, spares=spares, delay_ensemble_change=True)


def write(writer: Writer, entry_id: int, *, ok: str = "", failing: str = "") -> None:
    """One entry that some bookies fail and then others store."""
    writer.append()
    writer.timeout(" ".join(f"{entry_id}{bookie_id}" for bookie_id in failing))
    writer.ok(" ".join(f"{entry_id}{bookie_id}" for bookie_id in ok))


@pytest.mark.rule("W-25")
@pytest.mark.rule("DS-7")
@pytest.mark.behaviour("T-86")
def test_two_dead_bookies_of_five_change_nothing_while_three_suffice() -> None:
    writer = delaying(spares="fgh")

    for entry_id in range(5):
        write(writer, entry_id, failing="ab", ok="cde")

    assert writer.acked == [0, 1, 2, 3, 4]
    assert (writer.updates, writer.state) == ([], "open")


@pytest.mark.rule("W-25")
@pytest.mark.rule("DS-7")
@pytest.mark.behaviour("T-87")
def test_the_third_dead_bookie_has_all_three_replaced_at_once_and_later_entries_have_five_copies() -> None:
    writer = delaying(spares="fgh")
    write(writer, 0, failing="ab", ok="cde")
    writer.sent()

    writer.append(b"")
    writer.ok("1d")
    writer.timeout("1a 1b")
    assert writer.updates == []
    writer.timeout("1c")
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "abcde", 1: "fghde"}
    assert writer.store.writes == 1
    assert writer.sent() == "1b 1c 1d 1e 1a 1f 1g 1h"
    writer.ok("1f 1e")
    assert writer.acked == [0, 1]
    writer.append()
    assert writer.sent() == "2h 2d 2e 2f 2g"


@pytest.mark.rule("W-25")
@pytest.mark.rule("W-31")
@pytest.mark.rule("W-40")
@pytest.mark.behaviour("T-88")
def test_one_spare_for_three_failures_is_taken_and_writing_goes_on() -> None:
    writer = delaying(spares="f")
    writer.append()
    writer.timeout("0a 0b 0c")
    writer.metadata_arrives()
    assert writer.store.ensembles == {0: "fbcde"}

    writer.timeout("0b 0c")  # sent to them again, in vain
    writer.ok("0d 0e 0f")
    for entry_id in range(1, 4):
        write(writer, entry_id, failing="bc", ok="def")

    assert writer.acked == [0, 1, 2, 3]
    assert (writer.updates, writer.state) == ([], "open")


@pytest.mark.rule("W-25")
@pytest.mark.behaviour("T-89")
def test_five_dead_bookies_and_five_spares_make_one_new_ensemble() -> None:
    writer = delaying(spares="fghij")
    writer.append()

    writer.timeout("0a 0b 0c 0d 0e")
    writer.metadata_arrives()
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "fghij"}
    writer.ok("0f 0g 0h")
    assert writer.acked == [0]


@pytest.mark.rule("W-25")
@pytest.mark.behaviour("T-90")
def test_a_read_only_bookie_is_replaced_at_once() -> None:
    writer = delaying(spares="fg")
    writer.append()

    writer.answer("0a", Code.WRITE_ON_READ_ONLY_BOOKIE)
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "fbcde"}


@pytest.mark.rule("W-25")
@pytest.mark.behaviour("T-90")
def test_a_read_only_bookie_takes_an_earlier_failure_of_the_entry_with_it() -> None:
    writer = delaying(spares="fg")
    writer.append()

    writer.timeout("0b")
    assert writer.updates == []
    writer.answer("0a", Code.WRITE_ON_READ_ONLY_BOOKIE)
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "fgcde"}


@pytest.mark.rule("W-25")
def test_a_read_only_bookie_that_nobody_can_replace_does_not_end_a_writer_that_can_do_without() -> None:
    writer = delaying()
    writer.append()
    writer.answer("0a", Code.WRITE_ON_READ_ONLY_BOOKIE)
    writer.metadata_arrives()
    assert writer.state == "open"
    assert writer.store.attempts == 0

    writer.ok("0b 0c 0d")
    writer.append()
    writer.answer("1a", Code.WRITE_ON_READ_ONLY_BOOKIE)  # is asked of it again, and known

    assert writer.acked == [0]
    assert writer.updates == []


@pytest.mark.rule("W-25")
@pytest.mark.rule("W-40")
def test_without_any_spare_an_entry_that_cannot_reach_its_quorum_ends_the_writer() -> None:
    writer = delaying((3, 3, 2), "abc")
    writer.append()
    writer.timeout("0a")
    writer.timeout("0b")
    writer.metadata_arrives()

    assert writer.failed == [(0, Code.NOT_ENOUGH_BOOKIES)]
    writer.metadata_arrives()
    assert writer.store.ensembles == {0: "abc"}
    assert writer.closed == [None]


@pytest.mark.rule("W-16")
@pytest.mark.rule("W-25")
@pytest.mark.behaviour("T-91")
def test_failures_after_the_quorum_are_not_remembered_and_a_bookie_that_returned_stays() -> None:
    writer = delaying((3, 3, 2), "abc", spares="d")
    write(writer, 0, ok="ab", failing="")
    writer.timeout("0c")

    write(writer, 1, ok="abc")
    write(writer, 2, failing="c", ok="ab")
    write(writer, 3, ok="abc")
    writer.machine.act_on_late_failures()

    assert writer.acked == [0, 1, 2, 3]
    assert writer.updates == []


@pytest.mark.rule("W-25")
@pytest.mark.rule("DS-7")
def test_a_late_failure_counts_once_a_replacement_took_the_quorum_away() -> None:
    writer = delaying((3, 3, 2), "abc", spares="defg")
    writer.append(b"", b"")
    writer.ok("1a 1b")
    writer.timeout("1c")  # entry 1 has its quorum, and waits for entry 0
    writer.timeout("0a 0b")
    writer.metadata_arrives()
    assert writer.store.ensembles == {0: "dec"}
    writer.ok("0c 0d")
    assert writer.acked == [0]

    writer.timeout("1d")  # of entry 1 remains one copy to come
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "dec", 1: "feg"}


@pytest.mark.rule("W-25")
@pytest.mark.rule("DS-6")
def test_a_position_that_failed_one_sending_and_acknowledged_another_has_not_failed() -> None:
    writer = delaying((3, 3, 2), "abc", spares="de")
    writer.is_change_disabled = True
    writer.append()
    writer.timeout("0a 0b")
    writer.retry()
    writer.is_change_disabled = False
    writer.ok("0a")
    writer.timeout("0c")
    assert writer.updates == []

    writer.ok("0b")

    assert writer.acked == [0]


@pytest.mark.rule("DS-7")
def test_a_failure_takes_an_earlier_success_of_the_same_place_back() -> None:
    writer = delaying((3, 3, 2), "abc")
    writer.append()
    writer.ok("0a")
    writer.timeout("0a")

    writer.ok("0b")
    assert writer.acked == []
    writer.ok("0c")
    assert writer.acked == [0]


@pytest.mark.rule("W-25")
def test_a_change_under_way_is_joined_only_by_entries_that_need_one() -> None:
    writer = delaying((3, 3, 2), "abc", spares="def")
    writer.append(b"", b"")
    writer.timeout("0a 0b")
    writer.timeout("1c")

    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "dec"}
    assert writer.state == "open"


@pytest.mark.rule("W-25")
@pytest.mark.rule("W-28")
def test_what_could_not_be_replaced_is_tried_again_with_the_next_change() -> None:
    writer = delaying((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.timeout("0a 0b")
    writer.metadata_arrives()
    assert writer.store.ensembles == {0: "dbc"}
    writer.spares = "dxy"
    writer.ok("0c 0d")

    writer.append()
    writer.timeout("1b 1c")
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "dbc", 1: "dxy"}

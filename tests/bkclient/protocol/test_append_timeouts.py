"""The timeout for an ack quorum, the fault domains an ack quorum must span, and the options of a writer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import ArgumentError, Code
from bkclient.protocol.append_options import AppendOptions
from bkclient.protocol.quorum_timeout import QuorumClock
from tests.bkclient.protocol.harness import Writer

# Quorum timeout -----------------------------------------------------------------------------------------------------


def timed(sizes: tuple[int, int, int] = (3, 3, 3), **options: Any) -> Writer:
    return Writer(sizes, "abc"[: sizes[0]], spares="d", quorum_timeout_s=8.0, **options)


def wait(writer: Writer, start: int, end: int) -> None:
    """Check the clock once a second."""
    for now in range(start, end):
        writer.machine.check_quorum_timeout(float(now))


@pytest.mark.rule("W-46")
@pytest.mark.behaviour("T-177")
def test_an_entry_without_its_quorum_fails_when_the_time_is_over_and_not_before() -> None:
    writer = timed()
    wait(writer, 0, 5)
    writer.append()
    writer.ok("0a 0b")

    wait(writer, 5, 13)
    assert writer.failed == []
    wait(writer, 13, 15)

    assert writer.failed == [(0, Code.QUORUM_TIMEOUT)]
    assert "entry 0 has no ack quorum after 8.0 seconds; stored by a, b" in str(writer.errors[0])


@pytest.mark.rule("W-46")
@pytest.mark.behaviour("T-178")
@pytest.mark.behaviour("T-179")
def test_everything_pending_fails_with_it_and_later_appends_are_refused_with_it() -> None:
    writer = timed()
    writer.append()
    wait(writer, 0, 6)
    writer.append(b"", b"")
    writer.ok("1a 1b 1c")
    wait(writer, 6, 12)

    assert writer.failed == [(entry_id, Code.QUORUM_TIMEOUT) for entry_id in range(3)]
    assert "stored by no bookie" in str(writer.errors[0])
    assert not writer.machine.is_writable
    assert writer.machine.refusal().code is Code.QUORUM_TIMEOUT
    writer.metadata_arrives()
    assert writer.store.metadata.last_entry_id == -1


@pytest.mark.rule("W-46")
@pytest.mark.behaviour("T-181")
def test_entries_that_are_done_or_only_wait_for_others_do_not_time_out() -> None:
    writer = timed((1, 1, 1))
    writer.append(b"", b"", b"")
    writer.ok("0a 2a")
    wait(writer, 0, 4)
    writer.ok("1a")
    wait(writer, 4, 40)
    assert writer.acked == [0, 1, 2]

    writer.append(b"")
    writer.timeout("3a")  # while the metadata store is silent, the entry has no quorum
    writer.ok("3a")  # and now it only waits for the change
    wait(writer, 40, 80)

    assert writer.failed == []


@pytest.mark.rule("W-46")
def test_an_entry_that_waits_for_another_one_does_not_time_out_itself() -> None:
    writer = Writer((1, 1, 1), "a", quorum_timeout_s=8.0, entry_ids_given=True)
    writer.append_at(1)
    writer.ok("1a")

    wait(writer, 0, 100)

    assert writer.failed == []


@pytest.mark.rule("W-46")
def test_with_given_ids_it_is_the_time_of_sending_that_counts() -> None:
    writer = Writer((1, 1, 1), "a", quorum_timeout_s=8.0, entry_ids_given=True)
    writer.append_at(5)
    wait(writer, 0, 8)
    writer.append_at(0)
    writer.ok("5a")

    wait(writer, 8, 15)
    assert writer.failed == []
    wait(writer, 15, 20)

    assert writer.failed == [(0, Code.QUORUM_TIMEOUT), (5, Code.QUORUM_TIMEOUT)]


@pytest.mark.rule("W-46")
def test_without_the_option_the_clock_does_not_matter() -> None:
    writer = Writer()
    writer.append()

    wait(writer, 0, 1000)

    assert writer.failed == []


@pytest.mark.rule("W-46")
@given(st.lists(st.floats(0.0, 2.0), min_size=1, max_size=200))
def test_however_often_the_clock_is_checked_few_notes_are_kept(steps: list[float]) -> None:
    timeout = QuorumClock(8.0)
    now = 0.0
    for step in steps:
        now += step
        assert timeout.find_expired(now, {}) is None
        assert len(timeout._marks) <= 9


@pytest.mark.rule("W-9")
@pytest.mark.behaviour("T-180")
def test_an_entry_that_fails_before_it_was_sent_is_never_sent() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d", max_ensemble_changes=0)
    writer.append()
    writer.ok("0a 0b")
    writer.timeout("0c")
    writer.sent()

    writer.append()

    assert writer.failed == [(1, Code.WRITE)]
    assert writer.sent() == ""
    writer.metadata_arrives()
    writer.retries.clear()
    assert writer.sent() == ""


# Fault domains ------------------------------------------------------------------------------------------------------


def spread(sizes: tuple[int, int, int] = (3, 3, 2), *, spares: str = "", **options: Any) -> Writer:
    """Bookies a, b and d share a rack."""
    writer = Writer(sizes, "abc"[: sizes[0]], spares=spares, enforce_fault_domains=True, **options)
    writer.domains = {"a": "rack", "b": "rack", "d": "rack"}
    return writer


@pytest.mark.rule("W-19")
@pytest.mark.behaviour("T-50")
def test_a_quorum_within_one_rack_waits_for_another_rack() -> None:
    writer = spread()
    writer.append()

    writer.ok("0a 0b")
    assert writer.acked == []
    writer.ok("0c")
    assert writer.acked == [0]


@pytest.mark.rule("W-19")
def test_a_quorum_of_several_racks_is_complete_at_once() -> None:
    writer = spread()
    writer.append()

    writer.ok("0a 0c")

    assert writer.acked == [0]


@pytest.mark.rule("W-19")
@pytest.mark.rule("W-46")
@pytest.mark.behaviour("T-50")
def test_a_quorum_within_one_rack_fails_when_the_other_rack_stays_silent() -> None:
    writer = spread(quorum_timeout_s=8.0)
    writer.append()
    writer.ok("0a 0b")

    wait(writer, 0, 12)

    assert writer.failed == [(0, Code.QUORUM_TIMEOUT)]


@pytest.mark.rule("W-19")
def test_an_entry_that_all_its_bookies_store_in_one_rack_fails_instead_of_waiting_for_ever() -> None:
    writer = spread((2, 2, 2), placement_policy="rack-aware")
    writer.append()

    writer.ok("0a 0b")

    assert writer.failed == [(0, Code.NOT_ENOUGH_BOOKIES)]
    assert "too few fault domains for rack-aware" in str(writer.errors[0])


@pytest.mark.rule("W-19")
@pytest.mark.rule("W-25")
@pytest.mark.parametrize("order", ["failure last", "failure first"])
def test_in_delayed_mode_a_failed_bookie_is_replaced_when_the_others_share_a_rack(order: str) -> None:
    writer = spread(spares="e", delay_ensemble_change=True)
    writer.append()

    if order == "failure last":
        writer.ok("0a 0b")
        writer.timeout("0c")
    else:
        writer.timeout("0c")
        writer.ok("0a")
        assert writer.updates == []
        writer.ok("0b")
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "abe"}
    writer.ok("0e")
    assert writer.acked == [0]


@pytest.mark.rule("W-19")
@pytest.mark.rule("W-38")
def test_a_replacement_may_take_the_second_rack_away() -> None:
    writer = spread(spares="d")
    writer.append(b"", b"")
    writer.ok("1b 1c")  # durable, waits for entry 0
    writer.timeout("0c")
    writer.metadata_arrives()
    assert writer.store.ensembles == {0: "abd"}

    writer.ok("1a 0a 0b")

    assert writer.acked == []


# Options ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_ensemble_changes": -1},
        {"quorum_timeout_s": 0.0},
        {"first_resend_s": 0.0},
        {"first_resend_s": 2.0, "max_resend_s": 1.0},
        {"max_resends": -1},
    ],
    ids=str,
)
def test_wrong_options_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        AppendOptions(**wrong)


@pytest.mark.rule("W-26")
def test_no_resends_at_all_are_an_option() -> None:
    writer = Writer((1, 1, 1), "a", max_resends=0)
    writer.is_change_disabled = True
    writer.append()
    writer.timeout("0a")

    writer.retry()

    assert writer.failed == [(0, Code.WRITE)]


@pytest.mark.rule("W-46")
def test_an_entry_that_came_between_two_looks_is_late_by_one_look_at_most() -> None:
    writer = Writer((3, 3, 2), "abc", quorum_timeout_s=8.0)
    writer.append()
    writer.machine.check_quorum_timeout(0.0)
    writer.ok("0a 0b")
    writer.append()
    for second in range(1, 9):
        writer.machine.check_quorum_timeout(float(second))
    assert writer.failed == []
    writer.machine.check_quorum_timeout(9.0)
    assert writer.failed == [(1, Code.QUORUM_TIMEOUT)]

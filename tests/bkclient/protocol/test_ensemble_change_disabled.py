"""Ensemble changes that are disabled at run time: what failed is sent again, with a back-off and a limit."""

from __future__ import annotations

from typing import Any

import pytest

from bkclient.errors import Code
from tests.bkclient.protocol.harness import Writer


def disabled(sizes: tuple[int, int, int] = (3, 3, 3), ensemble: str = "abc", **options: Any) -> Writer:
    writer = Writer(sizes, ensemble, spares="def", **options)
    writer.is_change_disabled = True
    return writer


@pytest.mark.rule("W-26")
@pytest.mark.behaviour("T-92")
def test_with_a_dead_bookie_to_spare_writing_goes_on_and_the_ensemble_stays() -> None:
    writer = disabled((3, 3, 2))
    for entry_id in range(4):
        writer.append()
        writer.timeout(f"{entry_id}c")
        writer.ok(f"{entry_id}a {entry_id}b")
    assert writer.acked == [0, 1, 2, 3]
    assert writer.updates == []

    writer.is_change_disabled = False
    writer.append()
    assert writer.updates == []  # failures under the old rule are forgotten
    writer.timeout("4c")
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "abc", 4: "abd"}


@pytest.mark.rule("W-26")
@pytest.mark.behaviour("T-93")
def test_once_changes_are_enabled_again_a_failure_without_spares_ends_the_ledger() -> None:
    writer = disabled((3, 3, 2))
    writer.spares = ""
    writer.append()
    writer.timeout("0c")
    writer.ok("0a 0b")
    writer.is_change_disabled = False

    writer.append()
    writer.timeout("1c")
    writer.metadata_arrives()
    writer.metadata_arrives()

    assert writer.failed == [(1, Code.NOT_ENOUGH_BOOKIES)]
    assert writer.store.metadata.last_entry_id == 0


@pytest.mark.rule("W-26")
@pytest.mark.rule("W-13")
@pytest.mark.behaviour("T-94")
def test_an_entry_that_needs_the_dead_bookie_waits_for_it_and_then_succeeds() -> None:
    writer = disabled()
    writer.append(b"", b"")
    writer.ok("0a 0b 1a 1b")
    writer.timeout("0c 1c")
    writer.sent()

    writer.retry()
    assert writer.sent() == "0c 1c"
    writer.timeout("0c 1c")
    writer.retry()
    assert writer.sent() == "0c 1c"
    writer.ok("0c 1c")

    assert writer.acked == [0, 1]
    assert (writer.updates, writer.retries) == ([], [])


@pytest.mark.rule("W-26")
def test_only_who_failed_since_is_asked_again() -> None:
    writer = disabled((2, 2, 2), "ab")
    writer.append()
    writer.timeout("0b")
    writer.sent()
    for _ in range(2):
        writer.retry()
        assert writer.sent() == "0b"
        writer.timeout("0b")


@pytest.mark.rule("W-26")
@pytest.mark.rule("H-8")
@pytest.mark.behaviour("T-95")
def test_sending_again_backs_off_for_as_long_as_nothing_gets_acknowledged() -> None:
    writer = disabled((1, 1, 1), "a", first_resend_s=0.1, max_resend_s=1.0)
    writer.append()
    delays = []
    for _ in range(6):
        writer.timeout("0a")
        delays.append(writer.retry())
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]

    writer.ok("0a")
    writer.append()
    writer.timeout("1a")

    assert writer.acked == [0]
    assert writer.retry() == 0.1


@pytest.mark.rule("W-26")
@pytest.mark.rule("H-8")
def test_after_the_allowed_number_of_rounds_the_writer_gives_up_and_names_the_bookies() -> None:
    writer = disabled((2, 2, 2), "ab", max_resends=3)
    writer.append(b"", b"")
    writer.ok("0b")
    writer.timeout("0a 1a 1b")
    for _ in range(3):
        writer.retry()
        writer.timeout("0a 1a 1b")
    assert writer.failed == []

    writer.retry()

    assert writer.failed == [(0, Code.WRITE), (1, Code.WRITE)]
    assert "a, b 3 times" in str(writer.errors[0])
    writer.metadata_arrives()
    assert writer.closed == [None]


@pytest.mark.rule("W-26")
@pytest.mark.rule("H-8")
def test_the_back_off_does_not_overflow_however_long_it_lasts() -> None:
    writer = disabled((1, 1, 1), "a", max_resends=3000)
    writer.append()
    delays = []
    for _ in range(2000):
        writer.timeout("0a")
        delays.append(writer.retry())

    assert delays[-1] == 5.0


@pytest.mark.rule("W-26")
def test_one_round_serves_all_that_failed_since_the_last_one() -> None:
    writer = disabled((3, 2, 2), "abc")
    writer.append(b"", b"", b"")
    writer.timeout("0a 1c 2c")
    assert len(writer.retries) == 1
    writer.sent()

    writer.retry()

    assert writer.sent() == "0a 1c 2c"


@pytest.mark.rule("W-26")
def test_what_got_acknowledged_otherwise_is_not_sent_again() -> None:
    writer = disabled((3, 3, 2))
    writer.append()
    writer.timeout("0a")
    writer.ok("0b 0c")
    writer.sent()

    writer.retry()

    assert writer.acked == [0]
    assert (writer.sent(), writer.retries) == ("", [])


@pytest.mark.rule("W-26")
def test_once_enabled_what_waits_to_be_sent_again_is_not_left_to_the_next_failure() -> None:
    writer = disabled((2, 2, 1), "ab")
    writer.append(b"", b"")
    writer.ok("1b")  # complete, and waits for entry 0
    writer.timeout("0b 1a")
    writer.is_change_disabled = False

    writer.retry()
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "ad"}


@pytest.mark.rule("W-25")
@pytest.mark.rule("W-26")
def test_once_enabled_a_delayed_change_still_waits_for_the_quorum_to_break() -> None:
    writer = disabled((3, 3, 2), "abc", delay_ensemble_change=True)
    writer.append(b"", b"")
    writer.timeout("0a 0b 1a")
    writer.retry()
    writer.timeout("0a 0b")
    writer.is_change_disabled = False
    writer.ok("1b")

    writer.retry()
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "dec"}


@pytest.mark.rule("W-26")
def test_once_enabled_entries_that_can_do_without_cause_no_change_in_delayed_mode() -> None:
    writer = disabled((3, 3, 2), "abc", delay_ensemble_change=True)
    writer.append()
    writer.timeout("0a 0b")
    writer.retry()
    writer.timeout("0a 0b")
    writer.ok("0a")
    writer.is_change_disabled = False

    writer.retry()

    assert writer.updates == []


@pytest.mark.rule("W-26")
def test_a_change_that_was_under_way_when_changes_were_disabled_ends_and_begins_no_further_pass() -> None:
    writer = Writer((3, 3, 3), "abc", spares="def")
    writer.append()
    writer.timeout("0a")
    writer.is_change_disabled = True
    writer.timeout("0b")

    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "dbc"}
    assert (writer.state, writer.updates) == ("open", [])
    writer.sent()
    writer.retry()
    assert writer.sent() == "0b"


@pytest.mark.rule("W-26")
def test_a_round_that_comes_during_a_change_waits_for_its_end() -> None:
    writer = disabled((3, 3, 3))
    writer.append()
    writer.timeout("0a")
    writer.is_change_disabled = False
    writer.timeout("0b")
    writer.is_change_disabled = True

    writer.retry()
    assert len(writer.retries) == 1
    writer.metadata_arrives()
    writer.sent()
    writer.retry()

    assert writer.store.ensembles == {0: "adc"}
    assert writer.sent() == "0a"


@pytest.mark.rule("W-26")
@pytest.mark.rule("W-33")
def test_a_late_failure_from_before_is_kept_until_changes_are_enabled() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.ok("0a 0b")
    writer.timeout("0c")
    writer.is_change_disabled = True
    writer.append()
    writer.machine.act_on_late_failures()
    assert writer.updates == []

    writer.is_change_disabled = False
    writer.append()
    writer.metadata_arrives()

    assert writer.store.ensembles == {0: "abc", 1: "abd"}


@pytest.mark.rule("W-26")
@pytest.mark.parametrize("code", [Code.LEDGER_FENCED, Code.CLIENT_CLOSED])
def test_a_round_after_the_writer_ended_does_nothing(code: Code) -> None:
    writer = disabled()
    writer.append()
    writer.timeout("0a")
    writer.answer("0b", code)
    writer.sent()

    writer.retry()

    assert (writer.sent(), writer.retries) == ("", [])
    assert writer.failed == [(0, code)]

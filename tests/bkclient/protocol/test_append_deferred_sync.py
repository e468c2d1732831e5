"""Deferred sync: acknowledged is not durable, force is what moves the LAC, and the ensemble must not change."""

from __future__ import annotations

import pytest

from bkclient.errors import BookKeeperError, Code
from bkclient.protocol.force import ForceMachine
from scenarios.machines.store import LEDGER_ID
from tests.bkclient.protocol.harness import Writer


class Force:
    """One force and its ports."""

    def __init__(self, writer: Writer) -> None:
        self.sent = ""
        self.finished: list[Code | None] = []
        self.errors: list[BookKeeperError] = []
        self.machine = ForceMachine(writer.machine, self)
        self.machine.start()

    def answer(self, bookies: str, code: int = Code.OK) -> None:
        for bookie_id in bookies:
            self.machine.on_force_reply(bookie_id, code)

    def send_force(self, bookie_id: str) -> None:
        self.sent += bookie_id

    def force_finished(self, error: BookKeeperError | None) -> None:
        self.finished.append(error.code if error else None)
        if error is not None:
            self.errors.append(error)


def deferred(sizes: tuple[int, int, int] = (3, 3, 2), ensemble: str = "abc", *, spares: str = "") -> Writer:
    return Writer(sizes, ensemble, spares=spares, deferred_sync=True)


# LAC ----------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("LAC-11")
@pytest.mark.rule("W-21")
@pytest.mark.behaviour("T-167")
def test_acknowledged_entries_move_the_sequence_head_and_lap_but_not_the_lac() -> None:
    writer = deferred()
    writer.append(b"", b"", b"")

    writer.ok("0a 0b 1a 1b 2a 2b")
    writer.append()

    assert writer.acked == [0, 1, 2]
    machine = writer.machine
    assert (machine.last_add_acknowledged, machine.last_add_confirmed, machine.last_add_pushed) == (2, -1, 3)
    assert writer.adds[3].last_add_confirmed == -1


@pytest.mark.rule("LAC-12")
@pytest.mark.rule("DS-9")
@pytest.mark.behaviour("T-168")
def test_a_force_that_all_bookies_carried_out_moves_the_lac_to_the_last_acknowledged_entry() -> None:
    writer = deferred((4, 2, 2), "abcd")
    writer.append(b"", b"", b"")
    writer.ok("0a 0b 1b 1c")

    force = Force(writer)
    assert force.sent == "abcd"
    force.answer("abc")
    assert (force.finished, writer.machine.last_add_confirmed) == ([], -1)
    force.answer("d")

    assert force.finished == [None]
    assert writer.machine.last_add_confirmed == 1
    writer.append()
    assert writer.adds[3].last_add_confirmed == 1


@pytest.mark.rule("LAC-12")
@pytest.mark.rule("DS-9")
def test_the_same_bookie_does_not_answer_for_another_one() -> None:
    writer = deferred()
    writer.append()
    writer.ok("0a 0b")
    force = Force(writer)

    force.answer("aaabbz")

    assert (force.finished, writer.machine.last_add_confirmed) == ([], -1)


@pytest.mark.rule("LAC-12")
def test_a_bookie_that_old_metadata_names_twice_answers_once_for_each_place() -> None:
    writer = deferred((2, 2, 2), "ab")
    writer.machine.adds.go_on_with(("a", "a"))
    writer.append()
    writer.ok("0a 0a")
    force = Force(writer)
    assert force.sent == "aa"

    force.answer("a")
    assert force.finished == []
    force.answer("a")
    assert force.finished == [None]


@pytest.mark.rule("LAC-12")
def test_a_force_with_nothing_acknowledged_succeeds_without_a_message() -> None:
    writer = deferred()
    writer.append()

    force = Force(writer)

    assert (force.sent, force.finished) == ("", [None])
    assert writer.machine.last_add_confirmed == -1


@pytest.mark.rule("LAC-12")
@pytest.mark.behaviour("T-170")
def test_the_first_error_fails_a_force_and_another_one_may_succeed() -> None:
    writer = deferred()
    writer.append()
    writer.ok("0a 0b")
    force = Force(writer)
    force.answer("ab")
    force.answer("c", Code.BOOKIE_NOT_AVAILABLE)
    force.answer("c")

    assert force.finished == [Code.BOOKIE_NOT_AVAILABLE]
    assert (force.errors[0].ledger_id, force.errors[0].bookie_id) == (LEDGER_ID, "c")
    assert writer.machine.last_add_confirmed == -1

    again = Force(writer)
    again.answer("abc")

    assert again.finished == [None]
    assert writer.machine.last_add_confirmed == 0


@pytest.mark.rule("LAC-13")
@pytest.mark.behaviour("T-171")
def test_what_is_acknowledged_while_a_force_is_under_way_is_not_covered_by_it() -> None:
    writer = deferred()
    writer.append(b"", b"")
    writer.ok("0a 0b")
    force = Force(writer)
    writer.ok("1a 1b")

    force.answer("abc")

    assert writer.acked == [0, 1]
    assert writer.machine.last_add_confirmed == 0


@pytest.mark.rule("LAC-13")
def test_forces_that_end_in_another_order_never_move_the_lac_back() -> None:
    writer = deferred()
    writer.append(b"", b"")
    writer.ok("0a 0b")
    first = Force(writer)
    writer.ok("1a 1b")
    second = Force(writer)

    second.answer("abc")
    first.answer("abc")

    assert (first.finished, second.finished) == ([None], [None])
    assert writer.machine.last_add_confirmed == 1


@pytest.mark.rule("LAC-13")
@pytest.mark.behaviour("T-169")
def test_with_given_ids_a_force_covers_the_acknowledged_prefix_step_by_step() -> None:
    writer = Writer((1, 1, 1), "a", deferred_sync=True, entry_ids_given=True)
    covered = []
    for entry_id in (1, 0, 4, 2, 3):
        writer.append_at(entry_id)
        writer.ok(f"{entry_id}a")
        Force(writer).answer("a")
        covered.append(writer.machine.last_add_confirmed)

    assert covered == [-1, 1, 1, 2, 4]


@pytest.mark.rule("LAC-14")
@pytest.mark.behaviour("T-176")
def test_a_force_without_deferred_sync_succeeds_and_moves_nothing() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append(b"", b"")
    writer.ok("0a 0b 1a 1b")

    force = Force(writer)
    force.answer("abc")

    assert (force.sent, force.finished) == ("abc", [None])
    assert writer.machine.last_add_confirmed == 1


# Closing ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("LAC-12")
@pytest.mark.behaviour("T-173")
def test_a_closed_writer_refuses_to_force() -> None:
    writer = deferred()
    writer.append()
    writer.ok("0a 0b")
    writer.close()

    force = Force(writer)

    assert (force.sent, force.finished) == ("", [Code.LEDGER_CLOSED])


@pytest.mark.rule("W-57")
@pytest.mark.rule("H-11")
@pytest.mark.behaviour("T-174")
def test_closing_without_a_force_cuts_the_ledger_off_with_the_length_of_what_remains() -> None:
    writer = deferred()
    writer.append(b"zero", b"one")
    writer.ok("0a 0b 1a 1b")

    writer.close()
    writer.metadata_arrives()

    assert writer.closed == [None]
    assert (writer.store.metadata.last_entry_id, writer.store.metadata.length) == (-1, 0)
    machine = writer.machine
    assert (machine.last_add_confirmed, machine.last_add_acknowledged, machine.last_add_pushed) == (-1, -1, -1)


@pytest.mark.rule("W-57")
@pytest.mark.rule("H-11")
@pytest.mark.behaviour("T-174")
def test_closing_after_a_force_keeps_what_was_forced_with_its_length() -> None:
    writer = deferred()
    writer.append(b"zero", b"one", b"three", b"pending")
    writer.ok("0a 0b 1a 1b")
    Force(writer).answer("abc")
    writer.ok("2a 2b")

    writer.close()
    assert (writer.machine.last_add_confirmed, writer.machine.length) == (1, 7)
    writer.metadata_arrives()

    assert writer.failed == [(3, Code.LEDGER_CLOSED)]
    assert (writer.store.metadata.last_entry_id, writer.store.metadata.length) == (1, 7)


@pytest.mark.rule("LAC-12")
@pytest.mark.rule("W-57")
def test_a_force_that_ends_after_the_close_does_not_claim_what_was_cut_off() -> None:
    writer = deferred()
    writer.append()
    writer.ok("0a 0b")
    force = Force(writer)

    writer.close()
    force.answer("abc")

    assert force.finished == [Code.LEDGER_CLOSED]
    assert "entries up to 0" in str(force.errors[0])
    assert writer.machine.last_add_confirmed == -1


@pytest.mark.rule("LAC-12")
def test_a_force_that_ends_after_the_close_succeeds_if_the_ledger_includes_all_of_it() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append()
    writer.ok("0a 0b")
    force = Force(writer)

    writer.close()
    force.answer("abc")

    assert force.finished == [None]


@pytest.mark.rule("W-54")
def test_a_close_after_another_client_recovered_what_was_not_forced_reports_the_other_end() -> None:
    writer = deferred()
    writer.append(b"zero")
    writer.ok("0a 0b")
    writer.store.edit(lambda metadata: metadata.closed(0, 4))

    writer.close()
    writer.metadata_arrives()

    assert writer.closed == [Code.METADATA_VERSION]
    assert (writer.machine.last_add_confirmed, writer.machine.length) == (0, 4)


# Failures -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-27")
@pytest.mark.behaviour("T-172")
def test_a_failed_bookie_ends_the_writer_although_a_spare_is_there() -> None:
    writer = deferred(spares="d")
    writer.append(b"", b"")
    writer.ok("0a 0b")

    writer.timeout("1a")

    assert writer.failed == [(1, Code.WRITE)]
    assert "deferred sync" in str(writer.errors[0])
    writer.metadata_arrives()
    assert writer.store.ensembles == {0: "abc"}
    assert writer.store.metadata.last_entry_id == -1


@pytest.mark.rule("W-27")
@pytest.mark.rule("W-33")
@pytest.mark.behaviour("T-172")
def test_a_late_failure_ends_the_writer_at_the_next_append_and_is_not_remembered_longer() -> None:
    writer = deferred(spares="d")
    writer.append()
    writer.ok("0a 0b")
    writer.timeout("0c")
    writer.machine.act_on_late_failures()  # an idle writer is left alone
    assert writer.machine.is_writable

    writer.append()

    assert writer.failed == [(1, Code.WRITE)]
    assert writer.machine.members.late == {}


@pytest.mark.rule("W-27")
def test_in_delayed_mode_an_ensemble_with_deferred_sync_carries_failures_until_the_quorum_breaks() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d", deferred_sync=True, delay_ensemble_change=True)
    writer.append()

    writer.timeout("0a")
    assert writer.failed == []
    writer.timeout("0b")

    assert writer.failed == [(0, Code.WRITE)]


@pytest.mark.rule("W-27")
def test_while_changes_are_disabled_a_ledger_with_deferred_sync_sends_again_too() -> None:
    writer = deferred((2, 2, 2), "ab")
    writer.is_change_disabled = True
    writer.append()
    writer.timeout("0b")
    writer.sent()

    writer.retry()

    assert writer.sent() == "0b"
    assert writer.failed == []


def test_a_failure_after_completion_is_late_even_if_the_lac_lags_behind() -> None:
    writer = deferred()
    writer.append()
    writer.ok("0a 0b")
    writer.timeout("0c")

    assert writer.machine.members.late == {2: "c"}


def test_a_bookie_that_does_not_force_is_named() -> None:
    writer = deferred()
    writer.append()
    writer.ok("0a 0b")
    force = Force(writer)
    force.answer("b", Code.TIMEOUT)
    (error,) = force.errors
    assert str(error).startswith(f"ledger {LEDGER_ID}, bookie b: a bookie did not force what it stores [TIMEOUT -23]. ")


def test_a_force_that_the_end_of_the_ledger_cuts_off_names_both() -> None:
    writer = deferred()
    writer.append(b"", b"")
    writer.ok("0a 0b 1a 1b")
    force = Force(writer)
    writer.close()
    writer.metadata_arrives()
    force.answer("abc")
    (error,) = force.errors
    assert str(error).startswith(
        f"ledger {LEDGER_ID}: the ledger was closed at entry -1 while entries up to 1 were being forced [LEDGER_CLOSED -11]. "
    )

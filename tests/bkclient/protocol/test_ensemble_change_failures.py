"""Failures that pile up: several bookies, after the ack quorum, too few spares, too many changes."""

from __future__ import annotations

import pytest

from bkclient.errors import Code, Refusal, UnauthorizedAccess
from bkclient.ledger import LedgerState
from scenarios.machines.store import LEDGER_ID
from tests.bkclient.protocol.harness import Writer

# Several failures ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-28")
@pytest.mark.rule("W-32")
@pytest.mark.behaviour("T-75")
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

    writer.ended(update)

    assert writer.sent() == "0b"
    writer.ok("0a 0b")
    assert writer.acked == [0]


# Failures after the ack quorum --------------------------------------------------------------------------------------


@pytest.mark.rule("W-16")
@pytest.mark.rule("W-33")
@pytest.mark.behaviour("T-59")
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
@pytest.mark.rule("W-17")
def test_a_fenced_answer_after_the_quorum_is_what_ends_a_writer_that_has_no_other_bookie() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append()
    writer.ok("0a 0b")
    writer.answer("0c", Code.LEDGER_FENCED)

    writer.append()
    writer.metadata_arrives()

    assert writer.failed == [(1, Code.LEDGER_FENCED)]


@pytest.mark.rule("W-16")
def test_failures_reported_to_a_writer_that_has_ended_are_ignored() -> None:
    writer = Writer((3, 3, 2), "abc", spares="d")
    writer.append()
    writer.ok("0a 0b")
    writer.close()
    writer.metadata_arrives()

    writer.timeout("0c")

    assert writer.updates == []


# Too few bookies, too many changes ----------------------------------------------------------------------------------


@pytest.mark.rule("W-31")
@pytest.mark.rule("W-32")
@pytest.mark.behaviour("T-78")
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


@pytest.mark.rule("W-24")
def test_a_bookie_that_is_not_trusted_is_a_failed_one_and_the_cause_where_nobody_replaces_it() -> None:
    """A refusal of this side is about the bookie, never about the ledger, whatever its code."""
    writer = Writer((3, 3, 2), "abc")
    writer.append(b"")

    writer.answer("0b", Refusal(Code.UNAUTHORIZED, "the certificate has expired"))

    assert writer.failed == []
    writer.metadata_arrives()
    assert writer.failed == [(0, Code.NOT_ENOUGH_BOOKIES)]
    cause = writer.errors[0].__cause__
    assert isinstance(cause, UnauthorizedAccess)
    assert (cause.ledger_id, cause.bookie_id) == (LEDGER_ID, "b")
    assert "the certificate has expired" in str(cause)


@pytest.mark.behaviour("T-79")
@pytest.mark.behaviour("T-97")
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

    writer.timeout("1c")  # entry 1 can do without
    assert writer.updates == []

    writer.timeout("1d")  # and now it cannot
    writer.metadata_arrives()

    assert writer.failed == [(1, Code.NOT_ENOUGH_BOOKIES)]


@pytest.mark.rule("W-29")
@pytest.mark.behaviour("T-96")
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

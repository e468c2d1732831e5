"""The append path without ensemble changes: ids, headers, counting answers, order, errors that end the writer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkclient.errors import Code
from bkclient.ledger import LedgerState
from bkclient.protocol.adds import NewEntry
from scenarios.machines.store import LEDGER_ID, Store, ledger
from tests.bkclient.protocol.harness import Writer

FATAL = [Code.ILLEGAL_OPERATION, Code.LEDGER_FENCED, Code.UNAUTHORIZED]


@pytest.mark.rule("W-1")
def test_a_new_writer_has_confirmed_and_pushed_nothing() -> None:
    machine = Writer().machine

    assert (machine.last_add_confirmed, machine.last_add_pushed, machine.length) == (-1, -1, 0)
    assert machine.is_writable
    assert machine.pending_count == 0


@pytest.mark.rule("W-4")
@pytest.mark.rule("W-10")
def test_each_append_takes_the_next_id_and_goes_to_its_write_set() -> None:
    writer = Writer((3, 2, 2), "abc")

    writer.append(b"", b"", b"", b"")

    assert writer.sent() == "0a 0b 1b 1c 2c 2a 3a 3b"
    assert writer.machine.last_add_pushed == 3
    assert writer.machine.pending_count == 4


@pytest.mark.rule("W-4")
def test_an_append_tells_what_is_sent() -> None:
    writer = Writer()

    entry = writer.machine.append(b"x")

    assert entry == writer.adds[0] == NewEntry(0, b"x", -1, 1)


@pytest.mark.rule("W-4")
@pytest.mark.rule("API-13")
def test_an_entry_carries_the_ledgers_length_up_to_and_including_itself() -> None:
    writer = Writer()

    writer.append(b"one", b"", b"four")

    assert [writer.adds[i].length for i in range(3)] == [3, 3, 7]
    assert writer.machine.length == 7


@pytest.mark.rule("M34")
@pytest.mark.rule("LAC-1")
@pytest.mark.rule("W-10")
def test_an_entry_carries_what_was_confirmed_when_it_was_sent() -> None:
    writer = Writer((2, 2, 2), "ab")
    writer.append(b"0", b"1")
    writer.ok("0a 0b")
    writer.append(b"2")
    writer.ok("1a 1b 2a 2b")
    writer.append(b"3")

    assert [writer.adds[i].last_add_confirmed for i in range(4)] == [-1, -1, 0, 2]


@pytest.mark.rule("LAC-2")
def test_with_one_entry_in_flight_each_entry_carries_the_id_before_it() -> None:
    writer = Writer((1, 1, 1), "a")

    for entry_id in range(5):
        writer.append()
        writer.ok(f"{entry_id}a")

    assert [add.last_add_confirmed for add in writer.adds.values()] == [-1, 0, 1, 2, 3]


@pytest.mark.rule("M22")
@pytest.mark.rule("W-18")
@pytest.mark.rule("DS-6")
def test_an_entry_is_confirmed_by_its_ack_quorum_and_not_before() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append()

    writer.ok("0c")
    assert writer.acked == []

    writer.ok("0a")
    assert writer.acked == [0]
    assert writer.machine.last_add_confirmed == 0
    assert writer.machine.pending_count == 0


@pytest.mark.rule("W-20")
@pytest.mark.rule("DS-6")
@pytest.mark.rule("M23")
def test_the_same_bookie_twice_is_one_acknowledgement() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append()

    writer.ok("0a 0a 0a")
    assert writer.acked == []

    writer.ok("0b")
    assert writer.acked == [0]


@pytest.mark.rule("W-15")
def test_answers_after_the_ack_quorum_change_nothing() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append(b"", b"")

    writer.ok("1a 1b 1c 0a 0b 0c 1a")

    assert writer.acked == [0, 1]
    assert writer.failed == []
    assert writer.updates == []


@pytest.mark.rule("W-21")
@pytest.mark.rule("W-22")
@pytest.mark.rule("M24")
def test_an_entry_waits_for_everything_before_it() -> None:
    writer = Writer((1, 1, 1), "a")
    writer.append(b"", b"", b"")

    writer.ok("1a 2a")
    assert writer.acked == []
    assert writer.machine.last_add_confirmed == -1

    writer.ok("0a")
    assert writer.acked == [0, 1, 2]
    assert writer.machine.last_add_confirmed == 2


@pytest.mark.rule("W-21")
@given(st.permutations([(entry_id, bookie) for entry_id in range(4) for bookie in "abc"]))
def test_confirmations_come_in_id_order_whatever_the_order_of_answers(answers: list[tuple[int, str]]) -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append(b"", b"", b"", b"")
    counts = dict.fromkeys(range(4), 0)

    for entry_id, bookie in answers:
        writer.ok(f"{entry_id}{bookie}")
        counts[entry_id] += 1
        durable = next((i for i in range(4) if counts[i] < 2), 4)
        assert writer.acked == list(range(durable))
        assert writer.machine.last_add_confirmed == durable - 1


@pytest.mark.rule("W-14")
def test_an_answer_of_a_bookie_that_does_not_store_the_entry_is_ignored() -> None:
    writer = Writer((3, 2, 1), "abc")
    writer.append()

    writer.ok("0c")
    writer.timeout("0c")

    assert writer.acked == []
    assert writer.updates == []


@pytest.mark.rule("W-59")
def test_a_late_answer_to_an_entry_that_is_done_is_harmless() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append()
    writer.ok("0a 0b")

    writer.ok("0c")

    assert writer.acked == [0]
    assert writer.updates == []


@pytest.mark.rule("W-17")
@pytest.mark.rule("W-41")
@pytest.mark.rule("W-42")
@pytest.mark.rule("M32")
@pytest.mark.parametrize("code", FATAL)
def test_a_fatal_answer_fails_every_pending_entry_and_seals_the_ledger_at_the_last_confirmed_one(code: Code) -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append(b"zero", b"one", b"two")
    writer.ok("0a 0b 2a 2b")  # entry 2 has its quorum but waits for entry 1

    writer.answer("1a", code)

    assert writer.acked == [0]
    assert writer.failed == [(1, code), (2, code)]
    assert [error.ledger_id for error in writer.errors] == [LEDGER_ID, LEDGER_ID]
    assert writer.state == "closing"
    writer.metadata_arrives()
    assert (writer.state, writer.closed) == ("closed", [None])
    assert (writer.store.metadata.last_entry_id, writer.store.metadata.length) == (0, 4)


@pytest.mark.rule("W-42")
@pytest.mark.parametrize("code", FATAL)
def test_after_a_fatal_answer_further_appends_are_refused_with_it(code: Code) -> None:
    writer = Writer((1, 1, 1), "a")
    writer.append()
    writer.answer("0a", code)

    assert not writer.machine.is_writable
    assert writer.machine.refusal() is writer.machine.fatal_error
    assert writer.machine.refusal().code is code
    writer.metadata_arrives()
    assert writer.machine.refusal().code is code


@pytest.mark.rule("W-17")
@pytest.mark.rule("API-19")
def test_a_closed_client_fails_everything_and_leaves_the_ledger_open() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append(b"zero", b"one")

    writer.answer("0a 0b 0c 1a 1b 1c", Code.CLIENT_CLOSED)

    assert writer.failed == [(0, Code.CLIENT_CLOSED), (1, Code.CLIENT_CLOSED)]
    assert writer.updates == []
    assert not writer.machine.is_writable
    assert writer.machine.refusal().code is Code.CLIENT_CLOSED
    assert writer.machine.refusal().ledger_id == LEDGER_ID


@pytest.mark.rule("W-16")
@pytest.mark.parametrize("code", [*FATAL, Code.CLIENT_CLOSED])
def test_no_answer_is_fatal_once_the_entry_has_its_quorum(code: Code) -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append(b"", b"")
    writer.ok("0a 0b 1a 1b")

    writer.answer("0c 1c", code)

    assert writer.acked == [0, 1]
    assert writer.failed == []
    assert writer.machine.is_writable


@pytest.mark.rule("W-42")
def test_entries_that_failed_are_not_resurrected_by_late_answers() -> None:
    writer = Writer((3, 3, 2), "abc")
    writer.append(b"", b"")
    writer.answer("0a", Code.LEDGER_FENCED)

    writer.ok("0b 0c 1a 1b 1c")
    writer.timeout("0b 0c 1a 1b 1c")

    assert writer.acked == []
    assert writer.failed == [(0, Code.LEDGER_FENCED), (1, Code.LEDGER_FENCED)]
    assert writer.machine.last_add_confirmed == -1
    assert len(writer.updates) == 1


@pytest.mark.rule("W-51")
def test_a_failed_writer_takes_the_bytes_of_failed_entries_back() -> None:
    writer = Writer((1, 1, 1), "a")
    writer.append(b"kept", b"lost", b"lost too")
    writer.ok("0a")

    writer.answer("1a", Code.LEDGER_FENCED)

    assert writer.machine.length == 4
    assert writer.machine.last_add_pushed == 0


@pytest.mark.rule("W-3")
def test_appending_to_a_writer_that_is_not_writable_is_a_defect_of_the_caller() -> None:
    writer = Writer()
    writer.close()

    with pytest.raises(AssertionError, match="refuses"):
        writer.append()


@pytest.mark.rule("M33")
def test_a_writer_is_only_made_for_a_ledger_that_is_open() -> None:
    taken_over = Store(ledger((1, 1, 1), "a", state=LedgerState.IN_RECOVERY))

    with pytest.raises(AssertionError, match="only an open ledger"):
        Writer(store=taken_over)

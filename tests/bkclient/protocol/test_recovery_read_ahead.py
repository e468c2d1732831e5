"""Recovery reads ahead: several entries at once, judged in order, and nothing beyond the end matters."""

from __future__ import annotations

from typing import Any

import pytest

from bkclient.errors import Code
from bkclient.ledger import LedgerState
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.read_ahead import ReadAhead
from bkclient.protocol.recovery import EntryVerdict
from tests.bkclient.protocol.harness import Recovery, end_of, reading

POSITIVE, NEGATIVE, UNKNOWN = EntryVerdict.POSITIVE, EntryVerdict.NEGATIVE, EntryVerdict.UNKNOWN
CLOSED, IN_RECOVERY = LedgerState.CLOSED, LedgerState.IN_RECOVERY


def with_entries_found(count: int, **limits: Any) -> Recovery:
    """A recovery of a ledger at a alone that found and wrote back ``count`` entries; what it sent is forgotten."""
    recovery = reading((1, 1, 1), "a", **limits)
    for entry_id in range(count):
        recovery.found(f"{entry_id}a")
        recovery.written(f"{entry_id}a")
    recovery.sent()
    return recovery


def reads_in(sent: str) -> list[str]:
    return [cue for cue in sent.split() if cue.startswith("R")]


# The window ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-16")
def test_the_window_begins_with_one_entry_and_grows_with_every_entry_found() -> None:
    recovery = reading((1, 1, 1), "a", read_ahead=4)
    assert reads_in(recovery.sent()) == ["R0a"]

    recovery.found("0a")
    assert reads_in(recovery.sent()) == ["R1a", "R2a"]
    recovery.found("1a")
    assert reads_in(recovery.sent()) == ["R3a", "R4a"]
    recovery.found("2a")
    assert reads_in(recovery.sent()) == ["R5a", "R6a"]
    recovery.found("3a")
    assert reads_in(recovery.sent()) == ["R7a"]


@pytest.mark.rule("REC-16")
def test_a_ledger_with_a_settled_tail_costs_one_read_however_far_ahead_is_allowed() -> None:
    recovery = reading((3, 3, 2), "abc", lac=6, length=7, read_ahead=64)

    assert reads_in(recovery.sent()) == ["R7b", "R7c", "R7a"]


@pytest.mark.rule("REC-16")
@pytest.mark.rule("REC-17")
def test_every_read_ahead_goes_to_the_whole_write_set_of_its_entry_and_fences() -> None:
    recovery = reading((3, 2, 2), "abc", read_ahead=3)
    recovery.found("0a")

    assert reads_in(recovery.sent()) == ["R0a", "R0b", "R1b", "R1c", "R2c", "R2a"]


@pytest.mark.rule("REC-16")
@pytest.mark.behaviour("T-125")
@pytest.mark.parametrize("read_ahead", [1, 3, 13])
def test_with_any_window_each_entry_is_read_and_written_once_and_in_order(read_ahead: int) -> None:
    entries = 100
    recovery = reading((1, 1, 1), "a", read_ahead=read_ahead, max_write_backs=1000)
    asked = reads_in(recovery.sent())
    while recovery.updates == []:
        for cue in reversed(asked):  # the newest answers come first
            entry_id = int(cue[1:-1])
            if entry_id < entries:
                recovery.found(f"{entry_id}a")
            else:
                recovery.denied(f"{entry_id}a")
        sent = recovery.sent()
        asked = reads_in(sent)
        recovery.written(" ".join(cue[1:] for cue in sent.split() if cue.startswith("W")))
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, entries - 1, entries)
    assert [entry_id for entry_id, _, _ in recovery.decided] == list(range(entries + 1))
    assert list(recovery.adds) == list(range(entries))


# In order -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-16")
@pytest.mark.rule("REC-23")
def test_an_entry_that_was_read_early_waits_for_those_below_it() -> None:
    recovery = with_entries_found(2, read_ahead=3)

    recovery.found("3a 4a", payload=b"later")
    assert recovery.sent() == ""
    assert recovery.decided[-1] == (1, POSITIVE, "a")

    recovery.found("2a", payload=b"now")
    assert recovery.sent() == "W2a W3a W4a R5a R6a R7a"
    assert [recovery.adds[entry_id].payload for entry_id in (2, 3, 4)] == [b"now", b"later", b"later"]
    assert recovery.decided[-3:] == [(2, POSITIVE, "a"), (3, POSITIVE, "a"), (4, POSITIVE, "a")]


@pytest.mark.rule("REC-16")
@pytest.mark.rule("REC-30")
@pytest.mark.rule("REC-31")
@pytest.mark.behaviour("T-136")
def test_a_gap_ends_the_ledger_and_what_was_found_behind_it_is_forgotten() -> None:
    recovery = with_entries_found(10, read_ahead=5)
    assert recovery.decided[-1] == (9, POSITIVE, "a")

    recovery.found("14a 12a 13a")
    recovery.unknown("11a")
    recovery.denied("10a")
    recovery.found("11a 14a")
    recovery.metadata_arrives()
    recovery.found("12a")

    assert recovery.sent() == ""
    assert recovery.finished == [None]
    assert end_of(recovery) == (CLOSED, 9, 10)
    assert recovery.decided[-1] == (10, NEGATIVE, "a")
    assert list(recovery.adds) == list(range(10))


@pytest.mark.rule("H-29")
@pytest.mark.rule("REC-31")
@pytest.mark.parametrize("code", [Code.TIMEOUT, Code.UNAUTHORIZED, Code.DIGEST_MATCH, Code.READ])
def test_an_error_beyond_the_end_fails_nothing_whether_it_comes_before_or_after_the_end(code: Code) -> None:
    recovery = with_entries_found(3, read_ahead=4)

    recovery.found("3a")
    recovery.unknown("5a", code)
    assert recovery.finished == []
    recovery.denied("4a")
    recovery.unknown("6a", code)
    assert recovery.finished == []
    recovery.written("3a")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 3, 4)


@pytest.mark.rule("REC-20")
@pytest.mark.rule("REC-32")
def test_an_error_fails_the_recovery_when_everything_below_it_was_found() -> None:
    recovery = with_entries_found(3, read_ahead=4)

    recovery.unknown("4a", Code.DIGEST_MATCH)
    assert recovery.finished == []
    recovery.found("3a")

    assert recovery.finished == [Code.LEDGER_RECOVERY]
    assert "entry 4 can be neither read nor ruled out" in str(recovery.errors[0])
    assert recovery.decided[-1] == (4, UNKNOWN, "")
    assert end_of(recovery) == (IN_RECOVERY, -1, 0)


@pytest.mark.rule("REC-31")
@pytest.mark.parametrize("code", [Code.NO_SUCH_ENTRY, Code.TIMEOUT])
def test_nothing_above_an_entry_that_was_not_found_is_asked_for(code: Code) -> None:
    recovery = with_entries_found(3, read_ahead=4)

    recovery.denied("5a", code)
    recovery.found("3a")
    assert recovery.sent() == "W3a"
    recovery.found("4a")
    assert recovery.sent() == "W4a"


@pytest.mark.rule("REC-15")
@pytest.mark.rule("M09")
def test_reads_ahead_go_to_the_ensemble_recovery_started_with_whatever_was_replaced_since() -> None:
    recovery = reading((1, 1, 1), "a", spares="b", read_ahead=3)
    recovery.found("0a")
    recovery.not_written("0a")
    recovery.sent()

    recovery.found("1a")

    assert recovery.sent() == "W1b R3a R4a"


# Limits -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("REC-23")
def test_entries_being_read_and_written_back_are_limited_together() -> None:
    recovery = reading((1, 1, 1), "a", read_ahead=8, max_write_backs=3)
    recovery.found("0a")
    assert recovery.sent().endswith("W0a R1a R2a")
    recovery.found("1a 2a")
    assert recovery.sent() == "W1a W2a"

    recovery.written("1a")
    assert recovery.sent() == ""
    recovery.written("0a")
    assert recovery.sent() == "R3a R4a"


@pytest.mark.rule("REC-23")
def test_by_default_256_entries_and_16_mib_are_at_hand_at_most_and_entries_are_read_one_by_one() -> None:
    recovery = reading((1, 1, 1), "a")
    for entry_id in range(256):
        assert reads_in(recovery.sent()) == [f"R{entry_id}a"]
        recovery.found(f"{entry_id}a")
    assert reads_in(recovery.sent()) == []
    assert recovery.machine.pending_count == 256

    recovery = reading((1, 1, 1), "a")
    recovery.found("0a", payload=bytes(16 * 1024 * 1024 - 1), length=16 * 1024 * 1024 - 1)
    recovery.found("1a")
    assert reads_in(recovery.sent()) == ["R0a", "R1a"]


@pytest.mark.rule("REC-23")
def test_no_read_begins_while_the_entries_at_hand_have_too_many_bytes() -> None:
    recovery = reading((1, 1, 1), "a", read_ahead=8, max_write_back_bytes=11)
    recovery.found("0a", payload=b"12345", length=5)
    assert reads_in(recovery.sent()) == ["R0a", "R1a", "R2a"]  # each is expected to be as large as entry 0

    recovery.found("1a", payload=b"12345", length=10)
    assert recovery.sent() == "W1a"
    recovery.found("2a", payload=b"12345", length=15)
    assert recovery.sent() == "W2a"
    recovery.written("0a")
    assert reads_in(recovery.sent()) == ["R3a"]
    recovery.written("1a")
    assert reads_in(recovery.sent()) == ["R4a"]
    recovery.written("2a")
    assert reads_in(recovery.sent()) == ["R5a"]


@pytest.mark.rule("REC-23")
def test_the_largest_entry_found_so_far_is_what_a_read_is_expected_to_bring() -> None:
    recovery = reading((1, 1, 1), "a", read_ahead=8, max_write_back_bytes=21)
    recovery.found("0a", payload=b"1234567890", length=10)
    recovery.found("1a", payload=b"1", length=11)
    recovery.written("0a 1a")

    assert reads_in(recovery.sent()) == ["R0a", "R1a", "R2a", "R3a", "R4a"]


@pytest.mark.rule("REC-23")
def test_bytes_that_wait_for_an_earlier_entry_count_too() -> None:
    recovery = reading((1, 1, 1), "a", read_ahead=3, max_write_back_bytes=10)
    recovery.found("0a")
    recovery.found("2a", payload=b"1234567890", length=12)
    recovery.sent()

    recovery.found("1a")
    assert recovery.sent() == "W1a W2a"
    recovery.written("0a 1a")
    assert recovery.sent() == ""
    recovery.written("2a")
    assert reads_in(recovery.sent()) == ["R3a"]


@pytest.mark.rule("REC-23")
def test_entries_without_payload_take_none_of_the_bytes() -> None:
    recovery = reading((1, 1, 1), "a", read_ahead=3, max_write_back_bytes=1)

    recovery.found("0a", payload=b"", length=0)

    assert reads_in(recovery.sent()) == ["R0a", "R1a", "R2a"]


@pytest.mark.rule("REC-23")
def test_an_entry_larger_than_the_limit_is_still_recovered() -> None:
    recovery = reading((1, 1, 1), "a", read_ahead=4, max_write_back_bytes=1)
    for entry_id in range(3):
        recovery.found(f"{entry_id}a", payload=b"large", length=5 * entry_id + 5)
        recovery.written(f"{entry_id}a")
    recovery.denied("3a")
    recovery.metadata_arrives()

    assert end_of(recovery) == (CLOSED, 2, 15)


def test_a_read_ahead_gives_every_result_once_and_only_in_its_turn() -> None:
    reads = ReadAhead(QuorumSizes(1, 1, 1), ("a",), 7, limit=2)
    assert reads.begin().entry_id == 7
    assert (reads.has_room, reads.take()) == (False, None)

    reads.on_reply("a", 7, Code.OK, b"seven", 50)
    reads.on_reply("a", 7, Code.OK, b"again", 51)
    reads.on_reply("a", 8, Code.OK, b"never asked for", 52)
    assert (reads.expected_bytes, len(reads)) == (5, 1)

    taken = reads.take()
    assert taken is not None
    assert (taken.read.entry_id, taken.payload, taken.length) == (7, b"seven", 50)
    assert (reads.expected_bytes, len(reads), reads.take()) == (0, 0, None)
    assert [reads.begin().entry_id, reads.begin().entry_id, reads.has_room] == [8, 9, False]
    assert reads.expected_bytes == 10


@pytest.mark.parametrize("limit", [0, -1])
def test_a_window_for_no_entry_at_all_is_refused(limit: int) -> None:
    with pytest.raises(AssertionError, match="something has to be read"):
        ReadAhead(QuorumSizes(1, 1, 1), ("a",), 0, limit=limit)

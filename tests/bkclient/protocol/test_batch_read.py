"""Reading several entries with one request: what of an answer counts, and who is asked for batches."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bkclient.entry import Entry
from bkclient.errors import Code
from bkclient.protocol.batch_read import BatchRead, BatchSupport
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.read import ReadOutcome

ROTTEN = b"rotten"
NO_ENTRY, GONE, SLOW = Code.NO_SUCH_ENTRY, Code.BOOKIE_NOT_AVAILABLE, Code.TIMEOUT


def decode(entry_ids: Sequence[int], bodies: Sequence[bytes]) -> list[Entry]:
    """Good bodies are the entry's id in decimal."""
    entries = []
    for entry_id, body in zip(entry_ids, bodies, strict=True):
        if body != b"%d" % entry_id:
            break
        entries.append(Entry(1, entry_id, body, 10 * entry_id, entry_id - 1))
    return entries


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % entry_id for entry_id in range(first, last + 1)]


def ids(entries: tuple[Entry, ...]) -> list[int]:
    return [entry.entry_id for entry in entries]


# What counts -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("R-28")
@pytest.mark.behaviour("T-200")
def test_a_batch_holds_what_the_bookie_sent_in_order() -> None:
    read = BatchRead(3, 10, "abc")
    assert read.to_ask() == ("a",)

    entries = read.verified(bodies(3, 6), decode)
    assert read.on_entries("a", entries) is ReadOutcome.FOUND
    assert ids(read.entries) == [3, 4, 5, 6]


@pytest.mark.rule("R-29")
@pytest.mark.parametrize(("max_count", "kept"), [(2, [3, 4]), (1, [3]), (None, [3, 4, 5, 6])])
def test_no_more_is_kept_than_was_asked_for(max_count: int | None, kept: list[int]) -> None:
    read = BatchRead(3, max_count, "abc")

    assert ids(read.verified(bodies(3, 6), decode)) == kept


@pytest.mark.rule("R-30")
@pytest.mark.behaviour("T-202")
def test_a_later_entry_that_does_not_verify_ends_the_batch_before_it() -> None:
    read = BatchRead(3, None, "abc")

    assert ids(read.verified([*bodies(3, 4), ROTTEN, *bodies(6, 7)], decode)) == [3, 4]


@pytest.mark.rule("R-30")
@pytest.mark.behaviour("T-202")
@pytest.mark.parametrize("answer", [[], [ROTTEN], [ROTTEN, b"4"]])
def test_a_first_entry_that_does_not_verify_is_the_failure_of_its_replica(answer: list[bytes]) -> None:
    read = BatchRead(3, None, "ab")
    read.to_ask()
    assert read.verified(answer, decode) == ()

    assert read.on_reply("a", Code.DIGEST_MATCH) is ReadOutcome.WAITING
    assert read.to_ask() == ("b",)
    assert read.on_entries("b", read.verified(bodies(3, 3), decode)) is ReadOutcome.FOUND
    assert ids(read.entries) == [3]


@pytest.mark.rule("R-31")
def test_replicas_late_answers_and_errors_are_those_of_a_single_read() -> None:
    read = BatchRead(3, None, "abc")
    read.to_ask()
    assert read.on_late()
    assert read.to_ask() == ("b",)
    read.on_reply("a", GONE)
    read.on_reply("b", SLOW)
    assert read.to_ask() == ("c",)

    assert read.on_reply("c", NO_ENTRY) is ReadOutcome.FAILED
    assert (read.code, read.code_from) == (SLOW, "b")


@pytest.mark.rule("R-31")
def test_an_answer_after_the_end_does_not_replace_the_entries() -> None:
    read = BatchRead(3, None, "ab", parallel=True)
    read.to_ask()
    read.on_entries("a", read.verified(bodies(3, 3), decode))

    assert read.on_entries("b", read.verified(bodies(3, 9), decode)) is ReadOutcome.FOUND
    assert ids(read.entries) == [3]


def test_a_second_answer_of_one_replica_is_none() -> None:
    read = BatchRead(3, None, "abc", parallel=True)
    read.to_ask()
    read.on_reply("a", SLOW)

    assert read.on_entries("a", read.verified(bodies(3, 3), decode)) is ReadOutcome.WAITING
    assert read.entries == ()


@pytest.mark.behaviour("T-201")
def test_a_recovery_read_in_batches_is_denied_by_as_many_negatives_as_a_single_one() -> None:
    sizes = QuorumSizes(5, 5, 3)
    read = BatchRead(3, None, "abcde", negatives_to_deny=sizes.negatives_to_deny, parallel=True)
    read.to_ask()

    outcomes = [read.on_reply(bookie_id, NO_ENTRY) for bookie_id in "ace"]
    assert outcomes == [ReadOutcome.WAITING, ReadOutcome.WAITING, ReadOutcome.ABSENT]


# Who is asked ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("R-32")
@pytest.mark.rule("H-23")
def test_a_bookie_whose_connection_was_lost_over_a_batch_is_left_out_for_some_seconds() -> None:
    support = BatchSupport()
    support.on_batch_failed("a", GONE, 100.0)

    assert support.has_suspects
    assert support.usable("abc", 109.9) == ("b", "c")
    assert support.usable("abc", 110.0) == ("a", "b", "c")
    assert not support.has_suspects


@pytest.mark.rule("R-32")
@pytest.mark.rule("H-23")
def test_if_it_serves_single_reads_meanwhile_it_is_left_out_for_minutes_but_not_for_good() -> None:
    support = BatchSupport()
    support.on_batch_failed("a", GONE, 100.0)
    support.on_single_read("a", 101.0)

    assert not support.has_suspects
    assert support.usable("abc", 700.9) == ("b", "c")
    assert support.usable("abc", 701.0) == ("a", "b", "c")


@pytest.mark.rule("R-32")
@pytest.mark.parametrize("code", [NO_ENTRY, SLOW, Code.DIGEST_MATCH, Code.TOO_MANY_REQUESTS])
def test_other_errors_tell_nothing_about_batches(code: Code) -> None:
    support = BatchSupport()
    support.on_batch_failed("a", code, 100.0)

    assert support.usable("abc", 100.0) == ("a", "b", "c")


def test_single_reads_of_bookies_that_are_not_suspected_tell_nothing() -> None:
    support = BatchSupport()
    support.on_single_read("a", 100.0)
    support.on_batch_failed("b", GONE, 100.0)
    support.on_single_read("b", 110.0)

    assert support.usable("ab", 110.0) == ("a", "b")

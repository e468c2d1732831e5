"""A ledger that somebody closed below what its writer had confirmed: the writer tells, and takes nothing back.

No client that keeps the protocol does that. But bookies that forget a fence, or a client with a defect, have the same effect,
and then the writer is the only one that knows what is missing.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bkclient.errors import Code, LedgerTruncated, MetadataStoreError
from bkclient.ledger import LedgerState
from scenarios.machines.store import LEDGER_ID
from tests.bkclient.protocol.harness import Writer
from tests.bkclient.protocol.test_append_deferred_sync import Force


def writer_with_three_confirmed() -> Writer:
    """Entries 0 to 2 are confirmed, and entry 3 is in flight."""
    writer = Writer((3, 3, 2), "abc", spares="de")
    writer.append(b"zero", b"one", b"two", b"three")
    writer.ok("0a 0b 1a 1b 2a 2b")
    return writer


def cut(writer: Writer, last_entry_id: int = 0) -> None:
    """Somebody closes the ledger below what the writer confirmed."""
    writer.store.edit(lambda metadata: metadata.closed(last_entry_id, 4))


def finish(writer: Writer) -> None:
    while writer.updates:
        writer.metadata_arrives()


def assert_told(writer: Writer, last_entry_id: int = 0) -> None:
    assert writer.truncations == [(2, last_entry_id)]
    machine = writer.machine
    assert (machine.last_add_confirmed, machine.last_add_acknowledged, machine.known_end) == (2, 2, last_entry_id)
    refusal = machine.refusal()
    assert isinstance(refusal, LedgerTruncated)
    assert (refusal.ledger_id, refusal.last_add_confirmed, refusal.last_entry_id) == (LEDGER_ID, 2, last_entry_id)
    assert f"closed the ledger at entry {last_entry_id}" in str(refusal)
    assert "had acknowledged entries up to 2" in str(refusal)
    assert writer.closed == [Code.LEDGER_CLOSED]
    assert isinstance(writer.errors[-1], LedgerTruncated)
    assert writer.store.writes == 0


# Every way to meet the end that somebody stored ----------------------------------------------------------------------


@pytest.mark.rule("W-50")
@pytest.mark.parametrize("last_entry_id", [-1, 0, 1])
def test_an_ensemble_change_that_finds_the_ledger_cut_off(last_entry_id: int) -> None:
    writer = writer_with_three_confirmed()
    cut(writer, last_entry_id)

    writer.timeout("3a")
    finish(writer)

    assert writer.failed == [(3, Code.LEDGER_CLOSED)]
    assert isinstance(writer.errors[0], LedgerTruncated)
    assert_told(writer, last_entry_id)


@pytest.mark.rule("W-50")
@pytest.mark.parametrize("last_entry_id", [-1, 0, 1])
def test_a_close_that_finds_the_ledger_cut_off(last_entry_id: int) -> None:
    writer = writer_with_three_confirmed()
    writer.ok("3a 3b 3c")
    cut(writer, last_entry_id)

    writer.close()
    finish(writer)

    assert writer.failed == []
    assert writer.truncations == [(3, last_entry_id)]
    assert writer.closed == [Code.LEDGER_CLOSED]
    assert isinstance(writer.machine.refusal(), LedgerTruncated)
    assert writer.machine.last_add_confirmed == 3


@pytest.mark.rule("W-50")
def test_a_writer_that_is_fenced_and_then_finds_its_ledger_cut_off() -> None:
    writer = writer_with_three_confirmed()
    cut(writer)

    writer.answer("3a", Code.LEDGER_FENCED)
    assert writer.failed == [(3, Code.LEDGER_FENCED)]
    assert writer.machine.refusal().code is Code.LEDGER_FENCED
    finish(writer)

    assert_told(writer)
    cause = writer.machine.refusal().__cause__
    assert cause is not None
    assert "another client has taken over" in str(cause)


@pytest.mark.rule("W-50")
def test_a_writer_that_left_its_ledger_to_a_recovery_and_then_closes() -> None:
    writer = writer_with_three_confirmed()
    writer.store.edit(lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))
    writer.timeout("3a")
    finish(writer)
    assert writer.failed == [(3, Code.LEDGER_FENCED)]
    cut(writer)

    writer.close()
    finish(writer)

    assert_told(writer)


@pytest.mark.rule("W-60")
@pytest.mark.rule("W-50")
def test_a_look_at_the_metadata_that_finds_the_ledger_cut_off() -> None:
    writer = writer_with_three_confirmed()
    cut(writer)

    writer.machine.on_taken_over(writer.store.value)
    finish(writer)

    assert writer.failed == [(3, Code.LEDGER_CLOSED)]
    assert_told(writer)


@pytest.mark.rule("W-56")
@pytest.mark.rule("W-50")
def test_a_change_that_learns_of_it_after_the_close_has_failed() -> None:
    writer = writer_with_three_confirmed()
    writer.timeout("3a")
    change = writer.updates.pop()
    writer.close()
    closing = writer.updates.pop()
    closing.on_error(MetadataStoreError(ledger_id=LEDGER_ID))
    writer.ended(closing)
    assert writer.closed == [Code.METADATA_STORE]
    assert writer.truncations == []
    cut(writer)

    writer.store.finish(change)
    writer.ended(change)

    assert writer.truncations == [(2, 0)]
    assert isinstance(writer.machine.refusal(), LedgerTruncated)
    assert writer.machine.last_add_confirmed == 2


@pytest.mark.rule("W-56")
def test_a_change_that_ends_after_the_close_failed_and_learns_of_nothing() -> None:
    writer = writer_with_three_confirmed()
    writer.timeout("3a")
    change = writer.updates.pop()
    writer.close()
    closing = writer.updates.pop()
    closing.on_error(MetadataStoreError(ledger_id=LEDGER_ID))
    writer.ended(closing)

    writer.store.finish(change)
    writer.ended(change)

    assert writer.truncations == []
    assert writer.machine.ensemble == tuple("abc")


@pytest.mark.rule("W-50")
def test_an_append_between_the_news_and_its_telling_is_refused_with_both_ends_too() -> None:
    writer = writer_with_three_confirmed()
    cut(writer)
    writer.timeout("3a")
    (change,) = writer.updates
    writer.store.finish(change)  # the metadata are read, and the machine will be told in a moment

    assert not writer.machine.is_writable
    refusal = writer.machine.refusal()
    assert isinstance(refusal, LedgerTruncated)
    assert (refusal.last_add_confirmed, refusal.last_entry_id) == (2, 0)
    assert writer.truncations == []


@pytest.mark.rule("W-42")
def test_an_append_between_the_news_of_an_ordinary_end_and_its_telling_is_refused_as_closed() -> None:
    writer = writer_with_three_confirmed()
    writer.store.edit(lambda metadata: metadata.closed(2, 10))
    writer.timeout("3a")
    writer.store.finish(writer.updates[0])

    assert writer.machine.refusal().code is Code.LEDGER_CLOSED
    assert not isinstance(writer.machine.refusal(), LedgerTruncated)
    assert "another client closed the ledger" in str(writer.machine.refusal())


@pytest.mark.rule("W-50")
def test_it_is_told_once_however_often_it_is_met() -> None:
    writer = writer_with_three_confirmed()
    cut(writer)
    writer.timeout("3a")
    finish(writer)
    told = writer.machine.refusal()

    writer.close()
    finish(writer)

    assert_told(writer)
    assert writer.machine.refusal() is told


@pytest.mark.rule("W-50")
def test_an_end_at_or_above_what_was_confirmed_loses_nothing() -> None:
    for last_entry_id, length in ((2, 10), (3, 15)):
        writer = writer_with_three_confirmed()
        writer.store.edit(lambda metadata, end=(last_entry_id, length): metadata.closed(*end))  # type: ignore[misc]

        writer.timeout("3a")
        finish(writer)

        assert writer.truncations == []
        assert writer.machine.last_add_confirmed == last_entry_id
        assert writer.closed == [None]


# Deferred sync -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("W-50")
@pytest.mark.rule("LAC-12")
def test_a_force_of_what_was_cut_off_meanwhile_is_no_success() -> None:
    writer = Writer((2, 2, 2), "ab", deferred_sync=True)
    writer.append(b"zero", b"one", b"two")
    writer.ok("0a 0b 1a 1b 2a 2b")
    first = Force(writer)
    first.answer("ab")
    assert writer.machine.last_add_confirmed == 2
    second = Force(writer)
    cut(writer)
    writer.close()
    finish(writer)

    second.answer("ab")

    (error,) = second.errors
    assert isinstance(error, LedgerTruncated)
    assert writer.machine.last_add_confirmed == 2


# Any order of events -------------------------------------------------------------------------------------------------

MOVES = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "append",
                "append",
                "stores",
                "stores",
                "stores",
                "fails",
                "refuses",
                "act",
                "act",
                "close",
                "mark",
                "cut",
                "end",
            ]
        ),
        st.integers(0, 11),
    ),
    min_size=5,
    max_size=60,
)


class Story:
    """A writer, its answers in any order, and somebody who closes its ledger wherever they like."""

    def __init__(self) -> None:
        self.writer = writer_with_three_confirmed()
        self.writer.sent()
        self.outstanding = ["3a", "3b", "3c"]
        self.confirmed = -1

    def happen(self, move: str, number: int) -> None:
        writer, store = self.writer, self.writer.store
        if move == "append" and writer.machine.is_writable:
            writer.append(b"x")
        elif move in ("stores", "fails", "refuses") and self.outstanding:
            cue = self.outstanding.pop(number % min(4, len(self.outstanding)))  # older ones first, or nothing gets done
            code = {"stores": Code.OK, "fails": Code.TIMEOUT, "refuses": Code.LEDGER_FENCED}[move]
            writer.answer(cue, code)
        elif move == "act" and writer.updates:
            self.act(number % len(writer.updates))
        elif move == "close":
            writer.close()
        elif move == "look" and store.metadata.state is not LedgerState.OPEN:
            writer.machine.on_taken_over(store.value)
        elif move == "mark" and store.metadata.state is LedgerState.OPEN:
            store.edit(lambda metadata: metadata.with_state(LedgerState.IN_RECOVERY))
        elif move in ("cut", "end") and not store.metadata.is_closed:
            # At or above the last fragment, as metadata can say it; below what was acknowledged, or not.
            end = max(
                store.metadata.last_fragment.first_entry_id - 1, writer.machine.last_add_confirmed + 2 - number % 5
            )
            store.edit(lambda metadata: metadata.closed(end, end + 1))
        self.outstanding += writer.sent().split()

    def act(self, index: int) -> None:
        update = self.writer.updates[index]
        if update.action is not None:
            self.writer.store.carry_out(update)
        if update.action is None:
            del self.writer.updates[index]
            self.writer.ended(update)

    def check(self) -> None:
        """W-50: nothing that was confirmed is taken back, and a loss is told once, with what was confirmed then."""
        machine = self.writer.machine
        assert machine.last_add_confirmed >= self.confirmed
        self.confirmed = machine.last_add_confirmed
        assert self.confirmed >= max(self.writer.acked, default=-1)
        assert len(self.writer.truncations) == (machine.truncation is not None)

    def settle(self) -> None:
        self.happen("close", 0)
        while self.writer.updates:
            self.act(0)
            self.check()
        machine, end = self.writer.machine, self.writer.store.metadata.last_entry_id
        is_lost = max(self.writer.acked, default=-1) > end
        assert (machine.truncation is not None) == is_lost
        assert isinstance(machine.refusal(), LedgerTruncated) == is_lost
        assert len(self.writer.closed) == 1
        if is_lost:
            assert self.writer.closed == [Code.LEDGER_CLOSED]
            assert self.writer.truncations == [(machine.last_add_confirmed, end)]


@pytest.mark.rule("W-50")
@settings(max_examples=400)
@given(MOVES)
def test_a_writer_takes_nothing_back_and_tells_every_loss_in_whatever_order_things_happen(
    moves: list[tuple[str, int]],
) -> None:
    story = Story()
    for move, number in moves:
        story.happen(move, number)
        story.check()
    story.settle()

"""Answers over connections that are newer than the last look at the metadata: held, counted, or void (W-60)."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from typing import Any

import pytest

from bkclient.errors import BookKeeperError, ClientClosed, Code, MetadataStoreError, NoSuchLedger
from bkclient.ledger import LedgerMetadata, LedgerState, Versioned
from bkclient.protocol.force import ForceMachine
from bkclient.protocol.reconnect import ReconnectCheck
from scenarios.machines.store import LEDGER_ID
from tests.bkclient.protocol.harness import Writer, cues

AWAY = MetadataStoreError("nobody answers", ledger_id=LEDGER_ID)


class Desk:
    """A check with its ports, and a shell that compares numbers as it should."""

    def __init__(self, writer: Writer, *, verified: int | None = 0, limit_s: float | None = 100.0) -> None:
        self.writer = writer
        self.connections: dict[str, int] = {}
        self.reads = 0
        self.delays: list[float] = []
        self.now = 1000.0
        self.check = ReconnectCheck(writer.machine, self.connections, self, verified=verified, give_up_after_s=limit_s)

    # Ports

    def read_metadata(self) -> None:
        self.reads += 1

    def read_metadata_later(self, delay_s: float) -> None:
        self.delays.append(delay_s)

    # What the test does

    def connect(self, bookies: str) -> None:
        for bookie_id in bookies:
            self.connections[bookie_id] = max(self.connections.values(), default=0) + 1

    def stored(self, answers: str) -> None:
        for entry_id, bookie_id in cues(answers):
            if self.connections[bookie_id] > self.check.verified:
                self.check.on_stored(bookie_id, entry_id)
            else:
                self.writer.machine.on_add_reply(bookie_id, entry_id, Code.OK)

    def forced(self, bookies: str, force: ForceMachine) -> None:
        for bookie_id in bookies:
            if self.connections[bookie_id] > self.check.verified:
                self.check.on_forced(bookie_id, force)
            else:
                force.on_force_reply(bookie_id, Code.OK)

    def arrives(self, value: Versioned | None = None) -> None:
        """The metadata arrives, as it is stored unless a test says otherwise."""
        self.check.on_metadata(value or self.writer.store.value, self.now)

    def fails(self, error: BookKeeperError = AWAY, after_s: float = 0.0) -> None:
        self.now += after_s
        self.check.on_read_failed(error, self.now)


class Force:
    """One force and its ports."""

    def __init__(self, writer: Writer) -> None:
        self.outcome: list[Code | None] = []
        self.machine = ForceMachine(writer.machine, self)
        self.machine.start()

    def send_force(self, bookie_id: str) -> None:
        """The test answers."""

    def force_finished(self, error: BookKeeperError | None) -> None:
        self.outcome.append(error.code if error else None)


def desk(
    entries: int = 1,
    *,
    connected: str = "abc",
    verified: int | None = 0,
    limit_s: float | None = 100.0,
    **options: Any,
) -> Desk:
    """A writer with ``entries`` on their way, whose connections are new."""
    made = Desk(Writer(**options), verified=verified, limit_s=limit_s)
    made.connect(connected)
    made.writer.append(*(b"x" for _ in range(entries)))
    return made


def in_recovery(metadata: LedgerMetadata) -> LedgerMetadata:
    return replace(metadata, state=LedgerState.IN_RECOVERY)


# Holding and counting -----------------------------------------------------------------------------------------------


@pytest.mark.rule("W-60")
def test_an_answer_over_a_connection_older_than_the_ledger_counts_at_once() -> None:
    made = desk(verified=3)

    made.stored("0a 0b")

    assert (made.writer.acked, made.reads, made.check.held_count) == ([0], 0, 0)


@pytest.mark.rule("W-60")
def test_an_answer_over_an_older_connection_counts_beside_a_newer_one() -> None:
    made = desk(2, verified=3)
    made.connect("a")

    made.stored("0a")
    assert (made.reads, made.check.held_count) == (1, 1)
    made.connections["a"] = 1
    made.stored("0b 0a")

    assert (made.writer.acked, made.reads, made.check.held_count) == ([0], 1, 1)


@pytest.mark.rule("W-60")
def test_a_read_serves_the_answers_held_although_their_bookies_have_answered_over_older_connections_since() -> None:
    made = desk(verified=3)
    made.connect("abc")
    made.stored("0a 0b")
    made.fails()
    made.connections.update(a=1, b=2, c=3)

    made.check.on_retry()
    made.arrives()

    assert (made.writer.acked, made.reads, made.check.held_count) == ([0], 2, 0)
    assert made.check.verified == 5


@pytest.mark.rule("W-60")
def test_answers_over_new_connections_are_held_until_one_read_finds_the_ledger_open() -> None:
    made = desk(entries=2)

    made.stored("0a 0b 0c 1c 1a 1b")
    assert (made.writer.acked, made.reads, made.check.held_count) == ([], 1, 6)
    made.arrives()

    assert (made.writer.acked, made.reads, made.check.held_count) == ([0, 1], 1, 0)
    made.writer.append()
    made.stored("2a 2b 2c")
    assert (made.writer.acked, made.reads) == ([0, 1, 2], 1), "one read for each connection, not for each entry"


@pytest.mark.rule("W-60")
def test_a_quorum_of_old_connections_needs_no_read_and_no_new_one() -> None:
    made = desk(verified=3)
    made.connect("c")

    made.stored("0a 0b 0c")

    assert (made.writer.acked, made.reads, made.check.held_count) == ([0], 0, 0), "nobody waits for the third any more"


@pytest.mark.rule("W-60")
def test_one_old_and_one_new_connection_are_no_quorum_yet() -> None:
    made = desk(verified=3)
    made.connect("b")

    made.stored("0a 0b")
    assert (made.writer.acked, made.reads) == ([], 1)
    made.arrives()

    assert made.writer.acked == [0]


@pytest.mark.rule("W-60")
def test_a_read_verifies_the_connections_that_were_there_when_it_began_and_no_later_ones() -> None:
    made = desk(connected="a")
    made.stored("0a")
    made.connect(
        "b"
    )  # the read is under way: the bookie may have been fenced, killed and started after it was answered
    made.stored("0b")

    made.arrives()

    assert (made.writer.acked, made.reads, made.check.verified, made.check.held_count) == ([], 2, 1, 1)
    made.arrives()
    assert (made.writer.acked, made.check.verified) == ([0], 2)


@pytest.mark.rule("W-60")
def test_a_read_verifies_connections_to_all_bookies_whoever_asked_for_it() -> None:
    made = desk(connected="abcdef")

    made.stored("0a")
    made.arrives()

    made.stored("0b")
    assert (made.writer.acked, made.reads, made.check.verified) == ([0], 1, 6)


@pytest.mark.rule("W-60")
def test_a_connection_that_is_gone_by_the_time_of_the_answer_has_told_the_truth_all_the_same() -> None:
    """What was stored before the read began was stored before any fence, whatever became of the connection."""
    made = desk(connected="ab")
    made.stored("0a 0b")
    made.connect("ab")

    made.arrives()

    assert made.writer.acked == [0]


@pytest.mark.rule("W-60")
def test_answers_are_counted_in_the_order_in_which_they_came() -> None:
    made = desk(entries=3)
    made.stored("2a 2b 1a 1b 0a 0b")

    made.arrives()

    assert made.writer.acked == [0, 1, 2]


@pytest.mark.rule("W-60")
def test_switched_off_nothing_is_held() -> None:
    made = desk(verified=None)
    made.connect("abc" * 5)

    made.stored("0a 0b")

    assert (made.writer.acked, made.reads, made.check.verified) == ([0], 0, sys.maxsize)


@pytest.mark.rule("W-60")
def test_given_ids_are_held_as_well() -> None:
    made = Desk(Writer(entry_ids_given=True))
    made.connect("abc")
    made.writer.append_at(1, 0)

    made.stored("1a 1b 0a 0b")
    assert made.writer.acked == []
    made.arrives()

    assert made.writer.acked == [0, 1]


@pytest.mark.rule("W-60")
@pytest.mark.rule("W-14")
def test_a_bookie_that_was_replaced_while_its_answer_was_held_is_not_counted() -> None:
    made = Desk(Writer((2, 2, 2), "ab", spares="c"))
    made.connect("abc")
    made.writer.append()
    made.stored("0a 0b")
    made.writer.timeout("0b")
    made.writer.metadata_arrives()
    assert made.writer.store.ensembles == {0: "ac"}

    made.arrives()
    assert made.writer.acked == []
    made.stored("0c")

    assert made.writer.acked == [0]


# What the metadata may say ------------------------------------------------------------------------------------------


@pytest.mark.rule("W-60")
@pytest.mark.rule("W-44")
def test_a_ledger_in_recovery_ends_the_writer_as_fenced_and_leaves_the_close_to_the_recovery() -> None:
    made = desk(entries=2)
    made.stored("0a 0b 0c")
    made.writer.store.edit(in_recovery)

    made.arrives()

    assert made.writer.failed == [(0, Code.LEDGER_FENCED), (1, Code.LEDGER_FENCED)]
    assert (made.writer.acked, made.writer.closed, made.writer.updates) == ([], [], [])
    assert "is recovering it" in made.writer.errors[0].message
    assert not made.writer.machine.is_writable
    assert made.check.held_count == 0


@pytest.mark.rule("W-60")
@pytest.mark.rule("W-50")
def test_a_ledger_that_was_closed_ends_the_writer_as_fenced_and_its_end_is_adopted() -> None:
    made = desk(verified=3)
    made.stored("0a 0b")
    made.connect("ab")
    made.writer.append()
    made.stored("1a 1b")
    made.writer.store.edit(lambda metadata: metadata.closed(0, 1))

    made.arrives()

    assert (made.writer.acked, made.writer.failed) == ([0], [(1, Code.LEDGER_FENCED)])
    assert "closed it at entry 0" in made.writer.errors[0].message
    assert (made.writer.machine.last_add_confirmed, made.writer.machine.length) == (0, 1)
    assert made.writer.store.writes == 0


@pytest.mark.rule("W-60")
def test_a_ledger_that_was_deleted_ends_the_writer_and_says_so() -> None:
    made = desk()
    made.stored("0a 0b")

    made.fails(NoSuchLedger(ledger_id=LEDGER_ID))

    assert (made.writer.failed, made.delays) == ([(0, Code.NO_SUCH_LEDGER)], [])


@pytest.mark.rule("W-60")
def test_a_store_that_was_closed_ends_the_writer_and_leaves_the_ledger_open() -> None:
    made = desk()
    made.stored("0a 0b")

    made.fails(ClientClosed(ledger_id=LEDGER_ID))

    assert (made.writer.failed, made.writer.updates) == ([(0, Code.CLIENT_CLOSED)], [])


@pytest.mark.rule("W-60")
def test_a_newer_version_that_is_open_is_fine() -> None:
    """Auto-recovery replaces bookies of finished fragments while the ledger is written."""
    made = desk()
    made.stored("0a 0b")
    made.writer.store.edit(lambda metadata: metadata)

    made.arrives()

    assert made.writer.acked == [0]


@pytest.mark.rule("W-60")
def test_an_older_version_than_the_writer_knew_is_no_answer() -> None:
    """A register cannot step back: a replica of the store that lags, or another ledger under the same id."""
    made = desk()
    made.writer.machine.local.value = Versioned(made.writer.store.metadata, 5)
    made.stored("0a 0b")

    made.arrives(Versioned(made.writer.store.metadata, 4))
    assert (made.writer.acked, made.delays) == ([], [0.1])
    made.check.on_retry()
    made.arrives(Versioned(made.writer.store.metadata, 5))

    assert made.writer.acked == [0]


@pytest.mark.rule("W-60")
def test_a_change_of_ones_own_that_overtook_the_read_does_not_make_it_old() -> None:
    made = desk()
    made.stored("0a 0b")
    made.writer.machine.local.value = Versioned(made.writer.store.metadata, 1)

    made.arrives(Versioned(made.writer.store.metadata, 0))

    assert made.writer.acked == [0]


@pytest.mark.rule("W-60")
def test_a_takeover_that_was_noticed_meanwhile_is_told_once() -> None:
    made = desk()
    made.stored("0a 0b")
    made.writer.answer("0c", Code.LEDGER_FENCED)
    assert made.writer.failed == [(0, Code.LEDGER_FENCED)]
    made.writer.store.edit(in_recovery)

    made.arrives()
    made.writer.machine.on_taken_over(made.writer.store.value)

    assert made.writer.failed == [(0, Code.LEDGER_FENCED)]


# Metadata that cannot be read ---------------------------------------------------------------------------------------


@pytest.mark.rule("W-60")
def test_a_read_that_failed_is_repeated_later_and_later() -> None:
    made = desk()
    made.stored("0a 0b")

    for _ in range(9):
        made.fails(after_s=1)
        made.check.on_retry()
    assert made.delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert (made.writer.acked, made.reads) == ([], 10)
    made.arrives()

    assert made.writer.acked == [0]
    made.connect("a")
    made.writer.append()
    made.stored("1a")
    made.fails(after_s=1000)
    assert made.delays[-1] == 0.1, "a success ends the row"


@pytest.mark.rule("W-60")
def test_while_a_read_or_the_next_one_is_due_no_other_is_made() -> None:
    made = desk(entries=3)
    made.stored("0a 0b")
    made.fails()

    made.connect("abc")
    made.stored("1a 1b 2a")

    assert (made.reads, made.delays, made.check.held_count) == (1, [0.1], 5)


@pytest.mark.rule("W-60")
def test_a_store_that_stays_away_for_too_long_ends_the_writer() -> None:
    made = desk()
    made.stored("0a 0b")
    made.fails(after_s=7)
    made.check.on_retry()
    made.fails(after_s=99.9)
    assert made.writer.failed == []
    made.check.on_retry()

    made.fails(after_s=0.1)

    assert made.writer.failed == [(0, Code.METADATA_STORE)]
    (error,) = made.writer.errors
    assert "for 100 s the metadata could not be read" in error.message
    assert "nobody answers" in error.message
    assert error.__cause__ is AWAY
    assert len(made.delays) == 2


@pytest.mark.rule("W-60")
def test_without_a_limit_a_writer_waits_as_long_as_it_takes() -> None:
    made = Desk(Writer(), limit_s=None)
    made.connect("abc")
    made.writer.append()
    made.stored("0a 0b")
    for _ in range(3):
        made.fails(after_s=1e6)
        made.check.on_retry()

    made.arrives()

    assert made.writer.acked == [0]


@pytest.mark.rule("W-60")
@pytest.mark.rule("W-46")
def test_the_quorum_timeout_says_what_the_entry_has_waited_for() -> None:
    made = Desk(Writer(quorum_timeout_s=8.0))
    made.connect("abc")
    made.writer.append()
    made.stored("0a 0b")
    made.fails()

    for second in range(20):
        made.writer.machine.check_quorum_timeout(float(second))

    (error,) = made.writer.errors
    assert error.code is Code.QUORUM_TIMEOUT
    assert "do not count while the ledger's metadata cannot be read" in error.message
    assert error.__cause__ is AWAY


@pytest.mark.rule("W-60")
def test_a_quorum_timeout_after_the_metadata_was_read_blames_nobody_else() -> None:
    made = Desk(Writer(quorum_timeout_s=8.0))
    made.connect("abc")
    made.writer.append()
    made.stored("0a")
    made.fails()
    made.check.on_retry()
    made.arrives()

    for second in range(20):
        made.writer.machine.check_quorum_timeout(float(second))

    (error,) = made.writer.errors
    assert "stored by a" in error.message
    assert error.__cause__ is None


@pytest.mark.rule("W-60")
def test_what_is_held_is_bounded_by_what_waits_however_long_the_store_is_away() -> None:
    """The other bookies suffice, so the writer goes on; the answers of the third must not pile up."""
    made = desk(entries=0, verified=3)
    made.connect("c")
    for entry_id in range(5000):
        made.writer.append()
        made.stored(f"{entry_id}c {entry_id}a {entry_id}b")
        assert made.check.held_count <= 64

    assert len(made.writer.acked) == 5000
    assert made.reads == 1


@pytest.mark.rule("W-60")
def test_everything_that_waits_is_kept_however_much_it_is() -> None:
    made = desk(entries=500)

    made.stored(" ".join(f"{entry_id}a {entry_id}b {entry_id}c" for entry_id in range(500)))
    assert made.check.held_count == 1500
    made.arrives()

    assert made.writer.acked == list(range(500))


# The end of the writer ----------------------------------------------------------------------------------------------


@pytest.mark.rule("W-60")
@pytest.mark.parametrize("way", ["metadata", "failure", "retry", "answer", "stop"])
def test_after_the_writer_was_closed_nothing_is_held_counted_or_read(way: str) -> None:
    made = desk(entries=2)
    made.stored("0a 0b")
    if way in {"retry", "answer"}:
        made.fails()
    made.writer.close()
    reads = made.reads

    if way == "metadata":
        made.arrives()
    elif way == "failure":
        made.fails()
    elif way == "retry":
        made.check.on_retry()
    elif way == "answer":
        made.stored("1a")
        made.check.stop()
    else:
        made.check.stop()
        made.check.stop()

    assert (made.writer.acked, made.reads, made.check.held_count) == ([], reads, 0)
    assert made.writer.failed == [(0, Code.LEDGER_CLOSED), (1, Code.LEDGER_CLOSED)]


# Forces -------------------------------------------------------------------------------------------------------------


def deferred() -> tuple[Desk, Force]:
    """An acknowledged entry, then new connections, then a force."""
    made = desk(verified=3, deferred_sync=True)
    made.stored("0a 0b 0c")
    made.connect("abc")
    return made, Force(made.writer)


@pytest.mark.rule("W-60")
@pytest.mark.rule("LAC-12")
def test_a_force_waits_for_the_metadata_too() -> None:
    made, force = deferred()

    made.forced("abc", force.machine)
    assert (force.outcome, made.writer.machine.last_add_confirmed, made.reads) == ([], -1, 1)
    made.arrives()

    assert (force.outcome, made.writer.machine.last_add_confirmed) == ([None], 0)


@pytest.mark.rule("W-60")
def test_a_force_of_a_ledger_that_was_taken_over_fails_as_fenced() -> None:
    made, force = deferred()
    made.forced("ab", force.machine)
    made.writer.store.edit(in_recovery)

    made.arrives()

    assert (force.outcome, made.writer.machine.last_add_confirmed) == ([Code.LEDGER_FENCED], -1)


@pytest.mark.rule("W-60")
def test_a_force_that_has_failed_holds_nothing() -> None:
    made, force = deferred()
    force.machine.on_force_reply("c", Code.TIMEOUT)

    made.forced("ab", force.machine)

    assert (made.reads, made.check.held_count) == (0, 0)


@pytest.mark.rule("W-60")
def test_forces_that_are_done_are_forgotten_with_the_entries() -> None:
    made, force = deferred()
    made.forced("a", force.machine)
    force.machine.on_force_reply("c", Code.TIMEOUT)
    other = Force(made.writer)
    made.forced("a" * 70, other.machine)
    assert made.check.held_count == 70

    made.arrives()

    assert (force.outcome, other.outcome) == ([Code.TIMEOUT], [])


@pytest.mark.rule("W-60")
def test_a_force_that_is_held_when_its_ledger_is_closed_is_told_that_it_moved_nothing() -> None:
    made, force = deferred()
    made.forced("abc", force.machine)

    made.writer.close()
    made.check.stop()

    assert (force.outcome, made.writer.machine.last_add_confirmed) == ([Code.LEDGER_CLOSED], -1)


@pytest.mark.rule("W-60")
def test_a_force_whose_answer_comes_after_the_end_is_told_so() -> None:
    made, force = deferred()
    made.writer.machine.abandon(ClientClosed(ledger_id=LEDGER_ID))

    made.forced("a", force.machine)

    assert force.outcome == [Code.CLIENT_CLOSED]


# Against bookies that forget ----------------------------------------------------------------------------------------


class Takeover:
    """Two bookies that are killed and forget their fences, a recovery, and a writer: whatever chance makes of them.

    Whatever counts was stored before the bookie was first fenced. That is what quorums need, and all that a fence is for.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.made = Desk(Writer((2, 2, 2), "ab"), verified=self.rng.randint(0, 2))
        self.made.connect("ab")
        self.is_fenced = {"a": False, "b": False}
        self.was_fenced = {"a": False, "b": False}
        #: Answers on their way over the newest connection, and what was stored before its bookie was fenced.
        self.answers: list[tuple[int, str]] = []
        self.stored_in_time: set[tuple[int, str]] = set()
        self.appended = 0
        #: What the read under way has seen; None before it took effect.
        self.seen: Versioned | None = None

    def play(self, steps: int) -> None:
        moves = (self.kill, self.take_over, self.append, self.store, self.store, self.answer, self.read, self.read)
        for _ in range(steps):
            self.rng.choice(moves)()
            for entry_id in self.made.writer.acked:
                for bookie in "ab":
                    assert (entry_id, bookie) in self.stored_in_time, f"entry {entry_id} counts, {bookie} was fenced"

    def some_bookies(self) -> str:
        return self.rng.choice(("a", "b", "ab"))

    def kill(self) -> None:
        for bookie in self.some_bookies():
            self.is_fenced[bookie] = False
            self.answers = [answer for answer in self.answers if answer[1] != bookie]
            self.made.connect(bookie)

    def take_over(self) -> None:
        if self.made.writer.store.metadata.state is LedgerState.OPEN:
            if self.rng.random() < 0.8:
                return
            self.made.writer.store.edit(in_recovery)
        for bookie in self.some_bookies():
            self.is_fenced[bookie] = self.was_fenced[bookie] = True

    def append(self) -> None:
        if self.made.writer.machine.is_writable:
            self.made.writer.append()
            self.appended += 1

    def store(self) -> None:
        entry_id = self.made.writer.machine.last_add_acknowledged + 1
        for bookie in self.some_bookies():
            if entry_id < self.appended and not self.is_fenced[bookie]:
                self.answers.append((entry_id, bookie))
                if not self.was_fenced[bookie]:
                    self.stored_in_time.add((entry_id, bookie))

    def answer(self) -> None:
        for entry_id, bookie in self.answers:
            self.made.stored(f"{entry_id}{bookie}")
        self.answers = []

    def read(self) -> None:
        if not self.made.reads:
            return
        if self.seen is None:
            self.seen = self.made.writer.store.value
            return
        seen, self.seen = self.seen, None
        self.made.reads -= 1
        if self.rng.random() < 0.1:
            self.made.fails()
            self.made.check.on_retry()
        else:
            self.made.arrives(seen)


@pytest.mark.rule("W-60")
def test_whatever_is_killed_fenced_and_read_in_whatever_order_nothing_counts_that_a_recovery_may_have_missed() -> None:
    acked = taken_over = 0
    for seed in range(4000):
        takeover = Takeover(seed)
        takeover.play(40)
        acked += len(takeover.made.writer.acked)
        taken_over += bool(takeover.made.writer.failed)
    assert acked > 1000
    assert taken_over > 500


@pytest.mark.rule("W-60")
def test_a_takeover_that_is_read_in_an_older_version_ends_the_writer_and_is_not_its_view() -> None:
    writer = Writer((1, 1, 1), "a")
    known = writer.machine.local.value = Versioned(writer.store.metadata, 5)

    writer.machine.on_taken_over(Versioned(writer.store.metadata.with_state(LedgerState.IN_RECOVERY), 4))

    assert writer.machine.local.value is known
    assert writer.machine.refusal().code is Code.LEDGER_FENCED


def held_entry_then_force() -> tuple[Desk, Force]:
    """Entry 0 is acknowledged; the answers that are held are about entry 1, and about a force of entry 0."""
    made = desk(2, verified=3, deferred_sync=True)
    made.stored("0a 0b")
    force = Force(made.writer)
    made.connect("abc")
    made.stored("1a")
    made.forced("b", force.machine)
    assert made.check.held_count == 2
    return made, force


def test_a_force_is_told_of_the_end_also_if_an_entry_was_held_before_it() -> None:
    made, force = held_entry_then_force()
    made.writer.machine.abandon(ClientClosed(ledger_id=LEDGER_ID))
    made.fails()
    assert force.outcome == [Code.CLIENT_CLOSED]


def test_forces_are_remembered_as_long_as_an_answer_to_them_is_held() -> None:
    made, force = held_entry_then_force()
    assert list(made.check.forces.values()) == [force.machine]
    made.arrives()
    assert made.check.forces == {}
    made.forced("ac", force.machine)
    assert force.outcome == [None]


def test_answers_about_entries_that_are_done_prove_their_bookies() -> None:
    made = desk(verified=3, spares="d")
    made.writer.timeout("0a")
    made.writer.metadata_arrives()
    made.connect("d")
    made.stored("0b 0c")
    assert list(made.writer.machine.members.memory.unproven) == ["d"]
    made.stored("0d")
    assert (made.check.held_count, list(made.writer.machine.members.memory.unproven)) == (0, [])


def test_a_store_that_goes_back_in_time_is_told_of() -> None:
    made = desk(limit_s=0.0)
    older = made.writer.store.value
    made.writer.machine.local.value = replace(older, version=older.version + 1)
    made.check.stop()
    made.connect("a")
    made.stored("0a")
    made.arrives(older)
    (error,) = made.writer.errors
    assert str(error).startswith(
        f"ledger {LEDGER_ID}: bookies were connected to anew, and for 0 s the metadata could not be read that says whether the "
        "ledger is still this writer's: the metadata store answered with an older version than it had before [METADATA_STORE "
    )
    assert error.__cause__ is not None
    assert str(error.__cause__).startswith(
        f"ledger {LEDGER_ID}: the metadata store answered with an older version than it had before [METADATA_STORE "
    )

"""The owner of a log: every order of events in small worlds, runs by chance in larger ones, and planted defects."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import pytest

from bkclient.errors import ClientClosed, LedgerTruncated, NotEnoughBookies
from bkclient.log.errors import LogDeposed, NoSuchLog
from bkclient.log.machine import changes
from bkclient.log.machine.manifest import LedgerEnd, LogManifest, LogState
from bkclient.log.machine.owner import CloseLedger, ConfirmedEntry, LogOwner, MakeLedger, RecoverLedger
from bkclient.log.machine.owner_state import ENDED, OWNER_NEXT, OwnerState
from bkclient.log.machine.update import ManifestUpdate, ReadManifest, VersionedManifest, WriteManifest
from bkclient.log.settings import LogSettings
from tests.bkclient.log.owners import BrokenLogError, explore, new_model, walk

BLANK = VersionedManifest(LogManifest("log", LogSettings(max_ledger_entries=2, min_ledger_s=0)), 0)
WALKS = 150


def test_a_log_keeps_its_promises_in_every_order_of_events_of_two_owners() -> None:
    states, kinds = explore(new_model(1, 0, max_entries=1))
    assert states > 300
    assert kinds == {"act", "answer", "claim", "close", "fail", "fence", "publish", "recover", "store"}


@pytest.mark.deep
def test_and_when_watches_show_the_manifest_at_any_time() -> None:
    states, kinds = explore(new_model(1, 0, max_entries=1, looks=2))
    assert states > 600
    assert "look" in kinds


@pytest.mark.sweep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("publishes", "faults"),
    [
        ((1, 1), {}),
        ((2, 1), {}),
        ((1, 1), {"failures": 1}),
        ((1, 1), {"deaths": 1, "unknowns": 1}),
        ((2, 1), {"unknowns": 1}),
        ((1, 1), {"unknowns": 1, "looks": 2}),
    ],
)
def test_and_with_faults_in_every_order(publishes: tuple[int, ...], faults: dict[str, Any]) -> None:
    states, _ = explore(new_model(*publishes, max_entries=1, **faults), most=3_000_000)
    assert states > 1_000


def test_a_log_keeps_its_promises_in_long_runs_of_three_owners_with_faults() -> None:
    kinds = set()
    for seed in range(WALKS):
        model = new_model(4, 4, 4, deaths=1, unknowns=3, failures=3, looks=6)
        kinds |= {event[0] for event in walk(model, Random(seed))}
        assert all(program.machine.state in ENDED or not program.is_alive for program in model.programs), seed
    assert kinds >= {
        "late",
        "lose-answer",
        "lose-call",
        "delay-call",
        "die",
        "fail",
        "fence",
        "recover",
        "meddle",
        "close-fails",
        "look",
    }


# Planted defects -----------------------------------------------------------------------------------------------------


class WritesBeforeItLists(LogOwner):
    """Sends entries to a ledger that is not in the list yet."""

    def on_made(self, ledger_id: int) -> None:
        super().on_made(ledger_id)
        if self.state is OwnerState.LISTING:
            self.update = None
            self.entries_sent = self.bytes_sent = self.stored = 0
            self.state = OwnerState.OPEN


class BelievesItsPredecessor(LogOwner):
    """Takes the ledger of its predecessor to be empty, and neither fences nor recovers it."""

    def _after_update(self) -> None:
        super()._after_update()
        if self.state is OwnerState.RECOVERING and self.ledger_id is None:
            self.on_ended(LedgerEnd(self.to_recover[0], -1))


class TakesConflictsForSuccess(LogOwner):
    """Goes on as if its change had been written."""

    def on_not_written(self) -> None:
        self.on_written()


class SendsAgainWhatWasStored(LogOwner):
    """Sends everything without an acknowledgement again, whatever the end of the ledger includes."""

    def _settle(self, end: LedgerEnd) -> bool:
        return super()._settle(LedgerEnd(end.ledger_id, self.stored - 1))


class SendsAgainBackwards(LogOwner):
    """Mixes up the order of what it sends again."""

    def _settle(self, end: LedgerEnd) -> bool:
        before = len(self.queue)
        is_sound = super()._settle(end)
        again = [self.queue.popleft() for _ in range(len(self.queue) - before)]
        self.queue.extendleft(again)
        return is_sound


class DropsWhatWasNotStored(LogOwner):
    """Acknowledges everything that it had sent to a ledger which ended."""

    def _settle(self, end: LedgerEnd) -> bool:
        everything = LedgerEnd(end.ledger_id, self.stored + len(self.sent) - 1)
        return super()._settle(max(end, everything, key=lambda each: each.last_entry_id))


class AcknowledgesBeforeItKnows(LogOwner):
    """Acknowledges what a recovered ledger includes, without asking whether it is still the owner."""

    def _settle(self, end: LedgerEnd) -> bool:
        is_sound = super()._settle(end)
        self.confirmed += self.held
        self.held.clear()
        return is_sound


class DeletesWhatItMayHaveListed(LogOwner):
    """Takes a ledger for an orphan although the outcome of listing it is unknown."""

    def on_not_written(self) -> None:
        if self.state is OwnerState.LISTING:
            orphan = self.ledger_id
            self.fail(NotEnoughBookies("it gives up"))
            self.orphan = orphan
        else:
            super().on_not_written()


DEFECTS: list[type[LogOwner]] = [
    WritesBeforeItLists,
    BelievesItsPredecessor,
    TakesConflictsForSuccess,
    SendsAgainWhatWasStored,
    SendsAgainBackwards,
    DropsWhatWasNotStored,
    AcknowledgesBeforeItKnows,
    DeletesWhatItMayHaveListed,
]


def find(owner: type[LogOwner] = LogOwner) -> str:
    for seed in range(4 * WALKS):
        try:
            walk(new_model(4, 4, 4, deaths=1, unknowns=3, failures=3, owner=owner), Random(seed))
        except BrokenLogError as error:
            return str(error)
        except AssertionError:
            continue  # the machine itself noticed
    return ""


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(defect: type[LogOwner]) -> None:
    assert find(defect)


def test_a_deposed_owner_that_goes_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "_check_owner", lambda *_: None)
    assert find()


# One step at a time --------------------------------------------------------------------------------------------------


def state(owner: LogOwner) -> OwnerState:
    """As of now; type checkers remember what an attribute was."""
    return owner.state


def action(owner: LogOwner) -> object:
    """As of now."""
    return owner.action


def claimed(**settings: Any) -> LogOwner:
    """An owner of an empty log."""
    owner = LogOwner("a", "claim_id")
    owner.claim()
    assert action(owner) == ReadManifest()
    manifest = LogManifest("log", LogSettings(**{"max_ledger_entries": 2, "min_ledger_s": 0, **settings}))
    owner.on_read(VersionedManifest(manifest, 0))
    owner.on_written()
    assert state(owner) is OwnerState.READY
    return owner


def opened(**settings: Any) -> LogOwner:
    """An owner that has sent its first entry, to ledger 7."""
    owner = claimed(**settings)
    owner.publish(10)
    assert action(owner) == MakeLedger()
    owner.on_made(7)
    assert isinstance(action(owner), WriteManifest)
    assert owner.take_sends() == [], "the ledger is not in the list yet"
    owner.on_written()
    assert owner.take_sends() == [0]
    return owner


def test_a_full_ledger_is_replaced_when_all_of_it_is_stored() -> None:
    owner = opened()
    owner.publish(10)
    owner.publish(10)
    assert owner.take_sends() == [1], "the ledger takes two entries"
    assert action(owner) is None
    owner.on_stored(0)
    owner.on_stored(1)
    assert owner.take_confirmed() == [ConfirmedEntry(0, 7, 0), ConfirmedEntry(1, 7, 1)]
    assert action(owner) == CloseLedger(7)
    owner.on_ended(LedgerEnd(7, 1, 20, 5))
    assert action(owner) == MakeLedger()
    owner.on_made(8)
    writing = action(owner)
    assert isinstance(writing, WriteManifest)
    assert [(ledger.ledger_id, ledger.end) for ledger in writing.manifest.ledgers] == [
        (7, LedgerEnd(7, 1, 20, 5)),
        (8, None),
    ]
    owner.on_written()
    assert owner.take_sends() == [2]


def test_a_ledger_is_replaced_for_its_bytes_but_not_while_it_is_young() -> None:
    owner = opened(max_ledger_entries=100, max_ledger_bytes=15)
    owner.hold_roll(is_held=True)
    owner.publish(10)
    owner.publish(10)
    assert owner.take_sends() == [1, 2]
    assert state(owner) is OwnerState.OPEN
    owner.hold_roll(is_held=False)
    assert state(owner) is OwnerState.DRAINING


def test_a_ledger_is_replaced_for_its_age_only_if_it_holds_something() -> None:
    owner = opened()
    owner.on_stored(0)
    owner.roll()
    assert action(owner) == CloseLedger(7)
    owner.on_ended(LedgerEnd(7, 0, 10))
    assert state(owner) is OwnerState.RECORDING
    owner.on_written()
    assert state(owner) is OwnerState.READY, "the next entry creates a ledger, and no entry none"
    owner.roll()
    assert action(owner) is None


def test_what_failed_is_sent_again_unless_the_end_includes_it() -> None:
    owner = opened(max_ledger_entries=10)
    owner.publish(10)
    owner.publish(10)
    assert owner.take_sends() == [1, 2]
    owner.on_stored(0)
    owner.on_entry_failed()
    assert action(owner) == CloseLedger(7)
    owner.on_close_failed()
    assert action(owner) == RecoverLedger(7)
    owner.on_ended(LedgerEnd(7, 1, 20))
    assert owner.take_confirmed() == [ConfirmedEntry(0, 7, 0)], "of entry 1 only the manifest can tell"
    assert owner.unconfirmed == [1, 2]
    owner.on_made(8)
    owner.on_written()
    assert owner.take_confirmed() == [ConfirmedEntry(1, 7, 1)]
    assert owner.take_sends() == [2]


def test_a_ledger_that_ends_below_what_was_acknowledged_ends_the_owner() -> None:
    owner = opened()
    owner.on_stored(0)
    owner.on_entry_failed()
    owner.on_close_failed()
    owner.on_ended(LedgerEnd(7, -1))
    assert state(owner) is OwnerState.FAILED
    assert isinstance(owner.failure, LedgerTruncated)


def test_an_owner_finds_by_its_next_change_that_it_was_deposed() -> None:
    owner = claimed()
    owner.publish(10)
    owner.on_made(7)
    owner.on_not_written()
    other = LogManifest("log", epoch=2, owner="b", claim_id="other")
    owner.on_read(VersionedManifest(other, 5))
    assert state(owner) is OwnerState.DEPOSED
    assert isinstance(owner.failure, LogDeposed)
    assert "'b'" in str(owner.failure)
    assert owner.orphan == 7, "it is in no list and never will be"
    assert owner.unconfirmed == [0]


def test_a_watch_may_show_it_earlier() -> None:
    owner = opened()
    owner.on_seen(VersionedManifest(LogManifest("log", epoch=1, owner="a", claim_id="claim_id"), 9))
    assert state(owner) is OwnerState.OPEN
    owner.on_seen(VersionedManifest(LogManifest("log", epoch=2, owner="b", claim_id="other"), 9))
    assert isinstance(owner.failure, LogDeposed)
    owner.on_stored(0)
    assert owner.take_confirmed() == []


def test_a_change_under_way_is_not_ended_by_a_watch_which_cannot_tell_what_became_of_the_ledger() -> None:
    owner = claimed()
    owner.publish(10)
    owner.on_made(7)
    owner.on_seen(VersionedManifest(LogManifest("log", epoch=2, owner="b", claim_id="other"), 9))
    assert state(owner) is OwnerState.LISTING


@pytest.mark.parametrize("state", [LogState.ACTIVE, LogState.DELETED])
def test_a_log_that_does_not_exist_has_no_owner(state: LogState) -> None:
    owner = LogOwner("a", "claim_id")
    owner.claim()
    owner.on_read(None if state is LogState.ACTIVE else VersionedManifest(LogManifest("log", state=state), 3))
    assert isinstance(owner.failure, NoSuchLog)


def test_an_owner_that_closes_ends_its_ledger_and_leaves_the_log() -> None:
    owner = opened()
    owner.close()
    owner.on_stored(0)
    assert action(owner) == CloseLedger(7)
    owner.on_ended(LedgerEnd(7, 0, 10))
    writing = action(owner)
    assert isinstance(writing, WriteManifest)
    assert (writing.manifest.owner, writing.manifest.ledgers[0].end) == ("", LedgerEnd(7, 0, 10))
    owner.on_written()
    assert state(owner) is OwnerState.CLOSED


def test_giving_up_is_final() -> None:
    owner = opened()
    owner.fail(ClientClosed("the end"))
    owner.fail(NotEnoughBookies("later"))
    assert isinstance(owner.failure, ClientClosed)
    assert action(owner) is None
    assert LogOwner.ends_owner(ClientClosed("x"))
    assert not LogOwner.ends_owner(NotEnoughBookies("x"))


def test_conflicts_without_end_end_a_change() -> None:
    update = ManifestUpdate(changes.ClaimLog("a", "t"))
    while update.action is not None:
        update.on_read(BLANK)
        if update.action is not None:
            update.on_not_written()
    assert "as often as it is read" in str(update.error)


def test_every_state_is_followed_by_states_of_the_table_only() -> None:
    assert set(OWNER_NEXT) == set(OwnerState)
    assert [state for state, after in OWNER_NEXT.items() if not after] == list(ENDED)


def test_an_owner_is_a_value() -> None:
    owner = opened()
    twin = owner.copy()
    assert twin == owner
    twin.on_stored(0)
    assert twin != owner
    assert owner.queue == deque()

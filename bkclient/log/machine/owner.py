"""The owner of a log: the rules by which one at a time appends, as a machine.

What is to be done next in the metadata store or with a ledger as a whole is ``action``, one at a time; its outcome comes back by
a method. Entries are told apart by numbers that count up from 0 in the order of :meth:`LogOwner.publish`; their payloads are
no part of the machine. :meth:`LogOwner.take_sends` says which to append to the current ledger now, in order, and
:meth:`LogOwner.take_confirmed` which are acknowledged and where they are.

The three orders that everything rests on (``docs/inside/log.md``):

* a predecessor's ledger is fenced and closed before the first ledger of this owner is in the list;
* a ledger is in the list before an entry is sent to it, and the one before it has ended by then;
* after a ledger ended otherwise than by all of its entries having been stored, what its end includes is acknowledged, and what it
  does not is sent again, only once the manifest still names this owner.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from bkclient.errors import BookKeeperError, ClientClosed, LedgerTruncated, NoSuchLedger
from bkclient.log.errors import LogDeposed, NoSuchLog
from bkclient.log.machine.changes import AppendLedger, ClaimLog, EndLedgers, ReleaseLog
from bkclient.log.machine.manifest import LedgerEnd
from bkclient.log.machine.owner_state import ENDED, OWNER_NEXT, OwnerState
from bkclient.log.machine.update import ManifestUpdate, ReadManifest, VersionedManifest, WriteManifest
from bkclient.log.settings import LogSettings
from bkclient.protocol.value import Value, moved

__all__ = ["CloseLedger", "ConfirmedEntry", "LogOwner", "MakeLedger", "OwnerAction", "RecoverLedger"]


@dataclass(frozen=True, slots=True)
class RecoverLedger:
    """Fence a ledger, find its end and close it there; or learn where it was closed."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class MakeLedger:
    """Create a ledger, with an id above those of all ledgers of the log."""


@dataclass(frozen=True, slots=True)
class CloseLedger:
    """Close the current ledger, as its writer."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class ConfirmedEntry:
    """An entry that is acknowledged, by number, and where it is."""

    number: int
    ledger_id: int
    entry_id: int


OwnerAction = ReadManifest | WriteManifest | RecoverLedger | MakeLedger | CloseLedger


class LogOwner(Value):
    """One owner of a log, from the claim to its end. ``failure`` tells why it ended, if it did not end by :meth:`close`."""

    __slots__ = (
        "bytes_sent",
        "claim_id",
        "confirmed",
        "ended",
        "entries_sent",
        "epoch",
        "failure",
        "held",
        "is_closing",
        "is_roll_held",
        "known",
        "ledger_id",
        "name",
        "next_number",
        "now_ms",
        "orphan",
        "queue",
        "sent",
        "state",
        "stored",
        "term",
        "to_recover",
        "update",
    )

    def __init__(self, name: str, claim_id: str, term: int = 0) -> None:
        self.name = name
        self.claim_id = claim_id
        #: The epoch in which the log was claimed whose partition this is; 0 without partitions.
        self.term = term
        self.state = OwnerState.NEW
        self.failure: BookKeeperError | None = None
        self.known: VersionedManifest | None = None
        #: The epoch of the claim; 0 before.
        self.epoch = 0
        self.update: ManifestUpdate | None = None
        #: Ledgers whose end has to be found by recovery, and those whose end is known and not in the manifest yet.
        self.to_recover: list[int] = []
        self.ended: dict[int, LedgerEnd] = {}
        #: The current ledger, or the new one before it is in the list; what was sent to it, and how many were stored.
        self.ledger_id: int | None = None
        self.entries_sent = 0
        self.bytes_sent = 0
        self.stored = 0
        #: Entries, as (number, bytes): not sent yet, and sent to the current ledger and not stored.
        self.queue: deque[tuple[int, int]] = deque()
        self.sent: deque[tuple[int, int]] = deque()
        #: Entries that an ended ledger includes, to be confirmed once the manifest still names this owner.
        self.held: list[ConfirmedEntry] = []
        self.confirmed: list[ConfirmedEntry] = []
        self.next_number = 0
        self.is_closing = False
        #: Whether the ledger is too young to be replaced for its size.
        self.is_roll_held = False
        #: A ledger of this owner that never was in the list and never will be.
        self.orphan: int | None = None
        #: The time that new ledgers are told to be created at.
        self.now_ms = 0

    # What applications want --------------------------------------------------------------------------------------

    def claim(self) -> None:
        """Become the owner."""
        self._move(OwnerState.CLAIMING)
        self.update = ManifestUpdate(ClaimLog(self.name, self.claim_id, self.term))

    def publish(self, size: int) -> int:
        """Hand in an entry of ``size`` bytes; its number."""
        assert self.state not in ENDED, "refused before"
        assert not self.is_closing, "refused before"
        number = self.next_number
        self.next_number += 1
        self.queue.append((number, size))
        self._advance()
        return number

    def close(self) -> None:
        """Send and await everything that was handed in, close the ledger, and own the log no more. Idempotent."""
        self.is_closing = True
        self._advance()

    def roll(self) -> None:
        """Replace the current ledger, if it holds anything, because of its age."""
        if self.state is OwnerState.OPEN and self.entries_sent:
            self._move(OwnerState.DRAINING)
            self._advance()

    def hold_roll(self, *, is_held: bool) -> None:
        """Whether the current ledger is too young to be replaced because of its size."""
        self.is_roll_held = is_held
        self._advance()

    # What there is to do -----------------------------------------------------------------------------------------

    @property
    def settings(self) -> LogSettings:
        """Those of the log; the default ones before its manifest was read."""
        return LogSettings() if self.known is None else self.known.manifest.settings

    @property
    def action(self) -> OwnerAction | None:
        """What is to be done in the metadata store or with a ledger now."""
        if self.update is not None:
            return self.update.action
        match self.state:
            case OwnerState.RECOVERING:
                return RecoverLedger(self.to_recover[0])
            case OwnerState.CREATING:
                return MakeLedger()
            case OwnerState.ENDING:
                assert self.ledger_id is not None
                return CloseLedger(self.ledger_id)
            case _:
                return None

    def take_sends(self) -> list[int]:
        """The numbers of the entries to append to the current ledger now, in this order."""
        taken: list[int] = []
        while self.state is OwnerState.OPEN and self.queue:
            number, size = self.queue.popleft()
            self.sent.append((number, size))
            self.entries_sent += 1
            self.bytes_sent += size
            taken.append(number)
            self._advance()
        return taken

    def take_confirmed(self) -> list[ConfirmedEntry]:
        """The entries that were acknowledged since the last call, in order."""
        taken, self.confirmed = self.confirmed, []
        return taken

    @property
    def unconfirmed(self) -> list[int]:
        """The numbers of the entries that are not acknowledged; after the end they may or may not be in the log."""
        return [*(entry.number for entry in self.held), *(n for n, _ in self.sent), *(n for n, _ in self.queue)]

    # What became of it -------------------------------------------------------------------------------------------

    def on_read(self, value: VersionedManifest | None) -> None:
        """What is stored; None if there is nothing."""
        self._updating().on_read(value)
        self._after_update()

    def on_written(self) -> None:
        """The manifest was written."""
        self._updating().on_written()
        self._after_update()

    def on_not_written(self) -> None:
        """The manifest has another version, or the outcome is unknown."""
        self._updating().on_not_written()
        self._after_update()

    def on_made(self, ledger_id: int) -> None:
        """A ledger was created."""
        assert self.state is OwnerState.CREATING
        self._move(OwnerState.LISTING)
        self.ledger_id = ledger_id
        self.update = ManifestUpdate(AppendLedger(self.claim_id, self._ends(), ledger_id, self.now_ms), self.known)
        self._after_update()

    def on_stored(self, entry_id: int) -> None:
        """An entry of the current ledger, and all before it, are stored by an ack quorum."""
        if self.state not in (OwnerState.OPEN, OwnerState.DRAINING):
            return  # the ledger failed first, and its end tells
        assert entry_id == self.stored, "entries complete in order"
        assert self.ledger_id is not None
        number, _ = self.sent.popleft()
        self.stored += 1
        self.confirmed.append(ConfirmedEntry(number, self.ledger_id, entry_id))
        self._advance()

    def on_entry_failed(self) -> None:
        """An entry of the current ledger could not be stored: the ledger has to end."""
        if self.state in (OwnerState.OPEN, OwnerState.DRAINING):
            self._move(OwnerState.ENDING)

    def on_ended(self, end: LedgerEnd) -> None:
        """A ledger was closed or recovered, or had been closed."""
        if end.ledger_id == self.ledger_id and not self._settle(end):
            return
        if self.state is OwnerState.RECOVERING:
            self.to_recover.remove(end.ledger_id)
        self.ended[end.ledger_id] = end
        if not self.to_recover:
            self._after_ended()

    def on_close_failed(self) -> None:
        """The current ledger could not be closed by its writer: another client changed it, or nothing is known."""
        assert self.state is OwnerState.ENDING
        assert self.ledger_id is not None
        self._move(OwnerState.RECOVERING)
        self.to_recover = [self.ledger_id]

    def on_seen(self, value: VersionedManifest) -> None:
        """A watch shows the manifest: another owner there ends this one before it meets a conflict, and settings may be new."""
        manifest = value.manifest
        if self.state in (*ENDED, OwnerState.NEW) or self.update is not None:
            return  # a change that is under way finds out, and with it what became of a new ledger
        if manifest.is_deleted:
            self.fail(NoSuchLog("the log was deleted"))
        elif manifest.epoch > self.epoch:
            self.fail(LogDeposed(f"the log was taken over by {manifest.owner!r}, in epoch {manifest.epoch}"))
        elif manifest.epoch == self.epoch and manifest.claim_id != self.claim_id:
            self.fail(
                LogDeposed("the log was taken from its owner: its last ledger was given up, or it was created anew")
            )
        elif self.known is not None and value.version > self.known.version:
            self.known = value

    def fail(self, error: BookKeeperError) -> None:
        """Give up: the action cannot be carried out, or not within the time that is allowed. Idempotent."""
        if self.state in ENDED:
            return
        self.failure = error
        if self.state is OwnerState.LISTING:
            self.orphan = self._orphan()
        self.update = None
        is_lost = isinstance(error, LogDeposed | NoSuchLog)
        self._move(OwnerState.DEPOSED if is_lost else OwnerState.FAILED)

    @staticmethod
    def ends_owner(error: BookKeeperError) -> bool:
        """Whether an action that failed by ``error`` need not be tried again."""
        return isinstance(error, ClientClosed | LedgerTruncated | NoSuchLedger) or (
            error.is_fatal and not error.retriable
        )

    # Inside ------------------------------------------------------------------------------------------------------

    def _updating(self) -> ManifestUpdate:
        assert self.update is not None, "the action was to read or to write"
        return self.update

    def _after_update(self) -> None:
        update = self._updating()
        if update.value is not None:
            self.known = update.value
        if update.action is not None:
            return
        if update.error is not None:
            self.fail(update.error)
            return
        assert self.known is not None, "a change was made to something"
        self.update = None
        match self.state:
            case OwnerState.CLAIMING:
                self.epoch = self.known.manifest.epoch
                self.to_recover = list(self.known.manifest.open_ledgers)
                self._move(OwnerState.RECOVERING if self.to_recover else OwnerState.READY)
            case OwnerState.RECORDING:
                self._confirm_held()
                self._move(OwnerState.READY)
            case OwnerState.LISTING:
                self._confirm_held()
                self.entries_sent = self.bytes_sent = self.stored = 0
                self._move(OwnerState.OPEN)
            case _:
                assert self.state is OwnerState.RELEASING
                self._released()
        self._advance()

    def _released(self) -> None:
        assert self.known is not None
        if self.held and self.known.manifest.epoch > self.epoch:  # nobody can tell which came first
            self.fail(LogDeposed(f"the log was taken over in epoch {self.known.manifest.epoch}"))
            return
        self._confirm_held()
        self._move(OwnerState.CLOSED)

    def _confirm_held(self) -> None:
        self.confirmed += self.held
        self.held.clear()
        self.ended.clear()

    def _settle(self, end: LedgerEnd) -> bool:
        """Sort what was sent to the current ledger by its end; false if that is below what was acknowledged."""
        if end.last_entry_id < self.stored - 1:
            self.fail(
                LedgerTruncated(
                    f"it was closed at entry {end.last_entry_id}, and entry {self.stored - 1} had been acknowledged",
                    ledger_id=end.ledger_id,
                )
            )
            return False
        included = end.last_entry_id + 1 - self.stored
        for offset in range(min(included, len(self.sent))):
            number, _ = self.sent.popleft()
            self.held.append(ConfirmedEntry(number, end.ledger_id, self.stored + offset))
        self.queue.extendleft(reversed(self.sent))
        self.sent.clear()
        self.ledger_id = None
        return True

    def _ends(self) -> tuple[LedgerEnd, ...]:
        return tuple(self.ended.values())

    def _after_ended(self) -> None:
        if self.queue:
            self._move(OwnerState.CREATING)
        elif self.is_closing:
            self._release()
        else:
            self._move(OwnerState.RECORDING)
            self.update = ManifestUpdate(EndLedgers(self.claim_id, self._ends()), self.known)
            self._after_update()

    def _release(self) -> None:
        self._move(OwnerState.RELEASING)
        self.update = ManifestUpdate(ReleaseLog(self.claim_id, self._ends()), self.known)
        self._after_update()

    def _advance(self) -> None:
        """Go on as far as what was handed in and what came back allow."""
        if self.state is OwnerState.READY:
            if self.queue:
                self._move(OwnerState.CREATING)
            elif self.is_closing:
                self._release()
        elif self.state is OwnerState.OPEN:
            if self._is_full():
                self._move(OwnerState.DRAINING)
                self._advance()
            elif self.is_closing and not self.queue and not self.sent:
                self._move(OwnerState.ENDING)
        elif self.state is OwnerState.DRAINING and not self.sent:
            self._move(OwnerState.ENDING)

    def _is_full(self) -> bool:
        settings = self.settings
        is_full = self.entries_sent >= settings.max_ledger_entries or self.bytes_sent >= settings.max_ledger_bytes
        return is_full and not self.is_roll_held

    def _orphan(self) -> int | None:
        """The new ledger, if it can be in no list any more: the manifest was read after another owner changed it."""
        is_listed = self.known is None or self.ledger_id is None or self.known.manifest.has(self.ledger_id)
        is_certain = isinstance(self.failure, LogDeposed)
        return None if is_listed or not is_certain else self.ledger_id

    def _move(self, state: OwnerState) -> None:
        self.state = moved(OWNER_NEXT, self.state, state)

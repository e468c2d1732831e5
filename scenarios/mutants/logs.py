"""Defects of logs: owners, the list of ledgers, readers, trimming."""

from __future__ import annotations

from typing import Any, Final

from bkclient.errors import NotEnoughBookies
from bkclient.log import logs
from bkclient.log.batches import PendingEntry
from bkclient.log.cursor_admin import first_needed
from bkclient.log.driver import OwnerDriver
from bkclient.log.format.message_id import MessageId
from bkclient.log.logs import Logs
from bkclient.log.machine import changes
from bkclient.log.machine.changes import TrimLedgers
from bkclient.log.machine.manifest import LedgerEnd, LogLedger, LogManifest
from bkclient.log.machine.owner import CloseLedger, LogOwner, OwnerAction
from bkclient.log.machine.owner_state import OwnerState
from bkclient.log.partition_reader import PartitionReader
from bkclient.log.store import ManifestStore
from bkclient.log.trimming import LAST
from scenarios.mutants.base import Function, Mutant, Replacement, always

__all__ = ["LOG_MUTANTS"]


# Owners --------------------------------------------------------------------------------------------------------------


def _open_unlisted(on_made: Function) -> Function:
    """The new ledger is written to at once, and never listed."""

    def mutated(self: LogOwner, ledger_id: int) -> None:
        on_made(self, ledger_id)
        if self.state is OwnerState.LISTING:
            self.update = None
            self.entries_sent = self.bytes_sent = self.stored = 0
            self.state = OwnerState.OPEN

    return mutated


def _taken_for_empty(after_update: Function) -> Function:
    """The ledger of the predecessor counts as empty."""

    def mutated(self: LogOwner) -> None:
        after_update(self)
        if self.state is OwnerState.RECOVERING and self.ledger_id is None:
            self.on_ended(LedgerEnd(self.to_recover[0], -1))

    return mutated


def _settled_at(last_of: Any) -> Any:
    """What was sent to a ledger that ended is sorted by another end than it has."""

    def make(settle: Function) -> Function:
        def mutated(self: LogOwner, end: LedgerEnd) -> bool:
            return bool(settle(self, LedgerEnd(end.ledger_id, last_of(self, end))))

        return mutated

    return make


def _sent_again_backwards(settle: Function) -> Function:
    """What is sent again is sent in the opposite order."""

    def mutated(self: LogOwner, end: LedgerEnd) -> bool:
        before = len(self.queue)
        is_sound = bool(settle(self, end))
        again = [self.queue.popleft() for _ in range(len(self.queue) - before)]
        self.queue.extendleft(again)
        return is_sound

    return mutated


def _queue_lost(on_ended: Function) -> Function:
    """What came while a ledger was replaced is forgotten."""

    def mutated(self: LogOwner, end: LedgerEnd) -> None:
        if self.state is OwnerState.ENDING:
            self.queue.clear()
        on_ended(self, end)

    return mutated


def _given_up(on_not_written: Function) -> Function:
    """A ledger is taken for one that was never listed, although that is not known."""

    def mutated(self: LogOwner) -> None:
        if self.state is OwnerState.LISTING:
            orphan = self.ledger_id
            self.fail(NotEnoughBookies("it gives up"))
            self.orphan = orphan
        else:
            on_not_written(self)

    return mutated


def _looked_at_only(_recover: Function) -> Function:
    """The ledger of the predecessor is neither fenced nor closed."""

    async def mutated(self: OwnerDriver, ledger_id: int) -> LedgerEnd:
        async with await self.store.client.open_ledger(ledger_id) as reader:
            return LedgerEnd(ledger_id, await reader.read_last_add_confirmed(), reader.length, 0)

    return mutated


def _left_open(try_: Function) -> Function:
    """A full ledger is left without being closed."""

    async def mutated(self: OwnerDriver, action: OwnerAction) -> None:
        if isinstance(action, CloseLedger):
            self.machine.on_ended(LedgerEnd(action.ledger_id, self.machine.stored - 1, 0, self._last_ms))
        else:
            await try_(self, action)

    return mutated


def _told_crosswise(tell: Function) -> Function:
    """The messages of an entry get each other's ids."""

    def mutated(self: PendingEntry, ledger_id: int, entry_id: int) -> None:
        self.futures.reverse()
        tell(self, ledger_id, entry_id)

    return mutated


# Readers -------------------------------------------------------------------------------------------------------------


def _ledger_skipped(first_after: Function) -> Function:
    """Of the ledgers that follow, the second is taken for the first."""

    def mutated(self: LogManifest, ledger_id: int) -> LogLedger | None:
        following: LogLedger | None = first_after(self, ledger_id)
        if following is None or ledger_id < 0:
            return following
        second: LogLedger | None = first_after(self, following.ledger_id)
        return second or following

    return mutated


def _trimmed_unnoticed(_ledger_at: Function) -> Function:
    """What was trimmed in front of a reader is passed over in silence."""

    def mutated(self: PartitionReader, manifest: LogManifest) -> LogLedger | None:
        ledger_id: int = self._ledger_id
        return manifest.ledger(ledger_id) or manifest.first_after(ledger_id)

    return mutated


def _looked_again_only(_check_not_trimmed: Function) -> Function:
    """A ledger that is gone is not told from one that was trimmed."""

    async def mutated(self: PartitionReader) -> None:
        self._manifest = await self._store.manifest()

    return mutated


def _first_again(next_read: Function) -> Function:
    """After the end of a ledger its last entry is read once more."""

    async def mutated(self: PartitionReader) -> bool:
        before, entry_id = self._ledger_id, self._next_entry_id
        goes_on = bool(await next_read(self))
        if self._ledger_id > before >= 0 < entry_id and not getattr(self._store, "was_there", False):
            self._store.was_there = True  # type: ignore[attr-defined]
            self._ledger_id, self._next_entry_id = before, entry_id - 1
        return goes_on

    return mutated


# Trimming ------------------------------------------------------------------------------------------------------------


def _decided_once(applied: Function) -> Function:
    """A trim is carried out although cursors came since it was decided."""

    def mutated(self: TrimLedgers, manifest: LogManifest) -> LogManifest:
        same: LogManifest = applied(TrimLedgers(self.through, manifest.cursor_changes), manifest)
        return same

    return mutated


def _deleted_first(trim: Function) -> Function:
    """Ledgers are deleted before they leave the list."""

    async def mutated(self: Logs, name: str, before: MessageId | None = None) -> list[int]:
        manifest = await self.info(name)
        needed = await first_needed(self._store(name), manifest)
        for ledger in manifest.ledgers:
            if ledger.end is not None and before is not None and ledger.ledger_id < min(before.ledger_id, needed):
                await self._client.delete_ledger(ledger.ledger_id)
        trimmed: list[int] = await trim(self, name, before)
        return trimmed

    return mutated


async def _nobody_needs(_store: ManifestStore, _manifest: LogManifest) -> int:
    return LAST


def _any_owner(_manifest: LogManifest, _claim_id: str) -> None:
    """The list is changed, whichever owner claimed the log."""


LOG_MUTANTS: Final = (
    Mutant(
        name="log-writes-before-listing",
        summary="an owner writes to a ledger that is not in the list of the log",
        clauses=("H5", "H8"),
        in_runs=True,
        replaces=(Replacement(LogOwner, "on_made", _open_unlisted),),
    ),
    Mutant(
        name="log-takes-conflicts-for-success",
        summary="an owner goes on as if its write of the list had not been refused",
        clauses=("H5", "H8", "H9"),
        in_runs=True,
        replaces=(Replacement(LogOwner, "on_not_written", always(LogOwner.on_written)),),
    ),
    Mutant(
        name="log-does-not-fence-its-predecessor",
        summary="an owner notes the end of its predecessor's ledger as it sees it, and neither fences nor closes it",
        clauses=("H1", "H7", "H8", "H10"),
        in_runs=True,
        replaces=(Replacement(OwnerDriver, "_recover", _looked_at_only),),
    ),
    Mutant(
        name="log-takes-its-predecessor-for-empty",
        summary="an owner does not recover its predecessor's ledger, and takes it out of the list",
        clauses=("H1", "H7", "H8", "H10"),
        in_runs=True,
        replaces=(Replacement(LogOwner, "_after_update", _taken_for_empty),),
    ),
    Mutant(
        name="log-rolls-without-closing",
        summary="an owner leaves a full ledger open when it goes on to the next",
        clauses=("H9", "H10"),
        in_runs=True,
        replaces=(Replacement(OwnerDriver, "_try", _left_open),),
    ),
    Mutant(
        name="log-sends-again-what-was-stored",
        summary="after a ledger ended, what it includes is sent again with the rest",
        clauses=("H2", "H3"),
        in_runs=True,
        replaces=(Replacement(LogOwner, "_settle", _settled_at(lambda owner, _end: owner.stored - 1)),),
    ),
    Mutant(
        name="log-sends-again-backwards",
        summary="what is sent again after a ledger ended is sent in another order",
        clauses=("H3",),
        in_runs=True,
        replaces=(Replacement(LogOwner, "_settle", _sent_again_backwards),),
    ),
    Mutant(
        name="log-owner-trusts-its-clock",
        summary="an owner publishes at the time that its own clock shows, though the log has later ones",
        clauses=("H21",),
        in_runs=True,
        replaces=(Replacement(OwnerDriver, "_now_ms", always(lambda self: self.store.now_ms())),),
    ),
    Mutant(
        name="log-acknowledges-what-was-cut-off",
        summary="after a ledger ended, everything that was sent to it is acknowledged",
        clauses=("H1", "H8"),
        in_runs=True,
        replaces=(
            Replacement(
                LogOwner,
                "_settle",
                _settled_at(lambda owner, end: max(end.last_entry_id, owner.stored + len(owner.sent) - 1)),
            ),
        ),
    ),
    Mutant(
        name="log-loses-its-queue-when-it-rolls",
        summary="messages that come while a ledger is replaced are forgotten",
        clauses=("L2",),
        in_runs=True,
        replaces=(Replacement(LogOwner, "on_ended", _queue_lost),),
    ),
    Mutant(
        name="log-deletes-what-may-be-listed",
        summary="an owner deletes a new ledger although it may be in the list",
        clauses=("H6",),
        in_runs=True,
        replaces=(Replacement(LogOwner, "on_not_written", _given_up),),
    ),
    Mutant(
        name="log-ignores-who-owns-it",
        summary="an owner changes the list although another one has claimed the log",
        clauses=("H8",),
        in_runs=True,
        replaces=(Replacement(changes, "_check_owner", always(_any_owner)),),
    ),
    Mutant(
        name="log-tells-ids-crosswise",
        summary="the messages of a batch get each other's ids",
        clauses=("H1", "H2", "H3"),
        in_runs=True,
        replaces=(Replacement(PendingEntry, "tell", _told_crosswise),),
    ),
    Mutant(
        name="log-reader-skips-a-ledger",
        summary="at the end of a ledger a reader goes on in the one after the next",
        clauses=("H1",),
        in_runs=True,
        replaces=(Replacement(LogManifest, "first_after", _ledger_skipped),),
    ),
    Mutant(
        name="log-reader-passes-over-what-was-trimmed",
        summary="a reader goes on behind what was trimmed in front of it, and says nothing",
        clauses=("H1",),
        in_runs=True,
        replaces=(
            Replacement(PartitionReader, "_ledger_at", _trimmed_unnoticed),
            Replacement(PartitionReader, "_check_not_trimmed", _looked_again_only),
        ),
    ),
    Mutant(
        name="log-reader-repeats-an-entry",
        summary="a reader reads the last entry of a ledger twice",
        clauses=("H4",),
        in_runs=True,
        replaces=(Replacement(PartitionReader, "_read", _first_again),),
    ),
    Mutant(
        name="log-trim-ignores-cursors",
        summary="a log is trimmed without a look at its cursors",
        clauses=("H11",),
        in_runs=True,
        replaces=(Replacement(logs, "first_needed", always(_nobody_needs)),),
    ),
    Mutant(
        name="log-trim-ignores-new-cursors",
        summary="a trim is carried out although a cursor came since it was decided",
        clauses=("H11",),
        in_runs=True,
        replaces=(Replacement(TrimLedgers, "applied", _decided_once),),
    ),
    Mutant(
        name="log-trim-deletes-first",
        summary="a trim deletes ledgers before it takes them out of the list",
        clauses=("H6",),
        in_runs=True,
        replaces=(Replacement(Logs, "trim", _deleted_first),),
    ),
)

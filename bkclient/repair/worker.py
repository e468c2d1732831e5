"""The replication worker: takes marked ledgers one after the other and gives them back their copies.

One round for one ledger, under its lock: open it as an administrator, find bad fragments, copy those that are final (each
for itself: one that cannot be copied keeps no other from being), and look again. Nothing bad left: the mark goes. What is
left over decides:

* a bad fragment that is still written to, or an open ledger whose last ensemble lacks a bookie: its writer gets a grace
  period to replace the bookie himself. Then the ledger is recovered, which fences a writer who is alive: with a bookie missing
  one more failure might make the ledger unrecoverable;
* anything else: the ledger stays locked for a while that doubles with each failure, so that workers turn to others.
  Bookies that come or go end that wait early, because they may have made the repair possible.

The waiting goes on in the background while the worker takes the next ledger. A worker that is stopped, or dies, leaves at
worst spare entries on bookies that are not asked; its locks go with its session, and another worker begins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from bkclient._client.core import ClientCore
from bkclient._news import wait_for_news
from bkclient.errors import (
    BookKeeperError,
    ClientClosed,
    MetadataStoreError,
    NoSuchLedger,
    NotEnoughBookies,
)
from bkclient.ledger import BookieId
from bkclient.metadata.base import BookieSets
from bkclient.placement.base import Adherence
from bkclient.repair.checker import LedgerChecker
from bkclient.repair.concurrency import first_of
from bkclient.repair.config import RepairConfig
from bkclient.repair.events import EventKind, OnRepairEvent, RepairEvent
from bkclient.repair.findings import LedgerReport
from bkclient.repair.fragments import LedgerFragment, shape_of
from bkclient.repair.ledger import OpenedLedger, open_as_administrator, open_or_view, view_of
from bkclient.repair.patience import FailureCount, farewell, lock_release_delay_s, until_enabled
from bkclient.repair.replicator import FragmentReplicator, UnreadableEntry
from bkclient.repair.underreplication.marks import LedgerLock, UnderReplication

__all__ = ["ReplicationWorker"]

K = TypeVar("K")

_REMEMBERED_MAX = 10_000
"""Ledgers whose failures, and fragments whose unreadable entries, are remembered; beyond it the oldest are forgotten."""


class ReplicationWorker:
    """One worker; any number may share a cluster, in one program or in many. :meth:`run` it in a task of its own."""

    def __init__(
        self,
        core: ClientCore,
        marks: UnderReplication,
        checker: LedgerChecker,
        replicator: FragmentReplicator,
        config: RepairConfig,
        tell: OnRepairEvent,
    ) -> None:
        self._core = core
        self._marks = marks
        self._checker = checker
        self._replicator = replicator
        self._config = config
        self._tell = tell
        self._news = asyncio.Event()
        self._bookies_changed = asyncio.Event()
        self._bookie_changes = 0
        self._locks: dict[int, LedgerLock] = {}
        self._failed: dict[int, int] = {}
        self._unreadable: dict[tuple[int, int], int] = {}
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Work until cancelled; then all ledgers are unlocked, as far as the metadata service answers soon.

        Raises :class:`~bkclient.errors.MetadataStoreError` once the service has failed too often in a row, and
        :class:`~bkclient.errors.ClientClosed`.
        """
        failures = FailureCount(self._config.max_metadata_failures)
        cancels = [
            self._marks.watch_marks(self._news.set),
            self._core.metadata.watch_bookies(self._on_bookies),
        ]
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                while True:
                    try:
                        await self._turn()
                        failures.succeeded()
                    except MetadataStoreError as error:
                        self._tell(RepairEvent(EventKind.FAILED, detail=str(error)))
                        await failures.failed(error)
        except BaseExceptionGroup as group:
            first = first_of(group)
            raise first from first.__cause__  # its own, not the group
        finally:
            for cancel in cancels:
                cancel()
            self._locks.clear()
            await farewell(self._marks.release_all, self._tell)

    def wake(self) -> None:
        """Look for marked ledgers now."""
        self._news.set()

    def _on_bookies(self, _: BookieSets) -> None:
        self._bookie_changes += 1
        self._bookies_changed.set()
        self._bookies_changed.clear()

    async def _turn(self) -> None:
        self._news.clear()
        await until_enabled(self._marks)
        lock = None
        if len(self._locks) < self._config.max_deferred_ledgers:
            lock = await self._marks.acquire(passing_over=tuple(self._locks))
        if lock is None:
            await wait_for_news(self._news, self._config.idle_poll_s)
            return
        self._locks[lock.ledger_id] = lock
        is_deferred = False
        try:
            is_deferred = await self._work(lock)
        except NoSuchLedger:
            await self._done(lock, "it was deleted")
        except (ClientClosed, MetadataStoreError):
            raise
        except BookKeeperError as error:
            is_deferred = self._put_off(lock, error)
        finally:
            if not is_deferred:
                await self._unlock(lock)

    async def _work(self, lock: LedgerLock) -> bool:
        """One round; whether the lock is kept for later."""
        ledger = await open_or_view(self._core, lock.ledger_id)
        report = await self._checker.check(ledger)
        is_bad, has_open, error = await self._repair(ledger, report)
        if has_open or self._lacks_a_bookie(ledger):
            detail = f"it is open and lacks a bookie; its writer has {self._config.open_ledger_grace_s:g} s to act"
            self._tell(RepairEvent(EventKind.WAITING, lock.ledger_id, detail))
            self._defer(self._recover_after_grace, lock)
            return True
        if is_bad:
            report = await self._checker.check(await open_or_view(self._core, lock.ledger_id))
        if report.repairable or error is not None:
            return self._put_off(lock, error)
        await self._done(lock, "")
        return False

    def _lacks_a_bookie(self, ledger: OpenedLedger) -> bool:
        """Whether the ledger may grow and its last ensemble cannot take all of it."""
        if ledger.metadata.is_closed:
            return False
        writable = self._core.watcher.bookies.writable
        return any(bookie_id not in writable for bookie_id in ledger.metadata.last_fragment.ensemble)

    # Repairing ---------------------------------------------------------------------------------------------------

    async def _repair(self, ledger: OpenedLedger, report: LedgerReport) -> tuple[bool, bool, BookKeeperError | None]:
        """Whether anything was bad, whether some of it is still written to, and what failed."""
        has_open = False
        error: BookKeeperError | None = None
        for found in report.repairable:
            if not found.fragment.is_final:
                has_open = True
                continue
            try:
                await self._copy(ledger, found.fragment, found.bad_positions)
            except (ClientClosed, NoSuchLedger, MetadataStoreError):
                raise
            except BookKeeperError as failure:
                self._tell(RepairEvent(EventKind.FAILED, ledger.ledger_id, str(failure)))
                error = error or failure
        if self._config.mark_non_adherent_ledgers and not report.repairable:
            await self._move_non_adherent(ledger)
        return bool(report.repairable), has_open, error

    async def _copy(self, ledger: OpenedLedger, fragment: LedgerFragment, positions: tuple[int, ...]) -> None:
        key = ledger.ledger_id, fragment.first_entry_id
        try:
            if key in self._unreadable:  # AR-21: do not copy everything again up to the entry that cannot be read
                await self._replicator.read(ledger, fragment, positions, self._unreadable[key])
            done = await self._replicator.replicate(ledger, fragment, positions)
        except UnreadableEntry as error:
            if error.entry_id is not None:
                _remember(self._unreadable, key, error.entry_id)
            raise
        self._unreadable.pop(key, None)
        self._tell_replaced(fragment, done.replacements)
        if done.unreplaced:
            raise NotEnoughBookies(
                f"positions {done.unreplaced} of the fragment at entry {fragment.first_entry_id} have no new bookie",
                ledger_id=ledger.ledger_id,
            )

    async def _move_non_adherent(self, ledger: OpenedLedger) -> None:
        """Move copies of final fragments that break the placement policy, where it knows a better place."""
        policy, shape = self._core.watcher.policy, shape_of(ledger.metadata)
        for fragment in ledger.fragments:
            if not fragment.is_final or policy.adherence(shape, fragment.ensemble) is not Adherence.FAIL:
                continue
            proposed = self._core.watcher.propose_repair(shape, fragment.ensemble)
            if proposed is None:
                detail = f"placement knows no better bookies for the fragment at entry {fragment.first_entry_id}"
                self._tell(RepairEvent(EventKind.FAILED, ledger.ledger_id, detail))
                continue
            moves = {p: new for p, new in enumerate(proposed) if new != fragment.ensemble[p]}
            done = await self._replicator.move(ledger, fragment, moves)
            ledger = view_of(self._core, done.value)
            self._tell_replaced(fragment, done.replacements)

    def _tell_replaced(self, fragment: LedgerFragment, replacements: Mapping[int, BookieId]) -> None:
        new = ", ".join(f"{fragment.ensemble[p]} by {bookie_id}" for p, bookie_id in sorted(replacements.items()))
        self._tell(
            RepairEvent(EventKind.REPLACED, fragment.ledger_id, f"fragment at entry {fragment.first_entry_id}: {new}")
        )

    # Afterwards --------------------------------------------------------------------------------------------------

    async def _done(self, lock: LedgerLock, detail: str) -> None:
        self._failed.pop(lock.ledger_id, None)
        if await self._marks.mark_replicated(lock):
            self._tell(RepairEvent(EventKind.REPLICATED, lock.ledger_id, detail))
        else:
            self._news.set()  # marked again meanwhile

    def _put_off(self, lock: LedgerLock, error: BookKeeperError | None) -> bool:
        """Keep the ledger locked for a while; True."""
        failures = self._failed.get(lock.ledger_id, 0) + 1
        _remember(self._failed, lock.ledger_id, failures)
        delay_s = lock_release_delay_s(failures, self._config.failed_ledger_lock_release_s)
        if isinstance(error, NotEnoughBookies):
            delay_s = max(delay_s, self._config.rereplicate_backoff_s)
        detail = f"failure {failures}, trying again in {delay_s:g} s: {error or 'copies are still missing'}"
        self._tell(RepairEvent(EventKind.WAITING, lock.ledger_id, detail))
        self._defer(lambda kept: self._release_after(kept, delay_s), lock)
        return True

    def _defer(self, then: Callable[[LedgerLock], Awaitable[None]], lock: LedgerLock) -> None:
        async def run() -> None:
            try:
                await then(lock)
            except MetadataStoreError as error:
                self._tell(RepairEvent(EventKind.FAILED, lock.ledger_id, str(error)))
            finally:
                await self._unlock(lock)
                self._news.set()

        assert self._tasks is not None, "a worker defers while it runs"
        self._tasks.start_soon(run, name=f"lock of ledger {lock.ledger_id}")

    async def _release_after(self, lock: LedgerLock, delay_s: float) -> None:  # noqa: ARG002 - unlocked by the caller
        shortest_s = min(delay_s, self._config.rereplicate_backoff_s)
        changes_before = self._bookie_changes
        await anyio.sleep(shortest_s)
        if changes_before == self._bookie_changes:
            await wait_for_news(self._bookies_changed, delay_s - shortest_s)

    async def _recover_after_grace(self, lock: LedgerLock) -> None:
        await anyio.sleep(self._config.open_ledger_grace_s)
        try:
            ledger = await open_or_view(self._core, lock.ledger_id)
            report = await self._checker.check(ledger)
            is_bad = any(not found.fragment.is_final for found in report.repairable)
            if not ledger.metadata.is_closed and (is_bad or self._lacks_a_bookie(ledger)):
                await open_as_administrator(self._core, lock.ledger_id, recover=True)
                self._tell(RepairEvent(EventKind.CLOSED, lock.ledger_id, "it was recovered after its grace period"))
        except NoSuchLedger:
            await self._done(lock, "it was deleted")
        except (ClientClosed, MetadataStoreError):
            raise
        except BookKeeperError as error:
            self._tell(RepairEvent(EventKind.FAILED, lock.ledger_id, str(error)))

    # Locks -------------------------------------------------------------------------------------------------------

    async def _unlock(self, lock: LedgerLock) -> None:
        if self._locks.pop(lock.ledger_id, None) is None:
            return
        try:
            await self._marks.release(lock)
        except BookKeeperError as error:
            # The next look for marked ledgers tries again; the end of the session unlocks it at the latest.
            self._tell(RepairEvent(EventKind.FAILED, lock.ledger_id, f"it stays locked: {error}"))


def _remember(memory: dict[K, int], key: K, value: int) -> None:
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > _REMEMBERED_MAX:
        del memory[next(iter(memory))]

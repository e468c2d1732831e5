"""Between the owner's machine and the world: one task that carries out its actions and sends its entries, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

import anyio

from bkclient import LedgerWriter
from bkclient._backoff import Backoff
from bkclient._fresh import fresh
from bkclient.errors import (
    ArgumentError,
    BookKeeperError,
    ClientClosed,
    Code,
    NoSuchLedger,
    RequestTimeout,
    UnexpectedCondition,
    code_of,
)
from bkclient.log.batches import PendingEntry
from bkclient.log.errors import naming
from bkclient.log.format.compression import Compression
from bkclient.log.format.entry import OVERHEAD_BYTES, encode_rows, publish_time
from bkclient.log.machine.manifest import LedgerEnd
from bkclient.log.machine.owner import CloseLedger, LogOwner, MakeLedger, OwnerAction, RecoverLedger
from bkclient.log.machine.owner_state import ENDED, OwnerState
from bkclient.log.machine.update import ReadManifest, WriteManifest
from bkclient.log.observed import OwnerStats
from bkclient.log.settings import PublishSettings
from bkclient.log.store import ManifestStore
from bkclient.observability import log

__all__ = ["LET_GO_S", "OwnerDriver", "abandon_all"]

_BACKOFF: Final = Backoff(0.05, 2.0)
LET_GO_S: Final = 5.0
"""How long what is of no use to its caller any more may take."""


class OwnerDriver:
    """Drives one owner from :meth:`claim` to :meth:`close`; ``on_told`` is called with every entry that is done or failed."""

    def __init__(
        self,
        store: ManifestStore,
        settings: PublishSettings,
        owner: str,
        on_told: Callable[[PendingEntry], None],
        *,
        term: int = 0,
    ) -> None:
        self.store: Final = store
        self.machine: Final = LogOwner(owner, store.new_id(), term)
        #: How many bytes the messages of an entry may have, by their sizes.
        self.max_entry_bytes: Final = store.client.max_entry_bytes - OVERHEAD_BYTES
        #: Called once when the owner ended otherwise than by :meth:`close`.
        self.on_failed: Callable[[], None] = lambda: None
        stats = store.client.stats
        self._stats: Final = None if stats is None else OwnerStats(stats)
        self._settings: Final = settings
        self._compression: Final = Compression[settings.compression.upper()]
        self._on_told: Final = on_told
        #: By number, the entries that are not acknowledged.
        self._entries: dict[int, PendingEntry] = {}
        self._ledger: LedgerWriter | None = None
        #: The time of the last entry that was handed in, or is in the log, which none after it goes below.
        self._last_ms = 0
        #: That of the last entry that is acknowledged.
        self._stored_ms = 0
        #: Who waits until all entries up to this number are told.
        self._flushes: dict[int, asyncio.Future[None]] = {}
        self._news = asyncio.Event()
        self._told = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._must_look = False
        #: How many ledgers in a row failed before an entry was stored, and since when.
        self._failures = 0
        self._failing_since = 0.0

    # What the writer asks ----------------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._entries

    def failure(self) -> BookKeeperError | None:
        """What ended the owner, for one more to raise."""
        error = self.machine.failure
        return None if error is None else naming(self.store.name, fresh(error))

    def publish(self, entry: PendingEntry) -> None:
        """Hand in an entry."""
        if self.machine.state in ENDED:
            self.refuse(entry)
            return
        entry.publish_ms = self._last_ms = self._now_ms()
        try:
            entry.data = encode_rows(entry.rows, entry.publish_ms, self._compression)
        except ArgumentError as error:
            entry.fail(partial(fresh, error))
            self._on_told(entry)
            return
        if self._stats is not None:
            self._stats.on_handed(entry)
        self._entries[self.machine.publish(len(entry.data))] = entry
        self._news.set()

    def refuse(self, entry: PendingEntry) -> None:
        """Tell that an entry is not sent any more, and what ended the owner."""
        entry.fail(lambda: self.failure() or UnexpectedCondition("the writer of the log has ended"))
        if self._stats is not None:
            self._stats.on_told(entry, code_of(self.machine.failure, Code.UNEXPECTED_CONDITION))
        self._on_told(entry)

    async def claim(self) -> None:
        """Become the owner; raises why that cannot be."""
        loop = asyncio.get_running_loop()
        if self._stats is not None:
            self._stats.on_claiming()
        self.machine.claim()
        cancel = self.store.watch(self._on_changed)
        self._task = loop.create_task(self._run(), name=f"owner of log {self.store.name}")
        self._task.add_done_callback(lambda _: cancel())
        try:
            while self.machine.state not in (OwnerState.READY, *ENDED):
                await self._told.wait()
                self._told.clear()
        except BaseException:
            await self.abandon()
            raise
        error = self.failure()
        if self._stats is not None:
            self._stats.on_claimed(Code.OK if error is None else error.code)
        if error is not None:
            await self.abandon()
            raise error
        log.LOG_CLAIMED(log=self.store.name, epoch=self.machine.epoch, owner=self.machine.name)
        assert self.machine.known is not None, "the log was claimed"
        self._last_ms = max(self._last_ms, self.machine.known.manifest.last_ms)

    def told(self) -> asyncio.Future[None]:
        """A future that is done when every entry that was handed in by now is acknowledged, or the owner has ended."""
        if self.machine.state in ENDED or not self._entries:
            done = asyncio.get_running_loop().create_future()
            done.set_result(None)
            return done
        last = self.machine.next_number - 1
        if (waiting := self._flushes.get(last)) is None:
            waiting = self._flushes[last] = asyncio.get_running_loop().create_future()
        return waiting

    async def close(self, patience_s: float | None = None) -> None:
        """Publish what was handed in, and own the log no more. Cancellation does not stop it.

        With ``patience_s`` only as long as entries are acknowledged so often; then it is abandoned.
        """
        if self._task is None:
            return
        if self.machine.state not in ENDED:
            self.machine.close()
            self._news.set()
        done: set[asyncio.Task[None]] = set()
        before = -1
        while not done and before != len(self._entries):
            before = len(self._entries) if patience_s is not None else -1
            done, _ = await asyncio.wait([self._task], timeout=patience_s)
        if not done:
            self.machine.fail(
                RequestTimeout(
                    f"nothing was acknowledged for {patience_s:g} s while the writer was left",
                    advice="What was not acknowledged may or may not be in the log.",
                )
            )
            await self.abandon()

    async def abandon(self) -> None:
        """Stop without a release: the next owner takes the log over. That is so at once; what waits are tasks that end."""
        await abandon_all([self])

    def cancel(self) -> list[asyncio.Task[None]]:
        """End the task of the owner, which is returned, if there is one."""
        if self._task is None:
            return []
        self._task.cancel()
        return [self._task]

    # The task ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        machine = self.machine
        try:
            while machine.state not in ENDED:
                self._news.clear()
                if (action := machine.action) is not None:
                    await self._carry_out(action)
                elif numbers := machine.take_sends():
                    await self._send(numbers)
                elif self._must_look:
                    await self._look()
                else:
                    await self._news.wait()
                self._tell()
        except Exception as error:  # noqa: BLE001 - publishers wait; a defect must not leave them waiting
            failure = UnexpectedCondition(f"the owner of the log failed: {error!r}")
            failure.__cause__ = error
            machine.fail(failure)
        finally:
            self._end()
        await self._clean_up()

    async def _carry_out(self, action: OwnerAction) -> None:
        """Try an action until it has an outcome, or it is time to give up."""
        loop = asyncio.get_running_loop()
        gives_up_at = loop.time() + self._settings.give_up_s
        attempts = 0
        while True:
            try:
                await self._try(action)
            except BookKeeperError as error:
                if isinstance(action, CloseLedger):
                    self.machine.on_close_failed()
                    return
                pause_s = _BACKOFF.nth(attempts)
                if LogOwner.ends_owner(error) or loop.time() + pause_s >= gives_up_at:
                    self.machine.fail(error)
                    return
                attempts += 1
                await asyncio.sleep(pause_s)
            else:
                return

    async def _try(self, action: OwnerAction) -> None:
        machine = self.machine
        match action:
            case ReadManifest() | WriteManifest():
                was_listing = machine.state is OwnerState.LISTING
                await self.store.carry_out(action, machine)
                if was_listing and machine.state is OwnerState.OPEN:
                    self._on_ledger_begun()
            case RecoverLedger(ledger_id):
                machine.on_ended(await self._recover(ledger_id))
            case MakeLedger():
                await self._make()
            case CloseLedger(ledger_id):
                ledger = self._ledger
                assert ledger is not None
                await ledger.close()
                end = ledger.metadata
                machine.on_ended(LedgerEnd(ledger_id, end.last_entry_id, end.length, self._time_at(end.last_entry_id)))

    def _on_ledger_begun(self) -> None:
        self._set_timers()
        log.LOG_LEDGER_BEGUN(log=self.store.name, ledger_id=self.machine.ledger_id)
        if self._stats is not None:
            self._stats.on_ledger_begun()

    def _time_at(self, last_entry_id: int) -> int:
        """The time of the last entry of the current ledger, which is the last one acknowledged, or one that was sent after it."""
        beyond = last_entry_id - self.machine.stored
        if 0 <= beyond < len(self.machine.sent):
            return self._entries[self.machine.sent[beyond][0]].publish_ms
        return self._stored_ms

    async def _recover(self, ledger_id: int) -> LedgerEnd:
        try:
            opened = await self.store.client.open_ledger(ledger_id, recover=True)
        except NoSuchLedger as error:
            raise NoSuchLedger(
                "it is the end of the log, and the metadata store does not know it, so it cannot be fenced",
                ledger_id=ledger_id,
                advice="Restore its metadata, or give up its messages by Logs.drop_lost_ledger (bk log drop-ledger).",
            ) from error
        async with opened as reader:
            last = reader.last_add_confirmed
            if last < 0:
                return LedgerEnd(ledger_id, -1)
            last_ms = publish_time((await reader.read(last)).payload)
            self._last_ms = max(self._last_ms, last_ms)
            return LedgerEnd(ledger_id, last, reader.length, last_ms)

    async def _make(self) -> None:
        settings, machine = self.machine.settings, self.machine
        if self._failures:  # as long as bookies fail, new ledgers do, too: each leaves an empty one behind
            await asyncio.sleep(_BACKOFF.nth(self._failures - 1))
        assert machine.known is not None
        custom = {"application": b"bkclient-log", "log": self.store.name.encode()}
        ledger = await self.store.client.create_ledger(
            ensemble_size=settings.ensemble_size,
            write_quorum_size=settings.write_quorum_size,
            ack_quorum_size=settings.ack_quorum_size,
            custom_metadata={**custom, "log-id": machine.known.manifest.log_id.encode()},
        )
        self._ledger = ledger
        machine.now_ms = self._now_ms()
        machine.on_made(ledger.ledger_id)

    async def _send(self, numbers: list[int]) -> None:
        ledger = self._ledger
        assert ledger is not None
        for number in numbers:
            try:
                future = await ledger.submit(self._entries[number].data)
            except ArgumentError as error:
                self.machine.fail(error)  # no ledger will take it
                return
            except BookKeeperError as error:
                self._on_ledger_failed(error)
                return  # what follows in the list is not stored, and is sent again with this one
            future.add_done_callback(partial(self._on_entry, ledger, ledger.last_add_pushed))

    def _on_entry(self, ledger: LedgerWriter, entry_id: int, future: asyncio.Future[int]) -> None:
        if ledger is not self._ledger or self.machine.state in ENDED:
            return
        if future.cancelled() or future.exception() is not None:
            self._on_ledger_failed(None if future.cancelled() else future.exception())
        else:
            self._failures = 0
            self.machine.on_stored(entry_id)
            self._tell()
        self._news.set()

    def _on_ledger_failed(self, error: BaseException | None) -> None:
        """The current ledger did not take an entry; one that took none at all is not worth another at once."""
        machine, now = self.machine, asyncio.get_running_loop().time()
        if machine.state not in (OwnerState.OPEN, OwnerState.DRAINING):
            return
        reason = "cancelled" if error is None else str(error)
        log.LOG_LEDGER_FAILED(log=self.store.name, ledger_id=machine.ledger_id, reason=reason)
        if self._stats is not None:
            self._stats.on_ledger_failed()
        self._failing_since = self._failing_since if self._failures else now
        self._failures += 1
        if isinstance(error, BookKeeperError) and now >= self._failing_since + self._settings.give_up_s:
            machine.fail(error)
        else:
            machine.on_entry_failed()

    async def _look(self) -> None:
        self._must_look = False
        try:
            value = await self.store.read()
        except ClientClosed as error:
            self.machine.fail(error)
            return
        except BookKeeperError:
            return  # the next change finds out
        if value is not None:
            self.machine.on_seen(value)

    # Telling -----------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        for confirmed in self.machine.take_confirmed():
            entry = self._entries.pop(confirmed.number)
            self._stored_ms = entry.publish_ms
            entry.tell(confirmed.ledger_id, confirmed.entry_id)
            if self._stats is not None:
                self._stats.on_told(entry)
            self._on_told(entry)
            if self._flushes and (waiting := self._flushes.pop(confirmed.number, None)) and not waiting.done():
                waiting.set_result(None)
        self._told.set()

    def _end(self) -> None:
        """Tell everybody who waits that there is nothing to wait for any more."""
        for timer in self._timers:
            timer.cancel()
        self._tell()
        if self.machine.state not in ENDED:
            self.machine.fail(UnexpectedCondition("the owner of the log was cancelled"))
        entries, self._entries = list(self._entries.values()), {}
        self._log_end(len(entries))
        for entry in entries:
            self.refuse(entry)
        flushes, self._flushes = list(self._flushes.values()), {}
        for waiting in flushes:
            if not waiting.done():
                waiting.set_result(None)
        if self.machine.failure is not None:
            self.on_failed()
        self._told.set()

    def _log_end(self, entries: int) -> None:
        error, name, epoch = self.machine.failure, self.store.name, self.machine.epoch
        if error is None:
            log.LOG_RELEASED(log=name, epoch=epoch)
            return
        log.LOG_OWNER_ENDED(log=name, epoch=epoch, entries=entries, reason=error.message, code=error.code)
        if self._stats is not None:
            self._stats.on_ended()

    async def _clean_up(self) -> None:
        """Let the ledger go, and delete what nobody will ever look for; what cannot be deleted now is left to the next trim."""
        if self._ledger is not None and self.machine.state is not OwnerState.CLOSED:
            with suppress(BookKeeperError, TimeoutError):
                async with asyncio.timeout(LET_GO_S):
                    await self._ledger.close()
        trimmed = self.machine.known.manifest.trimmed if self.machine.known is not None else ()
        mine = [ledger_id for ledger_id in (self.machine.orphan,) if ledger_id is not None]
        for ledger_id in (*mine, *(trimmed if self.machine.state is OwnerState.CLOSED else ())):
            try:
                await self.store.client.delete_ledger(ledger_id)
            except BookKeeperError:
                return

    # Times -------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        now_ms = self.store.now_ms()
        assert now_ms is not None, "checked by the writer"
        return max(now_ms, self._last_ms)

    def _set_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        loop, settings = asyncio.get_running_loop(), self.machine.settings
        self._timers = [loop.call_later(settings.max_ledger_s, self._on_old)]
        if settings.min_ledger_s:
            self.machine.hold_roll(is_held=True)
            self._timers.append(loop.call_later(settings.min_ledger_s, self._on_mature))

    def _on_old(self) -> None:
        self.machine.roll()
        self._news.set()

    def _on_mature(self) -> None:
        self.machine.hold_roll(is_held=False)
        self._news.set()

    def _on_changed(self) -> None:
        self._must_look = True
        self._news.set()


async def abandon_all(drivers: Iterable[OwnerDriver]) -> None:
    """End owners without a release. A caller that is cancelled meanwhile, or was before, leaves none of them running."""
    tasks = [task for driver in drivers for task in driver.cancel()]
    if tasks:
        with anyio.CancelScope(shield=True):
            await asyncio.wait(tasks)

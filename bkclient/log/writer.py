"""Publishing to a log: what applications see of its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, NoReturn, Self

from bkclient.errors import (
    ArgumentError,
    BookKeeperError,
    ClientClosed,
    LedgerClosed,
    TooManyRequests,
)
from bkclient.log.batches import Batcher, PendingEntry
from bkclient.log.driver import OwnerDriver
from bkclient.log.format.message import MESSAGE_BYTES, Row, row_of
from bkclient.log.format.message_id import MessageId
from bkclient.log.machine.manifest import LogManifest
from bkclient.log.machine.owner_state import OwnerState
from bkclient.log.opening import open_partition
from bkclient.log.partitioning import PartitionRouter
from bkclient.log.settings import PublishSettings
from bkclient.log.store import ManifestStore

__all__ = ["LogWriter"]


@dataclass(slots=True)
class _Lane:
    """Where the messages of one partition go, or those of a log without."""

    driver: OwnerDriver
    batcher: Batcher


Payload = bytes | bytearray | memoryview


class LogWriter:
    """Publishes to a log, as its only owner; from :meth:`bkclient.log.Logs.writer`.

    ::

        async with logs.writer("orders") as log:
            message_id = await log.publish(b"...", key="customer-7")

    Entering the block takes the log over from the owner before: that one is fenced and can publish no more. Leaving it publishes
    everything that was handed in, closes the ledger and leaves the log without an owner; leaving it by an exception does
    the same.

    Messages are in the log in the order of the calls; in a log with partitions, in the order of the calls in each. Bookies that
    fail are lived through, if need be in a new ledger. After the first message that could not be published the writer accepts no
    more, and every call raises the first error again:
    :class:`~bkclient.log.LogDeposed` when another owner has taken over. A message whose publishing failed or was cancelled may or
    may not be in the log.
    """

    def __init__(self, store: ManifestStore, settings: PublishSettings, owner: str) -> None:
        if store.client.wall_clock is None:
            raise ArgumentError("publishing needs a client that was made with a wall_clock")
        self._settings: Final = settings
        self._name: Final = owner
        #: Owns the log. Where it has partitions this one publishes nothing, and each of them has another.
        self._owner: Final = OwnerDriver(store, settings, owner, self._on_progress)
        self._lanes: list[_Lane] = []
        self._router: PartitionRouter | None = None
        #: The partition that failed first.
        self._failed: OwnerDriver | None = None
        #: What else may be handed in before something is acknowledged, and what one message may have.
        self._free_messages = settings.max_pending_messages
        self._free_bytes = settings.max_pending_bytes
        self._message_bytes_max: Final = min(self._owner.max_entry_bytes, settings.max_pending_bytes)
        #: False before the block, after a failure, and at the end.
        self._is_accepting = False
        #: Where all messages go in a log without partitions.
        self._batcher: Batcher | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._is_closing = False

    @property
    def name(self) -> str:
        """The name of the log."""
        return self._owner.store.name

    @property
    def epoch(self) -> int:
        """How often the log was taken over until and including this time."""
        return self._owner.machine.epoch

    @property
    def pending_messages(self) -> int:
        """Messages that are not acknowledged yet."""
        return self._settings.max_pending_messages - self._free_messages

    @property
    def pending_bytes(self) -> int:
        """Bytes of the messages that are not acknowledged yet."""
        return self._settings.max_pending_bytes - self._free_bytes

    def __repr__(self) -> str:
        return f"<LogWriter {self.name} {self._owner.machine.state.value} epoch={self.epoch}>"

    # Publishing --------------------------------------------------------------------------------------------------

    async def publish(
        self,
        payload: Payload,
        *,
        key: str | None = None,
        headers: Mapping[str, bytes] | None = None,
        event_ms: int | None = None,
    ) -> MessageId:
        """Publish one message and wait until it is acknowledged; its id.

        Waits first while too much is not acknowledged. Raises :class:`~bkclient.errors.ArgumentError` for a message that is too
        large or of a wrong shape, and otherwise what ended the writer. Cancellation leaves the writer intact, and the message may
        be published all the same.
        """
        row, size = row_of(payload, key, headers, event_ms)
        self._check(size)
        while not self._has_room_for(size):
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
            self._check(size)
        return await self._add(row, size, key)

    def publish_nowait(
        self,
        payload: Payload,
        *,
        key: str | None = None,
        headers: Mapping[str, bytes] | None = None,
        event_ms: int | None = None,
    ) -> asyncio.Future[MessageId]:
        """Publish one message without waiting; a future of its id, which raises as :meth:`publish`.

        Raises :class:`~bkclient.errors.TooManyRequests` while too much is not acknowledged. The future need not be awaited:
        :meth:`flush` and the end of the block raise a failure too.
        """
        row: bytes | Row
        if key is None and type(payload) is bytes and headers is None and event_ms is None:
            row, size = payload, len(payload) + MESSAGE_BYTES
        else:
            row, size = row_of(payload, key, headers, event_ms)
        free = self._free_bytes
        if size > free or not self._free_messages or not self._is_accepting or size > self._message_bytes_max:
            self._refuse(size)
        batcher = self._batcher
        if batcher is None:
            return self._add(row, size, key)
        self._free_messages -= 1
        self._free_bytes = free - size
        return batcher.add(row, size)

    async def flush(self) -> None:
        """Wait until everything that was handed in is acknowledged. Raises what ended the writer."""
        for lane in self._lanes:
            lane.batcher.flush()
        for lane in self._lanes:
            await lane.driver.until_all_told()
        self._raise_failure()

    def _check(self, size: int) -> None:
        if not self._lanes:
            raise ArgumentError("use the writer of a log inside its 'async with' block")
        self._raise_failure()
        if self._is_closing:
            raise LedgerClosed("the writer of the log was closed", advice="Make another one.")
        if size > self._message_bytes_max:
            raise ArgumentError(f"a message must have at most {self._message_bytes_max} bytes, this one has {size}")

    def _refuse(self, size: int) -> NoReturn:
        self._check(size)
        raise TooManyRequests(
            f"{self.pending_messages} messages in {self.pending_bytes} bytes are not acknowledged yet"
        )

    def _raise_failure(self) -> None:
        error = self._owner.failure()
        if error is None and self._failed is not None:
            error = self._failed.failure()
        if error is not None:
            raise error

    def _has_room_for(self, size: int) -> bool:
        return self._free_messages > 0 and size <= self._free_bytes

    def _add(self, row: bytes | Row, size: int, key: str | None) -> asyncio.Future[MessageId]:
        self._free_messages -= 1
        self._free_bytes -= size
        if self._batcher is not None:
            return self._batcher.add(row, size)
        assert self._router is not None, "a log has partitions or a batcher"
        return self._lanes[self._router.choose(key)].batcher.add(row, size)

    def _on_progress(self, entry: PendingEntry) -> None:
        """An entry was acknowledged, or failed."""
        self._free_messages += len(entry.rows)
        self._free_bytes += entry.size
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # The end -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._lanes:
            raise ArgumentError("a writer of a log can be entered once; make another one")
        await self._owner.claim()
        known = self._owner.machine.known
        assert known is not None, "the log was claimed"
        drivers = [self._owner]
        if known.manifest.partitions:
            drivers = await self._claim_partitions(known.manifest)
            self._router = PartitionRouter(len(drivers), lambda number: self._lanes[number].batcher.is_empty)
        for number, driver in enumerate(drivers):
            partition = -1 if self._router is None else number
            batcher = Batcher(self._settings, driver.publish, driver.is_idle, self._message_bytes_max, partition)
            lane = _Lane(driver, batcher)
            driver.on_failed = partial(self._on_failed, lane)
            self._lanes.append(lane)
        if self._router is None:
            self._batcher = self._lanes[0].batcher
        self._is_accepting = True
        return self

    async def _claim_partitions(self, manifest: LogManifest) -> list[OwnerDriver]:
        """Take the partitions over, in the epoch of the log: an owner that claimed it later gets all of them."""
        drivers = []
        try:
            for number in range(manifest.partitions):
                store, _ = await open_partition(self._owner.store, manifest, number)
                drivers.append(
                    OwnerDriver(store, self._settings, self._name, self._on_progress, term=self._owner.machine.epoch)
                )
            outcomes = await asyncio.gather(*(driver.claim() for driver in drivers), return_exceptions=True)
            _raise_first(outcomes)
        except BaseException:
            for driver in (*drivers, self._owner):
                await driver.abandon()
            raise
        return drivers

    def _on_failed(self, lane: _Lane) -> None:
        """An owner has ended: what was gathered for it is not sent any more."""
        self._is_accepting = False
        if self._failed is None:
            self._failed = lane.driver
        lane.driver.refuse(lane.batcher.drop())

    async def aclose(self) -> None:
        """End the writer as leaving ``async with`` does. Idempotent."""
        if not self._lanes:
            return
        self._is_closing, self._is_accepting = True, False
        for lane in self._lanes:
            lane.batcher.flush()
        if self._router is not None:
            await asyncio.gather(*(lane.driver.close() for lane in self._lanes))
        await self._owner.close()
        self._raise_failure()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.aclose()
            return
        try:
            await self.aclose()
        except (BookKeeperError, ClientClosed) as failure:
            if failure is not error:
                error.add_note(f"closing the log failed too: {failure}")

    @property
    def is_closed(self) -> bool:
        """Whether the writer accepts no more."""
        is_over = self._owner.machine.state in (OwnerState.DEPOSED, OwnerState.FAILED)
        return self._is_closing or is_over or self._failed is not None


def _raise_first(outcomes: list[BaseException | None]) -> None:
    for outcome in outcomes:
        if outcome is not None:
            raise outcome

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
    LedgerClosed,
    TooManyRequests,
)
from bkclient.log.batches import Batcher, PendingEntry
from bkclient.log.driver import LET_GO_S, OwnerDriver, abandon_all
from bkclient.log.format.message import MESSAGE_BYTES, Row, row_of
from bkclient.log.format.message_id import MessageId
from bkclient.log.line import PublishLine, WaitingMessage
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
    everything that was handed in, closes the ledger and leaves the log without an owner. Leaving it by an exception, or by being
    cancelled, does the same, but gives up once nothing is acknowledged for 5 seconds; being cancelled while it is left gives up
    at once. Then the log is left as by an owner that died, and the next one takes it over.

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
        #: False before the block, after a failure, at the end, and while others wait for room.
        self._is_accepting = False
        #: Where all messages go in a log without partitions.
        self._batcher: Batcher | None = None
        #: Who waits for room; there from the beginning of the block on.
        self._line: PublishLine | None = None
        self._is_entered = False
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
        if self._is_accepting and self._has_room_for(size):
            return await self._add(row, size, key)
        assert self._line is not None, "it is there inside the block"
        self._is_accepting = False  # what comes from now on waits, too, or is refused
        future = await self._line.wait(WaitingMessage(row, size, key))
        if future is None:
            self._check(size)
        assert future is not None, "refused before"
        return await future

    def publish_nowait(
        self,
        payload: Payload,
        *,
        key: str | None = None,
        headers: Mapping[str, bytes] | None = None,
        event_ms: int | None = None,
    ) -> asyncio.Future[MessageId]:
        """Publish one message without waiting; a future of its id, which raises as :meth:`publish`.

        Raises :class:`~bkclient.errors.TooManyRequests` while too much is not acknowledged, and while others wait for room. The
        future need not be awaited: :meth:`flush` and the end of the block raise a failure too.
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
        """Wait until everything is acknowledged that was handed in before the call. Raises what ended the writer.

        What other tasks publish meanwhile is not waited for, and neither is what waits for room itself.
        """
        for lane in self._lanes:
            lane.batcher.flush()
        told = [lane.driver.told() for lane in self._lanes]
        if waiting := [future for future in told if not future.done()]:
            await asyncio.wait(waiting)
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
        waiting = f", and {len(self._line)} others wait" if self._line else ""
        raise TooManyRequests(
            f"{self.pending_messages} messages in {self.pending_bytes} bytes are not acknowledged yet{waiting}"
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

    def _take(self, message: WaitingMessage) -> asyncio.Future[MessageId]:
        return self._add(message.row, message.size, message.key)

    def _on_progress(self, entry: PendingEntry) -> None:
        """An entry was acknowledged, or failed."""
        self._free_messages += len(entry.rows)
        self._free_bytes += entry.size
        if self._line is not None:
            self._line.on_room()

    def _on_nobody_waits(self) -> None:
        self._is_accepting = not (self._is_closing or self._has_failed)

    def _end(self) -> None:
        """Accept nothing any more, and tell those who wait."""
        self._is_accepting = False
        if self._line is not None:
            self._line.give_up()

    # The end -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise ArgumentError("a writer of a log can be entered once; make another one")
        self._is_entered = True
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
        self._line = PublishLine(self._has_room_for, self._take, self._on_nobody_waits)
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
            await abandon_all((*drivers, self._owner))
            raise
        return drivers

    def _on_failed(self, lane: _Lane) -> None:
        """An owner has ended: what was gathered for it is not sent any more."""
        if self._failed is None:
            self._failed = lane.driver
        self._end()
        lane.driver.refuse(lane.batcher.drop())

    async def aclose(self) -> None:
        """End the writer as leaving ``async with`` without an exception does. Idempotent.

        Cancellation does not stop it: another call waits for its end.
        """
        await self._close(None)

    async def _close(self, patience_s: float | None) -> None:
        if not self._lanes:
            return
        self._is_closing = True
        self._end()
        for lane in self._lanes:
            lane.batcher.flush()
        if self._router is not None:
            await asyncio.gather(*(lane.driver.close(patience_s) for lane in self._lanes))
        await self._owner.close(patience_s)
        self._raise_failure()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._close(None if error is None else LET_GO_S)
        except BookKeeperError as failure:
            if error is None:
                raise
            if failure is not error:
                error.add_note(f"closing the log failed too: {failure}")
        except BaseException:  # cancelled: nobody is left to wait for the owner
            await abandon_all((*(lane.driver for lane in self._lanes), self._owner))
            raise

    @property
    def is_closed(self) -> bool:
        """Whether the writer accepts no more."""
        return self._is_closing or self._has_failed

    @property
    def _has_failed(self) -> bool:
        is_over = self._owner.machine.state in (OwnerState.DEPOSED, OwnerState.FAILED)
        return is_over or self._failed is not None


def _raise_first(outcomes: list[BaseException | None]) -> None:
    for outcome in outcomes:
        if outcome is not None:
            raise outcome

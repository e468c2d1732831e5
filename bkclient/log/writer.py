"""Publishing to a log: what applications see of its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from bkclient.errors import (
    ArgumentError,
    BookKeeperError,
    ClientClosed,
    LedgerClosed,
    TooManyRequests,
)
from bkclient.log.batches import Batcher, PendingEntry
from bkclient.log.driver import OwnerDriver
from bkclient.log.format.message import NewMessage, as_bytes
from bkclient.log.format.message_id import MessageId
from bkclient.log.machine.owner_state import OwnerState
from bkclient.log.settings import PublishSettings
from bkclient.log.store import ManifestStore

__all__ = ["LogWriter"]

Payload = bytes | bytearray | memoryview


class LogWriter:
    """Publishes to a log, as its only owner; from :meth:`bkclient.log.Logs.writer`.

    ::

        async with logs.writer("orders") as log:
            message_id = await log.publish(b"...", key="customer-7")

    Entering the block takes the log over from the owner before: that one is fenced and can publish no more. Leaving it publishes
    everything that was handed in, closes the ledger and leaves the log without an owner; leaving it by an exception does
    the same.

    Messages are in the log in the order of the calls. Bookies that fail are lived through, if need be in a new ledger. After the
    first message that could not be published the writer accepts no more, and every call raises the first error again:
    :class:`~bkclient.log.LogDeposed` when another owner has taken over. A message whose publishing failed or was cancelled may or
    may not be in the log.
    """

    def __init__(self, store: ManifestStore, settings: PublishSettings, owner: str) -> None:
        if store.client.wall_clock is None:
            raise ArgumentError("publishing needs a client that was made with a wall_clock")
        self._settings: Final = settings
        self._driver: Final = OwnerDriver(store, settings, owner, self._on_progress)
        self._batcher: Batcher | None = None
        self._pending_messages = 0
        self._pending_bytes = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._is_closing = False

    @property
    def name(self) -> str:
        """The name of the log."""
        return self._driver.store.name

    @property
    def epoch(self) -> int:
        """How often the log was taken over until and including this time."""
        return self._driver.machine.epoch

    @property
    def pending_messages(self) -> int:
        """Messages that are not acknowledged yet."""
        return self._pending_messages

    @property
    def pending_bytes(self) -> int:
        """Bytes of the messages that are not acknowledged yet."""
        return self._pending_bytes

    def __repr__(self) -> str:
        return f"<LogWriter {self.name} {self._driver.machine.state.value} epoch={self.epoch}>"

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
        message = NewMessage(as_bytes(payload), key, headers, event_ms)
        self._check(message)
        while not self._has_room_for(message):
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
            self._check(message)
        return await self._add(message)

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
        message = NewMessage(as_bytes(payload), key, headers, event_ms)
        self._check(message)
        if not self._has_room_for(message):
            raise TooManyRequests(
                f"{self._pending_messages} messages in {self._pending_bytes} bytes are not acknowledged yet"
            )
        return self._add(message)

    async def flush(self) -> None:
        """Wait until everything that was handed in is acknowledged. Raises what ended the writer."""
        if self._batcher is not None:
            self._batcher.flush()
        await self._driver.until_all_told()
        self._raise_failure()

    def _check(self, message: NewMessage) -> None:
        if self._batcher is None:
            raise ArgumentError("use the writer of a log inside its 'async with' block")
        self._raise_failure()
        if self._is_closing:
            raise LedgerClosed("the writer of the log was closed", advice="Make another one.")
        limit = min(self._driver.max_entry_bytes, self._settings.max_pending_bytes)
        if message.size > limit:
            raise ArgumentError(f"a message must have at most {limit} bytes, this one has {message.size}")

    def _raise_failure(self) -> None:
        error = self._driver.failure()
        if error is not None:
            raise error

    def _has_room_for(self, message: NewMessage) -> bool:
        settings = self._settings
        return (
            self._pending_messages < settings.max_pending_messages
            and self._pending_bytes + message.size <= settings.max_pending_bytes
        )

    def _add(self, message: NewMessage) -> asyncio.Future[MessageId]:
        assert self._batcher is not None
        self._pending_messages += 1
        self._pending_bytes += message.size
        return self._batcher.add(message, is_idle=self._driver.is_idle)

    def _on_progress(self, entry: PendingEntry) -> None:
        """An entry was acknowledged, or failed."""
        self._pending_messages -= len(entry.messages)
        self._pending_bytes -= entry.size
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # The end -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._batcher is not None:
            raise ArgumentError("a writer of a log can be entered once; make another one")
        await self._driver.claim()
        self._batcher = Batcher(self._settings, self._driver.publish)
        self._driver.on_failed = self._drop
        return self

    def _drop(self) -> None:
        """The writer has ended: what was gathered is not sent any more."""
        if self._batcher is not None:
            self._driver.refuse(self._batcher.drop())

    async def aclose(self) -> None:
        """End the writer as leaving ``async with`` does. Idempotent."""
        if self._batcher is None:
            return
        self._is_closing = True
        self._batcher.flush()
        await self._driver.close()
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
        return self._is_closing or self._driver.machine.state in (OwnerState.DEPOSED, OwnerState.FAILED)

"""A partition that a consumer has: its cursor, and a task that reads ahead what is not acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from bkclient._backoff import Backoff
from bkclient.errors import BookKeeperError, UnexpectedCondition
from bkclient.log.errors import may_pass
from bkclient.log.format.message import LogMessage
from bkclient.log.machine.deliveries import Deliveries
from bkclient.log.partition_cursor import PartitionCursor
from bkclient.log.partition_reader import PartitionReader
from bkclient.observability import log

__all__ = ["HeldPartition"]

_BACKOFF: Final = Backoff(0.1, 5.0)
_PATIENCE_S: Final = 60.0
"""How long what may pass is not told, while it is tried again."""


class HeldPartition:
    """One partition, or the whole of a log without partitions; :meth:`start` begins to read, :meth:`leave` ends it."""

    def __init__(self, cursor: PartitionCursor, reader: PartitionReader, deliveries: Deliveries) -> None:
        self.cursor: Final = cursor
        self.reader: Final = reader
        self.deliveries: Final = deliveries
        self.room: Final = asyncio.Event()
        #: Why the task ended.
        self.failure: BookKeeperError | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, limit: int, on_news: Callable[[], None], on_failed: Callable[[HeldPartition], None]) -> None:
        """Begin, or go on after a failure, of which ``on_failed`` hears. ``on_news`` is called when a message was read."""
        self.failure = None
        self._task = asyncio.create_task(self.read(limit, on_news), name="reader of a consumer")
        self._task.add_done_callback(partial(self._on_ended, on_failed))

    def _on_ended(self, on_failed: Callable[[HeldPartition], None], task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        assert error is not None, "reading goes on for ever"
        self.failure = (
            error if isinstance(error, BookKeeperError) else UnexpectedCondition(f"reading failed: {error!r}")
        )
        if self.failure is not error:
            self.failure.__cause__ = error
        on_failed(self)

    async def read(self, limit: int, on_news: Callable[[], None]) -> None:
        """Read, as long as fewer than ``limit`` messages are not acknowledged."""
        while True:
            while self.deliveries.outstanding >= limit:
                self.room.clear()
                await self.room.wait()
            message = await self._next()
            place = message.id
            if not self.cursor.state.is_acknowledged(place.ledger_id, place.entry_id, place.batch_index):
                self.deliveries.offer(message)
                on_news()

    async def _next(self) -> LogMessage:
        """The next message. What may pass is tried again for a while, less and less often."""
        loop = asyncio.get_running_loop()
        failures, gives_up_at = 0, loop.time() + _PATIENCE_S
        while True:
            try:
                return await self.reader.next()
            except BookKeeperError as error:
                pause_s = _BACKOFF.nth(failures)
                if not may_pass(error):
                    raise
                if not failures:
                    gives_up_at = loop.time() + _PATIENCE_S
                if loop.time() + pause_s >= gives_up_at:
                    raise
                failures += 1
                log.LOG_READ_FAILED(
                    log=self.reader.log,
                    seconds=pause_s,
                    reason=error.message,
                    ledger_id=error.ledger_id,
                    code=error.code,
                )
            await asyncio.sleep(pause_s)

    async def leave(self) -> None:
        """End the task and let the reader go."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.cursor.left()
        await self.reader.leave()

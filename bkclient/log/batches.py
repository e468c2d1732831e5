"""Gathering messages to entries.

A message costs a future and a place in two lists; one that is nothing but a payload is that payload.
Everything else is done once for an entry: times, bytes, ids, what is pending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bkclient.log.format.message import Row
from bkclient.log.format.message_id import MessageId, ids_of_batch
from bkclient.log.settings import PublishSettings

__all__ = ["Batcher", "PendingEntry"]


@dataclass(slots=True)
class PendingEntry:
    """Messages that become one entry of ``partition``, who waits for their ids, and, once they are handed in, the bytes."""

    rows: list[bytes | Row] = field(default_factory=list, repr=False)
    futures: list[asyncio.Future[MessageId]] = field(default_factory=list)
    size: int = 0
    data: bytes = field(default=b"", repr=False)
    publish_ms: int = 0
    partition: int = -1

    def tell(self, ledger_id: int, entry_id: int) -> None:
        """Tell everybody where the messages are."""
        ids = ids_of_batch(ledger_id, entry_id, self.partition, len(self.futures))
        for future, message_id in zip(self.futures, ids, strict=True):
            if not future.done():
                future.set_result(message_id)

    def fail(self, error: Callable[[], BaseException]) -> None:
        """Tell everybody that it is not known whether the messages are in the log."""
        for future in self.futures:
            if not future.done():
                future.set_exception(error())
                future.exception()  # who does not await it is told by flush() and close()


class Batcher:
    """Gathers messages, and gives ``send`` an entry when it is full or was waited for long enough.

    A message may have at most ``max_bytes``, and more than one of them have no more.
    ``is_idle`` tells whether nothing is under way.
    """

    def __init__(
        self,
        settings: PublishSettings,
        send: Callable[[PendingEntry], None],
        is_idle: Callable[[], bool],
        max_bytes: int,
        partition: int = -1,
    ) -> None:
        self._limit: Final = settings.batch_messages
        self._delay_s: Final = settings.batch_delay_s
        self._full_bytes: Final = min(settings.batch_bytes, max_bytes)
        self._partition: Final = partition
        self._send: Final = send
        self._is_idle: Final = is_idle
        self._loop: Final = asyncio.get_running_loop()
        self._new_future: Final[Callable[[], asyncio.Future[MessageId]]] = self._loop.create_future
        self._rows: list[bytes | Row] = []
        self._futures: list[asyncio.Future[MessageId]] = []
        #: Bytes that the entry still takes; less than any message has before its first one.
        self._left = -1
        self._timer: asyncio.Handle | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no message is gathered."""
        return not self._rows

    def add(self, row: bytes | Row, size: int) -> asyncio.Future[MessageId]:
        """Take one message; a future of its id. It waits only until the next turn of the loop if nothing is under way."""
        if size > self._left:
            self._begin()
        future = self._new_future()
        self._rows.append(row)
        self._futures.append(future)
        self._left = left = self._left - size
        if left <= 0 or len(self._rows) >= self._limit:
            self.flush()
        return future

    def _begin(self) -> None:
        """Begin an entry; a message that is larger than entries should be has one by itself."""
        self.flush()
        self._left = self._full_bytes
        self._timer = (
            self._loop.call_soon(self.flush)
            if not self._delay_s or self._is_idle()
            else self._loop.call_later(self._delay_s, self.flush)
        )

    def flush(self) -> None:
        """Send what was gathered."""
        entry = self.drop()
        if entry.rows:
            self._send(entry)

    def drop(self) -> PendingEntry:
        """What was gathered, which is not going to be sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        entry = PendingEntry(self._rows, self._futures, self._full_bytes - self._left, partition=self._partition)
        self._rows, self._futures, self._left = [], [], -1
        return entry

"""Gathering messages to entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bkclient.log.format.message import NewMessage
from bkclient.log.format.message_id import MessageId
from bkclient.log.settings import PublishSettings

__all__ = ["Batcher", "PendingEntry"]


@dataclass(slots=True)
class PendingEntry:
    """Messages that become one entry of ``partition``, who waits for their ids, and, once they are handed in, the bytes."""

    messages: list[NewMessage] = field(default_factory=list, repr=False)
    futures: list[asyncio.Future[MessageId]] = field(default_factory=list)
    size: int = 0
    data: bytes = field(default=b"", repr=False)
    publish_ms: int = 0
    partition: int = -1

    def tell(self, ledger_id: int, entry_id: int) -> None:
        """Tell everybody where the messages are."""
        if len(self.futures) == 1:
            ids = [MessageId(ledger_id, entry_id, self.partition)]
        else:
            ids = [MessageId(ledger_id, entry_id, self.partition, index) for index in range(len(self.futures))]
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
    """Gathers messages, and gives ``send`` an entry when it is full or was waited for long enough."""

    def __init__(self, settings: PublishSettings, send: Callable[[PendingEntry], None], partition: int = -1) -> None:
        self._settings: Final = settings
        self._partition: Final = partition
        self._send: Final = send
        self._loop: Final = asyncio.get_running_loop()
        self._entry = PendingEntry(partition=partition)
        self._timer: asyncio.Handle | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no message is gathered."""
        return not self._entry.messages

    def add(self, message: NewMessage, *, is_idle: bool) -> asyncio.Future[MessageId]:
        """Take one message; a future of its id. It waits only until the next turn of the loop if nothing is under way."""
        size, settings = message.size, self._settings
        if self._entry.messages and self._entry.size + size > settings.batch_bytes:
            self.flush()
        entry = self._entry
        future: asyncio.Future[MessageId] = self._loop.create_future()
        entry.messages.append(message)
        entry.futures.append(future)
        entry.size += size
        if len(entry.messages) >= settings.batch_messages or entry.size >= settings.batch_bytes:
            self.flush()
        elif self._timer is None:
            self._timer = (
                self._loop.call_soon(self.flush)
                if is_idle or not settings.batch_delay_s
                else self._loop.call_later(settings.batch_delay_s, self.flush)
            )
        return future

    def flush(self) -> None:
        """Send what was gathered."""
        entry = self.drop()
        if entry.messages:
            self._send(entry)

    def drop(self) -> PendingEntry:
        """What was gathered, which is not going to be sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        entry, self._entry = self._entry, PendingEntry(partition=self._partition)
        return entry

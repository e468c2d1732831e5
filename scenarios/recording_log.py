"""Logs of the shipped client, with everything recorded that their application asks for and is told.

:class:`RecordedLogs` gives a log's publishers, readers and cursors. Below them ``bkclient.log`` is an application of the recorded
client: its ledgers are created, appended to, opened and closed under the same events as those of any other application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any, Self, cast

from bkclient import BookKeeper, Entry, LedgerTail
from bkclient.errors import BookKeeperError, TooManyRequests, code_of
from bkclient.ledger import LedgerMetadata
from bkclient.log import (
    LogCursor,
    LogDeposed,
    LogMessage,
    LogReader,
    Logs,
    LogSettings,
    LogWriter,
    MessageId,
    PublishSettings,
)
from bkclient.metadata.tree import NodeTree
from scenarios.history import Kind
from scenarios.recording import RecordedClient, RecordedReader, RecordedWriter, fingerprint

__all__ = ["RecordedLogCursor", "RecordedLogReader", "RecordedLogWriter", "RecordedLogs"]


class RecordedLogs:
    """The logs of a cluster, for the application of ``client``; ``rng`` makes the ids of claims."""

    def __init__(self, client: RecordedClient, rng: Random) -> None:
        self._client = client
        self._logs = Logs(cast("BookKeeper", _LedgerCalls(client)), rng=rng)

    async def create(self, name: str, settings: LogSettings) -> None:
        """See :meth:`bkclient.log.Logs.create`."""
        await self._logs.create(name, settings)

    async def trim(self, name: str, before: MessageId | None = None) -> list[int]:
        """See :meth:`bkclient.log.Logs.trim`."""
        return await self._logs.trim(name, before)

    async def delete(self, name: str) -> None:
        """See :meth:`bkclient.log.Logs.delete`."""
        await self._logs.delete(name)

    async def open_ledger_of(self, name: str) -> int | None:
        """The ledger of the log that may be written to, if there is one."""
        return next(iter((await self._logs.info(name)).open_ledgers), None)

    async def remove_cursor(self, name: str, cursor: str) -> None:
        """See :meth:`bkclient.log.Logs.remove_cursor`."""
        await self._logs.remove_cursor(name, cursor)

    def writer(self, name: str, settings: PublishSettings) -> RecordedLogWriter:
        """A publisher to the log, which takes it over when its block is entered."""
        return RecordedLogWriter(self._logs.writer(name, owner=self._client.actor, settings=settings), self._client)

    def reader(self, name: str, start: MessageId = MessageId.EARLIEST, *, follow: bool = True) -> RecordedLogReader:
        """A reader of the log."""
        is_earliest = start == MessageId.EARLIEST
        return RecordedLogReader(self._logs.reader(name, start, follow=follow), self._client, is_earliest=is_earliest)

    def cursor(self, name: str, cursor: str) -> RecordedLogCursor:
        """A durable cursor of the log."""
        return RecordedLogCursor(self._logs.cursor(name, cursor), self._client, name)


class RecordedLogWriter:
    """A publisher that records LOG_PUB before each message is handed in, and LOG_ACK, LOG_FAIL and LOG_LOST when it is told."""

    def __init__(self, writer: LogWriter, client: RecordedClient) -> None:
        self.inner = writer
        self._record = client.recorder.record
        self._actor = client.actor
        self._messages = 0
        self._is_lost = False

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.inner.__aexit__(kind, error, trace)

    def publish_nowait(self, payload: bytes) -> asyncio.Future[MessageId]:
        """Publish one message; a future of its id."""
        number, content = self._messages, fingerprint(payload)
        self._messages += 1
        message: dict[str, Any] = {"log": self.inner.name, "epoch": self.inner.epoch, "message": number}
        self._record(Kind.LOG_PUB, self._actor, **message, content=content, size=len(payload))
        try:
            future = self.inner.publish_nowait(payload)
        except BookKeeperError as error:
            self._failed(message, error)
            raise

        def on_done(done: asyncio.Future[MessageId]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None:
                self._failed(message, error)
            elif not done.cancelled():
                found = done.result()
                where = {"content": content, "entry": found.entry_id, "batch": found.batch_index}
                self._record(Kind.LOG_ACK, self._actor, found.ledger_id, **message, **where)

        future.add_done_callback(on_done)
        return future

    async def flush(self) -> None:
        """See :meth:`bkclient.log.LogWriter.flush`."""
        await self._told(self.inner.flush)

    async def release(self) -> None:
        """Publish what was handed in, and own the log no more."""
        await self._told(self.inner.aclose)

    async def _told(self, call: Callable[[], Any]) -> None:
        try:
            await call()
        except BookKeeperError as error:
            self._lost(error)
            raise

    def _failed(self, message: dict[str, Any], error: BaseException) -> None:
        self._record(Kind.LOG_FAIL, self._actor, **message, code=int(code_of(error)))
        self._lost(error)

    def _lost(self, error: BaseException) -> None:
        """The application learned that it owns the log no more."""
        if isinstance(error, LogDeposed) and not self._is_lost:
            self._is_lost = True
            told: dict[str, Any] = {"log": self.inner.name, "epoch": self.inner.epoch, "code": int(error.code)}
            self._record(Kind.LOG_LOST, self._actor, **told)


class RecordedLogReader:
    """A reader that records LOG_READ_START, LOG_READ for each message, and LOG_READ_END if it comes to the end."""

    def __init__(self, reader: LogReader, client: RecordedClient, *, is_earliest: bool) -> None:
        self.inner = reader
        self._deliveries = _Deliveries(client, reader.name, "", "earliest" if is_earliest else "other")

    async def __aenter__(self) -> Self:
        self._deliveries.start()
        await self.inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.inner.__aexit__(kind, error, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LogMessage:
        try:
            message = await anext(self.inner)
        except StopAsyncIteration:
            self._deliveries.end()
            raise
        self._deliveries.take(message)
        return message


class RecordedLogCursor:
    """A cursor that records LOG_READ_START and LOG_READ for each message; what it stores is recorded where it is stored."""

    def __init__(self, cursor: LogCursor, client: RecordedClient, log: str) -> None:
        self.inner = cursor
        self._deliveries = _Deliveries(client, log, cursor.name, "other")

    async def __aenter__(self) -> Self:
        self._deliveries.start()
        await self.inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.inner.__aexit__(kind, error, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LogMessage:
        message = await anext(self.inner)
        self._deliveries.take(message)
        return message

    def acknowledge(self, message: LogMessage) -> None:
        """See :meth:`bkclient.log.LogCursor.acknowledge`."""
        self.inner.acknowledge(message)


class _Deliveries:
    """Records what one reader gets."""

    def __init__(self, client: RecordedClient, log: str, cursor: str, cause: str) -> None:
        self._record = client.recorder.record
        self._actor = client.actor
        self._reader: dict[str, Any] = {"log": log, "handle": client.new_handle()}
        self._cursor = cursor
        self._cause = cause

    def start(self) -> None:
        self._record(Kind.LOG_READ_START, self._actor, **self._reader, cursor=self._cursor, cause=self._cause)

    def take(self, message: LogMessage) -> None:
        where = {"entry": message.id.entry_id, "batch": message.id.batch_index}
        content = fingerprint(message.payload)
        self._record(Kind.LOG_READ, self._actor, message.id.ledger_id, **self._reader, content=content, **where)

    def end(self) -> None:
        self._record(Kind.LOG_READ_END, self._actor, **self._reader)


# The ledgers of a log ------------------------------------------------------------------------------------------------


class _LedgerCalls:
    """What ``bkclient.log`` uses of a :class:`~bkclient.BookKeeper`; each call is recorded as that of an application."""

    def __init__(self, client: RecordedClient) -> None:
        self._client = client

    @property
    def wall_clock(self) -> Callable[[], float] | None:
        return self._client.inner.wall_clock

    def node_tree(self) -> NodeTree:
        return self._client.inner.node_tree()

    async def create_ledger(self, **options: Any) -> _AppendedLedger:
        return _AppendedLedger(await self._client.create_ledger(**options))

    async def open_ledger(self, ledger_id: int, *, recover: bool = False) -> _OpenedLedger:
        return _OpenedLedger(await self._client.open_ledger(ledger_id, recover=recover))

    async def delete_ledger(self, ledger_id: int) -> None:
        await self._client.delete_ledger(ledger_id)


class _AppendedLedger:
    """What a log's owner uses of a :class:`~bkclient.LedgerWriter`."""

    def __init__(self, writer: RecordedWriter) -> None:
        self._writer = writer
        self.ledger_id = writer.ledger_id

    @property
    def last_add_pushed(self) -> int:
        return self._writer.inner.last_add_pushed

    @property
    def metadata(self) -> LedgerMetadata:
        return self._writer.inner.metadata

    async def submit(self, payload: bytes) -> asyncio.Future[int]:
        while True:
            await self._writer.inner.wait_for_room()
            try:
                return self._writer.append_nowait(payload)
            except TooManyRequests:
                continue  # the client's window is full of other ledgers' entries

    async def close(self) -> None:
        await self._writer.close()


class _OpenedLedger:
    """What readers of a log use of a :class:`~bkclient.LedgerReader`."""

    def __init__(self, reader: RecordedReader) -> None:
        self._reader = reader

    @property
    def last_add_confirmed(self) -> int:
        return self._reader.inner.last_add_confirmed

    @property
    def length(self) -> int:
        return self._reader.inner.length

    async def read(self, entry_id: int) -> Entry:
        return await self._reader.read(entry_id)

    async def read_last_add_confirmed(self) -> int:
        return await self._reader.advance()

    def tail(self, first_entry_id: int = 0) -> _FollowedLedger:
        return _FollowedLedger(self._reader, self._reader.inner.tail(first_entry_id))

    async def aclose(self) -> None:
        await self._reader.inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _FollowedLedger:
    """What readers of a log use of a :class:`~bkclient.LedgerTail`."""

    def __init__(self, reader: RecordedReader, tail: LedgerTail) -> None:
        self._reader = reader
        self._tail = tail

    async def __anext__(self) -> Entry:
        entry = await anext(self._tail)
        self._reader.delivered(entry)
        return entry

    async def aclose(self) -> None:
        await self._tail.aclose()

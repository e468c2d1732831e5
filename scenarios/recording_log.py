"""Logs of the shipped client, with everything recorded that their application asks for and is told.

:class:`RecordedLogs` gives a log's publishers, readers and cursors. Below them ``bkclient.log`` is an application of the recorded
client: its ledgers are created, appended to, opened and closed under the same events as those of any other application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any, Self

from bkclient.errors import BookKeeperError, code_of
from bkclient.log import (
    ConsumerMode,
    LogConsumer,
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
from bkclient.log.partitioning import key_hash
from scenarios.history import Kind
from scenarios.recording import fingerprint
from scenarios.recording_client import RecordedClient

__all__ = ["RecordedLogConsumer", "RecordedLogCursor", "RecordedLogReader", "RecordedLogWriter", "RecordedLogs"]


class RecordedLogs:
    """The logs of a cluster, for the application of ``client``; ``rng`` makes the ids of claims."""

    def __init__(self, client: RecordedClient, rng: Random) -> None:
        self._client = client
        self._logs = Logs(client, rng=rng)

    async def create(self, name: str, settings: LogSettings, partitions: int = 0) -> None:
        """See :meth:`bkclient.log.Logs.create`."""
        await self._logs.create(name, settings, partitions=partitions)

    async def parts(self, name: str) -> list[str]:
        """The names of its partitions, each of which is a log to read; its own if it has none."""
        count = (await self._logs.info(name)).partitions
        return [_partition_of(name, number) for number in range(count)] or [name]

    async def trim(self, name: str, before: MessageId | None = None) -> list[int]:
        """See :meth:`bkclient.log.Logs.trim`."""
        return await self._logs.trim(name, before)

    async def compact(self, name: str) -> int:
        """See :meth:`bkclient.log.Logs.compact`."""
        return await self._logs.compact(name)

    async def is_compacted(self, name: str) -> bool:
        """Whether the log, or the partition, was compacted."""
        return (await self._logs.info(name)).compacted is not None

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
        writer = self._logs.writer(name, owner=self._client.log.actor, settings=settings)
        return RecordedLogWriter(writer, self._client, self._logs)

    def reader(self, name: str, start: MessageId = MessageId.EARLIEST, *, follow: bool = True) -> RecordedLogReader:
        """A reader of the log."""
        cause = "earliest" if start == MessageId.EARLIEST else "other"
        return RecordedLogReader(self._logs.reader(name, start, follow=follow), self._client, cause)

    def compacted_reader(self, name: str, *, follow: bool = True) -> RecordedLogReader:
        """A reader of the log, from its beginning, by what compactions left."""
        return RecordedLogReader(self._logs.reader(name, follow=follow, compacted=True), self._client, "compacted")

    def cursor(self, name: str, cursor: str) -> RecordedLogCursor:
        """A durable cursor of the log."""
        return RecordedLogCursor(self._logs.cursor(name, cursor), self._client, name)

    def consumer(self, name: str, group: str, mode: ConsumerMode) -> RecordedLogConsumer:
        """A member of a group of consumers of the log."""
        return RecordedLogConsumer(self._logs.consumer(name, group, mode=mode), self._client, name)


def _partition_of(log: str, number: int) -> str:
    """The name of a partition, which is a log by itself."""
    return f"{log}-partition-{number}"


class _RecordedBlock:
    """What is used inside the block of ``inner``."""

    inner: LogWriter | LogReader | LogCursor | LogConsumer

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.inner.__aexit__(kind, error, trace)


class RecordedLogWriter(_RecordedBlock):
    """A publisher that records LOG_PUB before each message is handed in, and LOG_ACK, LOG_FAIL and LOG_LOST when it is told."""

    def __init__(self, writer: LogWriter, client: RecordedClient, logs: Logs) -> None:
        self.inner: LogWriter = writer
        self._logs = logs
        self._partitions = 0
        self._record = client.log.record
        self._messages = 0
        self._is_lost = False

    async def __aenter__(self) -> Self:
        self._partitions = (await self._logs.info(self.inner.name)).partitions
        return await super().__aenter__()

    def publish_nowait(self, payload: bytes, key: str | None = None) -> asyncio.Future[MessageId]:
        """Publish one message; a future of its id. One for a log with partitions needs a key, which says in which it will be."""
        number, content = self._messages, fingerprint(payload)
        self._messages += 1
        log = self.inner.name
        if self._partitions:
            assert key is not None, "a plan gives one"
            log = _partition_of(log, key_hash(key) % self._partitions)
        message: dict[str, Any] = {"log": log, "epoch": self.inner.epoch, "message": number}
        digest = None if key is None else fingerprint(key.encode())
        self._record(Kind.LOG_PUB, **message, content=content, size=len(payload), key=digest)
        try:
            future = self.inner.publish_nowait(payload, key=key)
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
                self._record(Kind.LOG_ACK, found.ledger_id, **message, **where)

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
        self._record(Kind.LOG_FAIL, **message, code=int(code_of(error)))
        self._lost(error)

    def _lost(self, error: BaseException) -> None:
        """The application learned that it owns the log no more."""
        if isinstance(error, LogDeposed) and not self._is_lost:
            self._is_lost = True
            told: dict[str, Any] = {"log": self.inner.name, "epoch": self.inner.epoch, "code": int(error.code)}
            self._record(Kind.LOG_LOST, **told)


class _RecordedMessages(_RecordedBlock):
    """What one reader or cursor gets: LOG_READ_START, and LOG_READ for each message."""

    inner: LogReader | LogCursor

    def __init__(self, client: RecordedClient, log: str, cursor: str, cause: str) -> None:
        self._record = client.log.record
        self._reader: dict[str, Any] = {"log": log, "handle": client.log.new_handle()}
        self._cursor = cursor
        self._cause = cause

    async def __aenter__(self) -> Self:
        self._record(Kind.LOG_READ_START, **self._reader, cursor=self._cursor, cause=self._cause)
        return await super().__aenter__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LogMessage:
        message = await anext(self.inner)
        found, content = message.id, fingerprint(message.payload)
        where = {"entry": found.entry_id, "batch": found.batch_index, "publish_ms": message.publish_ms}
        self._record(Kind.LOG_READ, found.ledger_id, **self._reader, content=content, **where)
        return message


class RecordedLogReader(_RecordedMessages):
    """A reader that records what it gets, and LOG_READ_END if it comes to the end."""

    def __init__(self, reader: LogReader, client: RecordedClient, cause: str) -> None:
        super().__init__(client, reader.name, "", cause)
        self.inner: LogReader = reader

    async def __anext__(self) -> LogMessage:
        try:
            return await super().__anext__()
        except StopAsyncIteration:
            self._record(Kind.LOG_READ_END, **self._reader)
            raise


class RecordedLogCursor(_RecordedMessages):
    """A cursor that records what it gets; what it stores is recorded where it is stored."""

    def __init__(self, cursor: LogCursor, client: RecordedClient, log: str) -> None:
        super().__init__(client, log, cursor.name, "other")
        self.inner: LogCursor = cursor

    def acknowledge(self, message: LogMessage) -> None:
        """See :meth:`bkclient.log.LogCursor.acknowledge`."""
        self.inner.acknowledge(message)


class RecordedLogConsumer(_RecordedBlock):
    """A member of a group, which records what it gets of each partition as of a log of its own.

    Each time a partition is begun with, or begun again before what came of it last, that is another reader's handle.
    """

    def __init__(self, consumer: LogConsumer, client: RecordedClient, log: str) -> None:
        self.inner: LogConsumer = consumer
        self._client = client
        self._log = log
        #: By partition, the handle and the last message.
        self._readers: dict[int, tuple[int, MessageId]] = {}

    async def receive(self) -> LogMessage:
        """The next message."""
        message = await self.inner.receive()
        place = message.id
        log = self._log if place.partition < 0 else _partition_of(self._log, place.partition)
        handle, last = self._readers.get(place.partition, (-1, place))
        if place <= last:
            handle = self._client.log.new_handle()
            start: dict[str, Any] = {"log": log, "handle": handle, "cursor": self.inner.group, "cause": "other"}
            self._client.log.record(Kind.LOG_READ_START, **start)
        self._readers[place.partition] = handle, place
        where: dict[str, Any] = {"entry": place.entry_id, "batch": place.batch_index, "publish_ms": message.publish_ms}
        got: dict[str, Any] = {"log": log, "handle": handle, "content": fingerprint(message.payload), **where}
        self._client.log.record(Kind.LOG_READ, place.ledger_id, **got)
        return message

    def acknowledge(self, message: LogMessage) -> None:
        """See :meth:`bkclient.log.LogConsumer.acknowledge`."""
        self.inner.acknowledge(message)

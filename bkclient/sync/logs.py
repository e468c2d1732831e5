"""Logs whose calls wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Generic, Self, TypeVar

from bkclient.log import (
    ConsumerMode,
    LogConsumer,
    LogCursor,
    LogMessage,
    LogReader,
    Logs,
    LogWriter,
    MessageId,
    PublishSettings,
)
from bkclient.sync.bridge import Bridge, SyncBlock, SyncHandle, blocking, iterating, opening, passing

__all__ = ["SyncLogConsumer", "SyncLogCursor", "SyncLogReader", "SyncLogWriter", "SyncLogs"]

Source = TypeVar("Source", bound=LogReader | LogCursor)
Start = MessageId | Iterable[MessageId]


class SyncLogWriter(SyncBlock[LogWriter]):
    """Publishes to a log, from :meth:`bkclient.sync.SyncLogs.writer`; entering its block takes the log over."""

    publish = blocking(LogWriter.publish)
    publish_nowait = passing(LogWriter.publish_nowait)
    flush = blocking(LogWriter.flush)
    aclose = blocking(LogWriter.aclose)

    @property
    def epoch(self) -> int:
        """How often the log was taken over until and including this time."""
        return self._handle.epoch


class _Messages(SyncBlock[Source], Generic[Source]):
    """``for message in ...``: messages cross from the loop many at a time. Threads that share one get different messages."""

    def __init__(self, bridge: Bridge, handle: Source) -> None:
        super().__init__(bridge, handle)
        #: What has crossed and was not taken.
        self._crossed: deque[LogMessage] = deque()
        self._lock = threading.Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> LogMessage:
        with self._lock:
            while not self._crossed:
                found = self._bridge.call(self._handle.next_batch)
                if not found and isinstance(self._handle, LogReader):
                    raise StopIteration
                self._crossed.extend(found)
            return self._crossed.popleft()


class SyncLogReader(_Messages[LogReader]):
    """Reads a log, from :meth:`bkclient.sync.SyncLogs.reader`: ``for message in reader`` inside its block."""


async def _acknowledge(cursor: LogCursor, message: LogMessage) -> None:
    """Note that a message was dealt with; see :meth:`bkclient.log.LogCursor.acknowledge`."""
    cursor.acknowledge(message)


async def _acknowledge_all(cursor: LogCursor, messages: Iterable[LogMessage]) -> None:
    """Note that messages were dealt with, in one crossing; faster than one by one."""
    for message in messages:
        cursor.acknowledge(message)


async def _acknowledge_through(cursor: LogCursor, message: LogMessage) -> None:
    """Note that a message and all before it, in its partition, were dealt with."""
    cursor.acknowledge_through(message)


class SyncLogCursor(_Messages[LogCursor]):
    """A durable cursor, from :meth:`bkclient.sync.SyncLogs.cursor`; see :class:`bkclient.log.LogCursor`.

    ``for message in cursor`` inside its block delivers what is not acknowledged, and then waits for more.
    """

    acknowledge = blocking(_acknowledge)
    acknowledge_all = blocking(_acknowledge_all)
    acknowledge_through = blocking(_acknowledge_through)
    flush = blocking(LogCursor.flush)
    backlog_entries = blocking(LogCursor.backlog_entries)

    @property
    def positions(self) -> tuple[MessageId, ...]:
        """The first entry that is not acknowledged of each partition."""
        return self._handle.positions


async def _acknowledge_received(consumer: LogConsumer, message: LogMessage) -> None:
    """Note that a message was dealt with; see :meth:`bkclient.log.LogConsumer.acknowledge`."""
    consumer.acknowledge(message)


async def _acknowledge_all_received(consumer: LogConsumer, messages: Iterable[LogMessage]) -> None:
    """Note that messages were dealt with, in one crossing; faster than one by one."""
    for message in messages:
        consumer.acknowledge(message)


async def _reject(consumer: LogConsumer, message: LogMessage) -> None:
    """Have a message delivered again, to any thread that waits."""
    consumer.reject(message)


class SyncLogConsumer(SyncBlock[LogConsumer]):
    """A consumer of a group, from :meth:`bkclient.sync.SyncLogs.consumer`; see :class:`bkclient.log.LogConsumer`.

    Any number of threads may call :meth:`receive`; each gets other messages.
    """

    receive = blocking(LogConsumer.receive)
    receive_batch = blocking(LogConsumer.receive_batch)
    acknowledge = blocking(_acknowledge_received)
    acknowledge_all = blocking(_acknowledge_all_received)
    reject = blocking(_reject)
    flush = blocking(LogConsumer.flush)
    backlog_entries = blocking(LogConsumer.backlog_entries)

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that this consumer has now, ascending; (-1,) for a log without partitions, () for nothing."""
        return self._handle.partitions


async def _writer(logs: Logs, name: str, *, owner: str = "", settings: PublishSettings | None = None) -> LogWriter:
    """A publisher to the log, which takes it over when its ``with`` block is entered; see :meth:`bkclient.log.Logs.writer`."""
    return logs.writer(name, owner=owner, settings=settings)


async def _reader(
    logs: Logs,
    name: str,
    start: Start = MessageId.EARLIEST,
    *,
    inclusive: bool = True,
    start_ms: int | None = None,
    follow: bool = True,
    compacted: bool = False,
) -> LogReader:
    """A reader of the log from the message ``start`` on; see :meth:`bkclient.log.Logs.reader`."""
    return logs.reader(name, start, inclusive=inclusive, start_ms=start_ms, follow=follow, compacted=compacted)


async def _cursor(logs: Logs, name: str, cursor: str, start: Start = MessageId.EARLIEST) -> LogCursor:
    """The durable cursor ``cursor`` of the log; see :meth:`bkclient.log.Logs.cursor`."""
    return logs.cursor(name, cursor, start)


async def _consumer(
    logs: Logs,
    name: str,
    group: str,
    *,
    mode: ConsumerMode = ConsumerMode.SHARED,
    start: Start = MessageId.EARLIEST,
    member: str = "",
    ack_timeout_s: float | None = None,
    max_unacknowledged: int = 1_000,
) -> LogConsumer:
    """A consumer in the group ``group``; see :meth:`bkclient.log.Logs.consumer`."""
    return logs.consumer(
        name,
        group,
        mode=mode,
        start=start,
        member=member,
        ack_timeout_s=ack_timeout_s,
        max_unacknowledged=max_unacknowledged,
    )


class SyncLogs(SyncHandle[Logs]):
    """The logs of a cluster, from :attr:`bkclient.sync.SyncBookKeeper.logs`; see :class:`bkclient.log.Logs`."""

    create = blocking(Logs.create)
    delete = blocking(Logs.delete)
    names = iterating(Logs.names)
    info = blocking(Logs.info)
    partitions = blocking(Logs.partitions)
    check = iterating(Logs.check)
    change_settings = blocking(Logs.change_settings)
    drop_lost_ledger = blocking(Logs.drop_lost_ledger)
    trim = blocking(Logs.trim)
    compact = blocking(Logs.compact)
    cursors = blocking(Logs.cursors)
    reset_cursor = blocking(Logs.reset_cursor)
    remove_cursor = blocking(Logs.remove_cursor)
    writer = opening(_writer, SyncLogWriter)
    reader = opening(_reader, SyncLogReader)
    cursor = opening(_cursor, SyncLogCursor)
    consumer = opening(_consumer, SyncLogConsumer)

"""Logs whose calls wait."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator

from bkclient.log import LogMessage, LogReader, Logs, LogWriter, MessageId, PublishSettings
from bkclient.sync.bridge import SyncBlock, SyncHandle, blocking, iterating, opening, passing

__all__ = ["SyncLogReader", "SyncLogWriter", "SyncLogs"]


def _messages(reader: LogReader) -> AsyncIterator[LogMessage]:
    """The messages, one after the other."""
    return reader


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


class SyncLogReader(SyncBlock[LogReader]):
    """Reads a log, from :meth:`bkclient.sync.SyncLogs.reader`: ``for message in reader`` inside its block."""

    _all = iterating(_messages)

    def __iter__(self) -> Iterator[LogMessage]:
        return self._all()


async def _writer(logs: Logs, name: str, *, owner: str = "", settings: PublishSettings | None = None) -> LogWriter:
    """A publisher to the log, which takes it over when its ``with`` block is entered; see :meth:`bkclient.log.Logs.writer`."""
    return logs.writer(name, owner=owner, settings=settings)


async def _reader(
    logs: Logs,
    name: str,
    start: MessageId | Iterable[MessageId] = MessageId.EARLIEST,
    *,
    inclusive: bool = True,
    start_ms: int | None = None,
    follow: bool = True,
    compacted: bool = False,
) -> LogReader:
    """A reader of the log from the message ``start`` on; see :meth:`bkclient.log.Logs.reader`."""
    return logs.reader(name, start, inclusive=inclusive, start_ms=start_ms, follow=follow, compacted=compacted)


class SyncLogs(SyncHandle[Logs]):
    """The logs of a cluster, from :attr:`bkclient.sync.SyncBookKeeper.logs`; see :class:`bkclient.log.Logs`."""

    create = blocking(Logs.create)
    delete = blocking(Logs.delete)
    names = iterating(Logs.names)
    info = blocking(Logs.info)
    partitions = blocking(Logs.partitions)
    check = iterating(Logs.check)
    trim = blocking(Logs.trim)
    compact = blocking(Logs.compact)
    cursors = blocking(Logs.cursors)
    remove_cursor = blocking(Logs.remove_cursor)
    writer = opening(_writer, SyncLogWriter)
    reader = opening(_reader, SyncLogReader)

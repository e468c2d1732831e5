"""Logs of the shipped client, with everything recorded that their application asks for and is told.

What :class:`RecordedLogs` makes are the shipped publishers, readers, cursors and consumers, each of a recording subclass. Below
them ``bkclient.log`` is an application of the recorded client: its ledgers are created, appended to, opened and closed under the
same events as those of any other application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from bkclient import BookKeeper
from bkclient.errors import code_of
from bkclient.log import LogConsumer, LogCursor, LogDeposed, LogMessage, LogReader, Logs, LogWriter, MessageId
from bkclient.log.batches import Batcher
from bkclient.log.format.message import Row
from scenarios.history import Kind
from scenarios.recording.client import RecordedClient
from scenarios.recording.recorders import ClientLog, become, fingerprint

__all__ = ["RecordedLogs", "partition_of", "recorded_logs"]


Handle = TypeVar("Handle", LogReader, LogCursor, LogConsumer)


class RecordedLogs(Logs):
    """The logs of a cluster, for the application of a :class:`~scenarios.recording.client.RecordedClient`."""

    _client: RecordedClient

    def writer(self, *args: Any, **options: Any) -> LogWriter:
        """See :meth:`bkclient.log.Logs.writer`."""
        writer = super().writer(*args, **options)
        become(writer, _RecordedWriter, _log=self._client.log, _messages=0, _is_lost=False)
        return writer

    def reader(self, *args: Any, **options: Any) -> LogReader:
        """See :meth:`bkclient.log.Logs.reader`."""
        reader = super().reader(*args, **options)
        become(reader, _RecordedReader)
        return self._delivering(reader, reader.name, "", _cause_of(reader))

    def cursor(self, *args: Any, **options: Any) -> LogCursor:
        """See :meth:`bkclient.log.Logs.cursor`."""
        cursor = super().cursor(*args, **options)
        become(cursor, _RecordedCursor)
        return self._delivering(cursor, cursor._store.name, cursor.name, "other")  # noqa: SLF001  it does not tell its log

    def consumer(self, *args: Any, **options: Any) -> LogConsumer:
        """See :meth:`bkclient.log.Logs.consumer`."""
        consumer = super().consumer(*args, **options)
        become(consumer, _RecordedConsumer)
        return self._delivering(consumer, consumer._store.name, consumer.group, "other")  # noqa: SLF001

    async def reset_cursor(self, name: str, cursor: str, *args: Any, **options: Any) -> None:
        """See :meth:`bkclient.log.Logs.reset_cursor`."""
        deliveries = _Deliveries(self._client.log, name, cursor, "other", may_repeat=False)
        deliveries.noted("reset")
        await super().reset_cursor(name, cursor, *args, **options)

    def _delivering(self, handle: Handle, log: str, cursor: str, cause: str | None) -> Handle:
        vars(handle)["_deliveries"] = _Deliveries(
            self._client.log, log, cursor, cause, may_repeat=isinstance(handle, LogConsumer)
        )
        return handle


def _cause_of(reader: LogReader) -> str | None:
    """The cause of its LOG_READ_START, None for a reader that is asked for nothing it passes over."""
    is_whole = reader._start == MessageId.EARLIEST and reader._is_inclusive and reader._start_ms is None  # noqa: SLF001
    if reader._is_compacted:  # noqa: SLF001
        return "compacted" if is_whole else None
    return "earliest" if is_whole else "other"


@contextmanager
def recorded_logs() -> Iterator[None]:
    """While the block runs, what applications do with logs of recorded clients is recorded, although they make :class:`Logs`.

    The logs of other clients stay as they are.
    """
    original = Logs.__init__

    def init(self: Logs, client: BookKeeper, **options: Any) -> None:
        original(self, client, **options)
        if isinstance(client, RecordedClient) and not isinstance(self, RecordedLogs):
            shown = type(self)
            become(self, RecordedLogs if shown is Logs else type(shown.__name__, (RecordedLogs, shown), {}))

    Logs.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        Logs.__init__ = original  # type: ignore[method-assign]


def partition_of(log: str, number: int) -> str:
    """The name of the log that holds the messages of a partition of ``log``, which may be that partition; -1 for none."""
    ending = f"-partition-{number}"
    return log if number < 0 or log.endswith(ending) else f"{log}{ending}"


class _RecordedBatcher(Batcher):
    """Where messages are handed in: LOG_PUB before, LOG_ACK or LOG_FAIL when the publisher is told."""

    _writer: _RecordedWriter

    def add(self, row: bytes | Row, size: int) -> asyncio.Future[MessageId]:
        payload, key = (row, None) if isinstance(row, bytes) else (row[0], row[1] if len(row) > 1 else None)
        assert isinstance(payload, bytes | bytearray | memoryview)
        message = self._writer._published(self._partition, bytes(payload), key)  # noqa: SLF001  a part of it
        future = super().add(row, size)
        future.add_done_callback(lambda done: self._writer._told(message, done))  # noqa: SLF001
        return future


class _RecordedWriter(LogWriter):
    """Records, besides its messages, LOG_LOST when the application learns for the first time that the log is another owner's."""

    _log: ClientLog
    _messages: int
    _is_lost: bool

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        for lane in self._lanes:
            become(lane.batcher, _RecordedBatcher, _writer=self)
        return self

    async def publish(self, payload: Any, **options: Any) -> MessageId:
        with self._noticing():
            return await super().publish(payload, **options)

    def publish_nowait(self, payload: Any, **options: Any) -> asyncio.Future[MessageId]:
        with self._noticing():
            return super().publish_nowait(payload, **options)

    async def flush(self) -> None:
        with self._noticing():
            await super().flush()

    async def aclose(self) -> None:
        with self._noticing():
            await super().aclose()

    def _published(self, partition: int, payload: bytes, key: object) -> dict[str, Any]:
        """A message is handed in; what its events have in common."""
        message: dict[str, Any] = {
            "log": partition_of(self.name, partition),
            "epoch": self.epoch,
            "message": self._messages,
        }
        self._messages += 1
        content, digest = fingerprint(payload), None if key is None else fingerprint(str(key).encode())
        self._log.record(Kind.LOG_PUB, **message, content=content, size=len(payload), key=digest)
        return {**message, "content": content}

    def _told(self, message: dict[str, Any], done: asyncio.Future[MessageId]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            found = done.result()
            self._log.record(Kind.LOG_ACK, found.ledger_id, **message, entry=found.entry_id, batch=found.batch_index)
        else:
            which = {name: value for name, value in message.items() if name != "content"}
            self._log.record(Kind.LOG_FAIL, **which, code=int(code_of(error)))
            self._notice(error)

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        try:
            yield
        except LogDeposed as error:
            self._notice(error)
            raise

    def _notice(self, error: BaseException) -> None:
        if isinstance(error, LogDeposed) and not self._is_lost:
            self._is_lost = True
            self._log.record(Kind.LOG_LOST, log=self.name, epoch=self.epoch, code=int(error.code))


class _Deliveries:
    """What one reader, cursor or consumer delivers: LOG_READ_START, and LOG_READ for each message.

    Each partition has a reader's handle of its own. A consumer may deliver messages again, and has another handle then. Without a
    ``cause`` no beginning is recorded, and checkers ask for nothing that was passed over.

    Of a cursor that several parts of one process have open at the same time nobody can tell which of them opened it last. Then,
    too, no beginning is recorded, and LOG_CURSOR ``skipped`` says that the cursor's position tells nothing any more. It says so
    as well when the application acknowledges what the cursor did not deliver.
    """

    def __init__(self, log: ClientLog, name: str, cursor: str, cause: str | None, *, may_repeat: bool) -> None:
        self._log = log
        self._name = name
        self._cursor = cursor
        self._cause = cause
        self._may_repeat = may_repeat
        #: By partition, the handle, and the last message that came of it.
        self._handles: dict[int, tuple[int, MessageId | None]] = {}
        #: By partition, the furthest message.
        self._furthest: dict[int, MessageId] = {}

    def opened(self) -> None:
        """A cursor is going to be opened."""
        for partition in self._partitions():
            key = partition_of(self._name, partition), self._cursor
            open_ones = self._log.open_cursors.setdefault(key, [])
            if open_ones:
                self._log.crowded_cursors.add(key)
                self.noted("skipped", partition)
            for other in open_ones:
                assert isinstance(other, _Deliveries)
                other._handles.clear()  # noqa: SLF001  they begin anew, without saying so
            open_ones.append(self)

    def left(self) -> None:
        """A cursor is not open any more."""
        for open_ones in self._log.open_cursors.values():
            if self in open_ones:
                open_ones.remove(self)

    def begun(self) -> None:
        """All that there is to read is going to be read."""
        for partition in self._partitions():
            self._begin(partition)

    def _partitions(self) -> list[int]:
        manifest = self._log.recorder.manifests.get(self._name)
        return list(range(manifest.partitions if manifest is not None else 0)) or [-1]

    def _begin(self, partition: int) -> int:
        handle, log = self._log.new_handle(), partition_of(self._name, partition)
        self._handles[partition] = handle, None
        if self._cause is not None and (log, self._cursor) not in self._log.crowded_cursors:
            self._log.record(Kind.LOG_READ_START, log=log, handle=handle, cursor=self._cursor, cause=self._cause)
        return handle

    def got(self, message: LogMessage) -> None:
        """A message was delivered."""
        place = message.id
        partition = place.partition if place.partition in self._handles or -1 not in self._handles else -1
        handle, last = self._handles.get(partition, (-1, place))
        if handle < 0 or (self._may_repeat and last is not None and place <= last):
            handle = self._begin(partition)
        self._handles[partition] = handle, place
        self._furthest[place.partition] = max(place, self._furthest.get(place.partition, place))
        where: dict[str, Any] = {"entry": place.entry_id, "batch": place.batch_index, "publish_ms": message.publish_ms}
        log, content = partition_of(self._name, place.partition), fingerprint(message.payload)
        self._log.record(Kind.LOG_READ, place.ledger_id, log=log, handle=handle, content=content, **where)

    def acknowledged(self, message: LogMessage) -> None:
        """A message, and perhaps all before it, are going to be acknowledged."""
        furthest = self._furthest.get(message.id.partition)
        if furthest is None or message.id > furthest:
            self.noted("skipped", message.id.partition)

    def ended(self) -> None:
        """There is nothing more to read."""
        for partition, (handle, _) in self._handles.items():
            self._log.record(Kind.LOG_READ_END, log=partition_of(self._name, partition), handle=handle)

    def noted(self, cause: str, partition: int | None = None) -> None:
        """The application does something to the cursor in a partition, or in all, that its positions do not tell."""
        for number in self._partitions() if partition is None else [partition]:
            log = partition_of(self._name, number)
            self._log.record(Kind.LOG_CURSOR, log=log, cursor=self._cursor, cause=cause, entry=-1, version=-1)


class _RecordedReader(LogReader):
    """Records what it delivers, and LOG_READ_END if it comes to the end."""

    _deliveries: _Deliveries

    async def __aenter__(self) -> Self:
        self._deliveries.begun()
        return await super().__aenter__()

    async def __anext__(self) -> LogMessage:
        try:
            message = await super().__anext__()
        except StopAsyncIteration:
            self._deliveries.ended()
            raise
        self._deliveries.got(message)
        return message


class _Acknowledging:
    """Records, of a cursor or of a consumer, that it is left, and that the application acknowledges what it did not deliver."""

    _deliveries: _Deliveries

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)  # type: ignore[misc]
        finally:
            self._deliveries.left()

    def acknowledge(self, message: LogMessage) -> None:
        self._deliveries.acknowledged(message)
        super().acknowledge(message)  # type: ignore[misc]


class _RecordedCursor(_Acknowledging, LogCursor):
    """Records what it delivers; its positions are recorded where they are stored."""

    async def __aenter__(self) -> Self:
        self._deliveries.opened()
        self._deliveries.begun()
        return await super().__aenter__()

    async def __anext__(self) -> LogMessage:
        message = await super().__anext__()
        self._deliveries.got(message)
        return message

    def acknowledge_through(self, message: LogMessage) -> None:
        self._deliveries.acknowledged(message)
        super().acknowledge_through(message)


class _RecordedConsumer(_Acknowledging, LogConsumer):
    """Records what it delivers of each partition, as of a log of its own."""

    async def __aenter__(self) -> Self:
        self._deliveries.opened()
        return await super().__aenter__()

    async def receive(self) -> LogMessage:
        message = await super().receive()
        self._deliveries.got(message)
        return message

"""Durable positions: what was read and dealt with, remembered by the cluster."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

from bkclient._backoff import Backoff
from bkclient._fresh import fresh
from bkclient._in_any_case import in_any_case
from bkclient._news import wait_for_news
from bkclient.errors import ArgumentError, BookKeeperError, IllegalOperation, UnexpectedCondition
from bkclient.log.batch_taking import check_batch, take_more
from bkclient.log.errors import may_pass
from bkclient.log.format.message import LogMessage
from bkclient.log.format.message_id import MessageId
from bkclient.log.merging import MergedReader
from bkclient.log.opening import parts_of
from bkclient.log.partition_cursor import PartitionCursor
from bkclient.log.partition_reader import PartitionReader
from bkclient.log.partitioning import Start, starts_of
from bkclient.log.store import ManifestStore

__all__ = ["LogCursor"]

_FLUSH_S: Final = 1.0
_BACKOFF: Final = Backoff(_FLUSH_S, 5.0)
_LOOK_S: Final = 10.0
"""How often to ask who has the cursor while nothing is stored."""


class LogCursor:
    """The messages of a log that are not acknowledged by this cursor, each once; from :meth:`bkclient.log.Logs.cursor`.

    ::

        async with logs.cursor("orders", "billing") as cursor:
            async for message in cursor:
                ...
                cursor.acknowledge(message)

    Acknowledgements are remembered for good by :meth:`flush`, at the end of the block, and a second after the first one that was
    not remembered; while the metadata service is away, as soon as it is back. What was not remembered is delivered again by the
    next opening, so messages are delivered at least once. Trimming keeps what a cursor has not acknowledged. A log with
    partitions has a position in each of them.

    One program at a time has a cursor open: entering the block takes it over, and the next flush of the one before, or its next
    ``anext``, raises :class:`~bkclient.log.LogDeposed`. One task at a time may wait for messages; a call of ``anext`` that is
    cancelled loses nothing. A task that is cancelled while it leaves the block waits for 5 seconds at most until all is
    remembered, and until it is cancelled once more; the rest is done all the same.
    """

    def __init__(self, store: ManifestStore, name: str, start: Start) -> None:
        self._store: Final = store
        self._name: Final = name
        self._start: Final = start
        #: By partition.
        self._cursors: dict[int, PartitionCursor] = {}
        self._readers: list[PartitionReader] = []
        self._merged: MergedReader | None = None
        self._has_partitions = False
        #: Set when something was acknowledged that is not stored.
        self._dirty = asyncio.Event()
        #: The task that stores it, and why it ended before the block did.
        self._task: asyncio.Task[None] | None = None
        self._failure: BookKeeperError | None = None
        self._is_entered = False
        self._is_running = False
        self._wait: asyncio.Timeout | None = None

    @property
    def name(self) -> str:
        """The name of the cursor."""
        return self._name

    @property
    def position(self) -> MessageId:
        """The first entry that is not acknowledged; its messages may be, in part.

        Raises :class:`~bkclient.errors.IllegalOperation` where the log has partitions; :attr:`positions` has one for each.
        """
        if self._has_partitions:
            raise IllegalOperation("the cursor has a position in each partition", advice="Use positions.")
        state = next(iter(self._cursors.values())).state if self._cursors else None
        return MessageId(-1, 0) if state is None else MessageId(max(state.ledger_id, -1), state.entry_id)

    @property
    def positions(self) -> tuple[MessageId, ...]:
        """The first entry that is not acknowledged of each partition."""
        return tuple(
            MessageId(max(cursor.state.ledger_id, -1), cursor.state.entry_id, partition)
            for partition, cursor in self._cursors.items()
        )

    @property
    def holes(self) -> int:
        """How many runs of entries beyond :attr:`position` are acknowledged; at most 10,000 in each partition."""
        return sum(cursor.state.holes for cursor in self._cursors.values())

    def __repr__(self) -> str:
        places = ", ".join(map(str, self.positions))
        return f"<LogCursor {self._name} of {self._store.name} at {places or 'its start'} holes={self.holes}>"

    # Messages ----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LogMessage:
        if self._task is None:
            self._check_entered()
        if self._is_running:
            raise IllegalOperation("another task waits for the next message")
        while True:
            if self._failure is not None:
                raise fresh(self._failure)
            message = self._readers[0].take() if self._merged is None else None
            if message is None:
                message = await self._next()
                if message is None:
                    continue
            place = message.id
            state = self._cursors[place.partition].state
            if not state.is_acknowledged(place.ledger_id, place.entry_id, place.batch_index):
                return message

    async def next_batch(self, max_messages: int = 1_000) -> list[LogMessage]:
        """The next messages that are not acknowledged: at least one, waiting for it, and those that are at hand then.

        None if the block is left meanwhile. For those who deal with many at a time. Raises as ``anext``, and a cancelled call
        loses nothing.
        """
        check_batch(max_messages)
        try:
            found = [await anext(self)]
        except StopAsyncIteration:
            return []
        self._is_running = True
        try:
            await take_more(self._source, found, max_messages)
        finally:
            self._is_running = False
        return [message for message in found if not self._is_acknowledged(message)]

    @property
    def _source(self) -> PartitionReader | MergedReader:
        return self._readers[0] if self._merged is None else self._merged

    def _is_acknowledged(self, message: LogMessage) -> bool:
        place = message.id
        state = self._cursors[place.partition].state
        return state.is_acknowledged(place.ledger_id, place.entry_id, place.batch_index)

    async def _next(self) -> LogMessage | None:
        """The next message that is read; None if the cursor failed meanwhile."""
        self._is_running = True
        try:
            async with asyncio.timeout(None) as self._wait:
                return await self._source.next()
        except TimeoutError:
            if self._failure is None:
                raise
            return None
        finally:
            self._is_running = False

    def acknowledge(self, message: LogMessage) -> None:
        """Note that a message was dealt with.

        Raises :class:`~bkclient.errors.TooManyRequests` if there are too many holes: messages before must be acknowledged first.
        """
        cursor, place = self._cursor_of(message), message.id
        cursor.state.acknowledge(place.ledger_id, place.entry_id, place.batch_index, message.batch_size)
        if not cursor.is_dirty:
            self._note(cursor)

    def acknowledge_through(self, message: LogMessage) -> None:
        """Note that a message and all before it, in its partition, were dealt with."""
        cursor, place = self._cursor_of(message), message.id
        cursor.state.acknowledge_before(place.ledger_id, place.entry_id)
        for index in range(place.batch_index + 1) if place.batch_index >= 0 else (-1,):
            cursor.state.acknowledge(place.ledger_id, place.entry_id, index, message.batch_size)
        if not cursor.is_dirty:
            self._note(cursor)

    def _note(self, cursor: PartitionCursor) -> None:
        cursor.is_dirty = True
        self._dirty.set()

    def _cursor_of(self, message: LogMessage) -> PartitionCursor:
        if self._task is None:
            self._check_entered()
        cursor = self._cursors.get(message.id.partition)
        if cursor is None:
            raise ArgumentError(f"the message {message.id} is of no partition of the log")
        return cursor

    async def flush(self) -> None:
        """Remember for good what is acknowledged. Raises :class:`~bkclient.log.LogDeposed` if the cursor was taken over."""
        self._check_entered()
        await self._store_all()

    async def _store_all(self) -> None:
        try:
            for cursor in self._cursors.values():
                if cursor.is_dirty:
                    await cursor.flush()
        except BaseException:
            self._dirty.set()
            raise

    async def _keep_stored(self) -> None:
        """Store what is acknowledged, soon after it is, and ask now and then who has the cursor, until that fails for good."""
        failures = 0
        while self._failure is None:
            await wait_for_news(self._dirty, _LOOK_S)
            is_dirty = self._dirty.is_set()
            if is_dirty:
                await asyncio.sleep(_BACKOFF.nth(failures))
                self._dirty.clear()
            try:
                await (self._store_all() if is_dirty else self._check_all())
                failures = 0
            except BookKeeperError as error:
                failures += 1
                if not may_pass(error):
                    self._fail(error)
            except Exception as error:  # noqa: BLE001 - a defect: those who read are told
                failure = UnexpectedCondition(f"the cursor could not be stored: {error!r}")
                failure.__cause__ = error
                self._fail(failure)

    async def _check_all(self) -> None:
        for cursor in self._cursors.values():
            await cursor.check()

    def _fail(self, error: BookKeeperError) -> None:
        self._failure = error
        if self._is_running and self._wait is not None:
            self._wait.reschedule(0)  # who waits is told at once

    async def backlog_entries(self) -> int:
        """How many entries are not acknowledged, those of the ledger that is being written to included."""
        self._check_entered()
        return sum([await cursor.backlog_entries() for cursor in self._cursors.values()])

    # The block ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise IllegalOperation("a cursor can be entered once; make another one")
        self._is_entered = True
        manifest = await self._store.manifest()
        self._has_partitions = bool(manifest.partitions)
        starts = starts_of(self._start, manifest.partitions)
        opened = await parts_of(self._store, manifest)
        try:
            for (store, part), start in zip(opened, starts, strict=True):
                await self._open(PartitionCursor(store, self._name, start), store, part.partition)
        except BaseException:
            await self._leave()
            raise
        if self._has_partitions:
            self._merged = MergedReader(self._readers)
        self._task = asyncio.create_task(self._keep_stored(), name=f"cursor {self._name} of log {self._store.name}")
        return self

    async def _open(self, cursor: PartitionCursor, store: ManifestStore, partition: int) -> None:
        manifest = await cursor.open()
        self._cursors[partition] = cursor
        reader = PartitionReader(store, cursor.start, is_inclusive=True, follow=True, start_ms=None)
        self._readers.append(reader)
        await reader.enter(manifest)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._check_entered()
        assert self._task is not None, "it was entered"
        task, self._task = self._task, None
        try:
            await in_any_case(self._store_and_leave(task), name=f"end of cursor {self._name} of log {self._store.name}")
        except BookKeeperError as failure:
            if error is None:
                raise
            error.add_note(f"remembering what was acknowledged failed too: {failure}")

    async def _store_and_leave(self, task: asyncio.Task[None]) -> None:
        try:
            task.cancel()
            await asyncio.wait([task])
            await self._store_all()
        finally:
            await self._leave()

    async def _leave(self) -> None:
        for cursor in self._cursors.values():
            cursor.left()
        for reader in self._readers:
            await reader.leave()
        if self._merged is not None:
            await self._merged.stop()

    def _check_entered(self) -> None:
        if self._task is None:
            raise IllegalOperation("use a cursor inside its 'async with' block")

"""Consumers of a group: who has which messages, given and acknowledged one by one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from bkclient._backoff import Backoff
from bkclient._fresh import fresh
from bkclient._in_any_case import in_any_case
from bkclient._news import wait_for_news
from bkclient.errors import (
    ArgumentError,
    BookKeeperError,
    ClientClosed,
    IllegalOperation,
    MetadataStoreError,
    UnexpectedCondition,
)
from bkclient.log.batch_taking import check_batch
from bkclient.log.errors import LogDeposed, may_pass
from bkclient.log.format.message import LogMessage
from bkclient.log.held_partition import HeldPartition
from bkclient.log.machine.deliveries import Deliveries
from bkclient.log.membership import ConsumerMode, GroupMembership, assigned
from bkclient.log.opening import open_partition, parts_of
from bkclient.log.partition_cursor import PartitionCursor
from bkclient.log.partition_reader import PartitionReader
from bkclient.log.partitioning import Start, starts_of
from bkclient.log.store import ManifestStore

__all__ = ["LogConsumer", "check_consumer"]

_FLUSH_S: Final = 1.0
_BACKOFF: Final = Backoff(_FLUSH_S, 5.0)
_LOOK_S: Final = 10.0
"""How often to look at the members although no watch fired, in case one was lost."""


class LogConsumer:
    """One of the consumers of a group, from :meth:`bkclient.log.Logs.consumer`.

    ::

        async with logs.consumer("orders", "billing", mode=ConsumerMode.SHARED) as consumer:
            async for message in consumer:
                ...
                consumer.acknowledge(message)

    Consumers are members of the group as long as their sessions with the metadata service last. The mode decides who of them has
    a partition, or the whole of a log without partitions; that one has its cursor, named like the group. Any number of tasks may
    wait for messages of one consumer at the same time, each gets another message.

    Messages are delivered at least once: what was not acknowledged, or its acknowledgement not stored, when a partition passes to
    another consumer, is delivered there again. Acknowledgements are stored once a second, by :meth:`flush`, and at the end of
    the block. Those of a consumer that lost the partition are refused, by :class:`~bkclient.log.LogDeposed`.

    Leaving the block leaves the group, whatever ended it. A task that is cancelled while it leaves waits for that for 5 seconds
    at most, and until it is cancelled once more; the rest is done all the same.
    """

    def __init__(
        self,
        store: ManifestStore,
        group: str,
        mode: ConsumerMode,
        start: Start,
        *,
        name: str,
        ack_timeout_s: float | None,
        max_unacknowledged: int,
    ) -> None:
        self._store: Final = store
        self._group: Final = group
        self._mode: Final = mode
        self._start: Final = start
        self._ack_timeout_s: Final = ack_timeout_s
        self._limit: Final = max_unacknowledged
        self._membership: Final = GroupMembership(store, group, mode, name)
        self._held: dict[int, HeldPartition] = {}
        self._leaving: Final[set[asyncio.Task[None]]] = set()
        self._turn = 0
        self._news: Final = asyncio.Event()
        self._changed: Final = asyncio.Event()
        #: What ended the consumer, and the partitions whose reading failed of which nobody was told yet.
        self._failure: BookKeeperError | None = None
        self._failed: Final[deque[HeldPartition]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_entered = False
        self._is_left = False

    @property
    def group(self) -> str:
        """The name of the group, and of its cursor."""
        return self._group

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that this consumer has now, ascending; (-1,) for a log without partitions, () for nothing."""
        return tuple(sorted(self._held))

    def __repr__(self) -> str:
        return f"<LogConsumer {self._mode.value} of {self._group} of {self._store.name} partitions={self.partitions}>"

    # Messages ----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LogMessage:
        return await self.receive()

    async def receive(self) -> LogMessage:
        """The next message for this consumer; waits for one. Cancellation loses nothing.

        Raises :class:`~bkclient.log.LogTrimmed` where trimming overtook the group, and what ended the reading of a partition, if
        that was no outage or lasted for a minute. The next call goes on reading. Raises :class:`~bkclient.log.ConsumerRefused`
        where the session ended and the group is another's since, in every call from then on.
        """
        self._check_entered()
        loop = asyncio.get_running_loop()
        while True:
            if self._is_left:
                self._check_entered()
            if self._failure is not None:
                raise fresh(self._failure)
            if self._failed:
                self._tell_failure()
            message = self._taken(loop.time())
            if message is not None:
                return message
            self._news.clear()
            due = [at for held in self._held.values() if (at := held.deliveries.due_at()) is not None]
            await wait_for_news(self._news, max(min(due) - loop.time(), 0.001) if due else None)

    async def receive_batch(self, max_messages: int = 1_000) -> list[LogMessage]:
        """The next messages for this consumer: at least one, waiting for it, and those that are at hand then.

        Raises as :meth:`receive`, and a cancelled call loses nothing.
        """
        check_batch(max_messages)
        found = [await self.receive()]
        now = asyncio.get_running_loop().time()
        while len(found) < max_messages and (message := self._taken(now)) is not None:
            found.append(message)
        return found

    def _tell_failure(self) -> None:
        """Raise what ended the reading of a partition, which begins again."""
        held = self._failed.popleft()
        if held in self._held.values():
            error = held.failure
            self._read(held)
            if error is not None:
                raise fresh(error)

    def _taken(self, now: float) -> LogMessage | None:
        held = list(self._held.values())
        for offset in range(len(held)):
            turn = (self._turn + offset) % len(held)
            message = held[turn].deliveries.take(now)
            if message is not None:
                self._turn = turn + 1
                return message
        return None

    def acknowledge(self, message: LogMessage) -> None:
        """Note that a message was dealt with.

        Raises :class:`~bkclient.log.LogDeposed` if the partition passed to another consumer, which gets the message again.
        """
        held, place = self._held_of(message), message.id
        held.cursor.state.acknowledge(place.ledger_id, place.entry_id, place.batch_index, message.batch_size)
        held.cursor.is_dirty = True
        held.deliveries.acknowledge(place)
        held.room.set()

    def reject(self, message: LogMessage) -> None:
        """Have a message delivered again, to any task that waits; raises as :meth:`acknowledge`."""
        self._held_of(message).deliveries.reject(message.id)
        self._news.set()

    def deliveries(self, message: LogMessage) -> int:
        """How often a message that is not acknowledged was delivered by this consumer."""
        return self._held_of(message).deliveries.times(message.id)

    def _held_of(self, message: LogMessage) -> HeldPartition:
        self._check_entered()
        held = self._held.get(message.id.partition)
        if held is None:
            raise LogDeposed(
                f"the message {message.id} is another consumer's of group {self._group!r}",
                advice="It is delivered there again, unless its acknowledgement had been stored.",
            )
        return held

    async def flush(self) -> None:
        """Store what is acknowledged. Raises :class:`~bkclient.log.LogDeposed` where a partition passed to another consumer."""
        self._check_entered()
        deposed: LogDeposed | None = None
        for partition, held in list(self._held.items()):
            if not held.cursor.is_dirty:
                continue
            try:
                await held.cursor.flush()
            except LogDeposed as error:
                deposed = error
                await self._drop(partition, held)
                self._changed.set()
        if deposed is not None:
            raise deposed

    async def backlog_entries(self) -> int:
        """How many entries of the partitions that this consumer has are not acknowledged."""
        self._check_entered()
        return sum([await held.cursor.backlog_entries() for held in list(self._held.values())])

    # The block ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise IllegalOperation("a consumer can be entered once; make another one")
        self._is_entered = True
        manifest = await self._store.manifest()
        starts_of(self._start, manifest.partitions)  # wrong ones are refused before anybody waits
        await parts_of(self._store, manifest)
        try:
            await self._membership.join()
        except BaseException:
            await self._in_any_case(self._leave_group())  # who is in the group has partitions
            raise
        cancel = self._membership.watch(self._changed.set)
        self._task = asyncio.create_task(self._run(), name=f"consumer of {self._group}")
        self._task.add_done_callback(lambda _: cancel())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        try:
            await in_any_case(self._leave(self._task), name=f"end of a consumer of {self._group}")
        except BookKeeperError as failure:
            if error is None:
                raise
            error.add_note(f"storing what was acknowledged failed too: {failure}")

    async def _leave(self, task: asyncio.Task[None]) -> None:
        """Store what is acknowledged, let the partitions go, and leave the group."""
        try:
            task.cancel()
            await asyncio.wait([task])
            await self.flush()
        finally:
            for partition, held in list(self._held.items()):
                await self._drop(partition, held)
            await self._leave_group()
            if self._leaving:
                await asyncio.wait(self._leaving)
            self._is_left = True
            self._news.set()

    def _check_entered(self) -> None:
        if self._task is None or self._is_left:
            raise IllegalOperation("use a consumer inside its 'async with' block")

    # Who has what ------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Keep to what the members' list says, and store acknowledgements, until the end or a failure."""
        loop = asyncio.get_running_loop()
        look_at = loop.time()
        failures = 0
        while self._failure is None:
            try:
                if self._changed.is_set() or loop.time() >= look_at:
                    self._changed.clear()
                    await self._keep_to_the_list()
                    look_at = loop.time() + _LOOK_S
                with suppress(LogDeposed):
                    await self.flush()
                failures = 0
            except BookKeeperError as error:
                if may_pass(error):
                    look_at = loop.time()  # as long as nobody answers nobody knows better
                    await asyncio.sleep(_BACKOFF.nth(failures))
                    failures += 1
                    continue
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - a defect must not leave those waiting who receive
                failure = UnexpectedCondition(f"the consumer failed: {error!r}")
                failure.__cause__ = error
                self._fail(failure)
            await wait_for_news(self._changed, _FLUSH_S)

    async def _keep_to_the_list(self) -> None:
        members = await self._membership.join()
        manifest = await self._store.manifest()
        partitions = list(range(manifest.partitions)) or [-1]
        wanted = assigned(members, partitions, self._membership.member_id)
        for partition, held in list(self._held.items()):
            try:
                await held.cursor.flush() if held.cursor.is_dirty else await held.cursor.check()
            except LogDeposed:
                await self._drop(partition, held)  # and open it anew if it is this consumer's
            else:
                if partition not in wanted:
                    await self._drop(partition, held)
        starts = starts_of(self._start, manifest.partitions)
        missing: dict[int, tuple[ManifestStore, PartitionCursor]] = {}
        for partition in sorted(wanted - set(self._held)):
            store = self._store
            if partition >= 0:
                store, _ = await open_partition(self._store, manifest, partition)
            cursor = PartitionCursor(store, self._group, starts[max(partition, 0)])
            await cursor.look()
            missing[partition] = store, cursor
        if missing:
            # The session may have ended on the way, so the list has to be newer than the openings that are undone.
            wanted = assigned(await self._membership.join(), partitions, self._membership.member_id)
        for partition, (store, cursor) in missing.items():
            if partition in wanted:
                await self._take(store, partition, cursor)

    async def _take(self, store: ManifestStore, partition: int, cursor: PartitionCursor) -> None:
        manifest = await cursor.try_open()
        if manifest is None:
            self._changed.set()  # look again, at the members too
            return
        reader = PartitionReader(store, cursor.start, is_inclusive=True, follow=True, start_ms=None)
        try:
            await reader.enter(manifest)
        except BaseException:
            await reader.leave()
            raise
        held = HeldPartition(cursor, reader, Deliveries(self._ack_timeout_s))
        self._held[partition] = held
        self._read(held)

    def _read(self, held: HeldPartition) -> None:
        held.start(self._limit, self._news.set, self._on_read_ended)

    def _on_read_ended(self, held: HeldPartition) -> None:
        self._failed.append(held)
        self._news.set()

    def _fail(self, error: BookKeeperError) -> None:
        self._failure = error
        self._news.set()

    async def _drop(self, partition: int, held: HeldPartition) -> None:
        if self._held.get(partition) is held:
            del self._held[partition]
        await self._in_any_case(held.leave())

    async def _in_any_case(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that goes on if the caller is cancelled, so that nothing is left half done."""
        task = asyncio.create_task(work, name=f"end of a consumer of {self._group}")
        self._leaving.add(task)
        task.add_done_callback(self._left)
        await asyncio.shield(task)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._leaving.discard(task)
        if not task.cancelled():
            task.exception()  # a caller that was cancelled collects none

    async def _leave_group(self) -> None:
        with suppress(MetadataStoreError, ClientClosed):  # the end of the session removes it
            await self._membership.leave()


def check_consumer(mode: object, ack_timeout_s: object, max_unacknowledged: object) -> None:
    """:class:`~bkclient.errors.ArgumentError` for what a consumer cannot be made with."""
    if not isinstance(mode, ConsumerMode):
        raise ArgumentError(f"mode must be a ConsumerMode, got {mode!r}")
    if ack_timeout_s is not None and (isinstance(ack_timeout_s, bool) or not isinstance(ack_timeout_s, int | float)):
        raise ArgumentError(f"ack_timeout_s must be a number of seconds or None, got {ack_timeout_s!r}")
    if ack_timeout_s is not None and not 0 < ack_timeout_s <= 10**9:
        raise ArgumentError(f"ack_timeout_s must be above 0 and at most 10**9, got {ack_timeout_s!r}")
    if isinstance(max_unacknowledged, bool) or not isinstance(max_unacknowledged, int):
        raise ArgumentError(f"max_unacknowledged must be a whole number, got {max_unacknowledged!r}")
    if not 1 <= max_unacknowledged <= 9_000:
        raise ArgumentError(f"max_unacknowledged must be from 1 to 9000, got {max_unacknowledged}")

"""Reading a log, with partitions or without."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from bkclient.errors import IllegalOperation
from bkclient.log.batch_taking import check_batch, take_more
from bkclient.log.compacted_reader import CompactedReader
from bkclient.log.format.message import LogMessage
from bkclient.log.format.message_id import MessageId
from bkclient.log.merging import MergedReader
from bkclient.log.opening import parts_of
from bkclient.log.partition_reader import PartitionReader
from bkclient.log.partitioning import Start, starts_of
from bkclient.log.store import ManifestStore

__all__ = ["LogReader"]


class LogReader:
    """The messages of a log from a position on, each once and in order; from :meth:`bkclient.log.Logs.reader`.

    ::

        async with logs.reader("orders") as reader:
            async for message in reader:
                ...

    waits for messages to come, and ends only with the block. With ``follow=False`` it ends after the message that was the last
    one when the block was entered. Messages are read ahead. The last message before a pause of the publisher comes 0.1 to 0.2
    seconds late, as with :meth:`bkclient.LedgerReader.tail`. Of a log with partitions, the messages of each come in order.

    A reader holds nothing back: where trimming overtakes it, it raises :class:`~bkclient.log.LogTrimmed`. One task at a time
    may use it; a call of ``anext`` that is cancelled loses nothing. A task that waits when the block is left is told that
    there is no more.
    """

    def __init__(
        self,
        store: ManifestStore,
        start: Start,
        *,
        is_inclusive: bool,
        follow: bool,
        start_ms: int | None,
        is_compacted: bool = False,
    ) -> None:
        self._store: Final = store
        self._start: Final = start
        self._start_ms: Final = start_ms
        self._is_inclusive: Final = is_inclusive
        self._follow: Final = follow
        self._is_compacted: Final = is_compacted
        self._parts: list[PartitionReader] = []
        self._merged: MergedReader | None = None
        #: What is read in a log without partitions.
        self._single: PartitionReader | None = None
        self._is_entered = False
        self._is_left = False
        self._is_running = False

    @property
    def name(self) -> str:
        """The name of the log."""
        return self._store.name

    def __repr__(self) -> str:
        places = ", ".join(f"{ledger_id}:{entry_id}" for ledger_id, entry_id in (part.position for part in self._parts))
        return f"<LogReader {self.name} at {places or 'its start'}>"

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise IllegalOperation("a reader of a log can be entered once; make another one")
        self._is_entered = True
        manifest = await self._store.manifest()
        starts = starts_of(self._start, manifest.partitions)
        opened = await parts_of(self._store, manifest)
        try:
            for (store, part_manifest), start in zip(opened, starts, strict=True):
                part = self._part(store, start)
                self._parts.append(part)
                await part.enter(part_manifest)
        except BaseException:
            await self._leave()
            raise
        if manifest.partitions:
            self._merged = MergedReader(self._parts)
        else:
            self._single = self._parts[0]
        return self

    def _part(self, store: ManifestStore, start: MessageId) -> PartitionReader:
        options = {"is_inclusive": self._is_inclusive, "follow": self._follow}
        if self._is_compacted:
            return CompactedReader(store, start, **options)
        return PartitionReader(store, start, start_ms=self._start_ms, **options)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_left = True
        self._single = None
        await self._leave()

    async def _leave(self) -> None:
        for part in self._parts:
            await part.leave()
        if self._merged is not None:
            await self._merged.stop()  # last: this waits, and may be cancelled

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LogMessage:
        if self._single is not None and not self._is_running and (message := self._single.take()) is not None:
            return message
        self._check_usable()
        self._is_running = True
        try:
            return await (self._parts[0] if self._merged is None else self._merged).next()
        finally:
            self._is_running = False

    async def next_batch(self, max_messages: int = 1_000) -> list[LogMessage]:
        """The next messages, at least one, waiting for it, and those that are at hand then; none at the end.

        For those who deal with many at a time. Raises as ``anext``, and a cancelled call loses nothing.
        """
        check_batch(max_messages)
        try:
            found = [await anext(self)]
        except StopAsyncIteration:
            return []
        self._is_running = True
        try:
            await take_more(self._parts[0] if self._merged is None else self._merged, found, max_messages)
        finally:
            self._is_running = False
        return found

    def _check_usable(self) -> None:
        if not self._is_entered or self._is_left:
            raise IllegalOperation("use the reader of a log inside its 'async with' block")
        if self._is_running:
            raise IllegalOperation("another task waits for the next message")

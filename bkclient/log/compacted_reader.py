"""Reading a log by what its last compaction left, and then what was published since."""

from __future__ import annotations

from typing import Final

from bkclient import LedgerTail
from bkclient.errors import NoSuchEntry, NoSuchLedger
from bkclient.log.errors import LogTrimmed
from bkclient.log.format.entry import decode_compacted
from bkclient.log.format.message import LogMessage
from bkclient.log.format.message_id import MessageId
from bkclient.log.machine.manifest import CompactedLedger, LogManifest
from bkclient.log.partition_reader import PartitionReader
from bkclient.log.store import ManifestStore

__all__ = ["CompactedReader"]


class CompactedReader(PartitionReader):
    """Reads one partition of a log, or a log without partitions, through its compacted ledger; without one, as it is.

    Where that ledger is replaced by a newer one, or trimming overtakes the reader behind a newer compaction, it goes on in the
    newer one, after the last message that was read. So it tells of each key the newest message, if not each message.
    """

    def __init__(self, store: ManifestStore, start: MessageId, *, is_inclusive: bool, follow: bool) -> None:
        super().__init__(store, start, is_inclusive=is_inclusive, follow=follow, start_ms=None)
        self._begin: Final = (start, is_inclusive)
        self._options: Final = {"is_inclusive": True, "follow": follow, "start_ms": None}
        self._compacted: CompactedLedger | None = None
        self._rest: PartitionReader | None = None
        #: Whether the place to go on at has to be found again; still so if finding it was cancelled.
        self._is_astray = False
        #: The last message that was read; nothing up to it is told again.
        self._after: MessageId | None = None

    async def enter(self, manifest: LogManifest) -> None:
        """Find the beginning, in the log as ``manifest`` shows it."""
        self._partition = manifest.partition
        await self._go(manifest)

    async def _go(self, manifest: LogManifest) -> None:
        """Go by the compaction that ``manifest`` has, unless the position is behind what it covers."""
        found = self._compacted = manifest.compacted
        start = self._begin[0] if self._after is None else self._after
        if found is None or start == MessageId.LATEST or (start.ledger_id, start.entry_id) > _through(found):
            is_inclusive = self._begin[1] and self._after is None
            options = self._options | {"is_inclusive": is_inclusive}
            self._rest = PartitionReader(self._store, start, **options)  # type: ignore[arg-type]
        else:
            after = MessageId(found.through_ledger_id, found.through_entry_id + 1)
            if manifest.trimmed_through >= found.through_ledger_id:  # trimming goes no further than compaction
                after = MessageId(manifest.trimmed_through + 1, 0)
            self._rest = PartitionReader(self._store, after, **self._options)  # type: ignore[arg-type]
            self._ledger_id = found.ledger_id
            self._reader = await self._store.client.open_ledger(found.ledger_id)
            self._tail = self._reader.tail(0)
        await self._rest.enter(manifest)

    async def _let_go(self) -> None:
        await super()._let_go()
        rest, self._rest = self._rest, None
        if rest is not None:
            await rest.leave()

    @property
    def position(self) -> tuple[int, int]:
        """The ledger and the entry that are read next."""
        if self._tail is not None:
            return self._ledger_id, self._next_entry_id
        return (-1, 0) if self._rest is None else self._rest.position

    async def _find_again(self) -> bool:
        """Find the place to go on at; false if the reader was left meanwhile."""
        manifest = await self._store.manifest()
        await self._let_go()
        await self._go(manifest)
        self._is_astray = False
        if self._is_left:
            await self._let_go()
        return not self._is_left

    async def _read(self) -> bool:
        try:
            if self._is_astray and not await self._find_again():
                return False
            if self._tail is not None:
                await self._read_compacted(self._tail)
                return True
            assert self._rest is not None, "it was entered"
            is_more = await self._rest.fill()
        except (NoSuchLedger, NoSuchEntry, LogTrimmed):
            manifest = await self._store.manifest()
            if self._is_left:
                return False
            if manifest.compacted == self._compacted and not self._is_covered(manifest):
                raise
            self._is_astray = True
            return True
        if is_more and (message := self._rest.take()) is not None:
            self._offer([message])
        return is_more

    def _is_covered(self, manifest: LogManifest) -> bool:
        """Whether what was trimmed in front of this reader had been read, because the compaction that it read covers it."""
        is_behind = self._compacted is not None and self._tail is None and self._rest is not None
        return is_behind and self.position[0] <= manifest.trimmed_through

    async def _read_compacted(self, tail: LedgerTail) -> None:
        try:
            entry = await anext(tail)
        except StopAsyncIteration:
            await self._leave_ledger()
            return
        self._next_entry_id = entry.entry_id + 1
        self._offer(decode_compacted(entry.payload, self._ledger_id, entry.entry_id, self._partition))

    def _offer(self, messages: list[LogMessage]) -> None:
        wanted = [message for message in messages if self._is_new(message.id)]
        if wanted:
            self._after = wanted[-1].id
            self._ready = wanted[::-1]

    def _is_new(self, message_id: MessageId) -> bool:
        if self._after is not None:
            return message_id > self._after
        start, is_inclusive = self._begin
        if start in (MessageId.EARLIEST, MessageId.LATEST):
            return True
        start = start._replace(partition=self._partition)
        return message_id > start or (is_inclusive and message_id == start)


def _through(compacted: CompactedLedger) -> tuple[int, int]:
    return compacted.through_ledger_id, compacted.through_entry_id

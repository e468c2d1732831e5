"""Reading one log, or one partition, across its ledgers, each message once and in order."""

from __future__ import annotations

import asyncio
from typing import Final

from bkclient import Entry, LedgerReader, LedgerTail
from bkclient._news import wait_for_news
from bkclient.errors import BookKeeperError, NoSuchLedger
from bkclient.log.errors import LogTrimmed
from bkclient.log.format.entry import decode_entry, publish_time
from bkclient.log.format.message import LogMessage
from bkclient.log.format.message_id import MessageId
from bkclient.log.machine.manifest import LogLedger, LogManifest
from bkclient.log.store import ManifestStore
from bkclient.metadata.base import Cancel

__all__ = ["PartitionReader", "end_of", "find_time", "start_at"]

_LOOK_S: Final = 10.0
"""How often to look for a new ledger although no watch fired, in case one was lost."""


class PartitionReader:
    """Reads one partition of a log, or a log without partitions; :meth:`enter` comes first, :meth:`leave` last."""

    def __init__(
        self, store: ManifestStore, start: MessageId, *, is_inclusive: bool, follow: bool, start_ms: int | None
    ) -> None:
        self._store: Final = store
        self._start = start
        self._start_ms = start_ms
        self._is_inclusive = is_inclusive
        self._follow: Final = follow
        #: The number of the partition; -1 for a log without.
        self._partition = -1
        #: Messages that were read and not delivered, the next one at the end.
        self._ready: list[LogMessage] = []
        #: What failed when nobody waited.
        self._error: BookKeeperError | None = None
        self._ledger_id = -1
        self._next_entry_id = 0
        self._reader: LedgerReader | None = None
        self._tail: LedgerTail | None = None
        #: The end that a reader that does not follow reads to: ledger and entry; nothing beyond.
        self._until: tuple[int, int] | None = None
        #: The list as it was read last. It grows at its end only, so what follows a ledger in it follows it for good.
        self._manifest: LogManifest | None = None
        self._changed = asyncio.Event()
        self._cancel_watch: Cancel | None = None
        self._is_left = False

    @property
    def position(self) -> tuple[int, int]:
        """The ledger and the entry that are read next."""
        return self._ledger_id, self._next_entry_id

    @property
    def log(self) -> str:
        """The name of the log, or of the partition."""
        return self._store.name

    @property
    def partition(self) -> int:
        """The number of the partition; -1 for a log without."""
        return self._partition

    @property
    def has_ready(self) -> bool:
        """Whether there is a message to take."""
        return bool(self._ready)

    async def enter(self, manifest: LogManifest) -> None:
        """Find the beginning, in the log as ``manifest`` shows it."""
        self._manifest = manifest
        self._partition = manifest.partition
        if self._start not in (MessageId.EARLIEST, MessageId.LATEST):
            self._start = self._start._replace(partition=manifest.partition)
        if not self._follow:
            self._until = await end_of(self._store, manifest)
        await self._go_to_start(manifest)
        self._cancel_watch = self._store.watch(self._changed.set)

    async def leave(self) -> None:
        """Let everything go. Who waits for a message is told that there is none."""
        self._is_left = True
        self._changed.set()
        await self._let_go()

    async def _let_go(self) -> None:
        if self._cancel_watch is not None:
            self._cancel_watch()
        await self._leave_ledger()

    async def _go_to_start(self, manifest: LogManifest) -> None:
        if self._start_ms is not None:
            self._ledger_id, self._next_entry_id = await find_time(self._store, manifest, self._start_ms)
            return
        self._ledger_id, self._next_entry_id = await start_at(self._store, manifest, self._start)
        self._skip_ledger_that_is_none(manifest)

    def _skip_ledger_that_is_none(self, manifest: LogManifest) -> None:
        """A position between ledgers is the beginning of the next one."""
        if not manifest.has(self._ledger_id):
            following = manifest.first_after(self._ledger_id)
            if following is not None:
                self._ledger_id, self._next_entry_id = following.ledger_id, 0

    # Messages ----------------------------------------------------------------------------------------------------

    async def next(self) -> LogMessage:
        """The next message; StopAsyncIteration at the end. Cancellation loses nothing."""
        if not await self.fill():
            raise StopAsyncIteration
        return self._ready.pop()

    async def fill(self) -> bool:
        """Wait until there is a message to take; false at the end. Cancellation loses nothing."""
        while not self._ready:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._is_left or not await self._read():
                return False
        return True

    async def fill_now(self) -> bool:
        """Whether there is a message to take, without waiting for one: one entry more is read if it is at hand."""
        if self._ready:
            return True
        try:
            async with asyncio.timeout(0):
                return await self.fill()
        except TimeoutError:
            return False
        except BookKeeperError as error:
            self._error = error  # raised where a message is waited for
            return False

    def put_back(self, messages: list[LogMessage]) -> None:
        """Have messages that were taken taken again."""
        self._ready += reversed(messages)

    def take(self) -> LogMessage | None:
        """A message that was read already; None if there is none."""
        return self._ready.pop() if self._ready else None

    async def _read(self) -> bool:
        """Read one entry, or go on to the next ledger, or wait for one; false at the end."""
        if self._is_at_end() or (self._tail is None and not await self._enter_ledger()):
            return False
        tail = self._tail
        if tail is None:
            return True
        if self._is_at_end():  # the last ledger has no entry yet, and may not get one for long
            return False
        try:
            entry = await anext(tail)
        except StopAsyncIteration:
            await self._leave_ledger()
            self._ledger_id, self._next_entry_id = self._ledger_id + 1, 0  # whatever ledger comes next
            return True
        except NoSuchLedger:
            await self._leave_ledger()
            await self._check_not_trimmed()
            return True
        self._take(entry)
        return True

    def _is_at_end(self) -> bool:
        return self._until is not None and (self._ledger_id, self._next_entry_id) > self._until

    def _take(self, entry: Entry) -> None:
        messages = decode_entry(entry.payload, self._ledger_id, entry.entry_id, self._partition)
        self._next_entry_id = entry.entry_id + 1
        if self._start.ledger_id == self._ledger_id and self._start.entry_id >= entry.entry_id:
            messages = [message for message in messages if self._is_wanted(message.id)]
        self._ready = messages[::-1]

    def _is_wanted(self, message_id: MessageId) -> bool:
        return message_id > self._start or (self._is_inclusive and message_id == self._start)

    async def _enter_ledger(self) -> bool:
        """Open the ledger at the position, or wait until there is one; false if there will be none."""
        ledger = None if self._manifest is None else self._ledger_at(self._manifest)
        if ledger is None:
            self._changed.clear()
            self._manifest = await self._store.manifest()
            ledger = self._ledger_at(self._manifest)
        if ledger is None:
            if not self._follow:
                return False
            await wait_for_news(self._changed, _LOOK_S)
            return True
        if ledger.ledger_id != self._ledger_id:
            self._ledger_id, self._next_entry_id = ledger.ledger_id, 0
        try:
            self._reader = await self._store.client.open_ledger(ledger.ledger_id)
        except NoSuchLedger:
            await self._check_not_trimmed()
            return True
        if self._is_left:  # meanwhile
            await self._leave_ledger()
            return False
        self._tail = self._reader.tail(self._next_entry_id)
        return True

    def _ledger_at(self, manifest: LogManifest) -> LogLedger | None:
        # After a ledger was read to its end the position is the beginning of the next id, whatever ledger follows; so this is
        # also how a ledger is noticed that was trimmed before it was come to.
        if 0 <= self._ledger_id <= manifest.trimmed_through:
            raise LogTrimmed(f"entry {self._next_entry_id} was trimmed", ledger_id=self._ledger_id)
        return manifest.ledger(self._ledger_id) or manifest.first_after(self._ledger_id)

    async def _check_not_trimmed(self) -> None:
        """A ledger is gone: it was empty, or it was trimmed, or it should not be gone."""
        manifest = self._manifest = await self._store.manifest()
        if manifest.has(self._ledger_id):
            raise NoSuchLedger(
                "it belongs to the log, and the metadata store does not know it", ledger_id=self._ledger_id
            )
        if self._ledger_id <= manifest.trimmed_through:
            raise LogTrimmed(f"entry {self._next_entry_id} was trimmed", ledger_id=self._ledger_id)

    async def _leave_ledger(self) -> None:
        tail, reader = self._tail, self._reader
        self._tail = self._reader = None
        if tail is not None:
            await tail.aclose()
        if reader is not None:
            await reader.aclose()


async def start_at(store: ManifestStore, manifest: LogManifest, start: MessageId) -> tuple[int, int]:
    """The ledger and entry that reading from ``start`` begins with; :class:`~bkclient.log.LogTrimmed` if it was trimmed."""
    if start == MessageId.LATEST:
        ledger_id, entry_id = await end_of(store, manifest)
        return ledger_id, entry_id + 1
    if start != MessageId.EARLIEST and start.ledger_id <= manifest.trimmed_through:
        raise LogTrimmed(f"the message {start} was trimmed", ledger_id=start.ledger_id)
    return start.ledger_id, max(start.entry_id, 0)


async def find_time(store: ManifestStore, manifest: LogManifest, start_ms: int) -> tuple[int, int]:
    """The first entry that was published at ``start_ms`` or later, of what trimming has left."""
    while True:
        found = next((each for each in manifest.ledgers if each.end is None or each.end.last_ms >= start_ms), None)
        if found is None:
            return max((manifest.trimmed_through, *(each.ledger_id for each in manifest.ledgers[-1:]))) + 1, 0
        try:
            return found.ledger_id, await _find_time_in(store, found.ledger_id, start_ms)
        except NoSuchLedger:
            manifest = await store.manifest()
            if manifest.has(found.ledger_id):
                raise


async def _find_time_in(store: ManifestStore, ledger_id: int, start_ms: int) -> int:
    async with await store.client.open_ledger(ledger_id) as reader:
        low, high = 0, await reader.read_last_add_confirmed() + 1
        while low < high:
            middle = (low + high) // 2
            if publish_time((await reader.read(middle)).payload) < start_ms:
                low = middle + 1
            else:
                high = middle
    return low


async def end_of(store: ManifestStore, manifest: LogManifest) -> tuple[int, int]:
    """The last ledger of a log and its last entry, as far as they can be read now."""
    while manifest.ledgers:
        last = manifest.ledgers[-1]
        if last.end is not None:
            return last.ledger_id, last.end.last_entry_id
        try:
            async with await store.client.open_ledger(last.ledger_id) as reader:
                return last.ledger_id, await reader.read_last_add_confirmed()
        except NoSuchLedger:
            manifest = await store.manifest()
            if manifest.has(last.ledger_id):
                raise
    return manifest.trimmed_through + 1, -1

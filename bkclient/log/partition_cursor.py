"""Durable positions of one log, or of one partition: how they are taken over and stored."""

from __future__ import annotations

import asyncio
from typing import Final

from bkclient.coordination import RegisterValue, VersionedRegister
from bkclient.errors import BookKeeperError, MetadataOutcomeUnknown, MetadataVersionConflict
from bkclient.log.errors import LogDeposed
from bkclient.log.format.message_id import MessageId
from bkclient.log.machine.changes import AddCursor
from bkclient.log.machine.cursor import CursorState, decode_cursor, encode_cursor
from bkclient.log.machine.manifest import LogManifest
from bkclient.log.observed import CursorStats
from bkclient.log.partition_reader import start_at
from bkclient.log.store import ManifestStore
from bkclient.observability import log

__all__ = ["CURSORS", "PartitionCursor", "backlog_of", "cursor_register"]

CURSORS: Final = "cursors"
"""The directory of the cursors of all logs."""
_ATTEMPTS_MAX: Final = 20


def cursor_register(store: ManifestStore, name: str) -> VersionedRegister:
    """Where the position of a cursor is kept."""
    return VersionedRegister(store.client, name, directory=f"{CURSORS}/{store.name}")


def backlog_of(state: CursorState, manifest: LogManifest) -> int:
    """Entries of ledgers that have ended and are not acknowledged."""
    return sum(
        state.backlog_in(ledger.ledger_id, ledger.end.last_entry_id)
        for ledger in manifest.ledgers
        if ledger.end is not None
    )


class PartitionCursor:
    """A cursor of one partition of a log, or of a log without partitions: its state, and where that is stored."""

    def __init__(self, store: ManifestStore, name: str, start: MessageId) -> None:
        self._store: Final = store
        self._name: Final = name
        self._start: Final = start
        self._register: Final = cursor_register(store, name)
        self._version = 0
        self._seen: RegisterValue | None = None
        self._holder = store.new_id()
        self.state = CursorState("", self._holder, -1, 0)
        self.is_dirty = False
        stats = store.client.stats
        self._stats: Final = None if stats is None else CursorStats(stats)
        self._lock: Final = asyncio.Lock()

    async def open(self) -> LogManifest:
        """Take the cursor over, from anybody who has it; the log with it."""
        for _ in range(_ATTEMPTS_MAX):
            await self.look()
            manifest = await self.try_open()
            if manifest is not None:
                return manifest
        raise MetadataVersionConflict(f"the cursor {self._name!r} is taken over again and again")

    async def look(self) -> None:
        """See who has it, for :meth:`try_open`."""
        self._seen = await self._register.read()

    async def try_open(self) -> LogManifest | None:
        """Take over what :meth:`look` saw; the log with it. None if somebody else came since, or the outcome is unknown.

        An opening that may have been carried out may have been overtaken as well, so the next one is another.
        """
        manifest = await self._store.manifest()
        try:
            await self._take_over(manifest)
        except (MetadataVersionConflict, MetadataOutcomeUnknown):
            self._holder = self._store.new_id()
            return None
        # Its position is stored: from now on trimming looks at it, and what is there now stays.
        before, manifest = manifest, await self._store.change(AddCursor(self._name))
        if manifest.cursor_changes != before.cursor_changes and not await self._is_held():
            self._holder = self._store.new_id()  # it was removed before it was announced
            return None
        self.state.settle(manifest)
        self._report_backlog(manifest)
        return manifest

    @property
    def start(self) -> MessageId:
        """Where reading begins."""
        if self.state.ledger_id < 0:
            return MessageId.EARLIEST
        return MessageId(self.state.ledger_id, self.state.entry_id)

    async def flush(self) -> None:
        """Remember for good what is acknowledged; :class:`~bkclient.log.LogDeposed` if the cursor was taken over."""
        async with self._lock:  # one that stores less than another must not come after it
            if not self.is_dirty:
                return
            began_at = 0.0 if self._stats is None else self._stats.now()
            try:
                manifest = await self._store.manifest()
                self.state.settle(manifest)
                self.is_dirty = False  # what is acknowledged from here on is for the next time
                await self._save()
            except BaseException as error:
                self.is_dirty = True
                if isinstance(error, BookKeeperError):
                    self._report_failure(began_at, error)
                raise
            if self._stats is not None:
                self._stats.on_stored(began_at)
            self._report_backlog(manifest)

    def _report_failure(self, began_at: float, error: BookKeeperError) -> None:
        name, cursor = self._store.name, self._name
        if isinstance(error, LogDeposed):
            log.LOG_CURSOR_LOST(log=name, cursor=cursor)
        else:
            log.LOG_CURSOR_NOT_STORED(log=name, cursor=cursor, reason=error.message, code=error.code)
        if self._stats is not None:
            self._stats.on_stored(began_at, error.code)

    def _report_backlog(self, manifest: LogManifest) -> None:
        if self._stats is not None:
            self._stats.on_backlog(backlog_of(self.state, manifest))

    def left(self) -> None:
        """It is not open any more."""
        if self._stats is not None:
            self._stats.on_backlog(0)

    async def check(self) -> None:
        """Ask whether this opening still has the cursor; :class:`~bkclient.log.LogDeposed` if it was taken over."""
        if not await self._is_held():
            raise self._lost()

    async def _is_held(self) -> bool:
        stored = await self._register.read()
        return stored is not None and decode_cursor(stored.data).holder == self.state.holder

    def _lost(self) -> LogDeposed:
        return LogDeposed(
            f"the cursor {self._name!r} was taken over, reset or removed",
            advice="What was not stored is delivered again where the cursor is open now; open it again to take it over.",
        )

    async def backlog_entries(self) -> int:
        """How many entries are not acknowledged, those of the ledger that is being written to included."""
        manifest = await self._store.manifest()
        count = backlog_of(self.state, manifest)
        for ledger_id in manifest.open_ledgers:
            async with await self._store.client.open_ledger(ledger_id) as reader:
                count += self.state.backlog_in(ledger_id, await reader.read_last_add_confirmed())
        return count

    async def _take_over(self, manifest: LogManifest) -> None:
        seen = self._seen
        state = None if seen is None else decode_cursor(seen.data)
        if state is None or state.log_id != manifest.log_id:
            state = CursorState(manifest.log_id, "", *await start_at(self._store, manifest, self._start))
        state.holder = self._holder
        data = encode_cursor(state)
        written: RegisterValue
        if seen is None:
            written = await self._register.create(data)
        else:
            written = await self._register.write(data, seen.version)
        self.state, self._version = state, written.version

    async def _save(self) -> None:
        data = encode_cursor(self.state)
        for _ in range(_ATTEMPTS_MAX):
            try:
                self._version = (await self._register.write(data, self._version)).version
            except (MetadataVersionConflict, MetadataOutcomeUnknown):
                stored = await self._register.read()
                if stored is None or decode_cursor(stored.data).holder != self.state.holder:
                    raise self._lost() from None
                self._version = stored.version
                if stored.data != data:
                    continue
            return
        raise MetadataOutcomeUnknown(f"the cursor {self._name!r} could not be stored")

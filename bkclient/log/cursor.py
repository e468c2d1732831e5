"""Durable positions: what was read and dealt with, remembered by the cluster."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from bkclient.coordination import RegisterValue, VersionedRegister
from bkclient.errors import BookKeeperError, IllegalOperation, MetadataOutcomeUnknown, MetadataVersionConflict
from bkclient.log.errors import LogDeposed
from bkclient.log.format.message import LogMessage
from bkclient.log.format.message_id import MessageId
from bkclient.log.machine.changes import AddCursor
from bkclient.log.machine.cursor import CursorState, decode_cursor, encode_cursor
from bkclient.log.machine.manifest import LogManifest
from bkclient.log.reader import LogReader, start_at
from bkclient.log.store import ManifestStore

__all__ = ["CURSORS", "CursorInfo", "LogCursor", "backlog_of", "cursor_register"]

CURSORS: Final = "cursors"
"""The directory of the cursors of all logs."""
_FLUSH_S: Final = 1.0
_ATTEMPTS_MAX: Final = 20


def cursor_register(store: ManifestStore, name: str) -> VersionedRegister:
    """Where the position of a cursor is kept."""
    return VersionedRegister(store.client, name, directory=f"{CURSORS}/{store.name}")


@dataclass(frozen=True, slots=True)
class CursorInfo:
    """A cursor as it was stored last: its position, the first entry that is not acknowledged, and the holes beyond it.

    ``backlog_entries`` are the entries that are not acknowledged, without those of the ledger that is being written to.
    """

    name: str
    position: MessageId
    holes: int
    backlog_entries: int


def backlog_of(state: CursorState, manifest: LogManifest) -> int:
    """Entries of ledgers that have ended and are not acknowledged."""
    return sum(
        state.backlog_in(ledger.ledger_id, ledger.end.last_entry_id)
        for ledger in manifest.ledgers
        if ledger.end is not None
    )


class LogCursor:
    """The messages of a log that are not acknowledged by this cursor, each once; from :meth:`bkclient.log.Logs.cursor`.

    ::

        async with logs.cursor("orders", "billing") as cursor:
            async for message in cursor:
                ...
                cursor.acknowledge(message)

    Acknowledgements are remembered for good by :meth:`flush`, which happens at the end of the block, and once a second while
    messages are read. What was not remembered is delivered again by the next opening, so messages are delivered at least once.
    Trimming keeps what a cursor has not acknowledged.

    One program at a time has a cursor open: entering the block takes it over, and the next flush of the one before raises
    :class:`~bkclient.log.LogDeposed`.
    """

    def __init__(self, store: ManifestStore, name: str, start: MessageId) -> None:
        self._store: Final = store
        self._name: Final = name
        self._start: Final = start
        self._register: Final = cursor_register(store, name)
        self._state = CursorState("", store.new_id(), -1, 0)
        self._version = 0
        self._is_dirty = False
        self._flushed_at = 0.0
        self._reader: LogReader | None = None

    @property
    def name(self) -> str:
        """The name of the cursor."""
        return self._name

    @property
    def position(self) -> MessageId:
        """The first entry that is not acknowledged; its messages may be, in part."""
        return MessageId(max(self._state.ledger_id, -1), self._state.entry_id)

    @property
    def holes(self) -> int:
        """How many runs of entries beyond :attr:`position` are acknowledged; at most 10,000."""
        return self._state.holes

    def __repr__(self) -> str:
        return f"<LogCursor {self._name} of {self._store.name} at {self.position} holes={self.holes}>"

    # Messages ----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LogMessage:
        reader = self._entered()
        if self._is_dirty and asyncio.get_running_loop().time() >= self._flushed_at + _FLUSH_S:
            await self.flush()
        while True:
            message = await anext(reader)
            place = message.id
            if not self._state.is_acknowledged(place.ledger_id, place.entry_id, place.batch_index):
                return message

    def acknowledge(self, message: LogMessage) -> None:
        """Note that a message was dealt with.

        Raises :class:`~bkclient.errors.TooManyRequests` if there are too many holes: messages before must be acknowledged first.
        """
        self._entered()
        place = message.id
        self._state.acknowledge(place.ledger_id, place.entry_id, place.batch_index, message.batch_size)
        self._is_dirty = True

    def acknowledge_through(self, message: LogMessage) -> None:
        """Note that a message and all before it were dealt with."""
        self._entered()
        place = message.id
        self._state.acknowledge_before(place.ledger_id, place.entry_id)
        for index in range(place.batch_index + 1) if place.batch_index >= 0 else (-1,):
            self._state.acknowledge(place.ledger_id, place.entry_id, index, message.batch_size)
        self._is_dirty = True

    async def flush(self) -> None:
        """Remember for good what is acknowledged. Raises :class:`~bkclient.log.LogDeposed` if the cursor was taken over."""
        self._entered()
        self._state.settle(await self._store.manifest())
        await self._save()
        self._flushed_at = asyncio.get_running_loop().time()

    async def backlog_entries(self) -> int:
        """How many entries are not acknowledged, those of the ledger that is being written to included."""
        self._entered()
        manifest = await self._store.manifest()
        count = backlog_of(self._state, manifest)
        for ledger_id in manifest.open_ledgers:
            async with await self._store.client.open_ledger(ledger_id) as reader:
                count += self._state.backlog_in(ledger_id, await reader.read_last_add_confirmed())
        return count

    # The block ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._reader is not None:
            raise IllegalOperation("a cursor can be entered once; make another one")
        holder = self._state.holder
        for _ in range(_ATTEMPTS_MAX):
            manifest = await self._store.manifest()
            try:
                await self._take_over(manifest, holder)
                break
            except (MetadataVersionConflict, MetadataOutcomeUnknown):
                continue
        else:
            raise MetadataVersionConflict(f"the cursor {self._name!r} is taken over again and again")
        # Its position is stored: from now on trimming looks at it, and what is there now stays.
        self._state.settle(await self._store.change(AddCursor(self._name)))
        start = (
            MessageId(self._state.ledger_id, self._state.entry_id) if self._state.ledger_id >= 0 else MessageId.EARLIEST
        )
        self._reader = await LogReader(self._store, start, is_inclusive=True, follow=True, start_ms=None).__aenter__()
        return self

    async def _take_over(self, manifest: LogManifest, holder: str) -> None:
        stored = await self._register.read()
        state = None if stored is None else decode_cursor(stored.data)
        if state is None or state.log_id != manifest.log_id:
            state = CursorState(manifest.log_id, holder, *await start_at(self._store, manifest, self._start))
        state.holder = holder
        data = encode_cursor(state)
        written: RegisterValue
        if stored is None:
            written = await self._register.create(data)
        else:
            written = await self._register.write(data, stored.version)
        self._state, self._version = state, written.version

    async def _save(self) -> None:
        if not self._is_dirty:
            return
        data = encode_cursor(self._state)
        for _ in range(_ATTEMPTS_MAX):
            try:
                self._version = (await self._register.write(data, self._version)).version
            except (MetadataVersionConflict, MetadataOutcomeUnknown):
                stored = await self._register.read()
                if stored is None or decode_cursor(stored.data).holder != self._state.holder:
                    raise LogDeposed(f"the cursor {self._name!r} was taken over or removed") from None
                self._version = stored.version
                if stored.data != data:
                    continue
            self._is_dirty = False
            return
        raise MetadataOutcomeUnknown(f"the cursor {self._name!r} could not be stored")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reader = self._entered()
        try:
            await self.flush()
        except BookKeeperError as failure:
            if error is None:
                raise
            error.add_note(f"remembering what was acknowledged failed too: {failure}")
        finally:
            await reader.__aexit__(kind, error, trace)

    def _entered(self) -> LogReader:
        if self._reader is None:
            raise IllegalOperation("use a cursor inside its 'async with' block")
        return self._reader

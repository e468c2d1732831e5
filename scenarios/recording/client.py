"""Clients and handles that record what an application does with them: the shipped classes, each with a recording subclass.

An application gets what it gets anywhere else, a :class:`bkclient.BookKeeper` and its writers and readers, and everything that
takes these takes them. Results are recorded where the application gets them, in the log of its process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from bkclient import (
    AdvancedLedgerWriter,
    AppendFuture,
    BookKeeper,
    Entries,
    Entry,
    LastConfirmedAndEntry,
    LedgerReader,
    LedgerTail,
    LedgerWriter,
)
from bkclient.errors import TooManyRequests
from scenarios.recording.recorders import ClientLog, ReaderLog, become

__all__ = ["RecordedClient", "each_entry"]

Payload = bytes | bytearray | memoryview


class _RecordedWriter(LedgerWriter):
    _log: ClientLog

    async def submit(self, payload: Payload) -> AppendFuture:
        while True:  # in two steps, so that the id is known before: an append that fails at once takes none
            await self.wait_for_room()
            try:
                return self.append_nowait(payload)
            except TooManyRequests:
                continue  # others went first

    def append_nowait(self, payload: Payload) -> AppendFuture:
        entry_id = self.last_add_pushed + 1
        return self._log.added(self, entry_id, bytes(payload), super().append_nowait(payload), given=False)

    def _append_some(self, payloads: Sequence[Payload]) -> range:
        appended = super()._append_some(payloads)
        for entry_id, payload in zip(appended, payloads):  # noqa: B905 - as many as there was room for
            self._log.added(self, entry_id, bytes(payload), AppendFuture(self._shell.outcomes, entry_id), given=False)
        return appended

    async def force(self) -> None:
        await self._log.forced(self, super().force())

    async def close(self) -> None:
        await self._log.closed(self, super().close())


class _RecordedAdvancedWriter(AdvancedLedgerWriter):
    _log: ClientLog

    def append_nowait(self, entry_id: int, payload: Payload) -> AppendFuture:
        return self._log.added(self, entry_id, bytes(payload), super().append_nowait(entry_id, payload), given=True)

    async def force(self) -> None:
        await self._log.forced(self, super().force())

    async def close(self) -> None:
        await self._log.closed(self, super().close())


class _RecordedReader(LedgerReader):
    _log: ReaderLog

    def __aiter__(self) -> AsyncIterator[Entry]:
        return self._each(super().__aiter__())

    async def read(self, entry_id: int, *, unconfirmed: bool = False, parallel: bool = False) -> Entry:
        reading = super().read(entry_id, unconfirmed=unconfirmed, parallel=parallel)
        if unconfirmed:
            return await reading
        return await self._log.read(self, entry_id, reading)

    def read_range(
        self, first: int, last: int, *, unconfirmed: bool = False, parallel: bool = False
    ) -> AsyncIterator[Entry]:
        entries = super().read_range(first, last, unconfirmed=unconfirmed, parallel=parallel)
        return entries if unconfirmed else self._each(entries)

    async def read_batch(
        self, start: int, max_count: int = 0, max_bytes: int = 0, *, unconfirmed: bool = False
    ) -> Entries:
        reading = super().read_batch(start, max_count, max_bytes, unconfirmed=unconfirmed)
        if unconfirmed:
            return await reading
        return await self._log.read_batch(self, start, reading)

    def tail(self, first_entry_id: int = 0, *, patience_s: float = 60.0) -> LedgerTail:
        tail = super().tail(first_entry_id, patience_s=patience_s)
        become(tail, _RecordedTail, _reader=self)
        return tail

    async def read_last_add_confirmed(self) -> int:
        lac = await super().read_last_add_confirmed()
        self._log.lac_advanced(lac, "read-lac")
        return lac

    async def read_last_add_confirmed_and_entry(
        self, entry_id: int, timeout_s: float, *, parallel: bool = False
    ) -> LastConfirmedAndEntry:
        found = await super().read_last_add_confirmed_and_entry(entry_id, timeout_s, parallel=parallel)
        self._log.polled(self, found)
        return found

    async def _each(self, entries: AsyncIterator[Entry]) -> AsyncIterator[Entry]:
        async for entry in entries:
            self._log.delivered(self, entry)
            yield entry


class _RecordedTail(LedgerTail):
    _reader: _RecordedReader

    async def __anext__(self) -> Entry:
        entry = await super().__anext__()
        self._reader._log.delivered(self._reader, entry)  # noqa: SLF001  a part of it
        return entry


class RecordedClient(BookKeeper):
    """A client whose writers and readers record what the application does and gets; ``log`` is where.

    ``racks`` has bookies with their racks, if its writers need acknowledgements from several of these.
    """

    log: ClientLog
    racks: tuple[tuple[str, str], ...] = ()

    async def create_ledger(self, **options: Any) -> LedgerWriter:
        """See :meth:`bkclient.BookKeeper.create_ledger`."""
        writer = await super().create_ledger(**options)
        self._created(writer)
        become(writer, _RecordedWriter, _log=self.log)
        return writer

    async def create_advanced_ledger(self, **options: Any) -> AdvancedLedgerWriter:
        """See :meth:`bkclient.BookKeeper.create_advanced_ledger`."""
        writer = await super().create_advanced_ledger(**options)
        self._created(writer)
        become(writer, _RecordedAdvancedWriter, _log=self.log)
        return writer

    def _created(self, writer: LedgerWriter | AdvancedLedgerWriter) -> None:
        if self.racks:
            self.log.spread(writer, self.racks)

    async def open_ledger(self, ledger_id: int, *, recover: bool = False, **options: Any) -> LedgerReader:
        """See :meth:`bkclient.BookKeeper.open_ledger`."""
        return await self._opened(
            ledger_id, super().open_ledger(ledger_id, recover=recover, **options), recover=recover
        )

    async def open_ledger_as_administrator(
        self, ledger_id: int, *, recover: bool = False, keep_metadata_updated: bool = False
    ) -> LedgerReader:
        """See :meth:`bkclient.BookKeeper.open_ledger_as_administrator`."""
        opening = super().open_ledger_as_administrator(
            ledger_id, recover=recover, keep_metadata_updated=keep_metadata_updated
        )
        return await self._opened(ledger_id, opening, recover=recover)

    async def _opened(self, ledger_id: int, opening: Any, *, recover: bool) -> LedgerReader:
        reader, log = await self.log.opened(ledger_id, opening, recover=recover)
        become(reader, _RecordedReader, _log=log)
        return reader


async def each_entry(reader: LedgerReader) -> AsyncIterator[Entry]:
    """Every entry up to the last add confirmed, asked for one at a time, so that each has a result of its own."""
    for entry_id in range(reader.last_add_confirmed + 1):
        yield await reader.read(entry_id)

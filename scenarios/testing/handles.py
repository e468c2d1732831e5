"""Clients and handles that record what an application does with them: the shipped classes, each with a recording subclass.

An application gets what it gets anywhere else, a :class:`bkclient.BookKeeper` and its writers and readers, and everything that
takes these takes them. The events are those of :mod:`scenarios.recording`: results are recorded where the application gets them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from bkclient import (
    AdvancedLedgerWriter,
    BookKeeper,
    Entries,
    Entry,
    LastConfirmedAndEntry,
    LedgerReader,
    LedgerTail,
    LedgerWriter,
)
from bkclient.errors import BookKeeperError, Code, code_of
from scenarios.history import Kind
from scenarios.recording import Recorder, fingerprint

__all__ = ["ClientLog", "ObservedClient"]

Payload = bytes | bytearray | memoryview


class ClientLog:
    """Where the clients of one process record: who they are, and a number for each handle."""

    def __init__(self, recorder: Recorder, actor: str, incarnation: int) -> None:
        self.recorder = recorder
        self.actor = actor
        self.incarnation = incarnation
        self._handles = 0

    def new_handle(self) -> int:
        """The number of a reader that was opened."""
        self._handles += 1
        return self._handles

    def record(self, kind: Kind, ledger_id: int, **fields: Any) -> None:
        """Record an event of this process."""
        self.recorder.record(kind, self.actor, ledger_id, **fields)

    def record_add(
        self, ledger_id: int, entry_id: int, payload: bytes, future: asyncio.Future[int], *, given: bool, durable: bool
    ) -> None:
        """Record APP_ADD now, and APP_ACK, APP_FAIL or APP_CANCEL when the application gets the outcome."""
        content = fingerprint(payload)
        common: dict[str, Any] = {"incarnation": self.incarnation, "entry": entry_id}
        self.record(Kind.APP_ADD, ledger_id, **common, content=content, size=len(payload), given=given)

        def on_done(done: asyncio.Future[int]) -> None:
            error = None if done.cancelled() else done.exception()
            if done.cancelled():
                self.record(Kind.APP_CANCEL, ledger_id, **common)
            elif error is None:
                self.record(Kind.APP_ACK, ledger_id, **common, content=content, durable=durable)
            else:
                self.record(Kind.APP_FAIL, ledger_id, **common, code=int(code_of(error)))

        future.add_done_callback(on_done)


class _ObservedWriter(LedgerWriter):
    _log: ClientLog

    async def submit(self, payload: Payload) -> asyncio.Future[int]:
        return self._recorded(payload, await super().submit(payload))

    def append_nowait(self, payload: Payload) -> asyncio.Future[int]:
        return self._recorded(payload, super().append_nowait(payload))

    def _recorded(self, payload: Payload, future: asyncio.Future[int]) -> asyncio.Future[int]:
        durable = not self.is_deferred_sync
        self._log.record_add(self.ledger_id, self.last_add_pushed, bytes(payload), future, given=False, durable=durable)
        return future

    async def close(self) -> None:
        await _closed(self, self._log, super().close())


class _ObservedAdvancedWriter(AdvancedLedgerWriter):
    _log: ClientLog

    def append_nowait(self, entry_id: int, payload: Payload) -> asyncio.Future[int]:
        return self._recorded(entry_id, payload, super().append_nowait(entry_id, payload))

    def _recorded(self, entry_id: int, payload: Payload, future: asyncio.Future[int]) -> asyncio.Future[int]:
        durable = not self.is_deferred_sync
        self._log.record_add(self.ledger_id, entry_id, bytes(payload), future, given=True, durable=durable)
        return future

    async def close(self) -> None:
        await _closed(self, self._log, super().close())


async def _closed(writer: LedgerWriter | AdvancedLedgerWriter, log: ClientLog, closing: Any) -> None:
    """Close; record CLOSE_START, and CLOSE_RESULT unless it is cancelled."""
    log.record(Kind.CLOSE_START, writer.ledger_id)
    code = Code.OK
    try:
        await closing
    except BookKeeperError as error:
        code = error.code
        raise
    finally:
        metadata = writer.metadata
        if code is not Code.OK or metadata.is_closed:
            end = metadata.last_entry_id if metadata.is_closed else -1
            log.record(Kind.CLOSE_RESULT, writer.ledger_id, code=int(code), last_entry=end, length=metadata.length)


class _ObservedReader(LedgerReader):
    _log: ClientLog
    _handle: int

    def __aiter__(self) -> AsyncIterator[Entry]:
        return self._each(super().__aiter__())

    async def read(self, entry_id: int, *, unconfirmed: bool = False, parallel: bool = False) -> Entry:
        reading = super().read(entry_id, unconfirmed=unconfirmed, parallel=parallel)
        if unconfirmed:
            return await reading
        lac, version = self.last_add_confirmed, self.metadata_version
        try:
            entry = await reading
        except BookKeeperError as error:
            self._record(entry_id, error.code, None, lac, version)
            raise
        self._record(entry_id, Code.OK, entry.payload, lac, version)
        return entry

    def read_range(
        self, first: int, last: int, *, unconfirmed: bool = False, parallel: bool = False
    ) -> AsyncIterator[Entry]:
        entries = super().read_range(first, last, unconfirmed=unconfirmed, parallel=parallel)
        return entries if unconfirmed else self._each(entries)

    async def read_batch(
        self, start: int, max_count: int = 0, max_bytes: int = 0, *, unconfirmed: bool = False
    ) -> Entries:
        entries = await super().read_batch(start, max_count, max_bytes, unconfirmed=unconfirmed)
        if not unconfirmed:
            for entry in entries:
                self._found(entry)
        return entries

    def tail(self, first_entry_id: int = 0, *, patience_s: float = 60.0) -> LedgerTail:
        tail = super().tail(first_entry_id, patience_s=patience_s)
        _become(tail, _ObservedTail, _reader=self)
        return tail

    async def read_last_add_confirmed(self) -> int:
        lac = await super().read_last_add_confirmed()
        self.record_lac(lac, "read-lac")
        return lac

    async def read_last_add_confirmed_and_entry(
        self, entry_id: int, timeout_s: float, *, parallel: bool = False
    ) -> LastConfirmedAndEntry:
        found = await super().read_last_add_confirmed_and_entry(entry_id, timeout_s, parallel=parallel)
        self.record_lac(found.last_add_confirmed, "long-poll")
        if found.entry is not None:
            self._found(found.entry)
        return found

    async def _each(self, entries: AsyncIterator[Entry]) -> AsyncIterator[Entry]:
        async for entry in entries:
            self._found(entry)
            yield entry

    def record_lac(self, lac: int, source: str) -> None:
        self._log.record(Kind.LAC_ADV, self.ledger_id, lac=lac, source=source, handle=self._handle)

    def _found(self, entry: Entry) -> None:
        self._record(entry.entry_id, Code.OK, entry.payload, self.last_add_confirmed, self.metadata_version)

    def _record(self, entry_id: int, code: Code, payload: bytes | None, lac: int, version: int) -> None:
        self._log.record(
            Kind.READ_RESULT,
            self.ledger_id,
            entry=entry_id,
            code=int(code),
            content=None if payload is None else fingerprint(payload),
            size=0 if payload is None else len(payload),
            lac=lac,
            version=version,
            handle=self._handle,
        )


class _ObservedTail(LedgerTail):
    _reader: _ObservedReader

    async def __anext__(self) -> Entry:
        entry = await super().__anext__()
        self._reader._found(entry)  # noqa: SLF001  a part of it
        return entry


def _become(handle: object, observed: type, **fields: object) -> None:
    """Make ``handle`` an object of the recording subclass of its class. The client made it, and knows no subclasses."""
    handle.__class__ = observed
    vars(handle).update(fields)


class ObservedClient(BookKeeper):
    """A client whose writers and readers record what the application does and gets; ``log`` is where."""

    log: ClientLog

    async def create_ledger(self, **options: Any) -> LedgerWriter:
        """See :meth:`bkclient.BookKeeper.create_ledger`."""
        writer = await super().create_ledger(**options)
        _become(writer, _ObservedWriter, _log=self.log)
        return writer

    async def create_advanced_ledger(self, **options: Any) -> AdvancedLedgerWriter:
        """See :meth:`bkclient.BookKeeper.create_advanced_ledger`."""
        writer = await super().create_advanced_ledger(**options)
        _become(writer, _ObservedAdvancedWriter, _log=self.log)
        return writer

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
        """Open; record OPEN_START, OPEN_RESULT and, of an open ledger, the first LAC_ADV."""
        log = self.log
        log.record(Kind.OPEN_START, ledger_id, recovery=recover)
        try:
            reader: LedgerReader = await opening
        except BookKeeperError as error:
            result: dict[str, Any] = {
                "code": int(error.code),
                "state": None,
                "last_entry": -1,
                "length": 0,
                "handle": -1,
            }
            log.record(Kind.OPEN_RESULT, ledger_id, recovery=recover, **result)
            raise
        metadata, handle = reader.metadata, log.new_handle()
        _become(reader, _ObservedReader, _log=log, _handle=handle)
        result = {
            "code": int(Code.OK),
            "state": metadata.state.name,
            "last_entry": metadata.last_entry_id,
            "length": metadata.length,
            "handle": handle,
        }
        log.record(Kind.OPEN_RESULT, ledger_id, recovery=recover, **result)
        if not metadata.is_closed:
            lac = reader.last_add_confirmed
            log.record(Kind.LAC_ADV, ledger_id, lac=lac, source="open", handle=handle)
        return reader

"""Recorders: wrappers around the client's interfaces that record every call.

The code under test is not instrumented. Requests to bookies are recorded at the transport, metadata operations at the store,
events in a bookie by its observer, and results that an application gets by the wrapped writer and reader below.

Each event is recorded when it happens at its actor: a request when it is handed to the transport, an answer when it
reaches the client, a metadata write when the store applies it, an acknowledgement when the application gets it. An
application on a crashed or paused host gets nothing, so nothing is recorded for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import AsyncIterator
from typing import Any, Final

from bkclient import AdvancedLedgerWriter, BookKeeper, Entry, LedgerReader, LedgerWriter
from bkclient.errors import BookKeeperError, Code, code_of
from bkclient.ledger import DigestType, LedgerMetadata, Versioned
from bkclient.log import LogManifest
from bkclient.protocol.recovery import EntryVerdict
from bkclient.wire.digest import DIGEST_SIZES
from bkclient.wire.entry import ENTRY_HEADER_SIZE
from scenarios.history import HistoryWriter, Kind

__all__ = [
    "BookieRecorder",
    "RecordedAdvancedWriter",
    "RecordedAppends",
    "RecordedClient",
    "RecordedReader",
    "RecordedWriter",
    "Recorder",
    "fingerprint",
    "metadata_fields",
]

_HEADER: Final = struct.Struct(">qqqq")


def fingerprint(payload: bytes) -> int:
    """What histories record instead of a payload: 63 bits of its hash."""
    return int.from_bytes(hashlib.blake2b(payload, digest_size=8).digest(), "big") >> 1


def metadata_fields(metadata: LedgerMetadata, version: int) -> dict[str, Any]:
    """Ledger metadata as the fields of META_CAS and META_READ."""
    return {
        "version": version,
        "state": metadata.state.name,
        "fragments": [[fragment.first_entry_id, list(fragment.ensemble)] for fragment in metadata.fragments],
        "last_entry": metadata.last_entry_id,
        "length": metadata.length,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum_size": metadata.write_quorum_size,
        "ack_quorum_size": metadata.ack_quorum_size,
    }


class Recorder:
    """The history of a run, and the sizes that are needed to parse the bodies of entries."""

    def __init__(self, history: HistoryWriter) -> None:
        self.history = history
        self.record = history.record
        #: What is stored of each log.
        self.manifests: dict[str, LogManifest] = {}
        self._overhead: dict[int, int] = {}

    def learn(self, metadata: LedgerMetadata) -> None:
        """Note how large the digest of the ledger's entries is."""
        digest_type = metadata.digest_type or DigestType.CRC32
        self._overhead[metadata.ledger_id] = ENTRY_HEADER_SIZE + DIGEST_SIZES[digest_type]

    def parse(self, ledger_id: int, body: bytes) -> tuple[int, int, int, bytes]:
        """``(entry_id, lac, length, payload)`` of a body. The digest is not verified."""
        _, entry_id, lac, length = _HEADER.unpack_from(body)
        return entry_id, lac, length, body[self._overhead.get(ledger_id, ENTRY_HEADER_SIZE) :]


class RecoveryRecorder:
    """Records the decisions of one client's recoveries; implements ``RecoveryObserver``."""

    def __init__(self, recorder: Recorder, actor: str) -> None:
        self._recorder = recorder
        self._actor = actor

    def recovery_started(self, metadata: Versioned) -> None:
        """Record REC_START."""
        fragment = metadata.metadata.last_fragment
        self._recorder.record(
            Kind.REC_START,
            self._actor,
            metadata.metadata.ledger_id,
            version=metadata.version,
            first_entry=fragment.first_entry_id,
            bookies=",".join(fragment.ensemble),
        )

    def entry_decided(self, ledger_id: int, entry_id: int, verdict: EntryVerdict, bookies: tuple[str, ...]) -> None:
        """Record REC_DECIDE."""
        self._recorder.record(
            Kind.REC_DECIDE,
            self._actor,
            ledger_id,
            entry=entry_id,
            verdict=verdict.value,
            bookies=",".join(bookies),
        )


def _host(source: str) -> str:
    """The host of a bookie's peer, without the port that a stream adds."""
    return source.partition(":")[0]


class BookieRecorder:
    """Records what happens inside one bookie (a :class:`simbookie.observer.BookieObserver`)."""

    def __init__(self, recorder: Recorder, bookie_id: str) -> None:
        self._recorder = recorder
        self._actor = bookie_id

    def entry_stored(self, ledger_id: int, entry_id: int, body: bytes, recovery: bool, source: str) -> None:  # noqa: FBT001
        """Record BK_STORE."""
        _, lac, length, payload = self._recorder.parse(ledger_id, body)
        self._recorder.record(
            Kind.BK_STORE,
            self._actor,
            ledger_id,
            entry=entry_id,
            content=fingerprint(payload),
            recovery=recovery,
            source=_host(source),
            lac=lac,
            length=length,
        )

    def entry_synced(self, ledger_id: int, entry_id: int) -> None:
        """Record BK_SYNC."""
        self._recorder.record(Kind.BK_SYNC, self._actor, ledger_id, entry=entry_id)

    def lac_advanced(self, ledger_id: int, lac: int) -> None:
        """Record BK_LAC."""
        self._recorder.record(Kind.BK_LAC, self._actor, ledger_id, lac=lac)

    def fence_set(self, ledger_id: int, source: str, durable: bool) -> None:  # noqa: FBT001
        """Record FENCE_SET."""
        self._recorder.record(Kind.FENCE_SET, self._actor, ledger_id, source=_host(source), durable=durable)

    def limbo_changed(self, ledger_id: int, in_limbo: bool) -> None:  # noqa: FBT001
        """Record BK_LIMBO."""
        self._recorder.record(Kind.BK_LIMBO, self._actor, ledger_id, verdict="on" if in_limbo else "off")

    def ledger_deleted(self, ledger_id: int) -> None:
        """Record BK_GC."""
        self._recorder.record(Kind.BK_GC, self._actor, ledger_id)

    def entry_lost(self, ledger_id: int, entry_id: int, detail: str) -> None:
        """Record BK_LOSS."""
        self._recorder.record(Kind.BK_LOSS, self._actor, ledger_id, entry=entry_id, detail=detail)

    def fence_forgotten(self, ledger_id: int, detail: str) -> None:
        """Record FENCE_LOST."""
        self._recorder.record(Kind.FENCE_LOST, self._actor, ledger_id, detail=detail)

    def crashed(self, clean: bool, detail: str) -> None:  # noqa: FBT001
        """Record BK_CRASH."""
        self._recorder.record(Kind.BK_CRASH, self._actor, clean=clean, detail=detail)

    def restarted(self, incarnation: int, detail: str) -> None:
        """Record BK_RESTART."""
        self._recorder.record(Kind.BK_RESTART, self._actor, incarnation=incarnation, detail=detail)


class RecordedAppends:
    """The common part of both recorded writers: records the application's calls and their outcomes."""

    inner: LedgerWriter | AdvancedLedgerWriter

    def __init__(self, recorder: Recorder, actor: str, incarnation: int) -> None:
        self.actor = actor
        self._recorder = recorder
        self._incarnation = incarnation

    @property
    def ledger_id(self) -> int:
        """The ledger being written."""
        return self.inner.ledger_id

    def _record_add(
        self, entry_id: int, payload: bytes, future: asyncio.Future[int], *, given: bool
    ) -> asyncio.Future[int]:
        """Record APP_ADD now, and APP_ACK, APP_FAIL or APP_CANCEL when the application gets the outcome.

        APP_ADD comes after the ADD_SENDs of the same entry, because an append that raises is not recorded.
        """
        content, is_durable = fingerprint(payload), not self.inner.is_deferred_sync
        common = {"incarnation": self._incarnation, "entry": entry_id}
        record, actor, ledger_id = self._recorder.record, self.actor, self.ledger_id
        record(Kind.APP_ADD, actor, ledger_id, **common, content=content, size=len(payload), given=given)

        def on_done(done: asyncio.Future[int]) -> None:
            error = None if done.cancelled() else done.exception()
            if done.cancelled():
                record(Kind.APP_CANCEL, actor, ledger_id, **common)
            elif error is None:
                record(Kind.APP_ACK, actor, ledger_id, **common, content=content, durable=is_durable)
            else:
                record(Kind.APP_FAIL, actor, ledger_id, **common, code=int(code_of(error)))

        future.add_done_callback(on_done)
        return future

    async def close(self) -> None:
        """Close; records CLOSE_START, and CLOSE_RESULT unless it is cancelled."""
        self._recorder.record(Kind.CLOSE_START, self.actor, self.ledger_id)
        try:
            await self.inner.close()
        except BookKeeperError as error:
            self._record_closed(error.code)
            raise
        self._record_closed(Code.OK)

    def _record_closed(self, code: Code) -> None:
        metadata = self.inner.metadata
        end = metadata.last_entry_id if metadata.is_closed else -1
        result = {"code": int(code), "last_entry": end, "length": metadata.length}
        self._recorder.record(Kind.CLOSE_RESULT, self.actor, self.ledger_id, **result)


class RecordedWriter(RecordedAppends):
    """A writer that numbers its entries itself."""

    def __init__(self, writer: LedgerWriter, recorder: Recorder, actor: str, incarnation: int) -> None:
        super().__init__(recorder, actor, incarnation)
        self.inner: LedgerWriter = writer

    def append_nowait(self, payload: bytes) -> asyncio.Future[int]:
        """Append under the next id."""
        entry_id = self.inner.last_add_pushed + 1
        return self._record_add(entry_id, payload, self.inner.append_nowait(payload), given=False)

    async def append(self, payload: bytes) -> int:
        """Append and wait for the outcome."""
        await self.inner.wait_for_room()
        return await self.append_nowait(payload)


class RecordedAdvancedWriter(RecordedAppends):
    """A writer with entry ids from the application."""

    def __init__(self, writer: AdvancedLedgerWriter, recorder: Recorder, actor: str, incarnation: int) -> None:
        super().__init__(recorder, actor, incarnation)
        self.inner: AdvancedLedgerWriter = writer

    def append_nowait(self, entry_id: int, payload: bytes) -> asyncio.Future[int]:
        """Append under this id."""
        return self._record_add(entry_id, payload, self.inner.append_nowait(entry_id, payload), given=True)


class RecordedReader:
    """A reader that records the results of its reads."""

    def __init__(self, reader: LedgerReader, recorder: Recorder, actor: str, handle: int) -> None:
        self.inner = reader
        self._recorder = recorder
        self._actor = actor
        self._handle = handle

    async def read(self, entry_id: int) -> Entry:
        """Read one entry; records READ_RESULT."""
        lac, version = self.inner.last_add_confirmed, self.inner.metadata_version
        try:
            entry = await self.inner.read(entry_id)
        except BookKeeperError as error:
            self._record(entry_id, error.code, None, lac, version)
            raise
        self._record(entry_id, Code.OK, entry.payload, lac, version)
        return entry

    async def read_all(self) -> AsyncIterator[Entry]:
        """Yield every entry up to the last add confirmed, in order."""
        for entry_id in range(self.inner.last_add_confirmed + 1):
            yield await self.read(entry_id)

    async def read_unconfirmed(self, entry_id: int) -> Entry:
        """Read an entry whether it is confirmed or not; nothing is recorded here."""
        return await self.inner.read(entry_id, unconfirmed=True)

    async def read_batch(self, first: int, count: int) -> int:
        """Read up to ``count`` entries from ``first`` on at once; records READ_RESULT for each, and returns how many."""
        lac, version = self.inner.last_add_confirmed, self.inner.metadata_version
        try:
            entries = await self.inner.read_batch(first, count)
        except BookKeeperError as error:
            self._record(first, error.code, None, lac, version)
            raise
        for entry in entries:
            self._record(entry.entry_id, Code.OK, entry.payload, lac, version)
        return len(entries)

    async def tail(self) -> AsyncIterator[Entry]:
        """Yield every entry until the ledger is closed, by long polls; records READ_RESULT for each."""
        async with self.inner.tail() as entries:
            async for entry in entries:
                self.delivered(entry)
                yield entry

    def delivered(self, entry: Entry) -> None:
        """Record READ_RESULT for an entry that a tail of :attr:`inner` delivered."""
        lac, version = self.inner.last_add_confirmed, self.inner.metadata_version
        self._record(entry.entry_id, Code.OK, entry.payload, lac, version)

    async def long_poll(self, entry_id: int, wait_s: float) -> int:
        """Wait for an entry at the bookies; records LAC_ADV, and READ_RESULT if the entry came with it."""
        found = await self.inner.read_last_add_confirmed_and_entry(entry_id, wait_s)
        self._record_lac(found.last_add_confirmed, "long-poll")
        if found.entry is not None:
            version = self.inner.metadata_version
            self._record(entry_id, Code.OK, found.entry.payload, found.last_add_confirmed, version)
        return found.last_add_confirmed

    async def advance(self) -> int:
        """Read the last add confirmed from the bookies; records LAC_ADV."""
        lac = await self.inner.read_last_add_confirmed()
        self._record_lac(lac, "read-lac")
        return lac

    def _record_lac(self, lac: int, source: str) -> None:
        self._recorder.record(
            Kind.LAC_ADV, self._actor, self.inner.ledger_id, lac=lac, source=source, handle=self._handle
        )

    def _record(self, entry_id: int, code: Code, payload: bytes | None, lac: int, version: int) -> None:
        self._recorder.record(
            Kind.READ_RESULT,
            self._actor,
            self.inner.ledger_id,
            entry=entry_id,
            code=int(code),
            content=None if payload is None else fingerprint(payload),
            size=0 if payload is None else len(payload),
            lac=lac,
            version=version,
            handle=self._handle,
        )


class RecordedClient:
    """A client that records the calls of its application. The stage makes one for each client process."""

    def __init__(self, client: BookKeeper, recorder: Recorder, actor: str, incarnation: int) -> None:
        self.inner = client
        self.recorder = recorder
        self.actor = actor
        self._incarnation = incarnation
        self._handles = 0

    async def create_ledger(self, **options: Any) -> RecordedWriter:
        """See :meth:`bkclient.BookKeeper.create_ledger`."""
        writer = await self.inner.create_ledger(**options)
        return RecordedWriter(writer, self.recorder, self.actor, self._incarnation)

    async def create_advanced_ledger(self, **options: Any) -> RecordedAdvancedWriter:
        """See :meth:`bkclient.BookKeeper.create_advanced_ledger`."""
        writer = await self.inner.create_advanced_ledger(**options)
        return RecordedAdvancedWriter(writer, self.recorder, self.actor, self._incarnation)

    async def delete_ledger(self, ledger_id: int) -> None:
        """See :meth:`bkclient.BookKeeper.delete_ledger`."""
        await self.inner.delete_ledger(ledger_id)

    async def open_ledger(self, ledger_id: int, *, recover: bool = False) -> RecordedReader:
        """See :meth:`bkclient.BookKeeper.open_ledger`; records OPEN_START, OPEN_RESULT and the first LAC_ADV."""
        record, actor = self.recorder.record, self.actor
        record(Kind.OPEN_START, actor, ledger_id, recovery=recover)
        try:
            reader = await self.inner.open_ledger(ledger_id, recover=recover)
        except BookKeeperError as error:
            result: dict[str, Any] = {
                "code": int(error.code),
                "state": None,
                "last_entry": -1,
                "length": 0,
                "handle": -1,
            }
            record(Kind.OPEN_RESULT, actor, ledger_id, recovery=recover, **result)
            raise
        metadata = reader.metadata
        handle = self.new_handle()
        result = {
            "code": int(Code.OK),
            "state": metadata.state.name,
            "last_entry": metadata.last_entry_id,
            "length": metadata.length,
            "handle": handle,
        }
        record(Kind.OPEN_RESULT, actor, ledger_id, recovery=recover, **result)
        if not metadata.is_closed:
            known = reader.last_add_confirmed
            record(Kind.LAC_ADV, actor, ledger_id, lac=known, source="open", handle=handle)
        return RecordedReader(reader, self.recorder, actor, handle)

    def new_handle(self) -> int:
        """The number of another reader of this client."""
        self._handles += 1
        return self._handles

"""Recorders: wrappers around the client's interfaces that record every call.

The code under test is not instrumented. Requests to bookies are recorded at the transport, metadata operations at the store,
events in a bookie by its observer, and what an application asks for and gets by the handles of :mod:`scenarios.recording.client`,
in the :class:`ClientLog` of its process.

Each event is recorded when it happens at its actor: a request when it is handed to the transport, an answer when it
reaches the client, a metadata write when the store applies it, an acknowledgement when the application gets it. An
application on a crashed or paused host gets nothing, so nothing is recorded for it.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Final

from bkclient import (
    AdvancedLedgerWriter,
    AppendFuture,
    Entries,
    Entry,
    LastConfirmedAndEntry,
    LedgerReader,
    LedgerWriter,
)
from bkclient.errors import BookKeeperError, Code, code_of
from bkclient.ledger import DigestType, LedgerMetadata, Versioned
from bkclient.log import LogManifest
from bkclient.observability.recovery_observer import RecoveryObserver
from bkclient.protocol.recovery import EntryVerdict
from bkclient.wire.digest import DIGEST_SIZES
from bkclient.wire.entry import ENTRY_HEADER_SIZE
from scenarios.history import HistoryWriter, Kind
from scenarios.recording.causes import MetadataCauses
from scenarios.recording.messages import RequestNumbers, RequestRecorder, host_of

__all__ = [
    "BookieRecorder",
    "ClientLog",
    "ReaderLog",
    "Recorder",
    "RecoveryRecorder",
    "become",
    "fingerprint",
    "metadata_fields",
]

_HEADER: Final = struct.Struct(">qqqq")

# Members of an enumeration take longer to find; these are asked for most.
_BK_STORE: Final = Kind.BK_STORE
_BK_SYNC: Final = Kind.BK_SYNC
_BK_LAC: Final = Kind.BK_LAC
_READ_RESULT: Final = Kind.READ_RESULT
_OK: Final = Code.OK


#: The fingerprints of so many payloads of so many bytes at most are remembered: each payload is recorded some ten times.
_FINGERPRINTS_MAX: Final = 256
_REMEMBERED_BYTES_MAX: Final = 1024


def fingerprint(payload: bytes) -> int:
    """What histories record instead of a payload: 63 bits of its hash."""
    if type(payload) is bytes and len(payload) <= _REMEMBERED_BYTES_MAX:
        return _remembered(payload)
    return _fingerprint(payload)


def _fingerprint(payload: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(payload, digest_size=8).digest(), "big") >> 1


_remembered: Final = lru_cache(_FINGERPRINTS_MAX)(_fingerprint)


def become(handle: object, observed: type, **fields: object) -> None:
    """Make ``handle`` an object of the recording subclass of its class. Who made it knows no subclasses."""
    handle.__class__ = observed
    vars(handle).update(fields)


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

    def __init__(self, history: HistoryWriter, digest_type: DigestType | None = None) -> None:
        """``digest_type`` is that of ledgers whose metadata are not learned."""
        self.history = history
        self.record, self.append = history.record, history.append
        self.messages = RequestNumbers()
        #: What is stored of each log.
        self.manifests: dict[str, LogManifest] = {}
        self.causes = MetadataCauses()
        #: By log and cursor, the openings of it that have stored something.
        self.cursor_openings: dict[tuple[str, str], set[str]] = {}
        self._overhead: dict[int, int] = {}
        self._usual_overhead = ENTRY_HEADER_SIZE + (0 if digest_type is None else DIGEST_SIZES[digest_type])

    def learn(self, metadata: LedgerMetadata) -> None:
        """Note how large the digest of the ledger's entries is."""
        digest_type = metadata.digest_type or DigestType.CRC32
        self._overhead[metadata.ledger_id] = ENTRY_HEADER_SIZE + DIGEST_SIZES[digest_type]

    def record_fault(
        self,
        cause: str,
        detail: str,
        *,
        fault: str = "",
        phase: str = "once",
        target: str = "",
        other: str = "",
        parameters: str = "",
    ) -> None:
        """Record FAULT; the fields are those of the kind."""
        self.record(
            Kind.FAULT,
            "nemesis",
            cause=cause,
            detail=detail,
            fault=fault,
            phase=phase,
            target=target,
            other=other,
            parameters=parameters,
        )

    def requests_at(self, bookie_id: str) -> RequestRecorder:
        """What records the requests that arrive at a bookie, and its answers."""
        return RequestRecorder(self.history, self.messages, bookie_id)

    def parse(self, ledger_id: int, body: bytes) -> tuple[int, int, int, bytes]:
        """``(entry_id, lac, length, payload)`` of a body. The digest is not verified."""
        _, entry_id, lac, length = _HEADER.unpack_from(body)
        return entry_id, lac, length, body[self._overhead.get(ledger_id, self._usual_overhead) :]


class RecoveryRecorder:
    """Records the decisions of one client's recoveries, and tells ``then``; implements ``RecoveryObserver``."""

    def __init__(self, recorder: Recorder, actor: str, then: RecoveryObserver | None = None) -> None:
        self._recorder = recorder
        self._actor = actor
        self._then = then

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
        if self._then is not None:
            self._then.recovery_started(metadata)

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
        if self._then is not None:
            self._then.entry_decided(ledger_id, entry_id, verdict, bookies)


class BookieRecorder:
    """Records what happens inside one bookie (a :class:`simbookie.observer.BookieObserver`).

    ``cookie`` gives what is found of the bookie's cookie.
    """

    def __init__(
        self,
        recorder: Recorder,
        bookie_id: str,
        cookie: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._cookie = cookie
        #: Whether it ended otherwise than in order since it served last.
        self.was_killed = False
        self._recorder = recorder
        self._actor = bookie_id

    def entry_stored(self, ledger_id: int, entry_id: int, body: bytes, recovery: bool, source: str) -> None:  # noqa: FBT001
        """Record BK_STORE."""
        _, lac, length, payload = self._recorder.parse(ledger_id, body)
        self._recorder.append(
            _BK_STORE,
            self._actor,
            ledger_id,
            {
                "entry": entry_id,
                "content": fingerprint(payload),
                "recovery": recovery,
                "source": host_of(source),
                "lac": lac,
                "length": length,
            },
        )

    def entry_synced(self, ledger_id: int, entry_id: int) -> None:
        """Record BK_SYNC."""
        self._recorder.append(_BK_SYNC, self._actor, ledger_id, {"entry": entry_id})

    def lac_advanced(self, ledger_id: int, lac: int) -> None:
        """Record BK_LAC."""
        self._recorder.append(_BK_LAC, self._actor, ledger_id, {"lac": lac})

    def fence_set(self, ledger_id: int, source: str, durable: bool) -> None:  # noqa: FBT001
        """Record FENCE_SET."""
        self._recorder.record(Kind.FENCE_SET, self._actor, ledger_id, source=host_of(source), durable=durable)

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
        self.was_killed |= not clean  # one that did not start, after it had been killed, did not mend that
        self._recorder.record(Kind.BK_CRASH, self._actor, clean=clean, detail=detail)

    def restarted(self, incarnation: int, detail: str) -> None:
        """Record BK_RESTART."""
        self._recorder.record(
            Kind.BK_RESTART, self._actor, incarnation=incarnation, detail=detail, cookie=self._cookie()
        )
        self.was_killed = False


AnyWriter = LedgerWriter | AdvancedLedgerWriter


class ClientLog:
    """Where the clients of one process record what their application asks for and gets; numbers the readers it opens.

    ``before`` is that of the process's life before, whose numbers are not given again.
    """

    def __init__(self, recorder: Recorder, actor: str, incarnation: int, before: ClientLog | None = None) -> None:
        self.recorder = recorder
        self.actor = actor
        self._incarnation = incarnation
        #: How many readers have a number.
        self.handles: int = before.handles if before is not None else 0
        #: By log and cursor, the parts of the process that have it open.
        self.open_cursors: dict[tuple[str, str], list[object]] = {}
        #: Those that several had open at the same time.
        self.crowded_cursors: set[tuple[str, str]] = set()

    def new_handle(self) -> int:
        """The number of another reader."""
        self.handles += 1
        return self.handles

    def record(self, kind: Kind, ledger_id: int = -1, **fields: Any) -> None:
        """Record an event of this process."""
        self.recorder.append(kind, self.actor, ledger_id, fields)

    def added(
        self, writer: AnyWriter, entry_id: int, payload: bytes, future: AppendFuture, *, given: bool
    ) -> AppendFuture:
        """Record APP_ADD now, and APP_ACK, APP_FAIL or APP_CANCEL when the application gets the outcome.

        APP_ADD comes after the ADD_SENDs of the same entry, because an append that raises is not recorded.
        """
        content, is_durable, ledger_id = fingerprint(payload), not writer.is_deferred_sync, writer.ledger_id
        common: dict[str, Any] = {"incarnation": self._incarnation, "entry": entry_id}
        added = {**common, "content": content, "size": len(payload), "given": given}
        self.recorder.append(Kind.APP_ADD, self.actor, ledger_id, added)

        def on_done(done: AppendFuture) -> None:
            error = None if done.cancelled() else done.exception()
            if done.cancelled():
                self.record(Kind.APP_CANCEL, ledger_id, **common)
            elif error is None:
                self.record(Kind.APP_ACK, ledger_id, **common, content=content, durable=is_durable)
            else:
                self.record(Kind.APP_FAIL, ledger_id, **common, code=int(code_of(error)))

        future.add_done_callback(on_done)
        return future

    def spread(self, writer: AnyWriter, racks: tuple[tuple[str, str], ...]) -> None:
        """Record FAULT_DOMAINS: bookies of one rack alone confirm nothing to this writer."""
        bookies, names = zip(*racks, strict=True)
        self.record(Kind.FAULT_DOMAINS, writer.ledger_id, bookies=",".join(bookies), racks=",".join(names))

    async def closed(self, writer: AnyWriter, closing: Awaitable[None]) -> None:
        """Close; records CLOSE_START, and CLOSE_RESULT unless it is cancelled."""
        self.record(Kind.CLOSE_START, writer.ledger_id)
        code = Code.OK
        try:
            await closing
        except BookKeeperError as error:
            code = error.code
            raise
        finally:
            if code is not Code.OK or sys.exception() is None:
                metadata = writer.metadata
                end = metadata.last_entry_id if metadata.is_closed else -1
                result = {"code": int(code), "last_entry": end, "length": metadata.length}
                self.record(Kind.CLOSE_RESULT, writer.ledger_id, **result)

    async def forced(self, writer: AnyWriter, forcing: Awaitable[None]) -> None:
        """Force; records FORCE_START, and FORCE_RESULT unless it is cancelled."""
        self.record(Kind.FORCE_START, writer.ledger_id)
        try:
            await forcing
        except BookKeeperError as error:
            self.record(Kind.FORCE_RESULT, writer.ledger_id, code=int(error.code))
            raise
        self.record(Kind.FORCE_RESULT, writer.ledger_id, code=int(Code.OK))

    async def opened(
        self, ledger_id: int, opening: Awaitable[LedgerReader], *, recover: bool
    ) -> tuple[LedgerReader, ReaderLog]:
        """Open; records OPEN_START, OPEN_RESULT and, of an open ledger, the first LAC_ADV."""
        self.record(Kind.OPEN_START, ledger_id, recovery=recover)
        try:
            reader = await opening
        except BookKeeperError as error:
            nothing: dict[str, Any] = {"state": None, "last_entry": -1, "length": 0, "handle": -1}
            self.record(Kind.OPEN_RESULT, ledger_id, recovery=recover, code=int(error.code), **nothing)
            raise
        metadata, log = reader.metadata, ReaderLog(self, ledger_id, self.new_handle())
        found = {"state": metadata.state.name, "last_entry": metadata.last_entry_id, "length": metadata.length}
        self.record(Kind.OPEN_RESULT, ledger_id, recovery=recover, code=int(Code.OK), **found, handle=log.handle)
        if not metadata.is_closed:
            log.lac_advanced(reader.last_add_confirmed, "open")
        return reader, log


class ReaderLog:
    """Where one reader records what its application gets."""

    def __init__(self, log: ClientLog, ledger_id: int, handle: int) -> None:
        self.handle = handle
        self._log = log
        self._ledger_id = ledger_id

    async def read(self, reader: LedgerReader, entry_id: int, reading: Awaitable[Entry]) -> Entry:
        """Read one entry; records READ_RESULT with what the reader knew before."""
        lac, version = reader.last_add_confirmed, reader.metadata_version
        try:
            entry = await reading
        except BookKeeperError as error:
            self.result(entry_id, error.code, None, lac, version)
            raise
        self.result(entry_id, _OK, entry.payload, lac, version)
        return entry

    async def read_batch(self, reader: LedgerReader, first: int, reading: Awaitable[Entries]) -> Entries:
        """Read a batch; records READ_RESULT for each entry, or for the first with what it was refused with."""
        lac, version = reader.last_add_confirmed, reader.metadata_version
        try:
            entries = await reading
        except BookKeeperError as error:
            self.result(first, error.code, None, lac, version)
            raise
        for entry in entries:
            self.result(entry.entry_id, Code.OK, entry.payload, lac, version)
        return entries

    def polled(self, reader: LedgerReader, found: LastConfirmedAndEntry) -> None:
        """Record LAC_ADV, and READ_RESULT if the entry came with it."""
        self.lac_advanced(found.last_add_confirmed, "long-poll")
        if found.entry is not None:
            entry, version = found.entry, reader.metadata_version
            self.result(entry.entry_id, Code.OK, entry.payload, found.last_add_confirmed, version)

    def delivered(self, reader: LedgerReader, entry: Entry) -> None:
        """Record READ_RESULT for an entry that was not asked for by its id."""
        self.result(entry.entry_id, Code.OK, entry.payload, reader.last_add_confirmed, reader.metadata_version)

    def result(self, entry_id: int, code: Code, payload: bytes | None, lac: int, version: int) -> None:
        """Record READ_RESULT."""
        self._log.recorder.append(
            _READ_RESULT,
            self._log.actor,
            self._ledger_id,
            {
                "entry": entry_id,
                "code": int(code),
                "content": None if payload is None else fingerprint(payload),
                "size": 0 if payload is None else len(payload),
                "lac": lac,
                "version": version,
                "handle": self.handle,
            },
        )

    def lac_advanced(self, lac: int, source: str) -> None:
        """Record LAC_ADV."""
        self._log.record(Kind.LAC_ADV, self._ledger_id, lac=lac, source=source, handle=self.handle)

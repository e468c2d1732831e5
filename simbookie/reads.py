"""Reading from a bookie: single entries, fencing reads, batches, and LACs.

A fencing read fences first and reads then. A successful answer waits until the fence is durable; an error answer does not,
unless the configuration says so. Only reads that do not fence tell the known LAC.

Reads count against a limit until they are answered; high-priority and fencing reads do not, so that recovery is never shut
out by readers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bkclient.wire.messages import (
    LAST_ENTRY,
    BatchReadRequest,
    BatchReadResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Response,
    Status,
)
from simbookie.config import BookieConfig
from simbookie.ledgers import LedgerHandle, LedgerTable, status_of
from simbookie.storage.base import LedgerStorage, StorageError

__all__ = ["ReadDesk", "Respond", "status_of_read"]

Respond = Callable[[Response], None]
"""Takes the one answer to one request."""

#: Bytes of a batch read response before its first entry, and before each entry: the frame's and the bodies' lengths.
_BATCH_OVERHEAD: Final = 36
_BATCH_ENTRY_OVERHEAD: Final = 4
# Every read asks for it, and members of an enumeration take longer to find.
_OK: Final = Status.OK


class _Read:
    """One read on its way through the storage; ``handle`` is set once the ledger is found."""

    __slots__ = ("handle", "in_lane", "request", "respond")

    def __init__(self, request: ReadRequest, respond: Respond, handle: LedgerHandle, *, in_lane: bool) -> None:
        self.request = request
        self.respond = respond
        self.handle = handle
        self.in_lane = in_lane


class _Batch:
    """One batch read; ``bodies`` are those read so far, ``used`` the bytes of the response."""

    __slots__ = (
        "bodies",
        "count_max",
        "handle",
        "in_lane",
        "is_driven",
        "request",
        "respond",
        "size_max",
        "used",
        "wants_next",
    )

    def __init__(
        self, request: BatchReadRequest, respond: Respond, handle: LedgerHandle, config: BookieConfig, *, in_lane: bool
    ) -> None:
        self.request = request
        self.respond = respond
        self.handle = handle
        self.in_lane = in_lane
        self.is_driven = self.wants_next = False
        self.bodies: list[bytes] = []
        self.used = _BATCH_OVERHEAD
        self.size_max = min(request.max_size, config.batch_read_bytes_max)
        self.count_max = max(1, config.batch_read_entries_max)
        if request.max_count > 0:
            self.count_max = min(self.count_max, request.max_count)
        if request.entry_id == LAST_ENTRY:
            self.count_max = 1  # nothing comes after the last entry

    def take(self, body: bytes) -> bool:
        """Add ``body`` unless it makes the response too large; whether another entry may follow."""
        size = len(body) + _BATCH_ENTRY_OVERHEAD
        if self.bodies and self.used + size > self.size_max:
            return False
        self.bodies.append(body)
        self.used += size
        if len(self.bodies) == 1:
            # smaller entries later on do not raise the count that entries like the first would have
            fitting = 1 + max(0, self.size_max - self.used) // size
            self.count_max = min(self.count_max, fitting)
        return len(self.bodies) < self.count_max


def status_of_read(handle: LedgerHandle, body: bytes | None, error: StorageError | None) -> Status:
    """What a lookup in the storage means; a ledger in limbo never denies an entry (D11)."""
    if error is not None:
        return status_of(error)
    if body is not None:
        return _OK
    return Status.UNKNOWN_LEDGER_STATE if handle.in_limbo else Status.NO_ENTRY


class ReadDesk:
    """Answers the reads of one run of a bookie, long polls excepted."""

    def __init__(self, table: LedgerTable, storage: LedgerStorage, config: BookieConfig) -> None:
        self._table = table
        self._storage = storage
        self._config = config
        self.pending_reads = 0

    def _enter_lane(self, request: ReadRequest | BatchReadRequest) -> bool | None:
        """Whether the read counts against the limit of normal reads; ``None`` if that is reached."""
        if request.high_priority or request.fence_key is not None:
            return False
        if self.pending_reads >= self._config.pending_reads_max:
            return None
        return True

    def _locate(self, request: ReadRequest | BatchReadRequest, source: str) -> LedgerHandle | Status:
        """Find the ledger; for a fencing read check the key and fence it."""
        if request.fence_key is None:
            return self._table.find(request.ledger_id) or Status.NO_LEDGER
        if not request.fence_key:
            return Status.UNAUTHORIZED
        handle = self._table.open(request.ledger_id, request.fence_key)
        if isinstance(handle, LedgerHandle):
            self._table.fence(handle, source)
        return handle

    # ------------------------------------------------------------------------------------------------- single entries

    def read(self, request: ReadRequest, respond: Respond, source: str) -> None:
        """Answer a plain or a fencing read."""
        in_lane = self._enter_lane(request)
        handle = Status.TOO_MANY_REQUESTS if in_lane is None else self._locate(request, source)
        if not isinstance(handle, LedgerHandle):
            respond(ReadResponse(handle, request.ledger_id, request.entry_id))
            return
        self._read(_Read(request, respond, handle, in_lane=bool(in_lane)))

    def _read(self, read: _Read) -> None:
        if read.in_lane:
            self.pending_reads += 1
        if read.handle.in_limbo and read.request.entry_id == LAST_ENTRY:
            self._finish_read(read, Status.UNKNOWN_LEDGER_STATE, None)
        else:
            self._storage.read_entry(read.request.ledger_id, read.request.entry_id, self._entry_read, read)

    def _entry_read(self, read: _Read, body: bytes | None, error: StorageError | None) -> None:
        self._finish_read(read, status_of_read(read.handle, body, error), body)

    def _finish_read(self, read: _Read, status: Status, body: bytes | None) -> None:
        if read.in_lane:
            self.pending_reads -= 1
        request = read.request
        response = ReadResponse(status, request.ledger_id, request.entry_id, body)
        if request.fence_key is None:
            if status is _OK and not read.handle.in_limbo:
                response.max_lac = read.handle.lac
            read.respond(response)
        elif status is _OK or self._config.error_waits_for_fence:
            self._table.when_fence_is_durable(read.handle, self._answer_fencing, (read.respond, response))
        else:
            read.respond(response)

    # --------------------------------------------------------------------------------------------------------- batches

    def read_lac(self, request: ReadLacRequest, respond: Respond) -> None:
        """Answer with the explicit LAC and the last entry."""
        handle = self._table.find(request.ledger_id)
        if handle is None or handle.in_limbo:
            respond(ReadLacResponse(Status.NO_ENTRY, request.ledger_id))
        else:
            self._storage.read_entry(request.ledger_id, LAST_ENTRY, self._last_entry_read, (respond, request))

    def _last_entry_read(
        self, token: tuple[Respond, ReadLacRequest], body: bytes | None, error: StorageError | None
    ) -> None:
        respond, request = token
        lac_body = None
        try:
            if self._storage.ledger(request.ledger_id) is not None:
                lac_body = self._storage.explicit_lac(request.ledger_id)
        except StorageError as failure:
            error = failure
        status = Status.OK
        if error is not None:
            status = status_of(error)
        elif body is None:
            # A real bookie takes it for an I/O error that there is no last entry, and answers with what else it has.
            status = Status.NO_ENTRY if lac_body is None else Status.IO_ERROR
        respond(ReadLacResponse(status, request.ledger_id, lac_body, body))

    def batch_read(self, request: BatchReadRequest, respond: Respond, source: str) -> None:
        """Answer a batch read: consecutive entries until one is missing or a limit is reached; the first always fits."""
        in_lane = self._enter_lane(request)
        handle = Status.TOO_MANY_REQUESTS if in_lane is None else self._locate(request, source)
        if not isinstance(handle, LedgerHandle):
            respond(BatchReadResponse(handle, request.ledger_id, request.entry_id))
            return
        batch = _Batch(request, respond, handle, self._config, in_lane=bool(in_lane))
        if batch.in_lane:
            self.pending_reads += 1
        if handle.in_limbo and request.entry_id == LAST_ENTRY:
            self._finish_batch(batch, Status.UNKNOWN_LEDGER_STATE)
        else:
            self._read_next(batch)

    def _read_next(self, batch: _Batch) -> None:
        # a loop, not a recursion, as long as the storage calls back at once
        batch.wants_next = True
        if batch.is_driven:
            return
        batch.is_driven = True
        while batch.wants_next:
            batch.wants_next = False
            entry_id = batch.request.entry_id + len(batch.bodies)
            self._storage.read_entry(batch.request.ledger_id, entry_id, self._batch_entry_read, batch)
        batch.is_driven = False

    def _batch_entry_read(self, batch: _Batch, body: bytes | None, error: StorageError | None) -> None:
        status = status_of_read(batch.handle, body, error)
        if body is not None and status is Status.OK:
            if batch.take(body):
                self._read_next(batch)
                return
        elif batch.bodies:
            status = Status.OK
        self._finish_batch(batch, status)

    def _finish_batch(self, batch: _Batch, status: Status) -> None:
        if batch.in_lane:
            self.pending_reads -= 1
        request = batch.request
        response = BatchReadResponse(status, request.ledger_id, request.entry_id, tuple(batch.bodies))
        if request.fence_key is not None and (status is Status.OK or self._config.error_waits_for_fence):
            self._table.when_fence_is_durable(batch.handle, self._answer_fencing, (batch.respond, response))
        else:
            batch.respond(response)

    def _answer_fencing(
        self, answer: tuple[Respond, ReadResponse | BatchReadResponse], error: StorageError | None
    ) -> None:
        respond, response = answer
        if error is not None:
            response.status = Status.IO_ERROR
            if isinstance(response, ReadResponse):
                response.body = None
            else:
                response.bodies = ()
        respond(response)

"""Writing a ledger."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import anyio

from bkclient.core import ClientCore, entry_codec_for
from bkclient.errors import ArgumentError, BookKeeperError, ClientClosed, TooManyRequests, error_for
from bkclient.metadata.model import BookieId, Ensemble, LedgerMetadata, Versioned
from bkclient.placement import LedgerShape
from bkclient.protocol.append import AppendMachine
from bkclient.protocol.append_options import AppendOptions
from bkclient.protocol.pipeline import PendingAdd
from bkclient.protocol.update import MetadataUpdate
from bkclient.wire.messages import AddRequest, Request, Response

__all__ = ["LedgerWriter"]

Payload = bytes | bytearray | memoryview

#: Everything in a frame that is not payload: length prefix, packet or protobuf header, master key, entry header, digest.
_FRAME_OVERHEAD_BYTES = 192
_CLOSE_AFTER_ERROR_S = 5.0
_YIELD_EVERY_ENTRIES = 64


class LedgerWriter:
    """The single writer of a ledger, from :meth:`bkclient.BookKeeper.create_ledger`.

    ``await writer.append(payload)`` returns the entry's id once an ack quorum of bookies has stored it and everything before
    it. For throughput, keep many appends in flight::

        for payload in payloads:
            await writer.wait_for_room()  # returns at once while the window has room
            writer.append_nowait(payload)
        await writer.flush()

    Leaving ``async with writer:`` normally flushes and closes the ledger; leaving it by an exception closes it at the last
    confirmed entry. After the first failed append the writer accepts no more: its ledger is closed or taken over, and
    the application goes on in a new ledger.

    A failed or cancelled append is *ambiguous*: the entry may or may not be part of the ledger. All readers of the closed
    ledger agree on which.
    """

    def __init__(self, core: ClientCore, metadata: Versioned) -> None:
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._codec = entry_codec_for(metadata.metadata)
        self._master_key = self._codec.master_key
        self._submit = core.transport.submit
        self._machine = AppendMachine(
            metadata, self, options=AppendOptions(max_ensemble_changes=core.config.max_ensemble_changes)
        )
        self._max_entries = core.config.max_in_flight_entries
        self._max_bytes = core.config.max_in_flight_bytes
        self._max_payload = core.config.max_frame_size_bytes - _FRAME_OVERHEAD_BYTES
        self._resume_entries = self._max_entries * 3 // 4
        self._resume_bytes = self._max_bytes * 3 // 4
        self._in_flight_bytes = 0
        self._yield_at = _YIELD_EVERY_ENTRIES
        self._room_waiters: deque[asyncio.Future[None]] = deque()
        self._flush_waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._first_failure: BookKeeperError | None = None
        self._closed = asyncio.Event()
        self._close_error: BookKeeperError | None = None

    @property
    def ledger_id(self) -> int:
        """The ledger's id."""
        return self._machine.metadata.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as this writer knows it."""
        return self._machine.metadata

    @property
    def last_add_confirmed(self) -> int:
        """The highest entry id whose whole prefix is acknowledged; -1 before the first (LAC)."""
        return self._machine.last_add_confirmed

    @property
    def last_add_pushed(self) -> int:
        """The highest entry id handed out; -1 before the first (LAP)."""
        return self._machine.last_add_pushed

    @property
    def length(self) -> int:
        """Payload bytes appended so far, entries in flight included."""
        return self._machine.length

    @property
    def in_flight_entries(self) -> int:
        """Entries appended and not yet confirmed."""
        return self._machine.pending_count

    # Appending ---------------------------------------------------------------------------------------------------

    async def append(self, payload: Payload) -> int:
        """Append one entry and wait until it is durable; returns its id.

        Waits first while the in-flight window is full. Raises :class:`~bkclient.errors.LedgerFenced` when another client has
        taken over, :class:`~bkclient.errors.LedgerClosed` on a closed handle, :class:`~bkclient.errors.NotEnoughBookies` when a
        failed bookie cannot be replaced, and :class:`~bkclient.errors.ArgumentError` for a payload that is not bytes-like or
        larger than a frame can carry. Cancellation leaves the writer intact and the entry ambiguous.
        """
        await self.wait_for_room()
        return await self.append_nowait(payload)

    def append_nowait(self, payload: Payload) -> asyncio.Future[int]:
        """Send one entry and return a future of its id; raises :class:`~bkclient.errors.TooManyRequests` without room.

        Futures complete in entry id order. They need not be awaited: a failure is also raised by :meth:`flush`.
        """
        data = payload if type(payload) is bytes else self._checked(payload)
        size = len(data)
        if size > self._max_payload:
            raise ArgumentError(
                f"a payload of {size} bytes exceeds the {self._max_payload} bytes that fit a frame",
                ledger_id=self.ledger_id,
            )
        machine = self._machine
        if not machine.is_writable or self._core.is_closed:
            raise self._refusal()
        if not self._has_room:
            raise TooManyRequests(
                f"{machine.pending_count} entries with {self._in_flight_bytes} bytes are in flight; wait_for_room() first",
                ledger_id=self.ledger_id,
            )
        future: asyncio.Future[int] = self._loop.create_future()
        self._in_flight_bytes += size
        machine.append(data, future)
        return future

    async def wait_for_room(self) -> None:
        """Wait until the in-flight window takes another entry. Returns at once on a writer that accepts no more.

        Now and then it passes control to the loop even with room, so that a producer which never waits for anything
        else does not keep what it appended from leaving.
        """
        if self._machine.last_add_pushed >= self._yield_at:
            self._yield_at = self._machine.last_add_pushed + _YIELD_EVERY_ENTRIES
            await asyncio.sleep(0)
        while not self._has_room and self._machine.is_writable:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._room_waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter.cancelled():
                    with suppress(ValueError):
                        self._room_waiters.remove(waiter)
                else:
                    # The turn goes on once this waiter has had its chance, whether it appends, fails or was cancelled.
                    self._loop.call_soon(self._wake_next_room_waiter)

    async def flush(self) -> None:
        """Wait until everything appended so far is confirmed; raises the error of the first append that failed."""
        machine = self._machine
        if self._first_failure is not None:
            raise self._copy_of(self._first_failure, self._first_failure.entry_id)
        target = machine.last_add_pushed
        if machine.last_add_confirmed >= target:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._flush_waiters.append((target, waiter))
        await waiter

    @property
    def _has_room(self) -> bool:
        return self._machine.pending_count < self._max_entries and self._in_flight_bytes < self._max_bytes

    @property
    def _has_ample_room(self) -> bool:
        # Who waited goes on when a quarter of the window is free, so that entries leave in batches: a bookie serves one
        # frame of twenty entries in far less time than twenty frames of one.
        return self._machine.pending_count <= self._resume_entries and self._in_flight_bytes <= self._resume_bytes

    def _checked(self, payload: Payload) -> bytes:
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            raise ArgumentError(
                f"a payload is bytes, bytearray or memoryview, not {type(payload).__name__}", ledger_id=self.ledger_id
            )
        return bytes(payload)  # the caller may change its buffer while the entry is in flight

    def _refusal(self) -> BookKeeperError:
        if self._core.is_closed:
            return ClientClosed(ledger_id=self.ledger_id)
        return self._machine.refusal()

    def _copy_of(self, error: BookKeeperError, entry_id: int | None = None) -> BookKeeperError:
        copy = error_for(error.code, ledger_id=self.ledger_id, entry_id=entry_id)
        copy.__cause__ = error
        return copy

    # Closing -----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Seal the ledger at the last confirmed entry; entries still in flight fail with ``LedgerClosed`` (W-51, W-52).

        Call :meth:`flush` first to keep them. Raises :class:`~bkclient.errors.MetadataVersionConflict` when another client
        closed the ledger at another entry, :class:`~bkclient.errors.ClientClosed` when the client was closed first. Every call
        reports the outcome of the first (W-55); cancellation does not stop the closing.
        """
        if self._core.is_closed and not self._closed.is_set():
            raise ClientClosed(
                "the client was closed before the writer; the ledger is still open", ledger_id=self.ledger_id
            )
        self._machine.close()
        await self._closed.wait()
        if self._close_error is not None:
            raise self._close_error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc is None:
            try:
                await self.flush()
            finally:
                await self.close()
            return
        # Also when the block was cancelled: an ordinary end saves the next reader a recovery, but must not take long.
        with anyio.move_on_after(_CLOSE_AFTER_ERROR_S, shield=True):
            try:
                await self.close()
            except BookKeeperError as close_error:
                exc.add_note(f"closing ledger {self.ledger_id} failed too: {close_error}")

    # Ports of the machine ----------------------------------------------------------------------------------------

    def send_add(self, add: PendingAdd, bookie_id: BookieId) -> None:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        request = add.request
        if request is None:
            header = self._codec.encode_header(add.entry_id, add.last_add_confirmed, add.length, add.payload)
            request = add.request = AddRequest(self.ledger_id, add.entry_id, self._master_key, header, add.payload)
        self._submit(bookie_id, request, self._on_add_reply)

    def _on_add_reply(self, bookie_id: str, request: Request, code: int, _response: Response | None) -> None:
        assert isinstance(request, AddRequest), "only adds are answered here"
        self._machine.on_add_reply(bookie_id, request.entry_id, code)

    def confirm_add(self, add: PendingAdd) -> None:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        self._in_flight_bytes -= len(add.payload)
        future: asyncio.Future[int] = add.token
        if not future.done():
            future.set_result(add.entry_id)
        if self._room_waiters:
            self._wake_room_waiters()
        while self._flush_waiters and self._flush_waiters[0][0] <= add.entry_id:
            waiter = self._flush_waiters.popleft()[1]
            if not waiter.done():
                waiter.set_result(None)

    def fail_add(self, add: PendingAdd, error: BookKeeperError) -> None:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        self._in_flight_bytes -= len(add.payload)
        failure = self._copy_of(error, add.entry_id)
        if self._first_failure is None:
            self._first_failure = failure
        _fail_quietly(add.token, failure)
        self._wake_room_waiters()
        while self._flush_waiters:
            _fail_quietly(self._flush_waiters.popleft()[1], self._copy_of(failure, add.entry_id))

    def _wake_room_waiters(self) -> None:
        if not self._machine.is_writable:  # all are let go, to be refused
            while self._room_waiters:
                waiter = self._room_waiters.popleft()
                if not waiter.done():
                    waiter.set_result(None)
        elif self._has_ample_room:
            self._wake_next_room_waiter()

    def _wake_next_room_waiter(self) -> None:
        # One at a time: each takes its room before the next one looks.
        while self._room_waiters and self._has_room:
            waiter = self._room_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def run_update(self, update: MetadataUpdate) -> None:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        self._core.run_update(update, self._machine.on_update_done)

    def replace_bookie(self, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]) -> BookieId | None:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        shape = LedgerShape.of(self._machine.metadata)
        return self._core.watcher.replace(shape, ensemble, position, excluded)

    def is_ensemble_change_disabled(self) -> bool:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        return False

    def retry_later(self, delay_s: float) -> None:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        self._loop.call_later(delay_s, self._machine.on_retry)

    def spans_fault_domains(self, bookies: tuple[BookieId, ...]) -> bool:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        return self._core.watcher.policy.covers_fault_domains(LedgerShape.of(self._machine.metadata), bookies)

    def close_finished(self, error: BookKeeperError | None) -> None:
        """Port of :class:`~bkclient.protocol.append.AppendMachine`."""
        self._close_error = error
        self._closed.set()


def _fail_quietly(future: asyncio.Future[Any], error: BookKeeperError) -> None:
    """Set the exception without a complaint if nobody ever asks for it: flush() and close() report it too."""
    if not future.done():
        future.set_exception(error)
        future.exception()

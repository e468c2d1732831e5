"""One bookie over TCP: connecting, backing off, sending, timing out, losing the connection.

A :class:`BookieLink` lives as long as the transport and is always in one of three conditions:

* *idle*: no connection. The next request starts one, unless the link is backing off: then requests fail at once.
* *connecting*: one task resolves, connects, and secures the connection if that is asked for
  (:mod:`bkclient.transport.security`); requests wait, and fail together if it fails (W-47).
* *connected*: a :class:`_Stream` sends requests and receives answers. When it ends, for whatever reason, all that was
  outstanding on it fails and the link is idle.

A connection counts as working once its first answer has arrived: a bookie that is starting up accepts connections and closes
them, and has to be backed off from as one that refuses them.

Per request there is no task, no lock and no timer. Frames submitted during one turn of the event loop leave in one call to
the socket at its end, and one periodic timer per connection looks for requests that have waited too long.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, cast

from bkclient import log
from bkclient.errors import BookKeeperError, Code, IllegalOperation, code_of
from bkclient.metadata.base import BookieAddress
from bkclient.refusal import Refusal
from bkclient.stats import (
    ACTIVE_CHANNELS,
    ACTIVE_TLS_CHANNELS,
    CONNECT,
    FAILED_CONNECTIONS,
    FAILED_TLS_HANDSHAKES,
    BookieStats,
)
from bkclient.transport.base import ReplyHandler
from bkclient.transport.security import UNANSWERED, Handshake, Security, refusal_in
from bkclient.transport.socket_options import apply_socket_options
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.connection import ClientConnection
from bkclient.wire.errors import FrameTooLarge, WireError
from bkclient.wire.messages import AddRequest, Operation, ReadRequest, Request, Response, Status, code_for_status

__all__ = ["BookieLink", "FailLater", "LinkContext", "deliver"]

FailLater = Callable[[ReplyHandler, str, Request, int], None]
"""Arranges for a handler to be called with a code, soon but not now."""

#: How often per timeout outstanding requests are looked through.
_SCANS_PER_TIMEOUT: Final = 20
_LARGEST_EXPONENT: Final = 30


def deliver(
    reply_to: ReplyHandler, bookie_id: str, request: Request, code: int, response: Response | None = None
) -> None:
    """Call a handler; what it raises is reported to the event loop and costs nobody else their outcome."""
    try:
        reply_to(bookie_id, request, code, response)
    except Exception as error:  # noqa: BLE001 - handlers belong to callers, and may fail in any way
        context = {"message": f"the reply handler {reply_to!r} raised", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


@dataclass(frozen=True, slots=True)
class LinkContext:
    """What the links of one transport share."""

    config: TcpTransportConfig
    resolve: Callable[[str], Awaitable[BookieAddress]]
    rng: random.Random
    txn_ids: Iterator[int]
    fail: FailLater
    unavailable: log.Throttle
    stats: BookieStats | None
    security: Security | None = None
    #: By bookie, the number of the newest connection; see :attr:`bkclient.transport.base.BookieTransport.connections`.
    connections: dict[str, int] = field(default_factory=dict)
    connection_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))


class BookieLink:
    """One channel to one bookie in one protocol version."""

    def __init__(self, bookie_id: str, protocol_version: int, context: LinkContext) -> None:
        self.bookie_id = bookie_id
        self.protocol_version = protocol_version
        self.context = context
        self.config = context.config
        self.fail = context.fail
        self._stream: _Stream | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: list[tuple[Request, ReplyHandler]] = []
        self._waiting_bytes = 0
        self._failures = 0
        self._retry_at = 0.0
        #: What requests fail with while the link backs off: what the last attempt failed with.
        self._unavailable: int = Code.BOOKIE_NOT_AVAILABLE
        self._ends: dict[_Stream, asyncio.Future[None]] = {}
        self._is_closed = False
        security = context.security
        self._level = ACTIVE_CHANNELS if security is None or security.tls is None else ACTIVE_TLS_CHANNELS

    def submit(self, request: Request, reply_to: ReplyHandler) -> None:
        """Send ``request``, now or once connected; the handler is called later in any case."""
        stream = self._stream
        if stream is not None:
            stream.submit(request, reply_to)
            return
        loop = asyncio.get_running_loop()
        if self._connecting is None:
            if loop.time() < self._retry_at:
                self.fail(reply_to, self.bookie_id, request, self._unavailable)
                return
            self._connecting = loop.create_task(self._connect(), name=f"connect to bookie {self.bookie_id}")
        size = len(request.header) + len(request.payload) if isinstance(request, AddRequest) else 0
        if (
            len(self._waiting) >= self.config.max_outstanding_requests
            or self._waiting_bytes >= self.config.max_outstanding_bytes
        ):
            self.fail(reply_to, self.bookie_id, request, Code.TOO_MANY_REQUESTS)
            return
        self._waiting.append((request, reply_to))
        self._waiting_bytes += size

    @property
    def pending_requests(self) -> int:
        """Requests without an outcome."""
        return len(self._waiting) + (0 if self._stream is None else self._stream.outstanding_requests)

    @property
    def is_writable(self) -> bool:
        """Whether the socket takes what is sent; true while there is none."""
        return self._stream is None or self._stream.is_writable

    def close(self) -> None:
        """Fail everything with ``CLIENT_CLOSED`` and end the connection; :meth:`wait_closed` tells when that is done."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._stream is not None:
            self._stream.abort(Code.CLIENT_CLOSED)
        self._fail_waiting(Code.CLIENT_CLOSED)

    async def wait_closed(self) -> None:
        """Return when no task and no socket is left."""
        if self._connecting is not None:
            await asyncio.wait([self._connecting])
        if self._ends:
            await asyncio.wait(list(self._ends.values()))

    # Called by the streams.

    def connected(self, stream: _Stream, address: object) -> None:
        """A connection stands: hand over what waited for it."""
        self._ends[stream] = asyncio.get_running_loop().create_future()
        self.context.connections[self.bookie_id] = next(self.context.connection_numbers)
        log.CONNECTION_MADE(bookie_id=self.bookie_id, address=address)
        if self.context.stats is not None:
            self.context.stats.bookie_level(self.bookie_id, self._level, 1)
        if self._is_closed:
            stream.abort(Code.CLIENT_CLOSED)
            return
        self._stream = stream
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for request, reply_to in waiting:
            stream.submit(request, reply_to)

    def answered(self) -> None:
        """The bookie answers, so the connection is a success."""
        self._failures = 0
        self.context.unavailable.reset(self.bookie_id)

    def detach(self, stream: _Stream, code: int, *, was_working: bool, reason: str) -> None:
        """The connection is of no more use."""
        if not self._is_closed:
            log.CONNECTION_LOST(bookie_id=self.bookie_id, outstanding=stream.outstanding_requests, reason=reason)
        if self._stream is stream:
            self._stream = None
            if not was_working:
                self._back_off(code)

    def ended(self, stream: _Stream) -> None:
        """The connection's socket is closed."""
        self._ends.pop(stream).set_result(None)
        if self.context.stats is not None:
            self.context.stats.bookie_level(self.bookie_id, self._level, -1)

    # Connecting.

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        stats = self.context.stats
        began = 0.0 if stats is None else stats.now()
        code = Code.OK
        handshake = self._new_handshake()
        try:
            async with asyncio.timeout(self.config.connect_timeout_s):
                address = await self.context.resolve(self.bookie_id)
                if handshake is None:
                    await loop.create_connection(lambda: _Stream(self), address.host, address.port)
                else:
                    await handshake.connect(address)
            if handshake is not None:
                transport, stream = await handshake.complete(), _Stream(self)
                transport.set_protocol(stream)
                stream.connection_made(transport)
        except (OSError, BookKeeperError) as error:
            code = code_of(error, Code.BOOKIE_NOT_AVAILABLE)
            self._connect_failed(error)
        except Exception as error:  # noqa: BLE001 - requests wait for this task, whatever the resolver raises
            code = Code.UNEXPECTED_CONDITION
            self._connect_failed(error)
            loop.call_exception_handler({"message": f"connecting to bookie {self.bookie_id}", "exception": error})
        finally:
            self._connecting = None
        if stats is not None:
            stats.request(self.bookie_id, CONNECT, stats.now() - began, code)
            if code != Code.OK:
                stats.bookie_event(self.bookie_id, FAILED_CONNECTIONS)
            if code == Code.SECURITY:
                stats.bookie_event(self.bookie_id, FAILED_TLS_HANDSHAKES)

    def _connect_failed(self, error: Exception) -> None:
        held_back = self.context.unavailable.passes(self.bookie_id, asyncio.get_running_loop().time())
        if held_back is not None:
            log.BOOKIE_UNAVAILABLE(bookie_id=self.bookie_id, reason=reason_of(error), held_back=held_back)
        code = refusal_in(error) or Code.BOOKIE_NOT_AVAILABLE
        if self._stream is None:
            self._back_off(code)
        self._fail_waiting(code)

    def _new_handshake(self) -> Handshake | None:
        context = self.context
        if context.security is None:
            return None
        frame_size = self.config.max_frame_size_bytes
        return Handshake(context.security, self.bookie_id, self.protocol_version, frame_size, context.txn_ids)

    def _back_off(self, code: int) -> None:
        self._unavailable = code
        config = self.config
        delay = min(config.backoff_initial_s * 2 ** min(self._failures, _LARGEST_EXPONENT), config.backoff_max_s)
        self._failures += 1
        self._retry_at = asyncio.get_running_loop().time() + delay * self.context.rng.uniform(0.5, 1.0)

    def _fail_waiting(self, code: int) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for request, reply_to in waiting:
            deliver(reply_to, self.bookie_id, request, code)


def reason_of(error: BaseException) -> str:
    """What an exception says, or at least its name: a timeout says nothing."""
    return str(error) or type(error).__name__


class _Stream(asyncio.BufferedProtocol):
    """One established connection: the event loop's end of a :class:`~bkclient.wire.connection.ClientConnection`."""

    def __init__(self, link: BookieLink) -> None:
        config = link.config
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._connection: ClientConnection[ReplyHandler] = ClientConnection(
            link.protocol_version, config.max_frame_size_bytes, link.context.txn_ids
        )
        self._add_timeout_s = config.add_timeout_s
        self._read_timeout_s = config.read_timeout_s
        self._info_timeout_s = config.bookie_info_timeout_s
        shortest_s = min(config.add_timeout_s, config.read_timeout_s, config.bookie_info_timeout_s)
        self._scan_interval_s = shortest_s / _SCANS_PER_TIMEOUT
        self._max_requests = config.max_outstanding_requests
        self._max_bytes = config.max_outstanding_bytes
        self._transport: asyncio.Transport | None = None
        self._buffers: list[bytes] = []
        self._now = 0.0
        self._scan: asyncio.TimerHandle | None = None
        self._is_working = False
        self._is_paused = False
        self._is_detached = False

    @property
    def outstanding_requests(self) -> int:
        """Requests sent and not answered."""
        return self._connection.outstanding_requests

    @property
    def is_writable(self) -> bool:
        """Whether less is unsent than the high-water mark allows."""
        return not self._is_paused

    def submit(self, request: Request, reply_to: ReplyHandler) -> None:
        """Encode ``request`` for the flush at the end of this turn of the loop."""
        connection = self._connection
        if (
            connection.outstanding_requests >= self._max_requests
            or connection.outstanding_bytes >= self._max_bytes
            or (self._is_paused and self._unsent_bytes() >= self._max_bytes)  # of requests that have timed out
        ):
            self._fail(request, reply_to, Code.TOO_MANY_REQUESTS)
            return
        if not self._buffers:
            self._now = self._loop.time()
        operation = request.operation
        timeout_s = self._add_timeout_s if operation is Operation.ADD_ENTRY else self._read_timeout_s
        if operation is Operation.READ_ENTRY and isinstance(request, ReadRequest):
            timeout_s += request.wait_s  # a long poll is not late while the bookie waits as asked (H-21)
        elif operation is Operation.GET_BOOKIE_INFO:
            timeout_s = self._info_timeout_s
        try:
            buffers = connection.send(request, reply_to, self._now + timeout_s)
        except (IllegalOperation, FrameTooLarge):
            self._fail(request, reply_to, Code.ILLEGAL_OPERATION)
            return
        if not self._buffers:
            self._loop.call_soon(self._flush)
            if self._scan is None:
                self._scan = self._loop.call_later(self._scan_interval_s, self._expire)
        self._buffers += buffers

    def abort(self, code: int, reason: str = "the client was closed") -> None:
        """Give the connection up now; what was outstanding ends with ``code``."""
        self._detach(code, reason)
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See :class:`asyncio.BaseProtocol`."""
        # uvloop has transports of its own, which are no subclasses of asyncio's
        self._transport = cast("asyncio.Transport", transport)
        config = self._link.config
        self._transport.set_write_buffer_limits(
            config.write_buffer_high_water_bytes, config.write_buffer_low_water_bytes
        )
        apply_socket_options(self._transport.get_extra_info("socket"), config)
        self._link.connected(self, self._transport.get_extra_info("peername"))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the frame buffer knows better
        """See :class:`asyncio.BufferedProtocol`."""
        return self._connection.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """See :class:`asyncio.BufferedProtocol`."""
        bookie_id = self._link.bookie_id
        try:
            for request, reply_to, status, response in self._connection.buffer_updated(nbytes):
                if not self._is_working:
                    self._is_working = True
                    self._link.answered()
                code = Code.OK if status is Status.OK else code_for_status(status, request.operation)
                try:
                    reply_to(bookie_id, request, code, response)
                except Exception as error:  # noqa: BLE001 - as in deliver(), whose call would cost every answer
                    context = {"message": f"the reply handler {reply_to!r} raised", "exception": error}
                    self._loop.call_exception_handler(context)
        except WireError as error:
            self.abort(Code.BOOKIE_NOT_AVAILABLE, f"it does not keep to the protocol ({reason_of(error)})")

    def eof_received(self) -> None:
        """See :class:`asyncio.BufferedProtocol`. A bookie that closed its side will not answer any more."""
        self.abort(self._outcome_of_loss(None), "the bookie closed it")

    def pause_writing(self) -> None:
        """See :class:`asyncio.BaseProtocol`. Frames go on to the transport; what piles up there is bounded by submit."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """See :class:`asyncio.BaseProtocol`."""
        self._is_paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.BaseProtocol`. The outcome is the same for every reason but TLS."""
        self._detach(self._outcome_of_loss(exc), "it broke" if exc is None else reason_of(exc))
        self._link.ended(self)

    # Inside.

    def _outcome_of_loss(self, error: Exception | None) -> int:
        """A bookie that does not accept the client's certificate says so, if at all, after TLS stands for the client (1.3)."""
        refusal = None if error is None else refusal_in(error)
        security = self._link.context.security
        if refusal is None and not self._is_working and security is not None and security.tls is not None:
            refusal = Refusal(Code.SECURITY, UNANSWERED)
        return Code.BOOKIE_NOT_AVAILABLE if refusal is None else refusal

    def _flush(self) -> None:
        buffers, self._buffers = self._buffers, []
        if self._transport is not None and not self._is_detached:
            self._transport.writelines(buffers)

    def _expire(self) -> None:
        self._scan = None
        expired = self._connection.expire(self._loop.time())
        if self._connection.outstanding_requests:
            self._scan = self._loop.call_later(self._scan_interval_s, self._expire)
        for request, reply_to in expired:
            deliver(reply_to, self._link.bookie_id, request, Code.TIMEOUT)

    def _detach(self, code: int, reason: str) -> None:
        if self._is_detached:
            return
        self._is_detached = True
        if self._scan is not None:
            self._scan.cancel()
            self._scan = None
        self._link.detach(self, code, was_working=self._is_working, reason=reason)
        for request, reply_to in self._connection.abandon():
            deliver(reply_to, self._link.bookie_id, request, code)

    def _unsent_bytes(self) -> int:
        # Without those of this turn, all of which are outstanding and so bounded already.
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _fail(self, request: Request, reply_to: ReplyHandler, code: int) -> None:
        self._link.fail(reply_to, self._link.bookie_id, request, code)

"""One established connection to a bookie: sending, timing out, receiving.

Per request there is no task, no lock and no timer. Frames submitted during one turn of the event loop leave in one call to
the socket at its end, and one periodic timer per connection looks for requests that have waited too long.

What the socket does not take waits here, not in the event loop's transport (:mod:`bkclient.transport.outgoing`). Whether it
takes more is asked of the transport's size, because ``writelines`` of CPython 3.12.0 to 3.12.8, 3.13.0 and 3.13.1 never says
that writing has to pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, cast

from bkclient.errors import Code, IllegalOperation, Refusal
from bkclient.transport.base import ReplyHandler
from bkclient.transport.handshake import UNANSWERED, refusal_in
from bkclient.transport.outgoing import Outgoing, chunk_bytes_for
from bkclient.transport.socket_options import apply_socket_options
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.connection import ClientConnection
from bkclient.wire.errors import FrameTooLarge, WireError
from bkclient.wire.messages import Operation, Request, Response, Status, code_for_status
from bkclient.wire.outstanding import KeyInUse

__all__ = ["Stream", "StreamOwner", "deliver", "reason_of"]


def deliver(
    reply_to: ReplyHandler, bookie_id: str, request: Request, code: int, response: Response | None = None
) -> None:
    """Call a handler; what it raises is reported to the event loop and costs nobody else their outcome."""
    try:
        reply_to(bookie_id, request, code, response)
    except Exception as error:  # noqa: BLE001 - handlers belong to callers, and may fail in any way
        context = {"message": f"the reply handler {reply_to!r} raised", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


def reason_of(error: BaseException) -> str:
    """What an exception says, or at least its name: a timeout says nothing."""
    return str(error) or type(error).__name__


class StreamOwner(Protocol):
    """What a stream belongs to: a lane of a link."""

    @property
    def needs_care(self) -> bool:
        """Whether :meth:`settled` has to be called for answers; it is for requests that are given up."""
        ...

    def connected(self, stream: Stream, address: object) -> None:
        """The connection stands."""
        ...

    def answered(self) -> None:
        """The bookie answers, so the connection is a success."""
        ...

    def settled(self, stream: Stream) -> None:
        """Requests were answered or given up."""
        ...

    def refused(self, request: Request, reply_to: ReplyHandler, key: bytes) -> None:
        """``request`` was not sent: ``key`` is taken on this connection."""
        ...

    def fail(self, request: Request, reply_to: ReplyHandler, code: int) -> None:
        """Arrange for a handler to be called with a code, soon but not now."""
        ...

    def detach(self, stream: Stream, code: int, *, was_working: bool, reason: str) -> None:
        """The connection is of no more use."""
        ...

    def ended(self, stream: Stream) -> None:
        """The connection's socket is closed."""
        ...


class Stream(asyncio.BufferedProtocol):
    """The event loop's end of a :class:`~bkclient.wire.connection.ClientConnection`."""

    def __init__(
        self,
        owner: StreamOwner,
        bookie_id: str,
        connection: ClientConnection[ReplyHandler],
        config: TcpTransportConfig,
        *,
        is_tls: bool,
    ) -> None:
        self._owner = owner
        self._bookie_id = bookie_id
        self._config = config
        self._is_tls = is_tls
        self._loop = asyncio.get_running_loop()
        self.connection = connection
        self._load = connection.load
        self._add_timeout_s = config.add_timeout_s
        self._scan_interval_s = config.scan_interval_s
        self._max_requests = config.max_outstanding_requests
        self._max_bytes = config.max_outstanding_bytes
        self._transport: asyncio.Transport | None = None
        self._high_water = config.write_buffer_high_water_bytes
        #: Frames of this turn of the loop, and those that the transport does not take; not empty while it does.
        self._buffers: list[bytes] = []
        self._outgoing = Outgoing()
        self._now = 0.0
        self._scan: asyncio.TimerHandle | None = None
        self._is_working = False
        self._is_paused = False
        self._is_detached = False

    @property
    def is_writable(self) -> bool:
        """Whether less is unsent than the high-water mark allows."""
        return not self._is_paused

    def submit(self, request: Request, reply_to: ReplyHandler) -> None:
        """Encode ``request`` for the flush at the end of this turn of the loop."""
        load = self._load
        if (
            load.requests >= self._max_requests
            or load.bytes >= self._max_bytes
            or (self._is_paused and self._unsent_bytes() >= self._max_bytes)  # of requests that have timed out
        ):
            self._owner.fail(request, reply_to, Code.TOO_MANY_REQUESTS)
            return
        if not self._buffers:
            self._now = self._loop.time()
        is_add = request.operation is Operation.ADD_ENTRY
        timeout_s = self._add_timeout_s if is_add else self._config.timeout_s(request)
        try:
            buffers = self.connection.send(request, reply_to, self._now + timeout_s)
        except (IllegalOperation, FrameTooLarge):
            self._owner.fail(request, reply_to, Code.ILLEGAL_OPERATION)
            return
        except KeyInUse as taken:
            self._owner.refused(request, reply_to, taken.key)
            return
        if not self._buffers:
            self._loop.call_soon(self._flush)
            if self._scan is None:
                self._scan = self._loop.call_later(self._scan_interval_s, self._expire)
        self._buffers += buffers

    def abort(self, code: int, reason: str) -> None:
        """Give the connection up now; what was outstanding ends with ``code``."""
        self._detach(code, reason)
        if self._transport is not None:
            self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See :class:`asyncio.BaseProtocol`."""
        # uvloop has transports of its own, which are no subclasses of asyncio's
        self._transport = cast("asyncio.Transport", transport)
        config = self._config
        self._outgoing.chunk_bytes = chunk_bytes_for(transport)
        self._transport.set_write_buffer_limits(
            config.write_buffer_high_water_bytes, config.write_buffer_low_water_bytes
        )
        apply_socket_options(self._transport.get_extra_info("socket"), config)
        self._owner.connected(self, self._transport.get_extra_info("peername"))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the frame buffer knows better
        """See :class:`asyncio.BufferedProtocol`."""
        return self.connection.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """See :class:`asyncio.BufferedProtocol`."""
        bookie_id = self._bookie_id
        try:
            for request, reply_to, status, response in self.connection.buffer_updated(nbytes):
                if not self._is_working:
                    self._is_working = True
                    self._owner.answered()
                code = Code.OK if status is Status.OK else code_for_status(status, request.operation)
                try:
                    reply_to(bookie_id, request, code, response)
                except Exception as error:  # noqa: BLE001 - as in deliver(), whose call would cost every answer
                    context = {"message": f"the reply handler {reply_to!r} raised", "exception": error}
                    self._loop.call_exception_handler(context)
        except WireError as error:
            self.abort(Code.BOOKIE_NOT_AVAILABLE, f"it does not keep to the protocol ({error.message})")
        if self._owner.needs_care:
            self._owner.settled(self)

    def eof_received(self) -> None:
        """See :class:`asyncio.BufferedProtocol`. A bookie that closed its side will not answer any more."""
        self.abort(self._outcome_of_loss(None), "the bookie closed it")

    def pause_writing(self) -> None:
        """See :class:`asyncio.BaseProtocol`. What is to be sent waits here from now on; submit bounds it."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """See :class:`asyncio.BaseProtocol`."""
        self._is_paused = False
        self._send_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.BaseProtocol`. The outcome is the same for every reason but TLS."""
        self._detach(self._outcome_of_loss(exc), "it broke" if exc is None else reason_of(exc))
        self._owner.ended(self)

    # Inside.

    def _outcome_of_loss(self, error: Exception | None) -> int:
        """A bookie that does not accept the client's certificate says so, if at all, after TLS stands for the client (1.3)."""
        refusal = None if error is None else refusal_in(error)
        if refusal is None and not self._is_working and self._is_tls:
            refusal = Refusal(Code.SECURITY, UNANSWERED)
        return Code.BOOKIE_NOT_AVAILABLE if refusal is None else refusal

    def _flush(self) -> None:
        buffers, self._buffers = self._buffers, []
        if self._transport is None or self._is_detached:
            return
        # What is sent is outstanding, so as long as little is outstanding nothing has to be added up.
        most = self._outgoing.chunk_bytes
        if self._is_paused or (self._load.bytes > most and sum(map(len, buffers)) > most):
            self._outgoing.add(buffers)
            self._send_on()
        else:
            self._write(self._transport, buffers)

    def _send_on(self) -> None:
        outgoing, transport = self._outgoing, self._transport
        while outgoing.size and not self._is_paused and transport is not None and not self._is_detached:
            self._write(transport, outgoing.take())

    def _write(self, transport: asyncio.Transport, buffers: Sequence[bytes | memoryview]) -> None:
        transport.writelines(buffers)
        if not self._is_paused and transport.get_write_buffer_size() > self._high_water:
            # It should have paused; setting the limits makes it look. It calls resume_writing later, as always.
            transport.set_write_buffer_limits(self._high_water, self._config.write_buffer_low_water_bytes)

    def _expire(self) -> None:
        self._scan = None
        expired = self.connection.expire(self._loop.time())
        if self.connection.outstanding:
            self._scan = self._loop.call_later(self._scan_interval_s, self._expire)
        if expired:
            self._owner.settled(self)
        for request, reply_to in expired:
            deliver(reply_to, self._bookie_id, request, Code.TIMEOUT)

    def _detach(self, code: int, reason: str) -> None:
        if self._is_detached:
            return
        self._is_detached = True
        if self._scan is not None:
            self._scan.cancel()
            self._scan = None
        self._outgoing.clear()
        self._owner.detach(self, code, was_working=self._is_working, reason=reason)
        for request, reply_to in self.connection.abandon():
            deliver(reply_to, self._bookie_id, request, code)

    def _unsent_bytes(self) -> int:
        # Without those of this turn, all of which are outstanding and so bounded already.
        return self._outgoing.size + (0 if self._transport is None else self._transport.get_write_buffer_size())

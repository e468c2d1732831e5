"""One established connection to a bookie over TCP: frames out, bytes in.

The frames submitted during one turn of the event loop leave in one call to the socket. What becomes of requests is in
:mod:`bkclient.transport.request_stream`.

What the socket does not take waits here, not in the event loop's transport (:mod:`bkclient.transport.outgoing`). Whether it
takes more is asked of the transport's size, because ``writelines`` of CPython 3.12.0 to 3.12.8, 3.13.0 and 3.13.1 never says
that writing has to pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from bkclient._core import has_twins
from bkclient.errors import Code, Refusal
from bkclient.transport.handshake import UNANSWERED, refusal_in, socket_closed
from bkclient.transport.outgoing import Outgoing, chunk_bytes_for
from bkclient.transport.request_stream import Handler, RequestStream, StreamOwner, reason_of
from bkclient.transport.socket_options import apply_socket_options
from bkclient.transport.stream_state import StreamState
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.connection import ClientConnection
from bkclient.wire.errors import WireError

__all__ = ["Stream"]


class Stream(RequestStream, asyncio.BufferedProtocol):
    """The event loop's end of a :class:`~bkclient.wire.connection.ClientConnection`."""

    def __init__(
        self,
        owner: StreamOwner,
        bookie_id: str,
        connection: ClientConnection[Handler],
        config: TcpTransportConfig,
        *,
        is_tls: bool,
    ) -> None:
        super().__init__(owner, bookie_id, connection, config)
        self._is_tls = is_tls
        self._transport: asyncio.Transport | None = None
        self._high_water = config.write_buffer_high_water_bytes
        #: Frames that the transport does not take; empty while it does.
        self._outgoing = Outgoing()

    @property
    def is_writable(self) -> bool:
        """Whether less is unsent than the high-water mark allows."""
        return not self.is_paused

    def check(self) -> tuple[int, int]:
        """As for every stream, and that what is left to be sent is counted and waits for the socket."""
        outgoing = self._outgoing
        if outgoing.size:
            outgoing.check()
            assert self._stands, "nothing waits to be sent over a connection that has ended"
            assert self.is_paused, "only what a socket does not take waits"
        return super().check()

    def counts(self) -> tuple[object, ...]:
        """As for every stream, and what is left to be sent."""
        return *super().counts(), self._outgoing.size, self.is_paused

    def _break_off(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def give_up(self) -> None:
        """End a connection that was given up while the event loop made it; returns when its socket is closed.

        A protocol may have been told of its beginning by then. asyncio tells it of the end, too; uvloop does not.
        """
        if self._transport is None:
            return
        self.abort(Code.BOOKIE_NOT_AVAILABLE, "connecting was given up")
        await socket_closed()
        if self.state is not StreamState.ENDED:
            self.connection_lost(None)

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
        self._become(StreamState.ESTABLISHED)
        self._owner.connected(self, self._transport.get_extra_info("peername"))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the frame buffer knows better
        """See :class:`asyncio.BufferedProtocol`."""
        return self.connection.frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """See :class:`asyncio.BufferedProtocol`."""
        if stored := self.connection.buffer_updated(nbytes):
            self._stored(stored)
        if self.connection.reads or self.connection.frames.has_frame or self._owner.lanes.need_care():
            self._take_rest()

    def _take_rest(self) -> None:
        """Take what was received besides acknowledgements of adds, and tell the owner of what was answered."""
        try:
            if self.connection.reads and (found := self.connection.found()):
                self._found(found)
            if self.connection.frames.has_frame:
                self._answered(self.connection.answers())
        except WireError as error:
            self.abort(Code.BOOKIE_NOT_AVAILABLE, f"it does not keep to the protocol ({error.message})")
        if self._owner.lanes.need_care():
            self._owner.settled(self)

    def eof_received(self) -> None:
        """See :class:`asyncio.BufferedProtocol`. A bookie that closed its side will not answer any more."""
        self.abort(self._outcome_of_loss(None), "the bookie closed it")

    def pause_writing(self) -> None:
        """See :class:`asyncio.BaseProtocol`. What is to be sent waits here from now on; submit bounds it."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """See :class:`asyncio.BaseProtocol`."""
        self.is_paused = False
        self._send_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.BaseProtocol`. The outcome is the same for every reason but TLS."""
        self._detach(self._outcome_of_loss(exc), "it broke" if exc is None else reason_of(exc))
        self._ended()

    # Inside.

    def _outcome_of_loss(self, error: Exception | None) -> int:
        """A bookie that does not accept the client's certificate says so, if at all, after TLS stands for the client (1.3)."""
        refusal = None if error is None else refusal_in(error)
        if refusal is None and self.state is StreamState.ESTABLISHED and self._is_tls:
            refusal = Refusal(Code.SECURITY, UNANSWERED)
        return Code.BOOKIE_NOT_AVAILABLE if refusal is None else refusal

    def _flush(self) -> None:
        if self.run is not None:
            self.run.end()
        buffers, self.buffers = self.buffers, []
        if self._transport is None or not self._stands or not buffers:
            return
        # What is sent is outstanding, so as long as little is outstanding nothing has to be added up.
        most = self._outgoing.chunk_bytes
        if self.is_paused or (self._load.bytes > most and sum(map(len, buffers)) > most):
            self._outgoing.add(buffers)
            self._send_on()
        else:
            assert not self._outgoing.size, "what waits is sent first"
            self._write(self._transport, buffers)

    def _send_on(self) -> None:
        outgoing, transport = self._outgoing, self._transport
        while outgoing.size and not self.is_paused and transport is not None and self._stands:
            self._write(transport, outgoing.take())

    def _write(self, transport: asyncio.Transport, buffers: Sequence[bytes | memoryview]) -> None:
        if transport.is_closing():
            return  # it broke and will say so; before CPython 3.13.2 writelines() would register its socket once more
        transport.writelines(buffers)
        if not self.is_paused and transport.get_write_buffer_size() > self._high_water:
            # It should have paused; setting the limits makes it look. It calls resume_writing later, as always.
            transport.set_write_buffer_limits(self._high_water, self._config.write_buffer_low_water_bytes)

    def _drop_unsent(self) -> None:
        self._outgoing.clear()

    def _unsent_bytes(self) -> int:
        return self._outgoing.size + (0 if self._transport is None else self._transport.get_write_buffer_size())


has_twins("receiving", Stream, "get_buffer", "buffer_updated", bind="bind_tcp")

"""A bookie behind real TCP, announced in the metadata store.

One :class:`BookieServer` serves one :class:`~simbookie.bookie.Bookie` in both protocol versions. It adds what a socket adds and
nothing else: frames, connections, back-pressure, registration.

* Requests are parsed from a buffer the loop fills in place; the answers of one loop turn leave in one write per connection.
* A client that does not read its answers is not read from: once the answers waiting for it pass the high-water mark, the rest of
  what it already sent waits unparsed. What one connection can pin is therefore bounded by the mark, one response and the
  bookie's limits on pending requests.
* Until a connection is as secure as it has to be, a :class:`~simbookie.security.Guard` judges its requests. Nothing in clear may
  follow a request for TLS: whoever could put it there would have it taken for part of what TLS protects.
* Bytes that are no protocol close the connection without an answer. So does a connection above the limit.
* The bookie listens before it is announced, is announced anew when it turns read-only or writable, and is withdrawn before it
  stops listening.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, Self, cast

from bkclient.errors import BookKeeperError, IllegalOperation
from bkclient.metadata.base import BookieAddress, BookieRegistry
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.errors import WireError
from bkclient.wire.framing import DEFAULT_MAX_FRAME_SIZE
from bkclient.wire.messages import AuthMessage, Response, StartTlsResponse, Status
from bkclient.wire.server_connection import ServerConnection
from simbookie.bookie import Bookie, BookieState
from simbookie.listening import stop_listening
from simbookie.security import BookieSecurity, Guard, Verdict
from simbookie.storage.base import CrashMode

__all__ = ["BookieServer", "ServerConfig"]

_log: Final = logging.getLogger(__name__)

#: Seconds between attempts to bring the registration in line with the bookie's mode.
_REGISTRATION_RETRY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Limits of one server. Sizes in bytes, times in seconds."""

    #: Largest frame accepted, its length prefix included.
    max_frame_size: int = DEFAULT_MAX_FRAME_SIZE
    #: Connections served at a time; further ones are closed at once.
    connections_max: int = 10_000
    #: Answers waiting in a connection above which its requests are left waiting, and below which they go on.
    write_high_water: int = 524_288
    write_low_water: int = 393_216
    #: How long an orderly stop waits for clients to take their last answers.
    close_timeout_s: float = 1.0
    #: How long it waits for the registry to withdraw the announcement before it stops all the same.
    unregister_timeout_s: float = 5.0
    #: TLS and authentication; none are offered by default.
    security: BookieSecurity | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.write_low_water <= self.write_high_water:
            raise ValueError(
                f"server: water marks must satisfy 0 <= low {self.write_low_water} <= high {self.write_high_water}"
            )
        if self.connections_max < 1:
            raise ValueError(f"server: connections_max must be at least 1, is {self.connections_max}")


class _Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    def __init__(self, server: BookieServer) -> None:
        self._server = server
        self._bookie = server.bookie
        self._wire = ServerConnection(server.config.max_frame_size)
        self._high_water = server.config.write_high_water
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._source = ""
        #: Answers of this loop turn.
        self._answers: list[bytes] = []
        self._answers_size = 0
        #: Whether requests are left alone: the client does not take its answers, or the connection is being closed.
        self._is_halted = False
        #: Requests received but not yet parsed when the connection was halted.
        self._unparsed: Iterator[ReceivedRequest] | None = None
        self._guard: Guard | None = None
        self._starting_tls: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop has transports of its own, which are no subclasses of asyncio's
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        if not self._server.admit(self):
            transport.abort()
            return
        config = self._server.config
        transport.set_write_buffer_limits(config.write_high_water, config.write_low_water)
        peer = transport.get_extra_info("peername")
        self._source = f"{peer[0]}:{peer[1]}" if peer else ""
        if config.security is not None:
            self._guard = Guard(config.security, self._source)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._unparsed = None
        self._answers.clear()
        self._server.dismiss(self)

    def close(self) -> None:
        """Close after what is waiting has been sent."""
        self._is_halted = True
        if self._starting_tls is not None:
            self.abort()
        elif self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()
        if self._starting_tls is not None:  # event loops differ in what they tell whom when half-made TLS ends
            self._starting_tls.cancel()
            self._starting_tls = None
            self.connection_lost(None)

    # ------------------------------------------------------------------------------------------------------ requests

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._wire.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._serve(self._wire.buffer_updated(nbytes))
        except WireError as error:
            self._give_up(error)

    def _serve(self, requests: Iterator[ReceivedRequest]) -> None:
        if self._guard is not None:
            requests = self._guarded(requests, self._guard)
        submit, respond, source = self._bookie.submit, self._respond, self._source
        for received in requests:
            request = received.request
            if request is not None and received.is_version_supported:
                submit(request, partial(respond, received), source=source)
            else:
                self._refuse(received)
            if self._answers_size > self._high_water:
                self._flush()
            if self._is_halted:
                self._unparsed = requests
                return

    def _guarded(self, requests: Iterator[ReceivedRequest], guard: Guard) -> Iterator[ReceivedRequest]:
        """Those of ``requests`` that the bookie may see; the others are answered here."""
        for received in requests:
            verdict = guard.judge(received)
            if verdict is Verdict.SERVE:
                yield received
            elif verdict is Verdict.START_TLS:
                self._start_tls(received, guard)
                return
            elif isinstance(verdict, AuthMessage):
                self._send(self._wire.encode_response(received, verdict))
                self._settle(guard)
            else:
                _log.info("bookie %s refuses %s: %s", self._bookie.bookie_id, self._source, guard.reason)
                if verdict is not Verdict.CLOSE:
                    self._send(self._wire.refuse(received, Status.UNAUTHORIZED))
                if verdict is not Verdict.REFUSE:
                    self.close()
                    return

    def _settle(self, guard: Guard) -> None:
        if guard.is_done:
            self._guard = None

    def _start_tls(self, received: ReceivedRequest, guard: Guard) -> None:
        transport, security = self._transport, self._server.config.security
        if transport is None or security is None or security.tls is None:
            return
        if self._wire.has_more:
            self._give_up(IllegalOperation("bytes in clear follow a request for TLS"))
            return
        self._send(self._wire.encode_response(received, StartTlsResponse(Status.OK)))
        self._flush()
        self._is_halted = True
        transport.pause_reading()
        upgrade = self._upgrade(transport, security.tls, security.handshake_timeout_s, guard)
        self._starting_tls = self._loop.create_task(upgrade, name=f"TLS with {self._source}")

    async def _upgrade(
        self, transport: asyncio.Transport, context: ssl.SSLContext, timeout_s: float, guard: Guard
    ) -> None:
        held = _Held()
        secured: asyncio.Transport | None = None
        try:
            secured = await self._loop.start_tls(
                transport, held, context, server_side=True, ssl_handshake_timeout=timeout_s
            )
        except OSError as error:  # a wrong or missing certificate, a client that went away or took too long
            _log.info("bookie %s: no TLS with %s: %s", self._bookie.bookie_id, self._source, error)
        finally:
            self._starting_tls = None
            if secured is None or held.is_lost:
                transport.abort()
                self.connection_lost(None)  # which nobody tells this protocol before TLS stands
        if secured is not None and not held.is_lost:
            self._go_on_inside(secured, guard, bytes(held.data))

    def _go_on_inside(self, secured: asyncio.Transport, guard: Guard, data: bytes) -> None:
        secured.set_protocol(self)
        self._transport = secured
        config = self._server.config
        secured.set_write_buffer_limits(config.write_high_water, config.write_low_water)
        guard.has_tls = True
        self._settle(guard)
        self._is_halted = False
        try:
            self._serve(self._wire.receive(data))
        except WireError as error:
            self._give_up(error)

    def _refuse(self, received: ReceivedRequest) -> None:
        status = Status.BAD_REQUEST if received.is_version_supported else Status.BAD_VERSION
        try:
            self._send(self._wire.refuse(received, status))
        except IllegalOperation as error:
            self._give_up(error)

    def _give_up(self, error: BookKeeperError) -> None:
        _log.info("bookie %s closes the connection of %s: %s", self._bookie.bookie_id, self._source, error)
        self.close()

    # ------------------------------------------------------------------------------------------------------- answers

    def _respond(self, received: ReceivedRequest, response: Response) -> None:
        if received.protocol_version == 2 and response.status is Status.UNKNOWN_LEDGER_STATE:
            # Java clients cannot decode that number in version 2; any other error that denies nothing does
            response.status = Status.IO_ERROR
        try:
            self._send(self._wire.encode_response(received, response))
        except IllegalOperation as error:
            self._give_up(error)

    def _send(self, frame: bytes) -> None:
        if self._transport is None:
            return
        if not self._answers:
            self._loop.call_soon(self._flush)
        self._answers.append(frame)
        self._answers_size += len(frame)

    def _flush(self) -> None:
        if self._answers and self._transport is not None:
            data = b"".join(self._answers)
            self._answers.clear()
            self._answers_size = 0
            self._transport.write(data)

    def pause_writing(self) -> None:
        self._is_halted = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._is_halted = False
        requests, self._unparsed = self._unparsed, None
        try:
            self._serve(requests if requests is not None else iter(()))
        except WireError as error:
            self._give_up(error)
        if not self._is_halted:
            self._transport.resume_reading()


class _Held(asyncio.Protocol):
    """Takes what comes inside TLS before the connection knows that TLS stands, and would answer it in clear."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.is_lost = True


class BookieServer:
    """Serves ``bookie`` on ``host:port``; port 0 lets the system choose one, which is kept across restarts.

    With ``registry`` the bookie is announced there under its id, at ``advertised_host`` (default: ``host``). The server
    starts and stops the bookie; it can be started again after :meth:`aclose` or :meth:`kill`.
    """

    def __init__(
        self,
        bookie: Bookie,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        registry: BookieRegistry | None = None,
        advertised_host: str | None = None,
        config: ServerConfig | None = None,
        sock: socket.socket | None = None,
    ) -> None:
        self.bookie = bookie
        self.host = host
        self.port = port
        self.config = config if config is not None else ServerConfig()
        self._registry = registry
        self._advertised_host = advertised_host if advertised_host is not None else host
        self._socket = sock
        self._listener: asyncio.Server | None = None
        self._listening_ends: asyncio.Future[None] | None = None
        self._connections: dict[_Connection, None] = {}
        self._all_gone = asyncio.Event()
        self._mode_changed = asyncio.Event()
        self._registrar: asyncio.Task[None] | None = None

    @property
    def address(self) -> BookieAddress:
        """Where clients find the bookie."""
        security = self.config.security
        return BookieAddress(self._advertised_host, self.port, () if security is None else security.extensions)

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    async def start(self) -> None:
        """Start the bookie, listen, then announce it; ``OSError`` if the address is taken.

        Whatever fails leaves nothing running.
        """
        assert self._listener is None, f"the server of {self.bookie} is running"
        loop = asyncio.get_running_loop()
        await self._listening_ended()
        started = asyncio.Event()
        self.bookie.start(started.set)
        try:
            await started.wait()
            if self._socket is not None:
                sock, self._socket = self._socket, None
                self._listener = await loop.create_server(lambda: _Connection(self), sock=sock)
            else:
                self._listener = await loop.create_server(lambda: _Connection(self), self.host, self.port)
            self.port = self._listener.sockets[0].getsockname()[1]
            if self._registry is not None:
                await self._register(self._registry)
        except BaseException:
            self.kill()
            await self._listening_ended()
            raise

    async def aclose(self) -> None:
        """Withdraw the announcement, answer what waits, save everything, close every connection. Idempotent."""
        if self._listener is None:
            return
        await self._unregister()
        listener, self._listener = self._listener, None
        await stop_listening(listener)
        if self.bookie.state is BookieState.RUNNING:
            stopped = asyncio.Event()
            self.bookie.shutdown(stopped.set)
            await stopped.wait()
        for connection in list(self._connections):
            connection.close()
        if self._connections:
            self._all_gone.clear()
            try:
                async with asyncio.timeout(self.config.close_timeout_s):
                    await self._all_gone.wait()
            except TimeoutError:
                for connection in list(self._connections):
                    connection.abort()
                await self._all_gone.wait()
        await listener.wait_closed()

    def kill(self, mode: CrashMode = CrashMode.PROCESS) -> None:
        """Die as a killed process does: connections break, nothing is answered. The announcement stays. Idempotent.

        The port is given up a moment later; connections that come until then are broken too.
        """
        if self._registrar is not None:
            self._registrar.cancel()
            self._registrar = None
        listener, self._listener = self._listener, None
        if listener is not None:
            self._listening_ends = stop_listening(listener)
        if self.bookie.state not in (BookieState.NEW, BookieState.STOPPED):
            self.bookie.crash(mode)
        for connection in list(self._connections):
            connection.abort()

    async def _listening_ended(self) -> None:
        if self._listening_ends is not None:
            await asyncio.wait((self._listening_ends,))  # which a cancellation leaves alone

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    # ---------------------------------------------------------------------------------------------------- connections

    def admit(self, connection: _Connection) -> bool:
        """Whether a new connection may stay; called by the connection."""
        if self.bookie.state is not BookieState.RUNNING or self._listener is None:
            return False
        if len(self._connections) >= self.config.connections_max:
            _log.warning("bookie %s: more than %d connections", self.bookie.bookie_id, self.config.connections_max)
            return False
        self._connections[connection] = None
        return True

    def dismiss(self, connection: _Connection) -> None:
        """Forget a connection; called by the connection."""
        self._connections.pop(connection, None)
        if not self._connections:
            self._all_gone.set()

    # --------------------------------------------------------------------------------------------------- registration

    async def _register(self, registry: BookieRegistry) -> None:
        read_only = self.bookie.read_only
        await registry.register_bookie(self.bookie.bookie_id, self.address, read_only=read_only)
        self._mode_changed.clear()
        self._registrar = asyncio.create_task(self._keep_registered(registry, read_only=read_only))

    async def _keep_registered(self, registry: BookieRegistry, *, read_only: bool) -> None:
        """Follow the bookie's mode until cancelled; a registry that fails is asked again."""
        stop_watching = self.bookie.watch_read_only(lambda _: self._mode_changed.set())
        try:
            while True:
                if self.bookie.read_only == read_only:
                    await self._mode_changed.wait()
                    self._mode_changed.clear()
                    continue
                wanted = self.bookie.read_only
                try:
                    await registry.register_bookie(self.bookie.bookie_id, self.address, read_only=wanted)
                except BookKeeperError as error:
                    _log.warning("bookie %s cannot change its registration: %s", self.bookie.bookie_id, error)
                    await asyncio.sleep(_REGISTRATION_RETRY_S)
                else:
                    read_only = wanted
        finally:
            stop_watching()

    async def _unregister(self) -> None:
        if self._registrar is not None:
            registrar, self._registrar = self._registrar, None
            registrar.cancel()
            await asyncio.gather(registrar, return_exceptions=True)
        if self._registry is not None:
            try:
                async with asyncio.timeout(self.config.unregister_timeout_s):
                    await self._registry.unregister_bookie(self.bookie.bookie_id)
            except (BookKeeperError, TimeoutError) as error:
                _log.warning("bookie %s cannot be unregistered: %s", self.bookie.bookie_id, error)

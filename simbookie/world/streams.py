"""Connections of the virtual-time loop: asyncio's transports, servers and sockets over the TCP of the world.

What programs see is what asyncio's own selector loop shows them: the order of callbacks, when writing pauses, what becomes of
what is written after the end, who hears of errors. One set of tests runs against both.

A program connects from the host on which it runs, to other hosts by their names. ``localhost`` and loopback addresses are that
host. TLS comes by ``start_tls``, with asyncio's own protocol; what OpenSSL draws is not decided by the seed.
"""

from __future__ import annotations

import asyncio
from asyncio.transports import _FlowControlMixin
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from simbookie.world.errors import RealWorldRefused, WorldError
from simbookie.world.process import Process, current_process
from simbookie.world.tcp_listening import Listening
from simbookie.world.tcp_socket import Socket

if TYPE_CHECKING:
    from simbookie.world.connecting_loop import ConnectingLoop
    from simbookie.world.tcp import Tcp

__all__ = [
    "ProtocolFactory",
    "StreamServer",
    "StreamTransport",
    "connect_accepted",
    "create_connection",
    "create_server",
    "unwatch",
    "watch",
]

#: What asyncio reads at a time into a protocol without a buffer of its own.
_READ_MAX: Final = 256 * 1024
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  names of the host itself in the world
_BACKLOG: Final = 100

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class StreamTransport(_FlowControlMixin):
    """One end of a connection as asyncio's protocols know it. ``made`` is told when the protocol knows of it."""

    _start_tls_compatible = True
    # declared by the base without types
    _loop: ConnectingLoop
    _protocol: asyncio.BaseProtocol
    _maybe_pause_protocol: Callable[[], None]
    _maybe_resume_protocol: Callable[[], None]

    def __init__(
        self,
        loop: ConnectingLoop,
        socket: Socket,
        protocol: asyncio.BaseProtocol,
        made: asyncio.Future[None] | None = None,
        server: StreamServer | None = None,
    ) -> None:
        extra = {"socket": socket, "sockname": socket.getsockname(), "peername": socket.getpeername()}
        super().__init__(extra, loop)
        self._socket = socket
        self._server = server
        self._buffer = bytearray()
        self._has_ended = False
        self._is_closing = False
        self._is_paused = False
        self._lost = 0
        self.set_protocol(protocol)
        if server is not None:
            server.attach(self)
        loop.call_soon(protocol.connection_made, self)
        loop.call_soon(self._start_reading)
        if made is not None:
            loop.call_soon(_tell, made)

    def __repr__(self) -> str:
        return f"<StreamTransport {'closing ' if self._is_closing else ''}{self._socket!r}>"

    # -------------------------------------------------------------------------------------------------------- reading

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """See :class:`asyncio.BaseTransport`."""
        self._protocol = protocol
        is_buffered = isinstance(protocol, asyncio.BufferedProtocol)
        self._receive = self._receive_into_buffer if is_buffered else self._receive_data

    def get_protocol(self) -> asyncio.BaseProtocol:
        """See :class:`asyncio.BaseTransport`."""
        return self._protocol

    def is_reading(self) -> bool:
        """See :class:`asyncio.ReadTransport`."""
        return not self._is_closing and not self._is_paused

    def pause_reading(self) -> None:
        """See :class:`asyncio.ReadTransport`."""
        if self.is_reading():
            self._is_paused = True
            self._socket.on_readable = None

    def resume_reading(self) -> None:
        """See :class:`asyncio.ReadTransport`."""
        if self._is_paused and not self._is_closing:
            self._is_paused = False
            self._start_reading()

    def _start_reading(self) -> None:
        if self.is_reading():
            self._socket.on_readable = self._read
            if self._socket.is_readable:
                self._loop.call_soon(self._read)

    def _read(self) -> None:
        """The socket has something; once more soon if that was not all."""
        if self._can_read():
            self._receive()
            if self._can_read():
                self._loop.call_soon(self._read)

    def _can_read(self) -> bool:
        return not self._lost and self._socket.on_readable is not None and self._socket.is_readable

    def _receive_into_buffer(self) -> None:
        protocol = cast("asyncio.BufferedProtocol", self._protocol)
        try:
            buffer = cast("bytearray", protocol.get_buffer(-1))
            if not len(buffer):
                raise RuntimeError("get_buffer() returned an empty buffer")  # noqa: TRY301  one more way to fail
        except Exception as error:  # noqa: BLE001  whatever protocols raise
            self._fail(error, "Fatal error: protocol.get_buffer() call failed.")
            return
        try:
            size = self._socket.recv_into(buffer)
        except OSError as error:
            self._fail(error, "Fatal read error on socket transport")
            return
        if not size:
            self._on_end()
            return
        try:
            protocol.buffer_updated(size)
        except Exception as error:  # noqa: BLE001
            self._fail(error, "Fatal error: protocol.buffer_updated() call failed.")

    def _receive_data(self) -> None:
        protocol = cast("asyncio.Protocol", self._protocol)
        try:
            data = self._socket.recv(_READ_MAX)
        except OSError as error:
            self._fail(error, "Fatal read error on socket transport")
            return
        if not data:
            self._on_end()
            return
        try:
            protocol.data_received(data)
        except Exception as error:  # noqa: BLE001
            self._fail(error, "Fatal error: protocol.data_received() call failed.")

    def _on_end(self) -> None:
        try:
            stays_open = cast("asyncio.Protocol", self._protocol).eof_received()
        except Exception as error:  # noqa: BLE001
            self._fail(error, "Fatal error: protocol.eof_received() call failed.")
            return
        if stays_open:
            self._socket.on_readable = None  # nothing more comes, and this end may go on writing
        else:
            self.close()

    # -------------------------------------------------------------------------------------------------------- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See :class:`asyncio.WriteTransport`."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        if self._has_ended:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data:
            return
        if self._lost:
            self._lost += 1
            return
        if not self._buffer:
            try:
                sent = self._socket.send(data)
            except OSError as error:
                self._fail(error, "Fatal write error on socket transport")
                return
            if sent == len(data):
                return
            data = data[sent:]
            self._socket.on_writable = self._write_on
        self._buffer += data
        self._maybe_pause_protocol()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """See :class:`asyncio.WriteTransport`."""
        self.write(b"".join(list_of_data))

    def _write_on(self) -> None:
        """The socket has room."""
        if self._lost or not self._buffer:
            return
        try:
            sent = self._socket.send(self._buffer)
        except OSError as error:
            self._buffer.clear()
            self._fail(error, "Fatal write error on socket transport")
            return
        del self._buffer[:sent]
        self._maybe_resume_protocol()  # which may write more
        if not self._buffer:
            self._socket.on_writable = None
            if self._is_closing:
                self._connection_lost(None)
            elif self._has_ended:
                self._socket.shutdown()

    def write_eof(self) -> None:
        """See :class:`asyncio.WriteTransport`."""
        if not self._is_closing and not self._has_ended:
            self._has_ended = True
            if not self._buffer:
                self._socket.shutdown()

    def can_write_eof(self) -> bool:
        """Streams of TCP have ends."""
        return True

    def get_write_buffer_size(self) -> int:
        """See :class:`asyncio.WriteTransport`."""
        return len(self._buffer)

    # ------------------------------------------------------------------------------------------------------------ end

    def is_closing(self) -> bool:
        """See :class:`asyncio.BaseTransport`."""
        return self._is_closing

    def close(self) -> None:
        """See :class:`asyncio.BaseTransport`."""
        if not self._is_closing:
            self._is_closing = True
            self._socket.on_readable = None
            if not self._buffer:
                self._lose(None)

    def abort(self) -> None:
        """See :class:`asyncio.WriteTransport`."""
        self._force_close(None)

    def _force_close(self, error: Exception | None) -> None:
        # sslproto calls it by this name
        if not self._lost:
            self._buffer.clear()
            self._is_closing = True
            self._socket.on_readable = None
            self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        self._lost += 1
        self._socket.on_writable = None
        self._loop.call_soon(self._connection_lost, error)

    def _fail(self, error: Exception, message: str) -> None:
        if not isinstance(error, OSError):
            self._loop.call_exception_handler(
                {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
            )
        self._force_close(error)

    def _connection_lost(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._socket.close()
            server, self._server = self._server, None
            if server is not None:
                server.detach(self)


class StreamServer(asyncio.AbstractServer):
    """What listens on one port of a host."""

    def __init__(self, loop: ConnectingLoop, listening: Listening, factory: ProtocolFactory) -> None:
        self._loop = loop
        self._listening: Listening | None = listening
        self._factory = factory
        self._is_serving = False
        self._transports: dict[StreamTransport, None] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        return f"<StreamServer {self._listening!r}>"

    @property
    def sockets(self) -> tuple[Listening, ...]:
        """The one socket, none once it is closed."""
        return () if self._listening is None else (self._listening,)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """See :class:`asyncio.AbstractServer`."""
        return self._loop

    def is_serving(self) -> bool:
        """See :class:`asyncio.AbstractServer`."""
        return self._is_serving

    def serve(self) -> None:
        """Accept from now on. Idempotent."""
        if self._listening is not None and not self._is_serving:
            self._is_serving = True
            self._loop.add_reader(self._listening, self._accept, self._listening)

    async def start_serving(self) -> None:
        """See :class:`asyncio.AbstractServer`."""
        self.serve()

    async def serve_forever(self) -> None:
        """See :class:`asyncio.AbstractServer`."""
        self.serve()
        try:
            await self._loop.create_future()
        finally:
            self.close()

    def close(self) -> None:
        """See :class:`asyncio.AbstractServer`. Connections stay."""
        listening, self._listening = self._listening, None
        if listening is not None:
            self._is_serving = False
            listening.close()
            self._wake()

    async def wait_closed(self) -> None:
        """Wait until the server is closed and all its connections are."""
        if self._listening is not None or self._transports:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def attach(self, transport: StreamTransport) -> None:
        """A connection was made."""
        self._transports[transport] = None

    def detach(self, transport: StreamTransport) -> None:
        """A connection has ended."""
        self._transports.pop(transport, None)
        self._wake()

    def _wake(self) -> None:
        if self._listening is None and not self._transports:
            while self._waiters:
                _tell(self._waiters.popleft())

    def _accept(self, listening: Listening) -> None:
        for _ in range(listening.backlog):
            if not listening.is_readable:
                return
            StreamTransport(self._loop, listening.accept()[0], self._factory(), None, self)


async def create_connection(
    loop: ConnectingLoop, tcp: Tcp, factory: ProtocolFactory, host: str, port: int
) -> tuple[StreamTransport, asyncio.BaseProtocol]:
    """See :meth:`asyncio.loop.create_connection`."""
    process = _here("create_connection")
    remote = (process.host_name if host in _LOOPBACK else host, port)
    opened: asyncio.Future[Socket] = loop.create_future()

    def on_open(socket: Socket) -> None:
        if opened.done():
            socket.close()
        else:
            opened.set_result(socket)

    def on_failed(error: OSError) -> None:
        if not opened.done():
            opened.set_exception(error)

    give_up = tcp.connect(process, remote, on_open, on_failed)
    try:
        socket = await opened
    except BaseException:
        give_up()
        if opened.done() and not opened.cancelled() and opened.exception() is None:
            opened.result().close()
        raise
    return await connect_accepted(loop, factory, socket)


async def connect_accepted(
    loop: ConnectingLoop, factory: ProtocolFactory, socket: Socket
) -> tuple[StreamTransport, asyncio.BaseProtocol]:
    """See :meth:`asyncio.loop.connect_accepted_socket`."""
    protocol = factory()
    made = loop.create_future()
    transport = StreamTransport(loop, socket, protocol, made)
    try:
        await made
    except BaseException:
        transport.close()
        raise
    return transport, protocol


def create_server(
    loop: ConnectingLoop,
    tcp: Tcp,
    factory: ProtocolFactory,
    host: str | None,
    port: int | None,
    backlog: int = _BACKLOG,
) -> StreamServer:
    """See :meth:`asyncio.loop.create_server`; it has yet to :meth:`~StreamServer.serve`."""
    process = _here("create_server")
    if host is not None and host not in _LOOPBACK | _ANY and host != process.host_name:
        raise OSError(f"{host!r} is not a name of the host {process.host_name!r}")
    return StreamServer(loop, tcp.listen(process, port or 0, backlog), factory)


def watch(loop: ConnectingLoop, listening: object, callback: Callable[[], object]) -> None:
    """Call ``callback`` as long as connections wait to be accepted, once in a turn; only listening sockets can be watched."""
    if not isinstance(listening, Listening):
        raise RealWorldRefused("loop.add_reader")

    def ready() -> None:
        if listening.on_readable is ready:
            callback()
            if listening.on_readable is ready and listening.is_readable:
                loop.call_soon(ready)

    assert listening.process is _here("add_reader"), "a process watches its own sockets"
    listening.on_readable = ready
    if listening.is_readable:
        loop.call_soon(ready)


def unwatch(listening: object) -> bool:
    """Watch no more; whether it was watched."""
    if not isinstance(listening, Listening):
        raise RealWorldRefused("loop.remove_reader")
    was_watched = listening.on_readable is not None
    listening.on_readable = None
    return was_watched


def _here(call: str) -> Process:
    process = current_process.get()
    if process is None:
        raise WorldError(f"loop.{call} was called by the director, which belongs to no host; spawn it on one")
    return process


def _tell(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

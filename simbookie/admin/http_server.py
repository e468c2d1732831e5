"""A small HTTP/1.1 server on the running loop: h11 knows the protocol, this file knows sockets, limits and deadlines.

It trusts no client. A request has a largest head and a largest body, its bytes have to come in time, an answer has to be taken
in time, and connections are bounded: one too many is told so and closed. A request that breaks a limit or the protocol gets its
status, and its connection ends. Requests of one connection are answered one after the other.

The handler gets whole requests and gives whole responses. One that raises is answered with 500 and logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, urlsplit

try:
    import h11
except ModuleNotFoundError as error:
    if error.name != "h11":
        raise
    raise ModuleNotFoundError("simbookie.admin needs h11: install bkclient[admin]", name="h11") from error

__all__ = ["HttpConfig", "HttpHandler", "HttpRequest", "HttpResponse", "HttpServer"]

_log: Final = logging.getLogger(__name__)
_READ_BYTES: Final = 16_384


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """Limits of a server. Sizes in bytes, times in seconds."""

    #: Connections at a time; a further one is answered with 503.
    connections_max: int = 64
    #: Request line and headers.
    head_bytes_max: int = 16_384
    body_bytes_max: int = 65_536
    #: From the connection, or the last answer, to the first byte of a request.
    idle_timeout_s: float = 60.0
    #: From the first byte of a request to its last.
    request_timeout_s: float = 10.0
    #: From the end of a request to its answer.
    handler_timeout_s: float = 60.0
    #: How long a client may take its answer.
    answer_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ValueError(f"http: {name} must be > 0, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. ``params`` are those of the query; of several values of a name the last one counts.

    ``headers`` are by their names in lower case, and a header that comes twice has both values, joined by a comma.
    """

    method: str
    path: str
    params: dict[str, str]
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer. With ``stream``, its pieces follow the body, as they come; the connection ends after them."""

    status: int = HTTPStatus.OK
    body: bytes = field(default=b"", repr=False)
    content_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    stream: AsyncIterator[bytes] | None = field(default=None, repr=False)


HttpHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]


class _Refused(Exception):
    """The request is not carried out, and the connection ends with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class HttpServer:
    """Serves ``handle`` on ``host:port``; port 0 lets the system choose one, which is :attr:`port` then."""

    def __init__(self, handle: HttpHandler, host: str, port: int = 0, config: HttpConfig | None = None) -> None:
        self.host = host
        self.port = port
        self.config = config if config is not None else HttpConfig()
        self._handle = handle
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        #: Connections at present.
        self.connections = 0

    async def start(self) -> None:
        """Listen; ``OSError`` if the address is taken."""
        assert self._server is None, "the server is running"
        self._server = await asyncio.start_server(self._connected, self.host, self.port, limit=_READ_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        """Stop listening and break every connection. Idempotent."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        self.connections += 1
        try:
            if self._server is not None:
                await _Conversation(self, reader, writer).run()
        except asyncio.CancelledError:
            pass  # of this server's end; the task is nobody else's, and asyncio would report it
        finally:
            self.connections -= 1
            self._clients.discard(task)
            writer.transport.abort()

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """What the handler says, in time and without raising."""
        try:
            async with asyncio.timeout(self.config.handler_timeout_s):
                return await self._handle(request)
        except TimeoutError:
            _log.warning("%s %s took longer than %g s", request.method, request.path, self.config.handler_timeout_s)
            return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE)
        except Exception:  # noqa: BLE001  whatever it is, one request failed
            _log.exception("%s %s failed", request.method, request.path)
            return HttpResponse(HTTPStatus.INTERNAL_SERVER_ERROR)


class _Conversation:
    """One connection."""

    def __init__(self, server: HttpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._config = server.config
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=server.config.head_bytes_max)

    async def run(self) -> None:
        """Answer requests until the client, a limit or a deadline ends it."""
        http = self._http
        with suppress(OSError, TimeoutError):
            if self._server.connections > self._config.connections_max:
                await self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
                return
            try:
                while (request := await self._receive()) is not None:
                    await self._send(await self._server.answer(request), has_body=request.method != "HEAD")
                    if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                        return
                    http.start_next_cycle()
            except h11.RemoteProtocolError as error:
                await self._refuse(error.error_status_hint)
            except _Refused as refusal:
                await self._refuse(refusal.status)

    async def _receive(self) -> HttpRequest | None:
        """The next request; ``None`` if the client has gone, or is silent."""
        http, config = self._http, self._config
        if not http.trailing_data[0]:
            try:
                async with asyncio.timeout(config.idle_timeout_s):
                    first = await self._reader.read(_READ_BYTES)
            except TimeoutError:
                return None
            if not first:
                return None
            http.receive_data(first)
        try:
            async with asyncio.timeout(config.request_timeout_s):
                return await self._read_request()
        except TimeoutError:
            raise _Refused(HTTPStatus.REQUEST_TIMEOUT) from None

    async def _read_request(self) -> HttpRequest | None:
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = await self._next_event()
            if isinstance(event, h11.Request):
                head = event
                self._check_length(event)
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > self._config.body_bytes_max:
                    raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                return _request(head, bytes(body))
            else:
                return None

    def _check_length(self, head: h11.Request) -> None:
        for name, value in head.headers:
            if name == b"content-length" and int(value) > self._config.body_bytes_max:
                raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

    async def _next_event(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self._http.next_event()
            if not isinstance(event, type) or event is h11.PAUSED:
                return event
            if self._http.they_are_waiting_for_100_continue:
                await self._write(
                    self._http.send(h11.InformationalResponse(status_code=100, headers=[])),  # no event, so bytes
                )
            self._http.receive_data(await self._reader.read(_READ_BYTES))

    async def _send(self, response: HttpResponse, *, has_body: bool = True) -> None:
        if response.stream is not None:
            await self._send_stream(response, response.stream, has_body=has_body)
            return
        headers = [("content-length", str(len(response.body))), *_said(response)]
        http = self._http
        parts = [http.send(h11.Response(status_code=response.status, headers=headers, reason=_reason(response.status)))]
        if has_body:
            parts.append(http.send(h11.Data(data=response.body)))
        parts.append(http.send(h11.EndOfMessage()))
        await self._write(b"".join(parts))

    async def _send_stream(self, response: HttpResponse, stream: AsyncIterator[bytes], *, has_body: bool) -> None:
        """Send pieces until there are no more or the client has gone; each has to be taken in time."""
        http = self._http
        try:
            headers = [("connection", "close"), *_said(response)]
            head = h11.Response(status_code=response.status, headers=headers, reason=_reason(response.status))
            await self._write(b"".join([http.send(head), http.send(h11.Data(data=response.body)) if has_body else b""]))
            if has_body:
                async for piece in stream:
                    await self._write(http.send(h11.Data(data=piece)))
            await self._write(http.send(h11.EndOfMessage()))
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    async def _refuse(self, status: int) -> None:
        """Say why, as far as the client may still be told, and end the connection."""
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        reason = _reason(status)
        headers = [("content-length", str(len(reason))), ("connection", "close")]
        parts = [
            self._http.send(h11.Response(status_code=status, headers=headers, reason=reason)),
            self._http.send(h11.Data(data=reason)),
        ]
        await self._write(b"".join(parts))
        # what the client still sends is left unread, and closing over it would take the answer away from it
        self._writer.write_eof()
        async with asyncio.timeout(self._config.request_timeout_s):
            left = self._config.body_bytes_max
            while left > 0 and (data := await self._reader.read(_READ_BYTES)):
                left -= len(data)

    async def _write(self, data: bytes | None) -> None:
        if data:
            self._writer.write(data)
            async with asyncio.timeout(self._config.answer_timeout_s):
                await self._writer.drain()


def _reason(status: int) -> bytes:
    return HTTPStatus(status).phrase.encode()


def _said(response: HttpResponse) -> list[tuple[str, str]]:
    own = [] if response.content_type is None else [("content-type", response.content_type)]
    return [*own, *response.headers]


def _request(head: h11.Request, body: bytes) -> HttpRequest:
    target = head.target.decode("latin-1")
    try:
        parts = urlsplit(target)
        params = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=100))
    except ValueError:
        raise _Refused(HTTPStatus.BAD_REQUEST) from None
    headers: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return HttpRequest(head.method.decode("latin-1"), parts.path, params, body, headers)

"""What comes before a connection carries requests: TLS, and authentication.

A connection begins in clear. The client asks for TLS in protocol version 3, whatever version comes later; the bookie agrees,
still in clear, and both go on inside TLS. Then the plug-in's messages are exchanged, in the protocol version of the
connection. Only then is there anything that requests could be sent over: nothing else is ever sent in clear.

Other than the Java client, which sends the first message of a plug-in in clear before it has TLS, this one keeps to that order.

A bookie's bytes in clear end with its agreement. Any that follow it could have been put there by somebody in between, to be taken
for part of what TLS protects, so they end the connection.

Limits: one time limit for all of it, the number of messages that a plug-in may exchange, and the size of a frame.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol, cast

from bkclient.errors import BookieNotAvailable, BookKeeperError, Refusal, SecurityError, UnauthorizedAccess
from bkclient.metadata.base import BookieAddress
from bkclient.security.auth import AUTH_DISABLED, AuthenticationError, AuthProvider
from bkclient.wire import v2, v3
from bkclient.wire.envelope import EncodedRequest
from bkclient.wire.errors import MalformedMessage, WireError
from bkclient.wire.framing import FrameBuffer
from bkclient.wire.messages import AuthMessage, Operation, Request, Response, StartTlsRequest, Status

__all__ = ["AUTH_MESSAGES_MAX", "UNANSWERED", "Handshake", "Security", "refusal_in", "socket_closed"]

AUTH_MESSAGES_MAX: Final = 16
"""Messages of a plug-in that one connection may cost; Kerberos takes three."""

UNANSWERED: Final = "the bookie ended TLS without an answer; it may not accept this client's certificate, or miss one"
"""The likely reason why a connection was lost on which nothing came after TLS. Not every bookie gives a reason."""

#: Frames that may be waiting. A bookie speaks when spoken to, but for one complaint about TLS without authentication.
_FRAMES_MAX: Final = 4


class _Dialect(Protocol):
    def encode_request(self, request: Request, txn_id: int) -> EncodedRequest: ...

    def decode_response(self, content: bytes) -> tuple[bytes, Response]: ...


@dataclass(frozen=True, slots=True)
class Security:
    """What the connections of a transport need before they carry requests; times in seconds."""

    tls: ssl.SSLContext | None = None
    auth: AuthProvider | None = None
    timeout_s: float = 10.0


def refusal_in(error: BaseException) -> Refusal | None:
    """The code and reason of a connection that failed because it was not secure; None if it failed otherwise."""
    if isinstance(error, SecurityError | UnauthorizedAccess):
        return Refusal(error.code, error.message)
    if isinstance(error, ssl.SSLError):
        return Refusal(SecurityError.code, _reason_of(error))
    return None


async def socket_closed() -> None:
    """Return when the socket of a connection that was just aborted is closed: event loops do that in the turn after."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


class Handshake:
    """Makes one connection and everything that has to come before its first request.

    :meth:`connect`, then at once :meth:`complete`. Whichever fails or is cancelled leaves no socket behind.
    """

    def __init__(
        self, security: Security, bookie_id: str, protocol_version: int, max_frame_size: int, txn_ids: Iterator[int]
    ) -> None:
        self._security = security
        self._bookie_id = bookie_id
        self._version = protocol_version
        self._txn_ids = txn_ids
        self._host = ""
        #: Whether TLS stands for this side, and nothing has come that shows that it does for the bookie.
        self._is_tls_unproven = False
        self._wire = _Frames(max_frame_size)

    async def connect(self, address: BookieAddress) -> None:
        """Connect, in clear; ``OSError`` if that fails."""
        self._host = address.host
        try:
            await asyncio.get_running_loop().create_connection(lambda: self._wire, address.host, address.port)
        except BaseException:
            await self._abort()
            raise

    async def complete(self) -> asyncio.Transport:
        """Start TLS and authenticate; returns the transport over which requests may be sent.

        :class:`~bkclient.errors.SecurityError` and :class:`~bkclient.errors.UnauthorizedAccess` say what the bookie or its
        certificate does not satisfy; :class:`~bkclient.errors.BookieNotAvailable`: it went away, or took too long. The caller
        must give the transport another protocol before it lets the event loop run.
        """
        try:
            return await self._converse()
        except BaseException:
            await self._abort()
            raise

    async def _converse(self) -> asyncio.Transport:
        security = self._security
        stage = "TLS"
        try:
            async with asyncio.timeout(security.timeout_s):
                if security.tls is not None:
                    await self._start_tls(security.tls)
                stage = "authentication"
                if security.auth is not None:
                    await self._authenticate(security.auth)
        except TimeoutError:
            raise self._failed(BookieNotAvailable, f"{stage} took longer than {security.timeout_s:g} s") from None
        except WireError as error:
            raise self._failed(BookieNotAvailable, f"it does not keep to the protocol ({error.message})") from error
        transport = self._wire.transport
        if self._wire.end is not None or transport is None:
            raise self._lost()
        return transport

    async def _abort(self) -> None:
        """Give the connection up and return when its socket is closed."""
        self._wire.abort()
        await socket_closed()  # event loops hide from protocols what happens to half-made TLS

    # TLS

    async def _start_tls(self, context: ssl.SSLContext) -> None:
        wire = self._wire
        response = await self._ask(StartTlsRequest(), 3)
        if response.status is not Status.OK:
            raise self._failed(
                SecurityError, f"the bookie refuses TLS ({response.status.name}); it may not be configured for it"
            )
        if wire.has_more:
            raise self._failed(SecurityError, "there are bytes in clear where TLS should begin")
        if wire.transport is None:
            raise self._lost()
        try:
            upgraded = await asyncio.get_running_loop().start_tls(
                wire.transport,
                wire,
                context,
                server_hostname=self._host,
                ssl_handshake_timeout=self._security.timeout_s + 1,  # ours comes first, and says more
            )
        except ssl.SSLError as error:
            raise self._failed(SecurityError, _reason_of(error)) from error
        except ValueError as error:  # a name that no certificate can have
            raise self._failed(SecurityError, f"{self._host!r} is no name to verify ({error})") from error
        except ConnectionError as error:
            raise self._failed(SecurityError, UNANSWERED) from error
        self._is_tls_unproven = True
        wire.transport = upgraded  # None if the connection ended meanwhile

    # Authentication

    async def _authenticate(self, provider: AuthProvider) -> None:
        session = provider.session(self._bookie_id)
        payload = session.begin()
        for _ in range(AUTH_MESSAGES_MAX):
            if payload is None:
                return
            response = await self._ask(AuthMessage(provider.plugin_name, payload), self._version)
            if response.status is not Status.OK or not isinstance(response, AuthMessage):
                raise self._failed(
                    UnauthorizedAccess,
                    f"the bookie refuses authentication by plug-in {provider.plugin_name} ({response.status.name})",
                )
            if response.plugin_name == AUTH_DISABLED:
                return
            if response.plugin_name != provider.plugin_name:
                raise self._failed(
                    UnauthorizedAccess,
                    f"the bookie authenticates by plug-in {response.plugin_name!r}, this client by {provider.plugin_name!r}",
                )
            try:
                payload = session.on_challenge(response.payload)
            except AuthenticationError as error:
                raise self._failed(UnauthorizedAccess, f"authentication failed: {error}") from error
        raise self._failed(UnauthorizedAccess, f"authentication took more than {AUTH_MESSAGES_MAX} messages")

    # One question at a time

    async def _ask(self, request: Request, version: int) -> Response:
        dialect: _Dialect = v3 if version == 3 else v2
        wire = self._wire
        if wire.transport is None:
            raise self._lost()
        encoded = dialect.encode_request(request, next(self._txn_ids))
        if (
            not wire.transport.is_closing()
        ):  # else writelines() of CPython 3.12.1 raises; what arrived before is still read
            wire.transport.writelines(encoded.buffers)
        for _ in range(_FRAMES_MAX):
            content = await wire.next_frame()
            if content is None:
                raise self._unanswered(request, version)
            self._is_tls_unproven = False
            try:
                match, response = dialect.decode_response(content)
            except MalformedMessage:
                if version == 2 and _is_about_tls(content):
                    continue
                raise
            if match == encoded.match:
                return response
            # Bookies complain about TLS that began before the authentication was done, and go on nevertheless.
        raise MalformedMessage(f"no answer to {request.operation.name} among {_FRAMES_MAX} messages")

    def _unanswered(self, request: Request, version: int) -> BookKeeperError:
        if request.operation is Operation.AUTH and version == 2 and isinstance(self._wire.end, EOFError):
            return self._failed(
                UnauthorizedAccess,
                "the bookie closed the connection instead of answering the authentication plug-in, which is how it "
                "refuses one in protocol version 2",
            )
        return self._lost()

    def _lost(self) -> BookKeeperError:
        end = self._wire.end
        if isinstance(end, ssl.SSLError):
            return self._failed(SecurityError, _reason_of(end))
        if self._is_tls_unproven:
            return self._failed(SecurityError, UNANSWERED)
        reason = "the bookie closed the connection" if end is None else _reason_of(end)
        return self._failed(BookieNotAvailable, f"{reason} before it could be used")

    def _failed(self, kind: type[BookKeeperError], reason: str) -> BookKeeperError:
        return kind(reason, bookie_id=self._bookie_id)


def _is_about_tls(content: bytes) -> bool:
    try:
        return v3.decode_response(content)[1].operation is Operation.START_TLS
    except MalformedMessage:
        return False


def _reason_of(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the bookie's certificate is not accepted: {error.verify_message.rstrip('.')}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {getattr(error, 'reason', None) or error}"  # those made by Python code have no reason
    return str(error) or type(error).__name__


class _Frames(asyncio.Protocol):
    """The event loop's end of a connection that carries one question at a time."""

    def __init__(self, max_frame_size: int) -> None:
        self.transport: asyncio.Transport | None = None
        #: Why nothing comes any more; an :class:`EOFError` if there was no error.
        self.end: Exception | None = None
        self._frames = FrameBuffer(max_frame_size)
        self._received: deque[bytes] = deque()
        self._error: WireError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def has_more(self) -> bool:
        """Whether bytes came that were not asked for."""
        return bool(self._received) or len(self._frames) > 0

    async def next_frame(self) -> bytes | None:
        """The content of the next frame; None if the connection ended, WireError if it makes no sense."""
        while not self._received:
            if self._error is not None:
                raise self._error
            if self.end is not None:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._received.popleft()

    def abort(self) -> None:
        """Close the socket without further ado."""
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop has transports of its own, which are no subclasses of asyncio's
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            for content in self._frames.feed(data):
                if len(self._received) == _FRAMES_MAX:
                    raise MalformedMessage("more frames than were asked for")
                self._received.append(content)
        except WireError as error:
            self._error = error
            self.abort()
        self._wake()

    def eof_received(self) -> None:
        self._lost(EOFError("the bookie closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(exc or EOFError("the bookie closed the connection"))

    def _lost(self, error: Exception) -> None:
        if self.end is None:
            self.end = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

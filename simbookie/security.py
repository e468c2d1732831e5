"""What a bookie demands of a connection before it serves it: TLS, a certificate, and authentication by a plug-in.

A :class:`Guard` stands before one connection and decides about every request until nothing is left to demand: serve it, answer
it in the bookie's place, start TLS, close. It refuses as Apache BookKeeper's bookies do, which depends on the protocol version:

========================================================== ================================ ======================
until authenticated                                        version 3                        version 2
========================================================== ================================ ======================
a message of the plug-in                                   its answer                       its answer
one that the plug-in does not accept                       UNAUTHORIZED, then close         close
a message of another plug-in                               UNAUTHORIZED                     close
an add or a read                                           UNAUTHORIZED, without a message  UNAUTHORIZED
anything else                                              UNAUTHORIZED, without a message  close
========================================================== ================================ ======================

A request for TLS is always answered. Other than BookKeeper's, a bookie here can demand TLS (``requires_tls``); then the table
holds until there is TLS. Messages of a plug-in pass in clear even so, because Java clients send theirs before they ask for TLS,
and who has sent a secret in clear has sent it.
"""

from __future__ import annotations

import hmac
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from bkclient.security.auth import (
    NONCE_SIZE,
    AuthenticationError,
    SharedSecret,
    proof_of_bookie,
    proof_of_client,
)
from bkclient.security.tls import load_identity, load_trust
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.messages import (
    AddRequest,
    AuthMessage,
    ReadRequest,
    StartTlsRequest,
)

__all__ = [
    "AuthVerdict",
    "BookieAuthProvider",
    "BookieAuthSession",
    "BookieSecurity",
    "Guard",
    "SharedSecretBookie",
    "server_context",
]

AUTH_MESSAGES_MAX: Final = 16
"""Messages of a plug-in that a connection may send before it is refused."""


class BookieAuthSession(Protocol):
    """The authentication of one client's connection."""

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has proved who it is."""
        ...

    def respond(self, payload: bytes) -> bytes:
        """The answer to a message; :class:`~bkclient.security.auth.AuthenticationError` to refuse the client."""
        ...


class BookieAuthProvider(Protocol):
    """A way for clients to authenticate."""

    @property
    def plugin_name(self) -> str:
        """The name that clients must know it by."""
        ...

    def session(self, source: str) -> BookieAuthSession:
        """A session for the connection of a client at ``source``, ``host:port``."""
        ...


@dataclass(frozen=True, slots=True)
class BookieSecurity:
    """What a bookie offers and demands. ``ValueError`` for a demand that no client could satisfy."""

    tls: ssl.SSLContext | None = None
    auth: BookieAuthProvider | None = None
    #: Whether requests in clear are refused.
    requires_tls: bool = False
    #: Seconds a client has for the TLS handshake.
    handshake_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if self.requires_tls and self.tls is None:
            raise ValueError("security: TLS is required but not offered")

    @property
    def extensions(self) -> tuple[str, ...]:
        """What the registration says about it."""
        return () if self.tls is None else ("tls",)


def server_context(
    certificate_file: str,
    key_file: str,
    *,
    key_password_file: str | None = None,
    trust_file: str | None = None,
    requires_certificate: bool = False,
) -> ssl.SSLContext:
    """The TLS of a bookie from PEM files; :class:`~bkclient.errors.ArgumentError` for files that cannot be used.

    With ``requires_certificate`` clients must present a certificate that one in ``trust_file`` vouches for.
    """
    if requires_certificate and trust_file is None:
        raise ValueError("requiring client certificates needs a trust file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_identity(context, certificate_file, key_file, password_file=key_password_file)
    if trust_file is not None:
        load_trust(context, trust_file)
        context.verify_mode = ssl.CERT_REQUIRED if requires_certificate else ssl.CERT_OPTIONAL
    return context


class AuthVerdict(Enum):
    """What becomes of a request."""

    #: The bookie carries it out.
    SERVE = "serve"
    #: TLS starts: the answer is OK, and nothing in clear may follow the request.
    START_TLS = "start-tls"
    #: ``UNAUTHORIZED``.
    REFUSE = "refuse"
    #: ``UNAUTHORIZED``, and the connection is closed.
    REFUSE_AND_CLOSE = "refuse-and-close"
    CLOSE = "close"


class Guard:
    """Stands before one connection until nothing is left to demand. ``reason`` says why it refused last."""

    __slots__ = ("_messages", "_security", "_session", "has_tls", "reason")

    def __init__(self, security: BookieSecurity, source: str) -> None:
        self._security = security
        self._session = None if security.auth is None else security.auth.session(source)
        self._messages = 0
        self.has_tls = False
        self.reason = ""

    @property
    def is_done(self) -> bool:
        """Whether requests need no judging any more."""
        return (self.has_tls or self._security.tls is None) and self._is_authenticated

    @property
    def _is_authenticated(self) -> bool:
        return self._session is None or self._session.is_authenticated

    def judge(self, received: ReceivedRequest) -> AuthVerdict | AuthMessage:
        """What becomes of a request; an :class:`~bkclient.wire.messages.AuthMessage` is the answer to it."""
        request = received.request
        if isinstance(request, StartTlsRequest):
            return AuthVerdict.SERVE if self.has_tls or self._security.tls is None else AuthVerdict.START_TLS
        if isinstance(request, AuthMessage):
            return AuthVerdict.SERVE if self._is_authenticated else self._authenticate(received, request)
        if not self._is_authenticated:
            self.reason = "it is not authenticated"
        elif self._security.requires_tls and not self.has_tls:
            self.reason = "it does not use TLS"
        else:
            return AuthVerdict.SERVE
        if received.protocol_version == 3 or isinstance(request, AddRequest | ReadRequest):
            return AuthVerdict.REFUSE
        return AuthVerdict.CLOSE

    def _authenticate(self, received: ReceivedRequest, message: AuthMessage) -> AuthVerdict | AuthMessage:
        provider, session = self._security.auth, self._session
        assert provider is not None
        assert session is not None
        is_version_3 = received.protocol_version == 3
        if message.plugin_name != provider.plugin_name:
            self.reason = f"its plug-in is {message.plugin_name!r}, not {provider.plugin_name!r}"
            return AuthVerdict.REFUSE if is_version_3 else AuthVerdict.CLOSE
        self._messages += 1
        try:
            if self._messages > AUTH_MESSAGES_MAX:
                raise AuthenticationError("too many messages")  # noqa: TRY301 - one more way to fail
            return AuthMessage(provider.plugin_name, session.respond(message.payload))
        except AuthenticationError as error:
            self.reason = str(error)
            return AuthVerdict.REFUSE_AND_CLOSE if is_version_3 else AuthVerdict.CLOSE


# A shared secret -----------------------------------------------------------------------------------------------------


class SharedSecretBookie:
    """The bookie's side of :class:`bkclient.security.auth.SharedSecret`."""

    plugin_name: Final = SharedSecret.plugin_name

    def __init__(self, secret: bytes, *, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        SharedSecret(secret)  # which refuses one that is too short
        self._secret = secret
        self._random_bytes = random_bytes

    def session(self, source: str) -> BookieAuthSession:  # noqa: ARG002 - everybody has the same secret
        """See :class:`BookieAuthProvider`."""
        return _SharedSecretSession(self._secret, self._random_bytes(NONCE_SIZE))


class _SharedSecretSession:
    def __init__(self, secret: bytes, nonce: bytes) -> None:
        self._secret = secret
        self._nonce = nonce
        self._client_nonce = b""
        self.is_authenticated = False

    def respond(self, payload: bytes) -> bytes:
        if not self._client_nonce:
            if len(payload) != NONCE_SIZE:
                raise AuthenticationError(f"a nonce of {len(payload)} bytes")
            self._client_nonce = payload
            return self._nonce + proof_of_bookie(self._secret, payload, self._nonce)
        if not hmac.compare_digest(payload, proof_of_client(self._secret, self._client_nonce, self._nonce)):
            raise AuthenticationError("the client does not know the shared secret")
        self.is_authenticated = True
        return b""

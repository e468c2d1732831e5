"""Authentication of this client to bookies, connection by connection.

Before a bookie serves a connection, BookKeeper carries the messages of an authentication plug-in, without looking into them; both
sides must name the same plug-in. An :class:`AuthProvider` makes an :class:`AuthSession` for each connection: the client sends
first, then both take turns until the session has no more messages. A failure is an :class:`AuthenticationError`, whose text is
part of the error that the application sees.

With TLS the messages are encrypted. They work the same in both protocol versions.

:class:`SharedSecret` is complete and small: use it, or read it before writing another.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
from typing import Final, Protocol

from bkclient.errors import ArgumentError

__all__ = [
    "AUTH_DISABLED",
    "NONCE_SIZE",
    "AuthProvider",
    "AuthSession",
    "AuthenticationError",
    "SharedSecret",
    "proof_of_bookie",
    "proof_of_client",
]

AUTH_DISABLED: Final = "AuthDisabledPlugin"
"""Under this name a bookie answers that it demands no authentication; every plug-in is content with that, as in Java."""


class AuthenticationError(Exception):
    """The other side did not prove who it is, or did not accept our proof; the text says why, and holds no secret."""


class AuthSession(Protocol):
    """The authentication of one connection. Its methods are called in turn, and must not wait for anything."""

    def begin(self) -> bytes | None:
        """The first message; None if there is nothing to prove, and requests may be sent at once."""
        ...

    def on_challenge(self, payload: bytes) -> bytes | None:
        """The answer to what the bookie said; None if both sides are content. :class:`AuthenticationError` to give up."""
        ...


class AuthProvider(Protocol):
    """A way to authenticate, the same for all connections of a client."""

    @property
    def plugin_name(self) -> str:
        """The name under which the bookies know it."""
        ...

    def session(self, bookie_id: str) -> AuthSession:
        """A session for a new connection to the bookie."""
        ...


# A shared secret -----------------------------------------------------------------------------------------------------

#: Bytes of randomness that each side contributes.
NONCE_SIZE: Final = 16
_SECRET_SIZE_MIN: Final = 16


def proof_of_bookie(secret: bytes, client_nonce: bytes, bookie_nonce: bytes) -> bytes:
    """What only a bookie that knows the secret can say in answer to the client's nonce."""
    return hmac.digest(secret, b"bookie" + client_nonce + bookie_nonce, hashlib.sha256)


def proof_of_client(secret: bytes, client_nonce: bytes, bookie_nonce: bytes) -> bytes:
    """What only a client that knows the secret can say in answer to the bookie's nonce."""
    return hmac.digest(secret, b"client" + client_nonce + bookie_nonce, hashlib.sha256)


class SharedSecret:
    """Client and bookies prove to each other that they know the same secret, and never send it.

    The client sends a nonce; the bookie answers with one of its own and an HMAC-SHA256 of both; the client checks that
    and sends the HMAC for its side; the bookie answers with nothing. This authenticates peers, not what they send afterwards:
    an attacker who can alter packets is kept out by TLS only.

    ``secret`` has 16 bytes at least, because an eavesdropper can try secrets at leisure. ``random_bytes(size)`` makes nonces.
    """

    plugin_name: Final = "bkclient-shared-secret"

    def __init__(self, secret: bytes, *, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        if len(secret) < _SECRET_SIZE_MIN:
            raise ArgumentError(f"a shared secret must have >= {_SECRET_SIZE_MIN} bytes, got {len(secret)}")
        self._secret = secret
        self._random_bytes = random_bytes

    def __repr__(self) -> str:
        return "SharedSecret(...)"

    def session(self, bookie_id: str) -> AuthSession:  # noqa: ARG002 - all bookies know the same secret
        """See :class:`AuthProvider`."""
        return _SharedSecretSession(self._secret, self._random_bytes(NONCE_SIZE))


class _SharedSecretSession:
    def __init__(self, secret: bytes, nonce: bytes) -> None:
        self._secret = secret
        self._nonce = nonce
        self._has_proved = False

    def begin(self) -> bytes | None:
        return self._nonce

    def on_challenge(self, payload: bytes) -> bytes | None:
        if self._has_proved:
            if payload:
                raise AuthenticationError("the bookie went on where the exchange should have ended")
            return None
        nonce, proof = payload[:NONCE_SIZE], payload[NONCE_SIZE:]
        if not hmac.compare_digest(proof, proof_of_bookie(self._secret, self._nonce, nonce)):
            raise AuthenticationError("the bookie does not know the shared secret")
        self._has_proved = True
        return proof_of_client(self._secret, self._nonce, nonce)

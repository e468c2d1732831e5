"""The certificates of tests/certificates, and the two ends of TLS made of them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Final

from bkclient import TlsSettings
from bkclient.security.tls import client_context
from bkclient.transport.handshake import Security
from simbookie.security import BookieSecurity, server_context

__all__ = ["MUTUAL", "TRUSTING", "client_security", "offering", "pem"]

_FOLDER: Final = Path(__file__).resolve().parent / "certificates"


def pem(name: str) -> str:
    """The path of one of them."""
    path = _FOLDER / (name if "." in name or name == "password" else f"{name}.pem")
    assert path.is_file(), path
    return str(path)


#: Settings of a client that speaks TLS and trusts the authority; and of one that has a certificate too.
TRUSTING: Final[dict[str, Any]] = {"enabled": True, "trust_file": pem("authority")}
MUTUAL: Final[dict[str, Any]] = {
    **TRUSTING,
    "client_authentication": True,
    "certificate_file": pem("client"),
    "key_file": pem("client-key"),
}


def client_security(auth: Any = None, *, timeout_s: float = 10.0, **settings: Any) -> Security:
    """The security of a client with these settings."""
    return Security(client_context(TlsSettings(**settings)), auth, timeout_s)


def offering(
    certificate: str = "bookie",
    *,
    requires_certificate: bool = False,
    requires_tls: bool = False,
    auth: Any = None,
    newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> BookieSecurity:
    """A bookie that offers TLS with this certificate."""
    context = server_context(
        pem(certificate),
        pem(f"{certificate}-key"),
        trust_file=pem("authority") if requires_certificate else None,
        requires_certificate=requires_certificate,
    )
    context.maximum_version = newest
    return BookieSecurity(context, auth, requires_tls=requires_tls)

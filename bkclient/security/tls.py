"""The TLS context of a client, made once from its settings for all connections.

Certificates and keys are PEM files. Java key stores are not read; the error for one says how to convert it to PEM. The
certificate of a bookie must be signed by a trusted authority and name the host the bookie was found at. The latter can be
switched off, and is off by default in BookKeeper: then any certificate of the same authority is accepted for any bookie.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from bkclient.config import TlsSettings
from bkclient.errors import ArgumentError

__all__ = ["client_context", "load_identity", "load_trust"]

#: How stores begin that are not PEM, and what turns them into PEM.
_JKS: Final = bytes.fromhex("feedfeed")
_DER_SEQUENCE: Final = b"\x30"
_FROM_JKS: Final = (
    "it is a Java key store (JKS): 'keytool -importkeystore -srckeystore FILE -destkeystore store.p12 -deststoretype PKCS12' "
    "makes it PKCS12, and openssl makes that PEM (docs/using/security.md)"
)
_FROM_PKCS12: Final = (
    "it is binary, probably PKCS12, but must be PEM: 'openssl pkcs12 -in FILE -nodes -nocerts -out key.pem' and "
    "'openssl pkcs12 -in FILE -nokeys -out certificates.pem' convert it (docs/using/security.md)"
)


def client_context(settings: TlsSettings) -> ssl.SSLContext | None:
    """The TLS that ``settings`` ask for; None if they ask for none.

    Raises :class:`~bkclient.errors.ArgumentError`, which names the file, if one cannot be read or used. Files are read once, now.
    """
    if not settings.enabled:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.verify_hostname
    if settings.trust_file is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        load_trust(context, settings.trust_file)
    if settings.client_authentication:
        if settings.certificate_file is None or settings.key_file is None:
            raise ArgumentError("tls.client_authentication needs tls.certificate_file and tls.key_file")
        load_identity(context, settings.certificate_file, settings.key_file, password_file=settings.key_password_file)
    return context


def load_trust(context: ssl.SSLContext, path: str) -> None:
    """Trust the certificates in the PEM file ``path``; :class:`~bkclient.errors.ArgumentError` if that is none."""
    _check_pem(path)
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise ArgumentError(f"{path}: no certificates to trust can be read from it ({error})") from error


def load_identity(
    context: ssl.SSLContext, certificate_file: str, key_file: str, *, password_file: str | None = None
) -> None:
    """Present the certificate (with its chain) and key of two PEM files.

    ``password_file`` holds the password of the key. :class:`~bkclient.errors.ArgumentError` if the files cannot be used.
    """
    for path in (certificate_file, key_file):
        _check_pem(path)

    def password() -> bytes:
        if password_file is None:  # else OpenSSL would ask on the terminal
            raise ArgumentError(f"{key_file}: the key is encrypted; name the file with its password")
        return _content(password_file).rstrip(b"\r\n")

    try:
        context.load_cert_chain(certificate_file, key_file, password)
    except ArgumentError:
        raise
    except (OSError, ValueError) as error:
        raise ArgumentError(
            f"{certificate_file} and {key_file}: not a certificate and its key, or the password is wrong ({error})"
        ) from error


def _check_pem(path: str) -> None:
    content = _content(path)
    if content.startswith(_JKS):
        raise ArgumentError(f"{path}: {_FROM_JKS}")
    if content.startswith(_DER_SEQUENCE):
        raise ArgumentError(f"{path}: {_FROM_PKCS12}")


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ArgumentError(f"{path}: it cannot be read ({error.strerror})") from error

"""Options of the command line about TLS and authentication, for one bookie and for the bookies of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from bkclient.errors import ArgumentError
from simbookie.security import BookieSecurity, SharedSecretBookie, server_context

__all__ = [
    "AuthSecret",
    "RequireCertificate",
    "RequireTls",
    "SecurityOptions",
    "TlsCertificate",
    "TlsKey",
    "TlsKeyPassword",
    "TlsTrust",
]

_NONE: Final = "  [default: none]"


def _file(name: str, text: str) -> object:
    return typer.Option(name, help=text + _NONE, show_default=False, exists=True, dir_okay=False)


TlsCertificate = Annotated[
    Path | None, _file("--tls-certificate", "PEM file with the certificate that offers TLS to clients.")
]
TlsKey = Annotated[Path | None, _file("--tls-key", "PEM file with its private key.")]
TlsKeyPassword = Annotated[Path | None, _file("--tls-key-password", "File with the password of that key.")]
TlsTrust = Annotated[Path | None, _file("--tls-trust", "PEM file with certificates that vouch for clients.")]
RequireTls = Annotated[bool, typer.Option("--require-tls", help="Refuse requests in clear.")]
RequireCertificate = Annotated[
    bool, typer.Option("--require-client-certificate", help="Refuse TLS to clients without a certificate to trust.")
]
AuthSecret = Annotated[
    Path | None,
    _file(
        "--auth-secret",
        "File with a secret of 16 bytes at least that clients must know (bkclient.security.auth.SharedSecret).",
    ),
]


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """What was given."""

    certificate: Path | None
    key: Path | None
    key_password: Path | None
    trust: Path | None
    secret: Path | None
    requires_tls: bool
    requires_certificate: bool

    def security(self) -> BookieSecurity | None:
        """What it asks for, None for nothing; :class:`~bkclient.errors.ArgumentError` for what does not fit together."""
        self._check()
        auth = None if self.secret is None else SharedSecretBookie(self.secret.read_bytes().rstrip(b"\r\n"))
        if self.certificate is None or self.key is None:
            return None if auth is None else BookieSecurity(auth=auth)
        context = server_context(
            str(self.certificate),
            str(self.key),
            key_password_file=None if self.key_password is None else str(self.key_password),
            trust_file=None if self.trust is None else str(self.trust),
            requires_certificate=self.requires_certificate,
        )
        return BookieSecurity(context, auth, requires_tls=self.requires_tls)

    def arguments(self) -> list[str]:
        """The same for the command line of a bookie, which may run elsewhere."""
        files = {
            "--tls-certificate": self.certificate,
            "--tls-key": self.key,
            "--tls-key-password": self.key_password,
            "--tls-trust": self.trust,
            "--auth-secret": self.secret,
        }
        arguments = [word for name, path in files.items() if path is not None for word in (name, str(path.resolve()))]
        if self.requires_tls:
            arguments.append("--require-tls")
        if self.requires_certificate:
            arguments.append("--require-client-certificate")
        return arguments

    def _check(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ArgumentError("--tls-certificate and --tls-key must be given together")
        is_about_tls = self.requires_tls or self.requires_certificate or self.trust or self.key_password
        if self.certificate is None and is_about_tls:
            raise ArgumentError("TLS options require --tls-certificate and --tls-key")
        if self.requires_certificate and self.trust is None:
            raise ArgumentError("--require-client-certificate requires --tls-trust")

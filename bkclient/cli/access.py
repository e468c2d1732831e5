"""Where the cluster is and how the client behaves, from what the command line, its environment and a file say.

The file is a Java properties file with BookKeeper's own keys, so that the one a Java client has can be used; ``-c`` overrides it.
The metadata URI of ``--metadata`` (or ``BK_METADATA_URI``) wins over the file's ``metadataServiceUri``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from pathlib import Path

import typer

import bkclient
from bkclient import BookKeeper
from bkclient.config import ClientConfig
from bkclient.config.fields import setting_of
from bkclient.config.group import declared_settings
from bkclient.config.properties import parse_properties
from bkclient.errors import ArgumentError
from bkclient.repair import RepairConfig

__all__ = ["METADATA_VARIABLE", "PASSWORD_VARIABLE", "ClusterAccess", "connection_for", "pairs", "password_from"]

METADATA_VARIABLE = "BK_METADATA_URI"
PASSWORD_VARIABLE = "BK_LEDGER_PASSWORD"  # noqa: S105  a name, not a password

#: Keys that mean something to repairs alone. A client would warn that they mean nothing to it.
_REPAIR_ONLY = {setting_of(field).key for field in fields(RepairConfig)} - {
    setting.key for setting in declared_settings(ClientConfig).values()
}


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Which cluster, how to talk to it, and how to repair its ledgers."""

    metadata_uri: str
    config: ClientConfig
    repair: RepairConfig

    def connect(self) -> AbstractAsyncContextManager[BookKeeper]:
        """A client for it."""
        return bkclient.connect(self.metadata_uri, config=self.config)


def connection_for(metadata: str | None, file: Path | None, settings: Sequence[str] | None) -> ClusterAccess:
    """What the three options say together; ``typer.BadParameter`` for what cannot be."""
    try:
        properties = {} if file is None else parse_properties(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ArgumentError) as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="--config") from None
    properties |= pairs(settings, "-c")
    ours = {key: value for key, value in properties.items() if key not in _REPAIR_ONLY}
    try:
        config = ClientConfig.from_properties(ours)
        repair = RepairConfig.from_properties(properties)
    except ArgumentError as error:
        raise typer.BadParameter(str(error), param_hint="--config or -c") from None
    uri = metadata or config.metadata.uri
    if not uri:
        raise typer.BadParameter(
            f"no metadata URI given: use --metadata, {METADATA_VARIABLE}, or metadataServiceUri in --config",
            param_hint="--metadata",
        )
    return ClusterAccess(uri, config, repair)


def pairs(options: Sequence[str] | None, name: str) -> dict[str, str]:
    """``key=value`` options as a mapping; the last of several with one key counts."""
    found: dict[str, str] = {}
    for option in options or ():
        key, separator, value = option.partition("=")
        if not separator or not key.strip():
            raise typer.BadParameter(f"must have the form key=value, got {option!r}", param_hint=name)
        found[key.strip()] = value
    return found


def password_from(file: Path | None, *, ask: bool, is_new: bool = False) -> bytes:
    """The password of a ledger: of ``file`` without its last line end, typed, or of the environment; else the empty one.

    There is no option that holds it: what is on a command line is seen by every user of the machine. A new password is
    typed twice.
    """
    if file is not None and ask:
        raise typer.BadParameter(
            "--password-file and --ask-password are mutually exclusive", param_hint="--ask-password"
        )
    if file is not None:
        try:
            return file.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
        except OSError as error:
            raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="--password-file") from None
    if ask:
        typed: str = typer.prompt(
            "Password", hide_input=True, confirmation_prompt=is_new, default="", show_default=False, err=True
        )
        return typed.encode()
    return os.fsencode(os.environ.get(PASSWORD_VARIABLE, ""))

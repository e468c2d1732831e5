"""All settings of a client: one frozen, validated object of groups. ``docs/using/configuration.md`` explains every setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self

from bkclient.config.group import GroupedSettings, declared_settings, nested, settings_class
from bkclient.config.groups import (
    AdminSettings,
    ConnectionSettings,
    HealthSettings,
    LimitSettings,
    MetadataSettings,
    PlacementSettings,
    ReadingSettings,
    TimeoutSettings,
    TlsSettings,
    WritingSettings,
)
from bkclient.config.keys import settings_from
from bkclient.config.properties import parse_properties
from bkclient.errors import ArgumentError

__all__ = ["ClientConfig"]


@settings_class
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(GroupedSettings):
    """How a client behaves. Wrong values and unknown names raise :class:`~bkclient.errors.ArgumentError`.

    The configuration never changes; :meth:`with_changes` makes another one.
    """

    metadata: MetadataSettings = field(default_factory=MetadataSettings)
    timeouts: TimeoutSettings = field(default_factory=TimeoutSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    connections: ConnectionSettings = field(default_factory=ConnectionSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    writing: WritingSettings = field(default_factory=WritingSettings)
    reading: ReadingSettings = field(default_factory=ReadingSettings)
    placement: PlacementSettings = field(default_factory=PlacementSettings)
    health: HealthSettings = field(default_factory=HealthSettings)
    admin: AdminSettings = field(default_factory=AdminSettings)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """The configuration in ``properties``, which have BookKeeper's own keys; values are text, or what the text means.

        Settings that BookKeeper does not have are written as ``group.name``, for example ``limits.max_in_flight_entries``.
        Keys that mean nothing to this client are ignored, with one warning that names them all (logger
        ``bkclient.config``). Raises :class:`~bkclient.errors.ArgumentError` for an unknown key, with the nearest known one,
        for a value that its key cannot have, and for a key whose effect an application would miss (authentication, Java
        key stores). ``docs/using/configuration.md`` lists which is which.
        """
        if not isinstance(properties, Mapping):
            raise ArgumentError(f"properties must be a mapping, got {type(properties).__name__}")
        return cls.of(nested(settings_from(properties, declared_settings(cls))))

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """The configuration in a Java properties file, in UTF-8; see :meth:`from_properties`.

        Errors name the file; one that cannot be read is an :class:`~bkclient.errors.ArgumentError` too.
        """
        try:
            return cls.from_properties(parse_properties(Path(path).read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, ArgumentError) as error:
            reason = error.message if isinstance(error, ArgumentError) else str(error)
            raise ArgumentError(f"{path}: {reason}") from error

"""Settings of a client: one frozen, validated object of groups, and BookKeeper's own keys and files to make it from."""

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
from bkclient.config.settings import ClientConfig

__all__ = [
    "AdminSettings",
    "ClientConfig",
    "ConnectionSettings",
    "HealthSettings",
    "LimitSettings",
    "MetadataSettings",
    "PlacementSettings",
    "ReadingSettings",
    "TimeoutSettings",
    "TlsSettings",
    "WritingSettings",
]

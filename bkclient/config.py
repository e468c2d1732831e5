"""Settings of a client: one frozen, validated object; units are part of the names."""

from __future__ import annotations

from dataclasses import dataclass, fields

from bkclient.errors import ArgumentError

__all__ = ["ClientConfig"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client behaves. Every limit has a default; wrong values raise :class:`~bkclient.errors.ArgumentError`.

    ``wire_protocol_version``
        3 (protobuf, the default of Apache BookKeeper) or 2 (binary).
    ``add_timeout_s``, ``read_timeout_s``
        How long one request to one bookie may take before the bookie counts as failed (W-45, R-24).
    ``connect_timeout_s``
        How long a connection to a bookie may take to be made (W-47).
    ``metadata_timeout_s``
        Session and connect timeout of the metadata store.
    ``max_frame_size_bytes``
        Largest frame sent or accepted, its length prefix included; must not exceed what the bookies accept.
    ``max_in_flight_entries``, ``max_in_flight_bytes``
        What one writer may have appended and not yet confirmed; over it ``append`` waits and ``append_nowait`` refuses.
    ``max_ensemble_changes``
        After this many a writer gives up (W-29).
    ``read_ahead_entries``
        How many entries iteration over a range has requested ahead of the one it yields.
    """

    wire_protocol_version: int = 3
    add_timeout_s: float = 5.0
    read_timeout_s: float = 5.0
    connect_timeout_s: float = 10.0
    metadata_timeout_s: float = 10.0
    max_frame_size_bytes: int = 5 * _MIB
    max_in_flight_entries: int = 2000
    max_in_flight_bytes: int = 64 * _MIB
    max_ensemble_changes: int = 2**31 - 1
    read_ahead_entries: int = 64

    def __post_init__(self) -> None:
        if self.wire_protocol_version not in (2, 3):
            raise ArgumentError(f"wire_protocol_version must be 2 or 3, not {self.wire_protocol_version!r}")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise ArgumentError(f"{field.name} must be a positive number, not {value!r}")
        if self.max_frame_size_bytes < 1024:
            raise ArgumentError(f"max_frame_size_bytes must be at least 1024, not {self.max_frame_size_bytes}")

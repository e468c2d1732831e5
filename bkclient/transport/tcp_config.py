"""What can be configured about talking to bookies over TCP."""

from __future__ import annotations

from dataclasses import dataclass

from bkclient.errors import ArgumentError
from bkclient.wire.framing import DEFAULT_MAX_FRAME_SIZE

__all__ = ["TcpTransportConfig"]


@dataclass(frozen=True, slots=True)
class TcpTransportConfig:
    """How to talk to bookies. :class:`~bkclient.errors.ArgumentError` for values that cannot work.

    A request times out ``add_timeout_s`` or, if it is no add, ``read_timeout_s`` after it was handed to an established
    connection (W-45), noticed up to a twentieth later. ``connect_timeout_s`` includes resolving the bookie's address.

    After an attempt to connect fails, further requests fail at once for a time that doubles with every failure from
    ``backoff_initial_s`` to ``backoff_max_s``, each shortened by up to half at random; a bookie's first answer resets it.

    A connection counts as not writable from ``write_buffer_high_water_bytes`` unsent bytes on until fewer than
    ``write_buffer_low_water_bytes`` are left (W-7).

    ``max_outstanding_requests`` and ``max_outstanding_bytes`` bound what a bookie owes answers to, per connection: once
    reached, requests fail with ``TOO_MANY_REQUESTS``. Keep the number of entries a writer has in flight below.
    """

    protocol_version: int = 3
    add_timeout_s: float = 5.0
    read_timeout_s: float = 5.0
    connect_timeout_s: float = 10.0
    max_frame_size_bytes: int = DEFAULT_MAX_FRAME_SIZE
    max_outstanding_requests: int = 20_000
    max_outstanding_bytes: int = 128 * 1024 * 1024
    write_buffer_low_water_bytes: int = 384 * 1024
    write_buffer_high_water_bytes: int = 512 * 1024
    backoff_initial_s: float = 0.1
    backoff_max_s: float = 10.0

    def __post_init__(self) -> None:
        if self.protocol_version not in {2, 3}:
            raise ArgumentError(f"protocol_version {self.protocol_version}: only 2 and 3 exist")
        for name in (
            "add_timeout_s",
            "read_timeout_s",
            "connect_timeout_s",
            "max_outstanding_requests",
            "max_outstanding_bytes",
            "write_buffer_high_water_bytes",
            "backoff_initial_s",
        ):
            if not getattr(self, name) > 0:
                raise ArgumentError(f"{name} {getattr(self, name)} is not above 0")
        if not 0 <= self.write_buffer_low_water_bytes <= self.write_buffer_high_water_bytes:
            raise ArgumentError("write_buffer_low_water_bytes is not between 0 and write_buffer_high_water_bytes")
        if self.backoff_max_s < self.backoff_initial_s:
            raise ArgumentError(f"backoff_max_s {self.backoff_max_s} is below backoff_initial_s")
        if self.max_frame_size_bytes < 1024:
            raise ArgumentError(f"max_frame_size_bytes {self.max_frame_size_bytes} leaves no room for entries")

"""Settings of a served bookie."""

from __future__ import annotations

from dataclasses import dataclass

from bkclient.wire.framing import DEFAULT_MAX_FRAME_SIZE
from simbookie.security import BookieSecurity

__all__ = ["ServerConfig"]


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Limits of one server. Sizes in bytes, times in seconds."""

    #: Largest frame accepted, its length prefix included.
    max_frame_size: int = DEFAULT_MAX_FRAME_SIZE
    #: Connections served at a time, fewer where the process may not open so many files; further ones are closed at once.
    connections_max: int = 10_000
    #: Connections of one source, an IPv4 address or an IPv6 network of 64 bits; ``None``: half of all.
    connections_per_source_max: int | None = None
    #: Bytes of answers that clients have not taken, in all connections together; above it, the connection whose client has
    #: taken nothing for longest is closed.
    unsent_bytes_max: int = 134_217_728
    #: Requests of one connection in one turn of the loop, and the time after which no further one is begun.
    slice_requests: int = 512
    slice_s: float = 0.0025
    #: Time for the requests of all connections in one turn of the loop.
    turn_s: float = 0.005
    #: From the connection to the end of its first request, and of TLS and authentication where these are demanded.
    handshake_timeout_s: float = 30.0
    #: From the first byte of a frame to its last.
    frame_timeout_s: float = 120.0
    #: How long a client that has answers to take may take none of them.
    answers_timeout_s: float = 300.0
    #: Silence after which the system asks a client's system whether it is still there, and then again, six times at most.
    keepalive_idle_s: int = 60
    keepalive_interval_s: int = 10
    #: How long an orderly stop waits for clients to take their last answers.
    close_timeout_s: float = 1.0
    #: How long it waits for the registry to withdraw the announcement before it stops anyway.
    unregister_timeout_s: float = 5.0
    #: TLS and authentication; none are offered by default.
    security: BookieSecurity | None = None

    def __post_init__(self) -> None:
        if not self.unsent_bytes_max >= self.max_frame_size:
            raise ValueError(
                f"server: unsent_bytes_max must be >= max_frame_size, got {self.unsent_bytes_max} and {self.max_frame_size}"
            )
        if self.connections_per_source_max is not None and self.connections_per_source_max < 1:
            raise ValueError(f"server: connections_per_source_max must be >= 1, got {self.connections_per_source_max}")
        for name in ("connections_max", "slice_requests", "keepalive_idle_s", "keepalive_interval_s"):
            if not getattr(self, name) >= 1:
                raise ValueError(f"server: {name} must be >= 1, got {getattr(self, name)}")
        for name in ("slice_s", "turn_s", "handshake_timeout_s", "frame_timeout_s", "answers_timeout_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"server: {name} must be > 0, got {getattr(self, name)}")

"""The ways between hosts: their chances, what blocks them, and the count of what became of messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simbookie.world.rng import chance
from simbookie.world.schedule import Strand

__all__ = ["Link", "NetworkConfig", "NetworkCounters", "TcpConfig", "TcpCounters"]


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """The chances of a link. Times in seconds, probabilities from 0 to 1."""

    #: What every message takes at least.
    latency_s: float = 0.000_3
    #: A message takes up to this much more, evenly distributed.
    jitter_s: float = 0.000_4
    #: How likely a message is one of the slow ones, which take up to ``slow_s`` more.
    slow_probability: float = 0.0
    slow_s: float = 0.2
    loss_probability: float = 0.0
    duplicate_probability: float = 0.0
    #: Whether messages arrive in the order in which they were sent.
    fifo: bool = True

    def __post_init__(self) -> None:
        for name in ("latency_s", "jitter_s", "slow_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"network: {name} must be >= 0, got {getattr(self, name)}")
        for name in ("slow_probability", "loss_probability", "duplicate_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"network: {name} must be between 0 and 1, got {getattr(self, name)}")


@dataclass(slots=True)
class NetworkCounters:
    """What became of the messages of a run; control traffic of connections is not counted."""

    sent: int = 0
    #: Arrived at a living process, copies included.
    delivered: int = 0
    #: Copies made, by chance or on purpose.
    duplicated: int = 0
    #: Lost by chance.
    lost: int = 0
    #: Lost on purpose.
    dropped: int = 0
    delayed: int = 0
    held: int = 0
    #: Stopped by a blocked link.
    blocked: int = 0
    #: Arrived where there is no receiver any more: a dead process, a closed or reset connection, a machine without power.
    discarded: int = 0
    #: Connections established, refused, and broken while in use.
    connected: int = 0
    refused: int = 0
    broken: int = 0


@dataclass(frozen=True, slots=True)
class TcpConfig:
    """The shape of streams. Sizes in bytes, times in seconds."""

    #: The largest segment.
    segment_bytes: int = 1_448
    #: How likely a segment is cut in two, at any byte.
    cut_probability: float = 0.0
    #: What each way between two hosts carries in a second, if that is limited.
    bandwidth: float | None = None
    #: What a kernel takes from a process before it is sent, and what it keeps for a process that does not read.
    send_buffer_bytes: int = 131_072
    receive_buffer_bytes: int = 131_072
    #: After what time a lost segment is sent again; twice as much if it is lost once more, and so on.
    retransmit_s: float = 0.2

    def __post_init__(self) -> None:
        for name in ("segment_bytes", "send_buffer_bytes", "receive_buffer_bytes", "bandwidth", "retransmit_s"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(f"tcp: {name} must be > 0, got {getattr(self, name)}")
        if not 0 <= self.cut_probability <= 1:
            raise ValueError(f"tcp: cut_probability must be between 0 and 1, got {self.cut_probability}")


@dataclass(slots=True)
class TcpCounters:
    """What became of the streams of a run."""

    #: Connections established, refused, and reset while in use.
    connected: int = 0
    refused: int = 0
    reset: int = 0
    #: Segments that left, those sent again for chance or blocked links, and the bytes that were delivered.
    segments: int = 0
    retransmitted: int = 0
    bytes_delivered: int = 0


class Link:
    """The way from one host to another. ``config`` overrides the network's, while it is set."""

    __slots__ = (
        *("_seed", "blocked", "config", "cut_after", "destination", "keep", "last_arrival", "random", "read_rate"),
        *("read_until", "source", "strand", "waiters"),
    )

    def __init__(self, source: str, destination: str, seed: int) -> None:
        self.source = source
        self.destination = destination
        self.config: NetworkConfig | None = None
        self.blocked = False
        #: Whether messages that it stops arrive later instead of never.
        self.keep = False
        #: Who waits for it to be unblocked.
        self.waiters: list[Callable[[], None]] = []
        self.last_arrival = 0.0
        #: After how many bytes the connection breaks that they came by, if one is to.
        self.cut_after: int | None = None
        #: How many bytes a second the destination reads, if that is limited, and when it has read what has come.
        self.read_rate: int | None = None
        self.read_until = 0.0
        #: The order of messages; streams of bytes have orders of their own.
        self.strand = Strand(f"{source}>{destination}")
        self._seed = seed
        #: Its chance, from 0 to 1, once :meth:`begin` has made it: many links carry no message.
        self.random: Callable[[], float] | None = None

    def begin(self) -> Callable[[], float]:
        """Make :attr:`random`."""
        self.random = chance(self._seed, f"link {self.source}->{self.destination}")
        return self.random

    def __repr__(self) -> str:
        return f"<Link {self.source}->{self.destination}{' blocked' if self.blocked else ''}>"

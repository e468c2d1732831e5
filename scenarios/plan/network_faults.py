"""Faults of the network between two hosts, and of single messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scenarios.plan.errors import PlanError
from scenarios.plan.fault import ANY, Fault, Traffic, Way
from simbookie.world.links import NetworkConfig

__all__ = [
    "Clog",
    "Cut",
    "CutAfter",
    "DelayMessages",
    "Drop",
    "DuplicateMessages",
    "HalfOpen",
    "Hold",
    "LinkWeather",
    "Messages",
    "Partition",
    "Reset",
    "SlowReader",
]


@dataclass(frozen=True, slots=True)
class _Between(Fault):
    """Something between two hosts."""

    host: str
    other: str

    @property
    def hosts(self) -> tuple[str, ...]:
        """Both."""
        return (self.host, self.other)


@dataclass(frozen=True, slots=True)
class Cut(_Between):
    """What is sent is lost; over streams it is sent again until the fault ends."""

    verb: ClassVar[str] = "cut"
    is_lasting: ClassVar[bool] = True
    way: Way = Way.BOTH


@dataclass(frozen=True, slots=True)
class Clog(_Between):
    """What is sent arrives when the fault has ended."""

    verb: ClassVar[str] = "clog"
    is_lasting: ClassVar[bool] = True
    way: Way = Way.BOTH


@dataclass(frozen=True, slots=True)
class Partition(Fault):
    """Nothing passes between two groups of hosts; with ``keep`` it arrives afterwards."""

    verb: ClassVar[str] = "partition"
    is_lasting: ClassVar[bool] = True
    group: tuple[str, ...]
    others: tuple[str, ...]
    keep: bool = False

    @property
    def hosts(self) -> tuple[str, ...]:
        """Both groups."""
        return (*self.group, *self.others)


@dataclass(frozen=True, slots=True)
class Reset(_Between):
    """Connections between the two break."""

    verb: ClassVar[str] = "reset"


@dataclass(frozen=True, slots=True)
class CutAfter(_Between):
    """Connections between the two break when so many more bytes have come from the first to the second, in whatever they are.

    What came before has arrived. Over objects, messages count as long as their entries and 100 bytes, and are not cut in two.
    """

    verb: ClassVar[str] = "cut-after"
    is_lasting: ClassVar[bool] = True
    size: int

    def __post_init__(self) -> None:
        _Between.__post_init__(self)
        if self.size < 0:
            raise PlanError(f"expected size >= 0, found {self.size}")


@dataclass(frozen=True, slots=True)
class HalfOpen(_Between):
    """The first host takes its connections with the second for broken; the second does not, until it sends something."""

    verb: ClassVar[str] = "half-open"


@dataclass(frozen=True, slots=True)
class SlowReader(_Between):
    """The first host reads no more than ``bandwidth`` bytes a second of what the second one sends.

    Over objects, messages count as long as their entries and 100 bytes.
    """

    verb: ClassVar[str] = "slow-reader"
    is_lasting: ClassVar[bool] = True
    bandwidth: int = 1_000

    def __post_init__(self) -> None:
        _Between.__post_init__(self)
        if self.bandwidth < 1:
            raise PlanError(f"expected bandwidth >= 1, found {self.bandwidth}")


@dataclass(frozen=True, slots=True)
class LinkWeather(_Between):
    """A link has other chances than the rest of the network. Losing or doubling a message is nothing that TCP does."""

    verb: ClassVar[str] = "weather"
    is_lasting: ClassVar[bool] = True
    way: Way = Way.BOTH
    latency_s: float = 0.0003
    jitter_s: float = 0.0004
    slow_probability: float = 0.0
    slow_s: float = 0.2
    loss_probability: float = 0.0
    duplicate_probability: float = 0.0

    def __post_init__(self) -> None:
        _Between.__post_init__(self)
        _ = self.network

    @property
    def network(self) -> NetworkConfig:
        """The chances."""
        return NetworkConfig(
            latency_s=self.latency_s,
            jitter_s=self.jitter_s,
            slow_probability=self.slow_probability,
            slow_s=self.slow_s,
            loss_probability=self.loss_probability,
            duplicate_probability=self.duplicate_probability,
        )


@dataclass(frozen=True, slots=True)
class Messages(Fault):
    """Single requests of a client to bookies, or the answers: of these entries, the first ``limit`` of them.

    A write-back is what a recovery adds, a recovery read reads and fences, a fence reads the last entry and fences.
    """

    is_lasting: ClassVar[bool] = True
    traffic: Traffic
    client: str
    bookies: tuple[str, ...]
    answers: bool = False
    entries: tuple[int, ...] = ()
    limit: int | None = None

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if not self.bookies:
            raise PlanError("expected bookies, found none")
        if self.limit is not None and self.limit < 1:
            raise PlanError(f"expected a limit >= 1, found {self.limit}")

    @property
    def hosts(self) -> tuple[str, ...]:
        """Client and bookies."""
        return tuple(name for name in (self.client, *self.bookies) if name != ANY)


@dataclass(frozen=True, slots=True)
class Drop(Messages):
    """Such messages are lost, and the connection is not."""

    verb: ClassVar[str] = "drop"


@dataclass(frozen=True, slots=True)
class Hold(Messages):
    """Such messages arrive when the fault has ended."""

    verb: ClassVar[str] = "hold"


@dataclass(frozen=True, slots=True)
class DelayMessages(Messages):
    """Such messages arrive ``by_s`` later, overtaken by what follows."""

    verb: ClassVar[str] = "delay"
    by_s: float = 1.0

    def __post_init__(self) -> None:
        Messages.__post_init__(self)
        if not self.by_s >= 0:
            raise PlanError(f"expected by >= 0, found {self.by_s}")


@dataclass(frozen=True, slots=True)
class DuplicateMessages(Messages):
    """Such messages arrive once more for each of ``copies``. Over bytes not in version 2: nothing tells copies apart."""

    verb: ClassVar[str] = "duplicate"
    copies: int = 1

    def __post_init__(self) -> None:
        Messages.__post_init__(self)
        if not 1 <= self.copies <= 100:
            raise PlanError(f"expected copies from 1 to 100, found {self.copies}")

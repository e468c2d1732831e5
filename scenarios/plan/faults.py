"""Faults: what a step of a plan breaks or mends. Every parameter is given; nothing is drawn.

In place of a bookie, ``LEDGER@POSITION`` stands for the one at that position of the ledger's last ensemble, when the step is
taken.

A *lasting* fault begins with its step, and ends by ``end NAME`` (the step's name), by ``heal``, or when the run settles; any
other is done at once. Which ones no TCP connection can produce is said with each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from scenarios.plan.errors import PlanError
from scenarios.plan.fault import ANY, Fault, MetadataWay, MetadataWhat, Traffic, Way
from scenarios.plan.words import check_name, flag_word
from simbookie.storage.base import CrashMode
from simbookie.world.links import NetworkConfig

__all__ = [
    "ANY",
    "FAULTS",
    "Alter",
    "Clog",
    "Collect",
    "Compact",
    "Crash",
    "Cut",
    "DelayMessages",
    "Drop",
    "DuplicateMessages",
    "EndFault",
    "Fault",
    "HealAll",
    "Hold",
    "KillClient",
    "Limbo",
    "LinkWeather",
    "Lose",
    "LoseSession",
    "Messages",
    "MetadataCalls",
    "MetadataWay",
    "MetadataWhat",
    "Omit",
    "Partition",
    "Pause",
    "ReadOnly",
    "Reset",
    "Restart",
    "Resume",
    "Start",
    "StoreDown",
    "Traffic",
    "Way",
    "Wipe",
]

# The network -------------------------------------------------------------------------------------------------------


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
    """Such messages arrive once more for each of ``copies``."""

    verb: ClassVar[str] = "duplicate"
    copies: int = 1

    def __post_init__(self) -> None:
        Messages.__post_init__(self)
        if not 1 <= self.copies <= 100:
            raise PlanError(f"expected copies from 1 to 100, found {self.copies}")


# Hosts -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _OfHost(Fault):
    """Something on one host."""

    host: str

    @property
    def hosts(self) -> tuple[str, ...]:
        """That host."""
        return (self.host,)


@dataclass(frozen=True, slots=True)
class Crash(_OfHost):
    """A bookie dies: its process, or its machine's power, with which what was not synced is lost. Ended by a restart.

    One that keeps files can die ``before`` a step of its storage: before the next one of this name, or that of this ``number``.
    """

    verb: ClassVar[str] = "crash"
    is_lasting: ClassVar[bool] = True
    mode: CrashMode = CrashMode.PROCESS
    before: str = ""
    number: int = 1

    def __post_init__(self) -> None:
        _OfHost.__post_init__(self)
        if self.before:
            check_name(self.before, "a step")
        if self.number < 1:
            raise PlanError(f"expected a number >= 1, found {self.number}")
        if self.number > 1 and not self.before:
            raise PlanError("expected before=... with a number, found none")


@dataclass(frozen=True, slots=True)
class Restart(_OfHost):
    """A bookie that crashed starts again."""

    verb: ClassVar[str] = "restart"


@dataclass(frozen=True, slots=True)
class Start(_OfHost):
    """A client process starts; without such a step it starts with the run."""

    verb: ClassVar[str] = "start"


@dataclass(frozen=True, slots=True)
class KillClient(_OfHost):
    """A client process ends for good; nothing of it executes any more."""

    verb: ClassVar[str] = "kill"


@dataclass(frozen=True, slots=True)
class Pause(_OfHost):
    """A process executes nothing until it resumes: a client or a bookie."""

    verb: ClassVar[str] = "pause"
    is_lasting: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Resume(_OfHost):
    """A paused process goes on."""

    verb: ClassVar[str] = "resume"


# Bookies -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadOnly(_OfHost):
    """A bookie takes no adds but those of recoveries."""

    verb: ClassVar[str] = "read-only"
    is_lasting: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Wipe(_OfHost):
    """A bookie dies and its disk is replaced by an empty one. Ended by a restart."""

    verb: ClassVar[str] = "wipe"
    is_lasting: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class _OfCopies(_OfHost):
    """Something about a bookie's copies of a ledger's entries; of all of them where none are named."""

    ledger: str
    entries: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _OfHost.__post_init__(self)
        check_name(self.ledger, "a ledger")


@dataclass(frozen=True, slots=True)
class Alter(_OfCopies):
    """A bit flips in byte ``byte`` of each copy, counted round and round; the bookie does not notice."""

    verb: ClassVar[str] = "alter"
    byte: int = 40

    def __post_init__(self) -> None:
        _OfCopies.__post_init__(self)
        if self.byte < 0:
            raise PlanError(f"expected byte >= 0, found {self.byte}")


@dataclass(frozen=True, slots=True)
class Lose(_OfCopies):
    """The copies are gone; the bookie does not notice."""

    verb: ClassVar[str] = "lose"


@dataclass(frozen=True, slots=True)
class Limbo(_OfHost):
    """The bookie stops vouching for what it does not have of a ledger."""

    verb: ClassVar[str] = "limbo"
    is_lasting: ClassVar[bool] = True
    ledger: str

    def __post_init__(self) -> None:
        _OfHost.__post_init__(self)
        check_name(self.ledger, "a ledger")


@dataclass(frozen=True, slots=True)
class Collect(_OfHost):
    """The bookie collects its garbage: ledgers that the metadata service does not know.

    Or those that are ``overreplicated``: closed, and no fragment of theirs is kept here any more.
    """

    verb: ClassVar[str] = "collect-garbage"
    overreplicated: bool = False


@dataclass(frozen=True, slots=True)
class Compact(_OfHost):
    """The bookie, which keeps files, copies what is alive out of entry logs that are mostly dead, and removes those."""

    verb: ClassVar[str] = "compact"


# Metadata ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MetadataCalls(Fault):
    """Calls of a client to the metadata service; held ones are made when the fault has ended."""

    verb: ClassVar[str] = "metadata"
    is_lasting: ClassVar[bool] = True
    way: MetadataWay
    what: MetadataWhat
    client: str
    limit: int | None = None
    by_s: float = 1.0

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if self.limit is not None and self.limit < 1:
            raise PlanError(f"expected a limit >= 1, found {self.limit}")
        if not self.by_s >= 0:
            raise PlanError(f"expected by >= 0, found {self.by_s}")
        is_of_ledgers = self.way in {MetadataWay.CONFLICT, MetadataWay.STALE}
        if is_of_ledgers and self.what in {MetadataWhat.NODE, MetadataWhat.NODE_READ}:
            raise PlanError(f"expected calls about ledgers for {flag_word(self.way)}, found {flag_word(self.what)}")

    @property
    def hosts(self) -> tuple[str, ...]:
        """The client."""
        return () if self.client == ANY else (self.client,)


@dataclass(frozen=True, slots=True)
class Omit(_OfHost):
    """Listings that the metadata service gives a host leave a ledger out."""

    verb: ClassVar[str] = "omit"
    is_lasting: ClassVar[bool] = True
    ledger: str

    def __post_init__(self) -> None:
        _OfHost.__post_init__(self)
        check_name(self.ledger, "a ledger")


@dataclass(frozen=True, slots=True)
class StoreDown(Fault):
    """The metadata service is down; sessions survive."""

    verb: ClassVar[str] = "store-down"
    is_lasting: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class LoseSession(_OfHost):
    """The sessions of a host with the metadata service expire; it has a new one after ``outage_s``."""

    verb: ClassVar[str] = "lose-session"
    outage_s: float = 1.0

    def __post_init__(self) -> None:
        _OfHost.__post_init__(self)
        if not self.outage_s > 0:
            raise PlanError(f"expected outage > 0, found {self.outage_s}")


# Ends --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EndFault(Fault):
    """The lasting fault of the step with this name ends."""

    verb: ClassVar[str] = "end"
    step: str

    def __post_init__(self) -> None:
        check_name(self.step, "a step")


@dataclass(frozen=True, slots=True)
class HealAll(Fault):
    """Every lasting fault ends; crashed bookies stay down."""

    verb: ClassVar[str] = "heal"


FAULTS: Final[dict[str, type[Fault]]] = {
    cls.verb: cls
    for cls in (
        *(Cut, Clog, Partition, Reset, LinkWeather, Drop, Hold, DelayMessages, DuplicateMessages),
        *(Crash, Restart, Start, KillClient, Pause, Resume),
        *(ReadOnly, Wipe, Alter, Lose, Limbo, Collect, Compact),
        *(MetadataCalls, Omit, StoreDown, LoseSession, EndFault, HealAll),
    )
}
"""Everything that a step can do, by its verb."""

"""What all faults of plans have in common, and the words for their parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, ClassVar, Final, Self

from scenarios.plan.words import check_name

__all__ = ["ANY", "Budget", "Departure", "Fault", "MetadataWay", "MetadataWhat", "OfHost", "OfLedger", "Traffic", "Way"]

#: In place of a client or of bookies: all of them.
ANY: Final = "any"


#: The fields of faults that hold names of hosts.
_HOST_FIELDS: Final = ("host", "other", "group", "others", "client", "bookies")


class Way(Enum):
    """Which direction between two hosts: from the first to the second, back, or both."""

    TO = auto()
    FROM = auto()
    BOTH = auto()


class Traffic(Enum):
    """Which requests of a client, or the answers to them."""

    ADD = auto()
    WRITE_BACK = auto()
    FENCE = auto()
    RECOVERY_READ = auto()
    READ = auto()
    LAC = auto()
    FORCE = auto()
    ANY = auto()


class MetadataWay(Enum):
    """What is done to a call to the metadata service: see :class:`~simbookie.world.metadata_service.MetadataFault`."""

    CONFLICT = auto()
    ANSWER_LOST = auto()
    CALL_LOST = auto()
    FAIL = auto()
    STALE = auto()
    HOLD = auto()
    HOLD_ANSWER = auto()
    DELAY = auto()


class MetadataWhat(Enum):
    """Which calls: a read, a creation, a write that changes the ensemble, starts a recovery or closes, any write, a deletion.

    Those are calls about ledgers. ``NODE`` is a write of what is stored about a log, its list or a cursor; ``NODE_READ`` a read
    of it.
    """

    READ = auto()
    CREATE = auto()
    CHANGE = auto()
    RECOVER = auto()
    CLOSE = auto()
    WRITE = auto()
    DELETE = auto()
    NODE = auto()
    NODE_READ = auto()
    ANY = auto()


class Departure(Enum):
    """What leaves a client: a request of this traffic, or a call to the metadata service."""

    ADD = auto()
    WRITE_BACK = auto()
    FENCE = auto()
    RECOVERY_READ = auto()
    READ = auto()
    LAC = auto()
    FORCE = auto()
    CREATE = auto()
    CHANGE = auto()
    RECOVER = auto()
    CLOSE = auto()
    DELETE = auto()
    NODE = auto()


class Budget(Enum):
    """What a fault takes of what a ledger has too much of; a plan in which everything has to end keeps within that."""

    #: Nothing: when it has ended, all is as before.
    NOTHING = auto()
    #: Copies on one bookie. Entries survive that on fewer bookies than their ack quorum.
    COPIES = auto()
    #: A bookie, with everything on it. Entries survive that of fewer than an ack quorum; ensembles need a spare one.
    BOOKIE = auto()


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that a step does."""

    verb: ClassVar[str]
    #: Whether it goes on until it is ended.
    is_lasting: ClassVar[bool] = False
    budget: ClassVar[Budget] = Budget.NOTHING

    def __post_init__(self) -> None:
        for name in self.hosts:
            check_name(name, "a host", is_host=True)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The clients and bookies that it names."""
        return ()

    def at(self, place: Callable[[str], str]) -> Self:
        """The same with other names of hosts."""
        changed: dict[str, Any] = {}
        for name in _HOST_FIELDS:
            value = getattr(self, name, None)
            if isinstance(value, tuple):
                changed[name] = tuple(map(place, value))
            elif value is not None:
                changed[name] = place(value)
        return replace(self, **changed)


@dataclass(frozen=True, slots=True)
class OfHost(Fault):
    """Something on one host."""

    host: str

    @property
    def hosts(self) -> tuple[str, ...]:
        """That host."""
        return (self.host,)


@dataclass(frozen=True, slots=True)
class OfLedger(OfHost):
    """Something on one host, about one ledger."""

    ledger: str

    def __post_init__(self) -> None:
        OfHost.__post_init__(self)
        check_name(self.ledger, "a ledger")

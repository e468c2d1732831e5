"""Faults: what a step of a plan breaks or mends. Every parameter is given; nothing is drawn.

In place of a bookie, ``LEDGER@POSITION`` stands for the one at that position of the ledger's last ensemble, when the step is
taken.

A *lasting* fault begins with its step, and ends by ``end NAME`` (the step's name), by ``heal``, or when the run settles; any
other is done at once. Which ones no TCP connection can produce is said with each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from scenarios.plan.bookie_faults import (
    Alter,
    Collect,
    Compact,
    DiskFull,
    DiskSlow,
    ForeignCookie,
    Limbo,
    Lose,
    ReadOnly,
    Wipe,
)
from scenarios.plan.fault import ANY, Budget, Departure, Fault, MetadataWay, MetadataWhat, Traffic, Way
from scenarios.plan.host_faults import (
    ClockDrift,
    ClockJump,
    Crash,
    DisableChanges,
    KillClient,
    Pause,
    Restart,
    Resume,
    Start,
)
from scenarios.plan.metadata_faults import LateWatches, LoseSession, MetadataCalls, Omit, StoreDown
from scenarios.plan.network_faults import (
    Clog,
    Cut,
    CutAfter,
    DelayMessages,
    Drop,
    DuplicateMessages,
    HalfOpen,
    Hold,
    LinkWeather,
    Messages,
    Partition,
    Reset,
    SlowReader,
)
from scenarios.plan.words import check_name

__all__ = [
    "ANY",
    "FAULTS",
    "Alter",
    "Budget",
    "ClockDrift",
    "ClockJump",
    "Clog",
    "Collect",
    "Compact",
    "Crash",
    "Cut",
    "CutAfter",
    "DelayMessages",
    "Departure",
    "DisableChanges",
    "DiskFull",
    "DiskSlow",
    "Drop",
    "DuplicateMessages",
    "EndFault",
    "Fault",
    "ForeignCookie",
    "HalfOpen",
    "HealAll",
    "Hold",
    "KillClient",
    "LateWatches",
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
    "SlowReader",
    "Start",
    "StoreDown",
    "Traffic",
    "Way",
    "Wipe",
]


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
        *(Cut, Clog, Partition, Reset, CutAfter, HalfOpen, SlowReader, LinkWeather),
        *(Drop, Hold, DelayMessages, DuplicateMessages),
        *(Crash, Restart, Start, KillClient, Pause, Resume, ClockJump, ClockDrift, DisableChanges),
        *(ReadOnly, DiskSlow, DiskFull, Wipe, ForeignCookie, Alter, Lose, Limbo, Collect, Compact),
        *(MetadataCalls, Omit, LateWatches, StoreDown, LoseSession, EndFault, HealAll),
    )
}
"""Everything that a step can do, by its verb."""

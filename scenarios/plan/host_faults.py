"""Faults of hosts: processes that die and sleep, wall clocks that are wrong, and what operators switch off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scenarios.plan.errors import PlanError
from scenarios.plan.fault import Departure, OfHost
from scenarios.plan.words import check_name
from simbookie.storage.base import CrashMode

__all__ = ["ClockDrift", "ClockJump", "Crash", "DisableChanges", "KillClient", "Pause", "Restart", "Resume", "Start"]


@dataclass(frozen=True, slots=True)
class Crash(OfHost):
    """A bookie dies: its process, or its machine's power, with which what was not synced is lost. Ended by a restart.

    One that keeps files can die ``before`` a step of its storage: before the next one of this name, or that of this ``number``.
    """

    verb: ClassVar[str] = "crash"
    is_lasting: ClassVar[bool] = True
    mode: CrashMode = CrashMode.PROCESS
    before: str = ""
    number: int = 1

    def __post_init__(self) -> None:
        OfHost.__post_init__(self)
        if self.before:
            check_name(self.before, "a step")
        if self.number < 1:
            raise PlanError(f"expected a number >= 1, found {self.number}")
        if self.number > 1 and not self.before:
            raise PlanError("expected before=... with a number, found none")


@dataclass(frozen=True, slots=True)
class Restart(OfHost):
    """A bookie that crashed starts again."""

    verb: ClassVar[str] = "restart"


@dataclass(frozen=True, slots=True)
class Start(OfHost):
    """A client process starts; without such a step it starts with the run."""

    verb: ClassVar[str] = "start"


@dataclass(frozen=True, slots=True)
class KillClient(OfHost):
    """A client process ends for good; nothing of it executes any more.

    It can die ``before`` a request or a call to the metadata service of this kind leaves it: the next one, or that of this
    ``number``.
    """

    verb: ClassVar[str] = "kill"
    before: Departure | None = None
    number: int = 1

    def __post_init__(self) -> None:
        OfHost.__post_init__(self)
        if self.number < 1:
            raise PlanError(f"expected a number >= 1, found {self.number}")
        if self.number > 1 and self.before is None:
            raise PlanError("expected before=... with a number, found none")


@dataclass(frozen=True, slots=True)
class Pause(OfHost):
    """A process executes nothing until it resumes: a client or a bookie."""

    verb: ClassVar[str] = "pause"
    is_lasting: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Resume(OfHost):
    """A paused process goes on."""

    verb: ClassVar[str] = "resume"


@dataclass(frozen=True, slots=True)
class ClockJump(OfHost):
    """The wall clock of a host shows ``by_s`` more from now on; with ``back``, less. Timeouts do not use it."""

    verb: ClassVar[str] = "clock-jump"
    by_s: float
    back: bool = False

    def __post_init__(self) -> None:
        OfHost.__post_init__(self)
        if not self.by_s >= 0:
            raise PlanError(f"expected by >= 0, found {self.by_s}")


@dataclass(frozen=True, slots=True)
class ClockDrift(OfHost):
    """The wall clock of a host advances by ``rate`` seconds in each second; what it gained or lost stays when that has ended."""

    verb: ClassVar[str] = "clock-drift"
    is_lasting: ClassVar[bool] = True
    rate: float

    def __post_init__(self) -> None:
        OfHost.__post_init__(self)
        if not self.rate >= 0:
            raise PlanError(f"expected rate >= 0, found {self.rate}")


@dataclass(frozen=True, slots=True)
class DisableChanges(OfHost):
    """The feature that keeps a client from changing ensembles is on. What failed is sent again until the fault ends."""

    verb: ClassVar[str] = "disable-changes"
    is_lasting: ClassVar[bool] = True

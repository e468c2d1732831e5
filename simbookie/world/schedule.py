"""Schedules: what happens first, of things that could happen in either order.

Without a schedule everything happens when its time has come. With one, each thing whose time has come takes a *turn*: a
:class:`SchedulePolicy` says how many of the things that are to come next it lets pass. It is late then, as a message is that
the network keeps, or a process that its machine does not run for a while; so whatever comes of it could happen without a
schedule, too. Time goes on meanwhile: timers are never late, but those of a late process wait for it.

Things in one *strand* keep their order. These are strands:

* what travels from one host to another as messages, or in one direction of a TCP connection;
* a client's calls to the metadata service, and what the service tells a client;
* the iterations of the event loop of one process, so that its callbacks run in the order that asyncio promises.

What the policy answers is written down per strand, as small whole numbers: 0, which is usual and is left out, for a thing
that is not late. The numbers say all. Replayed without the policy they make the same run; and with fewer of them it is a run
with fewer late things, the usual one if none is left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from simbookie.world.callbacks import OwnedHandle

if TYPE_CHECKING:
    from simbookie.world.process import Process

__all__ = ["LATE_MAX_S", "Choices", "Schedule", "SchedulePolicy", "Strand", "StrandTimer", "Turn", "WakeTimer"]

#: How late anything becomes at most.
LATE_MAX_S: Final = 2.0

Choices = Mapping[str, Mapping[int, int]]
"""By strand, and by number of the turn in the strand: how many things it let pass; without those that let none pass."""


class Strand:
    """Things that happen one after the other. Turns of strands with the same ``name`` are counted together."""

    __slots__ = ("head", "name", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        #: The next thing, which has a place among the timers, and those behind it, which have none yet.
        self.head: StrandTimer | None = None
        self.waiting: deque[tuple[float, int, StrandTimer]] | None = (
            None  # until one waits: without a schedule none does
        )

    def __repr__(self) -> str:
        return f"<Strand {self.name}, {len(self.waiting or ())} waiting>"


class StrandTimer(OwnedHandle):
    """A thing in a strand that happens at a time, or later. ``due`` is when it would without a schedule."""

    __slots__ = ("due", "strand")

    due: float
    strand: Strand


class WakeTimer(OwnedHandle):
    """The end of a late process's wait."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """Something whose time has come.

    ``number`` counts the turns of the strand, ``in_all`` those of the run. ``others`` are the things that are to come and may
    pass, in their order: in how many seconds, and the strand; for a timer that is its process, and "" if it has none.
    """

    strand: str
    number: int
    in_all: int
    others: Sequence[tuple[float, str]]

    def within(self, seconds: float) -> int:
        """How many of the others come in so many seconds."""
        return bisect_right(self.others, seconds, key=lambda other: other[0])


class SchedulePolicy(Protocol):
    """Decides about turns."""

    def passes(self, turn: Turn) -> int:
        """How many of ``turn.others`` this lets pass, from 0; never more than there are."""
        ...


class Schedule:
    """A policy at work, and what it chose. A loop that has one asks it at every turn (``loop.schedule``)."""

    def __init__(self, policy: SchedulePolicy, late_max_s: float = LATE_MAX_S) -> None:
        if not late_max_s > 0:
            raise ValueError(f"late_max_s must be > 0, got {late_max_s}")
        self.late_max_s = late_max_s
        #: What was chosen, where it was not 0.
        self.choices: dict[str, dict[int, int]] = {}
        #: How many turns there were.
        self.turns = 0
        self._policy = policy
        self._numbers: dict[str, int] = {}

    def late_until(
        self, strand: str, now: float, due: float, timers: Sequence[tuple[float, int, Any]], me: Process | None = None
    ) -> float | None:
        """When the thing of ``strand`` that is due has to try again; None if it happens now.

        ``timers`` is everything that is to come, in any order. Timers of the process ``me`` are none that could pass.
        """
        latest = due + self.late_max_s
        if now >= latest:
            return None
        coming = sorted(
            item
            for item in timers
            if item[0] <= latest and not item[2].cancelled() and (me is None or item[2].process is not me)
        )
        if not coming:
            return None
        others = [(max(0.0, when - now), _strand_of(timer)) for when, _, timer in coming]
        number = self._numbers.get(strand, 0)
        self._numbers[strand] = number + 1
        passes = self._policy.passes(Turn(strand, number, self.turns, others))
        self.turns += 1
        if not passes:
            return None
        self.choices.setdefault(strand, {})[number] = passes
        return max(now, coming[passes - 1][0])


def _strand_of(timer: OwnedHandle) -> str:
    if isinstance(timer, StrandTimer):
        return timer.strand.name
    return timer.process.host_name if timer.process is not None else ""

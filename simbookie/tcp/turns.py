"""Who is served when: the loop's time shared among connections.

A loop turn is as long as the work that its callbacks do, and everybody waits for it. So a connection may do a *slice* of work in
a turn: so many requests, and none begun after so much time. What is left of its requests waits for later turns, and the
connection is not read meanwhile. All slices of a turn together have a time too; a connection that comes after it waits.

Those that wait are served in turn, first the ones that have not been served since their requests came, then the ones that
had a slice and want more. The second kind gets half of a turn's time at most, so that a client with few requests is not
kept waiting by those with many, however many they are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

__all__ = ["REAL_CLOCK", "Clock", "Turns"]

Clock = Callable[[], float]

REAL_CLOCK: Final[Clock] = time.monotonic
"""The clock of what is shared: it goes on during a turn, at which uvloop's time() stands still. A world has another one."""


class Served(Protocol):
    """What has turns."""

    def go_on(self) -> None:
        """Do a slice: what was waited for has come."""
        ...


class Turns:
    """The turns of one server's connections; ``turn_s`` seconds for all of them in one turn of the loop."""

    def __init__(self, turn_s: float, clock: Clock = REAL_CLOCK) -> None:
        self.clock = clock
        self._loop = asyncio.get_running_loop()
        self._turn_s = turn_s
        self._ends_at = 0.0
        #: Turns in which something was done.
        self.count = 0
        #: The number of the turn that is under way, 0 between turns; a connection may do one slice in each.
        self.current = 0
        self._arrived: dict[Served, None] = {}
        self._unfinished: dict[Served, None] = {}

    @property
    def waiting(self) -> int:
        """How many connections wait for their turn."""
        return len(self._arrived) + len(self._unfinished)

    def has_time(self, now: float) -> bool:
        """Whether a slice may begin now; begins a turn if none has begun."""
        if not self.current:
            self._begin(now)
        return now < self._ends_at

    def wait(self, served: Served, *, is_unfinished: bool) -> None:
        """Serve ``served`` in a later turn; ``is_unfinished`` if it had a slice in this one."""
        if not self.current:
            self._begin(self.clock())
        (self._unfinished if is_unfinished else self._arrived)[served] = None

    def leave(self, served: Served) -> None:
        """Forget ``served``."""
        self._arrived.pop(served, None)
        self._unfinished.pop(served, None)

    def _begin(self, now: float) -> None:
        self._ends_at = now + self._turn_s
        self.count += 1
        self.current = self.count
        self._loop.call_soon(self._turn)  # which comes before whatever the next look at the sockets brings

    def _turn(self) -> None:
        self.current = 0
        if not self.waiting:
            return
        now = self.clock()
        self._begin(now)
        self._serve(self._arrived, self._ends_at)
        self._serve(self._unfinished, now + self._turn_s / 2)

    def _serve(self, waiting: dict[Served, None], until: float) -> None:
        """Serve those that wait now, in order, as long as there is time; at least one of them."""
        for _ in range(len(waiting)):
            if not waiting:  # serving one may end others
                return
            served = next(iter(waiting))
            del waiting[served]
            served.go_on()
            if self.clock() >= until:
                return

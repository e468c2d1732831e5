"""Policies of schedules: by chance, by priorities (PCT), with a bound on what is late, and as chosen before.

All draw from a stream of their own, so that the chances of the network are the same with each of them.

* :class:`Uniform` lets any number of the things pass that come within a moment.
* :class:`Pct` is probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi and Nagarakatti, ASPLOS 2010), with strands
  for its threads, as Ozkan and others have it for messages (PCTCP, OOPSLA 2018). Each strand has a random priority, and what
  comes within a moment and has a higher one passes. At ``depth - 1`` turns, drawn in advance, the strand whose turn it is falls
  below all others, and is late from then on.
* :class:`DelayBounded` (Emmi, Qadeer and Rakamaric, POPL 2011) leaves the usual order as it is but for ``delays`` turns, drawn
  in advance, at which a thing is late.
* :class:`Chosen` does what was chosen before.
"""

from __future__ import annotations

import math
from random import Random
from typing import Final

from simbookie.world.schedule import LATE_MAX_S, Choices, Turn

__all__ = ["MOMENT_S", "Chosen", "DelayBounded", "Pct", "Uniform"]

#: Things that come within this time could as well come in another order.
MOMENT_S: Final = 0.01


class Uniform:
    """Any number of the things that come within ``moment_s`` pass, each with the same chance."""

    def __init__(self, rng: Random, moment_s: float = MOMENT_S) -> None:
        self._rng = rng
        self._moment_s = moment_s

    def passes(self, turn: Turn) -> int:
        """See :class:`~simbookie.world.schedule.SchedulePolicy`."""
        return self._rng.randint(0, turn.within(self._moment_s))


class Pct:
    """Strands have priorities; ``depth - 1`` of them fall below all others, at turns among the first ``turns``."""

    def __init__(self, rng: Random, depth: int, turns: int, moment_s: float = MOMENT_S) -> None:
        if not (depth >= 1 and turns >= 1):
            raise ValueError(f"depth and turns must be >= 1, got {depth} and {turns}")
        self._rng = rng
        self._moment_s = moment_s
        self._changes = _drawn_turns(rng, depth - 1, turns)
        self._priorities: dict[str, float] = {}
        #: How far what has fallen looks ahead.
        self._reach_s: dict[str, float] = {}
        self._lowest = 0.0

    def passes(self, turn: Turn) -> int:
        """See :class:`~simbookie.world.schedule.SchedulePolicy`."""
        strand = turn.strand
        mine = self._priority(strand)
        if turn.in_all in self._changes:
            self._lowest -= 1.0
            mine = self._priorities[strand] = self._lowest
            self._reach_s[strand] = _drawn_lateness(self._rng, self._moment_s)
        reach = turn.within(self._reach_s.get(strand, self._moment_s))
        for index in range(reach, 0, -1):
            if self._priority(turn.others[index - 1][1]) > mine:
                return index
        return 0

    def _priority(self, strand: str) -> float:
        known = self._priorities.get(strand)
        if known is None:
            known = self._priorities[strand] = self._rng.random()
        return known


class DelayBounded:
    """Things are late at ``delays`` turns among the first ``turns``; others are not."""

    def __init__(self, rng: Random, delays: int, turns: int, moment_s: float = MOMENT_S) -> None:
        if not (delays >= 1 and turns >= 1):
            raise ValueError(f"delays and turns must be >= 1, got {delays} and {turns}")
        self._rng = rng
        self._moment_s = moment_s
        self._late = _drawn_turns(rng, delays, turns)

    def passes(self, turn: Turn) -> int:
        """See :class:`~simbookie.world.schedule.SchedulePolicy`."""
        if turn.in_all not in self._late:
            return 0
        return turn.within(_drawn_lateness(self._rng, self._moment_s))


class Chosen:
    """What was chosen before, in this run or in another one."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def passes(self, turn: Turn) -> int:
        """See :class:`~simbookie.world.schedule.SchedulePolicy`."""
        chosen = self._choices.get(turn.strand)
        return min(chosen.get(turn.number, 0), len(turn.others)) if chosen else 0


def _drawn_turns(rng: Random, count: int, turns: int) -> frozenset[int]:
    return frozenset(rng.sample(range(turns), min(count, turns)))


def _drawn_lateness(rng: Random, moment_s: float) -> float:
    """From a moment to as late as anything becomes, all orders of magnitude alike."""
    return moment_s * math.exp(rng.uniform(0.0, math.log(max(1.0, LATE_MAX_S / moment_s))))

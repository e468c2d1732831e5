"""Explores a named world of machines, with or without a planted defect, and measures the exploration.

A prepared world is searched exhaustively, breadth first; any other world gets random walks. A broken clause is reported with the
schedule that breaks it, shrunk until no move can be left out.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from scenarios.machines.broken import BrokenClause
from scenarios.machines.explore import EVERY_ORDER, EVERY_ORDER_AT_BOOKIES, explore
from scenarios.machines.walks import Move, narrated, shrunk, walk
from scenarios.machines.worlds import NamedWorld
from scenarios.mutants import Mutant

__all__ = ["Bounds", "Exploration", "explore_world"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of an exploration: ``walks`` of ``moves`` each from ``seed`` on, or a search of ``states`` down to ``depth`` moves.

    With ``answers_wait`` a search also tries every order in which answers arrive.
    """

    seed: int = 0
    walks: int = 200
    moves: int = 80
    states: int = 20_000
    depth: int | None = None
    answers_wait: bool = False


@dataclass(slots=True)
class Exploration:
    """The result of exploring one world.

    ``states`` counts distinct states of a search, or moves of walks; ``depth`` is the longest schedule in moves. ``ends`` counts
    final states by the last entry of the ledger, None for a ledger that was not closed. ``is_whole`` is true if a search visited
    every order. ``broken`` is the broken clause, ``seed`` that of the walk, ``schedule`` the shrunk schedule, and ``story`` the
    schedule in words.
    """

    world: str
    is_search: bool
    states: int = 0
    depth: int = 0
    seconds: float = 0.0
    is_whole: bool = False
    ends: dict[int | None, int] = field(default_factory=dict)
    broken: BrokenClause | None = None
    seed: int | None = None
    schedule: list[Move] = field(default_factory=list)
    story: list[str] = field(default_factory=list)

    @property
    def states_per_second(self) -> float:
        """States or moves per second of exploration, without the time for shrinking."""
        return self.states / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        """The shape that ``bk-chaos explore --json`` prints for each world."""
        broken = None
        if self.broken is not None:
            broken = {
                "invariant": self.broken.invariant or None,
                "clause": self.broken.clause or None,
                "witness": self.broken.witness,
                "seed": self.seed,
                "schedule": [list(move) for move in self.schedule],
                "story": self.story,
            }
        return {
            "world": self.world,
            "how": "search" if self.is_search else "walks",
            "states": self.states,
            "depth": self.depth,
            "seconds": round(self.seconds, 6),
            "states_per_second": round(self.states_per_second, 3),
            "whole": self.is_whole,
            "ends": {"open" if end is None else str(end): times for end, times in self.ends.items()},
            "broken": broken,
        }


def explore_world(named: NamedWorld, bounds: Bounds, mutant: Mutant | None = None) -> Exploration:
    """Search or walk one world, with the defect planted into its machines if one is given."""
    with nullcontext() if mutant is None else mutant.applied():
        found = _search(named, bounds) if named.prepare is not None else _walks(named, bounds)
        if found.broken is not None:
            found.schedule, found.broken = shrunk(named.make, found.schedule)
            found.story = narrated(named.make, found.schedule)
    return found


def _search(named: NamedWorld, bounds: Bounds) -> Exploration:
    moves = EVERY_ORDER if bounds.answers_wait else EVERY_ORDER_AT_BOOKIES
    started = time.perf_counter()
    explored = explore(named.make, moves, states=bounds.states, depth=bounds.depth)
    return Exploration(
        named.name,
        is_search=True,
        states=explored.states,
        depth=explored.depth,
        seconds=time.perf_counter() - started,
        is_whole=explored.is_whole,
        ends=explored.ends,
        broken=explored.broken,
        schedule=explored.schedule,
    )


def _walks(named: NamedWorld, bounds: Bounds) -> Exploration:
    found = Exploration(named.name, is_search=False)
    started = time.perf_counter()
    moves = bounds.moves if bounds.depth is None else min(bounds.moves, bounds.depth)
    for seed in range(bounds.seed, bounds.seed + bounds.walks):
        made: list[Move] = []
        try:
            world = walk(named.make(), seed, moves, made)
            metadata = world.store.metadata
            end = metadata.last_entry_id if metadata.is_closed else None
            found.ends[end] = found.ends.get(end, 0) + 1
            world.settle()
        except BrokenClause as broken:
            found.broken, found.seed, found.schedule = broken, seed, made
        found.states += len(made)
        found.depth = max(found.depth, len(made))
        if found.broken is not None:
            break
    found.seconds = time.perf_counter() - started
    return found

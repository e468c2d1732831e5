"""Random walks, and shrinking of schedules that break a clause.

A walk draws moves with the given weights, and settles the world at the end. The moves that it made are a schedule, which any
world of the same configuration can repeat. A part of a schedule is a schedule too (see
:class:`~scenarios.machines.world.MachineWorld`), so a schedule that breaks a clause is shrunk by leaving out moves as long as
the rest breaks the same clause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple, TypeVar

from scenarios.machines.broken import BrokenClause
from scenarios.machines.world import MachineWorld

__all__ = ["TROUBLE", "Move", "narrated", "repeat", "shrunk", "walk"]

AnyWorld = TypeVar("AnyWorld", bound=MachineWorld)

#: The weight of a move without a weight of its own: a fault, less likely than progress.
TROUBLE: Final = 0.3


class Move(NamedTuple):
    """One step of a schedule: the name of the move, and the number of its choice."""

    name: str
    choice: int

    def __str__(self) -> str:
        return f"{self.name} {self.choice}"


def walk(world: AnyWorld, seed: int, moves: int, made: list[Move] | None = None) -> AnyWorld:
    """``world`` after ``moves`` random moves, drawn with its ``weights``; moves that are not possible are skipped.

    The others are added to ``made``. Raises :class:`~scenarios.machines.broken.BrokenClause` at the first broken clause.
    """
    rng = Random(seed)  # noqa: S311 - a schedule is no secret
    names = tuple(world.moves)
    chances = [world.weights.get(name, TROUBLE) for name in names]
    for _ in range(moves):
        (name,) = rng.choices(names, chances)
        choices = world.choices(name)
        if choices:
            step = Move(name, rng.randrange(choices))
            if made is not None:
                made.append(step)
            world.move(*step)
    return world


def repeat(world: MachineWorld, schedule: Sequence[Move]) -> None:
    """Make the moves of a schedule, and settle the world."""
    for step in schedule:
        world.move(*step)
    world.settle()


def narrated(make: Callable[[], MachineWorld], schedule: Sequence[Move]) -> list[str]:
    """The schedule in words, one line for each move, up to the one that breaks a clause."""
    world, lines = make(), list[str]()
    try:
        for step in schedule:
            lines.append(world.told(*step))
            world.move(*step)
        lines.append("everything in flight arrives")
        world.settle()
    except BrokenClause:
        pass
    return lines


def shrunk(make: Callable[[], MachineWorld], schedule: Sequence[Move]) -> tuple[list[Move], BrokenClause]:
    """A minimal part of ``schedule`` that breaks the same clause, and the broken clause.

    No single move can be left out. The other moves still apply to the same requests, clients and bookies, although the numbers
    of their choices change. Raises ``ValueError`` if the schedule breaks no clause.
    """
    least = _meant(make, schedule)
    made, broken = _attempt(make, least)
    if broken is None:
        raise ValueError("the schedule breaks no clause")
    size = len(least)
    while size:
        before, start = len(least), 0
        while start < len(least):
            part = [*least[:start], *least[start + size :]]
            made_so, found = _attempt(make, part)
            if found is not None and found.clause == broken.clause:
                least, made, broken = part, made_so, found
            else:
                start += size
        if size > 1:
            size //= 2
        elif len(least) == before:
            break  # a whole pass left out no move
    return made, broken


#: A move, and the description of what it applies to.
_Meant = tuple[Move, str]


def _meant(make: Callable[[], MachineWorld], schedule: Sequence[Move]) -> list[_Meant]:
    """The moves up to the one that breaks a clause, with the descriptions of what they apply to."""
    return list(zip(schedule, narrated(make, schedule), strict=False))


def _attempt(make: Callable[[], MachineWorld], steps: Sequence[_Meant]) -> tuple[list[Move], BrokenClause | None]:
    """The moves that were possible, and the clause that they broke."""
    world, made = make(), list[Move]()
    try:
        for (name, choice), words in steps:
            choices = range(world.choices(name))
            meant = next((number for number in choices if world.told(name, number) == words), None)
            if meant is None and words != name:
                continue  # its message, client or bookie does not exist now
            if choices:
                made.append(Move(name, choice % len(choices) if words == name else meant or 0))
                world.move(*made[-1])
        world.settle()
    except BrokenClause as broken:
        return made, broken
    return made, None

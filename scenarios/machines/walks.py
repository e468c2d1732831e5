"""Random schedules, and the least part of one that still breaks a clause.

A walk draws one move after the other, each as often as weights say, and lets everything settle in the end. What it did is a
schedule: a list of moves with choices, which any world of the same configuration can repeat. A part of a schedule is one too
(see :class:`~scenarios.machines.world.MachineWorld`), so a schedule that breaks a clause is shrunk by leaving moves out for as
long as what is left breaks the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple, TypeVar

from scenarios.machines.broken import BrokenClause
from scenarios.machines.world import MachineWorld

__all__ = ["TROUBLE", "Move", "narrated", "repeat", "shrunk", "walk"]

AnyWorld = TypeVar("AnyWorld", bound=MachineWorld)

#: How often a walk makes a move that its weights do not name: trouble, less likely than progress.
TROUBLE: Final = 0.3


class Move(NamedTuple):
    """One step of a schedule: what happened, and which of the ways in which it could."""

    name: str
    choice: int

    def __str__(self) -> str:
        return f"{self.name} {self.choice}"


def walk(world: AnyWorld, seed: int, moves: int, made: list[Move] | None = None) -> AnyWorld:
    """``world`` after ``moves`` random moves, each drawn as often as its ``weights`` say; what cannot happen then does not.

    Those that were made are added to ``made``. :class:`~scenarios.machines.broken.BrokenClause` at the first that breaks one.
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
    """Make the moves of a schedule, and let everything settle."""
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
        lines.append("everything that is under way arrives")
        world.settle()
    except BrokenClause:
        pass
    return lines


def shrunk(make: Callable[[], MachineWorld], schedule: Sequence[Move]) -> tuple[list[Move], BrokenClause]:
    """The least part of ``schedule`` that breaks the same clause, and what it breaks.

    Least in that no single move can be left out. While moves are left out, the others go on to happen to the same requests,
    clients and bookies, although their choices have other numbers then. ``ValueError`` if the schedule breaks nothing.
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
            break  # leaving out one move may have made another one superfluous, but did not
    return made, broken


#: A move, and in words what it is meant to happen to.
_Meant = tuple[Move, str]


def _meant(make: Callable[[], MachineWorld], schedule: Sequence[Move]) -> list[_Meant]:
    """The moves up to the one that breaks a clause, with what they happen to."""
    return list(zip(schedule, narrated(make, schedule), strict=False))


def _attempt(make: Callable[[], MachineWorld], steps: Sequence[_Meant]) -> tuple[list[Move], BrokenClause | None]:
    """The moves that could be made, each of what it was meant for, and what they broke."""
    world, made = make(), list[Move]()
    try:
        for (name, choice), words in steps:
            choices = range(world.choices(name))
            meant = next((number for number in choices if world.told(name, number) == words), None)
            if meant is None and words != name:
                continue  # what it was meant for is not there
            if choices:
                made.append(Move(name, choice % len(choices) if words == name else meant or 0))
                world.move(*made[-1])
        world.settle()
    except BrokenClause as broken:
        return made, broken
    return made, None

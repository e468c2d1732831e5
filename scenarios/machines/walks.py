"""Random schedules, and the least part of one that still breaks a clause.

A walk draws one move after the other, each as often as weights say, and lets everything settle in the end. What it did is a
schedule: a list of moves with choices, which any world of the same configuration can repeat. A part of a schedule is one too (see
:class:`~scenarios.machines.world.World`), so a schedule that breaks a clause is shrunk by leaving moves out for as long as what
is left breaks the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple, TypeVar

from scenarios.machines.broken import BrokenClause
from scenarios.machines.world import World

__all__ = ["TROUBLE", "Move", "broken_by", "repeat", "shrunk", "walk"]

AnyWorld = TypeVar("AnyWorld", bound=World)

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


def repeat(world: World, schedule: Sequence[Move]) -> None:
    """Make the moves of a schedule, and let everything settle."""
    for step in schedule:
        world.move(*step)
    world.settle()


def broken_by(make: Callable[[], World], schedule: Sequence[Move]) -> BrokenClause | None:
    """What the schedule breaks in the world that ``make`` returns; None if nothing."""
    try:
        repeat(make(), schedule)
    except BrokenClause as broken:
        return broken
    return None


def shrunk(make: Callable[[], World], schedule: Sequence[Move]) -> tuple[list[Move], BrokenClause]:
    """The least part of ``schedule`` that breaks the same clause, and what it breaks.

    Least in that no single move can be left out. ``ValueError`` if the schedule breaks nothing.
    """
    least = list(schedule)
    broken = broken_by(make, least)
    if broken is None:
        raise ValueError("the schedule breaks no clause")
    size = len(least)
    while size:
        before, start = len(least), 0
        while start < len(least):
            part = [*least[:start], *least[start + size :]]
            found = broken_by(make, part)
            if found is not None and found.clause == broken.clause:
                least, broken = part, found
            else:
                start += size
        if size > 1:
            size //= 2
        elif len(least) == before:
            break  # leaving out one move may have made another one superfluous, but did not
    return least, broken

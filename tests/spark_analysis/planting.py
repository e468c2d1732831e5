"""Planted violations, each the smallest story that breaks an invariant, and near misses, which are lawful but look alike.

A plant names every invariant that it breaks, so that an accusation too many is noticed as well as one too few.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.scenarios.stories import Story

__all__ = ["Plant", "missed", "near_miss", "open_ledger", "plant", "planted"]

Telling = Callable[[Story], object]


@dataclass(frozen=True)
class Plant:
    """One story told to break ``invariant`` (or hardly not to); ``says`` has to be part of the witness."""

    invariant: str
    name: str
    story: Story
    says: str = ""
    also: tuple[str, ...] = ()
    #: Whether it has no other ledger beside it, of which bookies record what they store.
    is_alone: bool = False

    @property
    def file(self) -> str:
        return f"plants/{self.invariant}/{self.name}.bkh"


#: What the decorators below have collected.
planted: Final[list[Plant]] = []
missed: Final[list[Plant]] = []


def open_ledger(sizes: str = "3/3/2", entries: int = 2) -> Story:
    """A ledger just created, with ``entries`` entries acknowledged."""
    story = Story(sizes)
    story.create()
    if entries:
        story.write_all(0, entries - 1)
    return story


def plant(
    invariant: str, says: str, *also: str, sizes: str = "3/3/2", entries: int = 2
) -> Callable[[Telling], Telling]:
    """The decorated function tells, of an open ledger, what breaks ``invariant``, and inevitably ``also`` these."""

    def tell(function: Telling) -> Telling:
        story = open_ledger(sizes, entries)
        function(story)
        planted.append(Plant(invariant, function.__name__, story, says, also))
        return function

    return tell


def near_miss(
    invariant: str, *, sizes: str = "3/3/2", entries: int = 2, is_alone: bool = False
) -> Callable[[Telling], Telling]:
    """The decorated function tells, of an open ledger, what looks like a violation of ``invariant`` and is none."""

    def tell(function: Telling) -> Telling:
        story = open_ledger(sizes, entries)
        function(story)
        missed.append(Plant(invariant, f"near_{function.__name__}", story, is_alone=is_alone))
        return function

    return tell

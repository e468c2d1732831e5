"""Targeted faults: what to do with the messages or calls that a test points at.

Chance (loss, duplication, jitter) is configured; a targeted fault picks single victims: "the add of entry 5 to b2", "every answer
from b0", "the write that closes ledger 3". An :class:`Interception` is a predicate and what to do with those it matches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

__all__ = ["Action", "Delay", "Duplicate", "Fate", "Interception", "Interceptions", "Interrupt", "Match"]


class Fate(Enum):
    """What happens to an intercepted message, if it is simple."""

    #: Arrives, whatever chance would have made of it.
    DELIVER = auto()
    #: Vanishes.
    DROP = auto()
    #: Waits until :meth:`Interception.release`.
    HOLD = auto()


@dataclass(frozen=True, slots=True)
class Delay:
    """Arrives, so many seconds later than it would have; what was sent after it may overtake it, on FIFO links too."""

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ValueError(f"a message cannot be delayed by {self.seconds} s")


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Arrives, followed by so many copies."""

    copies: int = 1

    def __post_init__(self) -> None:
        if self.copies < 1:
            raise ValueError(f"a message cannot be duplicated {self.copies} times")


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Vanishes, as does what was handed over after it on its connection; then ``act`` is called, which ends its sender."""

    act: Callable[[], object]


ActionT = TypeVar("ActionT")

Action = Fate | Delay | Duplicate | Interrupt

Match = Callable[[str, str, object], bool]
"""``(source, destination, message)``: whether the message is meant. May inject other faults on its way, such as a crash."""


class Interception(Generic[ActionT]):
    """A targeted fault in force, until :meth:`remove` or until it has matched ``limit`` times.

    ``hits`` counts what it matched, ``held`` is how many of them wait for :meth:`release`.
    """

    __slots__ = ("_held", "_match", "action", "hits", "is_removed", "limit")

    def __init__(self, match: Callable[..., bool], action: ActionT, limit: int | None = None) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"an interception with a limit of {limit} can never match")
        self.action = action
        self.limit = limit
        self.hits = 0
        self.is_removed = False
        self._match = match
        self._held: list[Callable[[], None]] = []

    @property
    def held(self) -> int:
        """How many wait."""
        return len(self._held)

    def matches(self, *candidate: object) -> bool:
        """Whether the message or call is meant, which counts as a hit."""
        if self.is_removed or not self._match(*candidate):
            return False
        self.hits += 1
        if self.hits == self.limit:
            self.is_removed = True
        return True

    def hold(self, send_on: Callable[[], None]) -> None:
        """Keep what lets a message or call go on."""
        self._held.append(send_on)

    def release(self) -> int:
        """Let what is held travel on, in the order in which it was stopped; returns how much that is."""
        held, self._held = self._held, []
        for send_on in held:
            send_on()
        return len(held)

    def remove(self) -> None:
        """Match nothing more. What is held stays held. Idempotent."""
        self.is_removed = True


class Interceptions(Generic[ActionT]):
    """Targeted faults on messages or calls of one kind. Of several that match, the one made first acts."""

    __slots__ = ("made",)

    def __init__(self) -> None:
        #: Those in force, and some that are not any more.
        self.made: list[Interception[ActionT]] = []

    @property
    def are_in_force(self) -> bool:
        """Whether anything may be intercepted."""
        return any(not interception.is_removed for interception in self.made)

    def add(self, match: Callable[..., bool], action: ActionT, limit: int | None = None) -> Interception[ActionT]:
        """Do ``action`` to what matches from now on, ``limit`` times at most."""
        interception = Interception(match, action, limit)
        self.made = [other for other in self.made if not other.is_removed]
        self.made.append(interception)
        return interception

    def meant_for(self, *candidate: object) -> Interception[ActionT] | None:
        """The one that the message or call is for, which counts as a hit of it."""
        for interception in self.made:
            if interception.matches(*candidate):
                return interception
        return None

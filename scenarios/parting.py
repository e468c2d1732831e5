"""Where two recorded histories part: what they came from, the last events they share, and how each goes on.

Two runs of one seed, with a defect and without it, do the same until the defect makes a difference.
What comes before the first event that differs is common to both; after it each is its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import ndiff
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Final

from scenarios.determinism import is_same_event
from scenarios.history import Event, History

__all__ = ["CONTEXT", "Parting", "where_they_part"]

CONTEXT: Final = 5
"""How many events are told before and after, unless another number is asked for."""

#: Keys of headers that say nothing about the run.
_NOT_COMPARED: Final = frozenset({"kinds", "fields"})


@dataclass(frozen=True, slots=True)
class Parting:
    """Two histories side by side. ``shared`` is how many events they have in common from the start.

    ``before`` are the last of those, ``one`` and ``other`` the events that follow in each; both are empty if the histories are
    the same. ``headers`` has a line for each difference in what the runs came from.
    """

    shared: int
    before: tuple[Event, ...]
    one: tuple[Event, ...]
    other: tuple[Event, ...]
    headers: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether both have the same events."""
        return not self.one and not self.other


def where_they_part(one: Path, other: Path, *, context: int = CONTEXT, times: bool = True) -> Parting:
    """Compare two histories event by event, without their times unless ``times``.

    :class:`~scenarios.history.HistoryError` for a file that cannot be read, as far as it has to be.
    """
    left, right = History(one), History(other)
    headers = tuple(_header_lines(left.header, right.header))
    before: deque[Event] = deque(maxlen=context)
    events, others = left.events(), right.events()
    shared = 0
    for found, against in zip_longest(events, others):
        if found is None or against is None or not _is_same(found, against, times=times):
            return Parting(
                shared, tuple(before), _and_more(found, events, context), _and_more(against, others, context), headers
            )
        before.append(found)
        shared += 1
    return Parting(shared, tuple(before), (), (), headers)


def _is_same(one: Event, other: Event, *, times: bool) -> bool:
    return is_same_event(one, other if times else replace(other, time_us=one.time_us))


def _and_more(first: Event | None, rest: Iterator[Event], context: int) -> tuple[Event, ...]:
    return () if first is None else (first, *islice(rest, max(0, context - 1)))


def _header_lines(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """A line for each value that differs; of a plan, its lines."""
    for key in dict.fromkeys((*one, *other)):
        name, left, right = f"{prefix}{key}", one.get(key), other.get(key)
        if name in _NOT_COMPARED or left == right:
            continue
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            yield from _header_lines(left, right, f"{name}.")
        elif name == "plan" and isinstance(left, str) and isinstance(right, str):
            changes = ndiff(left.splitlines(), right.splitlines())
            yield from (f"plan: {line}" for line in changes if line.startswith(("- ", "+ ")))
        else:
            yield f"{name}: {left!r} and {right!r}"

"""What several faults of one kind set, each for a while."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

__all__ = ["InForce"]

T = TypeVar("T")


class InForce:
    """Values that faults have set. Of several that set one thing, the one counts that began last and has not ended."""

    def __init__(self) -> None:
        #: By what is set, the value of each fault by its number, in the order in which they began.
        self._values: dict[Hashable, dict[int, Any]] = {}
        self._begun = 0

    def begin(self, what: Hashable, apply: Callable[[T], object], value: T, usual: T) -> Callable[[], None]:
        """Set ``what`` to ``value``; returns what ends that, and sets it to ``usual`` if no other fault has set it."""
        values: dict[int, T] = self._values.setdefault(what, {})
        self._begun += 1
        number = self._begun
        values[number] = value
        apply(value)

        def end() -> None:
            del values[number]
            apply(self.value_of(what, usual))

        return end

    def value_of(self, what: Hashable, usual: T) -> T:
        """What counts for ``what`` now; ``usual`` if no fault has set it."""
        found: T = next(reversed(self._values.get(what, {}).values()), usual)
        return found

"""Wall clocks of the machines of a world: the time of day, which may jump, and may run too fast or too slow.

The loop's clock is none of them: it never goes back, it is the same everywhere, and timeouts and back-offs use it. A wall clock
is for what people, or other machines, are to read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["EPOCH_S", "WallClock"]

EPOCH_S: Final = 1_700_000_000.0
"""What clocks that are right show when a run begins, in seconds since 1970."""


class WallClock:
    """A clock that shows seconds since 1970 when called; it is right until :meth:`jump` or :meth:`run_at` says otherwise."""

    __slots__ = ("_base_s", "_since_s", "_time", "rate")

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._base_s = EPOCH_S + time()
        self._since_s = time()
        #: Seconds that it shows for each that passes.
        self.rate = 1.0

    def __call__(self) -> float:
        """The time that it shows, in seconds since 1970."""
        return self._base_s + (self._time() - self._since_s) * self.rate

    def jump(self, by_s: float) -> None:
        """Show so much more from now on, or less if it is negative; never less than 0."""
        self._base_s, self._since_s = max(0.0, self() + by_s), self._time()

    def run_at(self, rate: float) -> None:
        """Show so many seconds more for each that passes; 0 stands still, 1 is right."""
        if not rate >= 0:
            raise ValueError(f"a clock runs at a rate >= 0, got {rate}")
        self._base_s, self._since_s = self(), self._time()
        self.rate = rate

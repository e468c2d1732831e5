"""How long to wait between attempts: briefly at first, longer each time, and never longer than a limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["Backoff"]

#: Beyond this many attempts no delay grows any more, whatever its limit: numbers stay finite.
_LARGEST_EXPONENT: Final = 60


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays in seconds: ``first_s``, then each time ``factor`` times the one before, up to ``max_s``.

    A plain value without a state: its user keeps the last delay, or the number of attempts so far.
    """

    first_s: float
    max_s: float
    factor: float = 2.0

    def after(self, delay_s: float) -> float:
        """The delay that follows ``delay_s``."""
        return min(self.max_s, delay_s * self.factor)

    def nth(self, number: int) -> float:
        """The delay that ``number`` others have preceded."""
        return min(self.max_s, self.first_s * self.factor ** min(number, _LARGEST_EXPONENT))

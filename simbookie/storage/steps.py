"""Steps that a crash may come between, and how a schedule ends a bookie at one of them."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["CrashPoint", "CrashSchedule", "OnStep", "no_step"]

OnStep = Callable[[str], None]
"""``(name)``: the step of this name comes next. Raises nothing but :class:`CrashPoint`."""


def no_step(_name: str) -> None:
    """Let the step come: the :data:`OnStep` where nobody watches."""


class CrashPoint(Exception):
    """The bookie ends at this step; raised by an :data:`OnStep`, and caught by who started the bookie."""


class CrashSchedule:
    """An :data:`OnStep` that ends its bookie once, when it is armed for it: before a step of a name, or the step of a number."""

    def __init__(self) -> None:
        self._crash: Callable[[], None] | None = None
        self._before: str | None = None
        self._left = 0

    def arm(self, crash: Callable[[], None], *, before: str | None = None, number: int = 1) -> None:
        """Have ``crash``, which kills the bookie, called before the next step but ``number - 1`` of this name, or of any."""
        if number < 1:
            raise ValueError(f"crash schedule: number must be >= 1, got {number}")
        self._crash, self._before, self._left = crash, before, number

    @property
    def is_armed(self) -> bool:
        """Whether the crash is still to come."""
        return self._crash is not None

    def disarm(self) -> None:
        """Have no crash come."""
        self._crash = None

    def __call__(self, name: str) -> None:
        """A step comes next."""
        if self._crash is None or self._before not in (None, name):
            return
        self._left -= 1
        if self._left == 0:
            crash, self._crash = self._crash, None
            crash()
            raise CrashPoint(name)

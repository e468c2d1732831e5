"""Steps that a crash may come between, and how a schedule ends a bookie at one of them."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["CrashPoint", "OnStep", "no_step"]

OnStep = Callable[[str], None]
"""``(name)``: the step of this name comes next. Raises nothing but :class:`CrashPoint`."""


def no_step(_name: str) -> None:
    """Let the step come: the :data:`OnStep` where nobody watches."""


class CrashPoint(Exception):
    """The bookie ends at this step; raised by an :data:`OnStep`, and caught by who started the bookie."""

"""How a simulated run can fail other than by what the code under test does."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "Deadlock",
    "RealWorldRefused",
    "StepLimitReached",
    "TimeLimitReached",
    "UnhandledErrors",
    "WorldClosed",
    "WorldError",
]

_TASKS_SHOWN_MAX = 20


class WorldError(RuntimeError):
    """Base of all errors of the simulated world. No :class:`~bkclient.errors.BookKeeperError`: no client may handle one."""


class RealWorldRefused(WorldError):
    """Simulated code reached for a real socket, thread, signal, process or file descriptor."""

    def __init__(self, call: str) -> None:
        super().__init__(
            f"{call} is refused: nothing real exists in a simulated world; use its network, metadata service and clock"
        )
        self.call = call


class WorldClosed(WorldError):
    """The simulated world was closed; nothing can happen in it any more."""


class _Stuck(WorldError):
    """The run was given up. ``pending`` describes the tasks that were not finished, in the order of their creation."""

    def __init__(self, problem: str, pending: Sequence[str]) -> None:
        self.pending = tuple(pending)
        shown = [f"\n  {text}" for text in self.pending[:_TASKS_SHOWN_MAX]]
        if len(self.pending) > len(shown):
            shown.append(f"\n  and {len(self.pending) - len(shown)} more")
        super().__init__(f"{problem}; pending tasks:{''.join(shown) or ' none'}")


class Deadlock(_Stuck):
    """Nothing is ready, no timer is set, and what the run is for has not finished: it never will."""


class StepLimitReached(_Stuck):
    """The run executed as many callbacks as allowed."""


class TimeLimitReached(_Stuck):
    """The virtual clock went as far as allowed."""


class UnhandledErrors(WorldError):
    """Callbacks or tasks of the run failed unnoticed. ``errors`` holds what they raised, in order."""

    def __init__(self, errors: Sequence[tuple[str, BaseException]]) -> None:
        self.errors = tuple(error for _, error in errors)
        where = "".join(f"\n  {place}: {error!r}" for place, error in errors[:_TASKS_SHOWN_MAX])
        super().__init__(f"{len(self.errors)} unhandled errors in the simulated world:{where}")

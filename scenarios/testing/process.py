"""A process of the application under test, on a simulated host of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from scenarios.hosted import HostedProcess

if TYPE_CHECKING:
    from scenarios.stage import Stage

__all__ = ["SimulatedProcess"]


class SimulatedProcess(HostedProcess):
    """One program of the application on a host of its own, from :meth:`~scenarios.testing.SimulatedWorld.start`.

    A crash ends it as ``kill -9`` does: not one line of it runs afterwards, no ``finally`` and no ``except``. :meth:`restart`
    calls the program again from its beginning, with the arguments of the first time; objects in memory are the test's to share,
    so give a program what it may know after a crash, and nothing else.
    """

    def __init__(self, stage: Stage, name: str, program: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        detail = getattr(program, "__qualname__", type(program).__name__)
        super().__init__(stage.world, stage.recorder, name, partial(program, *args), detail)

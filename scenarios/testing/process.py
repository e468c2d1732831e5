"""A process of the application under test, on a simulated host of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from scenarios.history import Kind
from simbookie.world.hosts import Host

if TYPE_CHECKING:
    from scenarios.stage import Stage

__all__ = ["SimulatedProcess"]


class SimulatedProcess:
    """One program of the application on a host of its own, from :meth:`~scenarios.testing.SimulatedWorld.start`.

    A crash ends it as ``kill -9`` does: not one line of it runs afterwards, no ``finally`` and no ``except``. :meth:`restart`
    calls the program again from its beginning, with the arguments of the first time; objects in memory are the test's to share,
    so give a program what it may know after a crash, and nothing else.
    """

    def __init__(self, stage: Stage, name: str, program: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        self.name = name
        self._stage = stage
        self._program = program
        self._args = args
        self._host = Host(stage.world, name)
        self._task = self._begin()

    def __repr__(self) -> str:
        state = "paused" if self._host.is_paused else "running" if self.is_alive else "ended"
        return f"<SimulatedProcess {self.name} {state}, incarnation {self.incarnation}>"

    def _begin(self) -> asyncio.Task[Any]:
        name = getattr(self._program, "__qualname__", type(self._program).__name__)
        self._stage.recorder.record(Kind.CLIENT_START, self.name, incarnation=self.incarnation, detail=name)
        return self._host.spawn(self._run, name=f"{name} of {self.name}")

    async def _run(self) -> Any:
        return await self._program(*self._args)

    @property
    def incarnation(self) -> int:
        """Which life this is, counted from 1."""
        return self._host.incarnation

    @property
    def is_alive(self) -> bool:
        """Whether the program runs, even if it is paused: it has neither returned nor crashed."""
        return self._host.is_alive and not self._task.done()

    @property
    def is_paused(self) -> bool:
        """Whether it executes nothing at present, and may be resumed."""
        return self._host.is_paused

    def crash(self) -> None:
        """Kill it: nothing of it runs any more, not even a ``finally`` block. Idempotent."""
        if self.is_alive:
            self._stage.recorder.record(Kind.CLIENT_CRASH, self.name, incarnation=self.incarnation)
            self._host.crash()

    def pause(self) -> None:
        """Let it execute nothing until :meth:`resume`, as a long garbage collection or SIGSTOP does."""
        if self._host.process.is_running and not self._task.done():
            self._stage.recorder.record(Kind.CLIENT_PAUSE, self.name)
            self._host.pause()

    def resume(self) -> None:
        """Let it go on after a pause, first with everything that came due meanwhile."""
        if self._host.is_paused:
            self._stage.recorder.record(Kind.CLIENT_RESUME, self.name)
            self._host.resume()

    def restart(self) -> None:
        """Begin a new life: the program is called again. One that still runs is killed first."""
        self.crash()
        if self._host.is_alive:  # it has returned or failed, and its host idles
            self._host.crash()
        self._host.restart()
        self._task = self._begin()

    async def ended(self) -> Any:
        """Wait until the program has returned or crashed; its result, None after a crash. Raises what the program raised."""
        task = self._task
        await self._stage.world.join(task)
        return task.result() if task.done() and not task.cancelled() else None

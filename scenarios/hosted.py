"""Processes of the application under test, each on a simulated host of its own, with their lives in the history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from scenarios.history import Kind
from scenarios.recording.recorders import Recorder
from simbookie.world.hosts import Host, World

__all__ = ["HostedProcess"]


class HostedProcess:
    """One program on the host ``name``. It begins when this is made, and its process ends when it returns.

    ``program`` is what begins anew with each life. ``detail`` says which program it is, in the history and in the names of tasks.
    """

    def __init__(
        self, world: World, recorder: Recorder, name: str, program: Callable[[], Awaitable[Any]], detail: str
    ) -> None:
        self.name = name
        self._world = world
        self._recorder = recorder
        self._program = program
        self._detail = detail
        self._host = Host(world, name)
        self._task = self._begin()

    def __repr__(self) -> str:
        state = "paused" if self._host.is_paused else "running" if self.is_alive else "ended"
        return f"<{type(self).__name__} {self.name} {state}, incarnation {self.incarnation}>"

    def _begin(self) -> asyncio.Task[Any]:
        self._recorder.record(Kind.CLIENT_START, self.name, incarnation=self.incarnation, detail=self._detail)
        return self._host.spawn(self._run, name=f"{self._detail} of {self.name}")

    async def _run(self) -> Any:
        return await self._program()

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
            self._recorder.record(Kind.CLIENT_CRASH, self.name, incarnation=self.incarnation)
            self._host.crash()

    def pause(self) -> None:
        """Let it execute nothing until :meth:`resume`, as a long garbage collection or SIGSTOP does."""
        if self._host.process.is_running and not self._task.done():
            self._recorder.record(Kind.CLIENT_PAUSE, self.name)
            self._host.pause()

    def resume(self) -> None:
        """Let it go on after a pause, first with everything that came due meanwhile."""
        if self._host.is_paused:
            self._recorder.record(Kind.CLIENT_RESUME, self.name)
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
        await self._world.join(task)
        return task.result() if task.done() and not task.cancelled() else None

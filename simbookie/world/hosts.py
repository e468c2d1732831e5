"""Hosts, and the world they live in.

::

    with World(seed=7) as world:
        writer = Host(world, "writer")

        async def main() -> None:
            task = writer.spawn(program)
            await asyncio.sleep(3)
            writer.crash()

        world.run(main)

``main`` is the director: it belongs to no host, injects faults and watches. Everything random comes from the seed, split by name
(:meth:`World.rng`), and time is the loop's.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from contextvars import Context
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar, TypeVarTuple, Unpack

from simbookie.storage.base import CrashMode
from simbookie.storage.steps import CrashPoint
from simbookie.world.clocks import WallClock
from simbookie.world.errors import UnhandledErrors, WorldClosed, WorldError
from simbookie.world.links import NetworkConfig, TcpConfig
from simbookie.world.loop import LoopLimits, VirtualTimeLoop
from simbookie.world.metadata_service import METADATA_HOST, MetadataConfig, SimulatedMetadataService
from simbookie.world.network import Network
from simbookie.world.process import Process, ProcessState
from simbookie.world.rng import split
from simbookie.world.tcp import Tcp

__all__ = ["Host", "World"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class World:
    """One simulated run: loop, network, metadata service and hosts, all decided by ``seed``. A context manager.

    Hosts may be added before and during :meth:`run`. After :meth:`close` nothing happens any more.
    """

    def __init__(
        self,
        seed: int,
        *,
        network: NetworkConfig | None = None,
        metadata: MetadataConfig | None = None,
        limits: LoopLimits | None = None,
        tcp: TcpConfig | None = None,
    ) -> None:
        self.seed = seed
        self.loop = VirtualTimeLoop(limits)
        self.loop.expected = (CrashPoint,)  # a schedule has killed its host, and nothing of it goes on
        self.network = Network(self.loop, seed, network)
        self.metadata = SimulatedMetadataService(self.loop, seed, metadata)
        self.hosts: dict[str, Host] = {}
        self.tcp = self.loop.tcp = Tcp(self.network, self.hosts, seed, tcp)
        #: How often each stream of chance was asked for.
        self._streams: dict[str, int] = {}
        self._wall_clocks: dict[str, WallClock] = {}
        self._context = Context()
        self._tasks: dict[asyncio.Task[Any], Process] = {}
        self._ends: dict[Process, asyncio.Future[None]] = {}
        self._is_closing = False
        #: The time of the loop when the clock was read last, and what it said.
        self._read_at, self._clock_us = 0.0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def rng(self, name: str) -> Random:
        """The stream of chance that belongs to ``name``.

        Asking again gives another stream, so that whatever is made anew, a session or a connection, does not meet the same
        chances once more.
        """
        asked = self._streams[name] = self._streams.get(name, 0) + 1
        return split(self.seed, name if asked == 1 else f"{name} ({asked})")

    def clock_us(self) -> int:
        """Microseconds of virtual time since the start of the run.

        Raises :class:`~simbookie.world.errors.WorldClosed` while the world is torn down: nothing that happens then is part of the
        run, and nothing must be recorded.
        """
        now = self.loop.now
        if now != self._read_at:  # several events happen at each moment
            if self._is_closing:
                raise WorldClosed("the run is over")
            self._read_at, self._clock_us = now, round(now * 1e6)
        return self._clock_us

    def wall_clock(self, host_name: str) -> WallClock:
        """The time of day on a host, which may come later."""
        clock = self._wall_clocks.get(host_name)
        if clock is None:
            clock = self._wall_clocks[host_name] = WallClock(self.loop.time)
        return clock

    # ----------------------------------------------------------------------------------------------------------- run

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run ``main`` as the director and return its result; the run ends with it, whatever hosts are still doing.

        Raises what ``main`` raises, and :class:`~simbookie.world.errors.WorldError` where the run itself failed: nothing can
        happen any more (``Deadlock``), a limit was reached, or a callback or task failed unnoticed
        (``UnhandledErrors``). May be called again to go on with the same world.
        """
        task = self.loop.create_task(main(), name="main", context=self._context)
        try:
            result = self.loop.run_until_complete(task)
        except WorldError:
            self._raise_unretrieved()  # which may well be why
            raise
        self._raise_unretrieved()
        return result

    def spawn(
        self,
        host: Host | str,
        function: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]],
        *args: *Ts,
        name: str | None = None,
    ) -> asyncio.Task[T]:
        """Run ``function`` on ``host``, in its present life. See :meth:`join` for how to wait for it."""
        process = self._host(host).process
        if not process.is_alive:
            raise WorldError(f"{process} cannot run anything")
        shown = name if name is not None else getattr(function, "__qualname__", "task")
        task = self.loop.create_task(function(*args), name=shown, context=process.context())
        self._tasks[task] = process
        return task

    async def join(self, *tasks: asyncio.Task[Any]) -> None:
        """Wait until each of the spawned ``tasks`` has ended or its process has; raises what the first failed one raised."""
        for task in tasks:
            process = self._tasks[task]
            if process.is_alive and not task.done():
                end = self._ends.get(process)
                if end is None:
                    end = self._ends[process] = self.loop.create_future()
                await asyncio.wait((task, end), return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not task.cancelled():
                task.result()

    def close(self) -> None:
        """End the world. Idempotent. Whatever is suspended is unwound without an effect."""
        self._is_closing, self._read_at = True, math.nan
        try:
            self.loop.close()
        finally:
            self._is_closing = False

    def _raise_unretrieved(self) -> None:
        errors, self.loop.unretrieved = self.loop.unretrieved, []
        for task, process in self._tasks.items():
            # asyncio's own note that the exception was not retrieved yet
            if task.done() and getattr(task, "_log_traceback", False):
                error = task.exception()
                assert error is not None
                errors.append((f"{process.host_name}: {task.get_name()}", error))
        if errors:
            raise UnhandledErrors(errors) from errors[0][1]

    # --------------------------------------------------------------------------------------------------------- hosts

    def crash(self, host: Host | str, mode: CrashMode = CrashMode.PROCESS) -> None:
        """See :meth:`Host.crash`."""
        self._host(host).crash(mode)

    def pause(self, host: Host | str) -> None:
        """See :meth:`Host.pause`."""
        self._host(host).pause()

    def resume(self, host: Host | str) -> None:
        """See :meth:`Host.resume`."""
        self._host(host).resume()

    def restart(self, host: Host | str) -> None:
        """See :meth:`Host.restart`."""
        self._host(host).restart()

    def _host(self, host: Host | str) -> Host:
        return self.hosts[host] if isinstance(host, str) else host

    def process_ended(self, process: Process) -> None:
        """Wake those who wait for ``process``; called by its host."""
        end = self._ends.pop(process, None)
        if end is not None and not end.done():
            end.set_result(None)


class Host:
    """A machine of the world, named uniquely, on which one process lives at a time."""

    def __init__(self, world: World, name: str) -> None:
        if name in world.hosts or name == METADATA_HOST:
            raise WorldError(f"there is a host {name!r} already")
        self.world = world
        self.name = name
        #: The machine's time of day, whatever process lives on it.
        self.wall_clock = world.wall_clock(name)
        self.process = Process(name)
        self._crash_listeners: dict[Callable[[], None], None] = {}
        world.hosts[name] = self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.process.state.name}, incarnation {self.incarnation}>"

    @property
    def incarnation(self) -> int:
        """Counts the lives of the host from 1."""
        return self.process.incarnation

    @property
    def is_alive(self) -> bool:
        """Whether a process lives here, even if it is paused."""
        return self.process.is_alive

    @property
    def is_paused(self) -> bool:
        """Whether the process is paused."""
        return self.process.state is ProcessState.PAUSED

    def spawn(
        self, function: Callable[[Unpack[Ts]], Coroutine[Any, Any, T]], *args: *Ts, name: str | None = None
    ) -> asyncio.Task[T]:
        """See :meth:`World.spawn`."""
        return self.world.spawn(self, function, *args, name=name)

    def crash(self, mode: CrashMode = CrashMode.PROCESS) -> None:
        """Kill the process: nothing of it executes from now on, not even a ``finally`` block. Idempotent.

        ``PROCESS``: the machine lives on and resets the connections. ``POWER_LOSS``: the machine falls silent until
        :meth:`restart`.
        """
        process = self.process
        if not process.is_alive:
            return
        self.world.loop.kill(process)
        self.world.network.process_killed(process, power_loss=mode is CrashMode.POWER_LOSS)
        listeners, self._crash_listeners = self._crash_listeners, {}
        for listener in listeners:
            listener()
        self.world.process_ended(process)

    def pause(self) -> None:
        """Let the process execute nothing until :meth:`resume`: no timer, no reply. What comes due is deferred."""
        self.world.loop.pause(self.process)

    def resume(self) -> None:
        """Let the paused process go on, first with everything that came due meanwhile, in order."""
        self.world.loop.resume(self.process)

    def restart(self) -> None:
        """Begin a new life after a crash; what runs in it has to be spawned anew."""
        if self.process.is_alive:
            raise WorldError(f"{self!r} lives; crash it first")
        self.process = Process(self.name, self.incarnation + 1)
        self.world.network.power_on(self.name)

    def on_crash(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` when the present life ends in a crash, as code of the world; returns what undoes this."""
        self._crash_listeners[listener] = None
        return lambda: self._crash_listeners.pop(listener, None)

"""Processes of a simulated world: whose code is running.

A :class:`Process` is one life of a host, from its start to its crash. Its code runs in contexts in which
:data:`current_process` names it; tasks, timers and callbacks inherit that from the code that made them, so the event loop
knows of everything it runs whose it is. A process

* that was *killed* never executes anything again: no callback, no ``finally`` block, no timer;
* that is *paused* (a garbage collection, SIGSTOP, a stalled virtual machine) executes nothing until it is resumed, then
  everything that came due meanwhile, in the order in which it came due.

Code outside any process belongs to the world itself: the network, the metadata service, the injection of faults.

One limit: Python code cannot be stopped in the middle. Where a process is killed or paused by something it called itself (a
fault injected at one of its own calls), that callback runs on to its end. The doors to the outside see to it that nothing of
it gets out: what a killed process still sends is dropped, what a paused one sends leaves when it is resumed.
"""

from __future__ import annotations

from asyncio import Handle
from contextvars import Context, ContextVar
from enum import Enum, auto
from typing import Final

__all__ = ["KILLED", "RUNNING", "Process", "ProcessState", "current_process"]


class ProcessState(Enum):
    """Whether a process executes."""

    RUNNING = auto()
    PAUSED = auto()
    KILLED = auto()


RUNNING: Final = ProcessState.RUNNING
KILLED: Final = ProcessState.KILLED


class Process:
    """One life of the host ``host_name``; ``incarnation`` counts its lives from 1.

    The event loop owns ``state`` and ``deferred``, the callbacks that came due while the process was paused: see
    ``kill``, ``pause``, ``resume`` and ``enter`` of :class:`~simbookie.world.loop.VirtualTimeLoop`. ``late`` are those
    that wait because the schedule lets the process be late, None if it is not; ``turn`` is the iteration of the loop for which
    it said last.
    """

    __slots__ = ("base", "deferred", "host_name", "incarnation", "late", "state", "turn")

    def __init__(self, host_name: str, incarnation: int = 1) -> None:
        self.host_name = host_name
        self.incarnation = incarnation
        self.state = RUNNING
        self.deferred: list[Handle] = []
        self.late: list[Handle] | None = None
        self.turn = 0
        #: What its contexts are copies of; nothing runs in it.
        self.base = Context()
        self.base.run(current_process.set, self)

    def __repr__(self) -> str:
        return f"<Process {self.host_name}#{self.incarnation} {self.state.name}>"

    @property
    def is_running(self) -> bool:
        """Whether the process is neither killed nor paused."""
        return self.state is RUNNING

    @property
    def is_alive(self) -> bool:
        """Whether the process was not killed; a paused process is alive."""
        return self.state is not KILLED

    def context(self) -> Context:
        """A new context in which the process is the current one, for a task or callback of it."""
        return self.base.copy()


current_process: ContextVar[Process | None] = ContextVar("current_process", default=None)
"""The process whose code is running; ``None`` for the world itself."""

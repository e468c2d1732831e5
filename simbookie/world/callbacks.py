"""What a virtual-time loop schedules: callbacks, futures and tasks that know whose they are and have definite hashes.

asyncio keeps tasks and futures in sets, which are walked through in the order of the hashes. An ordinary hash is an address and
differs from run to run, so here it is a number that the loop counts.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from collections.abc import Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVar

from simbookie.world.process import Process, ProcessState, current_process

__all__ = ["NumberedFuture", "NumberedTask", "OwnedHandle", "described", "owner_of"]

T = TypeVar("T")


class OwnedHandle(TimerHandle):
    """A callback, soon or at a time, and whose it is.

    One class for both: the interpreter finds attributes faster where all objects that pass are of one class.
    """

    __slots__ = ("process",)

    process: Process | None
    _context: Context
    _callback: Any
    _args: Any
    _cancelled: bool
    _loop: asyncio.AbstractEventLoop
    _when: float | None
    #: Whether it is among the loop's timers.
    _scheduled: bool
    # Of the debug mode, which there is not.
    _repr = _source_traceback = None

    def __init__(
        self,
        callback: object,
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
        when: float | None = None,
    ) -> None:
        # The fields of the base, without its questions: one of these is made for every callback.
        if context is None:
            context = copy_context()
        self._context = context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._when = when
        self._scheduled = when is not None
        self.process = context.get(current_process)

    def cancel(self) -> None:
        """As any timer; only the loop is not asked whether it is in debug mode, which it never is."""
        if not self._cancelled:
            self._loop._timer_handle_cancelled(self)  # type: ignore[attr-defined]  # noqa: SLF001
            self._cancelled = True
            self._callback = self._args = None

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class NumberedFuture(asyncio.Future[T]):
    """A future that hashes to the number its loop gave it."""

    __slots__ = ("number",)

    number: int

    def __hash__(self) -> int:
        return self.number


class NumberedTask(asyncio.Task[T]):
    """A task that hashes to its number, and whose it is."""

    __slots__ = ("number", "process")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        number: int,
        *,
        loop: asyncio.AbstractEventLoop,
        name: str,
        context: Context,
    ) -> None:
        self.number = number  # asyncio asks for the hash while it makes the task
        self.process = context.get(current_process)
        super().__init__(coroutine, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self.number

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.number} {self.get_name()}>"  # anyio asks for it with every cancellation


def owner_of(process: Process | None) -> str:
    """Whose something is, in messages."""
    if process is None:
        return "world"
    return f"{process.host_name} (paused)" if process.state is ProcessState.PAUSED else process.host_name


def described(task: NumberedTask[Any]) -> str:
    """Whose task it is, its name, and where it waits."""
    place: Any = task.get_coro()
    program = getattr(place, "__qualname__", type(place).__name__)
    frame = None
    while place is not None:
        frame = getattr(place, "cr_frame", None) or getattr(place, "gi_frame", None) or frame
        place = getattr(place, "cr_await", None) or getattr(place, "gi_yieldfrom", None)
    where = f" at {frame.f_code.co_qualname}, line {frame.f_lineno}" if frame is not None else ""
    return f"{owner_of(task.process)}: {task.get_name()} ({program}){where}"

"""What a virtual-time loop schedules: callbacks, futures and tasks that know whose they are and have definite hashes.

asyncio keeps tasks and futures in sets, which are walked through in the order of the hashes. An ordinary hash is an address and
differs from run to run, so here it is a number that the loop counts.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, Final, TypeVar

from simbookie.world.process import Process, ProcessState, current_process

__all__ = ["NumberedFuture", "NumberedTask", "OwnedHandle", "described", "new_handle", "owner_of"]

T = TypeVar("T")
H = TypeVar("H", bound="OwnedHandle")

#: Makes an object without values.
_new: Final[Callable[[type[Any]], Any]] = object.__new__


class OwnedHandle(TimerHandle):
    """A callback, soon or at a time, and whose it is. :func:`new_handle` makes it.

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

    def cancel(self) -> None:
        """As any timer; only the loop is not asked whether it is in debug mode, which it never is."""
        if not self._cancelled:
            self._loop._timer_handle_cancelled(self)  # type: ignore[attr-defined]  # noqa: SLF001
            self._cancelled = True
            self._callback = self._args = None

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def new_handle(
    of: type[H],
    callback: object,
    args: tuple[Any, ...],
    loop: asyncio.AbstractEventLoop,
    context: Context | None,
    when: float | None = None,
) -> H:
    """A handle of the class ``of``: soon, or at ``when``.

    No constructor, and without the questions that the base's asks: one is made for every callback, and a call of a class passes
    several functions of the interpreter's before it comes to its constructor.
    """
    if context is None:
        context = copy_context()
    handle: H = _new(of)
    handle._context = context  # noqa: SLF001  as for all that follow: this is the constructor
    handle._loop = loop  # noqa: SLF001
    handle._callback = callback  # noqa: SLF001
    handle._args = args  # noqa: SLF001
    handle._cancelled = False  # noqa: SLF001
    handle._when = when  # noqa: SLF001
    handle._scheduled = when is not None  # noqa: SLF001
    handle.process = context.get(current_process)
    return handle


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

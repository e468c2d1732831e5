"""Cancel a call wherever it can be cancelled, and look each time whether everything is as it should be.

A *story* is a coroutine function that sets a scene, hands one call to the :class:`Cancel` it is given, and then checks what the
cancelled call left behind. :func:`cancel_everywhere` plays it again and again on a loop in virtual time: the call is cancelled at
its first suspension, then at its second, and so on until it ends before it can be cancelled. Each suspension is tried in
three ways, because each of them finds other defects:

* *asleep*: the task is cancelled as it begins to wait. What it waits for is cancelled with it;
* *woken*: the task is cancelled after what it waited for has come, before it runs. Whatever it was given is lost, which is how
  permits, turns and locks leak;
* *scope*: an anyio scope around the call is cancelled, and from then on every further wait is cancelled too, clean-up included.

Suspensions of the tasks that a call starts count as its own: a call whose work is done by tasks is cancelled at each step of
theirs.

After each run no task may be left, and nothing may have failed unseen. A call that goes on as if nothing had happened after it
was cancelled is a defect as well.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar

import anyio

from simbookie.world.loop import VirtualTimeLoop

__all__ = ["Cancel", "Moment", "cancel_everywhere"]

T = TypeVar("T")

#: More suspensions than any call here has; a call that never ends otherwise runs for ever.
_SUSPENSIONS_MAX = 10_000
#: Turns of the loop that what was cancelled has to end in.
_TURNS_TO_END = 10


class Moment(Enum):
    """When, at a suspension, a call is cancelled."""

    ASLEEP = "as it began to wait"
    WOKEN = "when what it waited for had come"
    SCOPE = "by a scope around it"


class Cancel:
    """Runs the one call of a story that is to be cancelled."""

    def __init__(self, index: int, moment: Moment) -> None:
        self._index = index
        self._moment = moment
        self._is_used = False
        self._task: asyncio.Future[Any] | None = None
        #: Whether the call got as far as the suspension at which it was to be cancelled.
        self.was_requested = False
        #: Whether it ended by being cancelled.
        self.was_cancelled = False

    async def __call__(self, call: Awaitable[T]) -> T | None:
        """The result of ``call``; ``None``, with :attr:`was_cancelled` set, if it was cancelled. Errors are raised."""
        assert not self._is_used, "a story cancels one call"
        self._is_used = True
        task: asyncio.Future[T | None] = asyncio.ensure_future(self._in_scope(call))
        self._task = task
        await asyncio.wait([task])
        if task.cancelled():
            self.was_cancelled = True
        if self.was_cancelled:
            return None
        result = task.result()
        assert not self.was_requested or self._moment is Moment.SCOPE, "the call went on although it was cancelled"
        return result

    async def _in_scope(self, call: Awaitable[T]) -> T | None:
        with anyio.CancelScope() as scope:
            on_suspension = partial(self._on_suspension, scope=scope)
            _of_this_call.set(on_suspension)
            return await _Counted(call, on_suspension)
        self.was_cancelled = True
        return None

    def _on_suspension(self, waits_for: object, scope: anyio.CancelScope) -> None:
        task = self._task
        assert task is not None, "calls run in tasks"
        if self.was_requested or self._index > 0 or task.done():
            self._index -= 1
            return
        self.was_requested = True
        if self._moment is Moment.SCOPE:
            scope.cancel()
        elif self._moment is Moment.WOKEN and isinstance(waits_for, asyncio.Future):
            waits_for.add_done_callback(lambda _: task.cancel())  # runs before the task is woken, being there first
        else:
            task.cancel()


class _Counted(Generic[T]):
    """Awaits ``call`` and tells of every suspension what it waits for."""

    def __init__(self, call: Awaitable[T], on_suspension: Callable[[object], None]) -> None:
        self._call = call
        self._on_suspension = on_suspension

    def __await__(self) -> Generator[Any, Any, T]:
        steps: Any = self._call.__await__()
        error: BaseException | None = None
        while True:
            try:
                waits_for = next(steps) if error is None else steps.throw(error)
            except StopIteration as stop:
                result: T = stop.value
                return result
            error = None
            self._on_suspension(waits_for)
            try:
                yield waits_for
            except BaseException as thrown:  # noqa: BLE001 - handed on
                error = thrown


_of_this_call: ContextVar[Callable[[object], None] | None] = ContextVar("_of_this_call", default=None)


class _CountingLoop(VirtualTimeLoop):
    """Counts suspensions of the tasks that are started by a call too."""

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        on_suspension = _of_this_call.get()
        if on_suspension is None or not isinstance(coro, Coroutine):
            return super().create_task(coro, name=name, context=context)
        task = super().create_task(_counted(coro, on_suspension), name=name, context=context)
        task.add_done_callback(lambda _: coro.close())  # a task that is cancelled before it begins never gets to it
        return task


async def _counted(call: Awaitable[T], on_suspension: Callable[[object], None]) -> T:
    return await _Counted(call, on_suspension)


def cancel_everywhere(story: Callable[[Cancel], Awaitable[None]], *, at_least: int = 1) -> int:
    """Play ``story`` with its call cancelled at every suspension in every way; returns at how many suspensions.

    Fails unless there were ``at_least`` that many: a call that never waits proves nothing. Failures carry a note that tells
    where the call had been cancelled.
    """
    suspensions = 0
    for moment in Moment:
        for index in itertools.count():
            assert index < _SUSPENSIONS_MAX, "the call never ends"
            cancel = Cancel(index, moment)
            try:
                _play(story, cancel)
            except BaseException as error:
                error.add_note(f"the call was cancelled at suspension {index}, {moment.value}")
                raise
            if not cancel.was_requested:
                suspensions = max(suspensions, index)
                break
    assert suspensions >= at_least, f"the call waits only {suspensions} times"
    return suspensions


def _play(story: Callable[[Cancel], Awaitable[None]], cancel: Cancel) -> None:
    async def main() -> None:
        await story(cancel)
        assert cancel._is_used, "the story cancelled nothing"
        for _ in range(_TURNS_TO_END):
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {sorted(map(repr, left))}"

    loop = _CountingLoop()
    try:
        loop.run_until_complete(main())
        assert not loop.unretrieved, f"failed unseen: {loop.unretrieved}"
    finally:
        loop.close()

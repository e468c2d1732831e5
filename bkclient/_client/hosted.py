"""An async context manager that lives in a task of its own, no matter which task enters and leaves it.

Task groups and cancel scopes belong to the task that entered them and must be left there. The blocks of applications are
often entered in one task and left in another: fixtures of pytest-asyncio around a ``yield``, lifespan hooks of web
frameworks, exit stacks that somebody else closes. So what a client does in the background is entered and left by a task
that does nothing else, its *host*, and the tasks that enter or leave the client only wait for it.

Nothing gets lost by that. Who leaves waits until everything has ended, cancelled or not: a cancellation hurries the end, and
is raised when it has come. When background work fails, it ends altogether and :attr:`Hosted.failure` says why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

__all__ = ["Hosted"]

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Hosted(Generic[T]):
    """Hosts what ``make`` returns, once; it is given a task group for its background work, which ends after it was left.

    What it does on leaving must end by itself: no cancellation interrupts it.
    """

    def __init__(self, make: Callable[[TaskGroup], AbstractAsyncContextManager[T]], name: str) -> None:
        self._make = make
        self._name = name
        self._host: asyncio.Task[None] | None = None
        self._entered: asyncio.Future[T] | None = None
        self._leaving = asyncio.Event()
        self._is_aborted = False
        self._tasks: TaskGroup | None = None
        #: What ended the background work before anybody left, if anything did.
        self.failure: BaseException | None = None

    @property
    def is_used(self) -> bool:
        """Whether it was entered, at any time."""
        return self._host is not None

    async def enter(self) -> T:
        """What the context manager yields. Raises what it raises on entering; everything has ended then."""
        loop = asyncio.get_running_loop()
        entered: asyncio.Future[T] = loop.create_future()
        self._entered = entered
        self._host = loop.create_task(self._live(entered), name=self._name)
        try:
            await asyncio.wait((entered,))  # which, unlike awaiting it, leaves it alone when this task is cancelled
        except asyncio.CancelledError:
            await self.leave()
            if entered.done() and not entered.cancelled():
                entered.exception()  # there is no waiter to be told
            raise
        if entered.cancelled() or entered.exception() is not None:
            await self.leave()
        return entered.result()

    async def leave(self) -> None:
        """Leave it, and wait until that and all background work has ended. Idempotent; by any task."""
        assert self._host is not None, "entered before left"
        assert self._entered is not None, "set with the host"
        self._leaving.set()
        if not self._entered.done():
            self._abort()
        cancelled: asyncio.CancelledError | None = None
        with anyio.CancelScope(shield=True):
            while not self._host.done():
                try:
                    await asyncio.wait((self._host,))
                except asyncio.CancelledError as error:
                    cancelled = error
                    self._abort()
        if cancelled is not None:
            raise cancelled

    def _abort(self) -> None:
        """Cancel what is under way. Not the host itself: it may not have begun, and could then not clean up."""
        self._is_aborted = True
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    async def _live(self, entered: asyncio.Future[T]) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                if self._is_aborted:
                    tasks.cancel_scope.cancel()
                await self._stay(tasks, entered)
                tasks.cancel_scope.cancel()
        except Exception as error:  # noqa: BLE001 - it is raised at the exit, see the class
            self._note_failure(error)
        except asyncio.CancelledError:
            if not self._leaving.is_set():
                raise  # the loop is being shut down
        finally:
            self._leaving.set()
            if not entered.done():
                _end(entered, self.failure)

    async def _stay(self, tasks: TaskGroup, entered: asyncio.Future[T]) -> None:
        try:
            async with self._make(tasks) as value:
                entered.set_result(value)
                await self._leaving.wait()
        except Exception as error:
            if entered.done():
                raise
            entered.set_exception(error)

    def _note_failure(self, error: BaseException) -> None:
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        self.failure = error
        _log.error("%s failed and has ended", self._name, exc_info=error)


def _end(entered: asyncio.Future[Any], failure: BaseException | None) -> None:
    """Tell the task that waits to enter why it cannot: something failed, or the host was cancelled."""
    if failure is None:
        entered.cancel()
    else:
        entered.set_exception(failure)

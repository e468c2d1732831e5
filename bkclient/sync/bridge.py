"""How a call crosses from any thread to the event loop of a client, and its outcome back.

A synchronous class names the methods of the asynchronous one that it offers: ``append = blocking(LedgerWriter.append)``. It has
arguments, result and docstring of that method, for type checkers and editors, too, so there is one place that says them. What
returns a handle is wrapped (:func:`opening`), what returns a future has one for threads (:func:`passing`), and what returns an
asynchronous iterator becomes an iterator (:func:`iterating`).

A call that is interrupted while it waits, by Ctrl-C for example, is cancelled, with what its cancellation means for the
asynchronous one.
"""

from __future__ import annotations

import threading
from asyncio import _get_running_loop as running_loop
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from anyio.from_thread import BlockingPortal

from bkclient.errors import ClientClosed, IllegalOperation

__all__ = [
    "Bridge",
    "SyncBlock",
    "SyncHandle",
    "blocking",
    "check_thread",
    "iterating",
    "opening",
    "passed_on",
    "passing",
]

A = TypeVar("A")
H = TypeVar("H")
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
W = TypeVar("W", bound="SyncHandle[Any]")


class Bridge:
    """The way to the event loop of one client, from the threads of the application."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self.is_closed = False

    def call(self, function: Callable[..., Awaitable[R]], *args: Any, **kwargs: Any) -> R:
        """Await ``function(...)`` on the loop, and wait for its outcome in this thread.

        Raises what it raises, :class:`~bkclient.errors.IllegalOperation` in a thread that runs an event loop of its own, and
        :class:`~bkclient.errors.ClientClosed` after the end of the client.
        """
        check_thread()
        if self.is_closed:
            raise ClientClosed

        async def run() -> R:
            return await function(*args, **kwargs)

        future: Future[R] = self._portal.start_task_soon(run)
        try:
            return future.result()
        except CancelledError:
            raise ClientClosed from None  # the loop has ended meanwhile
        except BaseException:
            future.cancel()  # where this thread was interrupted; a call that has ended stays as it is
            raise


def check_thread() -> None:
    """Raise :class:`~bkclient.errors.IllegalOperation` where waiting would hold up an event loop."""
    if running_loop() is not None:
        raise IllegalOperation(
            "bkclient.sync waits for every call, and this thread runs an event loop, which would stand still meanwhile",
            advice="Use bkclient.connect in asynchronous code, or call from another thread (anyio.to_thread.run_sync).",
        )


class SyncHandle(Generic[H]):
    """A handle of a client, and the way to its loop. May be used by several threads at a time."""

    def __init__(self, bridge: Bridge, handle: H) -> None:
        self._bridge = bridge
        self._handle = handle

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._handle!r}>"


class SyncBlock(SyncHandle[H]):
    """A handle with a ``with`` block, which is that of the asynchronous one."""

    def __enter__(self) -> Self:
        handle: Any = self._handle
        self._bridge.call(handle.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handle: Any = self._handle
        self._bridge.call(handle.__aexit__, kind, error, trace)


class _Blocking(Generic[P, R]):
    """A method that waits for the asynchronous one."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.__doc__ = method.__doc__
        self.__name__ = method.__name__

    @overload
    def __get__(self, handle: None, owner: type) -> Self: ...

    @overload
    def __get__(self, handle: SyncHandle[Any], owner: type) -> Callable[P, R]: ...

    def __get__(self, handle: SyncHandle[Any] | None, owner: type) -> Self | Callable[P, R]:
        return self if handle is None else self._bound(handle)

    def _bound(self, handle: SyncHandle[Any]) -> Callable[P, R]:
        method = self._method

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            result: R = handle._bridge.call(method, handle._handle, *args, **kwargs)  # noqa: SLF001  of this module
            return result

        call.__doc__, call.__name__ = self.__doc__, self.__name__
        return call


class _Opening(_Blocking[P, W]):
    """A method that waits for a handle, and wraps it."""

    def __init__(self, method: Callable[..., Any], kind: type[W]) -> None:
        super().__init__(method)
        self._kind = kind

    def _bound(self, handle: SyncHandle[Any]) -> Callable[P, W]:
        bridge, opened = handle._bridge, super()._bound(handle)  # noqa: SLF001  of this module

        def call(*args: P.args, **kwargs: P.kwargs) -> W:
            return self._kind(bridge, opened(*args, **kwargs))

        call.__doc__, call.__name__ = self.__doc__, self.__name__
        return call


class _Iterating(_Blocking[P, Iterator[R]]):
    """A method whose asynchronous iterator is gone through by ``for``."""

    def __init__(self, method: Callable[..., Any], at_once: int) -> None:
        super().__init__(method)
        self._at_once = at_once

    def _bound(self, handle: SyncHandle[Any]) -> Callable[P, Iterator[R]]:
        method, bridge = self._method, handle._bridge  # noqa: SLF001  of this module

        async def begin(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
            return aiter(method(handle._handle, *args, **kwargs))  # noqa: SLF001  of this module

        def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
            return _each(bridge, bridge.call(begin, *args, **kwargs), self._at_once)

        call.__doc__, call.__name__ = self.__doc__, self.__name__
        return call


def blocking(method: Callable[Concatenate[A, P], Awaitable[R]]) -> _Blocking[P, R]:
    """The asynchronous ``method`` as one that waits."""
    return _Blocking(method)


def opening(method: Callable[Concatenate[A, P], Awaitable[Any]], kind: type[W]) -> _Opening[P, W]:
    """The asynchronous ``method`` as one that waits for a handle, which is wrapped as a ``kind``."""
    return _Opening(method, kind)


class OfLoop(Protocol[R_co]):
    """A future of the loop: asyncio's, or one of an append."""

    def cancelled(self) -> bool: ...

    def exception(self) -> BaseException | None: ...

    def result(self) -> R_co: ...

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None: ...


def passed_on(future: OfLoop[R]) -> Future[R]:
    """A future for threads that gets the outcome of one of the loop; called on the loop."""
    passed: Future[R] = Future()
    passed.set_running_or_notify_cancel()  # what was sent cannot be called back

    def on_done(done: OfLoop[R]) -> None:
        error: BaseException | None = ClientClosed() if done.cancelled() else done.exception()
        if error is not None:
            passed.set_exception(error)
        else:
            passed.set_result(done.result())

    future.add_done_callback(on_done)
    return passed


def passing(method: Callable[Concatenate[A, P], OfLoop[R]]) -> _Blocking[P, Future[R]]:
    """A ``method`` that returns a future of the loop as one that returns a future for threads."""

    @wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Future[R]:
        return passed_on(method(*args, **kwargs))

    return _Blocking(call)


def iterating(method: Callable[Concatenate[A, P], AsyncIterator[R]], at_once: int = 1) -> _Iterating[P, R]:
    """A ``method`` that returns an asynchronous iterator as one that returns an iterator.

    Up to ``at_once`` elements cross at a time; more than one only where none of them has to be waited for without end.
    """
    return _Iterating(method, at_once)


def _each(bridge: Bridge, elements: AsyncIterator[R], at_once: int) -> Iterator[R]:
    """The elements; one thread at a time gets the next one."""
    lock = threading.Lock()

    async def take() -> list[R]:
        taken: list[R] = []
        async for element in elements:
            taken.append(element)
            if len(taken) == at_once:
                break
        return taken

    try:
        while True:
            with lock:
                taken = bridge.call(take)
            yield from taken
            if len(taken) < at_once:
                return
    finally:
        close = getattr(elements, "aclose", None)
        if close is not None:
            with suppress(ClientClosed, IllegalOperation, RuntimeError):  # collected as garbage, somewhere, sometime
                bridge.call(close)

"""How the appends of a writer ended, and the futures that tell applications.

Entries are acknowledged strictly in the order of their ids, so one number tells of all that are. An application gets an
:class:`AppendFuture` for each append, which holds nothing but the entry's id until it is asked for more: only an append that
somebody waits for has a future of asyncio's, and programs that flush wait for none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextvars import Context
from typing import Any, Final

from bkclient._client.writing.failures import fail_quietly
from bkclient._fresh import fresh
from bkclient.errors import BookKeeperError
from bkclient.protocol.adds import NewEntry
from bkclient.protocol.value import NOTHING, own

__all__ = ["AppendFuture", "AppendOutcomes", "unmade"]


class AppendOutcomes:
    """Those of one writer, whether it chooses the ids or its caller does."""

    __slots__ = ("awaited", "failed", "first", "ledger_id", "loop")

    def __init__(self, ledger_id: int, loop: asyncio.AbstractEventLoop) -> None:
        self.ledger_id: Final = ledger_id
        self.loop: Final = loop
        #: Every entry below this id is acknowledged.
        self.first = 0
        #: By entry id, the futures of appends under way that somebody asked for.
        self.awaited: dict[int, asyncio.Future[int]] = NOTHING
        #: By entry id, why appends failed. A writer that has failed takes no more, so these are as many as were in flight.
        self.failed: dict[int, BookKeeperError] = NOTHING

    def confirm(self, entries: Sequence[NewEntry]) -> None:
        """These entries, in order the first that had no outcome, are acknowledged."""
        self.first = entries[-1].entry_id + 1
        awaited = self.awaited
        if awaited:
            for entry_id, _, _, _ in entries:
                future = awaited.pop(entry_id, None)
                if future is not None and not future.done():  # else it was cancelled
                    future.set_result(entry_id)

    def fail(self, entry_id: int, error: BookKeeperError) -> bool:
        """The append of this entry failed; returns whether it had not failed before, in which case nothing is changed."""
        if entry_id in self.failed:
            return False
        self.failed = own(self.failed)
        self.failed[entry_id] = error
        future = self.awaited.pop(entry_id, None) if self.awaited else None
        if future is not None:
            self._set_failed(future, entry_id, error)
        return True

    def future_of(self, entry_id: int) -> asyncio.Future[int]:
        """A future of an entry's outcome, which is asked for once."""
        future: asyncio.Future[int] = self.loop.create_future()
        if entry_id < self.first:
            future.set_result(entry_id)
        elif entry_id in self.failed:
            self._set_failed(future, entry_id, self.failed[entry_id])
        else:
            self.awaited = own(self.awaited)
            self.awaited[entry_id] = future
        return future

    def _set_failed(self, future: asyncio.Future[int], entry_id: int, error: BookKeeperError) -> None:
        fail_quietly(future, fresh(error, ledger_id=self.ledger_id, entry_id=entry_id))


class AppendFuture(Awaitable[int]):
    """The outcome of an append: the entry's id, once an ack quorum has stored it and everything before it.

    It is awaited and otherwise used as an :class:`asyncio.Future`, alone or in ``asyncio.gather()``, ``asyncio.wait()`` and the
    like; its methods do what they do there. What it raises is what ``await writer.append()`` would. Cancelling it ends the wait
    and leaves the entry ambiguous, the writer intact.
    """

    __module__ = "bkclient"
    __slots__ = ("_entry_id", "_future", "_outcomes")

    #: By this asyncio knows what it may treat as a future.
    _asyncio_future_blocking = False

    def __init__(self, outcomes: AppendOutcomes, entry_id: int) -> None:
        self._outcomes = outcomes
        self._entry_id = entry_id
        #: Made when something is asked for that one of asyncio's has to do.
        self._future: asyncio.Future[int] | None = None

    @property
    def entry_id(self) -> int:
        """The id that the entry has in the ledger if it is stored; known from the start."""
        return self._entry_id

    def __await__(self) -> Generator[Any, None, int]:
        if self._is_acknowledged():
            return self._entry_id
        return (yield from self._asked().__await__())

    def done(self) -> bool:
        """Whether the outcome is known, or the wait for it was cancelled."""
        if self._future is not None:
            return self._future.done()
        return self._is_acknowledged() or self._entry_id in self._outcomes.failed

    def cancelled(self) -> bool:
        """Whether the wait was cancelled."""
        return self._future is not None and self._future.cancelled()

    def result(self) -> int:
        """The entry's id; raises why the append failed, and ``asyncio.InvalidStateError`` before the outcome is known."""
        return self._entry_id if self._is_acknowledged() else self._asked().result()

    def exception(self) -> BaseException | None:
        """Why the append failed, None if it did not; raises ``asyncio.InvalidStateError`` before the outcome is known."""
        return None if self._is_acknowledged() else self._asked().exception()

    def cancel(self, msg: Any | None = None) -> bool:
        """Wait no more; returns False if the outcome is known. What was sent cannot be called back."""
        return not self._is_acknowledged() and self._asked().cancel(msg)

    def add_done_callback(self, fn: Callable[[AppendFuture], object], /, *, context: Context | None = None) -> None:
        """Have the loop call ``fn`` with this future once it is done."""
        self._asked().add_done_callback(_Callback(fn, self), context=context)

    def remove_done_callback(self, fn: Callable[[AppendFuture], object], /) -> int:
        """Do not call ``fn``; returns how often it would have been called."""
        return self._asked().remove_done_callback(_Callback(fn, self))

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the writer."""
        return self._outcomes.loop

    def __repr__(self) -> str:
        if not self.done():
            state = "pending"
        elif self.cancelled():
            state = "cancelled"
        else:
            error = self.exception()
            state = "acknowledged" if error is None else f"failed by {type(error).__name__}"
        return f"<AppendFuture ledger_id={self._outcomes.ledger_id} entry_id={self._entry_id} {state}>"

    def _is_acknowledged(self) -> bool:
        """Whether it is, and nobody has asked before."""
        return self._future is None and self._entry_id < self._outcomes.first

    def _asked(self) -> asyncio.Future[int]:
        if self._future is None:
            self._future = self._outcomes.future_of(self._entry_id)
        return self._future

    # What asyncio.gather() asks of futures that were cancelled.

    @property
    def _cancel_message(self) -> Any:
        return self._asked()._cancel_message  # type: ignore[attr-defined]  # noqa: SLF001

    def _make_cancelled_error(self) -> asyncio.CancelledError:
        return self._asked()._make_cancelled_error()  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001


#: Makes a future whose attributes its caller sets, for those who cannot spare a call.
unmade: Final[Callable[[type[AppendFuture]], AppendFuture]] = AppendFuture.__new__


class _Callback:
    """A function that is to be called with the future that it was given to, and not with the one of asyncio's behind it."""

    __slots__ = ("_function", "_future")

    def __init__(self, function: Callable[[AppendFuture], object], future: AppendFuture) -> None:
        self._function = function
        self._future = future

    def __call__(self, _: asyncio.Future[int]) -> None:
        self._function(self._future)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Callback) and self._function == other._function

    def __hash__(self) -> int:
        return hash(self._function)

    def __repr__(self) -> str:
        return repr(self._function)

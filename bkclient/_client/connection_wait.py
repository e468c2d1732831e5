"""Waiting until connections to bookies take requests again, which writers and readers do if that is configured.

Connections are asked, not listened to, because that is what the transport offers: at once, and then every few milliseconds while
anybody waits. One timer looks for all who wait. They wait for *keys*, for example entry ids, and each key is asked about once at
a look, however many wait for it. Whether all connections of a key have to take requests, or any of them, is the owner's to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

from bkclient._backoff import Backoff
from bkclient._client.defects import defect, ends_operation
from bkclient._fresh import fresh

__all__ = ["ConnectionWait", "WaitEnd"]

K = TypeVar("K", bound=Hashable)

#: How often to look whether connections take more again.
_LOOKS: Final = Backoff(0.001, 0.005)


class WaitEnd(Enum):
    """How a wait ended."""

    #: The connections take requests.
    FREE = "free"
    #: They did not in time.
    TIMED_OUT = "timed out"
    #: The owner takes nothing more, so there is nothing to wait for.
    OVER = "over"


@dataclass(slots=True, eq=False)
class _Held(Generic[K]):
    """A wait."""

    subject: K
    deadline: float
    future: asyncio.Future[None]


class ConnectionWait(Generic[K]):
    """The waits of one handle, each of ``wait_s`` seconds at most. Belongs to the running event loop.

    ``is_free`` says whether the connections of a key take requests, ``is_over`` whether the handle takes nothing more;
    ``on_held`` is called for each wait that is not over at once. If ``is_free`` or ``is_over`` raises while anybody waits, all
    waits end with :class:`~bkclient.errors.UnexpectedCondition`.
    """

    def __init__(
        self,
        is_free: Callable[[K], bool],
        is_over: Callable[[], bool],
        *,
        wait_s: float,
        ledger_id: int,
        on_held: Callable[[], None] | None = None,
    ) -> None:
        self._is_free = is_free
        self._is_over = is_over
        self._wait_s = wait_s
        self._ledger_id = ledger_id
        self._on_held = on_held
        self._loop = asyncio.get_running_loop()
        self._held: dict[_Held[K], None] = {}
        self._look: asyncio.TimerHandle | None = None
        self._look_s = _LOOKS.first_s

    async def wait(self, key: K) -> WaitEnd:
        """Wait until the connections of ``key`` take requests, or long enough; a wait that is cancelled leaves nothing behind."""
        deadline = self._loop.time() + self._wait_s
        is_held = False
        while not self._is_over():
            if self._is_free(key):
                return WaitEnd.FREE
            if self._loop.time() >= deadline:
                return WaitEnd.TIMED_OUT
            if not is_held and self._on_held is not None:
                self._on_held()
            is_held = True
            await self._hold(_Held(key, deadline, self._loop.create_future()))
        return WaitEnd.OVER

    def release(self) -> None:
        """The handle takes nothing more: end all waits now instead of at the next look."""
        for held in self._held:
            _complete(held)

    async def _hold(self, held: _Held[K]) -> None:
        self._held[held] = None
        self._look_soon()
        try:
            await held.future
        finally:
            del self._held[held]
            if not self._held and self._look is not None:
                self._look.cancel()
                self._look = None

    def _look_soon(self) -> None:
        if self._look is None:
            first_deadline = min(held.deadline for held in self._held)
            when = min(self._loop.time() + self._look_s, first_deadline)
            self._look = self._loop.call_at(when, self._look_at_connections)
            self._look_s = _LOOKS.after(self._look_s)

    @ends_operation
    def _look_at_connections(self) -> None:
        """Let go those who can go on, and only them."""
        self._look = None
        now, is_over = self._loop.time(), self._is_over()
        free: dict[K, bool] = {}
        for held in self._held:
            if held.subject not in free:
                free[held.subject] = self._is_free(held.subject)
            if free[held.subject] or now >= held.deadline or is_over:
                _complete(held)
        if any(not held.future.done() for held in self._held):
            self._look_soon()
        else:
            self._look_s = _LOOKS.first_s

    def on_defect(self, error: Exception) -> None:
        """The look at the connections raised: everybody who waits learns it."""
        failure = defect(error, "the wait for connections", ledger_id=self._ledger_id)
        for held in self._held:
            if not held.future.done():
                held.future.set_exception(fresh(failure))


def _complete(held: _Held[K]) -> None:
    if not held.future.done():
        held.future.set_result(None)

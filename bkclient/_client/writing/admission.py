"""What may hold a writer back besides its window: a rate limit, and connections that take no more (W-4, W-7).

Both are off by default, and then there is no object of this kind. Waiting is for ``wait_for_room``; an append itself never
waits. Connections are asked, not listened to, because that is what the transport offers: every few milliseconds while
somebody waits.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from bkclient._backoff import Backoff
from bkclient._client.core import ClientCore
from bkclient._client.defects import defect, ends_operation
from bkclient._client.rate_limit import RateLimit
from bkclient._client.writing.failures import fresh
from bkclient.errors import Code, TooManyRequests
from bkclient.observability import stats as names
from bkclient.protocol.append import AppendMachine
from bkclient.transport.base import ReplyHandler
from bkclient.wire.messages import Request

__all__ = ["WriterAdmission"]

#: How often to look whether connections take more again.
_LOOKS: Final = Backoff(0.001, 0.005)


@dataclass(slots=True, eq=False)
class _Held:
    """Somebody who waits for the connections of one entry; of whichever is next if ``entry_id`` is None."""

    entry_id: int | None
    deadline: float
    future: asyncio.Future[None]


class WriterAdmission:
    """Decides, entry by entry, whether one writer may append."""

    def __init__(self, core: ClientCore, machine: AppendMachine) -> None:
        self._core = core
        self._machine = machine
        self._loop = asyncio.get_running_loop()
        self._wait_s: Final = core.config.timeouts.backpressure_s
        #: Shared by the appends and the reads of one handle; None without a rate limit.
        self.throttle: Final = RateLimit.of(core.config.limits)
        #: Permits that were waited for and are not used yet, and those who wait.
        self._permits = 0
        self._waiters: dict[asyncio.Future[None], None] = {}
        self._held: dict[_Held, None] = {}
        self._look: asyncio.TimerHandle | None = None
        self._look_s = _LOOKS.first_s
        #: How many waited for connections in vain, and may append all the same.
        self._waived = 0
        #: Entries that fail at once where the connection takes no more.
        self._fail_fast: dict[int, None] = {}

    @staticmethod
    def is_wanted(core: ClientCore) -> bool:
        """Whether the configuration asks for any of this."""
        return core.config.limits.throttle_per_s > 0 or core.config.timeouts.backpressure_s is not None

    async def wait(self, entry_id: int | None = None) -> None:
        """Wait until the bookies of ``entry_id``, or of the next entry, take more, or long enough; then for a permit."""
        if self._wait_s:
            await self._wait_for_connections(entry_id, self._wait_s)
        if self.throttle is not None:
            await self._wait_for_permit(self.throttle)

    async def _wait_for_permit(self, throttle: RateLimit) -> None:
        delay_s = throttle.reserve()
        if delay_s > 0:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters[waiter] = None
            timer = self._loop.call_later(delay_s, _complete, waiter)
            try:
                await waiter
            except BaseException:
                throttle.give_back()
                raise
            finally:
                timer.cancel()
                del self._waiters[waiter]
        self._permits += 1

    async def _wait_for_connections(self, entry_id: int | None, wait_s: float) -> None:
        held: _Held | None = None
        deadline = self._loop.time() + wait_s
        while self._machine.is_writable and not self._core.is_closed:
            if self._is_writable(self._wanted(entry_id)):
                self._waived = 0
                return
            if self._loop.time() >= deadline:
                self._waived += 1
                return
            if held is None and self._core.stats is not None:
                self._core.stats.event(names.THROTTLED)
            held = _Held(entry_id, deadline, self._loop.create_future())
            self._held[held] = None
            self._look_soon()
            try:
                await held.future
            finally:
                del self._held[held]

    def _look_soon(self) -> None:
        """One timer looks for all who are held, and lets go only those who can go on."""
        if self._look is None:
            self._look = self._loop.call_later(self._look_s, self._look_at_connections)
            self._look_s = _LOOKS.after(self._look_s)

    @ends_operation
    def _look_at_connections(self) -> None:
        self._look = None
        now = self._loop.time()
        writable: dict[int, bool] = {}
        for held in self._held:
            wanted = self._wanted(held.entry_id)
            if wanted not in writable:
                writable[wanted] = self._is_writable(wanted)
            if writable[wanted] or now >= held.deadline or not self._machine.is_writable:
                _complete(held.future)
        if any(not held.future.done() for held in self._held):
            self._look_soon()
        else:
            self._look_s = _LOOKS.first_s

    def _wanted(self, entry_id: int | None) -> int:
        return self._machine.last_add_pushed + 1 if entry_id is None else entry_id

    def admit(self, entry_id: int) -> None:
        """Let ``entry_id`` pass, taking its permit, or raise :class:`~bkclient.errors.TooManyRequests`."""
        is_fail_fast = self._wait_s is not None and not self._is_writable(entry_id)
        if is_fail_fast and self._wait_s and not self._waived:
            raise self._refusal("a connection to its bookies takes no more at present")
        if self.throttle is not None and not self._take_permit(self.throttle):
            raise self._refusal(
                f"the rate of {self._core.config.limits.throttle_per_s:g} requests per second is reached"
            )
        if is_fail_fast:
            self._waived = max(0, self._waived - 1)
            for done in [e for e in self._fail_fast if e <= self._machine.last_add_acknowledged]:
                del self._fail_fast[done]
            self._fail_fast[entry_id] = None

    def _take_permit(self, throttle: RateLimit) -> bool:
        if self._permits > 0:
            self._permits -= 1
            return True
        return throttle.try_take()

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """As the transport's, except that an entry that may not wait fails at a connection that takes no more (W-7)."""
        entry_id = getattr(request, "entry_id", None)
        if entry_id in self._fail_fast and not self._core.transport.is_writable(bookie_id):
            self._loop.call_soon(reply_to, bookie_id, request, Code.TOO_MANY_REQUESTS, None)
        else:
            self._core.transport.submit(bookie_id, request, reply_to)

    def on_defect(self, error: Exception) -> None:
        """The look at the connections raised: whoever is held learns it."""
        failure = defect(error, "the wait for connections", ledger_id=self._machine.metadata.ledger_id)
        for held in self._held:
            if not held.future.done():
                held.future.set_exception(fresh(failure))

    def release(self) -> None:
        """The writer takes no more: let those who wait go on, to be refused."""
        for waiter in self._waiters:
            _complete(waiter)
        for held in self._held:
            _complete(held.future)

    def _is_writable(self, entry_id: int) -> bool:
        """Whether the connections to the write set of ``entry_id`` take more; others do not matter (T-187)."""
        is_writable, ensemble = self._core.transport.is_writable, self._machine.ensemble
        return all(is_writable(ensemble[position]) for position in self._machine.sizes.write_set(entry_id))

    def _refusal(self, why: str) -> TooManyRequests:
        return TooManyRequests(
            f"{why}; await submit() or append() instead, which wait", ledger_id=self._machine.metadata.ledger_id
        )


def _complete(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)

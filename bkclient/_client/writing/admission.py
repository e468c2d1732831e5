"""What may hold a writer back besides its window: a rate limit, and connections that take no more (W-4, W-7).

Both are off by default, and then there is no object of this kind. Waiting is for ``wait_for_room``; an append itself never
waits.
"""

from __future__ import annotations

import asyncio
from typing import Final

from bkclient._client.connection_wait import ConnectionWait, WaitEnd
from bkclient._client.core import ClientCore
from bkclient._client.rate_limit import RateLimit
from bkclient.errors import Code, TooManyRequests
from bkclient.observability import stats as names
from bkclient.protocol.append import AppendMachine
from bkclient.transport.base import ReplyHandler
from bkclient.wire.messages import Request

__all__ = ["WriterAdmission"]


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
        #: None if reads and appends do not wait for connections.
        self._connections: ConnectionWait[int | None] | None = None
        if self._wait_s:
            self._connections = ConnectionWait(
                self._is_free,
                self._is_over,
                wait_s=self._wait_s,
                ledger_id=machine.metadata.ledger_id,
                on_held=self._on_held,
            )
        #: How many waited for connections without success, and may append nevertheless.
        self._waived = 0
        #: Entries that fail at once where the connection takes no more.
        self._fail_fast: dict[int, None] = {}

    @staticmethod
    def is_wanted(core: ClientCore) -> bool:
        """Whether the configuration asks for any of this."""
        return core.config.limits.throttle_per_s > 0 or core.config.timeouts.backpressure_s is not None

    async def wait(self, entry_id: int | None = None) -> None:
        """Wait until the bookies of ``entry_id``, or of the next entry, take more, or long enough; then for a permit."""
        if self._connections is not None:
            await self._wait_for_connections(self._connections, entry_id)
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

    async def _wait_for_connections(self, connections: ConnectionWait[int | None], entry_id: int | None) -> None:
        end = await connections.wait(entry_id)
        if end is WaitEnd.FREE:
            self._waived = 0
        elif end is WaitEnd.TIMED_OUT:
            self._waived += 1

    def _is_free(self, entry_id: int | None) -> bool:
        return self._is_writable(self._machine.last_add_pushed + 1 if entry_id is None else entry_id)

    def _is_over(self) -> bool:
        return self._core.is_closed or not self._machine.is_writable

    def _on_held(self) -> None:
        if self._core.stats is not None:
            self._core.stats.event(names.THROTTLED)

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

    def release(self) -> None:
        """The writer takes no more: let those who wait go on, to be refused."""
        for waiter in self._waiters:
            _complete(waiter)
        if self._connections is not None:
            self._connections.release()

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

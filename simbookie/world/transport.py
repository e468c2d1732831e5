"""The client's way to bookies through a simulated network.

Keeps the promises of :class:`bkclient.transport.base.BookieTransport`, and its configuration means what it means to the TCP
transport: one connection per bookie, made when the first request needs it; timeouts from the moment a request goes out on an
established connection; everything outstanding fails when the connection breaks; backing off from bookies that cannot be reached;
limits on what is outstanding. What differs: requests and responses travel as objects, and timeouts are noticed on time.

A request may reach the bookie after it timed out here, or twice. A response that nobody waits for any more, or that comes
twice, is dropped.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from bkclient.errors import Code
from bkclient.transport.base import ReplyHandler
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.messages import AddRequest, Operation, ReadRequest, Request, Response, Status, code_for_status
from simbookie.world.calls import RequestMessage, ResponseMessage
from simbookie.world.hosts import Host, World
from simbookie.world.network import ConnectionEnd

__all__ = ["SimulatedTransport"]

_LARGEST_EXPONENT: Final = 30


class SimulatedTransport:
    """A :class:`~bkclient.transport.base.BookieTransport` for the process that runs on ``host`` at present.

    Dies with that process: a transport of a crashed host sends nothing and calls nobody. Bookie ids are names of hosts.
    """

    def __init__(self, world: World, host: Host, config: TcpTransportConfig | None = None) -> None:
        self.config = config if config is not None else TcpTransportConfig()
        self.network = world.network
        self.process = host.process
        self.rng = world.rng(f"transport of {self.process.host_name}#{self.process.incarnation}")
        self.call_ids = itertools.count(1)
        #: By bookie, the number of the newest connection; see :class:`~bkclient.transport.base.BookieTransport`.
        self.connections: Final[dict[str, int]] = {}
        self.connection_numbers = itertools.count(1)
        self._links: dict[str, _BookieLink] = {}
        self._outcomes: list[tuple[ReplyHandler, str, Request, Code]] = []
        self._is_closed = False

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """Send ``request``; see :class:`~bkclient.transport.base.BookieTransport`.

        Refused with ``ILLEGAL_OPERATION``: what the configured protocol version cannot express, and bodies over the limit.
        """
        if self._is_closed:
            self.fail_later(reply_to, bookie_id, request, Code.CLIENT_CLOSED)
        elif self._is_illegal(request):
            self.fail_later(reply_to, bookie_id, request, Code.ILLEGAL_OPERATION)
        else:
            link = self._links.get(bookie_id)
            if link is None:
                link = self._links[bookie_id] = _BookieLink(self, bookie_id)
            link.submit(request, reply_to)

    def pending_requests(self, bookie_id: str) -> int:
        """How many requests to the bookie have no outcome yet."""
        link = self._links.get(bookie_id)
        return 0 if link is None else link.pending_requests

    def is_writable(self, bookie_id: str) -> bool:
        """Whether less than the high-water mark is on its way; there is no socket here that could fill."""
        link = self._links.get(bookie_id)
        return link is None or link.pending_bytes < self.config.write_buffer_high_water_bytes

    async def aclose(self) -> None:
        """Close every connection; outstanding requests end with ``CLIENT_CLOSED``. Idempotent."""
        self._is_closed = True
        for link in self._links.values():
            link.close()
        await asyncio.sleep(0)  # for the outcomes that were to come soon

    def fail_later(self, reply_to: ReplyHandler, bookie_id: str, request: Request, code: Code) -> None:
        """Call ``reply_to`` with ``code``, soon but not now."""
        if not self._outcomes:
            self.network.loop.call_soon(self._deliver_outcomes, context=self.process.context())
        self._outcomes.append((reply_to, bookie_id, request, code))

    def _deliver_outcomes(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        for reply_to, bookie_id, request, code in outcomes:
            self.deliver(reply_to, bookie_id, request, code, None)

    def deliver(
        self, reply_to: ReplyHandler, bookie_id: str, request: Request, code: Code, response: Response | None
    ) -> None:
        """Call a handler; one that raises ends the run, but costs nobody else their outcome before."""
        try:
            reply_to(bookie_id, request, code, response)
        except Exception as error:  # noqa: BLE001  handlers belong to callers, and may fail in any way
            self.network.loop.call_exception_handler(
                {"message": f"the reply handler {reply_to!r} raised", "exception": error}
            )

    def _is_illegal(self, request: Request) -> bool:
        is_v2 = self.config.protocol_version == 2
        if isinstance(request, AddRequest):
            size = len(request.header) + len(request.payload)
            return size > self.config.max_frame_size_bytes or (is_v2 and request.write_flags != 0)
        if isinstance(request, ReadRequest):
            return is_v2 and request.long_poll is not None
        operation = request.operation
        if operation is Operation.BATCH_READ_ENTRY:
            return not is_v2
        return operation is Operation.START_TLS or (is_v2 and operation is Operation.FORCE_LEDGER)


_Outstanding = tuple[Request, ReplyHandler, int]


class _BookieLink:
    """One bookie as a transport sees it: idle, connecting, or connected; backing off while idle."""

    def __init__(self, transport: SimulatedTransport, bookie_id: str) -> None:
        self._transport = transport
        self._config = transport.config
        self._bookie_id = bookie_id
        self._loop = transport.network.loop
        self._end: ConnectionEnd | None = None
        self._attempts = 0
        self._stop_connecting: Callable[[], None] | None = None
        self._connect_timer: asyncio.TimerHandle | None = None
        self._waiting: list[tuple[Request, ReplyHandler]] = []
        self._outstanding: dict[int, _Outstanding] = {}
        self._bytes = 0
        #: When which request times out, for adds and for everything else; each in order, because each has one timeout.
        self._deadlines: tuple[deque[tuple[float, int]], deque[tuple[float, int]]] = (deque(), deque())
        self._timers: list[asyncio.TimerHandle | None] = [None, None]
        self._poll_timers: dict[int, asyncio.TimerHandle] = {}
        self._failures = 0
        self._retry_at = 0.0
        self._is_working = False

    @property
    def pending_requests(self) -> int:
        """Requests without an outcome."""
        return len(self._outstanding) + len(self._waiting)

    @property
    def pending_bytes(self) -> int:
        """Their payload bytes."""
        return self._bytes

    def submit(self, request: Request, reply_to: ReplyHandler) -> None:
        """Send, now or once connected."""
        end = self._end
        if end is None and self._stop_connecting is None:
            if self._loop.time() < self._retry_at:
                self._transport.fail_later(reply_to, self._bookie_id, request, Code.BOOKIE_NOT_AVAILABLE)
                return
            self._connect()
        config = self._config
        count = len(self._outstanding) + len(self._waiting)
        if count >= config.max_outstanding_requests or self._bytes >= config.max_outstanding_bytes:
            self._transport.fail_later(reply_to, self._bookie_id, request, Code.TOO_MANY_REQUESTS)
            return
        self._bytes += _size(request)
        if end is None:
            self._waiting.append((request, reply_to))
        else:
            self._send(end, request, reply_to)

    def close(self) -> None:
        """Fail everything with ``CLIENT_CLOSED`` and leave."""
        self._stop_attempt()
        end, self._end = self._end, None
        if end is not None:
            end.close()
        self._fail_all(Code.CLIENT_CLOSED)

    # ----------------------------------------------------------------------------------------------------- connecting

    def _connect(self) -> None:
        # What comes of an attempt may be deferred while the process is paused, and then come after another outcome of it.
        self._attempts += 1
        process, attempt = self._transport.process, self._attempts
        self._stop_connecting = self._transport.network.connect(
            process, self._bookie_id, partial(self._connected, attempt), partial(self._connect_failed, attempt)
        )
        self._connect_timer = self._loop.call_later(
            self._config.connect_timeout_s, self._connect_failed, attempt, context=process.context()
        )

    def _is_pending(self, attempt: int) -> bool:
        return attempt == self._attempts and self._stop_connecting is not None

    def _stop_attempt(self) -> None:
        if self._stop_connecting is not None and self._connect_timer is not None:
            self._stop_connecting()
            self._connect_timer.cancel()
            self._stop_connecting = self._connect_timer = None

    def _connected(self, attempt: int, end: ConnectionEnd) -> None:
        if not self._is_pending(attempt):
            end.close()
            return
        self._stop_attempt()
        self._transport.connections[self._bookie_id] = next(self._transport.connection_numbers)
        self._end = end
        self._is_working = False
        end.on_message, end.on_lost = self._answered, self._lost
        waiting, self._waiting = self._waiting, []
        for request, reply_to in waiting:
            self._send(end, request, reply_to)

    def _connect_failed(self, attempt: int) -> None:
        if self._is_pending(attempt):
            self._stop_attempt()
            self._back_off()
            self._fail_all(Code.BOOKIE_NOT_AVAILABLE)

    def _lost(self) -> None:
        self._end = None
        if not self._is_working:
            self._back_off()
        self._fail_all(Code.BOOKIE_NOT_AVAILABLE)

    def _back_off(self) -> None:
        config = self._config
        delay = min(config.backoff_initial_s * 2 ** min(self._failures, _LARGEST_EXPONENT), config.backoff_max_s)
        self._failures += 1
        self._retry_at = self._loop.time() + delay * self._transport.rng.uniform(0.5, 1.0)

    def _fail_all(self, code: Code) -> None:
        waiting, self._waiting = self._waiting, []
        outstanding, self._outstanding = self._outstanding, {}
        timers, self._poll_timers = self._poll_timers, {}
        for timer in timers.values():
            timer.cancel()
        self._bytes = 0
        for request, reply_to in (*((item[0], item[1]) for item in outstanding.values()), *waiting):
            self._transport.deliver(reply_to, self._bookie_id, request, code, None)

    # ------------------------------------------------------------------------------------------------------- requests

    def _send(self, end: ConnectionEnd, request: Request, reply_to: ReplyHandler) -> None:
        call_id = next(self._transport.call_ids)
        self._outstanding[call_id] = (request, reply_to, _size(request))
        if isinstance(request, ReadRequest) and request.long_poll is not None:
            self._send_poll(end, call_id, request)
            return
        is_add = request.operation is Operation.ADD_ENTRY
        timeout_s = self._config.add_timeout_s if is_add else self._config.read_timeout_s
        deadline = self._loop.time() + timeout_s
        number = int(is_add)
        self._deadlines[number].append((deadline, call_id))
        if self._timers[number] is None:
            self._start_timer(deadline, number)
        end.send(RequestMessage(call_id, request))

    def _send_poll(self, end: ConnectionEnd, call_id: int, request: ReadRequest) -> None:
        # Their timeouts differ, so each has a timer of its own (H-21).
        self._poll_timers[call_id] = self._loop.call_later(
            self._config.read_timeout_s + request.wait_s,
            self._expire_poll,
            call_id,
            context=self._transport.process.context(),
        )
        end.send(RequestMessage(call_id, request))

    def _expire_poll(self, call_id: int) -> None:
        if self._poll_timers.pop(call_id, None) is None:
            return  # it came due while the process was paused, and the answer too
        request, reply_to, _ = self._outstanding.pop(call_id)
        self._transport.deliver(reply_to, self._bookie_id, request, Code.TIMEOUT, None)

    def _answered(self, message: ResponseMessage) -> None:
        outstanding = self._outstanding.pop(message.call_id, None)
        if outstanding is None:
            return  # too late, or answered before
        timer = self._poll_timers.pop(message.call_id, None)
        if timer is not None:
            timer.cancel()
        if not self._is_working:
            self._is_working, self._failures = True, 0
        request, reply_to, size = outstanding
        self._bytes -= size
        response = message.response
        status = response.status
        code = Code.OK if status is Status.OK else code_for_status(status, request.operation)
        is_add = request.operation is Operation.ADD_ENTRY
        self._transport.deliver(reply_to, self._bookie_id, request, code, None if is_add else response)

    def _start_timer(self, deadline: float, number: int) -> None:
        self._timers[number] = self._loop.call_at(
            deadline, self._expire, number, context=self._transport.process.context()
        )

    def _expire(self, number: int) -> None:
        self._timers[number] = None
        deadlines, now = self._deadlines[number], self._loop.time()
        expired: list[_Outstanding] = []
        while deadlines:
            deadline, call_id = deadlines[0]
            if call_id in self._outstanding:
                if deadline > now:
                    self._start_timer(deadline, number)
                    break
                request, reply_to, size = self._outstanding.pop(call_id)
                self._bytes -= size
                expired.append((request, reply_to, size))
            deadlines.popleft()
        for request, reply_to, _ in expired:
            self._transport.deliver(reply_to, self._bookie_id, request, Code.TIMEOUT, None)


def _size(request: Request) -> int:
    return len(request.header) + len(request.payload) if isinstance(request, AddRequest) else 0

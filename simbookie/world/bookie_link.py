"""One bookie as a simulated transport sees it: lanes to it, what is under way on them, timeouts, backing off.

Lanes are those of :mod:`bkclient.transport.lanes`, the rules of the TCP transport. Answers are matched as they are there: in
version 3 by the id of the call, in version 2 by the key of the request (:mod:`bkclient.wire.outstanding`), so that whoever breaks
the rules of keys takes the answer to one request for that to another here as well. A connection delivers one answer for each
request, as one of TCP does; copies that the network makes are dropped before they are matched.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from bkclient.errors import Code
from bkclient.transport.base import ReplyHandler
from bkclient.transport.lanes import Lanes
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire import v2
from bkclient.wire.messages import (
    AddRequest,
    Operation,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
    code_for_status,
)
from bkclient.wire.outstanding import Outstanding
from simbookie.world.calls import RequestMessage, ResponseMessage
from simbookie.world.network import ConnectionEnd, Network

if TYPE_CHECKING:
    from random import Random

    from simbookie.world.process import Process

__all__ = ["LinkOwner", "SimulatedLink"]


_Submitted = tuple[Request, ReplyHandler]


class LinkOwner(Protocol):
    """The transport that a link belongs to."""

    config: TcpTransportConfig
    network: Network
    process: Process
    rng: Random
    call_ids: itertools.count[int]
    connection_numbers: itertools.count[int]

    @property
    def connections(self) -> dict[str, int]:
        """By bookie, the number of the newest connection."""
        ...

    def fail_later(self, reply_to: ReplyHandler, bookie_id: str, request: Request, code: Code) -> None:
        """Call ``reply_to`` with ``code``, soon but not now."""
        ...

    def deliver(
        self, reply_to: ReplyHandler, bookie_id: str, request: Request, code: Code, response: Response | None
    ) -> None:
        """Call a handler."""
        ...


@dataclass(slots=True, eq=False)
class _Call:
    """A request that was sent."""

    call_id: int
    request: Request
    reply_to: ReplyHandler
    lane: _Lane
    #: What its answer is matched by over version 2.
    key: bytes | None = field(repr=False)


class SimulatedLink:
    """Connections to one bookie, made when they are needed; backing off while it cannot be reached."""

    def __init__(self, transport: LinkOwner, bookie_id: str) -> None:
        config = transport.config
        self.transport = transport
        self.config = config
        self.bookie_id = bookie_id
        self.loop = transport.network.loop
        #: Requests without an outcome, and their payload bytes.
        self.pending_requests = 0
        self.pending_bytes = 0
        #: What was sent and has no outcome, by call id.
        self.calls: dict[int, _Call] = {}
        self._is_v2 = config.protocol_version == 2
        self._lanes: Lanes[_Lane, _Submitted] = Lanes(
            self, lanes_max=config.lanes_max, given_up_max=config.lane_given_up_max, idle_s=config.lane_idle_s
        )
        self._sweep_timer: asyncio.TimerHandle | None = None
        #: When which request times out, for adds and for everything else; each in order, because each has one timeout.
        self._deadlines: tuple[deque[tuple[float, int]], deque[tuple[float, int]]] = (deque(), deque())
        self._timers: list[asyncio.TimerHandle | None] = [None, None]
        self._poll_timers: dict[int, asyncio.TimerHandle] = {}
        self._failures = 0
        self._retry_at = 0.0

    def submit(self, request: Request, reply_to: ReplyHandler) -> None:
        """Send, now or once connected."""
        config = self.config
        is_full = self.pending_requests >= config.max_outstanding_requests
        if is_full or self.pending_bytes >= config.max_outstanding_bytes:
            self.transport.fail_later(reply_to, self.bookie_id, request, Code.TOO_MANY_REQUESTS)
            return
        self.pending_requests += 1
        self.pending_bytes += _size(request)
        key = v2.match_of(request) if self._is_v2 else None
        if not self._lanes.submit(key, (request, reply_to), self.loop.time() + config.timeout_s(request)):
            self._forget(request)
            self.transport.fail_later(reply_to, self.bookie_id, request, Code.BOOKIE_NOT_AVAILABLE)
        self._watch_lanes()

    def close(self) -> None:
        """Fail everything with ``CLIENT_CLOSED`` and leave."""
        ended: list[_Submitted] = []
        for lane in self._lanes.all:
            self._lanes.lost(lane)
            ended += lane.close()
        self._end([*ended, *self._lanes.take_waiting()], Code.CLIENT_CLOSED)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    # ------------------------------------------------------------------------------------- called by the rules of lanes

    def open_lane(self) -> _Lane | None:
        """Begin a connection; None while backing off."""
        if self.loop.time() < self._retry_at:
            return None
        return _Lane(self)

    def close_lane(self, lane: _Lane) -> None:
        """Close a lane without pending requests."""
        lane.close()

    def send(self, lane: _Lane, request: _Submitted) -> None:
        """Send a request over ``lane``."""
        lane.submit(*request)

    # ------------------------------------------------------------------------------------------------ called by lanes

    def lost(self, lane: _Lane, *, was_working: bool) -> None:
        """A connection broke, or could not be made."""
        self._lanes.lost(lane)
        if not was_working:
            self._back_off()
        self._end([*lane.close(), *self._lanes.revive()], Code.BOOKIE_NOT_AVAILABLE)

    def answered(self) -> None:
        """The bookie answers, so a connection is a success."""
        self._failures = 0

    def settled(self, lane: _Lane, keys: list[bytes]) -> None:
        """Requests of ``lane`` were answered or given up, those with ``keys`` among them."""
        if self._is_v2:
            self._lanes.settled(lane, self.loop.time())
            self._lanes.changed(keys)
            self._watch_lanes()

    def sent(self, call: _Call) -> None:
        """Await the answer, for as long as the request may take."""
        self.calls[call.call_id] = call
        request = call.request
        if isinstance(request, ReadRequest) and request.long_poll is not None:
            # Their timeouts differ, so each has a timer of its own (H-21).
            self._poll_timers[call.call_id] = self.loop.call_later(
                self.config.timeout_s(request), self._expire_poll, call, context=self.transport.process.context()
            )
            return
        is_add = request.operation is Operation.ADD_ENTRY
        deadline = self.loop.time() + (self.config.add_timeout_s if is_add else self.config.read_timeout_s)
        number = int(is_add)
        self._deadlines[number].append((deadline, call.call_id))
        if self._timers[number] is None:
            self._start_timer(deadline, number)

    def settle(self, call: _Call, response: Response) -> None:
        """``response`` settles ``call``."""
        self._take(call)
        request = call.request
        self._forget(request)
        status = response.status
        code = Code.OK if status is Status.OK else code_for_status(status, request.operation)
        is_add = request.operation is Operation.ADD_ENTRY
        if self._is_v2 and isinstance(response, ReadResponse):
            response = replace(response, max_lac=None)  # for which its frames have no room
        self.transport.deliver(call.reply_to, self.bookie_id, request, code, None if is_add else response)

    def take_calls(self, lane: _Lane) -> list[_Submitted]:
        """What was sent over ``lane``, which is not awaited any more."""
        calls = [call for call in self.calls.values() if call.lane is lane]
        for call in calls:
            self._take(call)
        return [(call.request, call.reply_to) for call in calls]

    # --------------------------------------------------------------------------------------------------------- inside

    def _take(self, call: _Call) -> None:
        del self.calls[call.call_id]
        call.lane.outstanding -= 1
        timer = self._poll_timers.pop(call.call_id, None)
        if timer is not None:
            timer.cancel()

    def _back_off(self) -> None:
        delay = self.config.backoff.nth(self._failures)
        self._failures += 1
        self._retry_at = self.loop.time() + delay * self.transport.rng.uniform(0.5, 1.0)

    def _forget(self, request: Request) -> None:
        self.pending_requests -= 1
        self.pending_bytes -= _size(request)

    def _end(self, ended: list[_Submitted], code: Code) -> None:
        for request, _ in ended:
            self._forget(request)
        for request, reply_to in ended:
            self.transport.deliver(reply_to, self.bookie_id, request, code, None)

    def _watch_lanes(self) -> None:
        if self._lanes.need_care and self._sweep_timer is None:
            self._sweep_timer = self.loop.call_later(
                self.config.scan_interval_s, self._sweep, context=self.transport.process.context()
            )

    def _sweep(self) -> None:
        self._sweep_timer = None
        expired = self._lanes.sweep(self.loop.time())
        self._watch_lanes()
        self._end(expired, Code.TIMEOUT)

    def _start_timer(self, deadline: float, number: int) -> None:
        self._timers[number] = self.loop.call_at(
            deadline, self._expire, number, context=self.transport.process.context()
        )

    def _expire(self, number: int) -> None:
        self._timers[number] = None
        deadlines, now = self._deadlines[number], self.loop.time()
        expired: list[_Call] = []
        while deadlines:
            deadline, call_id = deadlines[0]
            if call_id in self.calls:
                if deadline > now:
                    self._start_timer(deadline, number)
                    break
                expired.append(self.calls[call_id])
                self._take(expired[-1])
            deadlines.popleft()
        self._give_up(expired)

    def _expire_poll(self, call: _Call) -> None:
        if call.call_id in self.calls:  # else it came due while the process was paused, and the answer too
            self._take(call)
            self._give_up([call])

    def _give_up(self, calls: list[_Call]) -> None:
        for call in calls:
            if call.key is not None:
                call.lane.keys.give_up(call.key)
        for lane in dict.fromkeys(call.lane for call in calls):
            self.settled(lane, [call.key for call in calls if call.lane is lane and call.key is not None])
        self._end([(call.request, call.reply_to) for call in calls], Code.TIMEOUT)


class _Lane:
    """One connection: being made, or made; requests wait in it until it is."""

    def __init__(self, link: SimulatedLink) -> None:
        #: The requests of version 2 on this connection.
        self.keys: Outstanding[_Call] = Outstanding(keys_recur=True)
        #: Requests that were sent and have no outcome.
        self.outstanding = 0
        self._link = link
        self._end: ConnectionEnd | None = None
        self._is_working = False
        self._held: list[_Submitted] = []
        self._held_keys: set[bytes | None] = set()
        #: Calls of version 2 that the bookie has not answered, given up or not.
        self._unanswered: set[int] = set()
        # What comes of the attempt may be deferred while the process is paused, and then come after another outcome of it.
        transport = link.transport
        self._stop_connecting: Callable[[], None] | None = transport.network.connect(
            transport.process, link.bookie_id, self._connected, self._connect_failed
        )
        self._connect_timer = link.loop.call_later(
            link.config.connect_timeout_s, self._connect_failed, context=transport.process.context()
        )

    # What the rules of lanes see.

    @property
    def pending_requests(self) -> int:
        """Requests without an outcome."""
        return len(self._held) + self.outstanding

    @property
    def given_up(self) -> int:
        """Requests that were given up and may still be answered."""
        return self.keys.given_up

    def is_free(self, key: bytes) -> bool:
        """Whether no answer with ``key`` may come."""
        return key not in self.keys.entries and key not in self._held_keys

    def is_given_up(self, key: bytes) -> bool:
        """Whether the request with ``key`` was given up and may still be answered."""
        return self.keys.is_given_up(key)

    # What the link does with it.

    def submit(self, request: Request, reply_to: ReplyHandler) -> None:
        """Send, now or once connected."""
        if self._end is None:
            self._held.append((request, reply_to))
            self._held_keys.add(v2.match_of(request))
        else:
            self._send(self._end, request, reply_to)

    def close(self) -> list[_Submitted]:
        """Close the connection, or give up the attempt to make it; returns the requests without an outcome."""
        self._stop_attempt()
        end, self._end = self._end, None
        if end is not None:
            end.close()
        held, self._held = self._held, []
        self._unanswered.clear()  # an answer that comes after the news of the break settles nothing
        return [*self._link.take_calls(self), *held]

    # Connecting and breaking.

    def _stop_attempt(self) -> None:
        if self._stop_connecting is not None:
            self._stop_connecting()
            self._connect_timer.cancel()
            self._stop_connecting = None

    def _connected(self, end: ConnectionEnd) -> None:
        if self._stop_connecting is None:
            end.close()
            return
        self._stop_attempt()
        transport = self._link.transport
        transport.connections[self._link.bookie_id] = next(transport.connection_numbers)
        self._end = end
        end.on_message, end.on_lost = self._answered, self._lost
        held, self._held = self._held, []
        self._held_keys.clear()
        for request, reply_to in held:
            self._send(end, request, reply_to)

    def _connect_failed(self) -> None:
        if self._stop_connecting is not None:
            self._stop_attempt()
            self._link.lost(self, was_working=False)

    def _lost(self) -> None:
        self._end = None
        self._link.lost(self, was_working=self._is_working)

    # Requests and answers.

    def _send(self, end: ConnectionEnd, request: Request, reply_to: ReplyHandler) -> None:
        link = self._link
        key = v2.match_of(request) if link.config.protocol_version == 2 else None
        call = _Call(next(link.transport.call_ids), request, reply_to, self, key)
        if key is not None:
            self.keys.add(key, call)
            self._unanswered.add(call.call_id)
        self.outstanding += 1
        link.sent(call)
        end.send(RequestMessage(call.call_id, request))

    def _answered(self, message: ResponseMessage) -> None:
        if self._end is None:
            return  # given up meanwhile, with everything that was to come over it
        link = self._link
        key = v2.match_of(message.request) if link.config.protocol_version == 2 else None
        call: _Call | None
        if key is None:
            call = link.calls.get(message.call_id)
        elif message.call_id in self._unanswered:
            self._unanswered.remove(message.call_id)
            call = self.keys.answered(key)
        else:
            return  # a copy
        if call is not None:
            if not self._is_working:
                self._is_working = True
                link.answered()
            link.settle(call, message.response)
        link.settled(self, [] if key is None else [key])


def _size(request: Request) -> int:
    return len(request.header) + len(request.payload) if isinstance(request, AddRequest) else 0

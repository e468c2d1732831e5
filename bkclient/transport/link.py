"""One bookie: connecting, backing off, connections that share limits, losing them.

A :class:`BookieLink` lives as long as the transport. Its connections are lanes, of which there is one unless protocol version 2
needs more (:mod:`bkclient.transport.lanes`). A lane is *connecting* first: one task makes the connection, by the transport's
:class:`Connector`; requests wait, and fail together if it fails (W-47). Then it is *connected*: a
:class:`~bkclient.transport.request_stream.RequestStream` sends requests and receives answers. When that ends, all that was
outstanding on it fails. The next request without a lane begins another one, unless the link backs off: then requests fail.

A connection counts as working once its first answer has arrived: a bookie that is starting up accepts connections and closes
them, and has to be backed off from as one that refuses them.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from bkclient.errors import BookKeeperError, Code, code_of
from bkclient.observability import log
from bkclient.observability.stats import (
    ACTIVE_CHANNELS,
    ACTIVE_TLS_CHANNELS,
    CONNECT,
    FAILED_CONNECTIONS,
    FAILED_TLS_HANDSHAKES,
    BookieStats,
)
from bkclient.transport.base import ReplyHandler
from bkclient.transport.handshake import refusal_in
from bkclient.transport.lanes import Lanes
from bkclient.transport.open_run import WriteSets
from bkclient.transport.request_stream import RequestStream, StreamOwner, deliver, reason_of
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire import v2
from bkclient.wire.messages import AddRequest, Request
from bkclient.wire.outstanding import Load

__all__ = ["BookieLink", "Connector", "FailLater", "LinkContext", "NewConnection"]

FailLater = Callable[[ReplyHandler, str, Request, int], None]
"""Arranges for a handler to be called with a code, soon but not now."""

_Submitted = tuple[Request, ReplyHandler]


@dataclass(frozen=True, slots=True)
class NewConnection:
    """What the stream of a new connection is made with."""

    owner: StreamOwner
    #: How many requests have no outcome, on all connections that share a limit.
    load: Load
    #: Keys that requests wait for.
    wanted: Collection[bytes] = field(repr=False)


class Connector(Protocol):
    """Makes connections: what links need of TCP, or of what stands for it."""

    @property
    def is_tls(self) -> bool:
        """Whether connections are made inside TLS."""
        ...

    async def connect(self, bookie_id: str, protocol_version: int, new: NewConnection) -> None:
        """Make a connection, and a :class:`~bkclient.transport.request_stream.RequestStream` that tells ``new.owner`` of it.

        Ends within the time limit of the configuration. Raises ``OSError``, ``UnicodeError`` or
        :class:`~bkclient.errors.BookKeeperError` for a bookie that cannot be reached or must not be used.
        """
        ...


class Routes:
    """Which streams requests go over, for those who remember them: ``version`` changes whenever that does."""

    __slots__ = ("_write_sets", "version")

    def __init__(self) -> None:
        self.version = 0
        self._write_sets: dict[int, WriteSets] = {}

    def write_sets(self, channel: int) -> WriteSets:
        """The streams to write sets over one channel, as far as anybody has looked for them; emptied whenever routes change."""
        return self._write_sets.setdefault(channel, WriteSets())

    def changed(self) -> None:
        """Requests go over other streams now."""
        self.version += 1
        for known in self._write_sets.values():
            known.clear()


@dataclass(frozen=True, slots=True)
class LinkContext:
    """What the links of one transport share."""

    config: TcpTransportConfig
    connector: Connector
    rng: random.Random
    fail: FailLater
    unavailable: log.LogThrottle
    stats: BookieStats | None
    #: By bookie, the number of a connection; see :attr:`bkclient.transport.base.BookieTransport.connections`.
    connections: dict[str, int] = field(default_factory=dict)
    connection_numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    routes: Routes = field(default_factory=Routes)
    #: Makes what counts the requests of a link, by its limits.
    new_load: Callable[[int, int], Load] = Load


class BookieLink:
    """One channel to one bookie in one protocol version."""

    def __init__(self, bookie_id: str, protocol_version: int, context: LinkContext) -> None:
        config = context.config
        self.bookie_id = bookie_id
        self.protocol_version = protocol_version
        self.context = context
        self.config = config
        #: Requests without an outcome, on all lanes and before one.
        self.load = context.new_load(config.max_outstanding_requests, config.max_outstanding_bytes)
        self.lanes: Lanes[_Lane, _Submitted] = Lanes(
            self,
            lanes_max=config.lanes_max,
            given_up_max=config.lane_given_up_max,
            idle_s=config.lane_idle_s,
        )
        self.is_closed = False
        # The first lane's stream, once it is connected: where nearly every request goes.
        self._main: RequestStream | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._connecting: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._retry_at = 0.0
        #: What requests fail with while the link backs off: what the last attempt failed with.
        self._unavailable: int = Code.BOOKIE_NOT_AVAILABLE
        self._ends: dict[RequestStream, asyncio.Future[None]] = {}
        self._level = ACTIVE_TLS_CHANNELS if context.connector.is_tls else ACTIVE_CHANNELS
        #: How it was when it was checked last.
        self._checked: tuple[object, ...] | None = None

    def submit(self, request: Request, reply_to: ReplyHandler) -> None:
        """Send ``request``, now or once connected; the handler is called later in any case."""
        main = self._main
        if main is not None:
            main.submit(request, reply_to)
        else:
            self.submit_by_key(v2.match_of(request) if self.protocol_version == 2 else None, request, reply_to)

    def submit_by_key(self, key: bytes | None, request: Request, reply_to: ReplyHandler) -> None:
        """Send ``request`` over a lane on which ``key`` is free."""
        if self.load.is_full:
            self.fail(request, reply_to, Code.TOO_MANY_REQUESTS)
            return
        deadline = asyncio.get_running_loop().time() + self.config.timeout_s(request)
        self.hold(request)
        if not self.lanes.submit(key, (request, reply_to), deadline):
            self.release(request)
            self.fail(request, reply_to, self._unavailable)
        self._lanes_changed()

    @property
    def pending_requests(self) -> int:
        """Requests without an outcome."""
        if self._main is not None:
            self._main.end_run()
        return self.load.requests

    @property
    def is_writable(self) -> bool:
        """Whether the sockets take what is sent; true while there is none."""
        return all(lane.stream is None or lane.stream.is_writable for lane in self.lanes.all)

    def close(self) -> None:
        """Fail everything with ``CLIENT_CLOSED`` and end the connections; :meth:`wait_closed` tells when that is done."""
        self.is_closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        waiting = self.lanes.take_waiting()
        for lane in self.lanes.all:
            lane.close(Code.CLIENT_CLOSED, "the client was closed")
        self._end_waiting(waiting, Code.CLIENT_CLOSED)

    async def wait_closed(self) -> None:
        """Return when no task and no socket is left."""
        if self._connecting:
            await asyncio.wait(list(self._connecting))
        if self._ends:
            await asyncio.wait(list(self._ends.values()))

    def check(self) -> None:
        """Assert what holds between events: every request is counted once, will end, and is where it can.

        Takes time linear in all that has no outcome.
        """
        lanes, load = self.lanes, self.load
        active = lanes.active
        first = active[0].stream if active else None
        requests = size = 0
        if len(active) > 1 or lanes.retiring or lanes.waiting:
            requests, size = self._check_lanes()
        elif active:  # nearly always: there is one lane, or none, and nothing waits for another one
            requests, size = active[0].check()
        assert load.requests == requests, "the load is what is outstanding and what waits"
        assert load.bytes == size, "the load is what is outstanding and what waits"
        assert not requests or not self.is_closed, "nothing is outstanding once the link was closed"
        assert self._main is first, "requests go over the first lane"

    def _check_lanes(self) -> tuple[int, int]:
        """The same of several lanes, and of what waits for one."""
        self.lanes.check()
        assert self._sweep_timer is not None or self.is_closed, "somebody looks after the lanes"
        waiting = [_size(request) for queue in self.lanes.waiting.values() for _, (request, _) in queue]
        lanes = [lane.check() for lane in self.lanes.all]
        return len(waiting) + sum(count for count, _ in lanes), sum(waiting) + sum(size for _, size in lanes)

    def check_changes(self) -> None:
        """Call :meth:`check` if anything has changed since the last call; or always, while it needs more than one connection."""
        main, load, lanes = self._main, self.load, self.lanes
        counts = None if main is None else main.counts()
        now = (counts, load.requests, load.bytes, len(lanes.active), main)
        if now != self._checked or lanes.need_care():
            self.check()
            self._checked = now

    @property
    def main(self) -> RequestStream | None:
        """The stream that takes every request with a free key, if there is one that stands."""
        return self._main

    # Called by the lanes.

    def fail(self, request: Request, reply_to: ReplyHandler, code: int) -> None:
        """Arrange for a handler to be called with a code, soon but not now."""
        self.context.fail(reply_to, self.bookie_id, request, code)

    def hold(self, request: Request) -> None:
        """Count ``request``, which waits for a lane or for its connection."""
        self.load.put_on(_size(request))

    def release(self, request: Request) -> None:
        """``request`` waits no more."""
        self.load.take_off(_size(request))

    def connected(self, stream: RequestStream, address: object) -> None:
        """A connection stands."""
        self._ends[stream] = asyncio.get_running_loop().create_future()
        stream.begin(next(self.context.connection_numbers), self.context.connections)
        log.CONNECTION_MADE(bookie_id=self.bookie_id, address=address)
        if self.context.stats is not None:
            self.context.stats.bookie_level(self.bookie_id, self._level, 1)
        self._lanes_changed()

    def answered(self) -> None:
        """The bookie answers, so a connection is a success."""
        self._failures = 0
        self.context.unavailable.reset(self.bookie_id)

    def settled(self, lane: _Lane, changed: list[bytes]) -> None:
        """Requests of ``lane`` were answered or given up, those with the keys ``changed`` among them."""
        self.lanes.settled(lane, asyncio.get_running_loop().time())
        self.lanes.changed(changed)
        self._lanes_changed()

    def lost(self, lane: _Lane, code: int, *, was_working: bool, reason: str, outstanding: int) -> None:
        """The connection of ``lane`` is of no more use, or could not be made."""
        if not self.lanes.lost(lane):
            return  # it was closed here, without requests
        if not self.is_closed and lane.stream is not None:
            log.CONNECTION_LOST(bookie_id=self.bookie_id, outstanding=outstanding, reason=reason)
        if not was_working:
            self._back_off(code)
        failed = [] if self.is_closed else self.lanes.revive()
        self._lanes_changed()
        self._end_waiting(failed, code)

    def ended(self, stream: RequestStream) -> None:
        """The connection's socket is closed."""
        self._ends.pop(stream).set_result(None)
        if self.context.stats is not None:
            self.context.stats.bookie_level(self.bookie_id, self._level, -1)

    # Called by the rules of lanes: see LanePorts.

    def open_lane(self) -> _Lane | None:
        """Begin a connection; None while backing off."""
        loop = asyncio.get_running_loop()
        if self.is_closed or loop.time() < self._retry_at:
            return None
        lane = _Lane(self)
        task = loop.create_task(self._connect(lane), name=f"connect to bookie {self.bookie_id}")
        lane.connecting = task
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return lane

    def close_lane(self, lane: _Lane) -> None:
        """Close a lane without pending requests."""
        log.CONNECTION_CLOSED(bookie_id=self.bookie_id)
        lane.close(Code.BOOKIE_NOT_AVAILABLE, "it is not needed any more")

    def send(self, lane: _Lane, request: _Submitted) -> None:
        """Send a request over ``lane``."""
        self.release(request[0])
        lane.submit(*request)

    # Inside

    def _lanes_changed(self) -> None:
        lanes = self.lanes
        main = lanes.active[0].stream if lanes.active else None
        if main is not self._main:
            self._main = main
            self.context.routes.changed()
        if lanes.need_care() and self._sweep_timer is None and not self.is_closed:
            self._sweep_timer = asyncio.get_running_loop().call_later(self.config.scan_interval_s, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        expired = self.lanes.sweep(asyncio.get_running_loop().time())
        self._lanes_changed()
        self._end_waiting(expired, Code.TIMEOUT)

    def _end_waiting(self, waiting: list[_Submitted], code: int) -> None:
        for request, _ in waiting:
            self.release(request)
        for request, reply_to in waiting:
            deliver(reply_to, self.bookie_id, request, code)

    async def _connect(self, lane: _Lane) -> None:
        loop = asyncio.get_running_loop()
        stats = self.context.stats
        began = 0.0 if stats is None else stats.now()
        code = Code.OK
        try:
            await self.context.connector.connect(self.bookie_id, self.protocol_version, lane.new_connection())
        except (
            OSError,
            UnicodeError,
            BookKeeperError,
        ) as error:  # UnicodeError: no name of a host, such as a label too long
            code = code_of(error, Code.BOOKIE_NOT_AVAILABLE)
            self._connect_failed(lane, error)
        except Exception as error:  # noqa: BLE001 - requests wait for this task, whatever the resolver raises
            code = Code.UNEXPECTED_CONDITION
            self._connect_failed(lane, error)
            loop.call_exception_handler({"message": f"connecting to bookie {self.bookie_id}", "exception": error})
        finally:
            lane.connecting = None
        if stats is not None:
            stats.request(self.bookie_id, CONNECT, stats.now() - began, code)
            if code != Code.OK:
                stats.bookie_event(self.bookie_id, FAILED_CONNECTIONS)
            if code == Code.SECURITY:
                stats.bookie_event(self.bookie_id, FAILED_TLS_HANDSHAKES)

    def _connect_failed(self, lane: _Lane, error: Exception) -> None:
        reason = reason_of(error)
        held_back = self.context.unavailable.passes(self.bookie_id, asyncio.get_running_loop().time())
        if held_back is not None:
            log.BOOKIE_UNAVAILABLE(bookie_id=self.bookie_id, reason=reason, held_back=held_back)
        if lane.stream is None:
            code = refusal_in(error) or Code.BOOKIE_NOT_AVAILABLE
            self.lost(lane, code, was_working=False, reason=reason, outstanding=0)
            lane.fail_held(code)

    def _back_off(self, code: int) -> None:
        self._unavailable = code
        delay = self.config.backoff.nth(self._failures)
        self._failures += 1
        self._retry_at = asyncio.get_running_loop().time() + delay * self.context.rng.uniform(0.5, 1.0)


class _Lane:
    """One connection of a link: being made, or made; requests wait in it until it is."""

    def __init__(self, link: BookieLink) -> None:
        self._link = link
        #: All of the link.
        self.lanes: Final = link.lanes
        #: Once connected.
        self.stream: RequestStream | None = None
        #: While connecting.
        self.connecting: asyncio.Task[None] | None = None
        self._held: list[_Submitted] = []
        self._held_keys: set[bytes | None] = set()

    # What the rules of lanes see.

    @property
    def pending_requests(self) -> int:
        """Requests without an outcome."""
        return len(self._held) + (0 if self.stream is None else self.stream.connection.outstanding_requests)

    @property
    def given_up(self) -> int:
        """Requests that were given up and may still be answered."""
        return 0 if self.stream is None else self.stream.connection.outstanding.given_up

    def is_free(self, key: bytes) -> bool:
        """Whether no answer with ``key`` may come."""
        if self.stream is None:
            return key not in self._held_keys
        return self.stream.connection.is_free(key)

    def is_given_up(self, key: bytes) -> bool:
        """Whether the request with ``key`` was given up and may still be answered."""
        return self.stream is not None and self.stream.connection.outstanding.is_given_up(key)

    def check(self) -> tuple[int, int]:
        """Assert what holds between events; returns how many requests have no outcome here, and their bytes."""
        stream = self.stream
        if stream is None:
            return len(self._held), sum(_size(request) for request, _ in self._held)
        assert not self._held, "what waited for the connection was sent when it stood"
        return stream.check()

    # What the link does with it.

    def submit(self, request: Request, reply_to: ReplyHandler) -> None:
        """Send ``request``, now or once connected."""
        if self.stream is not None:
            self.stream.submit(request, reply_to)
            return
        self._held.append((request, reply_to))
        self._held_keys.add(v2.match_of(request))
        self._link.hold(request)

    def close(self, code: int, reason: str) -> None:
        """End the connection, or the attempt to make it; requests end with ``code``."""
        if self.connecting is not None:
            self.connecting.cancel()
        if self.stream is not None:
            self.stream.abort(code, reason)
        self.fail_held(code)

    def fail_held(self, code: int) -> None:
        """End what waits for the connection with ``code``."""
        for request, reply_to in self._take_held():
            deliver(reply_to, self._link.bookie_id, request, code)

    def new_connection(self) -> NewConnection:
        """What its stream is made with once it is connected."""
        return NewConnection(self, self._link.load, self._link.lanes.waiting)

    def _take_held(self) -> list[_Submitted]:
        held, self._held = self._held, []
        for request, _ in held:
            self._link.release(request)
        return held

    # Called by the stream: see StreamOwner.

    def connected(self, stream: RequestStream, address: object) -> None:
        """The connection stands: hand over what waited for it."""
        link = self._link
        self.stream = stream
        link.connected(stream, address)
        if link.is_closed:
            stream.abort(Code.CLIENT_CLOSED, "the client was closed")
            return
        for request, reply_to in self._take_held():
            stream.submit(request, reply_to)

    def answered(self) -> None:
        """The bookie answers."""
        self._link.answered()

    def settled(self, stream: RequestStream) -> None:
        """Requests were answered or given up."""
        changed, stream.connection.changed = stream.connection.changed, []
        self._link.settled(self, changed)

    def refused(self, request: Request, reply_to: ReplyHandler, key: bytes) -> None:
        """``key`` is taken here: look for another lane."""
        self._link.submit_by_key(key, request, reply_to)

    def fail(self, request: Request, reply_to: ReplyHandler, code: int) -> None:
        """Arrange for a handler to be called with a code, soon but not now."""
        self._link.fail(request, reply_to, code)

    def detach(self, stream: RequestStream, code: int, *, was_working: bool, reason: str) -> None:
        """The connection is of no more use."""
        outstanding = stream.connection.outstanding_requests
        self._link.lost(self, code, was_working=was_working, reason=reason, outstanding=outstanding)

    def ended(self, stream: RequestStream) -> None:
        """The connection's socket is closed."""
        self._link.ended(stream)


def _size(request: Request) -> int:
    return len(request.header) + len(request.payload) if isinstance(request, AddRequest) else 0

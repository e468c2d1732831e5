"""Requests on one established connection to a bookie: limits, timeouts, answers, and what becomes of them when it ends.

Per request there is no task, no lock and no timer. What is submitted during one turn of the event loop leaves together at its
end, and one periodic timer per connection looks for requests that have waited too long. How it leaves is for subclasses to say:
as frames over TCP (:mod:`bkclient.transport.tcp_stream`), or as objects in a simulated world.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Final, Protocol

from bkclient.errors import Code, IllegalOperation
from bkclient.transport.base import ReplyHandler
from bkclient.transport.stream_state import NEXT, StreamState
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.connection import Answer, ClientConnection
from bkclient.wire.errors import FrameTooLarge
from bkclient.wire.messages import Operation, Request, Response, Status, code_for_status
from bkclient.wire.outstanding import KeyInUse

__all__ = ["RequestStream", "StreamOwner", "deliver", "reason_of"]

# Every request and every answer asks for these, and members of an enumeration take longer to find.
_ESTABLISHED: Final = StreamState.ESTABLISHED
_WORKING: Final = StreamState.WORKING
_DETACHED: Final = StreamState.DETACHED


def deliver(
    reply_to: ReplyHandler, bookie_id: str, request: Request, code: int, response: Response | None = None
) -> None:
    """Call a handler; what it raises is reported to the event loop and does not cost others their outcome."""
    try:
        reply_to(bookie_id, request, code, response)
    except Exception as error:  # noqa: BLE001 - handlers belong to callers, and may fail in any way
        context = {"message": f"the reply handler {reply_to!r} raised", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


def reason_of(error: BaseException) -> str:
    """What an exception says, or at least its name: a timeout says nothing."""
    return str(error) or type(error).__name__


class StreamOwner(Protocol):
    """What a stream belongs to: a lane of a link."""

    @property
    def needs_care(self) -> bool:
        """Whether :meth:`settled` has to be called for answers; it is for requests that are given up."""
        ...

    def connected(self, stream: RequestStream, address: object) -> None:
        """The connection stands."""
        ...

    def answered(self) -> None:
        """The bookie answers, so the connection is a success."""
        ...

    def settled(self, stream: RequestStream) -> None:
        """Requests were answered or given up."""
        ...

    def refused(self, request: Request, reply_to: ReplyHandler, key: bytes) -> None:
        """``request`` was not sent: ``key`` is taken on this connection."""
        ...

    def fail(self, request: Request, reply_to: ReplyHandler, code: int) -> None:
        """Arrange for a handler to be called with a code, soon but not now."""
        ...

    def detach(self, stream: RequestStream, code: int, *, was_working: bool, reason: str) -> None:
        """The connection is of no more use."""
        ...

    def ended(self, stream: RequestStream) -> None:
        """The connection's socket is closed."""
        ...


class RequestStream(ABC):
    """The requests on a :class:`~bkclient.wire.connection.ClientConnection` that stands."""

    def __init__(
        self,
        owner: StreamOwner,
        bookie_id: str,
        connection: ClientConnection[ReplyHandler],
        config: TcpTransportConfig,
    ) -> None:
        self._owner = owner
        self._bookie_id = bookie_id
        self._config = config
        self._loop = asyncio.get_running_loop()
        self.connection = connection
        #: Changed by :meth:`_become` only.
        self.state = StreamState.NEW
        self._load = connection.load
        self._add_timeout_s = config.add_timeout_s
        self._scan_interval_s = config.scan_interval_s
        self._max_requests = config.max_outstanding_requests
        self._max_bytes = config.max_outstanding_bytes
        #: What was submitted in this turn of the loop, encoded.
        self._buffers: list[Any] = []
        self._now = 0.0
        self._scan: asyncio.TimerHandle | None = None
        self._is_paused = False

    @property
    @abstractmethod
    def is_writable(self) -> bool:
        """Whether less is unsent than the high-water mark allows."""

    def submit(self, request: Request, reply_to: ReplyHandler) -> None:
        """Encode ``request`` for the flush at the end of this turn of the loop."""
        assert self.state is _WORKING or self.state is _ESTABLISHED, "requests are for a connection that stands"
        load = self._load
        if (
            load.requests >= self._max_requests
            or load.bytes >= self._max_bytes
            or (self._is_paused and self._unsent_bytes() >= self._max_bytes)  # of requests that have timed out
        ):
            self._owner.fail(request, reply_to, Code.TOO_MANY_REQUESTS)
            return
        if not self._buffers:
            self._now = self._loop.time()
        is_add = request.operation is Operation.ADD_ENTRY
        timeout_s = self._add_timeout_s if is_add else self._config.timeout_s(request)
        try:
            buffers = self.connection.send(request, reply_to, self._now + timeout_s)
        except (IllegalOperation, FrameTooLarge):
            self._owner.fail(request, reply_to, Code.ILLEGAL_OPERATION)
            return
        except KeyInUse as taken:
            self._owner.refused(request, reply_to, taken.key)
            return
        if not self._buffers:
            self._loop.call_soon(self._flush)
        if self._scan is None:
            self._scan = self._loop.call_later(self._scan_interval_s, self._expire)
        self._buffers += buffers

    def abort(self, code: int, reason: str) -> None:
        """Give the connection up now; what was outstanding ends with ``code``."""
        self._detach(code, reason)
        self._break_off()

    def check(self) -> tuple[int, int]:
        """Assert that what is outstanding is counted, will time out, and is on a connection that stands.

        Returns how many requests are outstanding, and their bytes; takes time linear in them.
        """
        requests, size = self.connection.check()
        if requests:
            assert self._stands, "nothing is outstanding on a connection that has ended"
            assert self._scan is not None, "somebody looks whether what is outstanding is late"
        return requests, size

    # For subclasses

    @abstractmethod
    def _flush(self) -> None:
        """Send what was submitted."""

    @abstractmethod
    def _break_off(self) -> None:
        """End the connection at once; idempotent. The owner is told later that it has ended."""

    def _drop_unsent(self) -> None:
        """Forget what is left to be sent, but for what was submitted in this turn."""
        return

    def _unsent_bytes(self) -> int:
        """The bytes that are left to be sent, but for those of this turn, all of which are outstanding and so bounded already."""
        return 0

    def _answered(self, answers: Iterable[Answer[ReplyHandler]]) -> None:
        """Hand out answers as they are taken from ``answers``."""
        bookie_id = self._bookie_id
        for request, reply_to, status, response in answers:
            if self.state is not _WORKING:
                self._become(_WORKING)
                self._owner.answered()
            code = Code.OK if status is Status.OK else code_for_status(status, request.operation)
            try:
                reply_to(bookie_id, request, code, response)
            except Exception as error:  # noqa: BLE001 - as in deliver(), whose call would cost every answer
                context = {"message": f"the reply handler {reply_to!r} raised", "exception": error}
                self._loop.call_exception_handler(context)

    def _detach(self, code: int, reason: str) -> None:
        """The connection is of no more use: everything outstanding ends with ``code``. Idempotent."""
        if not self._stands:
            return
        was_working = self.state is _WORKING
        self._become(_DETACHED)
        if self._scan is not None:
            self._scan.cancel()
            self._scan = None
        self._drop_unsent()
        self._owner.detach(self, code, was_working=was_working, reason=reason)
        for request, reply_to in self.connection.abandon():
            deliver(reply_to, self._bookie_id, request, code)

    def _ended(self) -> None:
        """The socket is closed."""
        self._become(StreamState.ENDED)
        self._owner.ended(self)

    @property
    def _stands(self) -> bool:
        """Whether it carries requests."""
        return self.state is _WORKING or self.state is _ESTABLISHED

    def _become(self, state: StreamState) -> None:
        assert state in NEXT[self.state], f"a connection that is {self.state.value} becomes {state.value}"
        self.state = state

    def _expire(self) -> None:
        self._scan = None
        expired = self.connection.expire(self._loop.time())
        if self.connection.outstanding:
            self._scan = self._loop.call_later(self._scan_interval_s, self._expire)
        if expired:
            self._owner.settled(self)
        for request, reply_to in expired:
            deliver(reply_to, self._bookie_id, request, Code.TIMEOUT)

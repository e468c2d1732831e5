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

from bkclient._core import has_twins
from bkclient.errors import Code, IllegalOperation
from bkclient.transport.adds import AddReplies
from bkclient.transport.base import ReplyHandler
from bkclient.transport.reads import ReadReplies
from bkclient.transport.stream_state import NEXT, StreamState
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.connection import Answer, ClientConnection, FoundBody
from bkclient.wire.errors import FrameTooLarge
from bkclient.wire.messages import Operation, Request, Response, Status, code_for_status
from bkclient.wire.outstanding import KeyInUse
from bkclient.wire.runs import Acknowledged, Run

__all__ = ["Handler", "RequestStream", "StreamOwner", "TurnsRun", "deliver", "reason_of"]


Handler = ReplyHandler | AddReplies | ReadReplies
"""Who hears of a request: of one that was submitted, of an add that was sent to its write set, or of one of many reads."""

# Every request and every answer asks for these, and members of an enumeration take longer to find.
_ESTABLISHED: Final = StreamState.ESTABLISHED
_WORKING: Final = StreamState.WORKING
_DETACHED: Final = StreamState.DETACHED
_NEW: Final = StreamState.NEW
_ENDED: Final = StreamState.ENDED
_STATUS_OK: Final = Status.OK
_OK: Final = Code.OK


def deliver(
    reply_to: ReplyHandler, bookie_id: str, request: Request, code: int, response: Response | None = None
) -> None:
    """Call a handler; what it raises is reported to the event loop and does not cost others their outcome."""
    try:
        reply_to(bookie_id, request, code, response)
    except Exception as error:  # noqa: BLE001 - handlers belong to callers, and may fail in any way
        report_failed(reply_to, error)


def deliver_failure(handler: Handler, bookie_id: str, request: Request | int, code: int) -> None:
    """Tell of a request, or of the add of an entry, that it ends with ``code``; likewise."""
    if not isinstance(request, int):
        assert callable(handler), "requests are submitted with the function to call"
        deliver(handler, bookie_id, request, code)
        return
    assert not callable(handler), "adds are sent with an object to tell"
    try:
        handler.on_add_failed(bookie_id, request, code)
    except Exception as error:  # noqa: BLE001 - as in deliver()
        report_failed(handler, error)


def report_failed(handler: object, error: Exception) -> None:
    """Report what ``handler`` raised to the event loop."""
    context = {"message": f"the reply handler {handler!r} raised", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)


def reason_of(error: BaseException) -> str:
    """What an exception says, or at least its name: a timeout says nothing."""
    return str(error) or type(error).__name__


class TurnsRun(Protocol):
    """Adds of this turn that are not registered yet: see :class:`~bkclient.transport.open_run.OpenRun`."""

    def end(self) -> None:
        """Register them, and hand over their frames."""
        ...


class Cares(Protocol):
    """The lanes of a link, as far as a stream has to know them."""

    def need_care(self) -> bool:
        """Whether :meth:`StreamOwner.settled` has to be called for answers; it is for requests that are given up."""
        ...


class StreamOwner(Protocol):
    """What a stream belongs to: a lane of a link."""

    @property
    def lanes(self) -> Cares:
        """All lanes to the bookie."""
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

    __slots__ = (
        "_config",
        "_load",
        "_loop",
        "_number",
        "_numbers",
        "_owner",
        "_scan",
        "_scan_interval_s",
        "bookie_id",
        "buffers",
        "connection",
        "has_expired",
        "is_paused",
        "run",
        "state",
        "turn_began",
    )

    def __init__(
        self,
        owner: StreamOwner,
        bookie_id: str,
        connection: ClientConnection[Handler],
        config: TcpTransportConfig,
    ) -> None:
        self._owner = owner
        self.bookie_id: Final = bookie_id
        self._config = config
        self._loop = asyncio.get_running_loop()
        self.connection = connection
        #: Changed by :meth:`_become` only.
        self.state = _NEW
        self._load = connection.load
        self._scan_interval_s = config.scan_interval_s
        #: What was submitted in this turn of the loop, encoded.
        self.buffers: list[Any] = []
        #: When the first of them was.
        self.turn_began = 0.0
        #: The last adds of this turn, if they go to a whole write set: they are in the buffers, and outstanding, when it ends.
        self.run: TurnsRun | None = None
        self._scan: asyncio.TimerHandle | None = None
        #: Whether the socket takes no more at present.
        self.is_paused = False
        #: Whether requests have timed out here, so that more may be unsent than is outstanding.
        self.has_expired = False
        self._number = 0
        self._numbers: dict[str, int] = {}

    def begin(self, number: int, numbers: dict[str, int]) -> None:
        """The connection was established as the one with this number; ``numbers`` are those of :class:`BookieTransport`."""
        self._number = number
        self._numbers = numbers
        numbers[self.bookie_id] = number

    @property
    def number(self) -> int:
        """Which connection it is: see :attr:`bkclient.transport.base.BookieTransport.connections`."""
        return self._number

    @property
    @abstractmethod
    def is_writable(self) -> bool:
        """Whether less is unsent than the high-water mark allows."""

    def submit(self, request: Request, reply_to: ReplyHandler) -> None:
        """Encode ``request`` for the flush at the end of this turn of the loop."""
        assert self.state is _WORKING or self.state is _ESTABLISHED, "requests are for a connection that stands"
        if self.run is not None:
            self.run.end()
        load = self._load  # is_full and now are what follows, in place of properties, which every request would ask
        is_full = load.requests >= load.max_requests or load.bytes >= load.max_bytes
        if is_full or (self.is_paused and self.is_overfull):
            self._owner.fail(request, reply_to, Code.TOO_MANY_REQUESTS)
            return
        now = self.turn_began if self.buffers else self._loop.time()
        try:
            buffers = self.connection.send(request, reply_to, now + self._config.timeout_s(request))
        except (IllegalOperation, FrameTooLarge):
            self._owner.fail(request, reply_to, Code.ILLEGAL_OPERATION)
            return
        except KeyInUse as taken:
            self._owner.refused(request, reply_to, taken.key)
            return
        if not self.buffers:
            self.begin_turn()
        self.buffers += buffers

    @property
    def is_overfull(self) -> bool:
        """Whether as much is left to be sent as may be outstanding, because requests have timed out that were never sent."""
        return self.has_expired and self._unsent_bytes() >= self._load.max_bytes

    @property
    def now(self) -> float:
        """The time of the loop, in seconds, at which the first request of this turn was submitted."""
        return self.turn_began if self.buffers else self._loop.time()

    def end_run(self) -> None:
        """Take what is in the open run as submitted, before anything else is sent or looks at what is outstanding."""
        if self.run is not None:
            self.run.end()

    @property
    def takes_adds(self) -> bool:
        """Whether no limit is reached."""
        load = self._load
        is_full = load.requests >= load.max_requests or load.bytes >= load.max_bytes
        return not is_full and not (self.has_expired and self.is_paused and self.is_overfull)

    def join_run(self, run: TurnsRun) -> None:
        """What follows goes into this run."""
        assert self.run is None, "a connection has one open run"
        self.run = run
        if not self.buffers:
            self.begin_turn()

    def leave_run(self, run: Run[Handler] | None, buffers: list[bytes]) -> None:
        """The open run has ended with these adds and frames."""
        self.run = None
        if run is not None:
            self.connection.send_run(run)
            self.buffers += buffers

    def send_now(self) -> None:
        """Send what was submitted in this turn before its end."""
        self._flush()

    def begin_turn(self) -> None:
        """The first buffers of this turn of the loop are about to be taken; they leave at its end."""
        self.turn_began = self._loop.time()
        self._loop.call_soon(self._flush)
        self._look_later()

    def _look_later(self) -> None:
        if self._scan is None:
            self._scan = self._loop.call_later(self._scan_interval_s, self._expire)

    def abort(self, code: int, reason: str) -> None:
        """Give the connection up now; what was outstanding ends with ``code``."""
        self._detach(code, reason)
        self._break_off()

    def check(self) -> tuple[int, int]:
        """Assert that what is outstanding is counted, will time out, and is on a connection that stands.

        Returns how many requests are outstanding, and their bytes; takes time linear in them.
        """
        found = self.connection.check()
        if found[0]:
            state = self.state
            assert state is _WORKING or state is _ESTABLISHED, "nothing is outstanding on a connection that has ended"
            assert self._scan is not None, "somebody looks whether what is outstanding is late"
        return found

    def counts(self) -> tuple[object, ...]:
        """What no request comes, goes or is left without a timer without changing; takes the same time however many there are."""
        connection = self.connection
        adds = len(connection.adds), len(connection.runs), connection.runs.first
        return self._scan is None, len(connection.outstanding.entries), adds, len(connection.reads)

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

    def _answered(self, answers: Iterable[Answer[Handler]]) -> None:
        """Hand out answers as they are taken from ``answers``."""
        bookie_id = self.bookie_id
        self._numbers[bookie_id] = self._number
        for request, handler, status, response in answers:
            if self.state is not _WORKING:
                self._works()
            if isinstance(request, int):
                if status is _STATUS_OK:
                    self._hand_over(handler, [request])
                else:
                    code = code_for_status(status, Operation.ADD_ENTRY)
                    deliver_failure(handler, bookie_id, request, code)
                continue
            code = _OK if status is _STATUS_OK else code_for_status(status, request.operation)
            assert callable(handler), "requests are submitted with the function to call"
            try:
                handler(bookie_id, request, code, response)
            except Exception as error:  # noqa: BLE001 - as in deliver(), whose call would cost every answer
                report_failed(handler, error)

    def _stored(self, told: list[Acknowledged[Handler]]) -> None:
        """Tell of adds that were acknowledged."""
        if self.state is not _WORKING:
            self._works()
        self._numbers[self.bookie_id] = self._number
        bookie_id = self.bookie_id
        handler: Any  # cast() is a function, which every run would call
        for handler, entry_ids in told:
            if not isinstance(entry_ids, list):
                assert callable(handler), "requests are submitted with the function to call"
                deliver(handler, bookie_id, entry_ids, _OK)
                continue
            try:  # as in _hand_over(), whose call every run would cost
                handler.on_adds_stored(bookie_id, entry_ids)
            except Exception as error:  # noqa: BLE001 - as in deliver()
                report_failed(handler, error)

    def _found(self, found: list[tuple[Handler, list[FoundBody]]]) -> None:
        """Tell of reads that were answered with entries, those of one reader that come one after the other together."""
        if self.state is not _WORKING:
            self._works()
        self._numbers[self.bookie_id] = self._number
        handler: Any  # as in _stored()
        for handler, bodies in found:
            try:
                handler.on_found(self.bookie_id, bodies)
            except Exception as error:  # noqa: BLE001 - as in deliver()
                report_failed(handler, error)

    def _hand_over(self, handler: Handler, entry_ids: list[int]) -> None:
        assert not callable(handler), "adds are sent with an object to tell"
        try:
            handler.on_adds_stored(self.bookie_id, entry_ids)
        except Exception as error:  # noqa: BLE001 - as in deliver()
            report_failed(handler, error)

    def _works(self) -> None:
        self._become(_WORKING)
        self._owner.answered()

    def _detach(self, code: int, reason: str) -> None:
        """The connection is of no more use: everything outstanding ends with ``code``. Idempotent."""
        if not self._stands:
            return
        self.end_run()
        was_working = self.state is _WORKING
        self._become(_DETACHED)
        if self._scan is not None:
            self._scan.cancel()
            self._scan = None
        self._drop_unsent()
        self._owner.detach(self, code, was_working=was_working, reason=reason)
        for request, handler in self.connection.abandon():
            deliver_failure(handler, self.bookie_id, request, code)

    def _ended(self) -> None:
        """The socket is closed."""
        self._become(_ENDED)
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
        self.end_run()
        if not self.connection.outstanding_requests:
            return
        expired = self.connection.expire(self._loop.time())
        if not expired:
            self._look_later()
            return
        if self.connection.outstanding_requests:
            self._look_later()
        self.has_expired = True
        self._owner.settled(self)
        for request, handler in expired:
            deliver_failure(handler, self.bookie_id, request, Code.TIMEOUT)
        if self.connection.outstanding_requests:  # which these handlers may have sent, in a turn that had begun
            self._look_later()


has_twins(
    "receiving",
    RequestStream,
    "_stored",
    knows=(ClientConnection, deliver, report_failed, _WORKING, Code.OK),
)

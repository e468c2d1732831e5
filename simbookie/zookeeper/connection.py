"""One client's connection to an embedded ZooKeeper: bytes to requests, fairness, and what becomes of those who do not read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from simbookie.tcp.notices import Notices
from simbookie.zookeeper.acl import Identity
from simbookie.zookeeper.jute import FrameSplitter, JuteError
from simbookie.zookeeper.service import ZooKeeperService
from simbookie.zookeeper.sessions import Session

__all__ = ["Connection", "ConnectionHost", "ConnectionLimits"]

_log = logging.getLogger(__name__)

_FIRST_RECORD_SIZE_MAX: Final = 1024
_RECORDS_PER_TURN: Final = 64
_OUTPUT_PER_TURN: Final = 256 << 10
_TURN_S: Final = 0.005
_FOUR_LETTER_WORDS: Final = {
    b"ruok": b"imok",
    b"srvr": b"Zookeeper version: embedded in simbookie\nMode: standalone\n",
}


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What connections may take; times in seconds, sizes in bytes.

    ``frame_size_max`` is what ZooKeeper calls ``jute.maxbuffer``. ``connect_timeout_s`` is how long a connection may stay without
    asking for a session; later it ends with its session. A client that lets more than ``backlog_max`` of events pile up is
    disconnected: it will come back and ask what it missed.
    """

    connections_max: int = 500
    connections_per_source_max: int = 500
    frame_size_max: int = 0xFFFFF
    connect_timeout_s: float = 10.0
    close_timeout_s: float = 2.0
    backlog_max: int = 8 << 20
    keepalive_idle_s: int = 60
    keepalive_interval_s: int = 10


class ConnectionHost(Protocol):
    """The server behind a connection."""

    limits: ConnectionLimits
    notices: Notices
    service: ZooKeeperService

    def admit(self, connection: Connection) -> bool:
        """Whether a connection may stay."""

    def dismiss(self, connection: Connection) -> None:
        """Forget a connection that is gone."""

    def session_changed(self) -> None:
        """A session was opened or came back."""


class Connection(asyncio.Protocol):
    """Implements :class:`~simbookie.zookeeper.service.Client` over a transport."""

    def __init__(self, host: ConnectionHost, source: str, on_gone: Callable[[], None]) -> None:
        self.session: Session | None = None
        self.identities: tuple[Identity, ...] = ()
        self.source = source
        self._on_gone = on_gone
        self._host = host
        self._service = host.service
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._splitter = FrameSplitter(_FIRST_RECORD_SIZE_MAX)
        self._output: list[bytes] = []
        self._output_size = 0
        self._is_serving = False
        self._is_full = False  # the client does not take its answers
        self._is_deferred = False  # the rest of what arrived has to wait for the next turn
        self._is_ending = False
        self._timer: asyncio.TimerHandle | None = None

    # ---- asyncio ------------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See :class:`asyncio.Protocol`, as for the methods that follow."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by class
        if not self._host.admit(self):
            self._transport.abort()
            return
        peer = transport.get_extra_info("peername")
        self.identities = (Identity("ip", str(peer[0])),) if peer else ()
        self._limit(self._host.limits.connect_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  the reason is not needed
        """See there."""
        self._transport = None
        self._is_ending = True
        if self._timer is not None:
            self._timer.cancel()
        self._output.clear()
        self._service.disconnect(self)
        self._host.dismiss(self)
        self._on_gone()

    def data_received(self, data: bytes) -> None:
        """See there."""
        if not self._is_ending:
            self._splitter.feed(data)
            self._serve()

    def eof_received(self) -> bool:
        """See there; a client that sends no more needs no answers."""
        return False

    def pause_writing(self) -> None:
        """See there."""
        self._is_full = True
        self._follow()

    def resume_writing(self) -> None:
        """See there."""
        self._is_full = False
        self._serve()

    # ---- what the service asks for --------------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """See :class:`~simbookie.zookeeper.service.Client`, as for the methods that follow."""
        if self._transport is None or self._is_ending:
            return
        if not self._output and not self._is_serving:
            self._loop.call_soon(self._flush)
        self._output.append(frame)
        self._output_size += len(frame)

    def notify(self, frame: bytes) -> None:
        """See there."""
        self.send(frame)
        if self._transport is not None:
            backlog = self._output_size + self._transport.get_write_buffer_size()
            if self._is_full and backlog > self._host.limits.backlog_max:
                reason = "a ZooKeeper client at %s is disconnected: it does not read its events"
                self._host.notices.warn(self.source, reason, self.source)
                self.abort()

    def end(self) -> None:
        """See there."""
        if self._is_ending:
            return
        self._flush()
        self._is_ending = True
        if self._transport is not None:
            self._limit(self._host.limits.close_timeout_s)
            self._transport.close()

    def abort(self) -> None:
        """Break the connection; what was not sent yet is lost. Idempotent."""
        self._is_ending = True
        if self._transport is not None:
            self._transport.abort()

    # ---- requests -----------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        if self._is_serving or self._is_full or self._is_ending:
            return
        self._is_serving = True
        self._is_deferred = False
        try:
            self._serve_a_turn()
        except JuteError as error:
            _log.info("the connection of a ZooKeeper client at %s is closed: %s", self.source, error)
            self.end()
        except BaseException:
            self.abort()
            raise
        finally:
            self._is_serving = False
            self._flush()
        self._follow()

    def _serve_a_turn(self) -> None:
        """Serve what arrived, but not so much at once that others would have to wait for long."""
        if self.session is None and self._answer_word():
            return
        ends = self._loop.time() + _TURN_S
        records = self._splitter.records()
        for _ in range(_RECORDS_PER_TURN):
            record = next(records, None)
            if record is None:
                return
            if self.session is not None:
                self._service.handle(self, record)
            elif self._service.connect(self, record):
                self._splitter.size_max = self._host.limits.frame_size_max
                self._limit(None)
                self._host.session_changed()
            else:
                self.end()
            if self._is_ending:
                return
            if self._output_size > _OUTPUT_PER_TURN or self._loop.time() >= ends:
                break
        self._is_deferred = True
        self._loop.call_soon(self._serve)

    def _answer_word(self) -> bool:
        for word, answer in _FOUR_LETTER_WORDS.items():
            if self._splitter.starts_with(word):
                self.send(answer)
                self.end()
                return True
        return False

    def _follow(self) -> None:
        """Read on only while what was read is served."""
        if self._transport is not None and not self._transport.is_closing():
            if self._is_full or self._is_deferred:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _flush(self) -> None:
        if self._output and self._transport is not None:
            data = b"".join(self._output)
            self._output.clear()
            self._output_size = 0
            self._transport.write(data)

    def _limit(self, timeout_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        abort: Callable[[], None] = self.abort
        self._timer = None if timeout_s is None else self._loop.call_later(timeout_s, abort)

"""One client's connection to a served bookie: frames in, answers out, and the reasons for which neither goes on.

* Requests are parsed from a buffer that the loop fills in place; the answers of one loop turn leave in one write.
* The connection is *halted* as long as there is a reason for it: its client does not take its answers, it has had its slice of
  this turn (:mod:`simbookie.tcp.turns`), the bookie has no room for more adds, TLS is starting, it is being closed. A halted
  connection is not read from, and what it has already sent waits unparsed. Back-pressure is therefore TCP's: a client that
  sends more than the bookie can take is slowed down, not refused.
* As long as the client's system has not accepted an answer, further ones wait unencoded. What one connection can pin is bounded
  by one write, one response, one frame, and the bookie's limits on what waits; :mod:`simbookie.tcp.unsent` bounds all together.
* Until a connection is as secure as it has to be, a :class:`~simbookie.security.Guard` judges its requests. Nothing in clear may
  follow a request for TLS: what an attacker put there would be taken for part of what TLS protects.
* Bytes that are no protocol close the connection without an answer.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, cast

from bkclient.errors import BookKeeperError, IllegalOperation
from bkclient.wire.envelope import ReceivedRequest
from bkclient.wire.errors import FrameTooLarge, WireError
from bkclient.wire.messages import AddRequest, AddResponse, AuthMessage, Response, StartTlsResponse, Status
from bkclient.wire.received_add import ReceivedAdd
from bkclient.wire.server_connection import ServerConnection
from simbookie.ledgers import status_of
from simbookie.security import AuthVerdict, Guard
from simbookie.storage.base import StorageError
from simbookie.tcp.owner import ConnectionOwner
from simbookie.tcp.progress import PeerProgress
from simbookie.tcp.upgrade import Upgraded, upgrade

__all__ = ["ServedConnection"]

_log: Final = logging.getLogger(__name__)

# Why a connection is halted.
_ANSWERS: Final = 1
_TURN: Final = 2
_ROOM: Final = 4
_TLS: Final = 8
_CLOSING: Final = 16
_ANY: Final = 31

#: Adds between two looks at the clock; after any other request, which may have cost more, it is looked at always.
_ADDS_PER_LOOK: Final = 16
#: Bytes of answers that leave in one write, and may therefore be left in the transport; one answer more if that is larger.
_WRITE_SIZE: Final = 65_536
#: How often the transport is asked again whether answers have gone, where it does not tell.
_DRAIN_POLL_S: Final = 0.01


class ServedConnection(asyncio.BufferedProtocol):
    """The connection of a client that counts as ``origin``; ``on_gone`` is called once, when it has ended."""

    def __init__(self, server: ConnectionOwner, origin: str, on_gone: Callable[[], None]) -> None:
        self._server = server
        self._origin = origin
        self._on_gone: Callable[[], None] | None = on_gone
        self._bookie = server.bookie
        self._turns = server.turns
        self._clock = server.turns.clock
        self._unsent = server.unsent
        self._wire = ServerConnection(server.config.max_frame_size)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._source = origin
        #: Answers of this loop turn.
        self._answers: list[bytes] = []
        self._answers_size = 0
        #: Answers that were to be sent while the client did not take any.
        self._kept_answers: deque[tuple[ReceivedRequest, Response]] = deque()
        #: Whether the transport has said that it is full, and so will say when it is not.
        self._transport_tells = False
        self._is_closing = False
        self._is_serving = False
        self._halts = 0
        self._is_reading = True
        #: Requests received but not carried out when the connection was halted; the first of them may be decoded.
        self._unserved: Iterator[ReceivedRequest] | None = None
        self._held: ReceivedRequest | None = None
        # The slice of the turn with this number: requests left, and when it ends.
        self._turn = -1
        self._slice_left = 0
        self._slice_ends_at = 0.0
        self._guard: Guard | None = None
        self._starting_tls: asyncio.Task[None] | None = None
        self._progress = PeerProgress(server.config, self._clock())

    def __repr__(self) -> str:
        return f"<ServedConnection {self._source}>"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        # uvloop has transports of its own, which are no subclasses of asyncio's
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        if not self._server.admit(self):
            transport.abort()
            return
        config = self._server.config
        transport.set_write_buffer_limits(1, 0)
        peer = transport.get_extra_info("peername")
        self._source = f"{peer[0]}:{peer[1]}" if peer else self._origin
        if config.security is not None:
            self._guard = Guard(config.security, self._source)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """End; may come more than once."""
        self._transport = None
        self._is_closing = True
        self._unserved = self._held = None
        self._answers.clear()
        self._kept_answers.clear()
        self._turns.leave(self)
        self._unsent.release(self)
        self._bookie.add_room.cancel(self._room_came)
        self._bookie.forget(self._source)
        self._server.dismiss(self)
        on_gone, self._on_gone = self._on_gone, None
        if on_gone is not None:
            on_gone()

    def close(self) -> None:
        """Close after what is waiting has been sent."""
        self._is_closing = True
        self._halt(_CLOSING)
        if self._starting_tls is not None:
            self.abort()
        elif self._transport is not None and not self._kept_answers:
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        self._halts |= _CLOSING
        if self._transport is not None:
            self._transport.abort()
        if self._starting_tls is not None:  # event loops differ in what they report when half-made TLS ends
            self._starting_tls.cancel()
            self._starting_tls = None
            self.connection_lost(None)

    # ------------------------------------------------------------------------------------------------------ requests

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Where the next bytes belong."""
        return self._wire.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        try:
            self._receive(self._wire.buffer_updated(nbytes))
        except WireError as error:
            self._give_up(error)

    def _receive(self, requests: Iterator[ReceivedRequest]) -> None:
        self._serve(requests if self._guard is None else self._guarded(requests, self._guard))

    def _serve(self, requests: Iterator[ReceivedRequest]) -> None:
        """Carry out ``requests`` until the slice is over or something halts the connection; the rest is kept."""
        if self._halts & _ANY or not self._may_serve():
            self._unserved = requests
            return
        self._is_serving = True
        try:
            self._serve_slice(requests)
        finally:
            self._is_serving = False

    def _serve_slice(self, requests: Iterator[ReceivedRequest]) -> None:
        bookie, respond, source = self._bookie, self._respond, self._source
        add, added, submit = bookie.add, self._added, bookie.submit
        add_room, begun_with = bookie.add_room, self._slice_left
        room = add_room.left
        left, looks_at = begun_with, max(begun_with - _ADDS_PER_LOOK, 0)
        held, self._held = self._held, None
        for received in requests if held is None else itertools.chain((held,), requests):
            left -= 1
            request = received.request
            ordinary = received if isinstance(received, ReceivedAdd) else None
            if request is None or (ordinary is None and not received.is_version_supported):
                self._refuse(received)
            else:
                if room <= 0:
                    room = add_room.left
                    if room <= 0 and add_room.must_wait(request):
                        self._held, self._unserved = received, requests
                        self._halt(_ROOM)
                        add_room.when_room(self._room_came)
                        break
                room -= 1
                if ordinary is None or not add(ordinary.request, added, ordinary, source):
                    submit(request, partial(respond, received), source=source)
            if self._halts:
                self._unserved = requests
                break
            if left <= looks_at or request.__class__ is not AddRequest:
                looks_at = max(left - _ADDS_PER_LOOK, 0)
                if left <= 0 or self._clock() >= self._slice_ends_at:
                    left = 0
                    self._unserved = requests
                    self._wait_for_turn()
                    break
        if left != begun_with:
            self._slice_left = left
            self._progress.has_served = True

    def _may_serve(self) -> bool:
        """Whether a slice may begin or go on in this turn; otherwise the connection waits for its turn."""
        turns = self._turns
        if self._turn != turns.current:
            now = self._clock()
            if not turns.has_time(now):
                self._wait_for_turn()
                return False
            self._begin_slice(now)
        if self._slice_left > 0:
            return True
        self._wait_for_turn()
        return False

    def _begin_slice(self, now: float) -> None:
        config = self._server.config
        self._turn = self._turns.current
        self._slice_left = config.slice_requests
        self._slice_ends_at = now + config.slice_s

    def _wait_for_turn(self) -> None:
        self._halt(_TURN)
        self._turns.wait(self, is_unfinished=self._turn == self._turns.current)

    def _room_came(self) -> None:
        self._turns.wait(self, is_unfinished=False)

    def go_on(self) -> None:
        """Do a slice, as the turn has come; called by :class:`~simbookie.tcp.turns.Turns`."""
        self._begin_slice(self._clock())
        if not self._send_kept_answers():
            return
        if self._is_closing:
            self.close()
        else:
            self._resume(_TURN | _ROOM)

    def _halt(self, reason: int) -> None:
        self._halts |= reason
        if self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def _resume(self, reasons: int) -> None:
        """Go on, unless there are other reasons than ``reasons`` to be halted."""
        self._halts &= ~reasons
        if self._halts & _ANY:
            return
        requests, self._unserved = self._unserved, None
        if requests is not None:
            try:
                self._serve(requests)
            except WireError as error:
                self._give_up(error)
        if not self._halts and not self._is_reading and self._transport is not None:
            self._is_reading = True
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def _refuse(self, received: ReceivedRequest) -> None:
        status = Status.BAD_REQUEST if received.is_version_supported else Status.BAD_VERSION
        try:
            self._send(self._wire.refuse(received, status))
        except IllegalOperation as error:
            self._give_up(error)

    def _give_up(self, error: BookKeeperError) -> None:
        if isinstance(error, FrameTooLarge):
            self._server.notices.warn(
                self._origin,
                "bookie %s closes the connection of %s: a frame of %d bytes is above the limit of %d; "
                "--max-frame-size (nettyMaxFrameSizeBytes of Apache BookKeeper) raises it",
                *(self._bookie.bookie_id, self._source, error.size, error.limit),
            )
            self.close()
        else:
            self._close_because(str(error))

    def _close_because(self, reason: str) -> None:
        self._log_closing(reason)
        self.close()

    def _log_closing(self, reason: str) -> None:
        _log.info("bookie %s closes the connection of %s: %s", self._bookie.bookie_id, self._source, reason)

    # ------------------------------------------------------------------------------------------------------ security

    def _guarded(self, requests: Iterator[ReceivedRequest], guard: Guard) -> Iterator[ReceivedRequest]:
        """Those of ``requests`` that the bookie may see; the others are answered here."""
        for received in requests:
            verdict = guard.judge(received)
            if verdict is AuthVerdict.SERVE:
                yield received
            elif verdict is AuthVerdict.START_TLS:
                self._start_tls(received, guard)
                return
            elif isinstance(verdict, AuthMessage):
                self._send(self._wire.encode_response(received, verdict))
                self._settle(guard)
            else:
                _log.info("bookie %s refuses %s: %s", self._bookie.bookie_id, self._source, guard.reason)
                if verdict is not AuthVerdict.CLOSE:
                    self._send(self._wire.refuse(received, Status.UNAUTHORIZED))
                if verdict is not AuthVerdict.REFUSE:
                    self.close()
                    return

    def _settle(self, guard: Guard) -> None:
        if guard.is_done:
            self._guard = None
            self._progress.is_established = True

    def _start_tls(self, received: ReceivedRequest, guard: Guard) -> None:
        transport, security = self._transport, self._server.config.security
        if transport is None or security is None or security.tls is None:
            return
        if self._wire.has_more:
            self._give_up(IllegalOperation("bytes in clear follow a request for TLS"))
            return
        self._send(self._wire.encode_response(received, StartTlsResponse(Status.OK)))
        self._flush()
        self._halt(_TLS)
        upgrade = self._upgrade(transport, security.tls, security.handshake_timeout_s, guard)
        self._starting_tls = self._loop.create_task(upgrade, name=f"TLS with {self._source}")

    async def _upgrade(
        self, transport: asyncio.Transport, context: ssl.SSLContext, timeout_s: float, guard: Guard
    ) -> None:
        upgraded: Upgraded | None = None
        try:
            upgraded = await upgrade(transport, context, timeout_s)
        except OSError as error:  # a wrong or missing certificate, a client that went away or took too long
            _log.info("bookie %s: no TLS with %s: %s", self._bookie.bookie_id, self._source, error)
        finally:
            self._starting_tls = None
            if upgraded is None:
                transport.abort()
                self.connection_lost(None)  # which nothing tells this protocol before TLS stands
        if upgraded is not None:
            self._go_on_inside(upgraded, guard)

    def _go_on_inside(self, upgraded: Upgraded, guard: Guard) -> None:
        transport, data = upgraded
        transport.set_protocol(self)
        self._transport = transport
        transport.set_write_buffer_limits(1, 0)
        guard.has_tls = True
        self._settle(guard)
        self._is_reading = True
        self._halts &= ~_TLS
        try:
            self._receive(self._wire.receive(data))
        except WireError as error:
            self._give_up(error)

    # ------------------------------------------------------------------------------------------------------- answers

    def _respond(self, received: ReceivedRequest, response: Response) -> None:
        if self._kept_answers or self._halts & _ANSWERS:
            self._kept_answers.append((received, response))
            return
        if not self._is_serving and response.__class__ is not AddResponse:
            # what was waited for has come, for many perhaps, and may be large: that is work for a turn of its own
            if self._transport is not None:
                self._kept_answers.append((received, response))
                self._turns.wait(self, is_unfinished=False)
            return
        self._answer(received, response)

    def _added(self, received: ReceivedAdd, error: StorageError | None) -> None:
        if error is not None or self._kept_answers or self._halts & _ANSWERS:
            request = received.request
            status = Status.OK if error is None else status_of(error)
            self._respond(received, AddResponse(status, request.ledger_id, request.entry_id))
            return
        self._send(received.acknowledgement)
        if self._answers_size >= _WRITE_SIZE:
            self._flush()

    def _answer(self, received: ReceivedRequest, response: Response) -> None:
        if received.protocol_version == 2 and response.status is Status.UNKNOWN_LEDGER_STATE:
            # Java clients cannot decode that number in version 2; any other error that denies nothing does
            response.status = Status.IO_ERROR
        try:
            self._send(self._wire.encode_response(received, response))
        except IllegalOperation as error:
            self._give_up(error)
        if self._answers_size >= _WRITE_SIZE:
            self._flush()

    def _send(self, frame: bytes) -> None:
        if self._transport is None:
            return
        if not self._answers:
            self._loop.call_soon(self._flush)
        self._answers.append(frame)
        self._answers_size += len(frame)

    def _flush(self) -> None:
        transport = self._transport
        if self._answers and transport is not None:
            data = b"".join(self._answers)
            self._answers.clear()
            self._answers_size = 0
            transport.write(data)
            # asyncio has versions that do not tell of every way in which they become full
            if not self._halts & _ANSWERS and self.unsent_bytes > 0:
                self._not_taken()
                self._loop.call_later(_DRAIN_POLL_S, self._look_for_drain)

    def _look_for_drain(self) -> None:
        if self._transport is None or self._transport_tells or not self._halts & _ANSWERS:
            return
        if self.unsent_bytes == 0:
            self._drained()
        else:
            self._loop.call_later(_DRAIN_POLL_S, self._look_for_drain)

    def pause_writing(self) -> None:
        """The client does not take its answers."""
        self._transport_tells = True
        self._not_taken()

    def resume_writing(self) -> None:
        """The client has taken its answers."""
        self._transport_tells = False
        self._drained()

    def _not_taken(self) -> None:
        self._halt(_ANSWERS)
        self._unsent.hold(self)

    def _drained(self) -> None:
        """The client takes answers again."""
        self._halts &= ~_ANSWERS
        self._unsent.release(self)
        if self._kept_answers or self._unserved is not None:
            self._wait_for_turn()
        elif not self._is_closing:
            self._resume(0)

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client's system has not accepted."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close_as_unsent(self, limit: int) -> None:
        """Close at once: clients take too few of their answers, and this one has taken none for longest."""
        self._server.notices.warn(
            self._origin,
            "bookie %s closes the connection of %s: it takes none of its answers, and more than %d bytes of answers wait for "
            "clients to take them (unsent_bytes_max)",
            *(self._bookie.bookie_id, self._source, limit),
        )
        self.abort()

    def _send_kept_answers(self) -> bool:
        """Send answers that were kept as long as there is time, and the client takes them; whether all were sent."""
        while self._kept_answers and not self._halts & _ANSWERS:
            if self._clock() >= self._slice_ends_at:
                self._wait_for_turn()
                return False
            self._answer(*self._kept_answers.popleft())
        return not self._kept_answers

    # ----------------------------------------------------------------------------------------------------- deadlines

    def look_at_deadlines(self, now: float) -> None:
        """Close the connection if its client has made no progress for too long; give back memory that is not used."""
        served, has_partial_frame = self._progress.has_served, self._wire.has_more
        reason = self._progress.look(
            now, unsent=self.unsent_bytes, has_partial_frame=has_partial_frame, is_halted=self._halts != 0
        )
        if reason is not None:
            self._log_closing(reason)
            self.abort()
        elif not (self._halts or served or has_partial_frame):
            self._wire.release()

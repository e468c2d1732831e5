"""The client's end of a connection that carries requests and responses as objects.

:class:`ObjectStream` is to the simulated network what :class:`bkclient.transport.tcp_stream.Stream` is to TCP; limits, timeouts
and outcomes are those of the base of both. :class:`ObjectConnection` matches answers as frames are matched: in version 3 by the
id of the request, in version 2 by its key, so that a client that breaks the rules of keys takes the answer to one request for
that to another here as well. It delivers one answer for each request, as TCP does: copies that the network makes are dropped.
What frames have no room for does not pass.
"""

from __future__ import annotations

import math
from typing import Any, Final

from bkclient.errors import Code, IllegalOperation
from bkclient.transport.request_stream import Handler, RequestStream
from bkclient.transport.stream_state import StreamState
from bkclient.wire import v2
from bkclient.wire.answers import check_answer
from bkclient.wire.connection import Answer, ClientConnection
from bkclient.wire.errors import FrameTooLarge
from bkclient.wire.messages import AddRequest, ReadRequest, ReadResponse, Request, Response
from simbookie.world.calls import RequestMessage, ResponseMessage
from simbookie.world.connection_end import ConnectionEnd

__all__ = ["ObjectConnection", "ObjectStream"]

# Every message asks for these, and members of an enumeration take longer to find.
_ESTABLISHED: Final = StreamState.ESTABLISHED
_WORKING: Final = StreamState.WORKING
_NOT_AVAILABLE: Final = Code.BOOKIE_NOT_AVAILABLE


class ObjectConnection(ClientConnection[Handler]):
    """A :class:`~bkclient.wire.connection.ClientConnection` whose buffers are messages."""

    __slots__ = ("_unanswered",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: Requests of version 2 whose answer has not come: what comes twice is a copy.
        self._unanswered: set[int] = set()

    def send(self, request: Request, token: Handler, deadline: float = math.inf) -> tuple[Any, ...]:
        """As there; the one buffer is a message."""
        txn_id = next(self._txn_ids)
        assert txn_id > self._last_txn_id, "transaction ids ascend"
        self._last_txn_id = txn_id
        size = len(request.header) + len(request.payload) if isinstance(request, AddRequest) else 0
        if size > self.frames.max_frame_size:
            raise FrameTooLarge(size, self.frames.max_frame_size)
        if self.protocol_version == 3:
            self.outstanding.add(txn_id.to_bytes(8, "big"), (request, token, deadline, size))
        else:
            _check_version_2(request)
            match = v2.match_of(request) or txn_id.to_bytes(8, "big")
            self.outstanding.add(match, (request, token, deadline, size))
            self._unanswered.add(txn_id)
        self.load.put_on(size)
        return (RequestMessage(txn_id, request),)

    def received(self, message: ResponseMessage) -> tuple[Answer[Handler], ...]:
        """The answer in a message, if it belongs to an outstanding request."""
        response = message.response
        if self.protocol_version == 3:
            match = message.call_id.to_bytes(8, "big")
        else:
            if message.call_id not in self._unanswered:
                return ()  # a copy
            self._unanswered.remove(message.call_id)
            match = v2.match_of(message.request) or message.call_id.to_bytes(8, "big")
            response = _as_version_2_has_it(response)
        entry = self.outstanding.answered(match)
        if match in self._wanted:
            self.changed.append(match)
        if entry is None:
            self.unmatched_answers += 1
            return ()
        self.load.take_off(entry[3])
        check_answer(entry[0], response)
        return ((entry[0], entry[1], response.status, None if isinstance(entry[0], AddRequest) else response),)


def _check_version_2(request: Request) -> None:
    if isinstance(request, AddRequest) and request.write_flags:
        raise IllegalOperation("version 2 has no write flags")
    if isinstance(request, ReadRequest) and request.long_poll is not None:
        raise IllegalOperation("version 2 has no long polls")


def _as_version_2_has_it(response: Response) -> Response:
    if isinstance(response, ReadResponse) and response.max_lac is not None:
        return ReadResponse(response.status, response.ledger_id, response.entry_id, response.body)  # all that it has
    return response


class ObjectStream(RequestStream):
    """The requests on a connection of the simulated network."""

    connection: ObjectConnection
    _end: ConnectionEnd

    @property
    def is_writable(self) -> bool:
        """Whether less than the high-water mark has no outcome; there is no socket here that could fill."""
        return self._load.bytes < self._config.write_buffer_high_water_bytes

    def connected(self, end: ConnectionEnd) -> None:
        """The connection stands."""
        self._end = end
        end.on_message, end.on_lost = self._received, self._lost
        self._become(_ESTABLISHED)
        self._owner.connected(self, end.peer_name)

    def _received(self, message: ResponseMessage) -> None:
        state = self.state
        if state is not _WORKING and state is not _ESTABLISHED:
            return
        self._answered(self.connection.received(message))
        if self._owner.lanes.need_care():
            self._owner.settled(self)

    def _flush(self) -> None:
        messages, self.buffers = self.buffers, []
        state = self.state
        if state is _WORKING or state is _ESTABLISHED:
            send = self._end.send
            for message in messages:
                send(message)

    def _lost(self) -> None:
        self._detach(_NOT_AVAILABLE, "it broke")
        self._ended()

    def _break_off(self) -> None:
        end = self._end
        if not end.is_closed:
            end.on_lost = None
            end.close()
            self._loop.call_soon(self._ended)

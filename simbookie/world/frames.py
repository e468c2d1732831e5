"""Targeted faults on streams: what looks into the bytes between clients and bookies, and picks single requests and answers.

Scenarios point at messages: "the add of entry 5 to b2" (:meth:`simbookie.world.network.Network.intercept`). Over streams one
is a frame, which a :class:`FrameFilter` on each direction of a connection cuts out of the stream: it is dropped, held back,
delayed or repeated as a whole, so that what remains is a stream of frames, as of a peer that never sent it, or sent it later.

As long as no interception is in force, bytes pass as they come, and only boundaries are kept. Else whole frames are waited for.
The end of a stream waits for frames that are held back.

Frames are decoded when an interception looks at them; those of requests are remembered, so that answers can be told by what they
answer. Chance, and interceptions at arrival, are no business of filters: what TCP makes of loss is in
:mod:`simbookie.world.tcp_socket`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from bkclient.errors import BookKeeperError
from bkclient.wire import v2, v3
from bkclient.wire.errors import WireError
from bkclient.wire.framing import PREFIX_SIZE
from bkclient.wire.messages import Request
from bkclient.wire.server_connection import ServerConnection
from simbookie.world.calls import RequestMessage, ResponseMessage
from simbookie.world.faults import Delay, Duplicate, Fate

if TYPE_CHECKING:
    from simbookie.world.network import Network
    from simbookie.world.tcp_socket import Socket

__all__ = ["FrameFilter", "filter_frames"]

#: How many bytes of requests are remembered per connection for the sake of their answers.
_REMEMBERED_BYTES_MAX: Final = 16 * 1024 * 1024


def filter_frames(client: Socket, server: Socket, network: Network) -> None:
    """Look into both directions of a connection between a client and a bookie."""
    requests = _Requests()
    client.middlebox = FrameFilter(client, network, requests.remember, lambda _frame: requests.newest())
    server.middlebox = FrameFilter(server, network, lambda _frame: None, requests.answer_of)


class _Requests:
    """The requests of one connection."""

    def __init__(self) -> None:
        self._wire = ServerConnection()
        self._unread: list[bytes] = []
        self._size = 0
        self._by_match: dict[bytes, Request] = {}

    def remember(self, frame: bytes) -> None:
        """Keep a frame that passed, undecoded until it is asked for."""
        self._size += len(frame)
        if self._size > _REMEMBERED_BYTES_MAX:
            self._read()
            self._size = 0
        self._unread.append(frame)

    def newest(self) -> RequestMessage | None:
        """The request in the frame that was remembered last."""
        request = self._read()
        return None if request is None else RequestMessage(0, request)

    def answer_of(self, frame: bytes) -> ResponseMessage | None:
        """The answer in a frame, with what it answers."""
        self._read()
        dialect = v3 if self._wire.protocol_version == 3 else v2
        try:
            match, response = dialect.decode_response(frame[PREFIX_SIZE:])
        except WireError:
            return None
        request = self._by_match.get(match)
        return None if request is None else ResponseMessage(0, request, response)

    def _read(self) -> Request | None:
        """Decode what is unread; the last request of it."""
        unread, self._unread = self._unread, []
        last: Request | None = None
        for frame in unread:
            last = None
            try:
                for received in self._wire.receive(frame):
                    last = received.request
                    if last is not None:
                        dialect = v3 if received.protocol_version == 3 else v2
                        self._by_match[dialect.encode_request(last, received.txn_id).match] = last
            except (WireError, BookKeeperError):
                continue  # it is up to the bookie to complain
        return last


class FrameFilter:
    """Looks into one direction; a :class:`simbookie.world.tcp_socket.Middlebox`."""

    def __init__(
        self,
        sender: Socket,
        network: Network,
        remember: Callable[[bytes], None],
        read: Callable[[bytes], RequestMessage | ResponseMessage | None],
    ) -> None:
        self._sender = sender
        self._network = network
        self._remember = remember
        self._read = read
        # From the start of a frame on: what has come, and how much of it has passed.
        self._data = bytearray()
        self._passed = 0
        #: Frames that travel as soon as no other one is half-way.
        self._due: list[bytes] = []
        self._held = 0
        self._end: Callable[[], None] | None = None

    def forward(self, data: bytes) -> None:
        """See :class:`~simbookie.world.tcp_socket.Middlebox`."""
        self._data += data
        while len(self._data) >= PREFIX_SIZE:
            size = PREFIX_SIZE + int.from_bytes(self._data[:PREFIX_SIZE], "big")
            if len(self._data) < size:
                break
            frame = bytes(self._data[:size])
            del self._data[:size]
            self._remember(frame)
            if self._passed or not self._network.is_intercepting:
                rest, self._passed = frame[self._passed :], 0
                self._sender.launch(rest)
            else:
                self._judge(frame)
            self._insert_due()
        if self._data and (self._passed or not self._network.is_intercepting):
            self._pass_begun()

    def end(self, finish: Callable[[], None]) -> None:
        """See :class:`~simbookie.world.tcp_socket.Middlebox`."""
        if len(self._data) > self._passed:
            self._pass_begun()
        self._end = finish
        self._finish()

    def _pass_begun(self) -> None:
        begun, self._passed = bytes(self._data[self._passed :]), len(self._data)
        self._sender.launch(begun)

    def _judge(self, frame: bytes) -> None:
        message = self._read(frame)
        action = None
        if message is not None:
            action = self._network.intercepted(self._sender.link, message, lambda: self._release(frame))
        if action is Fate.HOLD or isinstance(action, Delay):
            self._held += 1
            if isinstance(action, Delay):
                network = self._network
                network.loop.call_later(action.seconds, self._release, frame, context=network.context)
        elif action is not Fate.DROP:
            copies = action.copies if isinstance(action, Duplicate) else 0
            for _ in range(1 + copies):
                self._sender.launch(frame)

    def _release(self, frame: bytes) -> None:
        self._held -= 1
        self._due.append(frame)
        self._insert_due()

    def _insert_due(self) -> None:
        if not self._passed:
            due, self._due = self._due, []
            for frame in due:
                self._sender.launch(frame)
            self._finish()

    def _finish(self) -> None:
        if self._end is not None and not self._held and not self._due:
            finish, self._end = self._end, None
            finish()

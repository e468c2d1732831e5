"""Targeted faults on streams: what looks into the bytes between clients and bookies, and picks single requests and answers.

Scenarios point at messages: "the add of entry 5 to b2" (:meth:`simbookie.world.network.Network.intercept`). Over streams one
is a frame, which a :class:`FrameFilter` on each direction of a connection cuts out of the stream: it is dropped, held back,
delayed or repeated as a whole, so that what remains is a stream of frames, as of a peer that never sent it, or sent it later.

Nothing is repeated on a connection of version 2. TCP repeats no frame, and an answer of that version names only the ids of ledger
and entry, so that a client has to take the answer to a copy for that to its next request with the same ids.

As long as no interception is in force, bytes pass as they come, and only boundaries are kept. Else whole frames are waited for.
The end of a stream waits for frames that are held back.

Frames are decoded when an interception looks at them; those of requests are remembered, so that answers can be told by what they
answer. Chance, and interceptions at arrival, are no business of filters: what TCP makes of loss is in
:mod:`simbookie.world.tcp_socket`.

Where the bytes come from and go to is a filter's :class:`FrameWay`: a simulated socket, or a proxy between processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from bkclient.errors import BookKeeperError
from bkclient.wire import v2, v3
from bkclient.wire.errors import WireError
from bkclient.wire.framing import PREFIX_SIZE
from bkclient.wire.messages import Request
from bkclient.wire.server_connection import ServerConnection
from simbookie.world.calls import RequestMessage, ResponseMessage
from simbookie.world.faults import Action, Delay, Duplicate, Fate, Interrupt

if TYPE_CHECKING:
    from simbookie.world.network import Network
    from simbookie.world.tcp_socket import Socket

__all__ = ["FrameFilter", "FrameWay", "filter_frames", "filters_between"]

#: So many bytes of the latest requests of a connection are remembered for the sake of their answers, and at most twice as many.
_REMEMBERED_BYTES_MAX: Final = 16 * 1024 * 1024


def filter_frames(client: Socket, server: Socket, network: Network) -> None:
    """Look into both directions of a connection between a client and a bookie."""
    client.middlebox, server.middlebox = filters_between(_SocketWay(client, network), _SocketWay(server, network))


def filters_between(to: FrameWay, back: FrameWay) -> tuple[FrameFilter, FrameFilter]:
    """What looks into the requests that go one way over a connection, and into the answers that come back."""
    requests = _Requests()
    return (
        FrameFilter(to, requests.remember, lambda _frame: requests.newest(), requests.have_numbers),
        FrameFilter(back, lambda _frame: None, requests.answer_of, requests.have_numbers),
    )


class FrameWay(Protocol):
    """Where one direction of a connection leads, and what is to become of single frames."""

    @property
    def is_intercepting(self) -> bool:
        """Whether anything may be picked."""
        ...

    def intercepted(self, message: object, send_on: Callable[[], None]) -> Action | None:
        """The action for a message, if one is meant for it; ``send_on`` releases one that is held."""
        ...

    def launch(self, data: bytes) -> None:
        """Let bytes travel on."""
        ...

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call ``action`` in ``delay_s`` seconds."""
        ...


class _SocketWay:
    """The way from a simulated socket to its peer."""

    def __init__(self, sender: Socket, network: Network) -> None:
        self._sender = sender
        self._network = network
        self.launch = sender.launch

    @property
    def is_intercepting(self) -> bool:
        """See :class:`FrameWay`."""
        return self._network.is_intercepting

    def intercepted(self, message: object, send_on: Callable[[], None]) -> Action | None:
        """See there."""
        return self._network.intercepted(self._sender.link, message, send_on)

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """See there."""
        self._network.loop.call_later(delay_s, action, context=self._network.context)


class _Requests:
    """The requests of one connection."""

    def __init__(self) -> None:
        self._wire = ServerConnection()
        self._unread: list[bytes] = []
        self._size = 0
        self._by_match: dict[bytes, Request] = {}
        self._older: dict[bytes, Request] = {}

    def remember(self, frame: bytes) -> None:
        """Keep a frame that passed, undecoded until it is asked for."""
        self._size += len(frame)
        if self._size > _REMEMBERED_BYTES_MAX:
            self._read()
            self._size = 0
            self._older, self._by_match = self._by_match, {}
        self._unread.append(frame)

    def have_numbers(self) -> bool:
        """Whether answers name the request that they answer."""
        return self._wire.protocol_version == 3

    def newest(self) -> RequestMessage | None:
        """The request in the frame that was remembered last."""
        request = self._read()
        return None if request is None else RequestMessage(0, request)

    def answer_of(self, frame: bytes) -> ResponseMessage | None:
        """The answer in a frame, with what it answers."""
        self._read()
        dialect = v3 if self.have_numbers() else v2
        try:
            match, response = dialect.decode_response(frame[PREFIX_SIZE:])
        except WireError:
            return None
        request = self._by_match.get(match) or self._older.get(match)
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
        way: FrameWay,
        remember: Callable[[bytes], None],
        read: Callable[[bytes], RequestMessage | ResponseMessage | None],
        have_numbers: Callable[[], bool],
    ) -> None:
        self._way = way
        self._remember = remember
        self._read = read
        self._have_numbers = have_numbers
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
            if self._passed or not self._way.is_intercepting:
                rest, self._passed = frame[self._passed :], 0
                self._way.launch(rest)
            else:
                self._judge(frame)
            self._insert_due()
        if self._data and (self._passed or not self._way.is_intercepting):
            self._pass_begun()

    def end(self, finish: Callable[[], None]) -> None:
        """See :class:`~simbookie.world.tcp_socket.Middlebox`."""
        if len(self._data) > self._passed:
            self._pass_begun()
        self._end = finish
        self._finish()

    def _pass_begun(self) -> None:
        begun, self._passed = bytes(self._data[self._passed :]), len(self._data)
        self._way.launch(begun)

    def _judge(self, frame: bytes) -> None:
        message = self._read(frame)
        action = None
        if message is not None:
            action = self._way.intercepted(message, lambda: self._release(frame))
        if action is Fate.HOLD or isinstance(action, Delay):
            self._held += 1
            if isinstance(action, Delay):
                self._way.later(action.seconds, lambda: self._release(frame))
        elif isinstance(action, Interrupt):
            self._data.clear()
            action.act()
        elif action is not Fate.DROP:
            copies = action.copies if isinstance(action, Duplicate) and self._have_numbers() else 0
            for _ in range(1 + copies):
                self._way.launch(frame)

    def _release(self, frame: bytes) -> None:
        self._held -= 1
        self._due.append(frame)
        self._insert_due()

    def _insert_due(self) -> None:
        if not self._passed:
            due, self._due = self._due, []
            for frame in due:
                self._way.launch(frame)
            self._finish()

    def _finish(self) -> None:
        if self._end is not None and not self._held and not self._due:
            finish, self._end = self._end, None
            finish()

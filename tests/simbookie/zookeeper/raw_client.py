"""A ZooKeeper session spoken by hand: every frame is seen, in the order in which it comes.

Requests and replies are written and read by kazoo's codec, which knows nothing of ours. What differs between two servers for good
reasons is made equal: transaction numbers count from where a conversation begins, sessions have names, times are left out, and
children are sorted.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from kazoo.protocol import serialization as codec
from kazoo.protocol.states import ZnodeStat

__all__ = ["Event", "Names", "RawSession", "Reply"]

PATIENCE_S = 20
EVENT_XID, PING_XID, AUTH_XID = -1, -2, -4
PING = 11


@dataclass(frozen=True)
class Event:
    """An event, with the number of its transaction; -1 where it was missed and is told later."""

    zxid: int
    kind: int
    state: int
    path: str


@dataclass(frozen=True)
class Reply:
    """A reply: its transaction, error and content; ``None`` instead of all if the server closed the connection."""

    zxid: int
    code: int
    body: object = None


@dataclass
class Names:
    """What numbers are called in both conversations."""

    start: int = 0
    sessions: dict[int, str] = field(default_factory=dict)

    def zxid(self, number: int) -> int:
        return number if number <= self.start else number - self.start

    def clean(self, value: Any) -> Any:
        """``value`` as it can be compared."""
        if isinstance(value, ZnodeStat):
            return {
                "czxid": self.zxid(value.czxid),
                "mzxid": self.zxid(value.mzxid),
                "pzxid": self.zxid(value.pzxid),
                "versions": (value.version, value.cversion, value.aversion),
                "owner": self.sessions.get(value.ephemeralOwner, value.ephemeralOwner),
                "sizes": (value.dataLength, value.numChildren),
                "has_its_time": value.ctime <= value.mtime,
            }
        if isinstance(value, Mapping):
            return {key: self.clean(part) for key, part in value.items()}
        if isinstance(value, tuple):
            return tuple(self.clean(part) for part in value)
        if isinstance(value, list):
            return [self.clean(part) for part in value]
        if isinstance(value, Exception):
            return type(value).__name__
        return value


def read_multi(frame: bytes, offset: int) -> list[object]:
    """The results of a transaction with their kinds; kazoo's own reader does not know creations that tell the state."""
    results: list[object] = []
    while True:
        header, offset = codec.MultiHeader.deserialize(frame, offset)
        if header.done:
            assert offset == len(frame)
            return results
        parts: list[object] = [header.type, header.err]
        if header.type in (codec.Create.type, codec.Create2.type):
            path, offset = codec.read_string(frame, offset)
            parts.append(path)
        if header.type in (codec.Create2.type, codec.SetData.type):
            parts.append(ZnodeStat._make(codec.stat_struct.unpack_from(frame, offset)))
            offset += codec.stat_struct.size
        if header.type == -1:
            parts.append(codec.int_struct.unpack_from(frame, offset)[0])
            offset += codec.int_struct.size
        results.append(tuple(parts))


class RawSession:
    """One session; not more than one request is under way."""

    def __init__(self, port: int, names: Names, name: str, timeout_ms: int = 20_000) -> None:
        self._port = port
        self._names = names
        self.name = name
        self._timeout_ms = timeout_ms
        self.session_id = 0
        self.password = bytes(16)
        self._socket: socket.socket | None = None
        self._xid = 0
        self.last_zxid = 0
        self.events: list[Event] = []

    def connect(self) -> bool:
        """Open the session or come back to it; whether the server knows it."""
        self.drop()
        self._socket = socket.create_connection(("127.0.0.1", self._port), PATIENCE_S)
        self._socket.settimeout(PATIENCE_S)
        request = codec.Connect(0, self.last_zxid, self._timeout_ms, self.session_id, self.password, read_only=False)
        self._send(bytes(request.serialize()))
        answer = self._receive()
        if answer is None:
            return False
        told, _ = codec.Connect.deserialize(answer, 0)
        if told.session_id == 0:
            return False
        self.session_id, self.password = told.session_id, told.passwd
        self._names.sessions[self.session_id] = self.name
        return True

    def drop(self) -> None:
        """Break the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ping(self) -> Reply | None:
        """A round trip, which brings all events that happened before."""
        self._send(struct.pack("!ii", PING_XID, PING))
        return self._reply(PING_XID, None)

    def ends(self) -> bool:
        """Whether the server closes the connection and sends nothing more before."""
        is_over = self._receive() is None
        if is_over:
            self.drop()
        return is_over

    def ask(self, request: Any) -> Reply | None:
        """Make one of kazoo's requests and wait for its reply; ``None`` if the connection ends instead."""
        return self.ask_bytes(request.type, bytes(request.serialize()), getattr(request, "answered_as", type(request)))

    def ask_bytes(self, op: int, body: bytes, kind: Any = None) -> Reply | None:
        """Make a request of any bytes."""
        self._xid += 1
        xid = AUTH_XID if op == codec.Auth.type else self._xid
        self._send(struct.pack("!ii", xid, op) + body)
        return self._reply(xid, kind)

    def _reply(self, xid: int, kind: Any) -> Reply | None:
        while True:
            frame = self._receive()
            if frame is None:
                self.drop()
                return None
            header, offset = codec.ReplyHeader.deserialize(frame, 0)
            if header.xid == EVENT_XID:
                event, _ = codec.Watch.deserialize(frame, offset)
                zxid = header.zxid if header.zxid == -1 else self._names.zxid(header.zxid)
                self.events.append(Event(zxid, event.type, event.state, event.path))
                continue
            assert header.xid == xid, f"a reply to {header.xid} where {xid} was asked"
            self.last_zxid = max(self.last_zxid, header.zxid)
            return Reply(self._names.zxid(header.zxid), header.err, self._body(frame, offset, header.err, kind))

    def _body(self, frame: bytes, offset: int, code: int, kind: Any) -> object:
        if code or kind is None or not hasattr(kind, "deserialize"):
            return frame[offset:]
        value: Any = read_multi(frame, offset) if kind is codec.Transaction else kind.deserialize(frame, offset)
        if kind is codec.GetChildren:
            value = sorted(value)
        elif kind is codec.GetChildren2:
            value = (sorted(value[0]), value[1])
        return self._names.clean(value)

    def _send(self, record: bytes) -> None:
        if self._socket is not None:
            try:
                self._socket.sendall(struct.pack("!i", len(record)) + record)
            except OSError:
                self.drop()

    def _receive(self) -> bytes | None:
        head = self._exactly(4)
        return None if head is None else self._exactly(struct.unpack("!i", head)[0])

    def _exactly(self, count: int) -> bytes | None:
        data = b""
        while self._socket is not None and len(data) < count:
            try:
                chunk = self._socket.recv(count - len(data))
            except ConnectionError:
                chunk = b""
            if not chunk:
                return None
            data += chunk
        return data if self._socket is not None else None

    def __enter__(self) -> Self:
        assert self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

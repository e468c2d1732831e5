"""The records that clients and server exchange, read and written.

:data:`Request` is everything a client can ask for in a session. :func:`read_request` reads the body of one; the functions
``write_...`` give the bodies of replies. ZooKeeper's ``zookeeper.jute`` defines all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from simbookie.zookeeper.acl import Acl, AclEntry, Identity
from simbookie.zookeeper.codes import (
    CREATE_FLAGS,
    EVENT_XID,
    ConnectionState,
    CreateMode,
    ErrorCode,
    EventType,
    OpCode,
)
from simbookie.zookeeper.jute import JuteError, JuteReader, JuteWriter, framed

__all__ = [
    "Check",
    "ConnectRequest",
    "Create",
    "Delete",
    "EventFrame",
    "Multi",
    "OpResult",
    "PathRequest",
    "Request",
    "SetAcl",
    "SetData",
    "SetWatches",
    "Stat",
    "WatchRequest",
    "read_auth",
    "read_request",
    "write_acl",
    "write_connect_response",
    "write_event",
    "write_identities",
    "write_multi",
    "write_reply",
]

PASSWORD_SIZE: Final = 16
_ACL_ENTRY_SIZE_MIN: Final = 12


class ConnectRequest(NamedTuple):
    """The first record of a connection; ``timeout_ms`` is what the client wishes for, session 0 a new one.

    ``knows_read_only`` tells that the client sent, and waits for, the last field, which old clients do not know.
    """

    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes
    knows_read_only: bool

    def __repr__(self) -> str:
        return f"ConnectRequest(session_id={self.session_id}, timeout_ms={self.timeout_ms})"

    @classmethod
    def read(cls, record: bytes) -> ConnectRequest:
        """Read it; :class:`~simbookie.zookeeper.jute.JuteError` if it is none."""
        reader = JuteReader(record)
        reader.int32()  # protocol version, always 0
        zxid, timeout_ms, session_id = reader.int64(), reader.int32(), reader.int64()
        return cls(zxid, timeout_ms, session_id, reader.buffer() or b"", knows_read_only=reader.remaining > 0)


def write_connect_response(request: ConnectRequest, timeout_ms: int, session_id: int, password: bytes) -> bytes:
    """The answer, as a frame; a session id of 0 says that the session is not known any more."""
    writer = JuteWriter().int32(0).int32(timeout_ms).int64(session_id).buffer(password)
    if request.knows_read_only:
        writer.byte(0)
    return framed(writer.data)


class Stat(NamedTuple):
    """What is told of a znode, in the order in which it is told."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int

    def write(self, writer: JuteWriter) -> None:
        """Append it to a record."""
        writer.int64(self.czxid).int64(self.mzxid).int64(self.ctime).int64(self.mtime)
        writer.int32(self.version).int32(self.cversion).int32(self.aversion).int64(self.ephemeral_owner)
        writer.int32(self.data_length).int32(self.num_children).int64(self.pzxid)


# ---- requests -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Create:
    """CREATE, CREATE2 or CREATE_CONTAINER."""

    op: OpCode
    path: str
    data: bytes | None = field(repr=False)
    acl: tuple[AclEntry, ...]
    flags: int


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE; version -1 is any."""

    path: str
    version: int
    op: OpCode = OpCode.DELETE


@dataclass(frozen=True, slots=True)
class SetData:
    """SET_DATA; version -1 is any."""

    path: str
    data: bytes | None = field(repr=False)
    version: int
    op: OpCode = OpCode.SET_DATA


@dataclass(frozen=True, slots=True)
class SetAcl:
    """SET_ACL; the version is that of the list, -1 is any."""

    path: str
    acl: tuple[AclEntry, ...]
    version: int
    op: OpCode = OpCode.SET_ACL


@dataclass(frozen=True, slots=True)
class Check:
    """CHECK, mostly in a MULTI; version -1 is any."""

    path: str
    version: int
    op: OpCode = OpCode.CHECK


@dataclass(frozen=True, slots=True)
class PathRequest:
    """Every request that is a path and perhaps the wish to be told of its next change."""

    op: OpCode
    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """ADD_WATCH, CHECK_WATCHES or REMOVE_WATCHES; ``kind`` is a mode for the first and a type for the others."""

    op: OpCode
    path: str
    kind: int


@dataclass(frozen=True, slots=True)
class SetWatches:
    """SET_WATCHES or SET_WATCHES2: what a client that comes back watched, and up to which transaction it knows."""

    op: OpCode
    relative_zxid: int
    data: list[str]
    exist: list[str]
    children: list[str]
    persistent: list[str]
    recursive: list[str]


@dataclass(frozen=True, slots=True)
class Multi:
    """MULTI or MULTI_READ."""

    op: OpCode
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class BareRequest:
    """PING, CLOSE_SESSION or WHO_AM_I, which have no body."""

    op: OpCode


Request = Create | Delete | SetData | SetAcl | Check | PathRequest | WatchRequest | SetWatches | Multi | BareRequest


def read_request(op: OpCode, reader: JuteReader) -> Request | None:
    """The body of a request, ``None`` for one that is not served; ``JuteError`` if the bytes are not one."""
    read = _READERS.get(op)
    return None if read is None else read(op, reader)


def _read_acl(reader: JuteReader) -> tuple[AclEntry, ...]:
    def entry() -> AclEntry:
        permissions = reader.int32()
        return AclEntry(permissions, Identity(reader.text(), reader.text()))

    return tuple(reader.vector(entry, item_size_min=_ACL_ENTRY_SIZE_MIN))


def _read_create(op: OpCode, reader: JuteReader) -> Create:
    return Create(op, reader.text(), reader.buffer(), _read_acl(reader), reader.int32())


def _read_watches(op: OpCode, reader: JuteReader) -> SetWatches:
    zxid, data, exist, children = reader.int64(), reader.texts(), reader.texts(), reader.texts()
    if op is OpCode.SET_WATCHES:
        return SetWatches(op, zxid, data, exist, children, [], [])
    return SetWatches(op, zxid, data, exist, children, reader.texts(), reader.texts())


def _read_multi(op: OpCode, reader: JuteReader) -> Multi:
    allowed = _MULTI_WRITES if op is OpCode.MULTI else _MULTI_READS
    requests: list[Request] = []
    while True:
        kind, is_done, _ = reader.int32(), reader.boolean(), reader.int32()
        if is_done:
            return Multi(op, tuple(requests))
        if kind not in allowed:
            raise JuteError(f"operation {kind} has no place in a {op.name}")
        request = _READERS[OpCode(kind)](OpCode(kind), reader)
        if isinstance(request, Create):
            if request.flags not in CREATE_FLAGS:
                raise JuteError(
                    f"a {op.name} creates with the flags {request.flags}"
                )  # alone it is judged later, and milder
            if request.flags == CreateMode.CONTAINER:  # alone it makes an ordinary znode
                request = replace(request, op=OpCode.CREATE_CONTAINER)
        requests.append(request)


def _read_path(op: OpCode, reader: JuteReader) -> PathRequest:
    return PathRequest(op, reader.text())


def _read_watched_path(op: OpCode, reader: JuteReader) -> PathRequest:
    return PathRequest(op, reader.text(), reader.boolean())


def _read_bare(op: OpCode, _: JuteReader) -> BareRequest:
    return BareRequest(op)


_MULTI_WRITES: Final = frozenset(
    {OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.DELETE, OpCode.SET_DATA, OpCode.CHECK}
)
_MULTI_READS: Final = frozenset({OpCode.GET_DATA, OpCode.GET_CHILDREN})

_READERS: Final[dict[OpCode, Callable[[OpCode, JuteReader], Request]]] = {
    OpCode.CREATE: _read_create,
    OpCode.CREATE2: _read_create,
    OpCode.CREATE_CONTAINER: _read_create,
    OpCode.DELETE: lambda _, reader: Delete(reader.text(), reader.int32()),
    OpCode.SET_DATA: lambda _, reader: SetData(reader.text(), reader.buffer(), reader.int32()),
    OpCode.SET_ACL: lambda _, reader: SetAcl(reader.text(), _read_acl(reader), reader.int32()),
    OpCode.CHECK: lambda _, reader: Check(reader.text(), reader.int32()),
    OpCode.EXISTS: _read_watched_path,
    OpCode.GET_DATA: _read_watched_path,
    OpCode.GET_CHILDREN: _read_watched_path,
    OpCode.GET_CHILDREN2: _read_watched_path,
    OpCode.GET_ACL: _read_path,
    OpCode.SYNC: _read_path,
    OpCode.GET_EPHEMERALS: _read_path,
    OpCode.GET_ALL_CHILDREN_NUMBER: _read_path,
    OpCode.ADD_WATCH: lambda op, reader: WatchRequest(op, reader.text(), reader.int32()),
    OpCode.CHECK_WATCHES: lambda op, reader: WatchRequest(op, reader.text(), reader.int32()),
    OpCode.REMOVE_WATCHES: lambda op, reader: WatchRequest(op, reader.text(), reader.int32()),
    OpCode.SET_WATCHES: _read_watches,
    OpCode.SET_WATCHES2: _read_watches,
    OpCode.MULTI: _read_multi,
    OpCode.MULTI_READ: _read_multi,
    OpCode.PING: _read_bare,
    OpCode.CLOSE_SESSION: _read_bare,
    OpCode.WHO_AM_I: _read_bare,
}


def read_auth(reader: JuteReader) -> tuple[str, bytes]:
    """Scheme and credentials of an AUTH request."""
    reader.int32()  # a type that is not used
    return reader.text(), reader.buffer() or b""


# ---- replies ------------------------------------------------------------------------------------------------------------


def write_reply(xid: int, zxid: int, code: int, body: bytes | bytearray = b"") -> bytes:
    """A reply, as a frame."""
    return framed(JuteWriter().int32(xid).int64(zxid).int32(code).data + body)


class EventFrame(NamedTuple):
    """An event as clients are told it; ``zxid`` is the transaction that caused it."""

    zxid: int
    kind: EventType
    path: str


def write_event(event: EventFrame) -> bytes:
    """An event, as a frame."""
    body = JuteWriter().int32(event.kind).int32(ConnectionState.SYNC_CONNECTED).text(event.path)
    return write_reply(EVENT_XID, event.zxid, ErrorCode.OK, body.data)


def write_acl(acl: Acl, stat: Stat) -> bytearray:
    """The body that answers GET_ACL."""
    writer = JuteWriter().int32(len(acl))
    for permissions, identity in acl:
        writer.int32(permissions).text(identity.scheme).text(identity.id)
    stat.write(writer)
    return writer.data


def write_identities(identities: Iterable[Identity]) -> bytearray:
    """The body that answers WHO_AM_I: schemes with users, without proofs."""
    known = list(identities)
    writer = JuteWriter().int32(len(known))
    for scheme, name in known:
        writer.text(scheme).text(name.partition(":")[0] if scheme == "digest" else name)
    return writer.data


class OpResult(NamedTuple):
    """What became of one operation of a MULTI: its kind and the body of its answer, or an error."""

    op: OpCode
    body: bytes | bytearray = b""
    code: ErrorCode = ErrorCode.OK

    def __repr__(self) -> str:
        return f"OpResult({self.op!r}, {len(self.body)} bytes, {self.code!r})"


def write_multi(results: Iterable[OpResult]) -> bytearray:
    """The body that answers MULTI and MULTI_READ."""
    writer = JuteWriter()
    for op, body, code in results:
        writer.int32(op).byte(0).int32(code)
        writer.data += JuteWriter().int32(code).data if op is OpCode.ERROR else body
    return writer.int32(-1).byte(1).int32(-1).data

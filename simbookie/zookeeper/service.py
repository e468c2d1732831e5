"""What a ZooKeeper server does with requests: one synchronous object behind all connections.

A connection is a :class:`Client` here: something that is sent frames and can be ended. Requests are carried out one after the
other, each as a whole, so all clients see one order of changes. An event is sent before the reply of the request that caused it
and before every later reply; that is the order clients rely on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from simbookie.zookeeper.acl import Identity, Permission, digest_identity, permits
from simbookie.zookeeper.codes import (
    AUTH_XID,
    NO_ZXID,
    ErrorCode,
    EventType,
    OpCode,
    WatcherType,
    WatchMode,
    ZooKeeperError,
)
from simbookie.zookeeper.jute import JuteError, JuteReader, JuteWriter
from simbookie.zookeeper.messages import (
    BareRequest,
    Check,
    ConnectRequest,
    Create,
    Delete,
    EventFrame,
    Multi,
    OpResult,
    PathRequest,
    Request,
    SetAcl,
    SetData,
    SetWatches,
    Stat,
    WatchRequest,
    read_auth,
    read_request,
    write_acl,
    write_connect_response,
    write_event,
    write_identities,
    write_multi,
    write_reply,
)
from simbookie.zookeeper.sessions import Session, SessionTable
from simbookie.zookeeper.tree import Transaction, ZnodeTree
from simbookie.zookeeper.watches import Watches

__all__ = ["Client", "Limits", "RequestListener", "ZooKeeperService"]

_IDENTITIES_MAX: Final = 16
_CREDENTIALS_SIZE_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server keeps at most; times in seconds, sizes in bytes.

    A request that would keep more ends with QUOTA_EXCEEDED; a session too many is refused by closing the connection.
    """

    sessions_max: int = 10_000
    session_timeout_min_s: float = 0.4
    session_timeout_max_s: float = 100.0
    znodes_max: int = 200_000
    bytes_max: int = 256 << 20
    path_size_max: int = 4096
    watches_max: int = 200_000
    watches_per_client_max: int = 50_000


class Client(Protocol):
    """A connection, as the service sees it; compared by identity."""

    session: Session | None
    identities: tuple[Identity, ...]
    source: str

    def send(self, frame: bytes) -> None:
        """Send a frame, after those sent before."""

    def notify(self, frame: bytes) -> None:
        """Send a frame that the client did not ask for."""

    def end(self) -> None:
        """Send what was given to be sent, then close the connection."""


RequestListener = Callable[[Client, Request, ErrorCode], object]
"""``(client, request, code)``: the service has carried the request out, or refused it. Must not raise or call back."""


class ZooKeeperService:
    """The state of a server and everything that happens to it.

    ``now`` is the clock of sessions, ``wall_clock`` the time of day, both in seconds. The number of the first transaction and
    the id of the first session come from the time of day. So the clients of a server that was here before and is gone learn that
    their sessions are gone, too; a server with lower numbers than theirs they would take for one that lags behind.

    ``on_request`` hears of every request that could be read, before the reply to it is sent.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        wall_clock: Callable[[], float],
        random_bytes: Callable[[int], bytes],
        limits: Limits,
    ) -> None:
        self._now = now
        self._wall_clock = wall_clock
        self._limits = limits
        started = int(wall_clock())
        self.zxid = (started & 0x7FFF_FFFF) << 32
        self.tree = ZnodeTree(znodes_max=limits.znodes_max, bytes_max=limits.bytes_max)
        self.sessions = SessionTable(
            first_id=(started & 0x7FFF_FFFF) << 24 | 1,
            random_bytes=random_bytes,
            sessions_max=limits.sessions_max,
            timeout_min_s=limits.session_timeout_min_s,
            timeout_max_s=limits.session_timeout_max_s,
        )
        self.on_request: RequestListener | None = None
        self._clients: dict[int, Client] = {}
        self.watches: Watches[Client] = Watches(
            size_max=limits.watches_max, size_per_watcher_max=limits.watches_per_client_max
        )

    # ---- connections and sessions -----------------------------------------------------------------------------------------

    def connect(self, client: Client, record: bytes) -> bool:
        """Carry out a connection's first record; whether it has a session now. ``JuteError`` if it is none."""
        request = ConnectRequest.read(record)
        if request.last_zxid_seen > self.zxid:
            return False  # as a server that lags behind: the client has to look for another
        if request.session_id == 0:
            session = self.sessions.open(request.timeout_ms, self._now())
            if session is None:
                return False
            self.zxid += 1
        else:
            session = self.sessions.reopen(request.session_id, request.password, request.timeout_ms, self._now())
        if session is None:
            client.send(write_connect_response(request, 0, 0, bytes(16)))
            return False
        former = self._clients.get(session.session_id)
        if former is not None:
            self.disconnect(former)
            former.end()
        self._clients[session.session_id] = client
        client.session = session
        client.send(write_connect_response(request, session.timeout_ms, session.session_id, session.password))
        return True

    def disconnect(self, client: Client) -> None:
        """Forget a connection; its session goes on. Idempotent."""
        self.watches.remove_watcher(client)
        if client.session is not None and self._clients.get(client.session.session_id) is client:
            del self._clients[client.session.session_id]
        client.session = None

    def expire(self) -> float | None:
        """End the sessions whose time is up; when to look again, ``None`` if there are no others."""
        for session in self.sessions.expired(self._now()):
            self._end_session(session)
            client = self._clients.get(session.session_id)
            if client is not None:
                self.disconnect(client)
                client.end()
        return self.sessions.next_deadline()

    def end_sessions(self, is_meant: Callable[[Client], bool]) -> int:
        """End the sessions of connected clients at once, as if they had expired; returns how many those are."""
        meant = [client for client in self._clients.values() if is_meant(client)]
        for client in meant:
            if client.session is not None:
                self._end_session(client.session)
            self.disconnect(client)
            client.end()
        return len(meant)

    def renew_sessions(self) -> None:
        """Give every session its full time again, as after a pause in which no client could be heard."""
        for session in self.sessions:
            session.touch(self._now())

    def remove_empty_containers(self) -> None:
        """Remove containers whose children are all gone, which servers do from time to time."""
        for path in self.tree.empty_containers():
            txn = self._transaction(0, ())
            self.tree.delete_container(txn, path)
            self._publish(txn)

    def _end_session(self, session: Session) -> None:
        self.sessions.close(session)
        txn = self._transaction(session.session_id, ())
        self.tree.end_session(txn)
        self._publish(txn)

    # ---- requests -----------------------------------------------------------------------------------------------------------

    def handle(self, client: Client, record: bytes) -> None:
        """Carry out one request of a client with a session. ``JuteError`` if the record has not even a header."""
        session = client.session
        assert session is not None, "a client without a session makes no requests"
        session.touch(self._now())
        reader = JuteReader(record)
        xid, number = reader.int32(), reader.int32()
        try:
            op = OpCode(number)
        except ValueError:
            client.send(write_reply(xid, NO_ZXID, ErrorCode.UNIMPLEMENTED))
            client.end()
            return
        if op is OpCode.AUTH:
            self._authenticate(client, reader)
            return
        body: bytes | bytearray = b""
        code, request = ErrorCode.OK, None
        try:
            request = read_request(op, reader)
            if request is None:
                code = ErrorCode.UNIMPLEMENTED
            else:
                body = self._carry_out(client, session, request)
        except JuteError:
            code = ErrorCode.MARSHALLING_ERROR
            self.zxid += op is OpCode.MULTI  # as ZooKeeper, which gives these a number before it reads them
        except ZooKeeperError as error:
            code = error.code
        if self.on_request is not None and request is not None:
            self.on_request(client, request, code)
        client.send(write_reply(xid, self.zxid, code, body))
        if op is OpCode.CLOSE_SESSION:
            self.disconnect(client)
            client.end()

    def _authenticate(self, client: Client, reader: JuteReader) -> None:
        scheme, credentials = read_auth(reader)
        is_known = scheme == "digest" and len(credentials) <= _CREDENTIALS_SIZE_MAX
        if scheme == "ip":  # proven by being connected
            is_known, identities = True, client.identities
        elif is_known:
            identities = tuple(dict.fromkeys((*client.identities, digest_identity(credentials))))
        else:
            identities = ()
        if not is_known or len(identities) > _IDENTITIES_MAX:
            client.send(write_reply(AUTH_XID, 0, ErrorCode.AUTH_FAILED))
            client.end()
            return
        client.identities = identities
        client.send(write_reply(AUTH_XID, 0, ErrorCode.OK))

    def _carry_out(self, client: Client, session: Session, request: Request) -> bytes | bytearray:
        match request:
            case Create() | Delete() | SetData() | SetAcl() | Check():
                return self._write(client, session, request)
            case Multi(op=OpCode.MULTI):
                return self._write_all(client, session, request)
            case Multi():
                return write_multi(self._read_in_multi(client, part) for part in request.requests)
            case PathRequest():
                self._check_size(request.path)
                return self._read(client, session, request)
            case SetWatches():
                self._set_watches(client, request)
            case WatchRequest():
                self._check_size(request.path)
                return self._change_watches(client, request)
            case BareRequest(op=OpCode.WHO_AM_I):
                return write_identities(client.identities)
            case BareRequest(op=OpCode.CLOSE_SESSION):
                self._end_session(session)
            case BareRequest():
                pass
        return b""

    def _check_size(self, *paths: str) -> None:
        if any(len(path) > self._limits.path_size_max for path in paths):
            raise ZooKeeperError(ErrorCode.BAD_ARGUMENTS)

    # ---- writing ------------------------------------------------------------------------------------------------------------

    def _transaction(self, session_id: int, identities: tuple[Identity, ...]) -> Transaction:
        self.zxid += 1
        return Transaction(self.zxid, int(self._wall_clock() * 1000), session_id, identities)

    def _write(self, client: Client, session: Session, request: Request) -> bytes | bytearray:
        txn = self._transaction(session.session_id, client.identities)
        body = self._apply(txn, request).body
        self._publish(txn)
        return body

    def _write_all(self, client: Client, session: Session, request: Multi) -> bytearray:
        txn = self._transaction(session.session_id, client.identities)
        results: list[OpResult] = []
        try:
            for part in request.requests:
                results.append(self._apply(txn, part))  # noqa: PERF401  how many succeeded has to be known when one fails
        except ZooKeeperError as error:
            txn.roll_back()
            failed, count = len(results), len(request.requests)
            codes = [ErrorCode.OK] * failed + [error.code] + [ErrorCode.RUNTIME_INCONSISTENCY] * (count - failed - 1)
            return write_multi(OpResult(OpCode.ERROR, code=code) for code in codes)
        self._publish(txn)
        return write_multi(results)

    def _apply(self, txn: Transaction, request: Request) -> OpResult:
        match request:
            case Create(op, path, data, acl, flags):
                self._check_size(path)
                name = self.tree.create(txn, path, data, acl, flags, is_container=op is OpCode.CREATE_CONTAINER)
                writer = JuteWriter().text(name)
                if op is OpCode.CREATE:
                    return OpResult(op, writer.data)
                self.tree.stat(name).write(writer)
                return OpResult(OpCode.CREATE2, writer.data)
            case Delete(path, version):
                self.tree.delete(txn, path, version)
                return OpResult(OpCode.DELETE)
            case SetData(path, data, version):
                return OpResult(OpCode.SET_DATA, _body(self.tree.set_data(txn, path, data, version)))
            case SetAcl(path, acl, version):
                return OpResult(OpCode.SET_ACL, _body(self.tree.set_acl(txn, path, acl, version)))
            case Check(path, version):
                self.tree.check(txn, path, version)
                return OpResult(OpCode.CHECK)
        raise AssertionError(f"{request} changes nothing")

    def _publish(self, txn: Transaction) -> None:
        for kind, path, acl in txn.changes:
            frame = b""
            for watcher in self.watches.fire(kind, path):
                if permits(acl, Permission.READ, watcher.identities):
                    frame = frame or write_event(EventFrame(txn.zxid, kind, path))
                    watcher.notify(frame)

    # ---- reading ------------------------------------------------------------------------------------------------------------

    def _read(self, client: Client, session: Session, request: PathRequest) -> bytes | bytearray:
        path = request.path
        writer = JuteWriter()
        match request.op:
            case OpCode.EXISTS | OpCode.GET_DATA | OpCode.GET_CHILDREN | OpCode.GET_CHILDREN2:
                self._look(client, request, writer)
            case OpCode.GET_ACL:
                return write_acl(*self.tree.acl(path, client.identities))
            case OpCode.SYNC:
                writer.text(path)
            case OpCode.GET_EPHEMERALS:
                writer.texts([own for own in self.tree.ephemerals(session.session_id) if own.startswith(path)])
            case OpCode.GET_ALL_CHILDREN_NUMBER:
                self.tree.readable(path, client.identities)
                writer.int32(self.tree.descendants(path))
        return writer.data

    def _look(self, client: Client, request: PathRequest, writer: JuteWriter) -> None:
        """Read what can be watched, and watch it if that is wanted; only what is absent can be watched without being read."""
        path, op = request.path, request.op
        if op is OpCode.EXISTS and "\0" in path:
            raise ZooKeeperError(ErrorCode.BAD_ARGUMENTS)
        znode = self.tree.find(path)
        if znode is not None:
            self.tree.readable(path, client.identities)
        if request.watch and (znode is not None or op is OpCode.EXISTS):
            is_of_data = op in (OpCode.EXISTS, OpCode.GET_DATA)
            (self.watches.data if is_of_data else self.watches.children).add(path, client)
        if znode is None:
            raise ZooKeeperError(ErrorCode.NO_NODE)
        if op is OpCode.GET_DATA:
            writer.buffer(znode.data)
        elif op is not OpCode.EXISTS:
            writer.texts(list(znode.children))
        if op is not OpCode.GET_CHILDREN:
            znode.stat().write(writer)

    def _read_in_multi(self, client: Client, request: Request) -> OpResult:
        assert isinstance(request, PathRequest), "a MULTI_READ holds reads only"
        try:
            self._check_size(request.path)
            assert client.session is not None, "a client without a session makes no requests"
            return OpResult(request.op, self._read(client, client.session, request))
        except ZooKeeperError as error:
            return OpResult(OpCode.ERROR, code=error.code)

    # ---- watches ------------------------------------------------------------------------------------------------------------

    def _set_watches(self, client: Client, request: SetWatches) -> None:
        """Watch again what a client watched over an earlier connection; what it missed it is told at once."""
        self._check_size(*request.data, *request.exist, *request.children, *request.persistent, *request.recursive)
        for path in request.data:
            znode = self.tree.find(path)
            if znode is None:
                _tell_missed(client, EventType.DELETED, path)
            elif znode.mzxid > request.relative_zxid:
                _tell_missed(client, EventType.DATA_CHANGED, path)
            else:
                self.watches.data.add(path, client)
        for path in request.exist:
            if self.tree.find(path) is not None:
                _tell_missed(client, EventType.CREATED, path)
            else:
                self.watches.data.add(path, client)
        for path in request.children:
            znode = self.tree.find(path)
            if znode is None:
                _tell_missed(client, EventType.DELETED, path)
            elif znode.pzxid > request.relative_zxid:
                _tell_missed(client, EventType.CHILDREN_CHANGED, path)
            else:
                self.watches.children.add(path, client)
        for path in request.persistent:
            self.watches.add_lasting(path, client, WatchMode.PERSISTENT)
        for path in request.recursive:
            self.watches.add_lasting(path, client, WatchMode.PERSISTENT_RECURSIVE)

    def _change_watches(self, client: Client, request: WatchRequest) -> bytes | bytearray:
        try:
            if request.op is OpCode.ADD_WATCH:
                self.watches.add_lasting(request.path, client, WatchMode(request.kind))
                return JuteWriter().int32(ErrorCode.OK).data
            kind = WatcherType(request.kind)
        except ValueError:
            raise ZooKeeperError(ErrorCode.MARSHALLING_ERROR) from None
        change = self.watches.remove if request.op is OpCode.REMOVE_WATCHES else self.watches.has
        if not change(request.path, client, kind):
            raise ZooKeeperError(ErrorCode.NO_WATCHER)
        return b""


def _tell_missed(client: Client, kind: EventType, path: str) -> None:
    client.notify(write_event(EventFrame(NO_ZXID, kind, path)))


def _body(stat: Stat) -> bytearray:
    writer = JuteWriter()
    stat.write(writer)
    return writer.data

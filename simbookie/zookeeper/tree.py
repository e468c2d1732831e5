"""The tree of znodes: what every request does to it, and what it refuses, without sessions, connections and clocks.

Changes are made in a *transaction*, which has the number and the time that they get, notes the events that they cause and can
be taken back as a whole; a refused operation has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from simbookie.zookeeper.acl import OPEN_ACL, READ_ONLY_ACL, Acl, AclEntry, Identity, Permission, checked_acl, permits
from simbookie.zookeeper.codes import CreateMode, ErrorCode, EventType, ZooKeeperError
from simbookie.zookeeper.messages import Stat

__all__ = ["Change", "Transaction", "ZnodeTree", "check_path"]

_ROOT: Final = "/"
_RESERVED: Final = ("/zookeeper", "/zookeeper/config", "/zookeeper/quota")
_ANY_VERSION: Final = -1


class Znode:
    """One znode. ``creates`` counts the children ever created; what clients see as ``cversion`` follows from it."""

    __slots__ = (
        "acl", "aversion", "children", "creates", "ctime", "czxid", "data", "is_container", "mtime", "mzxid", "owner", "pzxid",
        "version",
    )  # fmt: skip

    def __init__(self, data: bytes | None, acl: Acl, zxid: int, time_ms: int, owner: int = 0) -> None:
        self.data = data
        self.acl = acl
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = time_ms
        self.version = self.creates = self.aversion = 0
        self.owner = owner
        self.is_container = False
        self.children: dict[str, None] = {}

    def stat(self) -> Stat:
        """What clients are told."""
        count = len(self.children)
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            _as_int(2 * self.creates - count),
            self.aversion,
            self.owner,
            0 if self.data is None else len(self.data),
            count,
            self.pzxid,
        )


class Change(NamedTuple):
    """A change that somebody may watch; ``acl`` is that of the znode, which says who may be told."""

    kind: EventType
    path: str
    acl: Acl


class Transaction:
    """Changes that get one number and one time, by one session with these identities."""

    __slots__ = ("changes", "identities", "session_id", "time_ms", "undo", "zxid")

    def __init__(self, zxid: int, time_ms: int, session_id: int, identities: tuple[Identity, ...] = ()) -> None:
        self.zxid = zxid
        self.time_ms = time_ms
        self.session_id = session_id
        self.identities = identities
        self.changes: list[Change] = []
        self.undo: list[Callable[[], None]] = []

    def roll_back(self) -> None:
        """Take back all changes."""
        self.changes.clear()
        while self.undo:
            self.undo.pop()()


class ZnodeTree:
    """All znodes by path. ``znodes_max`` and ``bytes_max`` (of paths, data and access control lists) bound it."""

    def __init__(self, *, znodes_max: int, bytes_max: int) -> None:
        self._znodes_max = znodes_max
        self._bytes_max = bytes_max
        self._znodes: dict[str, Znode] = {_ROOT: Znode(b"", OPEN_ACL, 0, 0)}
        self._ephemerals: dict[int, dict[str, None]] = {}
        self._containers: dict[str, None] = {}
        for path, acl in zip(_RESERVED, (OPEN_ACL, READ_ONLY_ACL, OPEN_ACL), strict=True):
            self._znodes[path] = Znode(b"", acl, 0, 0)
            self._znodes[_parent(path)].children[_name(path)] = None
        self.bytes = sum(_size(path, znode) for path, znode in self._znodes.items())

    def __len__(self) -> int:
        """How many znodes there are, ZooKeeper's own included."""
        return len(self._znodes)

    # ---- reading --------------------------------------------------------------------------------------------------------

    def find(self, path: str) -> Znode | None:
        """The znode at ``path`` if there is one."""
        return self._znodes.get(path)

    def readable(self, path: str, identities: Iterable[Identity]) -> Znode:
        """The znode at ``path``; NO_NODE without it, NO_AUTH without the right to read it."""
        znode = self._get(path)
        _authorise(znode, Permission.READ, identities)
        return znode

    def stat(self, path: str) -> Stat:
        """What is told of a znode to its creator, who may be unable to read it; NO_NODE without it."""
        return self._get(path).stat()

    def acl(self, path: str, identities: tuple[Identity, ...]) -> tuple[Acl, Stat]:
        """The list of ``path``; who may not change it sees no proofs."""
        znode = self._get(path)
        _authorise(znode, Permission.READ | Permission.ADMIN, identities)
        if permits(znode.acl, Permission.ADMIN, identities):
            return znode.acl, znode.stat()
        return tuple(_without_proof(entry) for entry in znode.acl), znode.stat()

    def ephemerals(self, session_id: int) -> list[str]:
        """The ephemeral znodes of a session, oldest first."""
        return list(self._ephemerals.get(session_id, ()))

    def descendants(self, path: str) -> int:
        """How many znodes are below ``path``."""
        if path == _ROOT:
            return len(self._znodes) - 1
        prefix = f"{path}/"
        return sum(1 for other in self._znodes if other.startswith(prefix))

    def empty_containers(self) -> list[str]:
        """Containers that had children and have none any more."""
        return [path for path in self._containers if self._znodes[path].creates and not self._znodes[path].children]

    # ---- changing -------------------------------------------------------------------------------------------------------

    def create(
        self,
        txn: Transaction,
        path: str,
        data: bytes | None,
        acl: Iterable[AclEntry],
        flags: int,
        *,
        is_container: bool = False,
    ) -> str:
        """Make a znode; its path, which differs from ``path`` if a number was to be appended."""
        try:
            mode = CreateMode(flags)
        except ValueError:
            raise ZooKeeperError(ErrorCode.BAD_ARGUMENTS) from None
        if mode.has_ttl:
            raise ZooKeeperError(ErrorCode.UNIMPLEMENTED)
        if "/" not in path or "\0" in path:
            raise ZooKeeperError(ErrorCode.BAD_ARGUMENTS)
        checked = checked_acl(acl, txn.identities)
        parent_path = _parent(path)
        parent = self._get(parent_path)
        _authorise(parent, Permission.CREATE, txn.identities)
        if mode.is_sequential:
            path = f"{path}{_as_int(parent.creates):010d}"
        check_path(path)
        if path in self._znodes:
            raise ZooKeeperError(ErrorCode.NODE_EXISTS)
        if parent.owner:
            raise ZooKeeperError(ErrorCode.NO_CHILDREN_FOR_EPHEMERALS)
        znode = Znode(data, checked, txn.zxid, txn.time_ms, txn.session_id if mode.is_ephemeral else 0)
        znode.is_container = is_container
        size = _size(path, znode)
        if len(self._znodes) >= self._znodes_max or self.bytes + size > self._bytes_max:
            raise ZooKeeperError(ErrorCode.QUOTA_EXCEEDED)
        before = parent.creates, parent.pzxid
        self._attach(path, parent, znode)
        parent.creates, parent.pzxid = parent.creates + 1, txn.zxid

        def undo() -> None:
            self._detach(path, parent, znode)
            parent.creates, parent.pzxid = before

        txn.undo.append(undo)
        txn.changes += (
            Change(EventType.CREATED, path, checked),
            Change(EventType.CHILDREN_CHANGED, parent_path, parent.acl),
        )
        return path

    def delete(self, txn: Transaction, path: str, version: int = _ANY_VERSION) -> None:
        """Remove a znode that has no children."""
        if "/" not in path or "\0" in path or path in (_ROOT, *_RESERVED):
            raise ZooKeeperError(ErrorCode.BAD_ARGUMENTS)
        parent = self._get(_parent(path))
        _authorise(parent, Permission.DELETE, txn.identities)
        znode = self._get(path)
        _check_version(znode.version, version)
        if znode.children:
            raise ZooKeeperError(ErrorCode.NOT_EMPTY)
        self._remove(txn, path, parent, znode)

    def delete_container(self, txn: Transaction, path: str) -> None:
        """Remove a container without children, whatever its access control list."""
        self._remove(txn, path, self._get(_parent(path)), self._get(path))

    def end_session(self, txn: Transaction) -> None:
        """Remove the ephemeral znodes of the transaction's session, whatever their access control lists."""
        for path in self.ephemerals(txn.session_id):
            self._remove(txn, path, self._znodes[_parent(path)], self._znodes[path])

    def set_data(self, txn: Transaction, path: str, data: bytes | None, version: int) -> Stat:
        """Replace the data of a znode."""
        check_path(path)
        znode = self._get(path)
        _authorise(znode, Permission.WRITE, txn.identities)
        _check_version(znode.version, version)
        before = znode.data, znode.version, znode.mzxid, znode.mtime
        growth = len(data or b"") - len(znode.data or b"")
        if growth > 0 and self.bytes + growth > self._bytes_max:
            raise ZooKeeperError(ErrorCode.QUOTA_EXCEEDED)
        self.bytes += growth
        znode.data, znode.version, znode.mzxid, znode.mtime = data, _next(znode.version), txn.zxid, txn.time_ms

        def undo() -> None:
            self.bytes -= growth
            znode.data, znode.version, znode.mzxid, znode.mtime = before

        txn.undo.append(undo)
        txn.changes.append(Change(EventType.DATA_CHANGED, path, znode.acl))
        return znode.stat()

    def set_acl(self, txn: Transaction, path: str, acl: Iterable[AclEntry], version: int) -> Stat:
        """Replace the access control list of a znode; watches are not told."""
        check_path(path)
        checked = checked_acl(acl, txn.identities)
        znode = self._get(path)
        _authorise(znode, Permission.ADMIN, txn.identities)
        _check_version(znode.aversion, version)
        growth = _acl_size(checked) - _acl_size(znode.acl)
        if growth > 0 and self.bytes + growth > self._bytes_max:
            raise ZooKeeperError(ErrorCode.QUOTA_EXCEEDED)
        self.bytes += growth
        znode.acl, znode.aversion = checked, _next(znode.aversion)
        return znode.stat()

    def check(self, txn: Transaction, path: str, version: int) -> None:
        """Refuse a transaction if the znode is not there in this version."""
        check_path(path)
        _check_version(self.readable(path, txn.identities).version, version)

    # ---- parts ----------------------------------------------------------------------------------------------------------

    def _get(self, path: str) -> Znode:
        znode = self._znodes.get(path)
        if znode is None:
            raise ZooKeeperError(ErrorCode.NO_NODE)
        return znode

    def _attach(self, path: str, parent: Znode, znode: Znode) -> None:
        self._znodes[path] = znode
        parent.children[_name(path)] = None
        self.bytes += _size(path, znode)
        if znode.owner:
            self._ephemerals.setdefault(znode.owner, {})[path] = None
        if znode.is_container:
            self._containers[path] = None

    def _detach(self, path: str, parent: Znode, znode: Znode) -> None:
        del self._znodes[path]
        del parent.children[_name(path)]
        self.bytes -= _size(path, znode)
        if znode.owner:
            mine = self._ephemerals[znode.owner]
            del mine[path]
            if not mine:
                del self._ephemerals[znode.owner]
        self._containers.pop(path, None)

    def _remove(self, txn: Transaction, path: str, parent: Znode, znode: Znode) -> None:
        pzxid = parent.pzxid
        self._detach(path, parent, znode)
        parent.pzxid = txn.zxid

        def undo() -> None:
            self._attach(path, parent, znode)
            parent.pzxid = pzxid

        txn.undo.append(undo)
        txn.changes += (
            Change(EventType.DELETED, path, znode.acl),
            Change(EventType.CHILDREN_CHANGED, _parent(path), parent.acl),
        )


def check_path(path: str) -> None:
    """BAD_ARGUMENTS unless ``path`` can be the path of a znode."""
    if path == _ROOT:
        return
    names = path.split("/")
    if names[0] or not path or any(name in ("", ".", "..") for name in names[1:]) or any(map(_is_forbidden, path)):
        raise ZooKeeperError(ErrorCode.BAD_ARGUMENTS)


def _is_forbidden(character: str) -> bool:
    return (
        character <= "\x1f"
        or "\x7f" <= character <= "\x9f"
        or "\ud800" <= character <= "\uf8ff"
        or character >= "\ufff0"
    )


def _authorise(znode: Znode, permission: Permission, identities: Iterable[Identity]) -> None:
    if not permits(znode.acl, permission, identities):
        raise ZooKeeperError(ErrorCode.NO_AUTH)


def _check_version(version: int, expected: int) -> None:
    if expected not in (_ANY_VERSION, version):
        raise ZooKeeperError(ErrorCode.BAD_VERSION)


def _next(version: int) -> int:
    """The version after ``version``; -1 is left out, because it means any in requests."""
    return _as_int(version + 1) if version != _ANY_VERSION - 1 else 0


def _without_proof(entry: AclEntry) -> AclEntry:
    if entry.identity.scheme != "digest":
        return entry
    user, _, _ = entry.identity.id.partition(":")
    return AclEntry(entry.permissions, Identity("digest", f"{user}:x"))


def _parent(path: str) -> str:
    return path[: path.rfind("/")] or _ROOT


def _name(path: str) -> str:
    return path[path.rfind("/") + 1 :]


def _size(path: str, znode: Znode) -> int:
    return len(path) + len(znode.data or b"") + _acl_size(znode.acl)


def _acl_size(acl: Acl) -> int:
    return 0 if acl is OPEN_ACL else sum(4 + len(entry.identity.scheme) + len(entry.identity.id) for entry in acl)


def _as_int(value: int) -> int:
    """``value`` as Java counts, in 32 bits with a sign."""
    return (value + 2**31) % 2**32 - 2**31

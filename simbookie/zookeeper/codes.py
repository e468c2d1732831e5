"""Numbers of ZooKeeper's client protocol: operations, errors, events, ways to create and to watch."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = [
    "AUTH_XID",
    "CREATE_FLAGS",
    "EVENT_XID",
    "NO_ZXID",
    "ConnectionState",
    "CreateMode",
    "ErrorCode",
    "EventType",
    "OpCode",
    "WatchMode",
    "WatcherType",
    "ZooKeeperError",
]

EVENT_XID: Final = -1
AUTH_XID: Final = -4
NO_ZXID: Final = -1


class OpCode(IntEnum):
    """What a request asks for."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11
    ERROR = -1


class ErrorCode(IntEnum):
    """How a request ended."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    INVALID_ACL = -114
    AUTH_FAILED = -115
    NO_WATCHER = -121
    QUOTA_EXCEEDED = -125


class ZooKeeperError(Exception):
    """A request that ends with an error of the protocol."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class EventType(IntEnum):
    """What happened to a watched znode."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class ConnectionState(IntEnum):
    """What an event says of the connection it comes over."""

    SYNC_CONNECTED = 3


class CreateMode(IntEnum):
    """The flags of a create request."""

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    PERSISTENT_WITH_TTL = 5
    PERSISTENT_SEQUENTIAL_WITH_TTL = 6

    @property
    def is_ephemeral(self) -> bool:
        """Whether the znode ends with its session."""
        return self in (CreateMode.EPHEMERAL, CreateMode.EPHEMERAL_SEQUENTIAL)

    @property
    def is_sequential(self) -> bool:
        """Whether a number is appended to the name."""
        return self in (CreateMode.PERSISTENT_SEQUENTIAL, CreateMode.EPHEMERAL_SEQUENTIAL)

    @property
    def has_ttl(self) -> bool:
        """Whether the znode is to end after some time, which servers offer only if so configured."""
        return self in (CreateMode.PERSISTENT_WITH_TTL, CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL)


CREATE_FLAGS: Final = frozenset(mode for mode in CreateMode if not mode.has_ttl)


class WatchMode(IntEnum):
    """How long a watch lasts and what it covers; the first two are what a client can name."""

    PERSISTENT = 0
    PERSISTENT_RECURSIVE = 1
    ONCE = 2


class WatcherType(IntEnum):
    """Which watches of a path a client removes or asks about."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    PERSISTENT_RECURSIVE = 5

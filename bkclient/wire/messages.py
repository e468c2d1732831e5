"""The requests a client sends to a bookie and the responses it gets, independent of the protocol version.

Codecs turn these into bytes and back, on both sides of the connection; the simulated network carries the objects
themselves. A request is immutable once submitted and may be submitted to several bookies: an append submits one
:class:`AddRequest` to its whole write set, so that it is encoded once.

``entry_id`` -1 (:data:`LAST_ENTRY`) in a read means "the entry with the highest id that this bookie stores".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Final

from bkclient.errors import Code

__all__ = [
    "LAST_ENTRY",
    "AddRequest",
    "AddResponse",
    "AddTemplate",
    "AuthMessage",
    "BatchReadRequest",
    "BatchReadResponse",
    "BookieInfoRequest",
    "BookieInfoResponse",
    "EntryListRequest",
    "EntryListResponse",
    "ErrorResponse",
    "ForceLedgerRequest",
    "ForceLedgerResponse",
    "LongPoll",
    "Operation",
    "ReadLacRequest",
    "ReadLacResponse",
    "ReadRequest",
    "ReadResponse",
    "Request",
    "Response",
    "StartTlsRequest",
    "StartTlsResponse",
    "Status",
    "WriteFlags",
    "WriteLacRequest",
    "WriteLacResponse",
    "code_for_status",
    "template_of",
]

LAST_ENTRY: Final = -1


class Operation(IntEnum):
    """What a request asks for, numbered as protocol version 3 numbers it."""

    READ_ENTRY = 1
    ADD_ENTRY = 2
    AUTH = 5
    WRITE_LAC = 6
    READ_LAC = 7
    GET_BOOKIE_INFO = 8
    START_TLS = 9
    FORCE_LEDGER = 10
    GET_LIST_OF_ENTRIES_OF_LEDGER = 11
    BATCH_READ_ENTRY = 12


class Status(IntEnum):
    """What a bookie answers; the numbers are those of protocol version 3, version 2 has its own (wire codecs map)."""

    OK = 0
    NO_LEDGER = 402
    NO_ENTRY = 403
    BAD_REQUEST = 404
    IO_ERROR = 501
    UNAUTHORIZED = 502
    BAD_VERSION = 503
    FENCED = 504
    READ_ONLY = 505
    TOO_MANY_REQUESTS = 506
    UNKNOWN_LEDGER_STATE = 507


_CODE_BY_STATUS: Final[dict[int, Code]] = {
    Status.OK: Code.OK,
    Status.NO_LEDGER: Code.NO_SUCH_LEDGER_ON_BOOKIE,
    Status.NO_ENTRY: Code.NO_SUCH_ENTRY,
    Status.UNAUTHORIZED: Code.UNAUTHORIZED,
    Status.BAD_VERSION: Code.PROTOCOL_VERSION,
    Status.FENCED: Code.LEDGER_FENCED,
    Status.READ_ONLY: Code.WRITE_ON_READ_ONLY_BOOKIE,
    Status.TOO_MANY_REQUESTS: Code.TOO_MANY_REQUESTS,
    Status.UNKNOWN_LEDGER_STATE: Code.DATA_UNKNOWN,
}

_DEFAULT_CODE_BY_OPERATION: Final[dict[Operation, Code]] = {
    Operation.ADD_ENTRY: Code.WRITE,
    Operation.WRITE_LAC: Code.WRITE,
    Operation.FORCE_LEDGER: Code.WRITE,
    Operation.START_TLS: Code.SECURITY,
}


def code_for_status(status: int, operation: Operation) -> Code:
    """The client code for a bookie's status (ERR-1); statuses without one fall back by operation (R-17)."""
    code = _CODE_BY_STATUS.get(status)
    if code is None:
        code = _DEFAULT_CODE_BY_OPERATION.get(operation, Code.READ)
    return code


class WriteFlags(IntFlag):
    """Flags of an add that travel in the request: ``DEFERRED_SYNC`` asks for an answer before the entry is durable."""

    NONE = 0
    DEFERRED_SYNC = 1


@dataclass(slots=True, eq=False)
class AddRequest:
    """Store one entry. ``header`` (entry header and digest) and ``payload`` together are the body a bookie stores."""

    operation = Operation.ADD_ENTRY

    ledger_id: int
    entry_id: int
    master_key: bytes = field(repr=False)
    header: bytes = field(repr=False)
    payload: bytes = field(repr=False)
    recovery: bool = False
    high_priority: bool = False
    write_flags: int = 0

    @property
    def body(self) -> bytes:
        """The entry as a bookie stores and returns it."""
        return self.header + self.payload


@dataclass(slots=True, frozen=True, kw_only=True)
class AddTemplate:
    """What all the adds of one writer have in common; the fields are those of :class:`AddRequest`."""

    ledger_id: int
    master_key: bytes = field(repr=False)
    recovery: bool = False
    high_priority: bool = False
    write_flags: int = 0

    def request(self, entry_id: int, header: bytes, payload: bytes) -> AddRequest:
        """The add of one entry."""
        return AddRequest(
            self.ledger_id,
            entry_id,
            self.master_key,
            header,
            payload,
            self.recovery,
            self.high_priority,
            self.write_flags,
        )


def template_of(request: AddRequest) -> AddTemplate:
    """What other adds of the same writer have in common with ``request``."""
    return AddTemplate(
        ledger_id=request.ledger_id,
        master_key=request.master_key,
        recovery=request.recovery,
        high_priority=request.high_priority,
        write_flags=request.write_flags,
    )


@dataclass(slots=True, frozen=True)
class LongPoll:
    """Wait at the bookie until its LAC exceeds ``previous_lac`` or ``timeout_ms`` pass; ``piggyback`` wants the entry."""

    previous_lac: int
    timeout_ms: int | None = None
    piggyback: bool = False


@dataclass(slots=True, eq=False)
class ReadRequest:
    """Read one entry. With ``fence_key`` (the ledger's master key) the bookie fences the ledger first."""

    operation = Operation.READ_ENTRY

    ledger_id: int
    entry_id: int
    fence_key: bytes | None = field(default=None, repr=False)
    high_priority: bool = False
    long_poll: LongPoll | None = None

    @property
    def wait_s(self) -> float:
        """How long the bookie may take to answer because it was asked to wait, in seconds."""
        poll = self.long_poll
        return 0.0 if poll is None or poll.timeout_ms is None else poll.timeout_ms / 1000


@dataclass(slots=True, eq=False)
class BatchReadRequest:
    """Read consecutive entries from ``entry_id`` on (protocol version 2 only); ``max_count`` <= 0 means no limit."""

    operation = Operation.BATCH_READ_ENTRY

    ledger_id: int
    entry_id: int
    max_count: int
    max_size: int
    fence_key: bytes | None = field(default=None, repr=False)
    high_priority: bool = False


@dataclass(slots=True, eq=False)
class WriteLacRequest:
    """Store an explicit LAC; ``body`` is the digest-protected packet of (ledger id, LAC)."""

    operation = Operation.WRITE_LAC

    ledger_id: int
    lac: int
    master_key: bytes = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(slots=True, eq=False)
class ReadLacRequest:
    """Ask for the last explicit LAC and the last entry that a bookie has of a ledger (protocol version 3 only)."""

    operation = Operation.READ_LAC

    ledger_id: int


@dataclass(slots=True, eq=False)
class ForceLedgerRequest:
    """Make everything the bookie acknowledged for a ledger durable."""

    operation = Operation.FORCE_LEDGER

    ledger_id: int


@dataclass(slots=True, eq=False)
class BookieInfoRequest:
    """Ask for disk capacity: bit 0 of ``requested`` the total, bit 1 the free bytes."""

    operation = Operation.GET_BOOKIE_INFO

    requested: int


@dataclass(slots=True, eq=False)
class EntryListRequest:
    """Ask which entries of a ledger the bookie stores."""

    operation = Operation.GET_LIST_OF_ENTRIES_OF_LEDGER

    ledger_id: int


@dataclass(slots=True, eq=False)
class StartTlsRequest:
    """Ask to go on inside TLS on the same connection."""

    operation = Operation.START_TLS


@dataclass(slots=True, eq=False)
class AuthMessage:
    """One step of an authentication exchange; request and response have the same shape."""

    operation = Operation.AUTH

    plugin_name: str
    payload: bytes = field(default=b"", repr=False)
    status: Status = Status.OK


Request = (
    AddRequest
    | ReadRequest
    | BatchReadRequest
    | WriteLacRequest
    | ReadLacRequest
    | ForceLedgerRequest
    | BookieInfoRequest
    | EntryListRequest
    | StartTlsRequest
    | AuthMessage
)


@dataclass(slots=True)
class AddResponse:
    """Answer to :class:`AddRequest`."""

    operation = Operation.ADD_ENTRY

    status: Status
    ledger_id: int
    entry_id: int


@dataclass(slots=True)
class ReadResponse:
    """Answer to :class:`ReadRequest`; ``entry_id`` echoes the request except for a piggybacked entry.

    ``max_lac`` is the highest LAC the bookie knows (version 3, non-fencing reads only).
    """

    operation = Operation.READ_ENTRY

    status: Status
    ledger_id: int
    entry_id: int
    body: bytes | None = field(default=None, repr=False)
    max_lac: int | None = None
    lac_update_timestamp_ms: int | None = None


@dataclass(slots=True)
class BatchReadResponse:
    """Answer to :class:`BatchReadRequest`: the bodies of consecutive entries from ``entry_id`` on."""

    operation = Operation.BATCH_READ_ENTRY

    status: Status
    ledger_id: int
    entry_id: int
    bodies: Sequence[bytes] = field(default=(), repr=False)


@dataclass(slots=True)
class WriteLacResponse:
    """Answer to :class:`WriteLacRequest`."""

    operation = Operation.WRITE_LAC

    status: Status
    ledger_id: int


@dataclass(slots=True)
class ReadLacResponse:
    """Answer to :class:`ReadLacRequest`: the last explicit-LAC packet and the body of the last entry, where they exist."""

    operation = Operation.READ_LAC

    status: Status
    ledger_id: int
    lac_body: bytes | None = field(default=None, repr=False)
    last_entry_body: bytes | None = field(default=None, repr=False)


@dataclass(slots=True)
class ForceLedgerResponse:
    """Answer to :class:`ForceLedgerRequest`."""

    operation = Operation.FORCE_LEDGER

    status: Status
    ledger_id: int


@dataclass(slots=True)
class BookieInfoResponse:
    """Answer to :class:`BookieInfoRequest`; only what was requested is set (bytes)."""

    operation = Operation.GET_BOOKIE_INFO

    status: Status
    total_disk_capacity: int | None = None
    free_disk_space: int | None = None


@dataclass(slots=True)
class EntryListResponse:
    """Answer to :class:`EntryListRequest`; ``availability`` is the encoded list of stored entry ids."""

    operation = Operation.GET_LIST_OF_ENTRIES_OF_LEDGER

    status: Status
    ledger_id: int
    availability: bytes | None = field(default=None, repr=False)


@dataclass(slots=True)
class StartTlsResponse:
    """Answer to :class:`StartTlsRequest`."""

    operation = Operation.START_TLS

    status: Status


@dataclass(slots=True)
class ErrorResponse:
    """A response without an operation-specific part: the status alone (ERR-2)."""

    operation: Operation
    status: Status


Response = (
    AddResponse
    | ReadResponse
    | BatchReadResponse
    | WriteLacResponse
    | ReadLacResponse
    | ForceLedgerResponse
    | BookieInfoResponse
    | EntryListResponse
    | StartTlsResponse
    | AuthMessage
    | ErrorResponse
)

"""Protocol version 3: requests and responses as protobuf messages, encoded and decoded for both sides.

Everything here is a pure function over :mod:`bkclient.wire.messages`. Encoders return complete frames, decoders take the
content of one. Version 3 can express every request except a batch read.

Decoders are strict where protobuf is lenient: a message that lacks a required field, or whose required enum has an unknown
value, is malformed. One exception serves compatibility with newer bookies: an unknown *status* reads as ``IO_ERROR``, which
has no meaning of its own and falls back to the operation's general failure (R-17).

Fields of a message may come in any order; what is written here is in ascending order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from bkclient.errors import IllegalOperation
from bkclient.wire import bookkeeper_pb2 as pb
from bkclient.wire.answers import failed_answer
from bkclient.wire.envelope import HIGH_PRIORITY, EncodedRequest, ReceivedRequest
from bkclient.wire.errors import MalformedMessage
from bkclient.wire.framing import PREFIX_SIZE, frame
from bkclient.wire.messages import (
    AddRequest,
    AddResponse,
    AuthMessage,
    BookieInfoRequest,
    BookieInfoResponse,
    EntryListRequest,
    EntryListResponse,
    ErrorResponse,
    ForceLedgerRequest,
    ForceLedgerResponse,
    LongPoll,
    Operation,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    StartTlsRequest,
    StartTlsResponse,
    Status,
    WriteLacRequest,
    WriteLacResponse,
)
from bkclient.wire.v3_add import (
    AddEncoder,
    acknowledgement_of,
    encode_add_request,
    encode_add_response,
    header_field,
    is_whole_answer_to_add,
    match_of_acknowledgement,
    txn_id_of,
    varint,
)

__all__ = [
    "AddEncoder",
    "acknowledgement_of",
    "decode_request",
    "decode_response",
    "encode_refusal",
    "encode_request",
    "encode_response",
    "is_whole_answer_to_add",
    "match_of_acknowledgement",
    "txn_id_of",
]

_VERSION: Final = 3
_OPERATIONS: Final = {int(operation): operation for operation in Operation}
_STATUSES: Final = {int(status): status for status in Status}

_FENCE: Final = pb.ReadRequest.FENCE_LEDGER
_PIGGYBACK: Final = pb.ReadRequest.ENTRY_PIGGYBACK
_RECOVERY: Final = pb.AddRequest.RECOVERY_ADD


# Requests, on the client's side.


def encode_request(request: Request, txn_id: int) -> EncodedRequest:
    """The frame of ``request``; raises :class:`~bkclient.errors.IllegalOperation` for what version 3 cannot express."""
    if isinstance(request, AddRequest):
        return encode_add_request(request, txn_id)
    message = _request_message(request)
    match = header_field(request.operation, txn_id)
    header = match
    if isinstance(request, ReadRequest) and request.high_priority:
        header = _with_priority(match, HIGH_PRIORITY)
    data = _frame_with_message(header, _FIELDS[request.operation][0], message)
    return EncodedRequest(txn_id, match, (data,), len(data))


def _request_message(request: Request) -> Message:
    match request:
        case ReadRequest():
            return _read_request_message(request)
        case WriteLacRequest():
            return pb.WriteLacRequest(
                ledgerId=request.ledger_id, lac=request.lac, masterKey=request.master_key, body=request.body
            )
        case ReadLacRequest():
            return pb.ReadLacRequest(ledgerId=request.ledger_id)
        case ForceLedgerRequest():
            return pb.ForceLedgerRequest(ledgerId=request.ledger_id)
        case BookieInfoRequest():
            return pb.GetBookieInfoRequest(requested=request.requested)
        case EntryListRequest():
            return pb.GetListOfEntriesOfLedgerRequest(ledgerId=request.ledger_id)
        case StartTlsRequest():
            return pb.StartTLSRequest()
        case AuthMessage():
            return pb.AuthMessage(authPluginName=request.plugin_name, payload=request.payload)
        case _:
            raise IllegalOperation(f"protocol version 3 has no message for {request.operation.name}")


def _read_request_message(request: ReadRequest) -> pb.ReadRequest:
    message = pb.ReadRequest(ledgerId=request.ledger_id, entryId=request.entry_id)
    poll = request.long_poll
    if request.fence_key is not None:
        if poll is not None:
            raise IllegalOperation(
                "one read cannot both fence and wait", ledger_id=request.ledger_id, entry_id=request.entry_id
            )
        message.masterKey = request.fence_key
        message.flag = _FENCE
    elif poll is not None:
        message.previousLAC = poll.previous_lac
        if poll.timeout_ms is not None:
            message.timeOut = poll.timeout_ms
        if poll.piggyback:
            message.flag = _PIGGYBACK
    return message


# Requests, on the bookie's side.


def decode_request(content: bytes) -> ReceivedRequest:
    """The request in a frame; :class:`~bkclient.wire.errors.MalformedMessage` if it is none of version 3.

    The ids of an add are those of the request's own fields, which a bookie echoes; the ids it stores by are in the body,
    which is in ``header`` as a whole, with an empty ``payload``.
    """
    message = pb.Request()
    _parse(message, content)
    if not message.IsInitialized():
        raise MalformedMessage("a version 3 request lacks a required field or has an unknown operation")
    header = message.header
    operation = int(header.operation)
    request = None
    fields = _FIELDS.get(operation)
    if fields is not None and message.HasField(fields[1]):
        request = _REQUEST_PARSERS[operation](message)
    return ReceivedRequest(_VERSION, int(header.version), operation, header.txnId, header.priority, request)


def _parse_add_request(message: pb.Request) -> AddRequest:
    add = message.addRequest
    return AddRequest(
        add.ledgerId,
        add.entryId,
        add.masterKey,
        header=add.body,
        payload=b"",
        recovery=add.flag == _RECOVERY and add.HasField("flag"),
        high_priority=message.header.priority > 0,
        write_flags=add.writeFlags,
    )


def _parse_read_request(message: pb.Request) -> ReadRequest:
    read = message.readRequest
    request = ReadRequest(read.ledgerId, read.entryId, high_priority=message.header.priority > 0)
    flag = read.flag if read.HasField("flag") else None
    if flag == _FENCE:
        # A fencing read without a key has to fail for its key: no ledger has an empty one.
        request.fence_key = read.masterKey
    elif read.HasField("previousLAC"):
        timeout_ms = read.timeOut if read.HasField("timeOut") else None
        request.long_poll = LongPoll(read.previousLAC, timeout_ms, piggyback=flag == _PIGGYBACK)
    return request


def _parse_write_lac_request(message: pb.Request) -> WriteLacRequest:
    write = message.writeLacRequest
    return WriteLacRequest(write.ledgerId, write.lac, write.masterKey, write.body)


_REQUEST_PARSERS: Final[dict[int, Callable[[pb.Request], Request]]] = {
    Operation.READ_ENTRY: _parse_read_request,
    Operation.ADD_ENTRY: _parse_add_request,
    Operation.AUTH: lambda message: _auth(message.authRequest, Status.OK),
    Operation.WRITE_LAC: _parse_write_lac_request,
    Operation.READ_LAC: lambda message: ReadLacRequest(message.readLacRequest.ledgerId),
    Operation.GET_BOOKIE_INFO: lambda message: BookieInfoRequest(message.getBookieInfoRequest.requested),
    Operation.START_TLS: lambda _: StartTlsRequest(),
    Operation.FORCE_LEDGER: lambda message: ForceLedgerRequest(message.forceLedgerRequest.ledgerId),
    Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: lambda message: EntryListRequest(
        message.getListOfEntriesOfLedgerRequest.ledgerId
    ),
}


# Responses, on the bookie's side.


def encode_response(received: ReceivedRequest, response: Response) -> bytes:
    """The frame of an answer to ``received``."""
    if isinstance(response, ErrorResponse):
        return encode_refusal(received, response.status)
    if isinstance(response, AddResponse):
        return encode_add_response(received.txn_id, response)
    header = header_field(response.operation, received.txn_id)
    if isinstance(response, AuthMessage):
        header = _copied_header(received)
    start = b"%b\x10%b" % (header, varint(response.status))
    return _frame_with_message(start, _FIELDS[response.operation][0], _response_message(response))


def encode_refusal(received: ReceivedRequest, status: Status) -> bytes:
    """The frame of an answer that holds nothing but a status.

    It is the request's header and the status, without a message. Only a foreign version is refused as bookies answer anything
    else about a ledger: in this version, with the operation's own message.
    """
    if status is Status.BAD_VERSION and received.request is not None:
        answer = failed_answer(received.request, status)
        if answer is not None:
            return encode_response(received, answer)
    return frame(b"%b\x10%b" % (_copied_header(received), varint(status)))


def _response_message(response: Response) -> Message:
    # Statuses are numbered alike; the generated types only do not know that.
    status = cast("pb.StatusCode", int(response.status))
    match response:
        case ReadResponse():
            return pb.ReadResponse(
                status=status,
                ledgerId=response.ledger_id,
                entryId=response.entry_id,
                body=response.body,
                maxLAC=response.max_lac,
                lacUpdateTimestamp=response.lac_update_timestamp_ms,
            )
        case WriteLacResponse():
            return pb.WriteLacResponse(status=status, ledgerId=response.ledger_id)
        case ReadLacResponse():
            return pb.ReadLacResponse(
                status=status,
                ledgerId=response.ledger_id,
                lacBody=response.lac_body,
                lastEntryBody=response.last_entry_body,
            )
        case ForceLedgerResponse():
            return pb.ForceLedgerResponse(status=status, ledgerId=response.ledger_id)
        case BookieInfoResponse():
            return pb.GetBookieInfoResponse(
                status=status,
                totalDiskCapacity=response.total_disk_capacity,
                freeDiskSpace=response.free_disk_space,
            )
        case EntryListResponse():
            return pb.GetListOfEntriesOfLedgerResponse(
                status=status,
                ledgerId=response.ledger_id,
                availabilityOfEntriesOfLedger=response.availability,
            )
        case StartTlsResponse():
            return pb.StartTLSResponse()
        case AuthMessage():
            return pb.AuthMessage(authPluginName=response.plugin_name, payload=response.payload)
        case _:
            raise IllegalOperation(f"protocol version 3 has no message for {response.operation.name}")


# Responses, on the client's side.


def decode_response(content: bytes) -> tuple[bytes, Response]:
    """The response in a frame with the match bytes of its request; :class:`MalformedMessage` if it is none.

    A status other than ``OK`` of the response as a whole overrides that of the operation's message, which may be
    missing then (ERR-2).
    """
    message = pb.Response()
    _parse(message, content)
    if not message.IsInitialized():
        _forgive_unknown_statuses(message)
        if not message.IsInitialized():
            raise MalformedMessage("a version 3 response lacks a required field or has an unknown operation")
    operation = _OPERATIONS.get(int(message.header.operation))
    fields = _FIELDS.get(int(message.header.operation))
    if operation is None or fields is None:
        raise MalformedMessage(f"a version 3 response to operation {int(message.header.operation)}, which has none")
    status = _STATUSES[int(message.status)]
    response: Response
    if message.HasField(fields[2]):
        response = _RESPONSE_PARSERS[operation](message, status)
    elif status is Status.OK:
        raise MalformedMessage(f"a successful version 3 response to {operation.name} without its message")
    else:
        response = ErrorResponse(operation, status)
    return header_field(operation, message.header.txnId), response


def _effective(outer: Status, inner: int) -> Status:
    return _STATUSES[int(inner)] if outer is Status.OK else outer


def _parse_read_response(message: pb.Response, status: Status) -> ReadResponse:
    read = message.readResponse
    return ReadResponse(
        _effective(status, read.status),
        read.ledgerId,
        read.entryId,
        read.body if read.HasField("body") else None,
        read.maxLAC if read.HasField("maxLAC") else None,
        read.lacUpdateTimestamp if read.HasField("lacUpdateTimestamp") else None,
    )


def _parse_add_response(message: pb.Response, status: Status) -> AddResponse:
    add = message.addResponse
    return AddResponse(_effective(status, add.status), add.ledgerId, add.entryId)


def _parse_write_lac_response(message: pb.Response, status: Status) -> WriteLacResponse:
    write = message.writeLacResponse
    return WriteLacResponse(_effective(status, write.status), write.ledgerId)


def _parse_read_lac_response(message: pb.Response, status: Status) -> ReadLacResponse:
    read = message.readLacResponse
    return ReadLacResponse(
        _effective(status, read.status),
        read.ledgerId,
        read.lacBody if read.HasField("lacBody") else None,
        read.lastEntryBody if read.HasField("lastEntryBody") else None,
    )


def _parse_force_response(message: pb.Response, status: Status) -> ForceLedgerResponse:
    force = message.forceLedgerResponse
    return ForceLedgerResponse(_effective(status, force.status), force.ledgerId)


def _parse_info_response(message: pb.Response, status: Status) -> BookieInfoResponse:
    info = message.getBookieInfoResponse
    return BookieInfoResponse(
        _effective(status, info.status),
        info.totalDiskCapacity if info.HasField("totalDiskCapacity") else None,
        info.freeDiskSpace if info.HasField("freeDiskSpace") else None,
    )


def _parse_list_response(message: pb.Response, status: Status) -> EntryListResponse:
    entries = message.getListOfEntriesOfLedgerResponse
    return EntryListResponse(
        _effective(status, entries.status),
        entries.ledgerId,
        entries.availabilityOfEntriesOfLedger if entries.HasField("availabilityOfEntriesOfLedger") else None,
    )


_RESPONSE_PARSERS: Final[dict[int, Callable[[pb.Response, Status], Response]]] = {
    Operation.READ_ENTRY: _parse_read_response,
    Operation.ADD_ENTRY: _parse_add_response,
    Operation.AUTH: lambda message, status: _auth(message.authResponse, status),
    Operation.WRITE_LAC: _parse_write_lac_response,
    Operation.READ_LAC: _parse_read_lac_response,
    Operation.GET_BOOKIE_INFO: _parse_info_response,
    Operation.START_TLS: lambda _, status: StartTlsResponse(status),
    Operation.FORCE_LEDGER: _parse_force_response,
    Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: _parse_list_response,
}


# Both sides.

#: Operation to number and names of its message in requests and responses.
_FIELDS: Final[dict[int, tuple[int, str, str]]] = {
    Operation.READ_ENTRY: (100, "readRequest", "readResponse"),
    Operation.ADD_ENTRY: (101, "addRequest", "addResponse"),
    Operation.AUTH: (102, "authRequest", "authResponse"),
    Operation.WRITE_LAC: (103, "writeLacRequest", "writeLacResponse"),
    Operation.READ_LAC: (104, "readLacRequest", "readLacResponse"),
    Operation.GET_BOOKIE_INFO: (105, "getBookieInfoRequest", "getBookieInfoResponse"),
    Operation.START_TLS: (106, "startTLSRequest", "startTLSResponse"),
    Operation.FORCE_LEDGER: (107, "forceLedgerRequest", "forceLedgerResponse"),
    Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: (
        108,
        "getListOfEntriesOfLedgerRequest",
        "getListOfEntriesOfLedgerResponse",
    ),
}


def _parse(message: Message, content: bytes) -> None:
    try:
        message.ParseFromString(content)
    except DecodeError as error:
        raise MalformedMessage(f"{len(content)} bytes that are not a version 3 message: {error}") from error


def _auth(message: pb.AuthMessage, status: Status) -> AuthMessage:
    # The runtime gives bytes for a string that is not UTF-8.
    if not isinstance(message.authPluginName, str):
        raise MalformedMessage("an authentication plugin whose name is not UTF-8")
    return AuthMessage(message.authPluginName, message.payload, status)


def _forgive_unknown_statuses(message: pb.Response) -> None:
    """Read statuses this version does not know, which the runtime sets aside as unknown fields, as ``EIO``."""
    parts: list[Message] = [message]
    parts += [part for field, part in message.ListFields() if field.message_type is not None and field.number >= 100]
    for part in parts:
        if "status" not in part.DESCRIPTOR.fields_by_name or part.HasField("status"):
            continue
        number = part.DESCRIPTOR.fields_by_name["status"].number
        unknown = UnknownFieldSet(part)
        if any(unknown[i].field_number == number and unknown[i].wire_type == 0 for i in range(len(unknown))):
            part.status = pb.EIO  # type: ignore[attr-defined]


def _frame_with_message(start: bytes, number: int, message: Message) -> bytes:
    """A frame of the fields in ``start`` and ``message`` as field ``number``; entries may be large: one copy."""
    data = message.SerializeToString()
    start = b"%b%b%b" % (start, varint(number << 3 | 2), varint(len(data)))
    return b"".join(((len(start) + len(data)).to_bytes(PREFIX_SIZE, "big"), start, data))


def _with_priority(header: bytes, priority: int) -> bytes:
    value = varint(priority)
    return b"\x0a%c%b\x20%b" % (header[1] + 1 + len(value), header[2:], value)


def _copied_header(received: ReceivedRequest) -> bytes:
    fields = b"\x08%b\x10%b\x18%b" % (
        varint(received.packet_version),
        varint(received.operation),
        varint(received.txn_id),
    )
    if received.priority:
        fields += b"\x20" + varint(received.priority)
    return b"\x0a%c%b" % (len(fields), fields)

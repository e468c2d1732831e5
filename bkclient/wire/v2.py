"""Protocol version 2: fixed binary layouts for adds, reads, batch reads and authentication; nothing else exists in it.

Everything here is a pure function over :mod:`bkclient.wire.messages`. Encoders return complete frames, decoders take the
content of one. All integers are big-endian, ids signed.

A packet starts with one byte version, one byte operation, two bytes flags. Responses repeat the ids of their request, and
that is all a client has to tell them apart (:func:`match_of`); only a batch read has an id of its own. An ordinary and a
fencing read of one entry look alike in their answers, and must not be mixed up:
:mod:`bkclient.wire.outstanding` sees to that.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from google.protobuf.message import DecodeError

from bkclient._core import has_twins
from bkclient.errors import IllegalOperation
from bkclient.wire import bookkeeper_pb2 as pb
from bkclient.wire.answers import failed_answer
from bkclient.wire.bodies import bodies_from
from bkclient.wire.digest import KEY_SIZE
from bkclient.wire.envelope import EncodedAdd, EncodedAdds, EncodedRequest, ReceivedRequest, are_laid_out_alike
from bkclient.wire.errors import MalformedMessage
from bkclient.wire.framing import PREFIX_SIZE, frame
from bkclient.wire.messages import (
    AddRequest,
    AddResponse,
    AddTemplate,
    AuthMessage,
    BatchReadRequest,
    BatchReadResponse,
    ErrorResponse,
    Operation,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
    template_of,
)

__all__ = [
    "AddPacketEncoder",
    "acknowledgement",
    "acknowledgement_of",
    "acknowledgement_with",
    "decode_request",
    "decode_response",
    "encode_refusal",
    "encode_request",
    "encode_response",
    "is_whole_answer_to_add",
    "match_of",
    "match_of_acknowledgement",
]

_VERSION: Final = 2

_ADD: Final = 1
_READ: Final = 2
_AUTH: Final = 3
_BATCH_READ: Final = 7
_OPERATIONS: Final = {
    _ADD: Operation.ADD_ENTRY,
    _READ: Operation.READ_ENTRY,
    _AUTH: Operation.AUTH,
    _BATCH_READ: Operation.BATCH_READ_ENTRY,
}
_OPCODES: Final = {operation: opcode for opcode, operation in _OPERATIONS.items()}

_FENCE: Final = 0x0001
_RECOVERY: Final = 0x0002
_HIGH_PRIORITY: Final = 0x0004

_NUMBER_BY_STATUS: Final = {
    Status.OK: 0,
    Status.NO_LEDGER: 1,
    Status.NO_ENTRY: 2,
    Status.BAD_REQUEST: 100,
    Status.IO_ERROR: 101,
    Status.UNAUTHORIZED: 102,
    Status.BAD_VERSION: 103,
    Status.FENCED: 104,
    Status.READ_ONLY: 105,
    Status.TOO_MANY_REQUESTS: 106,
    Status.UNKNOWN_LEDGER_STATE: 107,
}
_STATUS_BY_NUMBER: Final = {number: status for status, number in _NUMBER_BY_STATUS.items()}

_HEADER: Final = struct.Struct(">BBH")
_ADD_START: Final = struct.Struct(">IBBH")
_IDS: Final = struct.Struct(">qq")
_ENTRY_ID: Final = struct.Struct(">q")
_READ_REQUEST: Final = struct.Struct(">BBHqq")
_BATCH_REQUEST: Final = struct.Struct(">BBHqqqiq")
_RESPONSE: Final = struct.Struct(">BBHiqq")
_BATCH_RESPONSE: Final = struct.Struct(">BBHiqqq")
_LENGTH: Final = struct.Struct(">i")

#: The whole frame of an answer to an add, and how it begins.
_ADDED: Final = struct.Struct(">IBBHiqq")
_ANSWER_PREFIX: Final = struct.pack(">I", _RESPONSE.size)


# Requests, on the client's side.


def match_of(request: Request) -> bytes | None:
    """The match bytes that ``request`` has however often it is sent; None for one that gets an id of its own each time.

    None as well for what version 2 cannot express.
    """
    match request:
        case AddRequest():
            return b"\x01" + _IDS.pack(request.ledger_id, request.entry_id)
        case ReadRequest():
            return b"\x02" + _IDS.pack(request.ledger_id, request.entry_id)
        case AuthMessage():
            return b"\x03"
        case _:
            return None


def encode_request(request: Request, txn_id: int) -> EncodedRequest:
    """The frame of ``request``; raises :class:`~bkclient.errors.IllegalOperation` for what version 2 cannot express.

    ``txn_id`` is used by batch reads only.
    """
    match request:
        case AddRequest():
            return _encode_add(request, txn_id)
        case ReadRequest():
            content = _read_content(request)
            match_bytes = bytes((_READ,)) + content[4:20]
        case BatchReadRequest():
            content = _batch_content(request, txn_id)
            match_bytes = bytes((_BATCH_READ,)) + content[20:28]
        case AuthMessage():
            content = _HEADER.pack(_VERSION, _AUTH, 0) + _auth_body(request)
            match_bytes = bytes((_AUTH,))
        case _:
            raise IllegalOperation(f"protocol version 2 has no {request.operation.name}")
    data = frame(content)
    return EncodedRequest(txn_id, match_bytes, (data,), len(data))


class AddPacketEncoder:
    """Encodes the adds that have ``template`` in common; :class:`~bkclient.errors.IllegalOperation` for what version 2 lacks."""

    __slots__ = ("_body_size", "_flags", "_key", "_ledger_id", "_start")

    def __init__(self, template: AddTemplate) -> None:
        self._ledger_id: Final = template.ledger_id
        self._key: Final = template.master_key
        if template.write_flags:
            raise IllegalOperation("protocol version 2 has no write flags", ledger_id=template.ledger_id)
        _check_key(template.ledger_id, template.master_key)
        self._flags = (_RECOVERY if template.recovery else 0) | (_HIGH_PRIORITY if template.high_priority else 0)
        self._body_size = -1

    def encode(self, txn_id: int, entry_id: int, header: bytes, payload: bytes) -> EncodedAdd:  # noqa: ARG002 - version 3 has ids
        """The frame of an add in two buffers; the payload is one of them, not a copy."""
        body_size = len(header) + len(payload)
        if body_size != self._body_size:
            self._body_size = body_size
            self._start = _ADD_START.pack(4 + KEY_SIZE + body_size, _VERSION, _ADD, self._flags) + self._key
        start = self._start + header
        stored = _ADDED.pack(_RESPONSE.size, _VERSION, _ADD, 0, 0, self._ledger_id, entry_id)
        return (start, payload), stored, len(start) + len(payload)

    def encode_all(
        self, txn_ids: Sequence[int], entry_ids: Sequence[int], headers: Sequence[bytes], payloads: Sequence[bytes]
    ) -> EncodedAdds:
        """What :meth:`encode` says of each of these adds, of which there is one at least."""
        if not are_laid_out_alike(headers, payloads):
            buffers, stored, sizes = zip(*map(self.encode, txn_ids, entry_ids, headers, payloads), strict=True)
            return buffers, stored, sizes
        _, first_stored, size = self.encode(
            txn_ids[0], entry_ids[0], headers[0], payloads[0]
        )  # which lays out the others
        start, until_entry = self._start, first_stored[: -_ENTRY_ID.size]
        return (
            list(zip([start + header for header in headers], payloads, strict=True)),
            [until_entry + entry for entry in map(_ENTRY_ID.pack, entry_ids)],
            [size] * len(entry_ids),
        )


has_twins("frames", AddPacketEncoder, "encode", bind="bind_v2")


def _encode_add(request: AddRequest, txn_id: int) -> EncodedRequest:
    encoder = AddPacketEncoder(template_of(request))
    buffers, stored, size = encoder.encode(txn_id, request.entry_id, request.header, request.payload)
    match_bytes = b"\x01" + _IDS.pack(request.ledger_id, request.entry_id)
    return EncodedRequest(txn_id, match_bytes, buffers, size, stored)


def _read_content(request: ReadRequest) -> bytes:
    if request.long_poll is not None:
        message = "protocol version 2 has no long poll"
        raise IllegalOperation(message, ledger_id=request.ledger_id, entry_id=request.entry_id)
    key, flags = _key_and_flags(request)
    return _READ_REQUEST.pack(_VERSION, _READ, flags, request.ledger_id, request.entry_id) + key


def _batch_content(request: BatchReadRequest, txn_id: int) -> bytes:
    key, flags = _key_and_flags(request)
    fixed = _BATCH_REQUEST.pack(
        _VERSION,
        _BATCH_READ,
        flags,
        request.ledger_id,
        request.entry_id,
        txn_id,
        request.max_count,
        request.max_size,
    )
    return fixed + key


def _key_and_flags(request: ReadRequest | BatchReadRequest) -> tuple[bytes, int]:
    flags = _HIGH_PRIORITY if request.high_priority else 0
    if request.fence_key is None:
        return b"", flags
    _check_key(request.ledger_id, request.fence_key, request.entry_id)
    return request.fence_key, flags | _FENCE


def _check_key(ledger_id: int, key: bytes, entry_id: int | None = None) -> None:
    if len(key) != KEY_SIZE:
        message = f"a master key of {len(key)} bytes; protocol version 2 has room for {KEY_SIZE}"
        raise IllegalOperation(message, ledger_id=ledger_id, entry_id=entry_id)


# Requests, on the bookie's side.


def decode_request(content: bytes) -> ReceivedRequest:
    """The request in a frame; :class:`~bkclient.wire.errors.MalformedMessage` if it is none of version 2 or older.

    The ids of an add are those of its body, which is in ``header`` as a whole, with an empty ``payload``.
    """
    if len(content) < _HEADER.size:
        raise MalformedMessage(f"a version 2 packet of {len(content)} bytes")
    version, opcode, flags = _HEADER.unpack_from(content)
    if version == 0:
        # The oldest version has no flags: all that follows is the operation.
        opcode, flags = opcode << 16 | flags, 0
    request: Request
    txn_id = 0
    if opcode == _ADD:
        request = _decode_add(content, flags)
    elif opcode == _READ:
        request = _decode_read(content, flags, version)
    elif opcode == _BATCH_READ:
        request, txn_id = _decode_batch(content, flags, version)
    elif opcode == _AUTH:
        request = _decode_auth(content)
    else:
        raise MalformedMessage(f"a version {version} packet with the unknown operation {opcode}")
    return ReceivedRequest(_VERSION, version, int(_OPERATIONS[opcode]), txn_id, 0, request)


def _decode_add(content: bytes, flags: int) -> AddRequest:
    body_at = _HEADER.size + KEY_SIZE
    if len(content) < body_at + _IDS.size:
        raise MalformedMessage(f"a version 2 add of {len(content)} bytes, too few for a key and ids")
    ledger_id, entry_id = _IDS.unpack_from(content, body_at)
    return AddRequest(
        ledger_id,
        entry_id,
        content[_HEADER.size : body_at],
        header=content[body_at:],
        payload=b"",
        recovery=bool(flags & _RECOVERY),
        high_priority=bool(flags & _HIGH_PRIORITY),
    )


def _decode_read(content: bytes, flags: int, version: int) -> ReadRequest:
    if len(content) < _READ_REQUEST.size:
        raise MalformedMessage(f"a version 2 read of {len(content)} bytes")
    ledger_id, entry_id = _IDS.unpack_from(content, _HEADER.size)
    key = _fence_key(content, _READ_REQUEST.size, flags, version)
    return ReadRequest(ledger_id, entry_id, key, high_priority=bool(flags & _HIGH_PRIORITY))


def _decode_batch(content: bytes, flags: int, version: int) -> tuple[BatchReadRequest, int]:
    if len(content) < _BATCH_REQUEST.size:
        raise MalformedMessage(f"a version 2 batch read of {len(content)} bytes")
    _, _, _, ledger_id, entry_id, request_id, max_count, max_size = _BATCH_REQUEST.unpack_from(content)
    key = _fence_key(content, _BATCH_REQUEST.size, flags, version)
    high_priority = bool(flags & _HIGH_PRIORITY)
    return BatchReadRequest(ledger_id, entry_id, max_count, max_size, key, high_priority), request_id


def _fence_key(content: bytes, offset: int, flags: int, version: int) -> bytes | None:
    if not flags & _FENCE:
        return None
    if version < _VERSION:
        # Older versions carry no key; a fencing read without one has to fail for it, as no ledger has an empty key.
        return b""
    if len(content) < offset + KEY_SIZE:
        raise MalformedMessage("a version 2 fencing read without a master key")
    return content[offset : offset + KEY_SIZE]


# Responses, on the bookie's side.


def encode_response(received: ReceivedRequest, response: Response) -> bytes:
    """The frame of an answer to ``received``, in its version; ``IllegalOperation`` for what version 2 cannot express.

    An answer to AUTH has version 2 whatever the request had, as no bookie looks at the version of that one.
    """
    version = received.packet_version
    match response:
        case AddResponse():
            number = _NUMBER_BY_STATUS[response.status]
            content = _RESPONSE.pack(*_head(version, _ADD), number, response.ledger_id, response.entry_id)
        case ReadResponse():
            number = _NUMBER_BY_STATUS[response.status]
            content = _RESPONSE.pack(*_head(version, _READ), number, response.ledger_id, response.entry_id)
            if response.status is Status.OK:
                content += response.body or b""
        case BatchReadResponse():
            number = _NUMBER_BY_STATUS[response.status]
            content = _BATCH_RESPONSE.pack(
                *_head(version, _BATCH_READ), number, response.ledger_id, response.entry_id, received.txn_id
            )
            if response.status is Status.OK:
                content += b"".join(_LENGTH.pack(len(body)) + body for body in response.bodies)
        case AuthMessage(status=Status.OK):
            content = _HEADER.pack(_VERSION, _AUTH, 0) + _auth_body(response)
        case ErrorResponse():
            return encode_refusal(received, response.status)
        case _:
            raise IllegalOperation(f"protocol version 2 has no such answer to {response.operation.name}")
    return frame(content)


def _head(version: int, opcode: int) -> tuple[int, int, int]:
    # Answers have the version of their request, and the oldest one takes all that follows it as the operation.
    return (0, 0, opcode) if version == 0 else (version, opcode, 0)


def encode_refusal(received: ReceivedRequest, status: Status) -> bytes:
    """The frame of an answer that repeats the ids of ``received`` with a status.

    Raises ``IllegalOperation`` where version 2 has no answer but closing the connection, which is for AUTH.
    """
    response = None if received.request is None else failed_answer(received.request, status)
    if not isinstance(response, AddResponse | ReadResponse | BatchReadResponse):
        raise IllegalOperation("protocol version 2 refuses this by closing the connection")
    return encode_response(received, response)


# Responses, on the client's side.


def acknowledgement_of(match: bytes, response: Response) -> bytes | None:
    """The frame that would have said that the entry was stored, from an answer that says something else of it."""
    del match  # it says nothing that the answer does not
    return acknowledgement(response.ledger_id, response.entry_id) if isinstance(response, AddResponse) else None


def match_of_acknowledgement(frame: bytes) -> bytes:
    """The match bytes in the frame of an answer to an add."""
    return frame[PREFIX_SIZE + 1 : PREFIX_SIZE + 2] + frame[PREFIX_SIZE + 8 :]


def acknowledgement_with(match: bytes) -> bytes | None:
    """The frame that says that the add with these match bytes was carried out; None if they are not those of an add."""
    return acknowledgement(*_IDS.unpack_from(match, 1)) if match[0] == _ADD and len(match) > _IDS.size else None


def acknowledgement(ledger_id: int, entry_id: int) -> bytes:
    """The frame of the answer that an entry was stored."""
    return _ADDED.pack(_RESPONSE.size, _VERSION, _ADD, 0, 0, ledger_id, entry_id)


def is_whole_answer_to_add(chunk: bytes, position: int) -> bool:
    """Whether at this place there is all of a frame that answers an add."""
    is_as_long = chunk.startswith(_ANSWER_PREFIX, position) and len(chunk) - position >= _ADDED.size
    return is_as_long and chunk[position + PREFIX_SIZE + 1] == _ADD


def decode_response(content: bytes) -> tuple[bytes, Response]:
    """The response in a frame with the match bytes of its request; :class:`MalformedMessage` if it is none.

    An error number this version does not know reads as ``IO_ERROR``, whose meaning is that of the operation (R-17).
    """
    if len(content) < _HEADER.size:
        raise MalformedMessage(f"a version 2 response of {len(content)} bytes")
    opcode = content[1]
    if opcode == _AUTH:
        return bytes((_AUTH,)), _decode_auth(content)
    if opcode == _BATCH_READ:
        return _decode_batch_response(content)
    if opcode not in {_ADD, _READ}:
        raise MalformedMessage(f"a version 2 response to the unknown operation {opcode}")
    if len(content) < _RESPONSE.size:
        raise MalformedMessage(f"a version 2 response of {len(content)} bytes")
    _, _, _, number, ledger_id, entry_id = _RESPONSE.unpack_from(content)
    status = _STATUS_BY_NUMBER.get(number, Status.IO_ERROR)
    match_bytes = content[1:2] + content[8:24]
    if opcode == _READ and status is Status.OK:
        return match_bytes, ReadResponse(status, ledger_id, entry_id, content[_RESPONSE.size :])
    if len(content) != _RESPONSE.size:
        raise MalformedMessage(f"a version 2 response of {len(content)} bytes, {_RESPONSE.size} expected")
    if opcode == _READ:
        return match_bytes, ReadResponse(status, ledger_id, entry_id)
    return match_bytes, AddResponse(status, ledger_id, entry_id)


def _decode_batch_response(content: bytes) -> tuple[bytes, BatchReadResponse]:
    size, start = len(content), _BATCH_RESPONSE.size
    if size < start:
        raise MalformedMessage(f"a version 2 batch read response of {size} bytes")
    _, _, _, number, ledger_id, entry_id, _ = _BATCH_RESPONSE.unpack_from(content)
    status = _STATUS_BY_NUMBER.get(number, Status.IO_ERROR)
    bodies: Sequence[bytes] = ()
    if status is Status.OK:
        bodies = bodies_from(content, start)
    elif size > start:
        raise MalformedMessage("a failed version 2 batch read with entries")
    return b"\x07" + content[24:32], BatchReadResponse(status, ledger_id, entry_id, bodies)


# Both sides.


def _auth_body(message: AuthMessage) -> bytes:
    return pb.AuthMessage(authPluginName=message.plugin_name, payload=message.payload).SerializeToString()


def _decode_auth(content: bytes) -> AuthMessage:
    message = pb.AuthMessage()
    try:
        message.ParseFromString(content[_HEADER.size :])
    except DecodeError as error:
        raise MalformedMessage(f"a version 2 authentication packet that cannot be parsed: {error}") from error
    if not message.IsInitialized() or not isinstance(message.authPluginName, str):
        raise MalformedMessage("a version 2 authentication packet without plugin name or payload")
    return AuthMessage(message.authPluginName, message.payload)

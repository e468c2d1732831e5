"""The add of protocol version 3, assembled by hand: the one message whose cost bounds the throughput of a client.

An add becomes a small head (length prefix, fields, entry header) and the payload as it is. The protobuf runtime would copy
the payload twice and take several times as long. The bytes are those that protobuf itself writes with its fields in
ascending order; a property test holds the two against each other.

The acknowledgement of an add is the answer a client receives most, and all of its bytes are known beforehand. So it is
built together with the request and compared, not decoded; every other answer takes the ordinary way through protobuf.
"""

from __future__ import annotations

import struct
from typing import Final

from bkclient.wire.envelope import HIGH_PRIORITY, EncodedRequest
from bkclient.wire.framing import PREFIX_SIZE
from bkclient.wire.messages import AddRequest, AddResponse, Operation

__all__ = ["encode_add_request", "encode_add_response", "header_field", "varint"]

_PACK_PREFIX: Final = struct.Struct(">I").pack
_ADD: Final = int(Operation.ADD_ENTRY)
_RECOVERY_ADD: Final = b"\xa0\x06\x01"  # flag, field 100


def _short_varint(value: int) -> bytes:
    return bytes((value,)) if value < 0x80 else bytes((value & 0x7F | 0x80, value >> 7))


# All varints of up to two bytes, and all pairs of bytes that another one follows: an add contains seven varints, and
# looking them up halves the time of its encoding, for a megabyte of memory.
_SHORT: Final = tuple(_short_varint(value) for value in range(0x4000))
_CONTINUED: Final = tuple(bytes((value & 0x7F | 0x80, value >> 7 | 0x80)) for value in range(0x4000))


def varint(value: int) -> bytes:
    """``value``, an integer of 64 bits, as protobuf writes int64, uint64 and enums: negative ones take ten bytes."""
    if 0 <= value < 0x4000:
        return _SHORT[value]
    if value < 0:
        value += 1 << 64
    return _CONTINUED[value & 0x3FFF] + varint(value >> 14)


def header_field(operation: int, txn_id: int) -> bytes:
    """The packet header without a priority, as field of a request or response.

    A response repeats it, so it doubles as the match bytes of version 3.
    """
    txn = varint(txn_id)
    return b"\x0a%c\x08\x03\x10%c\x18%b" % (5 + len(txn), operation, txn)


def encode_add_request(request: AddRequest, txn_id: int) -> EncodedRequest:
    """The frame of an add in two buffers, or three with flags; the payload is one of them, not a copy."""
    match = header_field(_ADD, txn_id)
    ledger, entry = varint(request.ledger_id), varint(request.entry_id)
    key, head, payload = request.master_key, request.header, request.payload
    fields = b"\x08%b\x10%b\x1a%b%b\x22%b" % (
        ledger,
        entry,
        varint(len(key)),
        key,
        varint(len(head) + len(payload)),
    )
    tail = b""
    if request.write_flags:
        tail = b"\x28" + varint(request.write_flags)
    if request.recovery:
        tail += _RECOVERY_ADD
    header = match
    if request.high_priority:
        header = b"\x0a%c%b\x20%c" % (match[1] + 2, match[2:], HIGH_PRIORITY)
    message_size = len(fields) + len(head) + len(payload) + len(tail)
    start = b"%b\xaa\x06%b%b%b" % (header, varint(message_size), fields, head)
    size = PREFIX_SIZE + len(start) + len(payload) + len(tail)
    start = _PACK_PREFIX(size - PREFIX_SIZE) + start
    return EncodedRequest(
        txn_id,
        match,
        (start, payload, tail) if tail else (start, payload),
        size,
        b"\x10\x00\xaa\x06%c\x08\x00\x10%b\x18%b" % (4 + len(ledger) + len(entry), ledger, entry),
    )


def encode_add_response(txn_id: int, response: AddResponse) -> bytes:
    """The frame of an answer to an add."""
    status, ledger, entry = varint(response.status), varint(response.ledger_id), varint(response.entry_id)
    content = b"%b\x10%b\xaa\x06%c\x08%b\x10%b\x18%b" % (
        header_field(_ADD, txn_id),
        status,
        3 + len(status) + len(ledger) + len(entry),
        status,
        ledger,
        entry,
    )
    return _PACK_PREFIX(len(content)) + content

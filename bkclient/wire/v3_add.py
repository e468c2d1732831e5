"""The add of protocol version 3, assembled by hand: the one message whose cost bounds the throughput of a client.

An add becomes a small head (length prefix, fields, entry header) and the payload as it is. The protobuf runtime would copy
the payload twice and take several times as long. The bytes are those that protobuf itself writes with its fields in
ascending order; a property test holds the two against each other.

The acknowledgement of an add is the answer a client receives most, and all of its bytes are known beforehand. So it is
built together with the request and compared, not decoded; every other answer takes the ordinary way through protobuf.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from typing import Final

from bkclient._core import has_twins
from bkclient.wire.envelope import HIGH_PRIORITY, EncodedAdd, EncodedAdds, EncodedRequest, are_laid_out_alike
from bkclient.wire.framing import PREFIX_SIZE
from bkclient.wire.messages import AddRequest, AddResponse, AddTemplate, Operation, Response, template_of

__all__ = [
    "AddEncoder",
    "acknowledgement_of",
    "encode_add_request",
    "encode_add_response",
    "header_field",
    "is_whole_answer_to_add",
    "match_of_acknowledgement",
    "txn_id_of",
    "varint",
    "varints",
]

_PACK_PREFIX: Final = struct.Struct(">I").pack
_ADD: Final = int(Operation.ADD_ENTRY)
#: Where the transaction id stands in match bytes.
_TXN_AT: Final = 7
#: What stands before it, but for a length, in that of an add.
_ADD_MATCH: Final = b"\x08\x03\x10%c\x18" % _ADD
_RECOVERY_ADD: Final = b"\xa0\x06\x01"  # flag, field 100


# Bytes that end a varint, and bytes that another one follows.
_LAST: Final = tuple(bytes((value,)) for value in range(0x80))
_FOLLOWED: Final = tuple(bytes((value | 0x80,)) for value in range(0x80))

# All varints of up to two bytes, and all pairs of bytes that another one follows: an add contains seven varints, and
# looking them up halves the time of its encoding, for a megabyte of memory.
_SHORT_MAX: Final = 0x4000
_SHORT: Final = (*_LAST, *[low + high for high in _LAST[1:] for low in _FOLLOWED])
_CONTINUED: Final = tuple([low + high for high in _FOLLOWED for low in _FOLLOWED])


def varint(value: int) -> bytes:
    """``value``, an integer of 64 bits, as protobuf writes int64, uint64 and enums: negative ones take ten bytes."""
    if 0 <= value < _SHORT_MAX:
        return _SHORT[value]
    if value < 0:
        value += 1 << 64
    rest = value >> 14
    return _CONTINUED[value & 0x3FFF] + (_SHORT[rest] if rest < _SHORT_MAX else varint(rest))


def varints(values: Sequence[int]) -> list[bytes]:
    """What :func:`varint` says of each of these values, of which there is one at least."""
    least, greatest = min(values), max(values)
    if least >= 0 and greatest < _SHORT_MAX:
        return list(map(_SHORT.__getitem__, values))
    if least >= _SHORT_MAX and least >> 14 == greatest >> 14:  # they count up
        rest = varint(least >> 14)
        return [_CONTINUED[value & 0x3FFF] + rest for value in values]
    return list(map(varint, values))


#: Sizes of a frame, and what stands in it at its beginning, and in its acknowledgement until the transaction id; bytes in all.
_Parts = tuple[tuple[int, int, int], bytes, bytes, int]

#: Of an id, what is above its lowest 14 bits; negative ones are taken as unsigned.
_REST_MASK: Final = (1 << 50) - 1
_rest = lru_cache(maxsize=1024)(varint)


def header_field(operation: int, txn_id: int) -> bytes:
    """The packet header without a priority, as field of a request or response.

    A response repeats it, so it doubles as the match bytes of version 3.
    """
    txn = varint(txn_id)
    return b"\x0a%c\x08\x03\x10%c\x18%b" % (5 + len(txn), operation, txn)


@lru_cache(maxsize=1024)
def _shared(parts: _Parts) -> _Parts:
    """The same object for equal ones: most ledgers of a client lay these parts out alike, and a thousand of them fill a cache."""
    return parts


class AddEncoder:
    """Encodes the adds that have ``template`` in common.

    All of a frame but ids, header and payload is the same from one entry to the next, as long as their sizes are; so it is
    laid out once for each size, and an entry costs one look whether its sizes are those of the last one.
    """

    __slots__ = (
        "_after_entry",
        "_after_txn",
        "_laid_out",
        "_size",
        "_start",
        "_status",
        "_tail",
        "_template",
        "_until_ledger",
    )

    def __init__(self, template: AddTemplate) -> None:
        self._template: Final = template
        tail = b"\x28" + varint(template.write_flags) if template.write_flags else b""
        self._tail: Final = tail + _RECOVERY_ADD if template.recovery else tail
        self._laid_out = (-1, 0, 0)

    def encode(self, txn_id: int, entry_id: int, header: bytes, payload: bytes) -> EncodedAdd:
        """The frame of an add in two buffers, or three with flags; the payload is one of them, not a copy."""
        # As varint() does, without the calls: ids count up, so what is above their lowest 14 bits is remembered.
        txn = _SHORT[txn_id] if txn_id < _SHORT_MAX else _CONTINUED[txn_id & 0x3FFF] + _rest(txn_id >> 14)
        if 0 <= entry_id < _SHORT_MAX:
            entry = _SHORT[entry_id]
        else:
            entry = _CONTINUED[entry_id & 0x3FFF] + _rest(entry_id >> 14 & _REST_MASK)
        sizes = (len(header) + len(payload), len(txn), len(entry))
        if sizes != self._laid_out:
            self._lay_out(*sizes)
        start = b"".join((self._start, txn, self._after_txn, entry, self._after_entry, header))
        acknowledgement = b"".join((self._until_ledger, txn, self._status, entry))
        tail = self._tail
        buffers = (start, payload, tail) if tail else (start, payload)
        return buffers, acknowledgement, self._size

    def encode_all(
        self, txn_ids: Sequence[int], entry_ids: Sequence[int], headers: Sequence[bytes], payloads: Sequence[bytes]
    ) -> EncodedAdds:
        """What :meth:`encode` says of each of these adds, of which there is one at least."""
        txns, entries = varints(txn_ids), varints(entry_ids)
        if not are_laid_out_alike(txns, entries, headers, payloads):
            buffers, stored, sizes = zip(*map(self.encode, txn_ids, entry_ids, headers, payloads), strict=True)
            return buffers, stored, sizes
        laid_out = (len(headers[0]) + len(payloads[0]), len(txns[0]), len(entries[0]))
        if laid_out != self._laid_out:
            self._lay_out(*laid_out)
        # Loops of the interpreter's own: b"".join() of what is the same in all and what is not.
        before, between, after = repeat(self._start), repeat(self._after_txn), repeat(self._after_entry)
        starts = map(b"".join, zip(before, txns, between, entries, after, headers, strict=False))
        answers = zip(repeat(self._until_ledger), txns, repeat(self._status), entries, strict=False)
        tail = (repeat(self._tail),) if self._tail else ()
        frames = list(zip(starts, payloads, *tail, strict=False))
        return frames, list(map(b"".join, answers)), [self._size] * len(frames)

    def _lay_out(self, body_size: int, txn_size: int, entry_size: int) -> None:
        """Note what stands before, between and after the ids in frames with these sizes, and in their acknowledgements."""
        template, tail = self._template, self._tail
        ledger, key = varint(template.ledger_id), template.master_key
        until_entry = b"\x08%b\x10" % ledger
        after_entry = self._after_entry = b"\x1a%b%b\x22%b" % (varint(len(key)), key, varint(body_size))
        message_size = len(until_entry) + entry_size + len(after_entry) + body_size + len(tail)
        priority = b"\x20%c" % HIGH_PRIORITY if template.high_priority else b""
        self._after_txn = b"%b\xaa\x06%b%b" % (priority, varint(message_size), until_entry)
        until_txn = b"\x0a%c\x08\x03\x10%c\x18" % (5 + txn_size + len(priority), _ADD)
        size = len(until_txn) + txn_size + len(self._after_txn) - len(until_entry) + message_size
        start = _PACK_PREFIX(size) + until_txn
        # The answer: its header has no priority.
        until_txn = b"\x0a%c\x08\x03\x10%c\x18" % (5 + txn_size, _ADD)
        self._status = b"\x10\x00\xaa\x06%c\x08\x00\x10%b\x18" % (4 + len(ledger) + entry_size, ledger)
        until_ledger = _PACK_PREFIX(len(until_txn) + txn_size + len(self._status) + entry_size) + until_txn
        self._laid_out, self._start, self._until_ledger, self._size = _shared(
            ((body_size, txn_size, entry_size), start, until_ledger, PREFIX_SIZE + size)
        )


has_twins("frames", AddEncoder, "encode", bind="bind_v3")


def encode_add_request(request: AddRequest, txn_id: int) -> EncodedRequest:
    """The frame of an add in two buffers, or three with flags; the payload is one of them, not a copy."""
    encoder = AddEncoder(template_of(request))
    buffers, acknowledgement, size = encoder.encode(txn_id, request.entry_id, request.header, request.payload)
    return EncodedRequest(txn_id, header_field(_ADD, txn_id), buffers, size, acknowledgement)


def encode_add_response(txn_id: int, response: AddResponse) -> bytes:
    """The frame of an answer to an add."""
    return _answer(header_field(_ADD, txn_id), varint(response.status), response)


def acknowledgement_of(match: bytes, response: Response) -> bytes | None:
    """The frame that would have said that the entry was stored, from an answer that says something else of it.

    None if it does not say of which entry.
    """
    return _answer(match, b"\x00", response) if isinstance(response, AddResponse) else None


def match_of_acknowledgement(acknowledgement: bytes) -> bytes:
    """The match bytes in the frame of an answer."""
    return acknowledgement[PREFIX_SIZE : PREFIX_SIZE + 2 + acknowledgement[PREFIX_SIZE + 1]]


def is_whole_answer_to_add(chunk: bytes, position: int) -> bool:
    """Whether at this place there is all of a frame of less than 256 bytes that answers an add."""
    end = position + PREFIX_SIZE + (chunk[position + PREFIX_SIZE - 1] if len(chunk) - position >= PREFIX_SIZE else 0)
    return end <= len(chunk) and chunk.startswith(_ADD_MATCH, position + PREFIX_SIZE + 2, end)


def txn_id_of(match: bytes) -> int:
    """The transaction id in match bytes."""
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(match[_TXN_AT:]))


def _answer(match: bytes, status: bytes, response: AddResponse) -> bytes:
    ledger, entry = varint(response.ledger_id), varint(response.entry_id)
    content = b"%b\x10%b\xaa\x06%c\x08%b\x10%b\x18%b" % (
        match,
        status,
        3 + len(status) + len(ledger) + len(entry),
        status,
        ledger,
        entry,
    )
    return _PACK_PREFIX(len(content)) + content

"""The ordinary read of protocol version 3 and its good answer, laid out by hand: what reading a ledger consists of.

A request holds two ids besides its transaction id. The good answer repeats all three, so its bytes up to the body are known when
the request is sent, but for two lengths; it is compared, not decoded. Whatever has another layout (a failure, fields in another
order, fields that are not known here, a body of more than 2 MiB) is left to protobuf, which defines what it means. Property tests
hold requests and answers to what protobuf writes and reads.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from bkclient.wire.envelope import EncodedReads, are_laid_out_alike
from bkclient.wire.messages import Operation
from bkclient.wire.v3_add import header_field, varint, varints

__all__ = ["ReadEncoder", "body_in", "max_lac_in"]

_PACK_PREFIX: Final = struct.Struct(">I").pack
#: Status of the response, number of its message.
_SUCCESS: Final = b"\x10\x00\xa2\x06"
#: The shortest rest of a good answer behind its match bytes: with ids of one byte and an empty body.
_SHORTEST: Final = 4 + 1 + 8
#: A rest that is shorter has lengths of three bytes at most.
_TOO_LONG: Final = 1 << 21
_MAX_LAC: Final = 0x28
#: Bytes of a LAC with its number, at most.
_LONGEST_REST: Final = 11
_NEGATIVE: Final = 1 << 63


class ReadEncoder:
    """Encodes ordinary reads of one ledger."""

    __slots__ = ("_after_txn", "_from_status", "_laid_out", "_ledger", "_start")

    def __init__(self, ledger_id: int) -> None:
        self._ledger: Final = varint(ledger_id)
        self._from_status: Final = b"\x08\x00\x10%b\x18" % self._ledger
        self._laid_out = (0, 0)

    def encode(self, txn_id: int, entry_id: int) -> tuple[bytes, bytes, bytes]:
        """Frame and match bytes of a read, and the start of a good answer's message for :func:`body_in`."""
        txn, entry = varint(txn_id), varint(entry_id)
        sizes = (len(txn), len(entry))
        if sizes != self._laid_out:
            self._lay_out(*sizes)
        start = self._start + txn
        return b"".join((start, self._after_txn, entry)), start[4:], b"%b%b\x22" % (self._from_status, entry)

    def encode_all(self, txn_ids: Sequence[int], entry_ids: Sequence[int]) -> EncodedReads:
        """What :meth:`encode` says of each of these ids, of which there is one at least."""
        if len(entry_ids) == 1:
            frame, match, message_start = self.encode(txn_ids[0], entry_ids[0])
            return (frame,), (match,), (message_start,)
        txns, entries = varints(txn_ids), varints(entry_ids)
        if not are_laid_out_alike(txns, entries):
            frames, matches, starts = zip(*map(self.encode, txn_ids, entry_ids), strict=True)
            return frames, matches, starts
        sizes = (len(txns[0]), len(entries[0]))
        if sizes != self._laid_out:
            self._lay_out(*sizes)
        start, after_txn, from_status = self._start, self._after_txn, self._from_status
        match_start = start[4:]
        return (
            [start + txn + after_txn + entry for txn, entry in zip(txns, entries, strict=True)],
            [match_start + txn for txn in txns],
            [from_status + entry + b"\x22" for entry in entries],
        )

    def _lay_out(self, txn_size: int, entry_size: int) -> None:
        """Note what stands before and between the ids in frames with these sizes."""
        self._laid_out = (txn_size, entry_size)
        until_entry = b"\x08%b\x10" % self._ledger
        self._after_txn = b"\xa2\x06%c%b" % (len(until_entry) + entry_size, until_entry)
        until_txn = header_field(Operation.READ_ENTRY, 0)[:-1]
        until_txn = b"\x0a%c%b" % (5 + txn_size, until_txn[2:])
        self._start = _PACK_PREFIX(len(until_txn) + txn_size + len(self._after_txn) + entry_size) + until_txn


def body_in(data: bytes, position: int, end: int, start: bytes) -> tuple[int, int, int] | None:
    """Where message and body begin, and where the body ends, in the answer whose match bytes end at ``position``.

    It ends at ``end``, and ``start`` is that of its message if it is a good one. Between body and end there may be a LAC
    (:func:`max_lac_in`). None if it is no good answer, or one of another layout.
    """
    if not _SHORTEST <= end - position < _TOO_LONG or not data.startswith(_SUCCESS, position):
        return None
    # Two lengths of up to three bytes. What does not fit together is found where they are added up.
    size = data[position + 4]
    position += 5
    if size & 0x80:
        size += (data[position] << 7) - 0x80
        position += 1
        if size & 0x4000:
            size += (data[position] << 14) - 0x4000
            position += 1
    if position + size != end or not data.startswith(start, position):
        return None
    message_at = position
    position += len(start)
    if position >= end:
        return None
    size = data[position]
    position += 1
    if size & 0x80:
        if end - position < 2:
            return None
        size += (data[position] << 7) - 0x80
        position += 1
        if size & 0x4000:
            size += (data[position] << 14) - 0x4000
            position += 1
    body_end = position + size
    return (message_at, position, body_end) if 0 <= end - body_end <= _LONGEST_REST else None


@lru_cache(maxsize=1024)
def max_lac_in(rest: bytes) -> int | None:
    """The LAC in the fields behind the body if it is the only one; it is the same in many answers."""
    number, *low, last = rest if len(rest) > 1 else b"\x00\x00"
    if number != _MAX_LAC or last & 0x80 or not all(byte & 0x80 for byte in low):
        return None
    value = sum((byte & 0x7F) << 7 * place for place, byte in enumerate((*low, last)))
    if value < _NEGATIVE:
        return value
    return value - 2 * _NEGATIVE if value < 2 * _NEGATIVE else None

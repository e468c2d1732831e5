"""The bytes of an entry of a log: a header of fixed length, and a batch of messages.

::

    version          1 byte    1
    compression      1 byte    0 none, 1 zlib, 2 lz4, 3 zstd, 4 snappy
    count            4 bytes   messages, at least 1
    publish time     8 bytes   milliseconds since 1970
    length           4 bytes   of the batch before it was compressed
    batch                      msgpack: an array of messages, each an array of payload, key, headers, event time

Numbers are unsigned and big-endian. Of a message what is absent at the end is left out, what is absent elsewhere is nil. The
digest of the ledger protects the entry, so bytes that do not fit are a defect of a writer, or of another format.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgpack

from bkclient._frozen import FrozenDict
from bkclient.errors import ArgumentError, DigestMismatch
from bkclient.log.format.compression import Compression, compress, decompress
from bkclient.log.format.message import NO_HEADERS, LogMessage, NewMessage, Row
from bkclient.log.format.message_id import MessageId, ids_of_batch

__all__ = [
    "BATCH_BYTES_MAX",
    "BATCH_MESSAGES_MAX",
    "COMPACTED_BYTES",
    "HEADER_BYTES",
    "OVERHEAD_BYTES",
    "decode_compacted",
    "decode_entry",
    "encode_compacted",
    "encode_entry",
    "encode_rows",
    "publish_time",
]

_VERSION: Final = 1
_COMPACTED: Final = 2
"""The version of entries that hold messages of others: before each are its ledger, entry, batch index, batch size and time."""
_HEADER: Final = struct.Struct(">BBIQI")
HEADER_BYTES: Final = _HEADER.size
COMPACTED_BYTES: Final = 40
"""What the ledger of a compaction adds to a message, at most: where it is from."""
OVERHEAD_BYTES: Final = HEADER_BYTES + 5 + COMPACTED_BYTES
"""What an entry has beside the sizes of its messages, at most; one message fits into the ledger of a compaction, too."""
BATCH_MESSAGES_MAX: Final = 100_000
BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of a batch before it was compressed."""


def encode_entry(messages: Sequence[NewMessage], publish_ms: int, compression: Compression) -> bytes:
    """The bytes of an entry; it is left uncompressed if compressing makes it no smaller."""
    return encode_rows([message.row() for message in messages], publish_ms, compression)


def encode_rows(rows: Sequence[bytes | Row], publish_ms: int, compression: Compression) -> bytes:
    """The same for messages that are rows already, or payloads that have nothing else."""
    if set(map(type, rows)) == {bytes}:
        whole: list[Any] = list(zip(rows, strict=True))
    else:
        whole = [row if type(row) is tuple else (row,) for row in rows]
    return _packed(_VERSION, whole, publish_ms, compression)


def encode_compacted(messages: Sequence[LogMessage], compression: Compression) -> bytes:
    """The bytes of an entry that holds messages of other entries, which keep their ids."""
    rows: list[Row] = []
    for message in messages:
        place = message.id
        where = (place.ledger_id, place.entry_id, place.batch_index, message.batch_size, message.publish_ms)
        content = NewMessage(message.payload, message.key, message.headers, message.event_ms)
        rows.append((*where, *content.row()))
    return _packed(_COMPACTED, rows, messages[-1].publish_ms, compression)


def _packed(version: int, rows: list[Row], publish_ms: int, compression: Compression) -> bytes:
    if not 1 <= len(rows) <= BATCH_MESSAGES_MAX:
        raise ArgumentError(f"an entry must have 1 to {BATCH_MESSAGES_MAX} messages, got {len(rows)}")
    batch: bytes = msgpack.packb(rows)
    if len(batch) > BATCH_BYTES_MAX:
        raise ArgumentError(f"the messages of an entry must have at most {BATCH_BYTES_MAX} bytes, got {len(batch)}")
    packed = compress(compression, batch)
    if len(packed) >= len(batch):
        compression, packed = Compression.NONE, batch
    return _HEADER.pack(version, compression, len(rows), publish_ms, len(batch)) + packed


def publish_time(data: bytes) -> int:
    """When the entry was published, in milliseconds since 1970."""
    return _header(data)[2]


def decode_entry(data: bytes, ledger_id: int, entry_id: int, partition: int = -1) -> list[LogMessage]:
    """The messages of an entry; :class:`~bkclient.errors.DigestMismatch` if it is none of this version."""
    compression, count, publish_ms, length = _header(data)
    batch = decompress(compression, memoryview(data)[HEADER_BYTES:], length)
    ids = ids_of_batch(ledger_id, entry_id, partition, count)
    try:
        return [
            # Made without a call of ours for each where there is a payload only, as mostly.
            tuple.__new__(LogMessage, (place, row[0], None, NO_HEADERS, None, publish_ms, count))
            if len(row) == 1 and type(row[0]) is bytes
            else _message(row, place, publish_ms, count)
            for row, place in zip(_rows(batch, count), ids, strict=True)
        ]
    except (ValueError, TypeError, ArgumentError, msgpack.UnpackException) as error:
        raise _damaged(count, error, ledger_id, entry_id) from error


def decode_compacted(data: bytes, ledger_id: int, entry_id: int, partition: int = -1) -> list[LogMessage]:
    """The messages of an entry of a compacted ledger; raises as :func:`decode_entry`."""
    compression, count, _, length = _header(data, _COMPACTED)
    batch = decompress(compression, memoryview(data)[HEADER_BYTES:], length)
    try:
        return [_compacted(row, partition) for row in _rows(batch, count)]
    except (ValueError, TypeError, ArgumentError, msgpack.UnpackException) as error:
        raise _damaged(count, error, ledger_id, entry_id) from error


def _rows(batch: bytes | memoryview, count: int) -> list[tuple[Any, ...]]:
    """The messages as they are stored. Arrays become tuples, so what is another type is no array."""
    rows = msgpack.unpackb(batch, use_list=False)
    if type(rows) is not tuple or len(rows) != count or set(map(type, rows)) != {tuple}:
        raise ValueError("a batch of a wrong shape")
    return list(rows)


def _damaged(count: int, error: Exception, ledger_id: int, entry_id: int) -> DigestMismatch:
    return DigestMismatch(f"it does not hold {count} messages: {error}", ledger_id=ledger_id, entry_id=entry_id)


def _compacted(row: tuple[Any, ...], partition: int) -> LogMessage:
    ledger, entry, batch_index, batch_size, publish_ms, *content = row
    if type(publish_ms) is not int or type(batch_size) is not int:
        raise ValueError("a message of a wrong shape")
    return _message(content, MessageId(ledger, entry, partition, batch_index), publish_ms, batch_size)


def _header(data: bytes, expected: int = _VERSION) -> tuple[Compression, int, int, int]:
    if len(data) < HEADER_BYTES:
        raise DigestMismatch(f"an entry of a log has at least {HEADER_BYTES} bytes, this one has {len(data)}")
    version, compression, count, publish_ms, length = _HEADER.unpack_from(data)
    if version != expected or compression not in Compression.__members__.values():
        raise DigestMismatch(f"the entry has format {version} and compression {compression}, which are not known")
    if not 1 <= count <= BATCH_MESSAGES_MAX or length > BATCH_BYTES_MAX:
        raise DigestMismatch(f"an entry cannot have {count} messages in {length} bytes")
    return Compression(compression), count, publish_ms, length


def _message(fields: Sequence[Any], message_id: MessageId, publish_ms: int, count: int) -> LogMessage:
    payload, key, headers, event_ms = [*fields, None, None, None][: max(4, len(fields))]
    if type(payload) is not bytes or not (key is None or type(key) is str):
        raise ValueError("a message of a wrong shape")
    if not (event_ms is None or type(event_ms) is int) or not (headers is None or type(headers) is dict):
        raise ValueError("a message of a wrong shape")
    return LogMessage(message_id, payload, key, FrozenDict(headers or {}), event_ms, publish_ms, count)

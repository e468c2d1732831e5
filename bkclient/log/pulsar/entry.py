"""The bytes of an entry of a Pulsar topic.

::

    0x0e02, length (4 bytes), broker's metadata      optional
    0x0e01, CRC32C (4 bytes) of all that follows     optional
    length (4 bytes), metadata of the message
    payload

Numbers are big-endian, metadata is protobuf. The payload of a batch is, after it was decompressed, a row of: length (4 bytes),
metadata of one message, its payload, whose length the metadata says.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError
from google_crc32c import value as crc32c

from bkclient._frozen import FrozenDict
from bkclient.errors import ArgumentError, DigestMismatch, IllegalOperation
from bkclient.log.format.compression import Compression, decompress
from bkclient.log.format.entry import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX
from bkclient.log.format.message_id import MessageId
from bkclient.log.pulsar.message import PulsarMessage
from bkclient.log.pulsar.pulsar_pb2 import StoredBrokerMetadata, StoredMetadata, StoredSingleMetadata

__all__ = ["decode_pulsar_entry", "decompress_pulsar"]

_BROKER: Final = 0x0E02
_CHECKED: Final = 0x0E01
_LONG: Final = struct.Struct(">I")
_SHORT: Final = struct.Struct(">H")
_COMPRESSIONS: Final = {0: "none", 1: "lz4", 2: "zlib", 3: "zstd", 4: "snappy"}
_ADVICE: Final = "Its bytes are those that were written; the ledger is of another program, or a producer was defect."


def decode_pulsar_entry(data: bytes, ledger_id: int, entry_id: int, partition: int = -1) -> list[PulsarMessage]:
    """The messages of an entry: those of a batch, or one.

    Raises :class:`~bkclient.errors.DigestMismatch` for bytes that are none of Pulsar's, or were damaged, and
    :class:`~bkclient.errors.IllegalOperation` where they are compressed by what is not installed; both name the entry.
    """
    try:
        return list(_messages(data, ledger_id, entry_id, partition))
    except (ValueError, DecodeError, struct.error, ArgumentError) as error:
        raise DigestMismatch(
            f"it is no entry of a Pulsar topic: {error}", ledger_id=ledger_id, entry_id=entry_id, advice=_ADVICE
        ) from error
    except (DigestMismatch, IllegalOperation) as error:
        advice = error.advice if isinstance(error, IllegalOperation) else _ADVICE
        raise type(error)(error.message, ledger_id=ledger_id, entry_id=entry_id, advice=advice) from error


def decompress_pulsar(compression: int, data: bytes, length: int) -> bytes:
    """What was compressed by the way that Pulsar numbers so; raises as :func:`decode_pulsar_entry`, without an entry."""
    name = _name_of(compression)
    if name == "none":
        return data
    if not 0 <= length <= BATCH_BYTES_MAX:
        raise ValueError(f"{length} bytes before compression are more than {BATCH_BYTES_MAX}")
    if name == "zlib":
        return _inflated(data, length)
    return bytes(decompress(Compression[name.upper()], data, length))


def _inflated(data: bytes, length: int) -> bytes:
    """Pulsar's Java client flushes what it compresses and never finishes it, so the stream may have no end."""
    machine = zlib.decompressobj()
    try:
        found = machine.decompress(data, length + 1)
    except zlib.error as error:
        raise ValueError(f"it cannot be decompressed: {error}") from error
    if len(found) != length or machine.unused_data:
        raise ValueError(f"decompressed it does not have {length} bytes")
    return found


def _name_of(compression: int) -> str:
    if compression not in _COMPRESSIONS:
        raise ValueError(f"compression {compression} is not known")
    return _COMPRESSIONS[compression]


def _messages(data: bytes, ledger_id: int, entry_id: int, partition: int) -> Iterator[PulsarMessage]:
    broker, rest = _broker_metadata(data)
    metadata, payload = _metadata(rest)
    keys = tuple(each.key for each in metadata.encryption_keys)
    chunks = max(metadata.num_chunks_from_msg, 1)
    if not 0 <= metadata.chunk_id < chunks:
        raise ValueError(f"chunk {metadata.chunk_id} of {chunks}")
    common: dict[str, Any] = {
        "producer": metadata.producer_name,
        "publish_ms": metadata.publish_time,
        "broker_ms": broker.broker_timestamp if broker.HasField("broker_timestamp") else None,
        "encryption_keys": keys,
        "marker": metadata.marker_type if metadata.HasField("marker_type") else None,
        "transaction": _transaction(metadata),
    }
    last_index = broker.index if broker.HasField("index") else None
    count = metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 1
    if not 1 <= count <= BATCH_MESSAGES_MAX:
        raise ValueError(f"a batch of {count} messages")
    is_whole = not keys and chunks == 1
    if is_whole:
        payload = decompress_pulsar(metadata.compression, payload, metadata.uncompressed_size)
    if is_whole and metadata.HasField("num_messages_in_batch"):
        yield from _batch(payload, count, (ledger_id, entry_id, partition), last_index, common)
        return
    yield PulsarMessage(
        MessageId(ledger_id, entry_id, partition),
        payload,
        properties=_properties(metadata),
        sequence_id=metadata.sequence_id,
        index=last_index,
        batch_size=count,
        chunk=metadata.chunk_id,
        chunks=chunks,
        chunked_id=metadata.uuid,
        compression="" if is_whole or not metadata.compression else _name_of(metadata.compression),
        **_shared(metadata),
        **common,
    )


def _batch(
    payload: bytes, count: int, place: tuple[int, int, int], last_index: int | None, common: dict[str, Any]
) -> Iterator[PulsarMessage]:
    offset = 0
    for number in range(count):
        single = StoredSingleMetadata()
        offset = _parsed(single, payload, offset)
        end = offset + single.payload_size
        if (single.payload_size < 0 and not single.null_value) or end > len(payload):
            raise ValueError(
                f"message {number} of the batch has {single.payload_size} bytes, {len(payload) - offset} are left"
            )
        yield PulsarMessage(
            MessageId(*place, number),
            payload[offset : max(end, offset)],
            properties=_properties(single),
            sequence_id=single.sequence_id,
            # The broker counts messages, and notes the number of the last one of an entry.
            index=None if last_index is None else last_index - count + 1 + number,
            batch_size=count,
            is_compacted_out=single.compacted_out,
            **_shared(single),
            **common,
        )
        offset = max(end, offset)
    if offset != len(payload):
        raise ValueError(f"{len(payload) - offset} bytes follow the {count} messages of the batch")


def _broker_metadata(data: bytes) -> tuple[StoredBrokerMetadata, memoryview]:
    found = StoredBrokerMetadata()
    offset = 0
    if data[:2] == _SHORT.pack(_BROKER):
        offset = _parsed(found, data, 2)
    return found, memoryview(data)[offset:]


def _metadata(data: memoryview) -> tuple[StoredMetadata, bytes]:
    offset = 0
    if data[:2] == _SHORT.pack(_CHECKED):
        (expected,) = _LONG.unpack_from(data, 2)
        offset = 6
        if crc32c(bytes(data[offset:])) != expected:
            raise DigestMismatch("the checksum of the producer does not fit its message")
    found = StoredMetadata()
    offset = _parsed(found, data, offset)
    return found, bytes(data[offset:])


def _parsed(message: Any, data: bytes | memoryview, offset: int) -> int:
    """Parse what a length precedes; where it ends."""
    end: int = offset + _LONG.size + _LONG.unpack_from(data, offset)[0]
    if end > len(data):
        raise ValueError(f"metadata to byte {end} of {len(data)}")
    message.ParseFromString(bytes(data[offset + _LONG.size : end]))
    if not message.IsInitialized():
        raise ValueError("its metadata lacks fields that each has")
    return end


def _shared(metadata: StoredMetadata | StoredSingleMetadata) -> dict[str, Any]:
    """What messages of a batch and those that are alone have in common."""
    return {
        "key": metadata.partition_key if metadata.HasField("partition_key") else None,
        "is_key_base64": metadata.partition_key_b64_encoded,
        "ordering_key": metadata.ordering_key if metadata.HasField("ordering_key") else None,
        "event_ms": metadata.event_time or None,
        "is_null": metadata.null_value,
    }


def _properties(metadata: StoredMetadata | StoredSingleMetadata) -> FrozenDict[str, str]:
    return FrozenDict({each.key: each.value for each in metadata.properties})


def _transaction(metadata: StoredMetadata) -> tuple[int, int] | None:
    if not metadata.HasField("txnid_most_bits") or not metadata.HasField("txnid_least_bits"):
        return None
    return metadata.txnid_most_bits, metadata.txnid_least_bits

"""Which ledgers a Pulsar topic has: the node that its brokers keep."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote_plus

from google.protobuf.message import DecodeError

from bkclient._frozen import FrozenDict
from bkclient.errors import ArgumentError, BookKeeperError, MetadataSerializationError
from bkclient.log.pulsar.entry import decompress_pulsar
from bkclient.log.pulsar.pulsar_pb2 import StoredInfoHeader, StoredManagedLedger

__all__ = ["PulsarLedger", "PulsarTopic", "decode_topic", "node_of", "partition_of"]

_COMPRESSED: Final = 0x4778
_HEADER: Final = struct.Struct(">HI")
_LEDGERS_MAX: Final = 1_000_000
_SCHEME: Final = "persistent://"


@dataclass(frozen=True, slots=True)
class PulsarLedger:
    """One ledger of a topic.

    What was not noted yet is None, as for the ledger that the broker writes to. ``is_offloaded`` tells that tiered storage
    has it, ``is_gone`` that it is there only. ``closed_ms`` is in milliseconds since 1970.
    """

    ledger_id: int
    entries: int | None = None
    size: int | None = None
    closed_ms: int | None = None
    is_offloaded: bool = False
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class PulsarTopic:
    """The ledgers of a topic, or of one of its partitions, oldest first.

    ``terminated_at`` are ledger and entry of the last message if there will be no more, ``properties`` those of the topic.
    """

    name: str
    ledgers: tuple[PulsarLedger, ...]
    terminated_at: tuple[int, int] | None = None
    properties: Mapping[str, str] = FrozenDict()


def node_of(topic: str) -> str:
    """The node of a topic, below the parent of the cluster's root.

    ``topic`` is ``persistent://tenant/namespace/name``, the same without the scheme, or a name in ``public/default``.
    :class:`~bkclient.errors.ArgumentError` for anything else.
    """
    parts = topic.removeprefix(_SCHEME).split("/", 2)
    if len(parts) == 1 and not topic.startswith(_SCHEME):
        parts = ["public", "default", *parts]
    is_shaped = len(parts) == 3 and all(parts) and "://" not in "/".join(parts)
    if not is_shaped or {".", ".."} & {*parts} or any(character in topic for character in "\0\n"):
        raise ArgumentError(f"a topic must have the form persistent://tenant/namespace/name, got {topic!r}")
    tenant, namespace, name = parts
    # As java.net.URLEncoder does it.
    local = quote_plus(name, safe="*").replace("~", "%7E")
    return f"managed-ledgers/{tenant}/{namespace}/persistent/{local}"


def partition_of(topic: str) -> int:
    """The number of the partition that a topic's name says; -1 without."""
    _, found, number = topic.rpartition("-partition-")
    return int(number) if found and number.isascii() and number.isdigit() and len(number) < 10 else -1


def decode_topic(name: str, data: bytes) -> PulsarTopic:
    """What the node of a topic holds; :class:`~bkclient.errors.MetadataSerializationError` if that cannot be understood."""
    try:
        stored = StoredManagedLedger()
        stored.ParseFromString(_plain(data))
        return _topic(name, stored)
    except (DecodeError, ValueError, struct.error) as error:
        raise MetadataSerializationError(f"the ledgers of topic {name} cannot be decoded: {error}") from error
    except BookKeeperError as error:
        raise MetadataSerializationError(
            f"the ledgers of topic {name} cannot be decoded: {error.message}", advice=error.advice
        ) from error


def _plain(data: bytes) -> bytes:
    if data[:2] != _COMPRESSED.to_bytes(2, "big"):
        return data
    _, length = _HEADER.unpack_from(data)
    end = _HEADER.size + length
    if end > len(data):
        raise ValueError(f"a header of {length} bytes, {len(data) - _HEADER.size} are left")
    header = StoredInfoHeader()
    header.ParseFromString(data[_HEADER.size : end])
    return decompress_pulsar(header.compressionType, data[end:], header.uncompressedSize)


def _topic(name: str, stored: StoredManagedLedger) -> PulsarTopic:
    if not stored.IsInitialized():
        raise ValueError("it lacks fields that each has")
    if len(stored.ledgerInfo) > _LEDGERS_MAX:
        raise ValueError(f"{len(stored.ledgerInfo)} ledgers are more than {_LEDGERS_MAX}")
    terminated = None
    if stored.HasField("terminatedPosition"):
        terminated = (stored.terminatedPosition.ledgerId, stored.terminatedPosition.entryId)
    properties = FrozenDict({each.key: each.value for each in stored.properties})
    return PulsarTopic(name, tuple(map(_ledger, stored.ledgerInfo)), terminated, properties)


def _ledger(stored: Any) -> PulsarLedger:
    if stored.ledgerId < 0:
        raise ValueError(f"a ledger cannot have the id {stored.ledgerId}")
    return PulsarLedger(
        stored.ledgerId,
        stored.entries if stored.HasField("entries") else None,
        stored.size if stored.HasField("size") else None,
        stored.timestamp or None,
        stored.offloadContext.complete,
        stored.offloadContext.bookkeeperDeleted,
    )

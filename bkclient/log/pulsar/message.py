"""A message of a Pulsar topic as it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bkclient._frozen import FrozenDict
from bkclient.log.format.message_id import MessageId

__all__ = ["PulsarMessage"]


@dataclass(frozen=True, slots=True)
class PulsarMessage:
    """A message of a Pulsar topic, or of a part that cannot be understood by itself, as what it is.

    ``payload`` is what the producer sent, unless ``encryption_keys`` names keys: then it is encrypted, and still compressed and
    batched. Where ``chunks`` is above 1 it is chunk ``chunk``, counted from 0, of a message ``chunked_id`` that was split; if
    ``compression`` is not empty, the chunks together are compressed so. ``marker`` is the number of a message that brokers wrote
    for themselves, ``transaction`` the id of one that counts only if its transaction was committed, which other topics tell.

    Times are milliseconds since 1970: ``publish_ms`` is the producer's, ``broker_ms`` the broker's, ``event_ms`` the sender's.
    ``index`` is the one that the broker counted, None where it counts none. ``is_null`` tells a deletion from an empty payload,
    ``is_compacted_out`` a message that a compaction left its place of. ``batch_size`` messages share the entry.
    """

    id: MessageId
    payload: bytes = field(repr=False)
    key: str | None = field(default=None, repr=False)
    properties: Mapping[str, str] = field(default_factory=FrozenDict, repr=False)
    producer: str = ""
    sequence_id: int = 0
    publish_ms: int = 0
    event_ms: int | None = None
    broker_ms: int | None = None
    index: int | None = None
    batch_size: int = 1
    ordering_key: bytes | None = field(default=None, repr=False)
    is_key_base64: bool = False
    is_null: bool = False
    is_compacted_out: bool = False
    chunk: int = 0
    chunks: int = 1
    chunked_id: str = ""
    compression: str = ""
    encryption_keys: tuple[str, ...] = field(default=(), repr=False)
    marker: int | None = None
    transaction: tuple[int, int] | None = None

    @property
    def is_readable(self) -> bool:
        """Whether the payload is all that the producer sent, in the clear, and no marker of a broker."""
        return self.chunks == 1 and not self.encryption_keys and self.marker is None

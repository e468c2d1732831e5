"""Adds over links: one encoding for a whole write set, handed to each bookie's connection.

Writers send one entry after the other to the same few write sets. The connections to each are remembered, for all writers
together, as long as all of them stand, and then an entry costs one encoding and one object. Everything else
is rare and goes the way of any other request, one for each bookie: connections that are being made or are full, keys in use in
protocol version 2, and frames that are too large.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from bkclient._core import has_twins
from bkclient.errors import IllegalOperation
from bkclient.transport.adds import AddReplies, EachReplica, Submits
from bkclient.transport.request_stream import RequestStream
from bkclient.wire import v2, v3
from bkclient.wire.connection import ClientConnection
from bkclient.wire.envelope import EncodedAdd
from bkclient.wire.messages import AddTemplate
from bkclient.wire.outstanding import Load, Outstanding

__all__ = ["LedgerAdds", "Links"]


#: How many write sets are remembered.
_WRITE_SETS_MAX: Final = 4096


class Links(Submits, Protocol):
    """What sends adds needs of the transport with the links."""

    @property
    def txn_ids(self) -> Iterator[int]:
        """The transaction ids that all its connections take theirs from."""
        ...

    def write_sets_of(self, ledger_id: int) -> dict[tuple[str, ...], tuple[RequestStream, ...]]:
        """Where connections that were found are remembered, for all ledgers that share them; emptied when any has changed."""
        ...

    def streams_to(self, bookies: tuple[str, ...], ledger_id: int) -> tuple[RequestStream, ...]:
        """The connections that take adds of the ledger now; none if any of these bookies has none that stands."""
        ...


class _Encoder(Protocol):
    def encode(self, txn_id: int, entry_id: int, header: bytes, payload: bytes) -> EncodedAdd: ...


class LedgerAdds(EachReplica):
    """Sends the adds of one writer over links that speak ``protocol_version``."""

    __slots__ = ("_encoder", "_links", "_max_frame_size", "_streams", "_timeout_s", "_txn_ids")

    def __init__(
        self,
        links: Links,
        template: AddTemplate,
        replies: AddReplies,
        *,
        protocol_version: int,
        timeout_s: float,
        max_frame_size: int,
    ) -> None:
        super().__init__(links, template, replies)
        self._links: Final = links
        self._txn_ids: Final = links.txn_ids
        self._timeout_s: Final = timeout_s
        self._max_frame_size: Final = max_frame_size
        self._encoder: Final = _encoder_of(template, protocol_version)
        self._streams: Final = links.write_sets_of(template.ledger_id)

    def send(self, bookies: tuple[str, ...], entry_id: int, header: bytes, payload: bytes) -> None:
        """See :class:`~bkclient.transport.adds.AddSender`."""
        streams = self._streams.get(bookies)
        if streams is None:
            streams = self._find(bookies)
        encoder = self._encoder
        if not streams or encoder is None:
            super().send(bookies, entry_id, header, payload)
            return
        buffers, acknowledgement, size = encoder.encode(next(self._txn_ids), entry_id, header, payload)
        if size > self._max_frame_size:
            super().send(bookies, entry_id, header, payload)
            return
        first = streams[0]
        now = first.turn_began if first.buffers else first.now
        add = (entry_id, self._replies, now + self._timeout_s, size)
        for stream in streams:
            connection = stream.connection
            load = connection.load
            # As ClientConnection.send_add(), whose call every replica would cost, where nothing was given up.
            if (
                load.requests >= load.max_requests
                or load.bytes >= load.max_bytes
                or (stream.has_expired and stream.is_paused and stream.is_overfull)
                or (connection.outstanding.given_up and not connection.is_free_for(acknowledgement))
                or connection.adds.setdefault(acknowledgement, add) is not add
            ):
                super().send((stream.bookie_id,), entry_id, header, payload)
                continue
            load.requests += 1
            load.bytes += size
            if not stream.buffers:
                stream.begin_turn()
            stream.buffers += buffers

    def _find(self, bookies: tuple[str, ...]) -> tuple[RequestStream, ...]:
        streams = self._links.streams_to(bookies, self._template.ledger_id)
        if len(set(streams)) < len(streams):
            streams = ()  # old metadata may name a bookie twice, which answers once for each place
        if len(self._streams) >= _WRITE_SETS_MAX:
            self._streams.clear()
        self._streams[bookies] = streams
        return streams


has_twins("sending", LedgerAdds, "send", knows=(EachReplica, RequestStream, ClientConnection, Load, Outstanding))


def _encoder_of(template: AddTemplate, protocol_version: int) -> _Encoder | None:
    """None for what the version cannot express."""
    try:
        return v2.AddPacketEncoder(template) if protocol_version == 2 else v3.AddEncoder(template)
    except IllegalOperation:
        return None

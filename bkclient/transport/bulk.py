"""Adds over links: one encoding for a whole write set, handed to each bookie's connection.

Writers send one entry after the other to the same few write sets. The connections to each are remembered, for all writers
together, as long as all of them stand. In protocol version 3 the entries of one turn are sent as a run
(:mod:`bkclient.transport.open_run`), which costs each of them one encoding and one tuple; in version 2, where a key may be in
use, an entry is registered with each connection. Everything else is rare and goes the way of any other request, one for each
bookie: connections that are being made or are full, keys in use, and frames that are too large.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from bkclient._core import has_twins
from bkclient.errors import IllegalOperation
from bkclient.transport.adds import AddReplies, EachReplica, Submits
from bkclient.transport.open_run import OpenRun, WriteSets
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

    def write_sets_of(self, ledger_id: int) -> WriteSets:
        """Where connections that were found are remembered, for all ledgers that share them; emptied when any has changed."""
        ...

    def streams_to(self, bookies: tuple[str, ...], ledger_id: int) -> tuple[RequestStream, ...]:
        """The connections that take adds of the ledger now; none if any of these bookies has none that stands."""
        ...


class _Encoder(Protocol):
    def encode(self, txn_id: int, entry_id: int, header: bytes, payload: bytes) -> EncodedAdd: ...


class LedgerAdds(EachReplica):
    """Sends the adds of one writer over links that speak ``protocol_version``."""

    __slots__ = ("_encoder", "_links", "_makes_runs", "_max_frame_size", "_streams", "_timeout_s", "_txn_ids")

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
        self._makes_runs: Final = protocol_version == 3
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
        run = self._streams.run
        if (
            run is None
            or run.frame_size != len(acknowledgement)
            or run.left <= 0
            or run.room <= 0
            or streams not in run.sets
        ):
            run = self._next_run(streams, len(acknowledgement)) if self._makes_runs else None
        if run is not None:
            run.add((entry_id, self._replies, size, acknowledgement, buffers, streams))
            run.left -= 1
            run.room -= size
            return
        first = streams[0]
        if self._makes_runs:
            for stream in streams:
                stream.connection.take_apart()
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

    def _next_run(self, streams: tuple[RequestStream, ...], frame_size: int) -> OpenRun | None:
        """A run for an entry that goes there; None if one of the connections may not take it."""
        run = self._streams.run
        if run is not None:
            if run.frame_size == frame_size and run.left > 0 and run.room > 0 and run.include(streams):
                return run
            if run.left <= 0 or run.room <= 0:
                run.end_full()
            else:
                run.end()
        run = OpenRun(self._streams, frame_size, streams[0].now + self._timeout_s)
        if run.include(streams):
            return run
        run.end()
        return None

    def _find(self, bookies: tuple[str, ...]) -> tuple[RequestStream, ...]:
        # Entries of a ledger go to the same bookies in one order after the other, and all of them are to share runs.
        ordered = tuple(sorted(bookies)) if self._makes_runs else bookies
        streams = self._streams.get(ordered)
        if streams is None:
            streams = self._links.streams_to(ordered, self._template.ledger_id)
            if len(set(streams)) < len(streams):
                streams = ()  # old metadata may name a bookie twice, which answers once for each place
        if len(self._streams) + 1 >= _WRITE_SETS_MAX:
            self._streams.clear()
        self._streams[ordered] = self._streams[bookies] = streams
        return streams


has_twins(
    "sending",
    LedgerAdds,
    "send",
    knows=(EachReplica, RequestStream, ClientConnection, Load, Outstanding, OpenRun, WriteSets),
)


def _encoder_of(template: AddTemplate, protocol_version: int) -> _Encoder | None:
    """None for what the version cannot express."""
    try:
        return v2.AddPacketEncoder(template) if protocol_version == 2 else v3.AddEncoder(template)
    except IllegalOperation:
        return None

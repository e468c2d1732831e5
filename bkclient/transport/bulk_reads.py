"""Reads over links: many frames with one call, handed to the bookie's connection.

:class:`LedgerReadSender` remembers the connections to bookies as long as they stand. What is rare goes the way of any other
request: connections that are being made or are full, and keys in use in protocol version 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from bkclient.transport.adds import Submits
from bkclient.transport.link import Routes
from bkclient.transport.reads import EachRead, ReadReplies
from bkclient.transport.request_stream import RequestStream
from bkclient.wire.v2_read import ReadPacketEncoder
from bkclient.wire.v3_read import ReadEncoder

__all__ = ["LedgerReadSender", "ReadLinks"]


class ReadLinks(Submits, Protocol):
    """What sends reads needs of the transport with the links."""

    @property
    def routes(self) -> Routes:
        """Tells when connections have changed."""
        ...

    def streams_to(self, bookies: tuple[str, ...], ledger_id: int) -> tuple[RequestStream, ...]:
        """The connections that take requests about the ledger now; none if any of these bookies has none that stands."""
        ...


class LedgerReadSender(EachRead):
    """Sends the reads of one ledger over links that speak ``protocol_version``."""

    def __init__(self, links: ReadLinks, ledger_id: int, *, protocol_version: int, timeout_s: float) -> None:
        super().__init__(links, ledger_id)
        self._links: Final = links
        self._routes: Final = links.routes
        self._timeout_s: Final = timeout_s
        self._encoder: Final = ReadPacketEncoder(ledger_id) if protocol_version == 2 else ReadEncoder(ledger_id)
        #: The connections to bookies, as of this version of the routes.
        self._streams: dict[str, RequestStream] = {}
        self._version = -1

    def send(self, bookie_id: str, entry_ids: Sequence[int], replies: ReadReplies) -> None:
        """See :class:`ReadSender`."""
        stream = self._streams.get(bookie_id) if self._version == self._routes.version else None
        if stream is None:
            stream = self._find(bookie_id)
        sent = 0
        if stream is not None and stream.run is not None:
            stream.run.end()
        if stream is not None and not (stream.is_paused and stream.is_overfull):
            deadline = stream.now + self._timeout_s
            frames = stream.connection.send_reads(self._encoder, self._ledger_id, entry_ids, replies, deadline)
            if frames:
                if not stream.buffers:
                    stream.begin_turn()
                stream.buffers.append(b"".join(frames))
                sent = len(frames)
        if sent < len(entry_ids):
            super().send(bookie_id, entry_ids[sent:], replies)

    def _find(self, bookie_id: str) -> RequestStream | None:
        if self._version != self._routes.version:
            self._streams.clear()
            self._version = self._routes.version
        for stream in self._links.streams_to((bookie_id,), self._ledger_id):
            self._streams[bookie_id] = stream
        return self._streams.get(bookie_id)

"""Requests over TCP, in BookKeeper's own wire protocol.

The transport is that of :mod:`bkclient.transport.linked`, with connections over TCP (:mod:`bkclient.transport.tcp_stream`). TLS
and authentication come before a connection carries requests (:mod:`bkclient.transport.handshake`); a request for TLS is refused.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final

from bkclient.metadata.base import BookieAddress
from bkclient.observability.stats import BookieStats
from bkclient.transport.adds import AddReplies, AddSender
from bkclient.transport.bulk import LedgerAdds
from bkclient.transport.bulk_reads import LedgerReadSender
from bkclient.transport.handshake import Handshake, Security
from bkclient.transport.link import NewConnection
from bkclient.transport.linked import LinkTransport
from bkclient.transport.reads import ReadSender
from bkclient.transport.request_stream import Handler
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.transport.tcp_stream import Stream
from bkclient.wire.connection import ClientConnection
from bkclient.wire.messages import AddTemplate

__all__ = ["TcpConnector", "TcpTransport", "TcpTransportConfig"]

Resolve = Callable[[str], Awaitable[BookieAddress]]


class TcpTransport(LinkTransport):
    """A :class:`~bkclient.transport.base.BookieTransport` over TCP.

    ``resolve`` tells where a bookie listens; whatever it raises counts as a bookie that cannot be reached. ``rng`` spreads
    the attempts of many clients to reach a bookie that comes back. ``stats`` hear of connections; what requests take is
    measured by :class:`~bkclient.transport.measured.MeasuredTransport` around any transport. With ``security`` every connection
    has to be secured before it carries a request; one that cannot be fails requests with a
    :class:`~bkclient.errors.Refusal` and is backed off from.

    Belongs to the event loop in which it is first used. A handler that raises is reported to the loop's exception handler
    and disturbs nothing else.
    """

    def __init__(
        self,
        resolve: Resolve,
        config: TcpTransportConfig | None = None,
        *,
        rng: random.Random,
        stats: BookieStats | None = None,
        security: Security | None = None,
    ) -> None:
        config = config or TcpTransportConfig()
        connector = TcpConnector(resolve, config, security)
        super().__init__(config, connector, rng=rng, stats=stats)
        #: Where all connections take their transaction ids from.
        self.txn_ids: Final[Iterator[int]] = connector.txn_ids

    def add_sender(self, template: AddTemplate, replies: AddReplies) -> AddSender:
        """See :class:`~bkclient.transport.adds.SendsAdds`."""
        config = self._config
        return LedgerAdds(
            self,
            template,
            replies,
            protocol_version=config.protocol_version,
            timeout_s=config.add_timeout_s,
            max_frame_size=config.max_frame_size_bytes,
        )

    def read_sender(self, ledger_id: int) -> ReadSender:
        """See :class:`~bkclient.transport.reads.SendsReads`."""
        config = self._config
        return LedgerReadSender(
            self, ledger_id, protocol_version=config.protocol_version, timeout_s=config.read_timeout_s
        )


class TcpConnector:
    """Resolves, connects, and secures the connection if that is asked for."""

    def __init__(self, resolve: Resolve, config: TcpTransportConfig, security: Security | None) -> None:
        self._resolve = resolve if config.follow_bookie_addresses else _resolving_once(resolve)
        self._config = config
        self._security = security
        self.txn_ids: Final = itertools.count(1)

    @property
    def is_tls(self) -> bool:
        """See :class:`~bkclient.transport.link.Connector`."""
        return self._security is not None and self._security.tls is not None

    async def connect(self, bookie_id: str, protocol_version: int, new: NewConnection) -> None:
        """See :class:`~bkclient.transport.link.Connector`."""
        config = self._config
        new_stream = partial(self.new_stream, bookie_id, protocol_version, new)
        handshake: Handshake | None = None
        if self._security is not None:
            frame_size = config.max_frame_size_bytes
            handshake = Handshake(self._security, bookie_id, protocol_version, frame_size, self.txn_ids)
        async with asyncio.timeout(config.connect_timeout_s):
            address = await self._resolve(bookie_id)
            if handshake is None:
                await _connected(new_stream(), address)
            else:
                await handshake.connect(address)
        if handshake is not None:
            transport, stream = await handshake.complete(), new_stream()
            transport.set_protocol(stream)
            stream.connection_made(transport)

    def new_stream(self, bookie_id: str, protocol_version: int, new: NewConnection) -> Stream:
        """What carries requests once it is connected."""
        config = self._config
        connection: ClientConnection[Handler] = ClientConnection(
            protocol_version, config.max_frame_size_bytes, self.txn_ids, new.load, new.wanted
        )
        return Stream(new.owner, bookie_id, connection, config, is_tls=self.is_tls)


async def _connected(stream: Stream, address: BookieAddress) -> None:
    """Connect ``stream``; when this fails or is cancelled, it has ended."""
    try:
        await asyncio.get_running_loop().create_connection(lambda: stream, address.host, address.port)
    except BaseException:
        await stream.give_up()
        raise


def _resolving_once(resolve: Resolve) -> Resolve:
    """``resolve``, asked about each bookie until it has answered, and never again."""
    known: dict[str, BookieAddress] = {}

    async def resolve_once(bookie_id: str) -> BookieAddress:
        if bookie_id not in known:
            known[bookie_id] = await resolve(bookie_id)
        return known[bookie_id]

    return resolve_once

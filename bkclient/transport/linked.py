"""Requests by links: which connection a request goes over, and the promises of a transport.

There are as many connections to a bookie, for each protocol version in use, as are configured (one by default); each is
made when the first request needs it and again after it was lost. All requests about one ledger use the same one, which the
ledger's id modulo their number says. Requests are pipelined without waiting for answers. The protocol is in
:mod:`bkclient.wire.connection`, the life of connections in :mod:`bkclient.transport.link` and
:mod:`bkclient.transport.request_stream`; this module routes requests to links and keeps the promises of
:class:`~bkclient.transport.base.BookieTransport`. A :class:`~bkclient.transport.link.Connector` makes the connections.

With protocol version 2, what that version lacks goes over a second connection in version 3, as Java clients do it; what
they refuse (forcing a ledger, adds with write flags) is refused here too. A batch read exists in version 2 only, and goes over a
connection for batch reads: a bookie that does not know them closes the connection, and no other request may suffer for it.

Limits: connections per bookie, requests and bytes outstanding per connection, size of a frame, time to connect and to
answer, and the rate of attempts to reach a bookie that cannot be reached.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Final

from bkclient.errors import Code
from bkclient.observability.log import LogThrottle
from bkclient.observability.stats import BookieStats
from bkclient.transport.base import ReplyHandler
from bkclient.transport.link import BookieLink, Connector, LinkContext, Routes
from bkclient.transport.open_run import WriteSets
from bkclient.transport.request_stream import RequestStream, deliver
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.messages import (
    AuthMessage,
    BatchReadRequest,
    BookieInfoRequest,
    Operation,
    Request,
    StartTlsRequest,
)
from bkclient.wire.outstanding import Load

__all__ = ["LinkTransport"]

_Key = str | tuple[str, int]

#: The protocol version that carries an operation, by the version configured; none for what is refused.
_ROUTES: Final[dict[int, dict[Operation, int]]] = {
    2: {
        Operation.ADD_ENTRY: 2,
        Operation.READ_ENTRY: 2,
        Operation.BATCH_READ_ENTRY: 2,
        Operation.AUTH: 2,
        Operation.WRITE_LAC: 3,
        Operation.READ_LAC: 3,
        Operation.GET_BOOKIE_INFO: 3,
        Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: 3,
    },
    3: {operation: 3 for operation in Operation if operation not in {Operation.BATCH_READ_ENTRY, Operation.START_TLS}},
}


class LinkTransport:
    """A :class:`~bkclient.transport.base.BookieTransport` that has a link for each bookie, whose connections ``connector`` makes.

    ``rng`` spreads the attempts of many clients to reach a bookie that comes back. ``stats`` hear of connections.

    Belongs to the event loop in which it is first used. A handler that raises is reported to the loop's exception handler
    and disturbs nothing else.
    """

    def __init__(
        self,
        config: TcpTransportConfig,
        connector: Connector,
        *,
        rng: random.Random,
        stats: BookieStats | None = None,
        new_load: Callable[[int, int], Load] = Load,
    ) -> None:
        self._config = config
        self._routes = _ROUTES[config.protocol_version]
        self._channels = config.channels_per_bookie
        #: By protocol version, and by bookie or, if there are several to each, by bookie and channel; batch reads have channels
        #: below zero.
        self._links: dict[int, dict[_Key, BookieLink]] = {2: {}, 3: {}}
        #: The same links by bookie, in the order in which they were made.
        self._links_to: dict[str, list[BookieLink]] = {}
        self._outcomes: list[tuple[ReplyHandler, str, Request, int]] = []
        self._is_closed = False
        self._context = LinkContext(
            config=config,
            connector=connector,
            rng=rng,
            fail=self._fail_later,
            unavailable=LogThrottle(config.unavailable_log_interval_s),
            stats=stats,
            new_load=new_load,
        )

    @property
    def routes(self) -> Routes:
        """See :class:`~bkclient.transport.bulk.Links`."""
        return self._context.routes

    @property
    def connections(self) -> Mapping[str, int]:
        """By bookie, the number of a connection; see :class:`~bkclient.transport.base.BookieTransport`."""
        return self._context.connections

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """Send ``request``; see :class:`~bkclient.transport.base.BookieTransport`.

        Refused with ``ILLEGAL_OPERATION``: what the protocol version cannot express, and frames over the limit, for which the
        bookie would close the connection.
        """
        version = self._routes.get(request.operation)
        if self._is_closed:
            self._fail_later(reply_to, bookie_id, request, Code.CLIENT_CLOSED)
        elif version is None:
            self._fail_later(reply_to, bookie_id, request, Code.ILLEGAL_OPERATION)
        else:
            # Nearly every request of nearly every client needs no channel, and a call would cost each of them.
            is_plain = self._channels == 1 and not isinstance(request, BatchReadRequest)
            key = bookie_id if is_plain else (bookie_id, self._channel_of(request))
            link = self._links[version].get(key)
            if link is None:
                link = self._links[version][key] = BookieLink(bookie_id, version, self._context)
                self._links_to.setdefault(bookie_id, []).append(link)
            link.submit(request, reply_to)

    def write_sets_of(self, ledger_id: int) -> WriteSets:
        """See :class:`~bkclient.transport.bulk.Links`."""
        return self._context.routes.write_sets(ledger_id % self._channels)

    def streams_to(self, bookies: tuple[str, ...], ledger_id: int) -> tuple[RequestStream, ...]:
        """See :class:`~bkclient.transport.bulk.Links`."""
        links = self._links[self._config.protocol_version]
        channel = ledger_id % self._channels
        found = [links.get(bookie_id if self._channels == 1 else (bookie_id, channel)) for bookie_id in bookies]
        streams = tuple(link.main for link in found if link is not None and link.main is not None)
        return streams if len(streams) == len(bookies) else ()

    def pending_requests(self, bookie_id: str) -> int:
        """How many requests to the bookie have no outcome yet."""
        return sum([link.pending_requests for link in self._links_to.get(bookie_id, ())])

    def is_writable(self, bookie_id: str) -> bool:
        """Whether none of the connections to the bookie is over its high-water mark."""
        return all(link.is_writable for link in self._links_to.get(bookie_id, ()))

    def check(self) -> None:
        """Assert what holds between the callbacks of an event loop; for tests and simulations, which call it after each of them.

        It looks at all requests of the links at which anything has changed since it was called last.
        """
        for links in self._links_to.values():
            for link in links:
                link.check_changes()

    async def aclose(self) -> None:
        """Close every connection; outstanding requests end with ``CLIENT_CLOSED``. Idempotent.

        Returns when every socket is closed and no task is left.
        """
        self._is_closed = True
        links = [link for links in self._links_to.values() for link in links]
        for link in links:
            link.close()
        self._deliver_outcomes()
        await asyncio.gather(*(link.wait_closed() for link in links))

    def _channel_of(self, request: Request) -> int:
        """Requests about one ledger keep to one connection; what is about none goes over the first."""
        if isinstance(request, AuthMessage | BookieInfoRequest | StartTlsRequest):
            return 0
        channel = request.ledger_id % self._channels
        return -1 - channel if isinstance(request, BatchReadRequest) else channel

    def _fail_later(self, reply_to: ReplyHandler, bookie_id: str, request: Request, code: int) -> None:
        if not self._outcomes:
            asyncio.get_running_loop().call_soon(self._deliver_outcomes)
        self._outcomes.append((reply_to, bookie_id, request, code))

    def _deliver_outcomes(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        for reply_to, bookie_id, request, code in outcomes:
            deliver(reply_to, bookie_id, request, code)

"""Requests over TCP, in BookKeeper's own wire protocol.

One connection per bookie and protocol version, made when the first request needs it and again after it was lost; requests
are pipelined without waiting for answers. The protocol is in :mod:`bkclient.wire.connection`, the life of a connection in
:mod:`bkclient.transport.tcp_link`; this module routes requests to links and keeps the promises of
:class:`~bkclient.transport.base.BookieTransport`.

With protocol version 2, what that version lacks goes over a second connection in version 3, as Java clients do it; what
they refuse (forcing a ledger, adds with write flags) is refused here too. A batch read exists in version 2 only. TLS is not
supported: the request for it is refused.

Limits: requests and bytes outstanding per connection, size of a frame, time to connect and to answer, and the rate of
attempts to reach a bookie that cannot be reached.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Final

from bkclient.errors import Code
from bkclient.metadata.base import BookieAddress
from bkclient.transport.base import ReplyHandler
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.transport.tcp_link import BookieLink, deliver
from bkclient.wire.messages import Operation, Request

__all__ = ["TcpTransport", "TcpTransportConfig"]

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


class TcpTransport:
    """A :class:`~bkclient.transport.base.BookieTransport` over TCP.

    ``resolve`` tells where a bookie listens; whatever it raises counts as a bookie that cannot be reached. ``rng`` spreads
    the attempts of many clients to reach a bookie that comes back.

    Belongs to the event loop in which it is first used. A handler that raises is reported to the loop's exception handler
    and disturbs nothing else.
    """

    def __init__(
        self,
        resolve: Callable[[str], Awaitable[BookieAddress]],
        config: TcpTransportConfig | None = None,
        *,
        rng: random.Random,
    ) -> None:
        self._config = config or TcpTransportConfig()
        self._resolve = resolve
        self._rng = rng
        self._routes = _ROUTES[self._config.protocol_version]
        self._links: dict[int, dict[str, BookieLink]] = {2: {}, 3: {}}
        self._txn_ids = itertools.count(1)
        self._outcomes: list[tuple[ReplyHandler, str, Request, Code]] = []
        self._is_closed = False

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
            link = self._links[version].get(bookie_id)
            if link is None:
                link = self._new_link(bookie_id, version)
            link.submit(request, reply_to)

    def pending_requests(self, bookie_id: str) -> int:
        """How many requests to the bookie have no outcome yet."""
        return sum(links[bookie_id].pending_requests for links in self._links.values() if bookie_id in links)

    def is_writable(self, bookie_id: str) -> bool:
        """Whether none of the connections to the bookie is over its high-water mark (W-7)."""
        return all(links[bookie_id].is_writable for links in self._links.values() if bookie_id in links)

    async def aclose(self) -> None:
        """Close every connection; outstanding requests end with ``CLIENT_CLOSED``. Idempotent.

        Returns when every socket is closed and no task is left.
        """
        self._is_closed = True
        links = [link for links in self._links.values() for link in links.values()]
        for link in links:
            link.close()
        self._deliver_outcomes()
        await asyncio.gather(*(link.wait_closed() for link in links))

    def _new_link(self, bookie_id: str, version: int) -> BookieLink:
        link = BookieLink(
            bookie_id, version, self._config, self._resolve, self._rng, txn_ids=self._txn_ids, fail=self._fail_later
        )
        self._links[version][bookie_id] = link
        return link

    def _fail_later(self, reply_to: ReplyHandler, bookie_id: str, request: Request, code: Code) -> None:
        if not self._outcomes:
            asyncio.get_running_loop().call_soon(self._deliver_outcomes)
        self._outcomes.append((reply_to, bookie_id, request, code))

    def _deliver_outcomes(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        for reply_to, bookie_id, request, code in outcomes:
            deliver(reply_to, bookie_id, request, code)

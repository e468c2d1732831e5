"""The client's way to bookies through a simulated network.

Keeps the promises of :class:`bkclient.transport.base.BookieTransport`, and its configuration means what it means to the TCP
transport: one connection per bookie, made when the first request needs it, and with protocol version 2 further ones for requests
that their answers could not tell apart; timeouts from the moment a request goes out on an established connection; everything
outstanding fails when the connection breaks; backing off from bookies that cannot be reached; limits on what is outstanding.
What differs: requests and responses travel as objects, and timeouts are noticed on time.

A request may reach the bookie after it timed out here, or twice. A response that nobody waits for any more, or that comes
twice, is dropped.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Final

from bkclient.errors import Code
from bkclient.transport.base import ReplyHandler
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.messages import AddRequest, Operation, ReadRequest, Request, Response
from simbookie.world.bookie_link import SimulatedLink
from simbookie.world.hosts import Host, World

__all__ = ["SimulatedTransport"]


class SimulatedTransport:
    """A :class:`~bkclient.transport.base.BookieTransport` for the process that runs on ``host`` at present.

    Dies with that process: a transport of a crashed host sends nothing and calls nobody. Bookie ids are names of hosts.
    """

    def __init__(self, world: World, host: Host, config: TcpTransportConfig | None = None) -> None:
        self.config = config if config is not None else TcpTransportConfig()
        self.network = world.network
        self.process = host.process
        self.rng = world.rng(f"transport of {self.process.host_name}#{self.process.incarnation}")
        self.call_ids = itertools.count(1)
        #: By bookie, the number of the newest connection; see :class:`~bkclient.transport.base.BookieTransport`.
        self.connections: Final[dict[str, int]] = {}
        self.connection_numbers = itertools.count(1)
        self._links: dict[str, SimulatedLink] = {}
        self._outcomes: list[tuple[ReplyHandler, str, Request, Code]] = []
        self._is_closed = False

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """Send ``request``; see :class:`~bkclient.transport.base.BookieTransport`.

        Refused with ``ILLEGAL_OPERATION``: what the configured protocol version cannot express, and bodies over the limit.
        """
        if self._is_closed:
            self.fail_later(reply_to, bookie_id, request, Code.CLIENT_CLOSED)
        elif self._is_illegal(request):
            self.fail_later(reply_to, bookie_id, request, Code.ILLEGAL_OPERATION)
        else:
            link = self._links.get(bookie_id)
            if link is None:
                link = self._links[bookie_id] = SimulatedLink(self, bookie_id)
            link.submit(request, reply_to)

    def pending_requests(self, bookie_id: str) -> int:
        """How many requests to the bookie have no outcome yet."""
        link = self._links.get(bookie_id)
        return 0 if link is None else link.pending_requests

    def is_writable(self, bookie_id: str) -> bool:
        """Whether less than the high-water mark is on its way; there is no socket here that could fill."""
        link = self._links.get(bookie_id)
        return link is None or link.pending_bytes < self.config.write_buffer_high_water_bytes

    async def aclose(self) -> None:
        """Close every connection; outstanding requests end with ``CLIENT_CLOSED``. Idempotent."""
        self._is_closed = True
        for link in self._links.values():
            link.close()
        await asyncio.sleep(0)  # for the outcomes that were to come soon

    def fail_later(self, reply_to: ReplyHandler, bookie_id: str, request: Request, code: Code) -> None:
        """Call ``reply_to`` with ``code``, soon but not now."""
        if not self._outcomes:
            self.network.loop.call_soon(self._deliver_outcomes, context=self.process.context())
        self._outcomes.append((reply_to, bookie_id, request, code))

    def _deliver_outcomes(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        for reply_to, bookie_id, request, code in outcomes:
            self.deliver(reply_to, bookie_id, request, code, None)

    def deliver(
        self, reply_to: ReplyHandler, bookie_id: str, request: Request, code: Code, response: Response | None
    ) -> None:
        """Call a handler; one that raises ends the run, but costs nobody else their outcome before."""
        try:
            reply_to(bookie_id, request, code, response)
        except Exception as error:  # noqa: BLE001  handlers belong to callers, and may fail in any way
            self.network.loop.call_exception_handler(
                {"message": f"the reply handler {reply_to!r} raised", "exception": error}
            )

    def _is_illegal(self, request: Request) -> bool:
        is_v2 = self.config.protocol_version == 2
        if isinstance(request, AddRequest):
            size = len(request.header) + len(request.payload)
            return size > self.config.max_frame_size_bytes or (is_v2 and request.write_flags != 0)
        if isinstance(request, ReadRequest):
            return is_v2 and request.long_poll is not None
        operation = request.operation
        if operation is Operation.BATCH_READ_ENTRY:
            return not is_v2
        return operation is Operation.START_TLS or (is_v2 and operation is Operation.FORCE_LEDGER)

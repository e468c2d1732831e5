"""The client's way to bookies through a simulated network, with objects instead of bytes.

The links are those of the TCP transport (:mod:`bkclient.transport.link`): lanes, limits, timeouts, backing off from bookies that
cannot be reached. What differs is what connections are made of: requests and responses travel as objects
(:mod:`simbookie.world.object_stream`). So runs are faster than over TCP, and nothing of sockets, frames and codecs takes part.

A request may reach the bookie after it timed out here, or twice. A response that is not awaited any more, or that comes
twice, is dropped.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bkclient.transport.link import BookieLink, NewConnection
from bkclient.transport.linked import LinkTransport
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.outstanding import Load
from simbookie.world.connection_end import ConnectionEnd
from simbookie.world.hosts import Host, World
from simbookie.world.object_stream import ObjectConnection, ObjectStream

if TYPE_CHECKING:
    from simbookie.world.network import Network
    from simbookie.world.process import Process

__all__ = ["SimulatedTransport"]


class SimulatedTransport(LinkTransport):
    """A :class:`~bkclient.transport.base.BookieTransport` for the process that runs on ``host`` at present.

    Dies with that process: a transport of a crashed host sends nothing and calls nothing. Bookie ids are names of hosts.
    """

    def __init__(self, world: World, host: Host, config: TcpTransportConfig | None = None) -> None:
        config = config if config is not None else TcpTransportConfig()
        process = host.process
        rng = world.rng(f"transport of {process.host_name}#{process.incarnation}")
        #: Those of the links at which requests have come or gone since :meth:`check` looked last.
        self._changed: dict[Load, None] = {}
        self._link_of: dict[Load, BookieLink] = {}
        connector = _ObjectConnector(world.network, process, config)
        new_load = partial(_ToldLoad, self._changed, partial(world.loop.afterwards.append, self.check))
        super().__init__(config, connector, rng=rng, new_load=new_load)

    def check(self) -> None:
        """As there, of links at which requests have come or gone since it looked last; called after every such callback."""
        changed = list(self._changed)
        self._changed.clear()
        for load in changed:
            if load not in self._link_of:
                self._link_of = {link.load: link for links in self._links_to.values() for link in links}
            self._link_of[load].check()


class _ToldLoad(Load):
    """A load that is among the ``changed`` after every change, of the first of which it tells.

    Connections of objects make none but by these two methods.
    """

    __slots__ = ("_changed", "_tell")

    def __init__(
        self, changed: dict[Load, None], tell: Callable[[], object], max_requests: int, max_bytes: int
    ) -> None:
        super().__init__(max_requests, max_bytes)
        self._changed = changed
        self._tell = tell

    def put_on(self, size: int) -> None:
        self.requests += 1  # in place of the call
        self.bytes += size
        assert self.requests > 0 <= size, "a load is never negative"
        changed = self._changed
        if not changed:
            self._tell()
        changed[self] = None

    def take_off(self, size: int, requests: int = 1) -> None:
        Load.take_off(self, size, requests)
        changed = self._changed
        if not changed:
            self._tell()
        changed[self] = None


class _ObjectConnector:
    """Connects over the network."""

    is_tls = False

    def __init__(self, network: Network, process: Process, config: TcpTransportConfig) -> None:
        self._network = network
        self._process = process
        self._config = config
        self._txn_ids = itertools.count(1)

    async def connect(self, bookie_id: str, protocol_version: int, new: NewConnection) -> None:
        """See :class:`~bkclient.transport.link.Connector`."""
        config = self._config
        done: asyncio.Future[None] = self._network.loop.create_future()

        def opened(end: ConnectionEnd) -> None:
            if done.done():  # it was given up while the process was paused
                end.close()
                return
            connection = ObjectConnection(
                protocol_version, config.max_frame_size_bytes, self._txn_ids, new.load, new.wanted
            )
            ObjectStream(new.owner, bookie_id, connection, config).connected(end)
            done.set_result(None)

        def failed(error: OSError) -> None:
            if not done.done():
                done.set_exception(error)

        refused = partial(failed, ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {bookie_id}"))
        give_up = self._network.connect(self._process, bookie_id, opened, refused)
        timer = self._network.loop.call_later(config.connect_timeout_s, failed, TimeoutError())
        try:
            await done
        finally:
            timer.cancel()
            give_up()

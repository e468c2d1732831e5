"""A cluster of simulated bookies and clients in virtual time: for long polls, timeouts and network faults."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar, TypeVar

from bkclient import BookKeeper, ClientConfig, LedgerReader, LedgerWriter, WritingSettings
from bkclient.observability.stats import ClientStats
from bkclient.placement import PlacementPolicy
from bkclient.transport.base import BookieTransport
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.messages import ReadRequest, Request
from simbookie.config import BookieConfig
from simbookie.world.bookie_host import BookieHost
from simbookie.world.calls import RequestMessage
from simbookie.world.faults import Fate
from simbookie.world.hosts import Host, World
from simbookie.world.links import NetworkConfig
from simbookie.world.metadata import SimulatedMetadataStore
from simbookie.world.transport import SimulatedTransport

__all__ = ["VirtualCluster", "now", "run_in", "run_in_cluster"]

C = TypeVar("C", bound="VirtualCluster")


def now() -> float:
    """The virtual time."""
    return asyncio.get_running_loop().time()


class VirtualCluster:
    """Bookies of one configuration, whose names are ``prefix`` and a number, and clients.

    ``host`` is the one that clients run on unless they have their own.
    """

    #: How clients are configured where a test does not say.
    usual: ClassVar = ClientConfig(writing=WritingSettings(explicit_lac_interval_s=0))

    def __init__(self, world: World, bookies: int, prefix: str = "b", config: BookieConfig | None = None) -> None:
        self.world = world
        self.bookies: dict[str, BookieHost] = {}
        self.host = Host(world, "client")
        self._prefix = prefix
        self._config = config
        self._clients = itertools.count()
        #: Every request that bookies are sent, in order.
        self.requests: list[tuple[str, Request]] = []
        world.network.intercept(self._note, Fate.DROP)
        for _ in range(bookies):
            self.add_bookie()

    def add_bookie(self) -> str:
        """Another bookie, which has yet to register; its name."""
        name = f"{self._prefix}{len(self.bookies)}"
        self.bookies[name] = BookieHost(self.world, name, config=self._config)
        return name

    async def registered(self) -> None:
        """Wait until all bookies serve."""
        for bookie in self.bookies.values():
            await bookie.registered()

    def _note(self, source: str, destination: str, message: object) -> bool:
        if isinstance(message, RequestMessage):
            self.requests.append((destination, message.request))
        return False

    def polls(self) -> list[tuple[str, int]]:
        """The bookie and the timeout in milliseconds of each long poll."""
        return [
            (bookie_id, request.long_poll.timeout_ms or 0)
            for bookie_id, request in self.requests
            if isinstance(request, ReadRequest) and request.long_poll is not None
        ]

    @asynccontextmanager
    async def client(
        self,
        name: str | None = None,
        *,
        stats: ClientStats | None = None,
        placement: PlacementPolicy | None = None,
        **config: Any,
    ) -> AsyncIterator[BookKeeper]:
        """A client of its own, on a host of this name or the one that most share; the rest configures it."""
        host = self.host if name is None else Host(self.world, name)
        async with self.client_on(host, stats=stats, placement=placement, **config) as client:
            yield client

    @asynccontextmanager
    async def client_on(
        self, host: Host, *, stats: ClientStats | None = None, placement: PlacementPolicy | None = None, **config: Any
    ) -> AsyncIterator[BookKeeper]:
        """A client on this host."""
        settings = self.usual.with_changes(**config)
        store = SimulatedMetadataStore(self.world, host)
        rng = self.world.rng(f"{host.name}#{next(self._clients)}")
        transport = self.new_transport(host, settings)
        clock = self.world.loop.time
        async with BookKeeper(
            store, transport, config=settings, rng=rng, stats=stats, placement=placement, wall_clock=clock
        ) as client:
            yield client
        await store.aclose()

    def new_transport(self, host: Host, settings: ClientConfig) -> BookieTransport:
        """The transport of a client on this host."""
        config = TcpTransportConfig(protocol_version=settings.connections.protocol_version)
        return SimulatedTransport(self.world, host, config)

    @asynccontextmanager
    async def ledger(
        self,
        *,
        entries: int = 0,
        sizes: tuple[int, int, int] = (3, 3, 2),
        stats: ClientStats | None = None,
        **config: Any,
    ) -> AsyncIterator[tuple[LedgerWriter, LedgerReader]]:
        """A writer that has appended entries b"0", b"1", ... one by one, and a reader with a client of its own."""
        async with self.client() as writing, self.client(stats=stats, **config) as reading:
            writer = await writing.create_ledger(
                ensemble_size=sizes[0], write_quorum_size=sizes[1], ack_quorum_size=sizes[2]
            )
            for entry_id in range(entries):
                await writer.append(b"%d" % entry_id)
            async with await reading.open_ledger(writer.ledger_id, recover=False) as reader:
                self.requests.clear()
                yield writer, reader

    def cut(self, bookie_id: str) -> None:
        """Drop all messages between the test's host and a bookie, without an error."""
        self.world.network.block("client", bookie_id)
        self.world.network.block(bookie_id, "client")


def run_in(
    new_cluster: Callable[[World], C],
    program: Callable[[C], Awaitable[None]],
    *,
    seed: int = 1,
    network: NetworkConfig | None = None,
) -> C:
    """Run ``program`` in virtual time once the bookies of its cluster serve."""
    with World(seed, network=network) as world:

        async def main() -> C:
            cluster = new_cluster(world)
            await cluster.registered()
            await program(cluster)
            return cluster

        return world.run(main)


def run_in_cluster(
    program: Callable[[VirtualCluster], Awaitable[None]],
    *,
    bookies: int = 3,
    seed: int = 1,
    network: NetworkConfig | None = None,
) -> None:
    """Run ``program`` in a cluster of so many bookies."""
    run_in(lambda world: VirtualCluster(world, bookies), program, seed=seed, network=network)

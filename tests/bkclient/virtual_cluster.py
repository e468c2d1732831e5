"""A cluster of simulated bookies and clients in virtual time: for long polls, timeouts and network faults."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from bkclient import BookKeeper, ClientConfig, LedgerReader, LedgerWriter, WritingSettings
from bkclient.observability.stats import ClientStats
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.messages import ReadRequest, Request
from simbookie.world.bookie_host import BookieHost
from simbookie.world.calls import RequestMessage
from simbookie.world.faults import Fate
from simbookie.world.hosts import Host, World
from simbookie.world.links import NetworkConfig
from simbookie.world.metadata import SimulatedMetadataStore
from simbookie.world.transport import SimulatedTransport

__all__ = ["Story", "VirtualCluster", "now", "play"]


def now() -> float:
    """The virtual time."""
    return asyncio.get_running_loop().time()


class VirtualCluster:
    """Bookies b0, b1, ... and the host that the test runs on."""

    def __init__(self, world: World, bookies: int) -> None:
        self.world = world
        self.bookies = {f"b{number}": BookieHost(world, f"b{number}") for number in range(bookies)}
        self.host = Host(world, "client")
        self._clients = itertools.count()
        #: Every request that bookies are sent, in order.
        self.requests: list[tuple[str, Request]] = []
        world.network.intercept(self._note, Fate.DROP)

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
    async def client(self, *, stats: ClientStats | None = None, **config: Any) -> AsyncIterator[BookKeeper]:
        """A client of its own; the rest configures it."""
        settings = ClientConfig(writing=WritingSettings(explicit_lac_interval_s=0)).with_changes(**config)
        store = SimulatedMetadataStore(self.world, self.host)
        transport = SimulatedTransport(
            self.world, self.host, TcpTransportConfig(protocol_version=settings.connections.protocol_version)
        )
        rng = self.world.rng(f"client {next(self._clients)}")
        async with BookKeeper(store, transport, config=settings, rng=rng, stats=stats) as client:
            yield client
        await store.aclose()

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


Story = Callable[[VirtualCluster], Coroutine[Any, Any, None]]


def play(story: Story, *, bookies: int = 3, seed: int = 1, network: NetworkConfig | None = None) -> None:
    """Run ``story`` on the client's host once the bookies serve."""
    with World(seed, network=network) as world:
        cluster = VirtualCluster(world, bookies)

        async def main() -> None:
            for bookie in cluster.bookies.values():
                await bookie.registered()
            await world.join(cluster.host.spawn(story, cluster))

        world.run(main)

"""The workload in virtual time: the shipped client, transport, codecs and server, and a link that turns against one connection.

The clients of two acts reach one bookie over a link that does at a chosen byte what a
:class:`tests.end_to_end.hostile.proxy.HostileProxy` does in real time. The last client is honest. With ``secured`` there are TLS
with certificates for both sides and a shared secret before every request; then no two runs send the same bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Final, cast

from bkclient import BookKeeper, ClientConfig, ConnectionSettings, ReadingSettings, TimeoutSettings
from bkclient.ledger import DigestType
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.security.auth import SharedSecret
from bkclient.transport.handshake import Security
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from simbookie.bookie import Bookie
from simbookie.security import SharedSecretBookie
from simbookie.server import BookieServer, ServerConfig
from simbookie.storage.memory import MemoryStorage, RecordLog
from simbookie.world.hosts import Host, World
from simbookie.world.tcp_socket import Socket
from tests.end_to_end.hostile.proxy import Fault, PlannedFault
from tests.end_to_end.hostile.workload import InOrder, check, read, write
from tests.proxy import Direction
from tests.tls import MUTUAL, client_security, offering

if TYPE_CHECKING:
    import socket

__all__ = ["HostileLink", "run_workload"]

_BOUND_S: Final = 60.0
_BOOKIES: Final = 4
_HANDSHAKE_S: Final = 1.0
_TIMEOUT_S: Final = 0.15
_SECRET: Final = b"a secret of enough bytes"


def _configs(wire: int) -> tuple[ClientConfig, TcpTransportConfig]:
    return (
        ClientConfig(
            connections=ConnectionSettings(protocol_version=wire),
            reading=ReadingSettings(speculative_first_s=0),
            timeouts=TimeoutSettings(add_s=_TIMEOUT_S, read_s=_TIMEOUT_S),
        ),
        TcpTransportConfig(
            protocol_version=wire,
            backoff_initial_s=0.001,
            backoff_max_s=0.01,
            add_timeout_s=_TIMEOUT_S,
            read_timeout_s=_TIMEOUT_S,
        ),
    )


_CONFIGS: Final = {wire: _configs(wire) for wire in (2, 3)}


class HostileLink:
    """Counts the bytes of each direction over all connections between ``client`` and the port ``port``, and strikes once."""

    def __init__(self, planned: PlannedFault | None) -> None:
        self.planned = planned
        self.has_struck = False
        #: Nothing of the planned's direction passes any more, on any connection.
        self.is_stalled = False
        #: Bytes that came, whatever became of them.
        self.forwarded = dict.fromkeys(Direction, 0)
        self.client = ""
        self.port = 0

    def on_connection(self, client: Socket, server: Socket) -> None:
        if client.local[0] == self.client and client.remote[1] == self.port:
            client.middlebox = _Meddler(self, client, Direction.REQUESTS)
            server.middlebox = _Meddler(self, server, Direction.ANSWERS)


class _Meddler:
    """One direction of one connection."""

    def __init__(self, link: HostileLink, sender: Socket, direction: Direction) -> None:
        self._link = link
        self._sender = sender
        self._direction = direction
        self._has_ended = False

    def forward(self, data: bytes) -> None:
        link = self._link
        before = link.forwarded[self._direction]
        planned = link.planned
        if planned is None or planned.direction is not self._direction:
            self._pass(data)
        elif link.is_stalled:
            pass
        elif link.has_struck or planned.position - before >= len(data):
            self._pass(data)
        else:
            link.has_struck = True
            split = planned.position - before
            self._strike(planned, data[:split], data[split:])

    def end(self, finish: Callable[[], None]) -> None:
        if not self._has_ended:
            finish()

    def _strike(self, planned: PlannedFault, before: bytes, after: bytes) -> None:
        match planned.fault:
            case Fault.FLIP:
                self._pass(before + bytes((after[0] ^ 1 << planned.amount % 8,)) + after[1:])
            case Fault.REPEAT:
                self._pass(before + before[-planned.amount :] + after)
            case Fault.CUT:
                self._pass(before)
                self._sender.sever()
            case Fault.STALL:
                self._link.is_stalled = True
                self._pass(before)
            case Fault.HALF_CLOSE:
                self._link.is_stalled = True
                self._pass(before)
                self._has_ended = True
                self._sender.launch_end()

    def _pass(self, data: bytes) -> None:
        self._link.forwarded[self._direction] += len(data)
        if data:
            self._sender.launch(data)


class _Stage:
    """Bookies behind the shipped server, all on one host, and clients with the shipped transport."""

    def __init__(self, world: World, wire: int, *, secured: bool) -> None:
        self._world = world
        self._metadata = MemoryMetadataService()
        self._config, self._transport_config = _CONFIGS[wire]
        self._server_config: ServerConfig | None = None
        self._security: Security | None = None
        if secured:
            auth = SharedSecretBookie(_SECRET)
            self._server_config = ServerConfig(
                security=offering(requires_certificate=True, requires_tls=True, auth=auth)
            )
            # The certificate is one for the loopback interface, and the world has no such names.
            settings = {**MUTUAL, "verify_hostname": False}
            self._security = client_security(SharedSecret(_SECRET), timeout_s=_HANDSHAKE_S, **settings)

    async def start_bookies(self) -> list[BookieServer]:
        world, loop = self._world, self._world.loop
        process = world.hosts["bookies"].process
        registry = self._metadata.session(rng=Random(1))

        def bind(_host: str, port: int) -> socket.socket:
            return cast("socket.socket", world.tcp.listen(process, port, 100))  # has what servers ask of one

        servers = []
        for number in range(_BOOKIES):
            bookie = Bookie(f"b{number}", MemoryStorage(disk=RecordLog()))
            server = BookieServer(
                bookie, "bookies", registry=registry, bind=bind, clock=loop.time, config=self._server_config
            )
            servers.append(server)
            await servers[-1].start()
        return servers

    @asynccontextmanager
    async def client(self) -> AsyncIterator[BookKeeper]:
        rng = Random(11)
        store = self._metadata.session(rng=rng)
        transport = TcpTransport(store.bookie_address, self._transport_config, rng=rng, security=self._security)
        async with BookKeeper(store, transport, config=self._config, rng=rng, placement=InOrder(rng)) as client:
            yield client
        await store.aclose()


def run_workload(
    wire: int, planned: PlannedFault | None, *, digest_type: DigestType = DigestType.CRC32C, secured: bool = False
) -> HostileLink:
    """The whole workload; returns the link."""
    link = HostileLink(planned)
    with World(1) as world:
        world.tcp.on_connection = link.on_connection
        stage = _Stage(world, wire, secured=secured)

        async def main() -> None:
            async with asyncio.timeout(_BOUND_S):
                bookies = await Host(world, "bookies").spawn(stage.start_bookies)
                link.client, link.port = "client", bookies[0].port
                client, honest = Host(world, "client"), Host(world, "honest")

                async def hostile_acts() -> tuple[int, int]:
                    async with stage.client() as writing:
                        acknowledged, ledger_id = await write(writing, digest_type)
                    async with stage.client() as reading:
                        await read(reading, ledger_id)
                    return acknowledged, ledger_id

                acknowledged, ledger_id = await client.spawn(hostile_acts)

                async def last_act() -> list[bytes]:
                    async with stage.client() as checking:
                        reader = await checking.open_ledger(ledger_id, recover=True)
                        return [entry.payload async for entry in reader]

                check(await honest.spawn(last_act), acknowledged, planned)

                async def end() -> None:
                    for bookie in bookies:
                        await bookie.aclose()

                await world.hosts["bookies"].spawn(end)

        world.run(main)
    return link

"""A cluster in virtual time with auto-recovery programs, and bookies whose copies rot and get lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import anyio

from bkclient import BookKeeper, ClientConfig, DigestType, PlacementSettings
from bkclient._client.writing.writer import LedgerWriter
from bkclient.errors import MetadataStoreError
from bkclient.ledger import LedgerMetadata
from bkclient.placement import PlacementPolicy
from bkclient.repair.admin import RepairAdmin, core_of
from bkclient.repair.config import RepairConfig
from bkclient.repair.events import EventKind, RepairEvent
from bkclient.repair.findings import LedgerReport
from bkclient.repair.service import AutoRecovery
from bkclient.repair.underreplication.marks import UnderReplication
from bkclient.transport.base import BookieTransport, ReplyHandler
from bkclient.transport.wrapping import WrappingTransport
from bkclient.wire.messages import Request
from simbookie.storage.base import CrashMode
from simbookie.storage.memory import MemoryStorage
from simbookie.world.hosts import Host, World
from tests.bkclient.virtual_cluster import VirtualCluster, run_in

__all__ = ["EPOCH_MS", "RepairCluster", "SentTransport", "run_in_repair_cluster", "submitted"]

EPOCH_MS = 1_700_000_000_000
SESSION_S = 10.0
"""How long a crashed bookie stays registered, as the world has it by default."""


class SentTransport(WrappingTransport):
    """A transport that keeps a record of what was sent."""

    def __init__(self, inner: BookieTransport) -> None:
        super().__init__(inner)
        self.sent: list[tuple[str, Request]] = []

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        self.sent.append((bookie_id, request))
        super().submit(bookie_id, request, reply_to)


class RepairCluster(VirtualCluster):
    """Bookies bookie-0, bookie-1, ..., clients, and programs of auto-recovery."""

    usual: ClassVar = VirtualCluster.usual.with_changes(placement=PlacementSettings(policy="random"))

    def __init__(self, world: World, bookies: int) -> None:
        super().__init__(world, bookies, "bookie-")
        self.events: list[tuple[float, str, RepairEvent]] = []
        #: What the newest client on each host sends.
        self.transports: dict[str, SentTransport] = {}

    def new_transport(self, host: Host, settings: ClientConfig) -> BookieTransport:
        transport = self.transports[host.name] = SentTransport(super().new_transport(host, settings))
        return transport

    # Bookies -----------------------------------------------------------------------------------------------------

    async def lose(self, *names: str, wiped: bool = False) -> None:
        """Crash bookies, perhaps with their disks, and wait until the service has noticed."""
        for name in names:
            self.bookies[name].crash(CrashMode.PROCESS)
            if wiped:
                storage = self.bookies[name].storage
                assert isinstance(storage, MemoryStorage)
                assert storage.disk is not None
                storage.disk.wipe()
        await anyio.sleep(SESSION_S + 1)

    async def bring_back(self, *names: str) -> None:
        for name in names:
            self.bookies[name].restart()
            await self.bookies[name].registered()
        await anyio.sleep(0.1)

    def storage(self, name: str) -> MemoryStorage:
        storage = self.bookies[name].storage
        assert isinstance(storage, MemoryStorage)
        return storage

    def body(self, name: str, ledger_id: int, entry_id: int) -> bytes | None:
        ledger = self.storage(name)._ledgers.get(ledger_id)
        return None if ledger is None else ledger.entries.get(entry_id)

    def forget(self, name: str, ledger_id: int, entry_id: int) -> None:
        """Lose one copy."""
        self.storage(name).lose(ledger_id, entry_id)

    def rot(self, name: str, ledger_id: int, entry_id: int, body: bytes | None = None) -> None:
        """Let one copy rot: flip a bit, or put something else in its place."""
        entries = self.storage(name)._ledgers[ledger_id].entries
        old = entries[entry_id]
        entries[entry_id] = old[:-1] + bytes([old[-1] ^ 1]) if body is None else body

    # Clients -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def admin(self, **config: Any) -> AsyncIterator[RepairAdmin]:
        async with self.client() as client:
            yield RepairAdmin(client, RepairConfig(**config))

    def marks(self, client: BookKeeper, name: str = "test") -> UnderReplication:
        return RepairAdmin(client).under_replication(name=name, wall_clock_ms=self.wall_clock_ms)

    def wall_clock_ms(self) -> int:
        return EPOCH_MS + round(1000 * self.world.loop.time())

    async def written_ledger(
        self,
        client: BookKeeper,
        entries: int,
        sizes: tuple[int, int, int] = (3, 3, 2),
        *,
        closed: bool = True,
        digest_type: DigestType = DigestType.CRC32C,
        password: bytes = b"secret",
    ) -> LedgerWriter:
        """A ledger of some entries, which all their bookies have."""
        size, write_quorum, ack_quorum = sizes
        writer = await client.create_ledger(
            ensemble_size=size,
            write_quorum_size=write_quorum,
            ack_quorum_size=ack_quorum,
            digest_type=digest_type,
            password=password,
        )
        await self.append(writer, entries)
        if closed:
            await writer.close()
        return writer

    async def append(self, writer: LedgerWriter, entries: int) -> None:
        for _ in range(entries):
            await writer.append(b"entry" * 3)
        await anyio.sleep(0.1)  # for the copies that no quorum waited for

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        return (await self.world.metadata.memory.session(rng=self.world.rng("look")).read_ledger(ledger_id)).metadata

    # Auto-recovery -----------------------------------------------------------------------------------------------

    def auto_recovery(self, name: str, *, placement: PlacementPolicy | None = None, **settings: Any) -> Host:
        """Start a program of auto-recovery on a host of its own; ``with_*`` are for the program, the rest for its settings."""
        host = self.world.hosts.get(name) or Host(self.world, name)
        if not host.is_alive:
            host.restart()
        options = {key: settings.pop(key) for key in ("with_auditor", "with_worker") if key in settings}
        config = RepairConfig(**settings)

        async def run() -> None:
            async with self.client_on(host, placement=placement) as client:
                recovery = AutoRecovery(
                    client,
                    config,
                    name=name,
                    wall_clock_ms=self.wall_clock_ms,
                    on_event=lambda event: self.events.append((self.world.loop.time(), name, event)),
                    **options,
                )
                await recovery.run()

        async def supervised() -> None:
            while True:
                try:
                    await run()
                except MetadataStoreError:
                    await anyio.sleep(1)

        host.spawn(supervised, name=name)
        return host

    def told(self, kind: EventKind, ledger_id: int | None = None) -> list[RepairEvent]:
        """The events of a kind, of all programs."""
        return [
            event
            for _, _, event in self.events
            if event.kind is kind and (ledger_id is None or event.ledger_id == ledger_id)
        ]

    async def until(self, condition: Callable[[], object], longest_s: float = 600.0) -> None:
        """Wait until something is so; fails with what was told if it never is."""
        with anyio.move_on_after(longest_s):
            while not condition():  # noqa: ASYNC110 - virtual time costs nothing
                await anyio.sleep(0.25)
            return
        raise AssertionError(f"not within {longest_s} s: {self.events[-20:]}")

    async def thorough(self, ledger_id: int) -> LedgerReport:
        """What a thorough check says."""
        async with self.admin() as admin:
            return await admin.check_ledger(ledger_id, thorough=True)


def run_in_repair_cluster(
    program: Callable[[RepairCluster], Awaitable[None]], *, bookies: int = 4, seed: int = 1
) -> RepairCluster:
    """Run ``program`` in virtual time, in a cluster of so many bookies."""
    return run_in(lambda world: RepairCluster(world, bookies), program, seed=seed)


def submitted(client: BookKeeper) -> list[tuple[str, Request]]:
    """What a client sent so far."""
    transport = core_of(client).transport
    assert isinstance(transport, SentTransport)
    return transport.sent

"""The shipped client and the simulated bookies under an arbitrary sequence of deeds, judged by the reference model.

What :mod:`scenarios.machines.storage_world` does to the machines, one level up: real shells, a transport with timeouts and
back-off, bookies with journals that lose what was not synced, a metadata service with conflicts and unknown outcomes, all in
virtual time. A director draws one deed after the other; the model hears what applications see.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from bkclient import AppendFuture, BookKeeper, ClientConfig, LedgerReader, LedgerWriter, ReadingSettings
from bkclient.errors import BookKeeperError, NoSuchEntry
from bkclient.transport.tcp_config import TcpTransportConfig
from scenarios.machines.broken import BrokenClause
from scenarios.machines.model import LedgerModel
from simbookie.config import BookieConfig
from simbookie.storage.base import CrashMode
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.memory import MemoryStorage, MemoryStorageConfig, RecordLog
from simbookie.world.bookie_host import BookieHost
from simbookie.world.hosts import Host, World
from simbookie.world.links import NetworkConfig
from simbookie.world.loop import LoopLimits
from simbookie.world.metadata import SimulatedMetadataStore
from simbookie.world.metadata_service import MetadataConfig
from simbookie.world.transport import SimulatedTransport

__all__ = ["RandomRun", "Stuck"]

_SIZES: Final = ((1, 1, 1), (2, 2, 2), (2, 2, 1), (3, 3, 2), (3, 3, 2), (3, 2, 2), (3, 3, 3), (4, 3, 2))
_NETWORK: Final = NetworkConfig(
    loss_probability=0.003, duplicate_probability=0.03, slow_probability=0.03, slow_s=0.05, fifo=False
)
_METADATA: Final = MetadataConfig(
    conflict_probability=0.1, unknown_probability=0.1, timeout_s=2.0, session_timeout_s=2.0, retry_s=0.1
)
_TRANSPORT: Final = TcpTransportConfig(add_timeout_s=0.5, read_timeout_s=0.5, connect_timeout_s=0.5)
_JOURNAL: Final = JournalConfig(sync_latency_s=0.002)
#: A bookie that denies an entry without waiting for its fence may lose data by a power loss, which is no defect of clients.
_BOOKIE: Final = BookieConfig(error_waits_for_fence=True)
_LIMITS: Final = LoopLimits(steps=5_000_000, seconds=3600.0)
_RECOVERERS: Final = 3
_FINAL_ATTEMPTS: Final = 40

#: How often which deed is drawn.
_WEIGHTS: Final = {
    "append": 12,
    "wait": 4,
    "reader asks": 3,
    "recovery starts": 1,
    "recoverer crashes": 1,
    "writer crashes": 0.1,
    "writer closes": 0.2,
    "writer pauses": 0.3,
    "writer goes on": 1,
    "bookie crashes": 0.7,
    "bookie loses power": 0.7,
    "bookie restarts": 2,
    "bookie pauses": 0.7,
    "bookie goes on": 1.5,
    "bookie becomes read-only": 0.2,
    "way is blocked": 1,
    "network heals": 0.5,
}


class Stuck(AssertionError):
    """Everything was healed, and still the ledger cannot be recovered."""


class RandomRun:
    """One run; ``deeds`` counts what was done, ``model`` knows what applications saw."""

    def __init__(self, seed: int, deeds: int) -> None:
        self.model = LedgerModel()
        self.deeds: Counter[str] = Counter()
        self.broken: BrokenClause | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._handle: LedgerWriter | None = None
        self._recoverers: list[Host] = []
        with World(seed, network=_NETWORK, metadata=_METADATA, limits=_LIMITS) as self.world:
            self._rng = self.world.rng("director")
            self.sizes = self._rng.choice(_SIZES)
            self.read_ahead = self._rng.choice((1, 2, 64))
            spare = self._rng.randrange(3)
            self._bookies = [self._bookie(f"b{number}") for number in range(self.sizes[0] + spare)]
            self._writer, self._reader = Host(self.world, "writer"), Host(self.world, "reader")
            self.world.run(lambda: self._direct(deeds))
        if self.broken is not None:
            raise self.broken

    @property
    def steps(self) -> int:
        """Everything that was done, by the director and by applications."""
        return self.deeds.total()

    def _bookie(self, name: str) -> BookieHost:
        storage = MemoryStorage(MemoryStorageConfig(journal=_JOURNAL), RecordLog())
        return BookieHost(self.world, name, storage=storage, config=_BOOKIE)

    def _client(self, host: Host) -> BookKeeper:
        config = ClientConfig(reading=ReadingSettings(recovery_read_ahead_entries=self.read_ahead))
        store, transport = SimulatedMetadataStore(self.world, host), SimulatedTransport(self.world, host, _TRANSPORT)
        return BookKeeper(store, transport, config=config, rng=self.world.rng(host.name))

    def _tell(self, what: Callable[..., object], *arguments: object) -> None:
        """Tell the model; what it objects to ends the run, and not just the callback in which it was seen."""
        try:
            what(*arguments)
        except BrokenClause as broken:
            self.broken = self.broken or broken

    # The director

    async def _direct(self, deeds: int) -> None:
        for bookie in self._bookies:
            await bookie.registered()
        created: asyncio.Future[int] = self.world.loop.create_future()
        self._writer.spawn(self._write, created)
        self._ledger_id = await created
        names, weights = tuple(_WEIGHTS), tuple(_WEIGHTS.values())
        for _ in range(deeds):
            (deed,) = self._rng.choices(names, weights)
            if getattr(self, "_" + deed.replace(" ", "_").replace("-", "_"))(self._rng):
                self.deeds[deed] += 1
            longest_s = 1.0 if deed == "wait" else 0.01
            await asyncio.sleep(self._rng.uniform(0, longest_s))
            if self.broken is not None:
                return
        await self._settle()

    async def _settle(self) -> None:
        self.world.network.heal()
        for bookie in self._bookies:
            self._revive(bookie)
        if self._writer.is_paused:
            self._writer.resume()
        final = Host(self.world, "final")
        await self.world.join(final.spawn(self._recover, final, _FINAL_ATTEMPTS))
        if self.broken is None and self.model.end is None:
            raise Stuck("the ledger was never recovered")
        await asyncio.sleep(5.0)  # late answers

    def _revive(self, bookie: BookieHost) -> None:
        if bookie.is_paused:
            bookie.resume()
        if not bookie.is_alive:
            bookie.restart()
        bookie.bookie.set_read_only(False)

    # Deeds: each tells whether there was anything to do

    def _wait(self, _: Random) -> bool:
        return True

    def _append(self, rng: Random) -> bool:
        if not self._writer.is_alive or self._handle is None:
            return False
        self._writer.spawn(
            self._burst, self._handle, [rng.randbytes(rng.choice((0, 1, 40))) for _ in range(rng.randint(1, 6))]
        )
        return True

    def _reader_asks(self, rng: Random) -> bool:
        self._reader.spawn(self._follow, rng.random())
        return True

    def _recovery_starts(self, _: Random) -> bool:
        if sum(host.is_alive for host in self._recoverers) >= _RECOVERERS:
            return False
        host = Host(self.world, f"recoverer-{len(self._recoverers)}")
        self._recoverers.append(host)
        host.spawn(self._recover, host, 1)
        return True

    def _recoverer_crashes(self, rng: Random) -> bool:
        return self._crash([host for host in self._recoverers if host.is_alive], rng)

    def _writer_crashes(self, rng: Random) -> bool:
        return self._crash([self._writer] * self._writer.is_alive, rng)

    def _crash(self, hosts: list[Host], rng: Random) -> bool:
        if hosts:
            rng.choice(hosts).crash()
        return bool(hosts)

    def _writer_closes(self, _: Random) -> bool:
        if not self._writer.is_alive or self._handle is None:
            return False
        self._writer.spawn(self._close, self._handle)
        return True

    def _writer_pauses(self, _: Random) -> bool:
        if not self._writer.is_alive or self._writer.is_paused:
            return False
        self._writer.pause()
        return True

    def _writer_goes_on(self, _: Random) -> bool:
        if not self._writer.is_paused:
            return False
        self._writer.resume()
        return True

    def _pick(self, rng: Random, *, alive: bool, paused: bool = False) -> BookieHost | None:
        candidates = [b for b in self._bookies if b.is_alive is alive and b.is_paused is paused]
        return rng.choice(candidates) if candidates else None

    def _bookie_crashes(self, rng: Random) -> bool:
        bookie = self._pick(rng, alive=True)
        if bookie is not None:
            bookie.crash(CrashMode.PROCESS)
        return bookie is not None

    def _bookie_loses_power(self, rng: Random) -> bool:
        bookie = self._pick(rng, alive=True)
        if bookie is not None:
            bookie.crash(CrashMode.POWER_LOSS)
        return bookie is not None

    def _bookie_restarts(self, rng: Random) -> bool:
        bookie = self._pick(rng, alive=False)
        if bookie is not None:
            bookie.restart()
        return bookie is not None

    def _bookie_pauses(self, rng: Random) -> bool:
        bookie = self._pick(rng, alive=True)
        if bookie is not None:
            bookie.pause()
        return bookie is not None

    def _bookie_goes_on(self, rng: Random) -> bool:
        bookie = self._pick(rng, alive=True, paused=True)
        if bookie is not None:
            bookie.resume()
        return bookie is not None

    def _bookie_becomes_read_only(self, rng: Random) -> bool:
        bookie = self._pick(rng, alive=True)
        if bookie is not None:
            bookie.bookie.set_read_only(rng.random() < 0.5)
        return bookie is not None

    def _way_is_blocked(self, rng: Random) -> bool:
        clients = [self._writer, self._reader, *[host for host in self._recoverers if host.is_alive]]
        ends = [rng.choice(clients).name, rng.choice(self._bookies).name]
        rng.shuffle(ends)
        self.world.network.block(*ends)
        return True

    def _network_heals(self, _: Random) -> bool:
        self.world.network.heal()
        return True

    # Applications

    async def _write(self, created: asyncio.Future[int]) -> None:
        ensemble_size, write_quorum_size, ack_quorum_size = self.sizes
        async with self._client(self._writer) as client:
            self._handle = await client.create_ledger(
                ensemble_size=ensemble_size, write_quorum_size=write_quorum_size, ack_quorum_size=ack_quorum_size
            )
            created.set_result(self._handle.ledger_id)
            await asyncio.Event().wait()

    async def _burst(self, handle: LedgerWriter, payloads: list[bytes]) -> None:
        for payload in payloads:
            try:
                future = handle.append_nowait(payload)
            except BookKeeperError:
                return
            entry_id = self.model.append(payload)
            self.deeds["entry appended"] += 1

            def told(future: AppendFuture, entry_id: int = entry_id) -> None:
                if future.exception() is not None:
                    self.deeds["entry failed"] += 1
                    self._tell(self.model.fail, entry_id)
                else:
                    self.deeds["entry acknowledged"] += 1
                    self._tell(self.model.acknowledge, future.result())

            future.add_done_callback(told)

    async def _close(self, handle: LedgerWriter) -> None:
        try:
            await handle.close()
        except BookKeeperError:
            return
        self.deeds["ledger closed"] += 1
        self._tell(self.model.ends, handle.last_add_confirmed, handle.length)

    async def _recover(self, host: Host, attempts: int) -> None:
        async with self._client(host) as client:
            for _ in range(attempts):
                try:
                    reader = await client.open_ledger(self._ledger_id, recover=True)
                    self.deeds["ledger recovered"] += 1
                    self._tell(self.model.ends, reader.last_add_confirmed, None)
                    # Where nothing was recovered and the last entry could not be read, the length is a guess (REC-14).
                    self.deeds["length guessed"] += self.model.end is not None and reader.length != self.model.end[1]
                    for entry_id in range(reader.last_add_confirmed + 1):
                        await self._read(client, reader, entry_id)
                except BookKeeperError:
                    self.deeds["recovery failed"] += 1
                    await asyncio.sleep(0.5)
                else:
                    break
        if attempts == 1:
            self.world.loop.call_soon(host.crash)  # it was a process for this alone

    async def _follow(self, choice: float) -> None:
        async with self._client(self._reader) as client:
            try:
                reader = await client.open_ledger(self._ledger_id, recover=False)
                lac = reader.last_add_confirmed
                self._tell(self.model.sees_lac, lac)
                self.deeds["LAC seen"] += 1
                if lac >= 0:
                    await self._read(client, reader, int(choice * (lac + 1)))
            except BookKeeperError:
                self.deeds["reader failed"] += 1

    async def _read(self, client: BookKeeper, reader: LedgerReader, entry_id: int) -> None:
        try:
            payload = (await reader.read(entry_id)).payload
        except NoSuchEntry:
            # A reader with an old ensemble would look again before it believes that an entry is absent.
            current = await client.ledger_metadata(self._ledger_id)
            if current.ensemble_at(entry_id) == reader.metadata.ensemble_at(entry_id):
                self._tell(self.model.reads, entry_id, None)
        else:
            self.deeds["entry read"] += 1
            self._tell(self.model.reads, entry_id, payload)

"""The shipped client in a world that breaks: a writer that dies, bookies that crash, a reader that recovers. A log of it all."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Callable
from typing import Any

from bkclient import BookKeeper
from bkclient.errors import BookKeeperError
from simbookie.storage.base import CrashMode
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.memory import MemoryStorage, MemoryStorageConfig, RecordLog
from simbookie.world.bookie_host import BookieHost
from simbookie.world.hosts import Host, World
from simbookie.world.links import NetworkConfig
from simbookie.world.metadata import SimulatedMetadataStore
from simbookie.world.metadata_service import MetadataConfig
from simbookie.world.transport import SimulatedTransport

NETWORK = NetworkConfig(loss_probability=0.002, duplicate_probability=0.05, slow_probability=0.02, fifo=False)
METADATA = MetadataConfig(conflict_probability=0.1, unknown_probability=0.1)
JOURNAL = JournalConfig(sync_latency_s=0.002)


class Notebook:
    """An observer of a bookie."""

    def __init__(self, name: str, note: Callable[[str], None]) -> None:
        self._name = name
        self._note = note

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda *arguments: self._note(f"{self._name} {event} {arguments}")


class Run:
    """One run. ``acked`` are the entries that the writer's application was told are safe, ``read`` those found in the end."""

    def __init__(self, seed: int) -> None:
        self.log: list[str] = []
        self.acked: list[int] = []
        self.read: list[bytes] = []
        with World(seed, network=NETWORK, metadata=METADATA) as self.world:
            self.bookies = [self._bookie(f"b{number}") for number in range(5)]
            self.writer, self.reader = Host(self.world, "writer"), Host(self.world, "reader")
            self.ledger_id = self.world.run(self._direct)
            self.note(f"{self.world.network.counters} {self.world.loop.steps}")

    def note(self, text: str) -> None:
        """Write a line into the log."""
        self.log.append(f"{self.world.clock_us()} {text}")

    def _bookie(self, name: str) -> BookieHost:
        storage = MemoryStorage(MemoryStorageConfig(journal=JOURNAL), RecordLog())
        return BookieHost(self.world, name, storage=storage, observer=Notebook(name, self.note))

    def _client(self, host: Host) -> BookKeeper:
        store, transport = SimulatedMetadataStore(self.world, host), SimulatedTransport(self.world, host)
        return BookKeeper(store, transport, rng=self.world.rng(host.name))

    async def _direct(self) -> int:
        for bookie in self.bookies:
            await bookie.registered()
        created: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.writer.spawn(self._write, created)
        chance = self.world.rng("director")
        ledger_id = await created
        for _ in range(4):
            await asyncio.sleep(chance.uniform(0, 0.3))
            await self._break_something(chance)
        self.writer.crash()
        for bookie in self.bookies:
            if not bookie.is_alive:
                bookie.restart()
        await self.world.join(self.reader.spawn(self._recover, ledger_id))
        return ledger_id

    async def _break_something(self, chance: Any) -> None:
        bookie = chance.choice(self.bookies)
        fault = chance.choice(("crash", "power", "pause", "cut"))
        self.note(f"{fault} {bookie.name}")
        if not bookie.is_alive:
            bookie.restart()
        elif fault == "pause":
            bookie.pause()
            await asyncio.sleep(chance.uniform(0, 7))
            bookie.resume()
        elif fault == "cut":
            self.world.network.block("writer", bookie.name)
            await asyncio.sleep(chance.uniform(0, 7))
            self.world.network.heal()
        else:
            bookie.crash(CrashMode.PROCESS if fault == "crash" else CrashMode.POWER_LOSS)

    async def _write(self, created: asyncio.Future[int]) -> None:
        async with self._client(self.writer) as client:
            writer = await client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            created.set_result(writer.ledger_id)
            try:
                for number in range(100_000):
                    entry_id = await writer.append(b"%d" % number)
                    self.acked.append(entry_id)
                    self.note(f"acked {entry_id}")
            except BookKeeperError as error:
                self.note(f"writer gives up: {error}")
            await asyncio.Event().wait()

    async def _recover(self, ledger_id: int) -> None:
        async with self._client(self.reader) as client:
            for _ in range(50):
                try:
                    reader = await client.open_ledger(ledger_id, recover=True)
                    self.read = [
                        (await reader.read(entry_id)).payload for entry_id in range(reader.last_add_confirmed + 1)
                    ]
                except BookKeeperError as error:
                    self.note(f"reader tries again: {error}")
                    await asyncio.sleep(5)
                else:
                    self.note(f"read {len(self.read)}")
                    return
        raise AssertionError("never recovered")


def digest(seed: int) -> str:
    """A hash of the log of a run."""
    return hashlib.sha256("\n".join(Run(seed).log).encode()).hexdigest()


if __name__ == "__main__":
    sys.stdout.write(digest(int(sys.argv[1])))

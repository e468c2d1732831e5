"""A cluster of fake bookies with ledgers that lack copies, for repairs that are cancelled wherever they wait.

Its metadata store acts and then lets its caller wait for the answer, so a caller may be cancelled before an operation as
well as after it took effect. What must hold afterwards, whatever was cancelled, is :meth:`DamagedCluster.check`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

from bkclient._client.client import BookKeeper
from bkclient.ledger import LedgerMetadata, Versioned
from bkclient.metadata.memory_tree import MemoryTreeSession
from bkclient.metadata.tree import TreeNode
from bkclient.protocol.quorum import QuorumSizes
from bkclient.repair.admin import RepairAdmin
from bkclient.repair.config import RepairConfig
from bkclient.repair.fragments import fragments_of
from bkclient.repair.underreplication.marks import UnderReplication
from simbookie.world.loop import VirtualTimeLoop
from tests.bkclient.fakes import FakeCluster, FakeStore, FakeTransport, fake_cluster, writer_of
from tests.settling import settled

__all__ = ["NARROW", "PAYLOADS", "DamagedCluster", "LateStore", "damaged_cluster"]

T = TypeVar("T")

#: Everything that makes repairs wait: two reads at a time, two entries at a time, a rate.
NARROW = RepairConfig(max_checker_reads_in_flight=2, batch_entries=2, copy_bytes_per_s=1_000)
PAYLOADS = [b"0", b"11", b"222"]


class LateTree(MemoryTreeSession):
    """A session's tree whose answers come a turn after it acted."""

    store: LateStore

    async def get(self, path: str) -> TreeNode | None:
        return await self.store.late(await super().get(path))

    async def children(self, path: str) -> list[str]:
        return await self.store.late(await super().children(path))

    async def create(
        self, path: str, data: bytes = b"", *, is_ephemeral: bool = False, is_sequential: bool = False
    ) -> str | None:
        created = await super().create(path, data, is_ephemeral=is_ephemeral, is_sequential=is_sequential)
        return await self.store.late(created)

    async def write(self, path: str, data: bytes, version: int) -> bool:
        return await self.store.late(await super().write(path, data, version))

    async def delete(self, path: str, version: int | None = None) -> bool:
        return await self.store.late(await super().delete(path, version))


class LateStore(FakeStore):
    """A store whose answers come a turn after it acted."""

    async def late(self, answer: T) -> T:
        await asyncio.sleep(0)
        return answer

    async def read_ledger(self, ledger_id: int) -> Versioned:
        return await self.late(await super().read_ledger(ledger_id))

    async def write_ledger(self, metadata: LedgerMetadata, expected_version: int) -> Versioned:
        return await self.late(await super().write_ledger(metadata, expected_version))

    def node_tree(self) -> LateTree:
        self._check_open()
        tree = LateTree(self._service.tree, self, self._checkpoint, self._until_closed)
        tree.store = self
        return tree


@dataclass(eq=False)
class DamagedCluster:
    """Ledgers written by the client of ``where``, and another client, with a store that answers late, to repair them."""

    where: FakeCluster
    client: BookKeeper
    #: For each ledger the bookie that lost its entries, and the entries as they were.
    damaged: dict[int, str] = field(default_factory=dict)
    bodies: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def admin(self) -> RepairAdmin:
        return RepairAdmin(self.client, NARROW)

    def marks(self) -> UnderReplication:
        """Those of somebody else."""
        return RepairAdmin(self.where.bk).under_replication(wall_clock_ms=lambda: 0)

    async def ledger(self, *, is_closed: bool = True) -> int:
        """A ledger of which the first bookie has lost everything."""
        writer = await writer_of(self.where)
        for payload in PAYLOADS:
            await writer.append(payload)
        if is_closed:
            await writer.close()
        await settled()
        damaged = writer.metadata.last_fragment.ensemble[0]
        entries = self.where.transport.bookies[damaged].entries
        for key in [key for key in entries if key[0] == writer.ledger_id]:
            self.bodies[key] = entries.pop(key)
        self.damaged[writer.ledger_id] = damaged
        return writer.ledger_id

    def replace(self, ledger_id: int, old: str, new: str) -> None:
        """Somebody else names another bookie in the metadata."""

        def change(metadata: LedgerMetadata) -> LedgerMetadata:
            (fragment,) = metadata.fragments
            ensemble = tuple(new if bookie_id == old else bookie_id for bookie_id in fragment.ensemble)
            return replace(metadata, fragments=(replace(fragment, ensemble=ensemble),))

        self.where.edit(ledger_id, change)

    def candidates(self) -> list[str]:
        return self.where.service.tree.children("underreplication/auditorelection")

    def check(self) -> None:
        """Nothing is locked, and every bookie that the metadata names has its copies, but for those that lost them."""
        assert self.where.service.tree.children("underreplication/locks") == []
        for ledger_id, damaged in self.damaged.items():
            metadata = self.where.metadata(ledger_id)
            for fragment in fragments_of(metadata, len(PAYLOADS) - 1):
                assert len(set(fragment.ensemble)) == len(fragment.ensemble)
                for entry_id in range(fragment.first_entry_id, fragment.last_entry_id + 1):
                    for position in QuorumSizes.of(metadata).write_set(entry_id):
                        bookie_id = fragment.ensemble[position]
                        if bookie_id != damaged:
                            stored = self.where.transport.bookies[bookie_id].entries
                            assert stored[ledger_id, entry_id] == self.bodies[ledger_id, entry_id], bookie_id

    def is_repaired(self, ledger_id: int) -> bool:
        """Whether the bookie without copies is named no more; those that are named have theirs, as :meth:`check` sees to."""
        return all(self.damaged[ledger_id] not in f.ensemble for f in self.where.metadata(ledger_id).fragments)


@asynccontextmanager
async def damaged_cluster(bookies: str = "abcd") -> AsyncIterator[DamagedCluster]:
    """At the end no watch and no timer of the client that repaired may be left; late reads' own go by themselves."""
    async with fake_cluster(bookies) as where:
        transport = FakeTransport("")
        transport.bookies = where.transport.bookies
        watches = dict(where.service.tree._watches), len(where.service._bookie_watches)
        async with LateStore(where.service) as store, BookKeeper(store, transport, rng=Random(5)) as client:
            watched = len(where.service._bookie_watches)
            yield DamagedCluster(where, client)
            assert len(where.service._bookie_watches) == watched
        assert (where.service.tree._watches, len(where.service._bookie_watches)) == watches
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    timers = [repr(timer) for _, _, timer in loop._timers if not timer.cancelled()]
    assert [timer for timer in timers if "EntryReads" not in timer] == []

"""Auto-recovery through random losses: whatever was acknowledged ends up with all its copies, and nothing else happens to it.

Bookies die for good, disk and all, fewer than an ack quorum before the cluster has healed; auto-recovery programs crash and
start again, the metadata service answers late, conflicts and forgets answers, writers come and go. At the end a thorough
check reads every copy.
"""

from __future__ import annotations

from random import Random
from typing import Any

import anyio
import pytest

from bkclient import BookKeeper
from bkclient.errors import BookKeeperError
from bkclient.repair.events import EventKind
from simbookie.world.hosts import World
from simbookie.world.links import NetworkConfig
from simbookie.world.metadata_service import MetadataConfig
from tests.bkclient.repair.repair_cluster import RepairCluster

SETTINGS: dict[str, Any] = {
    "ledger_check_interval_s": 60.0,
    "verification_percentage": 100.0,
    "open_ledger_grace_s": 5.0,
    "failed_ledger_lock_release_s": 32.0,
    "idle_poll_s": 2.0,
}
#: By how many bookies die at once: fewer than the ack quorum of each shape.
SHAPES = {1: ((3, 3, 2), (4, 3, 2), (5, 2, 2), (3, 2, 2), (4, 4, 3)), 2: ((4, 4, 3), (5, 4, 3), (3, 3, 3))}


class Run:
    """One run, decided by its seed."""

    def __init__(self, seed: int, *, rounds: int = 3, losses: int = 1, with_recovery: bool = True) -> None:
        self.losses = losses
        self.rng = Random(seed)
        self.acknowledged: dict[int, list[bytes]] = {}
        self.unsound: list[int] = []
        self.wrong: list[int] = []
        self.replaced = 0
        metadata = MetadataConfig(conflict_probability=0.03, unknown_probability=0.03, failure_probability=0.01)
        network = NetworkConfig(slow_probability=0.02)
        with World(seed, metadata=metadata, network=network) as world:

            async def main() -> None:
                self.cluster = RepairCluster(world, 8)
                for bookie in self.cluster.bookies.values():
                    await bookie.registered()
                await self._play(rounds, with_recovery=with_recovery)

            world.run(main)

    async def _play(self, rounds: int, *, with_recovery: bool) -> None:
        cluster = self.cluster
        if with_recovery:
            for name in ("one", "two"):
                cluster.auto_recovery(name, **SETTINGS)
        async with cluster.client() as bk:
            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(self._write, bk, rounds)
                for _ in range(rounds):
                    await anyio.sleep(self.rng.uniform(1, 15))
                    await self._lose_one(bk, with_recovery=with_recovery)
            if with_recovery:
                for ledger_id in self.acknowledged:
                    await self._patiently(lambda id_=ledger_id: bk.open_ledger(id_, recover=True))
                await self._heal(bk)
            await self._judge(bk)
        self.replaced = len(cluster.told(EventKind.REPLACED))

    async def _write(self, bk: BookKeeper, rounds: int) -> None:
        for _ in range(2 * rounds):
            size, write_quorum, ack_quorum = self.rng.choice(SHAPES[self.losses])
            try:
                writer = await bk.create_ledger(
                    ensemble_size=size, write_quorum_size=write_quorum, ack_quorum_size=ack_quorum
                )
                acknowledged = self.acknowledged[writer.ledger_id] = []
                for _ in range(self.rng.randrange(25)):
                    payload = self.rng.randbytes(self.rng.choice((0, 5, 200)))
                    await writer.append(payload)
                    acknowledged.append(payload)
                    if self.rng.random() < 0.3:
                        await anyio.sleep(self.rng.uniform(0, 8))
                if self.rng.random() < 0.7:
                    await writer.close()
            except BookKeeperError:
                await anyio.sleep(1)  # fenced, or a bookie too few: on with another ledger

    async def _lose_one(self, bk: BookKeeper, *, with_recovery: bool) -> None:
        cluster = self.cluster
        alive = [name for name, bookie in cluster.bookies.items() if bookie.is_alive]
        await cluster.lose(*self.rng.sample(alive, self.losses), wiped=True)
        for new in [cluster.add_bookie() for _ in range(self.losses)]:
            await cluster.bookies[new].registered()
        if not with_recovery:
            return
        name = self.rng.choice(("one", "two"))
        await anyio.sleep(self.rng.uniform(0, 5))
        cluster.world.hosts[name].crash()
        await anyio.sleep(self.rng.uniform(0, 20))
        cluster.auto_recovery(name, **SETTINGS)
        await self._heal(bk)

    async def _heal(self, bk: BookKeeper) -> None:
        """Wait until a whole check of all ledgers began after what happened and left no mark."""
        cluster = self.cluster
        for _ in range(50):
            before = len(cluster.told(EventKind.CHECKED))
            await cluster.until(lambda n=before: len(cluster.told(EventKind.CHECKED)) >= n + 2, 3000)  # type: ignore[misc]
            try:
                if [mark async for mark in cluster.marks(bk).marks()] == []:
                    return
            except BookKeeperError:
                continue
        raise AssertionError(f"it does not heal: {cluster.events[-30:]}")

    async def _judge(self, bk: BookKeeper) -> None:
        for ledger_id, acknowledged in self.acknowledged.items():
            try:
                reader = await self._patiently(lambda id_=ledger_id: bk.open_ledger(id_, recover=True))
            except BookKeeperError:  # too few bookies have it for a recovery
                self.unsound.append(ledger_id)
                continue
            try:
                payloads = [entry.payload async for entry in reader]
            except BookKeeperError:
                payloads = []
            if payloads[: len(acknowledged)] != acknowledged:
                self.wrong.append(ledger_id)
            report = await self._patiently(lambda id_=ledger_id: self.cluster.thorough(id_))
            if not report.is_sound:
                self.unsound.append(ledger_id)

    async def _patiently(self, call: Any) -> Any:
        for _ in range(20):
            try:
                return await call()
            except BookKeeperError:
                await anyio.sleep(5)
        return await call()


@pytest.mark.deep
@pytest.mark.rule("AR-22")
@pytest.mark.rule("AR-23")
@pytest.mark.behaviour("T-253")
@pytest.mark.parametrize(("seed", "losses"), [(0, 1), (1, 1), (2, 1), (3, 1), (0, 2), (1, 2)])
def test_every_acknowledged_entry_has_all_its_copies_after_the_cluster_healed(seed: int, losses: int) -> None:
    run = Run(seed, losses=losses)
    assert sum(map(len, run.acknowledged.values())) > 30
    assert run.replaced > 3, "there was something to repair"
    assert run.wrong == []
    assert run.unsound == []


def test_the_same_losses_without_auto_recovery_leave_ledgers_without_copies() -> None:
    run = Run(1, with_recovery=False)
    assert run.unsound


def test_a_run_is_the_same_every_time() -> None:
    first, second = Run(3, rounds=1), Run(3, rounds=1)
    assert first.cluster.events == second.cluster.events
    assert first.acknowledged == second.acknowledged

"""Auto-recovery on a real ZooKeeper, in the layout and the words of BookKeeper's own."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

import bkclient
from bkclient.metadata.opening import open_store
from bkclient.metadata.tree import tree_of
from bkclient.repair import RepairAdmin
from bkclient.repair.admin import core_of
from bkclient.repair.events import EventKind
from simbookie.cluster import LocalCluster
from tests.end_to_end.test_repair import NOW_MS, auto_recovery, is_sound, ledger, told, until
from tests.zookeepers import AnyZooKeeper


@pytest.mark.behaviour("T-253")
@pytest.mark.behaviour("T-261")
@pytest.mark.behaviour("T-264")
async def test_a_dead_bookie_is_noticed_marked_and_replaced(
    zookeeper_server: AnyZooKeeper, zookeeper_root: str
) -> None:
    uri = zookeeper_server.metadata_uri(zookeeper_root)
    store = await open_store(uri, rng=Random(1), initialise=True)
    try:
        async with LocalCluster(store, 4) as cluster, bkclient.connect(uri, rng=Random(2)) as bk:
            admin = RepairAdmin(bk)
            tree = tree_of(core_of(bk).metadata)
            marks = admin.under_replication(name="operator", wall_clock_ms=lambda: NOW_MS)
            async with auto_recovery(uri, "one") as one, auto_recovery(uri, "two") as two:
                await until(lambda: told([*one, *two], EventKind.ELECTED))
                assert await admin.auditor() in ("one", "two")
                writer = await ledger(bk, 50)
                await writer.close()
                dead = writer.metadata.last_fragment.ensemble[0]
                await marks.disable()
                await cluster.kill(dead)
                await asyncio.sleep(0.3)
                assert [mark async for mark in marks.marks()] == []
                await marks.enable()
                await until(lambda: told([*one, *two], EventKind.REPLICATED))
                assert len(told([*one, *two], EventKind.ELECTED)) == 1
            assert await is_sound(bk, writer.ledger_id)
            assert await tree.children("underreplication/ledgers") == [], "directories go with the last mark"
            assert await tree.children("underreplication/locks") == []
            await until_gone(admin)
    finally:
        await store.aclose()


async def until_gone(admin: RepairAdmin) -> None:
    async with asyncio.timeout(20):
        while await admin.auditor() is not None:  # noqa: ASYNC110 - the service forgets sessions in its own time
            await asyncio.sleep(0.05)


@pytest.mark.behaviour("T-267")
async def test_a_mark_that_javas_auditor_wrote_is_worked_on_and_removed(
    zookeeper_server: AnyZooKeeper, zookeeper_root: str
) -> None:
    uri = zookeeper_server.metadata_uri(zookeeper_root)
    store = await open_store(uri, rng=Random(1), initialise=True)
    try:
        async with LocalCluster(store, 4) as cluster, bkclient.connect(uri, rng=Random(2)) as bk:
            writer = await ledger(bk, 10)
            await writer.close()
            dead = writer.metadata.last_fragment.ensemble[0]
            await cluster.kill(dead)
            await asyncio.sleep(0.2)
            tree = tree_of(core_of(bk).metadata)
            digits = f"{writer.ledger_id:016x}"
            directory = "/".join(digits[at : at + 4] for at in range(0, 16, 4))
            mark = f"underreplication/ledgers/{directory}/urL{writer.ledger_id:010d}"
            await tree.create(mark, b'replica: "%s"\n' % dead.encode())
            quiet = {"ledger_check_interval_s": 0.0, "bookie_check_interval_s": 0.0}
            async with auto_recovery(uri, "worker", **quiet) as events:
                await until(lambda: told(events, EventKind.REPLICATED))
            assert await tree.get(mark) is None
            assert await is_sound(bk, writer.ledger_id)
    finally:
        await store.aclose()

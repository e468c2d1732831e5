"""Every call of administrators, and auto-recovery, cancelled wherever they wait.

Nothing stays locked, no bookie is named before it has its copies, and whatever was given up can be done again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from bkclient.ledger import LedgerState
from bkclient.repair.admin import RepairAdmin
from bkclient.repair.config import RepairConfig
from bkclient.repair.events import EventKind, RepairEvent
from bkclient.repair.rate import ByteRate
from bkclient.repair.service import AutoRecovery
from tests.bkclient.fakes import payloads_of
from tests.bkclient.repair.damaged_cluster import PAYLOADS, DamagedCluster, damaged_cluster
from tests.cancellation import Cancel, cancel_everywhere
from tests.settling import settled

Call = Callable[[RepairAdmin, int, str], Coroutine[Any, Any, object]]


async def ledgers_on(admin: RepairAdmin, bookie_id: str) -> list[int]:
    return [ledger_id async for ledger_id in admin.ledgers_on(bookie_id)]


LOOKS: dict[str, Call] = {
    "check_ledger": lambda admin, ledger_id, _: admin.check_ledger(ledger_id),
    "check_ledger, thorough": lambda admin, ledger_id, _: admin.check_ledger(ledger_id, thorough=True),
    "ledgers_on": lambda admin, _, damaged: ledgers_on(admin, damaged),
    "entries_on": lambda admin, ledger_id, damaged: admin.entries_on(damaged, ledger_id),
    "check_replicas": lambda admin, ledger_id, _: admin.check_replicas(ledger_id),
    "recover_bookie, dry": lambda admin, _, damaged: admin.recover_bookie([damaged], dry_run=True),
    "trigger_audit": lambda admin, *_: admin.trigger_audit(),
    "auditor": lambda admin, *_: admin.auditor(),
}

REPAIRS: dict[str, Call] = {
    "repair_ledger": lambda admin, ledger_id, _: admin.repair_ledger(ledger_id),
    "repair_ledger, thorough": lambda admin, ledger_id, _: admin.repair_ledger(ledger_id, thorough=True),
    "recover_bookie": lambda admin, _, damaged: admin.recover_bookie([damaged]),
    "recover_bookie of one ledger": lambda admin, ledger_id, damaged: admin.recover_bookie(
        [damaged], ledger_ids=[ledger_id]
    ),
}


def is_idle(admin: RepairAdmin) -> bool:
    """Whether nobody holds any of what the admin's calls share."""
    reads = admin._checker._reads._room
    return reads._value == admin._config.max_checker_reads_in_flight


@pytest.mark.parametrize("name", LOOKS)
def test_a_look_that_is_cancelled_changes_nothing_and_may_be_repeated(name: str) -> None:
    async def story(cancel: Cancel) -> None:
        async with damaged_cluster() as cluster:
            ledger_id, admin = await cluster.ledger(), cluster.admin()
            before = cluster.where.service.read(ledger_id)
            await cancel(LOOKS[name](admin, ledger_id, cluster.damaged[ledger_id]))
            await settled()
            cluster.check()
            assert is_idle(admin)
            await LOOKS[name](admin, ledger_id, cluster.damaged[ledger_id])
            assert cluster.where.service.read(ledger_id) == before

    cancel_everywhere(story)


@pytest.mark.rule("AR-11")
@pytest.mark.parametrize("name", REPAIRS)
def test_a_repair_that_is_cancelled_has_named_no_bookie_without_its_copies_and_may_be_repeated(name: str) -> None:
    async def story(cancel: Cancel) -> None:
        async with damaged_cluster() as cluster:
            ledger_id, admin = await cluster.ledger(), cluster.admin()
            damaged = cluster.damaged[ledger_id]
            await cancel(REPAIRS[name](admin, ledger_id, damaged))
            cluster.check()
            await settled()
            cluster.check()
            assert is_idle(admin)
            await REPAIRS[name](admin, ledger_id, damaged)
            cluster.check()
            assert cluster.is_repaired(ledger_id)
            assert (await admin.check_ledger(ledger_id, thorough=True)).is_sound
            assert await payloads_of(cluster.where, ledger_id) == PAYLOADS

    cancel_everywhere(story, at_least=10)


@pytest.mark.rule("AR-14")
def test_a_recovery_of_a_bookie_that_is_cancelled_while_it_closes_a_ledger_may_be_repeated() -> None:
    async def story(cancel: Cancel) -> None:
        async with damaged_cluster() as cluster:
            ledger_id, admin = await cluster.ledger(is_closed=False), cluster.admin()
            await cancel(admin.recover_bookie([cluster.damaged[ledger_id]]))
            await settled()
            cluster.check()
            await admin.recover_bookie([cluster.damaged[ledger_id]])
            cluster.check()
            assert cluster.is_repaired(ledger_id)
            assert cluster.where.metadata(ledger_id).state is LedgerState.CLOSED
            assert await payloads_of(cluster.where, ledger_id) == PAYLOADS

    cancel_everywhere(story, at_least=10)


def test_a_decommission_that_is_cancelled_leaves_no_timer_and_may_be_repeated() -> None:
    async def story(cancel: Cancel) -> None:
        async with damaged_cluster() as cluster:
            ledger_id, admin = await cluster.ledger(), cluster.admin()
            damaged = cluster.damaged[ledger_id]
            cluster.replace(ledger_id, damaged, "gone")
            asyncio.get_running_loop().call_later(50, cluster.replace, ledger_id, "gone", damaged)
            await cancel(admin.decommission("gone", timeout_s=100))
            await admin.decommission("gone", timeout_s=100)
            cluster.check()

    cancel_everywhere(story, at_least=10)


async def take(rate: ByteRate) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(rate.take, 100)


@pytest.mark.rule("AR-12")
def test_bytes_that_were_waited_for_and_not_copied_slow_nobody_down() -> None:
    async def story(cancel: Cancel) -> None:
        loop = asyncio.get_running_loop()
        rate = ByteRate(100)
        await rate.take(100)
        await cancel(take(rate))
        cancelled_at = loop.time()
        await rate.take(1)
        assert loop.time() <= cancelled_at + 1.0, "no more than one copy had begun"

    cancel_everywhere(story, at_least=3)


async def work_until_replicated(cluster: DamagedCluster, *, with_auditor: bool) -> None:
    """Auto-recovery, which ends by being cancelled once a ledger has all its copies."""
    task = asyncio.current_task()
    assert task is not None

    def on_event(event: RepairEvent) -> None:
        if event.kind is EventKind.REPLICATED:
            task.cancel()

    recovery = AutoRecovery(
        cluster.client,
        RepairConfig(batch_entries=2, copy_bytes_per_s=1_000, ledger_check_interval_s=0),
        name="here",
        wall_clock_ms=lambda: 0,
        with_auditor=with_auditor,
        on_event=on_event,
    )
    await recovery.run()


@pytest.mark.deep
@pytest.mark.rule("AR-25")
@pytest.mark.parametrize("with_auditor", [False, True], ids=["worker", "worker and auditor"])
def test_auto_recovery_that_is_stopped_anywhere_leaves_its_ledgers_and_its_office_to_others(with_auditor: bool) -> None:
    async def story(cancel: Cancel) -> None:
        async with damaged_cluster() as cluster:
            ledger_id = await cluster.ledger()
            marks = cluster.marks()
            await marks.open()
            await marks.mark(ledger_id, [cluster.damaged[ledger_id]])
            await cancel(work_until_replicated(cluster, with_auditor=with_auditor))
            await settled()
            cluster.check()
            assert cluster.candidates() == []
            assert cluster.where.service.snapshot().node_watches == {}
            if ledger_id not in [mark.ledger_id async for mark in marks.marks()]:
                assert cluster.is_repaired(ledger_id)
            else:
                await asyncio.wait([asyncio.ensure_future(work_until_replicated(cluster, with_auditor=with_auditor))])
            cluster.check()
            assert cluster.is_repaired(ledger_id)

    cancel_everywhere(story, at_least=30)

"""The replication worker, with an auditor where it is the whole that is shown."""

from __future__ import annotations

import itertools
from typing import Any

import anyio
import pytest

from bkclient import BookKeeper, LedgerState
from bkclient._client.writing.writer import LedgerWriter
from bkclient.errors import ClientClosed, LedgerClosed, LedgerFenced, MetadataStoreError
from bkclient.repair.admin import core_of
from bkclient.repair.config import RepairConfig
from bkclient.repair.events import EventKind
from bkclient.repair.patience import FailureCount, lock_release_delay_s
from bkclient.repair.service import AutoRecovery
from bkclient.wire.messages import AddRequest
from simbookie.world.calls import RequestMessage
from simbookie.world.faults import Fate
from simbookie.world.metadata_service import MetadataFault
from tests.bkclient.repair.repair_cluster import RepairCluster, run_in_repair_cluster

ALONE: dict[str, Any] = {"with_auditor": False}


def members(writer: LedgerWriter) -> tuple[str, ...]:
    return writer.metadata.last_fragment.ensemble


async def marked(cluster: RepairCluster, bk: BookKeeper) -> dict[int, tuple[str, ...]]:
    return {mark.ledger_id: mark.missing async for mark in cluster.marks(bk).marks()}


async def is_refused(writer: LedgerWriter) -> bool:
    with pytest.raises((LedgerFenced, LedgerClosed)):
        await writer.append(b"too late")
    return True


@pytest.mark.rule("AR-20")
@pytest.mark.rule("AR-21")
@pytest.mark.behaviour("T-253")
def test_ledgers_of_a_killed_bookie_open_and_closed_are_repaired_by_a_new_one() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            cluster.auto_recovery("repairer", open_ledger_grace_s=5)
            closed, open_one = await cluster.written_ledger(bk, 20), await cluster.written_ledger(bk, 20, closed=False)
            dead = next(name for name in members(closed) if name in members(open_one))
            new = cluster.add_bookie()
            others = [name for name in cluster.bookies if name not in (*members(closed), new)]
            await cluster.bookies[new].registered()
            cluster.bookies[others[0]].bookie.set_read_only(True)
            await cluster.lose(dead)
            await cluster.until(lambda: len(cluster.told(EventKind.REPLICATED)) == 2)
            assert await marked(cluster, bk) == {}
            for writer in (closed, open_one):
                stored = await cluster.metadata(writer.ledger_id)
                assert stored.is_closed
                assert stored.last_entry_id == 19
                assert dead not in stored.last_fragment.ensemble
                assert (await cluster.thorough(writer.ledger_id)).is_sound

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-21")
def test_one_fragment_that_cannot_be_copied_keeps_no_other_from_being() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 5, closed=False)
            first = members(writer)
            await cluster.lose(first[0])
            await cluster.append(writer, 5)
            await writer.close()
            second = members(writer)
            for name in first[1:]:
                cluster.forget(name, writer.ledger_id, 2)
            await cluster.lose(second[0])
            await cluster.marks(bk).mark(writer.ledger_id, (first[0], second[0]))
            cluster.auto_recovery("worker", **ALONE)
            await cluster.until(lambda: cluster.told(EventKind.WAITING))
            stored = await cluster.metadata(writer.ledger_id)
            assert stored.fragments[0].ensemble == first
            assert second[0] not in stored.fragments[1].ensemble
            assert writer.ledger_id in await marked(cluster, bk)

    run_in_repair_cluster(program, bookies=6)


@pytest.mark.rule("AR-21")
def test_an_entry_that_nobody_gave_is_asked_for_before_anything_is_copied_again() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 30)
            ensemble = members(writer)
            kept = {name: cluster.body(name, writer.ledger_id, 20) for name in ensemble}
            for name in ensemble[1:]:
                cluster.forget(name, writer.ledger_id, 20)
            await cluster.lose(ensemble[0])
            await cluster.marks(bk).mark(writer.ledger_id, (ensemble[0],))
            cluster.auto_recovery("worker", **ALONE, failed_ledger_lock_release_s=32)
            await cluster.until(lambda: len(cluster.told(EventKind.WAITING)) == 1)
            sent = cluster.transports["worker"].sent
            copied = sum(isinstance(request, AddRequest) for _, request in sent)
            assert copied >= 10
            await cluster.until(lambda: len(cluster.told(EventKind.WAITING)) == 3)
            assert sum(isinstance(request, AddRequest) for _, request in sent) == copied
            cluster.storage(ensemble[1])._ledgers[writer.ledger_id].entries[20] = kept[ensemble[1]] or b""
            await cluster.until(lambda: len(cluster.told(EventKind.REPLACED)) == 1)

    run_in_repair_cluster(program, bookies=5)


@pytest.mark.rule("AR-22")
@pytest.mark.rule("AR-23")
@pytest.mark.behaviour("T-254")
def test_an_open_empty_ledger_of_a_dead_bookie_is_closed_after_the_grace_period() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            cluster.auto_recovery("repairer", open_ledger_grace_s=30)
            writer = await cluster.written_ledger(bk, 0, closed=False)
            dead, *others = members(writer)
            await cluster.lose(dead)
            await anyio.sleep(20)
            assert (await cluster.metadata(writer.ledger_id)).state is LedgerState.OPEN
            await cluster.until(lambda: cluster.told(EventKind.REPLICATED))
            stored = await cluster.metadata(writer.ledger_id)
            assert (stored.state, stored.last_entry_id) == (LedgerState.CLOSED, -1)
            assert dead not in stored.last_fragment.ensemble
            await cluster.lose(*others)
            reader = await bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
            assert reader.last_add_confirmed == -1

    run_in_repair_cluster(program, bookies=4)


@pytest.mark.rule("AR-14")
@pytest.mark.rule("AR-22")
@pytest.mark.behaviour("T-257")
def test_a_last_fragment_that_lacks_a_bookie_is_fenced_after_the_grace_period_and_its_writer_fails() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            cluster.auto_recovery("repairer", open_ledger_grace_s=30)
            writer = await cluster.written_ledger(bk, 7, closed=False)
            await cluster.lose(members(writer)[1])
            await cluster.until(lambda: cluster.told(EventKind.REPLICATED))
            assert cluster.told(EventKind.CLOSED)
            assert await is_refused(writer)
            assert (await cluster.metadata(writer.ledger_id)).last_entry_id == 6
            assert (await cluster.thorough(writer.ledger_id)).is_sound

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-22")
@pytest.mark.parametrize("is_read_only", [False, True])
def test_a_bookie_of_the_last_ensemble_that_takes_no_entries_any_more_is_as_good_as_lost(is_read_only: bool) -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 3, closed=False)
            cluster.bookies[members(writer)[0]].bookie.set_read_only(is_read_only)
            await anyio.sleep(1)
            await cluster.marks(bk).mark(writer.ledger_id, ("somebody",))
            cluster.auto_recovery("worker", **ALONE, open_ledger_grace_s=30)
            await cluster.until(lambda: cluster.told(EventKind.REPLICATED))
            assert (await cluster.metadata(writer.ledger_id)).is_closed is is_read_only
            assert cluster.world.loop.time() > 30 if is_read_only else cluster.world.loop.time() < 30

    run_in_repair_cluster(program)


def test_the_worker_beside_an_auditor_begins_at_once_with_what_that_one_marks() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            await cluster.marks(bk).mark(10**9, ("somebody",))  # so that no later mark is the first one
            cluster.auto_recovery("repairer", idle_poll_s=10_000, max_deferred_ledgers=100)
            await cluster.until(lambda: cluster.told(EventKind.ELECTED))
            await cluster.until(lambda: len(cluster.told(EventKind.REPLICATED)) == 1)
            writers = [await cluster.written_ledger(bk, 3, (4, 3, 2)) for _ in range(3)]
            cluster.add_bookie()
            await cluster.lose(members(writers[0])[0])
            await cluster.until(lambda: len(cluster.told(EventKind.REPLICATED)) == 4, 60)

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-15")
@pytest.mark.rule("AR-22")
@pytest.mark.behaviour("T-113")
@pytest.mark.behaviour("T-258")
def test_a_writer_that_replaced_the_bookie_itself_goes_on_while_the_earlier_fragment_is_repaired() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            cluster.auto_recovery("repairer", open_ledger_grace_s=30)
            writer = await cluster.written_ledger(bk, 7, closed=False)
            dead = members(writer)[1]
            await cluster.lose(dead)
            await cluster.append(writer, 5)
            assert dead not in members(writer)
            await cluster.until(lambda: cluster.told(EventKind.REPLICATED))
            stored = await cluster.metadata(writer.ledger_id)
            assert stored.state is LedgerState.OPEN
            assert dead not in stored.fragments[0].ensemble
            await cluster.append(writer, 5)
            await cluster.lose(members(writer)[0])  # and its next change merges with the repair
            await cluster.append(writer, 5)
            await writer.close()
            await cluster.until(lambda: len(cluster.told(EventKind.REPLICATED)) == 2)
            final = await cluster.metadata(writer.ledger_id)
            assert (final.last_entry_id, len(final.fragments)) == (21, 3)
            assert (await cluster.thorough(writer.ledger_id)).is_sound

    run_in_repair_cluster(program, bookies=6)


@pytest.mark.behaviour("T-72")
def test_a_fragment_below_an_empty_one_of_an_open_ledger_is_repaired_without_closing_it() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 5, closed=False)
            first = members(writer)
            new = next(name for name in cluster.bookies if name not in first)
            stored = await cluster.metadata(writer.ledger_id)
            session = cluster.world.metadata.memory.session(rng=cluster.world.rng("writer that died"))
            await session.write_ledger(stored.with_ensemble(5, (new, *first[1:])), 0)
            await cluster.lose(first[0])
            reader = await bk.open_ledger(writer.ledger_id, password=b"secret", recover=False)
            assert reader.last_add_confirmed == 4, "the boundary tells what no bookie does"
            await cluster.marks(bk).mark(writer.ledger_id, (first[0],))
            cluster.auto_recovery("worker", **ALONE)
            await cluster.until(lambda: cluster.told(EventKind.REPLICATED))
            repaired = await cluster.metadata(writer.ledger_id)
            assert repaired.state is LedgerState.OPEN
            assert first[0] not in repaired.fragments[0].ensemble
            assert (await cluster.thorough(writer.ledger_id)).is_sound

    run_in_repair_cluster(program, bookies=5)


@pytest.mark.behaviour("T-255")
def test_work_stopped_in_the_middle_is_taken_up_by_another() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 60)
            await cluster.lose(members(writer)[0])
            await cluster.marks(bk).mark(writer.ledger_id, (members(writer)[0],))
            slowly: dict[str, Any] = {"copy_bytes_per_s": 1000.0}
            first = cluster.auto_recovery("first", **ALONE, **slowly)
            await anyio.sleep(2)
            sent = cluster.transports["first"].sent
            assert 0 < sum(isinstance(request, AddRequest) for _, request in sent) < 50
            first.crash()
            cluster.auto_recovery("second", **ALONE)
            await cluster.until(lambda: cluster.told(EventKind.REPLICATED))
            assert {name for _, name, event in cluster.events if event.kind is EventKind.REPLICATED} == {"second"}
            assert (await cluster.thorough(writer.ledger_id)).is_sound

    run_in_repair_cluster(program)


@pytest.mark.behaviour("T-255")
def test_two_workers_share_the_work() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writers = [await cluster.written_ledger(bk, 10, (4, 4, 2)) for _ in range(12)]
            cluster.add_bookie()
            await cluster.lose("bookie-0")
            for writer in writers:
                await cluster.marks(bk).mark(writer.ledger_id, ("bookie-0",))
            for name in ("one", "two"):
                cluster.auto_recovery(name, **ALONE, copy_bytes_per_s=1000)
            await cluster.until(lambda: len(cluster.told(EventKind.REPLICATED)) == 12)
            shares = [name for _, name, event in cluster.events if event.kind is EventKind.REPLICATED]
            assert min(shares.count("one"), shares.count("two")) >= 4
            for writer in writers:
                assert (await cluster.thorough(writer.ledger_id)).is_sound

    run_in_repair_cluster(program)


def test_two_workers_on_one_ledger_do_it_no_harm() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 30)
            await cluster.lose(*members(writer)[:2])
            await cluster.marks(bk).mark(writer.ledger_id, members(writer)[:2])
            cluster.auto_recovery("one", **ALONE, copy_bytes_per_s=1000)
            await anyio.sleep(1)
            cluster.world.metadata.lose_sessions("one")  # its lock is gone, and it does not know yet
            cluster.auto_recovery("two", **ALONE, copy_bytes_per_s=1000)
            await cluster.until(lambda: cluster.told(EventKind.REPLICATED))
            await anyio.sleep(60)
            stored = await cluster.metadata(writer.ledger_id)
            assert len(set(stored.last_fragment.ensemble)) == 3
            assert (await cluster.thorough(writer.ledger_id)).is_sound
            assert await marked(cluster, bk) == {}

    run_in_repair_cluster(program, bookies=6)


@pytest.mark.rule("AR-25")
@pytest.mark.behaviour("T-256")
def test_a_deleted_ledger_is_no_longer_marked() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            before, meanwhile = await cluster.written_ledger(bk, 3), await cluster.written_ledger(bk, 3, closed=False)
            await bk.delete_ledger(before.ledger_id)
            await cluster.lose(members(meanwhile)[0])
            for writer in (before, meanwhile):
                await cluster.marks(bk).mark(writer.ledger_id, (members(meanwhile)[0],))
            cluster.auto_recovery("worker", **ALONE)
            await cluster.until(lambda: cluster.told(EventKind.WAITING))
            await bk.delete_ledger(meanwhile.ledger_id)
            await cluster.until(lambda: len(cluster.told(EventKind.REPLICATED)) == 2)
            assert await marked(cluster, bk) == {}

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-24")
@pytest.mark.behaviour("T-259")
def test_with_all_replicas_down_a_worker_tries_again_later_each_time_and_succeeds_when_they_return() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 5)
            await cluster.lose(*members(writer))
            await cluster.marks(bk).mark(writer.ledger_id, members(writer))
            cluster.auto_recovery("worker", **ALONE, failed_ledger_lock_release_s=320)
            await cluster.until(lambda: len(cluster.told(EventKind.WAITING)) == 7, 3000)
            waited = [at for at, _, event in cluster.events if event.kind is EventKind.WAITING]
            gaps = [round(later - earlier, -1) for earlier, later in itertools.pairwise(waited)]
            assert gaps == [10, 20, 40, 80, 160, 320]
            assert all(event.ledger_id == writer.ledger_id for event in cluster.told(EventKind.WAITING))
            returned = cluster.world.loop.time()
            await cluster.bring_back(*members(writer))
            await cluster.until(lambda: cluster.told(EventKind.REPLICATED))
            assert cluster.world.loop.time() - returned < 30, "bookies that return end the wait"
            assert await marked(cluster, bk) == {}

    run_in_repair_cluster(program, bookies=7)


@pytest.mark.rule("AR-24")
def test_locks_are_kept_for_a_time_that_doubles_up_to_the_grace_period() -> None:
    assert [lock_release_delay_s(n, 320) for n in (1, 2, 3, 4, 5, 6, 7, 100)] == [10, 20, 40, 80, 160, 320, 320, 320]


@pytest.mark.rule("AR-25")
def test_without_bookies_to_copy_to_a_worker_waits_for_one() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            cluster.auto_recovery("repairer", failed_ledger_lock_release_s=3200)
            writer = await cluster.written_ledger(bk, 5)
            await cluster.lose(members(writer)[0])
            await anyio.sleep(400)
            assert cluster.told(EventKind.REPLACED) == []
            assert writer.ledger_id in await marked(cluster, bk)
            cluster.add_bookie()
            await cluster.until(lambda: cluster.told(EventKind.REPLICATED), 60)
            assert (await cluster.thorough(writer.ledger_id)).is_sound

    run_in_repair_cluster(program, bookies=3)


@pytest.mark.rule("AR-25")
def test_a_worker_without_a_metadata_service_pauses_and_ends_at_last() -> None:
    async def program(cluster: RepairCluster) -> None:
        error = MetadataStoreError("away")
        failures = FailureCount(4)
        now = cluster.world.loop.time
        pauses = []
        for _ in range(3):
            started = now()
            await failures.failed(error)
            pauses.append(now() - started)
        assert pauses == pytest.approx([0.5, 1.0, 2.0])
        with pytest.raises(MetadataStoreError, match="away"):
            await failures.failed(error)
        failures = FailureCount(2)
        await failures.failed(error)
        failures.succeeded()
        await failures.failed(error)

    run_in_repair_cluster(program, bookies=0)


@pytest.mark.rule("AR-25")
def test_a_worker_bears_a_metadata_service_that_is_away_for_a_while() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 20)
            await cluster.lose(members(writer)[0])
            await cluster.marks(bk).mark(writer.ledger_id, (members(writer)[0],))
            cluster.world.metadata.intercept(
                lambda call: call.host == "worker" and call.operation == "write_ledger",
                MetadataFault.ANSWER_LOST,
                limit=1,
            )
            cluster.world.metadata.intercept(
                lambda call: call.host == "worker" and call.operation == "tree_delete", MetadataFault.FAIL, limit=1
            )
            cluster.auto_recovery("worker", **ALONE)
            await cluster.until(lambda: cluster.told(EventKind.REPLICATED))
            assert (await cluster.thorough(writer.ledger_id)).is_sound
            assert await marked(cluster, bk) == {}

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-20")
def test_a_mark_whose_ledger_lacks_nothing_is_removed_and_no_byte_is_copied() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writers = [await cluster.written_ledger(bk, 5), await cluster.written_ledger(bk, 5, closed=False)]
            for writer in writers:
                await cluster.marks(bk).mark(writer.ledger_id, (members(writer)[0],))
            cluster.auto_recovery("worker", **ALONE)
            await cluster.until(lambda: len(cluster.told(EventKind.REPLICATED)) == 2)
            assert not any(isinstance(request, AddRequest) for _, request in cluster.transports["worker"].sent)
            await cluster.append(writers[1], 1)

    run_in_repair_cluster(program)


def test_a_ledger_that_is_marked_again_during_its_repair_stays_marked() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 60)
            first, second, _ = members(writer)
            await cluster.lose(first)
            await cluster.marks(bk).mark(writer.ledger_id, (first,))
            cluster.auto_recovery("worker", **ALONE, copy_bytes_per_s=1000)
            await anyio.sleep(1)
            await cluster.marks(bk).mark(writer.ledger_id, (second,))
            await cluster.lose(second)
            await cluster.until(lambda: cluster.told(EventKind.REPLICATED))
            assert (await cluster.thorough(writer.ledger_id)).is_sound
            assert await marked(cluster, bk) == {}

    run_in_repair_cluster(program, bookies=6)


def test_a_worker_takes_no_more_ledgers_than_it_may_keep_waiting() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writers = [await cluster.written_ledger(bk, 2, (4, 4, 3), closed=False) for _ in range(4)]
            await cluster.lose("bookie-1")
            for writer in writers:
                await cluster.marks(bk).mark(writer.ledger_id, ("bookie-1",))
            cluster.auto_recovery("worker", **ALONE, max_deferred_ledgers=2, open_ledger_grace_s=100)
            await anyio.sleep(60)
            locked = [w.ledger_id for w in writers if await cluster.marks(bk).holder(w.ledger_id) == "worker"]
            assert len(locked) == 2
            cluster.add_bookie()
            await cluster.until(lambda: len(cluster.told(EventKind.REPLICATED)) == 4, 1000)

    run_in_repair_cluster(program)


def test_a_worker_that_is_stopped_unlocks_its_ledgers() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.client() as client:
            writer = await cluster.written_ledger(bk, 2, closed=False)
            await cluster.lose(members(writer)[0])
            await cluster.marks(bk).mark(writer.ledger_id, (members(writer)[0],))
            config = RepairConfig(open_ledger_grace_s=100)
            recovery = AutoRecovery(
                client, config, name="stopped", wall_clock_ms=cluster.wall_clock_ms, with_auditor=False
            )
            for _ in range(2):  # and may be run again
                with anyio.move_on_after(20):
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(recovery.run)
                        await anyio.sleep(10)
                        assert await cluster.marks(bk).holder(writer.ledger_id) == "stopped"
                        tasks.cancel_scope.cancel()
                await anyio.sleep(1)
                assert await cluster.marks(bk).holder(writer.ledger_id) is None

    run_in_repair_cluster(program)


def test_a_closed_client_ends_auto_recovery() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as client:
            recovery = AutoRecovery(client, name="x", wall_clock_ms=cluster.wall_clock_ms)
            await core_of(client).metadata.aclose()
            with pytest.raises(ClientClosed):
                await recovery.run()

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-24")
def test_bookies_that_do_not_take_copies_are_tried_again() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 5)
            (spare,) = (name for name in cluster.bookies if name not in members(writer))
            await cluster.lose(members(writer)[0])
            await cluster.marks(bk).mark(writer.ledger_id, (members(writer)[0],))
            dropped = cluster.world.network.intercept(
                lambda source, to, message: (
                    to == spare and isinstance(message, RequestMessage) and isinstance(message.request, AddRequest)
                ),
                Fate.DROP,
            )
            cluster.auto_recovery("worker", **ALONE)
            await cluster.until(lambda: cluster.told(EventKind.WAITING))
            assert (await cluster.metadata(writer.ledger_id)) == writer.metadata
            dropped.remove()
            await cluster.until(lambda: cluster.told(EventKind.REPLICATED))
            assert (await cluster.thorough(writer.ledger_id)).is_sound

    run_in_repair_cluster(program)

"""The auditor: who it is, what it marks, and when."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from bkclient import BookKeeper
from bkclient._client.writing.writer import LedgerWriter
from bkclient.ledger import DigestType
from bkclient.placement import LedgerShape, RandomPlacement
from bkclient.placement.base import Adherence
from bkclient.repair.admin import RepairAdmin
from bkclient.repair.events import EventKind
from bkclient.repair.underreplication.marks import CheckKind
from bkclient.wire.entry import EntryCodec
from simbookie.world.metadata_service import MetadataFault
from tests.bkclient.repair.repair_cluster import EPOCH_MS, SESSION_S, RepairCluster, run_in_repair_cluster

#: Nothing but what a test asks for.
QUIET: dict[str, Any] = {"bookie_check_interval_s": 0.0, "ledger_check_interval_s": 0.0, "with_worker": False}


def members(writer: LedgerWriter) -> tuple[str, ...]:
    return writer.metadata.last_fragment.ensemble


async def marked(cluster: RepairCluster, bk: BookKeeper) -> dict[int, tuple[str, ...]]:
    return {mark.ledger_id: mark.missing async for mark in cluster.marks(bk).marks()}


async def elected(cluster: RepairCluster, count: int = 1) -> None:
    await cluster.until(lambda: len(cluster.told(EventKind.ELECTED)) >= count)
    await anyio.sleep(0.5)


@pytest.mark.rule("AR-16")
@pytest.mark.behaviour("T-261")
def test_there_is_one_auditor_and_another_one_after_a_crash() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            hosts = {name: cluster.auto_recovery(name, **QUIET) for name in ("one", "two", "three")}
            await elected(cluster)
            await anyio.sleep(60)
            assert len(cluster.told(EventKind.ELECTED)) == 1
            first = await RepairAdmin(bk).auditor()
            assert first is not None
            writer = await cluster.written_ledger(bk, 1)
            hosts[first].crash()
            await elected(cluster, 2)
            second = await RepairAdmin(bk).auditor()
            assert second not in (None, first)
            await cluster.lose(members(writer)[0])
            assert await marked(cluster, bk) == {writer.ledger_id: (members(writer)[0],)}

    run_in_repair_cluster(program)


@pytest.mark.behaviour("T-261")
def test_an_auditor_whose_session_ends_stands_again_behind_the_others() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            cluster.auto_recovery("one", **QUIET)
            await elected(cluster)
            cluster.auto_recovery("two", **QUIET)
            await anyio.sleep(1)
            cluster.world.metadata.lose_sessions("one")
            await elected(cluster, 2)
            assert await RepairAdmin(bk).auditor() == "two"
            await cluster.until(lambda: cluster.told(EventKind.DEPOSED))
            cluster.world.hosts["two"].crash()
            await elected(cluster, 3)
            assert await RepairAdmin(bk).auditor() == "one"

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-17")
@pytest.mark.behaviour("T-262")
def test_a_lost_bookie_marks_its_ledgers_and_one_that_is_only_read_only_none() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            cluster.auto_recovery("auditor", **QUIET)
            await elected(cluster)
            writers = [await cluster.written_ledger(bk, n, closed=n % 2 == 0) for n in range(6)]
            sick = members(writers[0])[0]
            cluster.bookies[sick].bookie.set_read_only(True)
            await cluster.until(lambda: cluster.world.metadata.memory.bookies().read_only)
            await anyio.sleep(60)
            assert await marked(cluster, bk) == {}
            await cluster.lose(sick)
            await anyio.sleep(1)
            expected = {writer.ledger_id: (sick,) for writer in writers if sick in members(writer)}
            assert await marked(cluster, bk) == expected
            async for mark in cluster.marks(bk).marks():
                assert EPOCH_MS < (mark.marked_ms or 0) <= cluster.wall_clock_ms()

    run_in_repair_cluster(program, bookies=5)


@pytest.mark.rule("AR-17")
def test_an_older_fragment_counts_and_every_bookie_is_named() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 3, closed=False)
            first = members(writer)
            await cluster.lose(first[0])
            await cluster.append(writer, 3)
            cluster.auto_recovery("auditor", **QUIET | {"bookie_check_interval_s": 3600.0})
            await elected(cluster)
            assert await marked(cluster, bk) == {writer.ledger_id: (first[0],)}
            await cluster.lose(first[1])
            await anyio.sleep(1)
            assert set((await marked(cluster, bk))[writer.ledger_id]) == set(first[:2])

    run_in_repair_cluster(program, bookies=5)


@pytest.mark.rule("AR-16")
@pytest.mark.behaviour("T-263")
def test_the_audit_of_one_lost_bookie_waits_and_ends_if_it_returns() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            cluster.auto_recovery("auditor", **QUIET | {"lost_bookie_recovery_delay_s": 60})
            await elected(cluster)
            writer = await cluster.written_ledger(bk, 3)
            for name in members(writer):  # a rolling restart
                await cluster.lose(name)
                await anyio.sleep(40)
                await cluster.bring_back(name)
            await anyio.sleep(300)
            assert cluster.told(EventKind.AUDITED) == []
            await cluster.lose(members(writer)[0])
            await anyio.sleep(50)
            assert await marked(cluster, bk) == {}
            await anyio.sleep(15)
            assert await marked(cluster, bk) == {writer.ledger_id: (members(writer)[0],)}

    run_in_repair_cluster(program)


@pytest.mark.behaviour("T-263")
@pytest.mark.parametrize("delay_s", [0, 600, 5])
def test_setting_the_delay_reaches_the_auditor(delay_s: int) -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            cluster.auto_recovery("auditor", **QUIET | {"lost_bookie_recovery_delay_s": 600})
            await elected(cluster)
            writer = await cluster.written_ledger(bk, 3)
            await cluster.lose(members(writer)[0])
            await anyio.sleep(30)
            assert await marked(cluster, bk) == {}
            await cluster.marks(bk).set_lost_bookie_recovery_delay_s(delay_s)
            await anyio.sleep(1)
            assert list(await marked(cluster, bk)) == [writer.ledger_id]

    run_in_repair_cluster(program)


@pytest.mark.behaviour("T-263")
def test_several_lost_bookies_are_audited_at_once() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            cluster.auto_recovery("auditor", **QUIET | {"lost_bookie_recovery_delay_s": 600})
            await elected(cluster)
            writer = await cluster.written_ledger(bk, 3)
            await cluster.lose(*members(writer)[:2])
            await anyio.sleep(1)
            assert set((await marked(cluster, bk))[writer.ledger_id]) == set(members(writer)[:2])

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-18")
@pytest.mark.behaviour("T-264")
def test_while_auto_recovery_is_switched_off_nothing_is_marked() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            await cluster.marks(bk).disable()
            cluster.auto_recovery("auditor", **QUIET | {"bookie_check_interval_s": 60, "ledger_check_interval_s": 60})
            writer = await cluster.written_ledger(bk, 3)
            await cluster.lose(members(writer)[0])
            await anyio.sleep(300)
            assert await marked(cluster, bk) == {}
            await cluster.marks(bk).enable()
            await anyio.sleep(1)
            assert list(await marked(cluster, bk)) == [writer.ledger_id]

    run_in_repair_cluster(program)


@pytest.mark.behaviour("T-264")
def test_an_audit_during_which_auto_recovery_was_switched_off_is_done_again_when_it_is_on() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            cluster.auto_recovery("auditor", **QUIET)
            await elected(cluster)
            writer = await cluster.written_ledger(bk, 3)
            held = cluster.world.metadata.intercept(
                lambda call: call.host == "auditor" and call.operation == "list_ledgers", MetadataFault.HOLD
            )
            await cluster.lose(members(writer)[0])
            await cluster.marks(bk).disable()
            held.remove()
            held.release()
            await anyio.sleep(100)
            assert await marked(cluster, bk) == {}
            await cluster.marks(bk).enable()
            await anyio.sleep(1)
            assert list(await marked(cluster, bk)) == [writer.ledger_id]

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-18")
@pytest.mark.behaviour("T-265")
def test_the_periodic_check_marks_ledgers_with_rotten_and_missing_copies() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            rotten, short, good = [await cluster.written_ledger(bk, 5) for _ in range(3)]
            cluster.rot(members(rotten)[1], rotten.ledger_id, 4)
            cluster.forget(members(short)[2], short.ledger_id, 0)
            cluster.auto_recovery("auditor", **QUIET | {"ledger_check_interval_s": 3600})
            await elected(cluster)
            await cluster.until(lambda: cluster.told(EventKind.CHECKED))
            expected = {rotten.ledger_id: (members(rotten)[1],), short.ledger_id: (members(short)[2],)}
            assert await marked(cluster, bk) == expected
            assert (await cluster.thorough(good.ledger_id)).is_sound

    run_in_repair_cluster(program)


@pytest.mark.behaviour("T-265")
def test_the_periodic_check_finds_an_entry_that_a_writer_left_short() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client("writer") as bk:
            writer = await cluster.written_ledger(bk, 3, closed=False)
            slow = members(writer)[2]
            cluster.world.network.block("writer", slow)
            for _ in range(3):
                await writer.append(b"on two of three")
        # The writer is gone before it noticed; recovery writes back what it reads, which begins above the LAC it finds.
        cluster.world.network.heal()
        async with cluster.client() as bk:
            reader = await bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
            assert reader.last_add_confirmed == 5
            hole = [e for e in range(6) if cluster.body(slow, writer.ledger_id, e) is None]
            assert hole
            cluster.auto_recovery(
                "auditor", **QUIET | {"ledger_check_interval_s": 3600, "verification_percentage": 100}
            )
            await cluster.until(lambda: cluster.told(EventKind.CHECKED))
            assert await marked(cluster, bk) == {writer.ledger_id: (slow,)}

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-18")
def test_checks_are_periodic_and_a_new_auditor_goes_on_where_the_old_one_stopped() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            settings = QUIET | {"ledger_check_interval_s": 1000.0, "replica_check_interval_s": 1000.0}
            host = cluster.auto_recovery("auditor", **settings)
            await cluster.until(lambda: len(cluster.told(EventKind.CHECKED)) == 2)
            first_ms = await cluster.marks(bk).checked_ms(CheckKind.LEDGERS)
            assert first_ms is not None
            await cluster.until(lambda: len(cluster.told(EventKind.CHECKED)) == 4, 1100)
            assert cluster.world.loop.time() >= 1000
            host.crash()
            await anyio.sleep(SESSION_S + 1)
            cluster.auto_recovery("other", **settings)
            await anyio.sleep(900)
            assert len(cluster.told(EventKind.CHECKED)) == 4, "not before its time"
            await cluster.until(lambda: len(cluster.told(EventKind.CHECKED)) == 6, 200)

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-18")
def test_no_check_begins_while_a_delayed_audit_is_pending() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 3)
            cluster.auto_recovery(
                "auditor", **QUIET | {"lost_bookie_recovery_delay_s": 500, "ledger_check_interval_s": 100.0}
            )
            await cluster.until(lambda: cluster.told(EventKind.CHECKED))
            before = len(cluster.told(EventKind.CHECKED))
            await cluster.lose(members(writer)[0])
            await anyio.sleep(450)
            assert len(cluster.told(EventKind.CHECKED)) == before
            assert await marked(cluster, bk) == {}
            await cluster.until(lambda: len(cluster.told(EventKind.CHECKED)) > before)
            assert list(await marked(cluster, bk)) == [writer.ledger_id]

    run_in_repair_cluster(program)


class HatesBookieZero(RandomPlacement):
    """A policy that nothing with bookie-0 in it adheres to."""

    def adherence(self, shape: LedgerShape, ensemble: tuple[str, ...]) -> Adherence:
        if "bookie-0" in ensemble:
            return Adherence.FAIL
        return Adherence.MEETS_SOFT if "bookie-1" in ensemble else Adherence.MEETS_STRICT

    def propose_repair(
        self, shape: LedgerShape, ensemble: tuple[str, ...], excluded: frozenset[str]
    ) -> tuple[str, ...] | None:
        left = [b for b in sorted(self._bookies_left(ensemble)) if b not in excluded]
        return tuple(left.pop() if b == "bookie-0" else b for b in ensemble) if left else None

    def _bookies_left(self, ensemble: tuple[str, ...]) -> list[str]:
        return [f"bookie-{n}" for n in range(1, 4) if f"bookie-{n}" not in ensemble]


@pytest.mark.rule("AR-19")
@pytest.mark.behaviour("T-260")
@pytest.mark.parametrize("is_repaired", [False, True])
def test_fragments_that_break_the_placement_policy_are_counted_and_moved_if_wanted(is_repaired: bool) -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writers = [await cluster.written_ledger(bk, 3) for _ in range(5)]
            open_one = await cluster.written_ledger(bk, 3, (4, 3, 2), closed=False)
            hated = [writer.ledger_id for writer in writers if "bookie-0" in members(writer)]
            assert hated
            cluster.auto_recovery(
                "auditor",
                placement=HatesBookieZero(cluster.world.rng("policy")),
                **QUIET
                | {
                    "placement_check_interval_s": 3600.0,
                    "mark_non_adherent_ledgers": is_repaired,
                    "with_worker": is_repaired,
                },
            )
            await cluster.until(lambda: cluster.told(EventKind.CHECKED))
            (event,) = cluster.told(EventKind.CHECKED)
            assert f"{len(hated)} fragments break the policy" in event.detail
            await anyio.sleep(30)
            assert await marked(cluster, bk) == {}
            for writer in writers:
                stored = await cluster.metadata(writer.ledger_id)
                if is_repaired:
                    assert "bookie-0" not in stored.last_fragment.ensemble
                else:
                    assert stored == writer.metadata
                assert (await cluster.thorough(writer.ledger_id)).is_sound
            await open_one.append(b"it goes on")

    run_in_repair_cluster(program)


def test_marks_that_wait_too_long_are_counted() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            marks = cluster.marks(bk)
            await marks.mark(100, ("x",))
            await anyio.sleep(100)
            await marks.mark(101, ("x",))
            cluster.auto_recovery(
                "auditor", **QUIET | {"placement_check_interval_s": 3600.0, "under_replicated_grace_s": 60.0}
            )
            await cluster.until(lambda: cluster.told(EventKind.CHECKED))
            assert "1 marks are overdue" in cluster.told(EventKind.CHECKED)[0].detail

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-25")
def test_an_auditor_bears_a_metadata_service_that_fails_for_a_while() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            cluster.auto_recovery("auditor", **QUIET)
            await elected(cluster)
            writer = await cluster.written_ledger(bk, 3)
            fault = cluster.world.metadata.intercept(
                lambda call: call.host == "auditor" and call.operation == "list_ledgers", MetadataFault.FAIL, limit=3
            )
            await cluster.lose(members(writer)[0])
            await cluster.until(lambda: cluster.told(EventKind.AUDITED))
            fault.remove()
            assert len(cluster.told(EventKind.FAILED)) == 3
            assert list(await marked(cluster, bk)) == [writer.ledger_id]

    run_in_repair_cluster(program)


def test_a_ledger_whose_metadata_cannot_be_read_keeps_no_other_from_being_marked() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            bad, good = [await cluster.written_ledger(bk, 3) for _ in range(2)]
            cluster.world.metadata.memory._ledgers[bad.ledger_id].data = b"nonsense"
            cluster.auto_recovery("auditor", **QUIET)
            await elected(cluster)
            await cluster.lose(members(good)[0])
            await cluster.until(lambda: cluster.told(EventKind.AUDITED))
            assert [event.ledger_id for event in cluster.told(EventKind.FAILED)] == [bad.ledger_id]
            assert list(await marked(cluster, bk)) == [good.ledger_id]

    run_in_repair_cluster(program)


def test_a_check_that_reads_everything_tells_of_copies_that_disagree_and_marks_nothing_for_it() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 3)
            codec = EntryCodec(writer.ledger_id, DigestType.CRC32C, b"secret")
            forged = codec.encode_header(1, 0, 20, b"other") + b"other"
            cluster.rot(members(writer)[0], writer.ledger_id, 1, forged)
            cluster.auto_recovery(
                "auditor", **QUIET | {"ledger_check_interval_s": 60.0, "verification_percentage": 100}
            )
            await cluster.until(lambda: cluster.told(EventKind.CHECKED))
            assert await marked(cluster, bk) == {}
            (event,) = cluster.told(EventKind.CONFLICT)
            assert (event.ledger_id, event.detail) == (writer.ledger_id, "copies of 1 entries disagree, the first is 1")

    run_in_repair_cluster(program)

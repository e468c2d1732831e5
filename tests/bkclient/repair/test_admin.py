"""Repairs on demand: recovering bookies, retiring them, and looking at what they store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import anyio
import pytest

from bkclient import BookKeeper, DigestType, Fragment, LedgerMetadata, LedgerState
from bkclient._client.writing.writer import LedgerWriter
from bkclient.errors import (
    ArgumentError,
    BookKeeperError,
    ClientClosed,
    IllegalOperation,
    LedgerClosed,
    LedgerFenced,
    LedgerRecoveryFailed,
    NoSuchLedger,
    NoSuchLedgerOnBookie,
)
from bkclient.repair.admin import RepairAdmin, core_of
from bkclient.repair.bookie_recovery import BookieRecoveryFailed
from bkclient.repair.events import EventKind, RepairEvent
from bkclient.repair.findings import Flaw
from bkclient.repair.fragments import stores_entries
from bkclient.repair.ledger import administrative_codec
from bkclient.repair.reads import write_copies
from tests.bkclient.repair.repair_cluster import SESSION_S, RepairCluster, run_in_repair_cluster


def members(writer: LedgerWriter) -> tuple[str, ...]:
    return writer.metadata.last_fragment.ensemble


async def read_all(bk: BookKeeper, ledger_id: int) -> int:
    reader = await bk.open_ledger(ledger_id, password=b"secret", recover=True)
    return len([entry async for entry in reader])


@pytest.mark.rule("API-8")
@pytest.mark.behaviour("T-235")
@pytest.mark.behaviour("T-240")
def test_closed_ledgers_of_a_dead_bookie_get_all_their_copies_back_without_a_password() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.admin() as admin:
            writers = [await cluster.written_ledger(bk, 10 * n, password=b"secret %d" % n) for n in range(4)]
            dead = members(writers[0])[0]
            await cluster.lose(dead)
            steps: list[RepairEvent] = []
            report = await admin.recover_bookie([dead], on_progress=steps.append)
            affected = [writer for writer in writers if dead in members(writer)]
            assert sorted(report.affected) == [writer.ledger_id for writer in affected]
            assert report.ledgers_examined == 4
            assert report.fragments_replaced == len(affected)
            assert report.entries_copied == sum(step.kind is EventKind.COPIED for step in steps)
            for writer in writers:
                assert dead not in (await cluster.metadata(writer.ledger_id)).last_fragment.ensemble
                assert (await cluster.thorough(writer.ledger_id)).is_sound

    run_in_repair_cluster(program, bookies=4)


@pytest.mark.rule("API-8")
@pytest.mark.behaviour("T-240")
def test_ledgers_older_than_stored_passwords_take_the_configured_one() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client(admin={"digest_type": DigestType.HMAC, "password": b"old"}) as bk:
            core = core_of(bk)
            ensemble = ("bookie-0", "bookie-1", "bookie-2")
            old = LedgerMetadata(77, 3, 3, 2, (Fragment(0, ensemble),), digest_type=None, has_password=False)
            await core.metadata.create_ledger(old)
            codec = administrative_codec(core, old)
            for entry_id in range(2):
                body = codec.encode_header(entry_id, entry_id - 1, 5 * (entry_id + 1), b"12345") + b"12345"
                await write_copies(core, codec, entry_id, body, ensemble)
            admin = RepairAdmin(bk)
            assert (await admin.check_ledger(77)).is_sound
            await cluster.lose("bookie-0")
            assert (await admin.recover_bookie(["bookie-0"])).closed == [77]
            assert (await cluster.metadata(77)).last_entry_id == 1
            assert (await admin.check_ledger(77, thorough=True)).is_sound
            assert "bookie-0" not in (await cluster.metadata(77)).last_fragment.ensemble
        async with cluster.admin() as other:
            assert {found.flaw for found in (await other.check_ledger(77)).fragments[0].bad} == {Flaw.CORRUPT}

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-14")
@pytest.mark.behaviour("T-236")
def test_open_ledgers_with_the_dead_bookie_in_the_last_fragment_are_closed_and_their_writers_fail() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.admin() as admin:
            writer = await cluster.written_ledger(bk, 5, closed=False)
            await cluster.lose(members(writer)[0])
            report = await admin.recover_bookie([members(writer)[0]])
            assert report.closed == [writer.ledger_id]
            with pytest.raises((LedgerFenced, LedgerClosed)):
                await writer.append(b"too late")
            assert (await cluster.metadata(writer.ledger_id)).state is LedgerState.CLOSED
            assert (await cluster.thorough(writer.ledger_id)).is_sound
            assert await read_all(bk, writer.ledger_id) == 5

    run_in_repair_cluster(program)


def test_open_ledgers_are_left_alone_if_that_is_wanted() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.admin() as admin:
            writer = await cluster.written_ledger(bk, 5, closed=False)
            other = await cluster.written_ledger(bk, 5)
            dead = next(name for name in members(writer) if name in members(other))
            await cluster.lose(dead)
            report = await admin.recover_bookie([dead], skip_open_ledgers=True)
            assert list(report.skipped) == [writer.ledger_id]
            assert (await cluster.thorough(other.ledger_id)).is_sound
            await cluster.append(writer, 1)

    run_in_repair_cluster(program, bookies=4)


def test_a_dry_run_tells_and_changes_nothing() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.admin() as admin:
            writer = await cluster.written_ledger(bk, 5, closed=False)
            dead = members(writer)[1]
            await cluster.lose(dead)
            before = await cluster.metadata(writer.ledger_id)
            steps: list[RepairEvent] = []
            report = await admin.recover_bookie([dead], dry_run=True, on_progress=steps.append)
            assert report.affected == [writer.ledger_id]
            assert [(s.kind, s.first_entry_id, s.detail) for s in steps] == [
                (EventKind.PLANNED, -1, "close it"),
                (EventKind.PLANNED, 0, f"replace {dead}"),
            ]
            assert await cluster.metadata(writer.ledger_id) == before
            await cluster.append(writer, 1)

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-15")
@pytest.mark.behaviour("T-113")
@pytest.mark.behaviour("T-234")
@pytest.mark.behaviour("T-239")
@pytest.mark.parametrize("delayed", [False, True])
def test_a_writer_whose_older_fragment_is_repaired_goes_on_and_changes_its_ensemble(delayed: bool) -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client(writing={"delay_ensemble_change": delayed}) as bk, cluster.admin() as admin:
            writer = await cluster.written_ledger(bk, 5, closed=False)
            first = members(writer)
            await cluster.lose(first[0])
            await cluster.append(writer, 5)
            if delayed:  # such a writer keeps the dead bookie until the quorum is in danger
                await cluster.lose(first[1])
                await cluster.append(writer, 5)
                assert len(writer.metadata.fragments) == 2
            await admin.recover_bookie(first[:2] if delayed else first[:1])
            older = (await cluster.metadata(writer.ledger_id)).fragments[0]
            assert first[0] not in older.ensemble
            known = len(writer.metadata.fragments)
            await cluster.lose(members(writer)[2])
            if delayed:
                await cluster.lose(members(writer)[1])
            await cluster.append(writer, 5)
            await writer.close()
            stored = await cluster.metadata(writer.ledger_id)
            assert len(stored.fragments) > known
            assert stored.fragments[0] == older, "the writer's change kept the repair"
            for fragment in stored.fragments:
                assert len(set(fragment.ensemble)) == 3
            gone = [name for name, bookie in cluster.bookies.items() if not bookie.is_alive]
            await admin.recover_bookie(gone)
            assert (await cluster.thorough(writer.ledger_id)).is_sound
            # and a later fence does disturb it
            reader = await bk.open_ledger(writer.ledger_id, password=b"secret", recover=True)
            assert reader.last_add_confirmed == stored.last_entry_id

    run_in_repair_cluster(program, bookies=8)


@pytest.mark.behaviour("T-113")
def test_a_writer_goes_on_after_a_repair_and_stops_at_a_fence() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.client() as other, cluster.admin() as admin:
            writer = await cluster.written_ledger(bk, 5, closed=False)
            dead = members(writer)[0]
            await cluster.lose(dead)
            await cluster.append(writer, 5)
            await admin.recover_bookie([dead])
            await cluster.append(writer, 5)
            reader = await other.open_ledger(writer.ledger_id, password=b"secret", recover=True)
            assert reader.last_add_confirmed == 14
            with pytest.raises((LedgerFenced, LedgerClosed)):
                await writer.append(b"too late")

    run_in_repair_cluster(program, bookies=5)


@pytest.mark.behaviour("T-237")
def test_a_ledger_stuck_in_recovery_is_repaired_once_one_of_its_two_dead_bookies_is_back() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.admin() as admin:
            writer = await cluster.written_ledger(bk, 5, closed=False)
            first = members(writer)
            await cluster.lose(*first[:2])
            async with cluster.client() as other:
                with pytest.raises(BookKeeperError):
                    await other.open_ledger(writer.ledger_id, password=b"secret", recover=True)
            assert (await cluster.metadata(writer.ledger_id)).state is LedgerState.IN_RECOVERY
            with pytest.raises(BookieRecoveryFailed) as failure:
                await admin.recover_bookie([first[0]])
            assert list(failure.value.report.failures) == [writer.ledger_id]
            await cluster.bring_back(first[1])
            await admin.recover_bookie([first[0]])
            stored = await cluster.metadata(writer.ledger_id)
            assert stored.is_closed
            assert stored.last_entry_id == 4
            for fragment in stored.fragments:
                assert first[0] not in fragment.ensemble
            assert first[1] in stored.fragments[0].ensemble
            assert (await cluster.thorough(writer.ledger_id)).is_sound

    run_in_repair_cluster(program, bookies=5)


def test_ledgers_that_cannot_be_opened_may_be_passed_over() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.admin() as admin:
            stuck = await cluster.written_ledger(bk, 5, closed=False)
            await cluster.lose(*members(stuck))
            good = await cluster.written_ledger(bk, 5)
            report = await admin.recover_bookie(members(stuck)[:1], skip_unrecoverable=True)
            assert list(report.skipped) == [stuck.ledger_id]
            assert (await cluster.thorough(good.ledger_id)).is_sound
            with pytest.raises(LedgerRecoveryFailed):
                await admin.recover_bookie(members(stuck)[:1])

    run_in_repair_cluster(program, bookies=6)


@pytest.mark.behaviour("T-238")
def test_too_few_bookies_fail_the_recovery_after_every_ledger_was_tried() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.admin() as admin:
            wide = await cluster.written_ledger(bk, 3)
            narrow = await cluster.written_ledger(bk, 3, (1, 1, 1))
            dead = next(name for name in members(wide) if name not in members(narrow))
            await cluster.lose(dead)
            before = await cluster.metadata(wide.ledger_id)
            with pytest.raises(LedgerRecoveryFailed, match="no writable bookie") as failure:
                await admin.recover_bookie([dead])
            assert isinstance(failure.value, BookieRecoveryFailed)
            assert failure.value.report.ledgers_examined == 2
            assert await cluster.metadata(wide.ledger_id) == before
            cluster.add_bookie()
            await cluster.bookies["bookie-3"].registered()
            await anyio.sleep(0.1)
            await admin.recover_bookie([dead])
            assert (await cluster.thorough(wide.ledger_id)).is_sound

    run_in_repair_cluster(program, bookies=3)


def test_living_bookies_can_be_emptied_as_well() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.admin() as admin:
            writer = await cluster.written_ledger(bk, 10, (3, 2, 2))
            leaving = members(writer)[:2]
            await admin.recover_bookie(leaving)
            stored = await cluster.metadata(writer.ledger_id)
            assert not set(leaving) & set(stored.last_fragment.ensemble)
            assert (await cluster.thorough(writer.ledger_id)).is_sound

    run_in_repair_cluster(program, bookies=5)


def test_a_recovery_of_bookies_may_be_limited_to_ledgers_and_wants_bookies() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.admin() as admin:
            one, two = [await cluster.written_ledger(bk, 3, (5, 3, 2)) for _ in range(2)]
            leaving = members(one)[0]
            cluster.add_bookie()
            await cluster.bookies["bookie-5"].registered()
            await anyio.sleep(0.1)
            report = await admin.recover_bookie([leaving], ledger_ids=[two.ledger_id, 999])
            assert report.affected == [two.ledger_id]
            assert leaving in (await cluster.metadata(one.ledger_id)).last_fragment.ensemble
            wrongs: tuple[Sequence[str], ...] = ("bookie-1", [])
            for wrong in wrongs:
                with pytest.raises(ArgumentError):
                    await admin.recover_bookie(wrong)
            with pytest.raises(ArgumentError):
                await admin.recover_bookie([leaving], concurrency=0)

    run_in_repair_cluster(program, bookies=5)


# Looking ----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("T-251")
def test_the_entries_a_bookie_holds_are_listed_for_closed_open_striped_and_missing_ledgers() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.admin() as admin:
            closed = await cluster.written_ledger(bk, 4)
            open_one = await cluster.written_ledger(bk, 3, closed=False)
            striped = await cluster.written_ledger(bk, 6, (3, 2, 2))
            assert list(await admin.entries_on(members(closed)[0], closed.ledger_id)) == [0, 1, 2, 3]
            assert list(await admin.entries_on(members(open_one)[0], open_one.ledger_id)) == [0, 1, 2]
            assert list(await admin.entries_on(members(striped)[0], striped.ledger_id)) == [0, 2, 3, 5]
            with pytest.raises(NoSuchLedgerOnBookie):
                await admin.entries_on("bookie-0", 12345)

    run_in_repair_cluster(program)


@pytest.mark.behaviour("T-251")
@pytest.mark.behaviour("T-252")
def test_a_bookie_is_needed_by_the_ledgers_that_have_or_may_get_entries_on_it() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.admin() as admin:
            closed = await cluster.written_ledger(bk, 1, (3, 2, 2))
            open_one = await cluster.written_ledger(bk, 0, closed=False)
            empty = await cluster.written_ledger(bk, 0)
            for writer, needed in ((closed, members(closed)[:2]), (open_one, members(open_one)), (empty, ())):
                for name in cluster.bookies:
                    found = [ledger_id async for ledger_id in admin.ledgers_on(name)]
                    assert (writer.ledger_id in found) is (name in needed)
            # an empty last fragment of a closed ledger does not count, an empty open one does
            base = replace(await cluster.metadata(closed.ledger_id), last_entry_id=-1, length=0, state=LedgerState.OPEN)
            changed = base.with_ensemble(2, ("x", "y", "z"))
            assert stores_entries(changed, "x")
            assert not stores_entries(changed.closed(1, 15), "x")
            assert stores_entries(changed.closed(2, 30), "z")

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-19")
@pytest.mark.behaviour("T-266")
def test_the_check_of_copies_counts_entries_by_what_they_lack() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.admin() as admin:
            writer = await cluster.written_ledger(bk, 6)
            assert (await admin.check_replicas(writer.ledger_id)).is_sound
            for entry_id, lost in ((1, 1), (2, 2), (3, 3)):
                for name in members(writer)[:lost]:
                    cluster.forget(name, writer.ledger_id, entry_id)
            report = await admin.check_replicas(writer.ledger_id)
            assert (report.entries, report.silent) == (6, {})
            assert report.below_write_quorum.entry_ids == [1]
            assert report.below_ack_quorum.entry_ids == [2]
            assert report.without_replica.entry_ids == [3]
            assert report.short_bookies == dict(zip(members(writer), (3, 2, 1), strict=True))
            await cluster.lose(members(writer)[2])
            report = await admin.check_replicas(writer.ledger_id)
            assert list(report.silent) == [members(writer)[2]]
            assert (report.below_write_quorum.count, report.below_ack_quorum.entry_ids) == (3, [1])

    run_in_repair_cluster(program)


@pytest.mark.behaviour("T-266")
def test_open_and_empty_ledgers_and_empty_fragments_lack_no_copy() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.admin() as admin:
            for writer in (await cluster.written_ledger(bk, 0), await cluster.written_ledger(bk, 5, closed=False)):
                report = await admin.check_replicas(writer.ledger_id)
                assert (report.entries, report.is_sound) == (0, True)
            writer = await cluster.written_ledger(bk, 2, closed=False)
            await cluster.lose(members(writer)[0])
            await cluster.append(writer, 1)
            await writer.close()
            assert (await admin.check_replicas(writer.ledger_id)).entries == 3

    run_in_repair_cluster(program)


def test_a_ledger_is_repaired_as_far_as_it_can_be() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.admin() as admin:
            writer = await cluster.written_ledger(bk, 10)
            cluster.rot(members(writer)[1], writer.ledger_id, 5)
            steps: list[RepairEvent] = []
            assert (await admin.repair_ledger(writer.ledger_id, on_progress=steps.append)).is_sound
            assert steps == [], "an ordinary check does not look there"
            assert (await admin.repair_ledger(writer.ledger_id, thorough=True, on_progress=steps.append)).is_sound
            assert [step.kind for step in steps] == [EventKind.REPLACED]
            open_one = await cluster.written_ledger(bk, 3, closed=False)
            await cluster.lose(members(open_one)[0])
            steps.clear()
            report = await admin.repair_ledger(open_one.ledger_id, on_progress=steps.append)
            assert [step.kind for step in steps] == [EventKind.SKIPPED]
            assert report.bad_bookies == (members(open_one)[0],)

    run_in_repair_cluster(program)


# Retiring ---------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("T-250")
def test_a_bookie_that_runs_is_not_retired() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.admin() as admin:
            with pytest.raises(IllegalOperation, match="shut it down"):
                await admin.decommission("bookie-0")
            cluster.bookies["bookie-1"].bookie.set_read_only(True)
            await cluster.until(lambda: cluster.world.metadata.memory.bookies().read_only)
            with pytest.raises(IllegalOperation):
                await admin.decommission("bookie-1")

    run_in_repair_cluster(program)


@pytest.mark.behaviour("T-250")
def test_retiring_is_done_with_ledgers_of_several_fragments_open_and_empty_ones() -> None:
    async def program(cluster: RepairCluster) -> None:
        cluster.auto_recovery("repairer", lost_bookie_recovery_delay_s=3600, open_ledger_grace_s=5)
        async with cluster.client() as bk, cluster.admin() as admin:
            several = await cluster.written_ledger(bk, 5, (4, 3, 2), closed=False)
            await cluster.lose(members(several)[0])
            await cluster.append(several, 5)
            await several.close()
            await cluster.bring_back(several.metadata.fragments[0].ensemble[0])
            leaving = several.metadata.fragments[0].ensemble[1]
            open_one = await cluster.written_ledger(bk, 5, (5, 3, 2), closed=False)
            empty = await cluster.written_ledger(bk, 0, (5, 3, 2), closed=False)
            assert leaving in members(open_one)
            assert leaving in members(empty)
            await cluster.bookies[leaving].stop()
            await anyio.sleep(SESSION_S)
            cluster.add_bookie()
            steps: list[RepairEvent] = []
            await admin.decommission(leaving, timeout_s=600, poll_s=5, on_progress=steps.append)
            assert {step.kind for step in steps} == {EventKind.WAITING}
            assert [ledger_id async for ledger_id in admin.ledgers_on(leaving)] == []
            for writer in (several, open_one, empty):
                assert (await cluster.thorough(writer.ledger_id)).is_sound

    run_in_repair_cluster(program, bookies=6)


def test_retiring_gives_up_after_its_time_and_when_the_bookie_returns() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk, cluster.admin() as admin:
            writer = await cluster.written_ledger(bk, 5)
            leaving = members(writer)[0]
            await cluster.lose(leaving)
            with pytest.raises(TimeoutError):
                await admin.decommission(leaving, timeout_s=60)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cluster.bring_back, leaving)
                with pytest.raises(IllegalOperation):
                    await admin.decommission(leaving, poll_s=5)

    run_in_repair_cluster(program)


@pytest.mark.behaviour("T-51")
def test_after_the_client_was_closed_administration_is_refused() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            admin = RepairAdmin(bk)
            with pytest.raises(NoSuchLedger):
                await admin.check_ledger(99)
        for call in (
            admin.check_ledger(0),
            admin.repair_ledger(0),
            admin.check_replicas(0),
            admin.entries_on("bookie-0", 0),
            admin.recover_bookie(["bookie-0"]),
            admin.decommission("bookie-0"),
            admin.trigger_audit(),
            admin.auditor(),
        ):
            with pytest.raises(ClientClosed):
                await call
        with pytest.raises(ClientClosed):
            admin.under_replication()

    run_in_repair_cluster(program)

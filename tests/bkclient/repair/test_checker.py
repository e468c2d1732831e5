"""What a check of a ledger finds."""

from __future__ import annotations

import anyio
import pytest

from bkclient import BookKeeper
from bkclient.errors import Code, UnauthorizedAccess
from bkclient.ledger import DigestType
from bkclient.repair.admin import RepairAdmin
from bkclient.repair.config import RepairConfig
from bkclient.repair.findings import Flaw, LedgerReport
from bkclient.transport.base import ReplyHandler
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import Request, Response
from tests.bkclient.repair.repair_cluster import RepairCluster, SentTransport, run_in_repair_cluster, submitted


def bad(report: LedgerReport) -> dict[int, tuple[int, ...]]:
    return {found.fragment.first_entry_id: found.bad_positions for found in report.fragments}


async def check(cluster: RepairCluster, ledger_id: int, **options: bool) -> LedgerReport:
    async with cluster.admin() as admin:
        return await admin.check_ledger(ledger_id, **options)


@pytest.mark.rule("AR-1")
@pytest.mark.behaviour("T-241")
def test_fragments_with_dead_bookies_are_found_once_each_with_all_positions_and_no_others() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 5, closed=False)
            first = writer.metadata.last_fragment.ensemble
            assert (await check(cluster, writer.ledger_id)).is_sound
            await cluster.lose(first[0])
            await cluster.append(writer, 5)
            await writer.close()
            assert [fragment.first_entry_id for fragment in writer.metadata.fragments] == [0, 5]
            report = await check(cluster, writer.ledger_id)
            assert bad(report) == {0: (0,)}
            assert report.fragments[0].fragment.last_entry_id == 4
            await cluster.lose(first[1])
            assert bad(await check(cluster, writer.ledger_id)) == {0: (0, 1), 5: (1,)}

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-6")
@pytest.mark.behaviour("T-242")
def test_an_open_ledger_that_nobody_wrote_to_is_sound_until_nobody_can_tell_so() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 0, closed=False)
            assert (await check(cluster, writer.ledger_id)).is_sound
            await cluster.lose(*cluster.bookies)
            report = await check(cluster, writer.ledger_id)
            assert bad(report) == {0: (0, 1, 2)}
            assert not report.fragments[0].fragment.is_final

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-6")
@pytest.mark.behaviour("T-243")
def test_an_open_fragment_of_one_entry_is_found_when_its_bookie_dies() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 1, (3, 2, 1), closed=False)
            ensemble = writer.metadata.last_fragment.ensemble
            await cluster.lose(ensemble[0])
            report = await check(cluster, writer.ledger_id)
            assert bad(report) == {0: (0,)}
            await cluster.append(writer, 1)  # entry 1 is not on the dead one
            await cluster.append(writer, 2)
            assert len(writer.metadata.fragments) == 2
            last = writer.metadata.last_fragment
            await cluster.lose(last.ensemble[last.first_entry_id % 3])
            assert last.first_entry_id in bad(await check(cluster, writer.ledger_id))

    run_in_repair_cluster(program, bookies=5)


@pytest.mark.rule("AR-6")
def test_a_closed_ledger_whose_only_entry_everybody_denies_has_lost_it() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 1)
            for bookie_id in writer.metadata.last_fragment.ensemble:
                cluster.forget(bookie_id, writer.ledger_id, 0)
            report = await check(cluster, writer.ledger_id)
            assert [found.flaw for found in report.fragments[0].bad] == [Flaw.MISSING] * 3

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-7")
@pytest.mark.behaviour("T-244")
@pytest.mark.parametrize("entries", [0, 1])
def test_closed_ledgers_are_reported_if_a_bookie_is_dead_though_it_stores_nothing(entries: int) -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, entries, (3, 2, 2))
            assert (await check(cluster, writer.ledger_id)).is_sound
            await cluster.lose(writer.metadata.last_fragment.ensemble[2])  # entry 0 is striped to the others
            assert bad(await check(cluster, writer.ledger_id)) == {0: (2,)}

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-4")
@pytest.mark.behaviour("T-245")
def test_bookies_known_to_be_gone_are_not_asked() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 7)
            dead, *alive = writer.metadata.last_fragment.ensemble
            await cluster.lose(dead)
            before = len(submitted(bk))
            report = await RepairAdmin(bk).check_ledger(writer.ledger_id, thorough=True)
            asked = {bookie_id for bookie_id, _ in submitted(bk)[before:]}
            assert asked == set(alive)
            assert (report.fragments[0].bad[0].flaw, report.fragments[0].bad[0].entry_ids) == (Flaw.UNAVAILABLE, ())

    run_in_repair_cluster(program)


def test_a_read_only_bookie_counts_as_alive() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 3)
            bookie_id = writer.metadata.last_fragment.ensemble[0]
            cluster.bookies[bookie_id].bookie.set_read_only(True)
            await cluster.until(lambda: bookie_id in cluster.world.metadata.memory.bookies().read_only)
            assert (await check(cluster, writer.ledger_id)).is_sound

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-4")
def test_an_ordinary_check_reads_both_ends_of_every_position_and_a_sample() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 50)
            ensemble = writer.metadata.last_fragment.ensemble
            cluster.forget(ensemble[1], writer.ledger_id, 25)
            for percentage, copies in ((0, 3 * 2), (100, 3 * 50)):
                async with cluster.admin(verification_percentage=percentage) as admin:
                    report = await admin.check_ledger(writer.ledger_id)
                assert report.copies_checked == copies
                assert [b.entry_ids for f in report.fragments for b in f.bad] == ([(25,)] if percentage else [])
            cluster.forget(ensemble[2], writer.ledger_id, 49)
            found = (await check(cluster, writer.ledger_id)).fragments[0].bad
            assert [(b.position, b.flaw, b.code) for b in found] == [(2, Flaw.MISSING, Code.NO_SUCH_ENTRY)]

    run_in_repair_cluster(program)


@pytest.mark.behaviour("T-265")
def test_a_thorough_check_finds_every_copy_that_is_missing_or_rotten() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 40, (4, 2, 2))
            ensemble = writer.metadata.last_fragment.ensemble
            cluster.forget(ensemble[1], writer.ledger_id, 20)  # positions 0 and 1
            cluster.rot(ensemble[3], writer.ledger_id, 22)  # positions 2 and 3
            cluster.rot(ensemble[3], writer.ledger_id, 27)  # positions 3 and 0
            assert (await check(cluster, writer.ledger_id)).is_sound, "neither end is hurt"
            report = await check(cluster, writer.ledger_id, thorough=True)
            assert report.copies_checked == 80
            assert [(b.position, b.flaw, b.entry_ids, b.entry_count) for b in report.fragments[0].bad] == [
                (1, Flaw.MISSING, (20,), 1),
                (3, Flaw.CORRUPT, (22, 27), 2),
            ]
            assert report.bad_bookies == tuple(sorted((ensemble[1], ensemble[3])))

    run_in_repair_cluster(program)


def test_copies_whose_digests_fit_and_that_disagree_are_told_and_left_to_a_human() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 4)
            codec = EntryCodec(writer.ledger_id, DigestType.CRC32C, b"secret")
            ensemble = writer.metadata.last_fragment.ensemble
            header_only = codec.encode_header(1, 3, 30, b"entry" * 3) + b"entry" * 3
            cluster.rot(ensemble[0], writer.ledger_id, 1, header_only)  # another LAC: no conflict (H-32)
            assert (await check(cluster, writer.ledger_id, thorough=True)).is_sound
            cluster.rot(ensemble[0], writer.ledger_id, 1, codec.encode_header(1, 0, 25, b"other") + b"other")
            report = await check(cluster, writer.ledger_id, thorough=True)
            (found,) = report.fragments
            assert (found.bad, found.conflicts, found.conflict_count) == ((), (1,), 1)
            assert not report.is_sound
            assert report.repairable == ()

    run_in_repair_cluster(program)


@pytest.mark.behaviour("T-106")
def test_after_a_bookie_refused_an_entry_and_the_writer_failed_there_is_nothing_to_repair() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 3, closed=False)
            refusing, hanging, _ = writer.metadata.last_fragment.ensemble
            table = cluster.bookies[refusing].bookie._table
            assert table is not None
            table.handles[writer.ledger_id].master_key = b"another"
            cluster.bookies[hanging].pause()
            with pytest.raises(UnauthorizedAccess):
                await writer.append(b"refused")
            cluster.bookies[hanging].resume()
            await anyio.sleep(10)
            assert (await cluster.metadata(writer.ledger_id)).last_entry_id == 2
            assert (await check(cluster, writer.ledger_id, thorough=True)).is_sound

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-5")
def test_reads_of_all_checks_are_limited_in_number() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writers = [await cluster.written_ledger(bk, 60) for _ in range(2)]
            for limit in (3, 1000):
                admin = RepairAdmin(bk, RepairConfig(max_checker_reads_in_flight=limit, verification_percentage=100))
                most = await most_in_flight(cluster, bk, admin, [writer.ledger_id for writer in writers])
                assert (most == limit) if limit == 3 else (most > 60)

    run_in_repair_cluster(program)


async def most_in_flight(cluster: RepairCluster, bk: BookKeeper, admin: RepairAdmin, ledger_ids: list[int]) -> int:
    in_flight = most = 0
    (transport,) = (t for t in cluster.transports.values() if t.sent is submitted(bk))
    inner = transport.inner

    class Counting(SentTransport):
        def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
            nonlocal in_flight, most

            def counted(bookie_id: str, request: Request, code: int, response: Response | None) -> None:
                nonlocal in_flight
                in_flight -= 1
                reply_to(bookie_id, request, code, response)

            in_flight += 1
            most = max(most, in_flight)
            inner.submit(bookie_id, request, counted)

    transport.inner = Counting(inner)
    try:
        async with anyio.create_task_group() as tasks:
            for ledger_id in ledger_ids:
                tasks.start_soon(admin.check_ledger, ledger_id)
    finally:
        transport.inner = inner
    return most

"""Copying fragments to new bookies."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import anyio
import pytest

from bkclient import BookKeeper, Fragment, LedgerMetadata
from bkclient._client.reading.lac import least_lac
from bkclient.errors import Code, NotEnoughBookies, ReplicationFailed, UnclosedFragment
from bkclient.ledger import Versioned
from bkclient.protocol.ensemble import ReplaceBookie
from bkclient.protocol.quorum import QuorumSizes
from bkclient.protocol.update import LocalMetadata, UpdateHandle, WriteMetadata
from bkclient.repair.admin import core_of
from bkclient.repair.config import RepairConfig
from bkclient.repair.fragments import choose_replacements, fragments_of, replacement_update
from bkclient.repair.ledger import OpenedLedger, open_or_view
from bkclient.repair.rate import ByteRate
from bkclient.repair.replicator import CopyWindow, FragmentReplicator, ReplicatedFragment, UnreadableEntry
from bkclient.wire.messages import AddRequest, ReadRequest
from tests.bkclient.repair.repair_cluster import RepairCluster, run_in_repair_cluster, submitted


def metadata(*fragments: tuple[int, str], closed_at: int | None = None) -> LedgerMetadata:
    """Fragments by first entry and bookies of one letter each; 3/2/2."""
    value = LedgerMetadata(1, 3, 2, 2, tuple(Fragment(first, tuple(bookies)) for first, bookies in fragments))
    return value if closed_at is None else value.closed(closed_at, 0)


async def replicate(
    bk: BookKeeper, ledger: OpenedLedger, key: int, positions: Collection[int], **settings: object
) -> ReplicatedFragment:
    replicator = FragmentReplicator(core_of(bk), RepairConfig(**settings))  # type: ignore[arg-type]
    fragment = next(found for found in ledger.fragments if found.first_entry_id == key)
    return await replicator.replicate(ledger, fragment, positions)


# What is final ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("AR-2")
def test_a_fragment_is_final_if_its_ledger_is_closed_or_another_follows_it() -> None:
    open_one = fragments_of(metadata((0, "abc"), (5, "abd"), (9, "abe")), 12)
    assert [(f.first_entry_id, f.last_entry_id, f.is_final) for f in open_one] == [
        (0, 4, True),
        (5, 8, True),
        (9, 12, False),
    ]
    closed = fragments_of(metadata((0, "abc"), (5, "abd"), closed_at=6), 99)
    assert [(f.first_entry_id, f.last_entry_id, f.is_final) for f in closed] == [(0, 4, True), (5, 6, True)]


@pytest.mark.rule("AR-2")
def test_a_boundary_proves_what_lies_below_it_whatever_bookies_tell() -> None:
    stale = fragments_of(metadata((0, "abc"), (5, "abd")), -1)
    assert [(f.last_entry_id, f.is_final, f.is_empty) for f in stale] == [(4, True, False), (4, False, True)]
    assert least_lac(metadata((0, "abc"), (5, "abd"))) == 4
    assert least_lac(metadata((0, "abc"))) == -1


@pytest.mark.rule("AR-2")
def test_an_older_fragment_with_the_bookies_of_the_last_one_is_final_too() -> None:
    # H-41: told by key, not by value
    found = fragments_of(metadata((0, "abc"), (5, "abd"), (9, "abc")), 12)
    assert [f.is_final for f in found] == [True, True, False]


def test_the_empty_last_fragment_of_a_closed_ledger_is_empty() -> None:
    assert [f.is_empty for f in fragments_of(metadata((0, "abc"), (5, "abd"), closed_at=4), -1)] == [False, True]
    assert [f.is_empty for f in fragments_of(metadata((0, "abc"), closed_at=-1), -1)] == [True]


# Choosing and naming ----------------------------------------------------------------------------------------------


def offer(*spare: str) -> ReplaceBookie:
    def choose(ensemble: tuple[str, ...], position: int, excluded: frozenset[str]) -> str | None:
        left = [bookie for bookie in spare if bookie not in ensemble and bookie not in excluded]
        return left[0] if left else None

    return choose


@pytest.mark.rule("AR-13")
def test_new_bookies_are_no_members_none_that_leave_and_none_chosen_before() -> None:
    chosen = choose_replacements(("a", "b", "c"), (0, 2), ("x",), offer("a", "b", "c", "x", "d", "e"))
    assert chosen == {0: "d", 2: "e"}


def test_positions_without_a_new_bookie_keep_theirs() -> None:
    assert choose_replacements(("a", "b", "c"), (0, 2), (), offer("d")) == {0: "d"}
    assert choose_replacements(("a", "b", "c"), (1,), (), offer()) == {}


def update(value: LedgerMetadata, key: int, replacements: dict[int, str]) -> tuple[LocalMetadata, UpdateHandle]:
    fragment = next(found for found in fragments_of(value, -1) if found.first_entry_id == key)
    return replacement_update(Versioned(value, 3), fragment, replacements)


@pytest.mark.rule("AR-11")
def test_the_metadata_names_the_new_bookies_in_whatever_state_the_ledger_is() -> None:
    for value in (metadata((0, "abc"), (5, "abd")), metadata((0, "abc"), (5, "abd"), closed_at=7)):
        _, change = update(value, 0, {0: "x", 2: "y"})
        assert isinstance(change.action, WriteMetadata)
        assert change.cause == "rereplicate"
        expected = replace(value, fragments=(Fragment(0, ("x", "b", "y")), value.fragments[1]))
        assert change.action.metadata == expected


@pytest.mark.rule("AR-11")
@pytest.mark.rule("AR-15")
def test_it_merges_with_what_others_changed_meanwhile() -> None:
    _, change = update(metadata((0, "abc"), (5, "abd")), 0, {0: "x", 1: "y"})
    change.on_conflict()
    theirs = metadata((0, "zbc"), (5, "abd"), (8, "abe"))
    change.on_read(Versioned(theirs, 4))
    assert isinstance(change.action, WriteMetadata)
    assert change.action.metadata.fragments[0].ensemble == ("z", "y", "c"), "position 0 stays as they left it"
    assert change.action.metadata.fragments[1:] == theirs.fragments[1:]


def test_it_has_nothing_to_do_where_others_replaced_the_same_bookies() -> None:
    _, change = update(metadata((0, "abc"), (5, "abd")), 0, {0: "x"})
    change.on_conflict()
    change.on_read(Versioned(metadata((0, "zbc"), (5, "abd")), 4))
    assert (change.action, change.error) == (None, None)


@pytest.mark.behaviour("T-239")
def test_no_repair_names_a_bookie_twice_in_an_ensemble() -> None:
    _, change = update(metadata((0, "abc"), (5, "abd")), 0, {0: "x"})
    change.on_conflict()
    change.on_read(Versioned(metadata((0, "axc"), (5, "abd")), 4))  # another repair took the same one for position 1
    assert change.error is not None
    assert change.error.code is Code.REPLICATION


# Copying ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AR-3")
@pytest.mark.behaviour("T-246")
def test_final_fragments_are_copied_and_the_open_last_one_is_refused() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 6, closed=False)
            dead = writer.metadata.last_fragment.ensemble[1]
            await cluster.lose(dead)
            await cluster.append(writer, 6)
            ledger = await open_or_view(core_of(bk), writer.ledger_id)
            with pytest.raises(UnclosedFragment, match="entry 6"):
                await replicate(bk, ledger, 6, (1,))
            done = await replicate(bk, ledger, 0, (1,))
            assert done.value.metadata == await cluster.metadata(writer.ledger_id)
            assert dead not in done.value.metadata.fragments[0].ensemble
            assert done.entries_copied == 6
            await writer.close()
            assert (await cluster.thorough(writer.ledger_id)).is_sound

    run_in_repair_cluster(program, bookies=5)


@pytest.mark.rule("AR-9")
@pytest.mark.behaviour("T-249")
def test_copies_are_recovery_adds_of_the_very_bytes_that_the_writer_sent() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 5)
            ensemble = writer.metadata.last_fragment.ensemble
            sent = {e: cluster.body(ensemble[0], writer.ledger_id, e) for e in range(5)}
            await cluster.lose(ensemble[0])
        async with cluster.client() as bk:
            done = await replicate(bk, await open_or_view(core_of(bk), writer.ledger_id), 0, (0,))
            adds = [(b, r) for b, r in submitted(bk) if isinstance(r, AddRequest)]
            assert {r.entry_id: r.body for _, r in adds} == sent
            assert all(r.recovery and not r.high_priority for _, r in adds)
            assert {b for b, _ in adds} == {done.replacements[0]}
            assert {e: cluster.body(done.replacements[0], writer.ledger_id, e) for e in range(5)} == sent

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-10")
def test_each_new_bookie_is_sent_the_entries_of_its_position_and_no_others() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 17, (4, 2, 2))
            ensemble = writer.metadata.last_fragment.ensemble
            await cluster.lose(ensemble[0], ensemble[2])  # no entry loses both copies
            done = await replicate(bk, await open_or_view(core_of(bk), writer.ledger_id), 0, (0, 2))
            sizes = QuorumSizes(4, 2, 2)
            for position, new in done.replacements.items():
                stored = cluster.storage(new).entry_ids(writer.ledger_id)
                assert stored == [e for e in range(17) if sizes.stores(position, e)]
            assert (await cluster.thorough(writer.ledger_id)).is_sound

    run_in_repair_cluster(program, bookies=6)


@pytest.mark.rule("AR-11")
@pytest.mark.behaviour("T-247")
def test_without_a_bookie_to_copy_to_a_repair_fails_and_changes_nothing() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 5)
            await cluster.lose(writer.metadata.last_fragment.ensemble[0])
            before = await cluster.metadata(writer.ledger_id)
            with pytest.raises(NotEnoughBookies):
                await replicate(bk, await open_or_view(core_of(bk), writer.ledger_id), 0, (0,))
            assert await cluster.metadata(writer.ledger_id) == before
            assert not [r for _, r in submitted(bk) if isinstance(r, AddRequest) and r.recovery]

    run_in_repair_cluster(program, bookies=3)


def test_with_too_few_bookies_for_all_positions_those_that_can_be_are_replaced() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 5)
            ensemble = writer.metadata.last_fragment.ensemble
            await cluster.lose(*ensemble[:2])
            done = await replicate(bk, await open_or_view(core_of(bk), writer.ledger_id), 0, (0, 1))
            assert (list(done.replacements), done.unreplaced) == ([0], (1,))
            report = await cluster.thorough(writer.ledger_id)
            assert report.fragments[0].bad_positions == (1,)

    run_in_repair_cluster(program, bookies=4)


@pytest.mark.rule("AR-9")
@pytest.mark.rule("AR-11")
def test_a_new_bookie_that_does_not_take_a_copy_leaves_the_metadata_as_it_was() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 30)
            ensemble = writer.metadata.last_fragment.ensemble
            (spare,) = (name for name in cluster.bookies if name not in ensemble)
            await cluster.lose(ensemble[0])
            before = await cluster.metadata(writer.ledger_id)
            ledger = await open_or_view(core_of(bk), writer.ledger_id)

            async with anyio.create_task_group() as tasks:

                async def fail() -> None:
                    with pytest.raises(ReplicationFailed) as failure:
                        await replicate(bk, ledger, 0, (0,), batch_entries=1, copy_bytes_per_s=100)
                    assert failure.value.bookie_id == spare

                tasks.start_soon(fail)
                await cluster.until(lambda: cluster.body(spare, writer.ledger_id, 3))
                cluster.bookies[spare].crash()
            assert await cluster.metadata(writer.ledger_id) == before
            await cluster.bring_back(spare)
            await replicate(bk, ledger, 0, (0,))
            assert (await cluster.thorough(writer.ledger_id)).is_sound

    run_in_repair_cluster(program)


def test_a_rotten_copy_is_never_copied() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 4)
            ensemble = writer.metadata.last_fragment.ensemble
            for entry_id in range(4):
                cluster.rot(ensemble[1], writer.ledger_id, entry_id)
            await cluster.lose(ensemble[0])
            ledger = await open_or_view(core_of(bk), writer.ledger_id)
            await replicate(bk, ledger, 0, (0,))
            assert (await cluster.thorough(writer.ledger_id)).fragments[0].bad_positions == (1,)
            cluster.rot(ensemble[2], writer.ledger_id, 2)
            ledger = await open_or_view(core_of(bk), writer.ledger_id)
            cluster.forget(ledger.metadata.last_fragment.ensemble[0], writer.ledger_id, 2)
            with pytest.raises(UnreadableEntry) as failure:
                await replicate(bk, ledger, 0, (1,))
            assert failure.value.entry_id == 2

    run_in_repair_cluster(program, bookies=5)


def test_a_bookie_that_leaves_is_the_last_to_be_read_and_may_be_the_only_one_left() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 6)
            ensemble = writer.metadata.last_fragment.ensemble
        async with cluster.client() as bk:
            ledger = await open_or_view(core_of(bk), writer.ledger_id)
            await replicate(bk, ledger, 0, (0,))
            reads = {b for b, r in submitted(bk) if isinstance(r, ReadRequest)}
            assert ensemble[0] not in reads
        async with cluster.client() as bk:
            for other in ensemble[1:]:
                cluster.forget(other, writer.ledger_id, 4)
            done = await replicate(bk, ledger, 0, (0,))
            assert cluster.body(done.replacements[0], writer.ledger_id, 4) is not None

    run_in_repair_cluster(program, bookies=5)


@pytest.mark.rule("AR-13")
def test_quarantined_bookies_are_chosen_only_if_there_are_no_others() -> None:
    # H-43
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 3)
            ensemble = writer.metadata.last_fragment.ensemble
            spare = [name for name in cluster.bookies if name not in ensemble]
            watcher = core_of(bk).watcher
            ledger = await open_or_view(core_of(bk), writer.ledger_id)
            quarantined = type(watcher).quarantined
            try:
                type(watcher).quarantined = property(lambda self: frozenset({spare[0]}))  # type: ignore[assignment]
                done = await replicate(bk, ledger, 0, (0,))
                assert done.replacements == {0: spare[1]}
                await cluster.lose(spare[1])
                done = await replicate(bk, ledger, 0, (1,))
                assert done.replacements == {1: spare[0]}
            finally:
                type(watcher).quarantined = quarantined  # type: ignore[method-assign]

    run_in_repair_cluster(program, bookies=5)


# Bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AR-8")
@pytest.mark.behaviour("T-248")
@pytest.mark.parametrize("entries", [1, 2, 9, 10, 11, 20, 21])
@pytest.mark.parametrize("batch", [1, 3, 10])
def test_a_fragment_is_copied_batch_by_batch_whatever_its_size(entries: int, batch: int) -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, entries, (4, 3, 2))
            ensemble = writer.metadata.last_fragment.ensemble
            ledger = await open_or_view(core_of(bk), writer.ledger_id)
            sizes: list[int] = []
            replicator = FragmentReplicator(core_of(bk), RepairConfig(batch_entries=batch))
            done = await replicator.replicate(ledger, ledger.fragments[0], (2,), on_copied=sizes.append)
            expected = [e for e in range(entries) if QuorumSizes(4, 3, 2).stores(2, e)]
            assert cluster.storage(done.replacements[2]).entry_ids(writer.ledger_id) == expected
            assert done.value.metadata.fragments[0].ensemble[2] == done.replacements[2]
            assert done.value.metadata.fragments[0].ensemble[:2] == ensemble[:2]
            assert (len(sizes), sum(sizes)) == (done.entries_copied, done.bytes_copied)
            assert done.entries_copied == len(expected)

    run_in_repair_cluster(program, bookies=5)


@pytest.mark.rule("AR-8")
def test_no_more_is_in_flight_than_entries_and_bytes_allow() -> None:
    window = CopyWindow(10, 1000)
    assert window.size == 1, "nothing is known of the sizes yet"
    for size, following in ((50, 10), (0, 10), (100, 10), (200, 5), (50, 5), (600, 1), (5000, 1)):
        window.note(size)
        assert window.size == following


@pytest.mark.rule("AR-12")
def test_copying_is_limited_to_a_number_of_bytes_in_a_second() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 100)
            ledger = await open_or_view(core_of(bk), writer.ledger_id)
            size = len(cluster.body(ledger.metadata.last_fragment.ensemble[0], writer.ledger_id, 0) or b"")
            started = cluster.world.loop.time()
            await replicate(bk, ledger, 0, (0,), copy_bytes_per_s=10.0 * size)
            assert 9.5 < cluster.world.loop.time() - started < 10.5

    run_in_repair_cluster(program)


@pytest.mark.rule("AR-12")
def test_a_rate_saves_nothing_up_and_none_is_no_limit() -> None:
    async def program(cluster: RepairCluster) -> None:
        now = cluster.world.loop.time
        rate = ByteRate(100)
        await anyio.sleep(60)
        started = now()
        for _ in range(3):
            await rate.take(100)
        assert now() - started == pytest.approx(2.0)
        free = ByteRate(None)
        started = now()
        for _ in range(1000):
            await free.take(10**9)
        assert now() == started

    run_in_repair_cluster(program, bookies=0)


def test_a_cancelled_copy_leaves_the_metadata_as_it_was_and_may_be_repeated() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client() as bk:
            writer = await cluster.written_ledger(bk, 50)
            ledger = await open_or_view(core_of(bk), writer.ledger_id)
            before = await cluster.metadata(writer.ledger_id)
            for after_s in (0.0, 0.01, 0.03):
                with anyio.move_on_after(after_s) as scope:
                    await replicate(bk, ledger, 0, (0,), batch_entries=1)
                assert scope.cancelled_caught
                assert await cluster.metadata(writer.ledger_id) == before
            await replicate(bk, ledger, 0, (0,))
            assert (await cluster.thorough(writer.ledger_id)).is_sound

    run_in_repair_cluster(program)

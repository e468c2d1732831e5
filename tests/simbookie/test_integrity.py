"""A bookie that may have lost data vouches for nothing, and gets back what it lacks, before it denies anything."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

import bkclient
from bkclient import BookKeeper
from bkclient.errors import MetadataStoreError
from bkclient.ledger import LedgerState
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.repair.admin import RepairAdmin
from bkclient.wire.messages import AddRequest, Status
from simbookie.bookie import Bookie
from simbookie.integrity import IntegrityCheck, IntegrityConfig, RunningMark
from simbookie.processes import BookieProcess, BookieStartError
from simbookie.start_checks import StartChecks
from simbookie.storage.base import CrashMode
from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.storage.sorted import SortedLedgerStore
from simbookie.world.bookie_host import BookieHost
from simbookie.world.calls import RequestMessage
from simbookie.world.faults import Fate
from simbookie.world.loop import VirtualTimeLoop
from simbookie.world.metadata import SimulatedMetadataStore
from simbookie.zookeeper import EmbeddedZooKeeper
from tests.bkclient.repair.repair_cluster import RepairCluster, run_in_repair_cluster
from tests.simbookie.test_garbage_on_disk import metadata_of

SHAPE: dict[str, Any] = {"ensemble_size": 3, "write_quorum_size": 3, "ack_quorum_size": 2}
PAYLOADS = [b"entry %d" % number for number in range(6)]


class Lost:
    """Bookies 0 and 1 have acknowledged the last entry, bookie 2 never got it; then 1 loses its disk, and comes back."""

    def __init__(self, cluster: RepairCluster, *, is_checked: bool) -> None:
        self.cluster = cluster
        self.is_checked = is_checked
        self.ledger_id = -1
        self.check: IntegrityCheck | None = None

    async def happen(self) -> None:
        last = len(PAYLOADS) - 1

        def is_the_last_to_2(_source: str, destination: str, message: object) -> bool:
            request = message.request if isinstance(message, RequestMessage) else None
            return destination == "bookie-2" and isinstance(request, AddRequest) and request.entry_id == last

        dropped = self.cluster.world.network.intercept(is_the_last_to_2, Fate.DROP)
        async with self.cluster.client("writer") as client:
            writer = await client.create_ledger(**SHAPE)
            self.ledger_id = writer.ledger_id
            for payload in PAYLOADS:
                await writer.append(payload)
        dropped.remove()
        host = self.cluster.bookies["bookie-1"]
        if self.is_checked:
            host.before_serving = self.before_serving
        await self.cluster.lose("bookie-1", wiped=True)
        await self.cluster.bring_back("bookie-1")

    async def before_serving(self, host: BookieHost) -> None:
        self.check = IntegrityCheck(host.bookie, SimulatedMetadataStore(self.cluster.world, host))
        await self.check.before_serving()

    def entries_of(self, name: str) -> list[int]:
        storage = self.cluster.bookies[name].storage
        return storage.entry_ids(self.ledger_id) if storage.ledger(self.ledger_id) is not None else []


def test_without_the_check_a_disk_that_came_back_empty_denies_what_was_acknowledged() -> None:
    async def program(cluster: RepairCluster) -> None:
        lost = Lost(cluster, is_checked=False)
        await lost.happen()
        async with cluster.client("reader") as client:
            reader = await client.open_ledger(lost.ledger_id, recover=True)
            assert [entry.payload async for entry in reader] == PAYLOADS[:-1], "the last one is gone for good"

    run_in_repair_cluster(program, bookies=3)


def test_with_the_check_nothing_that_was_acknowledged_is_lost_and_every_copy_is_made_again() -> None:
    async def program(cluster: RepairCluster) -> None:
        lost = Lost(cluster, is_checked=True)
        await lost.happen()
        check = lost.check
        assert check is not None
        assert (check.is_needed, check.ledgers_in_limbo, lost.entries_of("bookie-1")) == (True, 1, [])
        info = cluster.bookies["bookie-1"].storage.ledger(lost.ledger_id)
        assert info is not None
        assert (info.in_limbo, info.fenced) == (True, True)
        async with cluster.client("reader") as client:
            await check.run(RepairAdmin(client))
            assert (check.is_needed, check.ledgers_done) == (False, 1)
            metadata = (await SimulatedMetadataStore(cluster.world, cluster.host).read_ledger(lost.ledger_id)).metadata
            assert (metadata.is_closed, metadata.last_entry_id) == (True, len(PAYLOADS) - 1)
            reader = await client.open_ledger(lost.ledger_id)
            assert [entry.payload async for entry in reader] == PAYLOADS
            report = await RepairAdmin(client).check_ledger(lost.ledger_id, thorough=True)
            assert report.is_sound
        after = cluster.bookies["bookie-1"].storage.ledger(lost.ledger_id)
        assert after is not None
        assert not after.in_limbo

    run_in_repair_cluster(program, bookies=3)


def test_a_closed_ledger_gets_its_copies_back_and_one_that_needs_a_dead_bookie_is_tried_again() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client("writer") as client:
            async with await client.create_ledger(**SHAPE) as whole:
                for payload in PAYLOADS:
                    await whole.append(payload)
            pair: dict[str, Any] = {"ensemble_size": 2, "write_quorum_size": 2, "ack_quorum_size": 2}
            striped = []
            for _ in range(6):
                async with await client.create_ledger(**pair) as writer:
                    await writer.append(b"x")
                    striped.append(writer.ledger_id)
        await cluster.lose("bookie-1", wiped=True)
        cluster.bookies["bookie-0"].crash(CrashMode.PROCESS)
        host = cluster.bookies["bookie-1"]
        check: list[IntegrityCheck] = []

        async def before(host: BookieHost) -> None:
            check.append(IntegrityCheck(host.bookie, SimulatedMetadataStore(cluster.world, host)))
            await check[-1].before_serving()

        host.before_serving = before
        await cluster.bring_back("bookie-1")
        assert check[0].ledgers_in_limbo == 0, "all are closed"
        async with cluster.client("reader") as client:
            admin = RepairAdmin(client)
            assert not await check[0].full_check(admin)
            assert host.storage.entry_ids(whole.ledger_id) == list(range(len(PAYLOADS))), "bookie 2 has them"
            assert needs(check[0])
            await cluster.bring_back("bookie-0")
            assert await check[0].full_check(admin)
            assert not needs(check[0])
            for ledger_id in striped:
                assert (await admin.check_ledger(ledger_id, thorough=True)).is_sound

    run_in_repair_cluster(program, bookies=3)


def test_a_cluster_that_does_not_answer_at_first_is_asked_again_and_a_bookie_that_stops_meanwhile_is_not() -> None:
    async def program(cluster: RepairCluster) -> None:
        async with cluster.client("writer") as client:
            writer = await client.create_ledger(**SHAPE)
            for payload in PAYLOADS:
                await writer.append(payload)
        await cluster.lose("bookie-1", wiped=True)
        host = cluster.bookies["bookie-1"]
        check: list[IntegrityCheck] = []

        async def before(host: BookieHost) -> None:
            check.append(IntegrityCheck(host.bookie, SimulatedMetadataStore(cluster.world, host)))
            await check[-1].before_serving()

        host.before_serving = before
        await cluster.bring_back("bookie-1")
        asked: list[float] = []
        async with cluster.client("checker") as client:

            async def connect() -> BookKeeper:
                asked.append(cluster.world.loop.time())
                if len(asked) < 3:
                    raise MetadataStoreError("nobody answers")
                return client

            checks = StartChecks(
                host.bookie, SimulatedMetadataStore(cluster.world, host), None, IntegrityConfig(), connect
            )
            checks.check = check[0]
            await checks.run()
            assert not needs(check[0])
            assert [later - earlier for earlier, later in itertools.pairwise(asked)] == pytest.approx(
                [check[0].config.interval_s] * 2
            )
        async with cluster.client("late") as client:
            host.crash()
            assert not await check[0].full_check(RepairAdmin(client))

    run_in_repair_cluster(program, bookies=3)


def needs(check: IntegrityCheck) -> bool:
    return check.is_needed


def storage_on(disk: SimulatedDisk) -> JournaledStorage:
    ledgers = Folder(disk, "ledgers/current")
    return JournaledStorage(
        [Folder(disk, "journal/current")], [ledgers], SortedLedgerStore(Folders([ledgers], Random(1)))
    )


def test_limbo_fence_and_the_need_for_a_check_survive_a_power_loss_before_the_first_request() -> None:
    async def story() -> None:
        disk = SimulatedDisk(Random(1), sync_covers_names=False)
        store = MemoryMetadataService().session(rng=Random(1))
        await store.create_ledger(metadata_of(7, "b0"))
        await store.create_ledger(metadata_of(8, "elsewhere"))
        bookie = await started(Bookie("b0", storage_on(disk)))
        check = IntegrityCheck(bookie, store, Folder(disk, "ledgers/current"))
        assert not check.is_needed
        await check.before_serving()
        bookie.crash(CrashMode.POWER_LOSS)

        again = await started(Bookie("b0", storage_on(disk)))
        info = again.storage.ledger(7)
        assert info is not None
        assert (info.in_limbo, info.fenced, again.storage.ledger_ids()) == (True, True, [7])
        assert IntegrityCheck(again, store, Folder(disk, "ledgers/current")).is_needed

    loop = VirtualTimeLoop()
    loop.run_until_complete(story())
    loop.close()


@pytest.mark.rule("BK-4")
@pytest.mark.parametrize("is_faithful", [False, True])
def test_a_late_add_to_a_ledger_that_others_closed_or_took_over_is_refused(kit: Any, *, is_faithful: bool) -> None:
    """Bookie b0 was fenced for all of them, and lost its disk; BookKeeper's issue 4812."""

    async def story() -> None:
        disk = SimulatedDisk(Random(1), sync_covers_names=False)
        store = MemoryMetadataService().session(rng=Random(1))
        await store.create_ledger(metadata_of(7, "b0", state=LedgerState.CLOSED))
        await store.create_ledger(metadata_of(8, "b0", "elsewhere"))
        await store.create_ledger(metadata_of(9, "elsewhere"))
        bookie = await started(Bookie("b0", storage_on(disk)))
        quirks = frozenset({Quirk.OTHER_LEDGERS_UNFENCED}) if is_faithful else REPAIRED
        check = IntegrityCheck(bookie, store, Folder(disk, "ledgers/current"), quirks=quirks)
        await check.before_serving()
        assert (check.ledgers_in_limbo, check.ledgers_fenced) == (0, 0 if is_faithful else 2)
        bookie.crash(CrashMode.POWER_LOSS)
        bookie = await started(Bookie("b0", storage_on(disk)))
        statuses = []
        for ledger_id in (7, 8, 9):
            answers = kit.Answers()
            bookie.submit(kit.add(ledger_id, 1), answers)
            await asyncio.sleep(1)
            statuses += answers.statuses
        fenced = Status.OK if is_faithful else Status.FENCED
        assert statuses == [fenced, fenced, Status.OK], "ledger 9 never had this bookie"
        if not is_faithful:
            answers = kit.Answers()
            bookie.submit(kit.add(7, 0, recovery=True), answers)
            await asyncio.sleep(1)
            assert answers.statuses == [Status.OK], "what it lacks it may be given"

    loop = VirtualTimeLoop()
    loop.run_until_complete(story())
    loop.close()


async def started(bookie: Bookie) -> Bookie:
    ready = asyncio.Event()
    bookie.start(ready.set)
    await ready.wait()
    return bookie


def test_a_bookie_that_was_killed_leaves_its_mark_and_one_that_ended_does_not() -> None:
    async def story() -> None:
        disk = SimulatedDisk(Random(1), sync_covers_names=False)
        mark = RunningMark([Folder(disk, "a"), Folder(disk, "b")])
        assert not mark.was_left()
        await mark.leave()
        disk.crash(CrashMode.POWER_LOSS)
        assert mark.was_left()
        mark.remove()
        assert not mark.was_left()

    loop = VirtualTimeLoop()
    loop.run_until_complete(story())
    loop.close()


@pytest.mark.parametrize(
    ("conf", "complaint"),
    [
        ({"dataIntegrityStampMissingCookies": "true"}, "needs dataIntegrityChecking"),
        ({"dataIntegrityChecking": "maybe"}, "dataIntegrityChecking must be true or false"),
    ],
)
def test_settings_that_make_no_sense_are_refused(conf: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        IntegrityConfig.from_conf(conf)


def test_a_bookie_process_whose_folder_was_emptied_is_brought_in_order(tmp_path: Path) -> None:
    """Over TCP: it starts with the check only, and ends up with every entry."""

    async def story() -> None:
        async with EmbeddedZooKeeper() as zookeeper:
            uri = zookeeper.metadata_uri()
            conf = tmp_path / "bk_server.conf"
            conf.write_text("dataIntegrityChecking=true\ndataIntegrityStampMissingCookies=true\n")
            processes = [process(uri, tmp_path, number) for number in range(2)]
            try:
                await asyncio.gather(*(asyncio.to_thread(each.start) for each in processes))
                client = await bkclient.connect(uri)
                writer = await client.create_ledger(ensemble_size=2, write_quorum_size=2, ack_quorum_size=2)
                for payload in PAYLOADS:
                    await writer.append(payload)
                processes[0].kill()
                shutil.rmtree(tmp_path / "data-0")
                with pytest.raises(BookieStartError, match="was the disk replaced or emptied"):
                    await asyncio.to_thread(process(uri, tmp_path, 0).start)
                processes[0] = process(uri, tmp_path, 0, "--conf", str(conf))
                await asyncio.to_thread(processes[0].start)
                note = tmp_path / "data-0/ledgers/current/integrity-check"
                await asyncio.to_thread(wait_until_gone, note)
                await client.aclose()
                client = await bkclient.connect(uri)  # which never saw the bookie away
                assert (await RepairAdmin(client).check_ledger(writer.ledger_id, thorough=True)).is_sound
                reader = await client.open_ledger(writer.ledger_id)
                assert [entry.payload async for entry in reader] == PAYLOADS
                await client.aclose()
                assert await asyncio.to_thread(processes[0].terminate) == 0
                assert not (tmp_path / "data-0/ledgers/current/DIRTY").exists()
            finally:
                for each in processes:
                    each.kill()

    asyncio.run(story())


def process(uri: str, tmp_path: Path, number: int, *options: str) -> Any:
    given = ["--data", str(tmp_path / f"data-{number}"), "--session-timeout-s", "2", *options]
    return BookieProcess(f"b{number}", uri, tmp_path, bookie_id=f"b{number}", options=given)


def wait_until_gone(path: Path) -> None:
    import time  # noqa: PLC0415

    begun = time.monotonic()
    while path.exists():
        assert time.monotonic() - begun < 60
        time.sleep(0.05)

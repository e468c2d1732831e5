"""Repair of ledgers by either side: our programs on real bookies, BookKeeper's own on simulated ones, and both on one cluster."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

import bkclient
from bkclient import BookKeeper
from bkclient.errors import IllegalOperation
from bkclient.repair import RepairAdmin, RepairConfig, run_auto_recovery
from bkclient.repair.admin import core_of
from bkclient.repair.events import EventKind, RepairEvent
from simbookie.processes import ProcessCluster
from simbookie.zookeeper import ZooKeeperServer
from tests.interop.builds import Build
from tests.interop.conftest import PATIENT, ClientFactory, PeerFactory
from tests.interop.java_peer import JavaError, JavaPeer, pattern
from tests.interop.real_bookie import RealBookie, RealCluster
from tests.interop.test_java_client import start_cluster
from tests.interop.test_python_client import payloads_of, written
from tests.interop.test_tools import shell

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

OUR_NAME = "127.0.0.1:7777"
COUNT = 120
FENCED, CLOSED = -101, -11


def patterns(count: int) -> list[bytes]:
    return [pattern(entry_id) for entry_id in range(count)]


@pytest.fixture(scope="module")
def restless(
    build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealCluster]:
    """Real bookies of which one is killed by each test that starts it again, and whose ledgers nobody else uses."""
    with RealCluster.on(zookeeper, build, tmp_path_factory.mktemp("restless")) as cluster:
        yield cluster.start(4)


async def by_java(java: JavaPeer, count: int = COUNT, *, close: bool = True) -> int:
    """A ledger of Java's, two copies of each entry on three bookies."""
    ledger_id: int = (await java("create", ensemble=3, write_quorum=2, ack_quorum=2, password=b"secret"))["ledger"]
    await java("append", ledger_id, count=count)
    if close:
        await java("close", ledger_id)
    return ledger_id


@asynccontextmanager
async def without(cluster: RealCluster, bookie_id: str) -> AsyncIterator[RealBookie]:
    """Kill a bookie, wait until its session has expired, and start it again in the end."""
    victim = cluster.bookie(bookie_id)
    victim.kill()
    try:
        await asyncio.to_thread(cluster.wait_unregistered, bookie_id)
        # The shell is run with the configuration of the first one.
        cluster.bookies.sort(key=lambda bookie: bookie is victim)
        yield victim
    finally:
        await asyncio.to_thread(cluster.restart, victim)


@asynccontextmanager
async def our_auto_recovery(uri: str) -> AsyncIterator[list[RepairEvent]]:
    """Our auditor and worker, and what they tell."""
    events: list[RepairEvent] = []
    task = asyncio.create_task(
        run_auto_recovery(
            uri,
            config=RepairConfig(idle_poll_s=0.5, open_ledger_grace_s=1.0),
            name=OUR_NAME,
            wall_clock_ms=lambda: int(time.time() * 1000),
            rng=Random(3),
            on_event=events.append,
        )
    )
    try:
        yield events
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@contextmanager
def java_auto_recovery(build: Build, configuration: Path) -> Iterator[None]:
    """BookKeeper's own daemon: an auditor and a worker."""
    command = build.command(
        "org.apache.bookkeeper.replication.AutoRecoveryMain", "--conf", str(configuration), log_level="INFO"
    )
    with configuration.with_name("autorecovery.log").open("ab") as log:
        daemon = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield
    finally:
        daemon.kill()
        daemon.wait()


async def until(condition: Callable[[], Awaitable[object]], within_s: float = 90) -> None:
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(0.1)


async def names(client: BookKeeper, ledger_id: int, bookie_id: str) -> bool:
    return any(bookie_id in fragment.ensemble for fragment in (await client.ledger_metadata(ledger_id)).fragments)


async def auditor_is_there(client: BookKeeper) -> None:
    async def is_there() -> bool:
        return await RepairAdmin(client).auditor() is not None

    await until(is_there)
    await asyncio.sleep(1.0)  # it watches the bookies soon after it was elected


async def nothing_is_marked(client: BookKeeper) -> None:
    async def is_clean() -> bool:
        return not [mark async for mark in RepairAdmin(client).under_replication().marks()]

    await until(is_clean)


async def reads_alike(python: BookKeeper, java: JavaPeer, ledger_id: int, password: bytes = b"secret") -> None:
    """Sound in every copy, and the same for both clients."""
    report = await RepairAdmin(python).check_ledger(ledger_id, thorough=True)
    assert report.is_sound, report
    reader = await python.open_ledger(ledger_id, password=password, recover=True)
    assert await payloads_of(reader) == patterns(COUNT)
    await java("open", ledger_id, password=password)
    assert await java.payloads(ledger_id) == patterns(COUNT)


async def every_copy_is_there(java: JavaPeer, ledger_id: int) -> None:
    """By Java's account each bookie has as many entries as the metadata of a ledger in pairs on three bookies give it.

    Reading does not tell: one copy of two is enough for that. A bookie may have more, from before an ensemble was changed.
    ``java`` speaks version 3, which alone has such lists.
    """
    fragments = {int(first): members for first, members in (await java("info", ledger_id))["fragments"].items()}
    expected: Counter[str] = Counter()
    for entry_id in range(COUNT):
        members = fragments[max(first for first in fragments if first <= entry_id)]
        expected.update((members[entry_id % 3], members[(entry_id + 1) % 3]))
    for bookie_id, count in expected.items():
        assert (await java("entries_on", ledger_id, bookie=bookie_id))["entries"] >= count, bookie_id


async def test_our_administrator_closes_java_s_ledger_and_gives_a_bookie_its_copies_once_more(
    restless: RealCluster, new_client: ClientFactory, new_peer: PeerFactory
) -> None:
    python: BookKeeper = await new_client(restless.metadata_uri, timeouts=PATIENT)
    java = new_peer(restless.metadata_uri, 3, own=True)
    admin = RepairAdmin(python)
    ledger_id = await by_java(java, close=False)
    closed = await admin.close_ledger(ledger_id)
    assert closed.is_closed
    with pytest.raises(JavaError):
        await java("append", ledger_id, count=1)
    for bookie_id in closed.last_fragment.ensemble:
        stored = await admin.entries_on(bookie_id, ledger_id)
        again = await admin.restore_copies(bookie_id, ledger_id)
        assert again.entries_copied == len(list(stored)) > 0
        missing = await admin.restore_copies(bookie_id, ledger_id, has_entry=stored.__contains__)
        assert missing.entries_copied == 0
    assert (await admin.check_ledger(ledger_id, thorough=True)).is_sound


@pytest.mark.matrix("ours: check and recover a killed bookie's ledgers, closed and open ones of Java's")
async def test_our_recovery_moves_java_s_ledgers_away_from_a_killed_bookie(
    restless: RealCluster, new_client: ClientFactory, new_peer: PeerFactory, wire: int
) -> None:
    python: BookKeeper = await new_client(
        restless.metadata_uri, connections={"protocol_version": wire}, timeouts=PATIENT
    )
    java = new_peer(restless.metadata_uri, wire, own=True)
    admin = RepairAdmin(python)
    closed, still_open = await by_java(java), await by_java(java, close=False)
    assert (await admin.check_ledger(closed, thorough=True)).is_sound
    # Three bookies of four each, so at least two of them have both ledgers.
    members = (await python.ledger_metadata(closed)).last_fragment.ensemble
    victim = next(each for each in (await python.ledger_metadata(still_open)).last_fragment.ensemble if each in members)
    chosen = [closed, still_open]
    async with without(restless, victim):
        async with asyncio.timeout(10):
            while victim in (await python.bookies()).writable:  # noqa: ASYNC110 - told by a watch
                await asyncio.sleep(0.05)
        for ledger_id in chosen:
            assert (await admin.check_ledger(ledger_id)).bad_bookies == (victim,)
        before = {ledger_id async for ledger_id in admin.ledgers_on(victim)}
        assert set(chosen) <= before

        report = await admin.recover_bookie([victim], ledger_ids=chosen)

        assert report.closed == [still_open]
        assert report.failures == {}
        assert report.entries_copied >= COUNT // 3
        assert not set(chosen) & {ledger_id async for ledger_id in admin.ledgers_on(victim)}
        other = new_peer(restless.metadata_uri, wire, own=True)
        for ledger_id in (closed, still_open):
            await reads_alike(python, other, ledger_id)
            await every_copy_is_there(new_peer(restless.metadata_uri, 3), ledger_id)
        with pytest.raises(JavaError) as fenced:
            await java("append", still_open, count=1)
        assert fenced.value.code in (FENCED, CLOSED)
        for ledger_id in before:
            await python.delete_ledger(ledger_id)


@pytest.mark.matrix("ours: auto-recovery repairs Java's ledgers; decommission; shell: whoisauditor")
async def test_our_auto_recovery_empties_a_bookie_of_java_s_ledgers(
    restless: RealCluster, new_client: ClientFactory, new_peer: PeerFactory
) -> None:
    python: BookKeeper = await new_client(restless.metadata_uri, timeouts=PATIENT)
    java = new_peer(restless.metadata_uri, 3)
    admin = RepairAdmin(python)
    async with our_auto_recovery(restless.metadata_uri) as events:
        await auditor_is_there(python)
        assert await admin.auditor() == OUR_NAME
        assert re.search(r"7777", await shell(restless, "whoisauditor"))
        ledger_ids = [await by_java(java) for _ in range(3)]
        victim = (await python.ledger_metadata(ledger_ids[0])).fragments[0].ensemble[0]
        with pytest.raises(IllegalOperation):
            await admin.decommission(victim)
        async with without(restless, victim):
            await admin.decommission(victim, poll_s=0.2, timeout_s=60)

            assert not any([await names(python, ledger_id, victim) for ledger_id in ledger_ids])
            await nothing_is_marked(python)
            assert {event.ledger_id for event in events if event.kind is EventKind.REPLICATED} >= {ledger_ids[0]}
            for ledger_id in ledger_ids:
                await reads_alike(python, java, ledger_id)
                await every_copy_is_there(java, ledger_id)


@pytest.mark.matrix("decommissionbookie of Java's shell, with our auto-recovery")
async def test_java_s_decommission_is_served_by_our_auto_recovery(
    restless: RealCluster, new_client: ClientFactory, new_peer: PeerFactory
) -> None:
    python: BookKeeper = await new_client(restless.metadata_uri, timeouts=PATIENT)
    java = new_peer(restless.metadata_uri, 3)
    (leaving,) = restless.add(1, wait=False)
    leaving.spawn()
    await asyncio.to_thread(restless.wait_registered, leaving.bookie_id)
    async with our_auto_recovery(restless.metadata_uri):
        await auditor_is_there(python)
        # Java waits for ten seconds times the ledgers that are on the bookie before it looks: let there be one.
        ledger_ids = [await by_java(java)]
        while not await names(python, ledger_ids[-1], leaving.bookie_id):
            ledger_ids.append(await by_java(java))
        leaving.kill()
        await asyncio.to_thread(restless.wait_unregistered, leaving.bookie_id)

        shown = await shell(restless, "decommissionbookie", "-bookieid", leaving.bookie_id)

        assert "is deleted" in shown or "successfully" in shown.lower(), shown[-2000:]
        for ledger_id in ledger_ids:
            assert not await names(python, ledger_id, leaving.bookie_id)
            await reads_alike(python, java, ledger_id)
    restless.bookies.remove(leaving)


@pytest.mark.matrix("marks, locks, delay and switch of ours, seen by Java")
async def test_java_sees_what_we_keep_about_repairs(
    restless: RealCluster, new_client: ClientFactory, new_peer: PeerFactory
) -> None:
    python: BookKeeper = await new_client(restless.metadata_uri, timeouts=PATIENT)
    java = new_peer(restless.metadata_uri, 3)
    marks = RepairAdmin(python).under_replication(name=OUR_NAME, wall_clock_ms=lambda: int(time.time() * 1000))
    await marks.open()
    ledger_id = await by_java(java)
    await marks.mark(ledger_id, ["10.0.0.1:3181", "10.0.0.2:3181"])
    lock = await marks.try_lock(ledger_id)
    assert lock is not None
    try:
        shown = await shell(restless, "listunderreplicated", "-pmr", "-prw")
        assert re.search(rf"\b{ledger_id}\b", shown), shown
        assert "10.0.0.1:3181" in shown
        assert "10.0.0.2:3181" in shown
        assert OUR_NAME in shown
        assert await java("marked") == {"marks": [{"ledger": ledger_id, "missing": ["10.0.0.1:3181", "10.0.0.2:3181"]}]}
        assert (await java("holder_of_lock", ledger_id))["holder"] == OUR_NAME
        assert (await java("lock_marked"))["ledger"] == -1, "what we have locked is not for Java's workers"
        await java("mark", ledger_id, bookie="10.0.0.3:3181")
        assert not await marks.mark_replicated(lock), "Java has news that our repair did not meet"
        (mark,) = [mark async for mark in marks.marks() if mark.ledger_id == ledger_id]
        assert set(mark.missing) == {"10.0.0.1:3181", "10.0.0.2:3181", "10.0.0.3:3181"}
        await marks.release(lock)
        async with bkclient.connect(restless.metadata_uri, rng=Random(7)) as passing:
            theirs = RepairAdmin(passing).under_replication(name=OUR_NAME)
            assert await theirs.try_lock(ledger_id) is not None
        assert (await java("lock_marked"))["ledger"] == ledger_id, "the lock went with the session that held it"
        await java("release_marked", ledger_id)
    finally:
        left = await marks.try_lock(ledger_id)
        if left is not None:
            await marks.mark_replicated(left)
    assert (await java("marked"))["marks"] == []
    await marks.set_lost_bookie_recovery_delay_s(33)
    assert re.search(r"\b33\b", await shell(restless, "lostbookierecoverydelay", "-g"))
    await marks.disable()
    await shell(restless, "autorecovery", "-enable")
    assert await marks.is_enabled()
    await marks.set_lost_bookie_recovery_delay_s(0)


@pytest.mark.matrix("marks, locks, delay and switch of Java's, seen by us")
async def test_we_see_what_java_keeps_about_repairs(
    restless: RealCluster, new_client: ClientFactory, new_peer: PeerFactory
) -> None:
    python: BookKeeper = await new_client(restless.metadata_uri, timeouts=PATIENT)
    java = new_peer(restless.metadata_uri, 3)
    marks = RepairAdmin(python).under_replication(name=OUR_NAME, wall_clock_ms=lambda: int(time.time() * 1000))
    await marks.open()
    ledger_id = await by_java(java)
    for bookie in ("10.0.0.1:3181", "10.0.0.2:3181"):
        await java("mark", ledger_id, bookie=bookie)
    (mark,) = [mark async for mark in marks.marks()]
    assert (mark.ledger_id, mark.missing) == (ledger_id, ("10.0.0.1:3181", "10.0.0.2:3181"))
    assert (await java("lock_marked"))["ledger"] == ledger_id
    holder = await marks.holder(ledger_id)
    assert holder is not None
    assert holder == (await java("holder_of_lock", ledger_id))["holder"]
    assert await marks.acquire() is None, "what Java has locked is not for our workers"
    await marks.mark(ledger_id, ["10.0.0.3:3181"])
    await java("mark_replicated", ledger_id)
    assert ledger_id in [mark.ledger_id async for mark in marks.marks()], "we have news that Java's repair did not meet"
    await java("release_marked", ledger_id)
    assert await marks.holder(ledger_id) is None
    lock = await marks.acquire()
    assert lock is not None
    assert await marks.mark_replicated(lock)
    assert (await java("marked"))["marks"] == []

    await shell(restless, "lostbookierecoverydelay", "-s", "44")
    assert await marks.lost_bookie_recovery_delay_s() == 44
    await shell(restless, "autorecovery", "-disable")
    assert not await marks.is_enabled()
    await marks.enable()
    await marks.set_lost_bookie_recovery_delay_s(0)


@pytest.mark.matrix("auto-recovery of both side by side")
@pytest.mark.parametrize("java_first", [True, False], ids=["java-audits", "python-audits"])
async def test_both_auto_recoveries_work_on_one_cluster(
    build: Build, restless: RealCluster, new_client: ClientFactory, new_peer: PeerFactory, java_first: bool
) -> None:
    python: BookKeeper = await new_client(restless.metadata_uri, timeouts=PATIENT)
    java = new_peer(restless.metadata_uri, 3)
    configuration = restless.bookies[0].configuration
    if java_first:
        with java_auto_recovery(build, configuration):
            await auditor_is_there(python)
            async with our_auto_recovery(restless.metadata_uri):
                assert await RepairAdmin(python).auditor() != OUR_NAME
                await _one_dies_under_both(python, java, restless, configuration)
    else:
        async with our_auto_recovery(restless.metadata_uri):
            await auditor_is_there(python)
            with java_auto_recovery(build, configuration):
                await asyncio.sleep(4)  # until its worker works; its auditor waits for ours to go
                assert await RepairAdmin(python).auditor() == OUR_NAME
                await _one_dies_under_both(python, java, restless, configuration)


async def _one_dies_under_both(python: BookKeeper, java: JavaPeer, cluster: RealCluster, spared: Path) -> None:
    ledger_ids = [await by_java(java) for _ in range(8)]
    ours = {"ensemble_size": 3, "write_quorum_size": 2, "ack_quorum_size": 2, "password": b"secret"}
    ledger_ids += [await written(python, COUNT, **ours) for _ in range(8)]
    counts = dict.fromkeys((bookie.bookie_id for bookie in cluster.bookies if bookie.configuration != spared), 0)
    before = {ledger_id: await core_of(python).metadata.read_ledger(ledger_id) for ledger_id in ledger_ids}
    for value in before.values():
        for bookie_id in value.metadata.last_fragment.ensemble:
            if bookie_id in counts:
                counts[bookie_id] += 1
    victim = max(counts, key=lambda bookie_id: counts[bookie_id])
    affected = [ledger_id for ledger_id in ledger_ids if await names(python, ledger_id, victim)]
    assert len(affected) >= 4
    async with without(cluster, victim):
        for ledger_id in affected:

            async def is_moved(ledger_id: int = ledger_id) -> bool:
                return not await names(python, ledger_id, victim)

            await until(is_moved)
        await nothing_is_marked(python)
        for ledger_id in ledger_ids:
            value = await core_of(python).metadata.read_ledger(ledger_id)
            changes = 1 if ledger_id in affected else 0
            assert value.version == before[ledger_id].version + changes, "repaired once, by one of them"
            assert len(set(value.metadata.last_fragment.ensemble)) == 3
            await reads_alike(python, java, ledger_id)
        assert re.search(r"count\D*0\b", await shell(cluster, "listunderreplicated", "-c"))


@pytest.fixture
def mortal(zookeeper: ZooKeeperServer) -> Iterator[ProcessCluster]:
    """Simulated bookies for one test."""
    cluster = start_cluster(zookeeper)
    yield cluster
    cluster.close()


@pytest.mark.matrix("Java's auto-recovery between simulated bookies; shell: listbookies -a")
async def test_java_s_auto_recovery_repairs_ledgers_of_simulated_bookies(
    build: Build, mortal: ProcessCluster, new_client: ClientFactory, new_peer: PeerFactory, scratch: Path
) -> None:
    python: BookKeeper = await new_client(mortal.metadata_uri)
    java = new_peer(mortal.metadata_uri, 3, own=True)
    tools = RealCluster(build, scratch, mortal.metadata_uri)
    (never_started,) = tools.add(1, wait=False)
    shown = await shell(tools, "listbookies", "-a")
    assert all(bookie_id in shown for bookie_id in mortal.bookie_ids), shown
    cookie = await shell(tools, "cookie_get", mortal.bookie_ids[0])
    assert f'bookieHost: "{mortal.bookie_ids[0]}"' in cookie, cookie
    with java_auto_recovery(build, never_started.configuration):
        await auditor_is_there(python)
        ours = {"ensemble_size": 3, "write_quorum_size": 2, "ack_quorum_size": 2, "password": b"secret"}
        ledger_ids = [await by_java(java), await written(python, COUNT, **ours)]
        victim = (await python.ledger_metadata(ledger_ids[0])).fragments[0].ensemble[0]
        await asyncio.to_thread(mortal.bookie(victim).kill)

        async def is_moved() -> bool:
            return not any([await names(python, ledger_id, victim) for ledger_id in ledger_ids])

        await until(is_moved)
        await nothing_is_marked(python)
    for ledger_id in ledger_ids:
        await reads_alike(python, java, ledger_id)

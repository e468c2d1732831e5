"""The unmodified Java client on simulated bookies, each a process of its own."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bkclient import BookKeeper
from bkclient.metadata.opening import open_store
from simbookie.processes import ProcessCluster
from simbookie.zookeeper import ZooKeeperServer
from tests.interop.builds import Build
from tests.interop.conftest import ClientFactory, Note, PeerFactory
from tests.interop.java_peer import JavaError, JavaPeer, pattern, sha256_of
from tests.interop.real_bookie import RealCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

BOOKIES = 4
DIGESTS = ["CRC32", "MAC", "CRC32C", "DUMMY"]
FENCED, CLOSED, UNAUTHORIZED = -101, -11, -102
NO_SUCH_LEDGER_ON_BOOKIE, NO_SUCH_ENTRY = -7, -13


def patterns(count: int, size: int = -1) -> list[bytes]:
    return [pattern(entry_id, size) for entry_id in range(count)]


_ROOTS = itertools.count(1)


def start_cluster(zookeeper: ZooKeeperServer, root: str = "") -> ProcessCluster:
    """Simulated bookies that serve over TCP, under a metadata root of their own or under ``root``."""
    uri = zookeeper.metadata_uri(root or f"/simulated-{next(_ROOTS)}")

    async def initialise() -> None:
        await (await open_store(uri, rng=Random(1), initialise=True)).aclose()

    asyncio.run(initialise())
    cluster = ProcessCluster(uri, BOOKIES)
    cluster.start()
    return cluster


@pytest.fixture(scope="module")
def simulated(build: Build, zookeeper: ZooKeeperServer) -> Iterator[ProcessCluster]:
    """The cluster of most tests; all its bookies live."""
    cluster = start_cluster(zookeeper)
    yield cluster
    cluster.close()


@pytest.fixture
def mortal(zookeeper: ZooKeeperServer) -> Iterator[ProcessCluster]:
    """A cluster for one test, whose bookies may be killed."""
    cluster = start_cluster(zookeeper)
    yield cluster
    cluster.close()


@pytest.fixture
def java(new_peer: PeerFactory, simulated: ProcessCluster, wire: int) -> JavaPeer:
    """The Java client on the simulated bookies."""
    return new_peer(simulated.metadata_uri, wire)


@pytest.fixture
def other(new_peer: PeerFactory, simulated: ProcessCluster, wire: int) -> JavaPeer:
    """Another Java client, which knows nothing of what the first one has open."""
    return new_peer(simulated.metadata_uri, wire, throttle=0)


async def created(java: JavaPeer, count: int, *, size: int = -1, **options: Any) -> int:
    """A ledger of pattern entries, still open."""
    ledger_id: int = (await java("create", **options))["ledger"]
    if count:
        appended = await java("append", ledger_id, count=count, size=size)
        assert appended["last"] == count - 1
    return ledger_id


@pytest.mark.matrix("append and read, every digest")
@pytest.mark.parametrize("password", [b"", b"secret"], ids=["open", "password"])
@pytest.mark.parametrize("digest", DIGESTS)
async def test_what_java_appended_java_reads(java: JavaPeer, other: JavaPeer, digest: str, password: bytes) -> None:
    ledger_id = await created(java, 60, digest=digest, password=password)
    await java("close", ledger_id)

    opened = await other("open", ledger_id, digest=digest, password=password)

    assert (opened["lac"], opened["closed"], opened["length"]) == (59, True, sum(map(len, patterns(60))))
    assert await other.payloads(ledger_id) == patterns(60)


@pytest.mark.matrix("striped ensembles")
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 3, 2), (4, 2, 1), (4, 3, 3)], ids=lambda s: "-".join(map(str, s)))
async def test_striped_ensembles(java: JavaPeer, other: JavaPeer, sizes: tuple[int, int, int]) -> None:
    ensemble, write_quorum, ack_quorum = sizes
    ledger_id = await created(java, 200, ensemble=ensemble, write_quorum=write_quorum, ack_quorum=ack_quorum)
    await java("close", ledger_id)

    await other("open", ledger_id)

    assert await other.payloads(ledger_id) == patterns(200)


@pytest.mark.matrix("100,000 entries")
async def test_a_hundred_thousand_entries(java: JavaPeer, other: JavaPeer) -> None:
    ledger_id = await created(java, 100_000, size=100, ensemble=3, write_quorum=2, ack_quorum=2)
    await java("close", ledger_id)

    await other("open", ledger_id)
    read = await other("read", ledger_id, payloads=False)

    assert read["entries"] == 100_000
    assert read["sha256"] == sha256_of(patterns(100_000, 100))


@pytest.mark.matrix("fencing and recovery")
async def test_a_second_java_client_takes_over(java: JavaPeer, other: JavaPeer) -> None:
    ledger_id = await created(java, 100, ensemble=3, write_quorum=3, ack_quorum=2)
    appending = asyncio.create_task(java("append", ledger_id, count=100_000, pause_ms=1))
    await asyncio.sleep(0.2)

    opened = await other("open", ledger_id)

    with pytest.raises(JavaError) as fenced:
        await appending
    assert fenced.value.code in (FENCED, CLOSED)
    assert opened["lac"] >= 99
    assert await other.payloads(ledger_id) == patterns(opened["lac"] + 1)


@pytest.mark.matrix("recovery of an empty ledger")
async def test_a_ledger_nobody_wrote_to(java: JavaPeer, other: JavaPeer) -> None:
    ledger_id = await created(java, 0)

    opened = await other("open", ledger_id)

    assert (opened["lac"], opened["length"]) == (-1, 0)
    with pytest.raises(JavaError) as fenced:
        await java("append", ledger_id, count=1)
    assert fenced.value.code in (FENCED, CLOSED)


@pytest.mark.matrix("fencing and recovery")
async def test_a_wrong_password_fences_nobody(
    new_peer: PeerFactory, simulated: ProcessCluster, other: JavaPeer, wire: int
) -> None:
    # Metadata of format 1 hold no password, so that the Java client itself cannot find out.
    java = new_peer(simulated.metadata_uri, wire, ledgerMetadataVersion=1)
    # Every bookie has to know the ledger: to one that does not, the first key is the right one.
    ledger_id = await created(java, 1, digest="CRC32", password=b"right", write_quorum=3, ack_quorum=3)

    with pytest.raises(JavaError) as refused:
        await other("open", ledger_id, digest="CRC32", password=b"wrong")

    assert refused.value.code == UNAUTHORIZED
    assert (await java("append", ledger_id, count=1))["last"] == 1


@pytest.mark.matrix("tail without recovery")
async def test_what_is_not_there_is_denied_by_its_right_name(java: JavaPeer, other: JavaPeer) -> None:
    never_written, written_once = await created(java, 0), await created(java, 1, write_quorum=3, ack_quorum=3)

    for ledger_id, code in ((never_written, NO_SUCH_LEDGER_ON_BOOKIE), (written_once, NO_SUCH_ENTRY)):
        await other("open", ledger_id, recover=False)
        with pytest.raises(JavaError) as denied:
            await other.payloads(ledger_id, first=5, last=5, how="unconfirmed")
        assert denied.value.code == code


@pytest.mark.matrix("tail without recovery")
async def test_following_an_open_ledger(java: JavaPeer, other: JavaPeer) -> None:
    ledger_id = await created(java, 0)
    for _ in range(10):
        await java("append", ledger_id, count=1)

    opened = await other("open", ledger_id, recover=False)

    assert opened["lac"] == 8
    await java("append", ledger_id, count=1)
    assert (await other("lac", ledger_id, how="read"))["lac"] == 9
    assert (await other("lac", ledger_id, how="try"))["lac"] == 9
    assert await other.payloads(ledger_id) == patterns(10)
    assert await other.payloads(ledger_id, first=10, last=10, how="unconfirmed") == [pattern(10)]


@pytest.mark.matrix("tail with long polls")
async def test_following_with_long_polls(java: JavaPeer, other: JavaPeer, note: Note, wire: int) -> None:
    ledger_id = await created(java, 1)
    await other("open", ledger_id, recover=False)
    if wire == 2:
        # Version 2 cannot carry a long poll: the Java client gets an answer at once, without the entry that was asked for.
        note("no long polls")
        polled = await other("poll", ledger_id, entry=0, timeout_ms=1000)
        assert "entry" not in polled
        return
    loop = asyncio.get_running_loop()
    began = loop.time()
    polled = await other("poll", ledger_id, entry=0, timeout_ms=1000)
    assert "entry" not in polled
    assert loop.time() - began > 0.9, "a poll without news waits until its time is up"
    tail = asyncio.create_task(other("tail", ledger_id))

    await java("append", ledger_id, count=199, pause_ms=2)
    await java("close", ledger_id)
    read = await tail

    assert (read["entries"], read["sha256"]) == (200, sha256_of(patterns(200)))


@pytest.mark.matrix("explicit LAC")
async def test_an_explicit_lac_reaches_a_reader(
    new_peer: PeerFactory, simulated: ProcessCluster, other: JavaPeer, wire: int
) -> None:
    writer = new_peer(simulated.metadata_uri, wire, explicitLacInterval=50)
    ledger_id = await created(writer, 20)

    await other("open", ledger_id, recover=False)
    async with asyncio.timeout(10):
        while (await other("lac", ledger_id, how="explicit"))["lac"] < 19:  # noqa: ASYNC110 - on a timer of Java's
            await asyncio.sleep(0.05)

    assert await other.payloads(ledger_id) == patterns(20)


@pytest.mark.matrix("deferred sync and force")
async def test_deferred_sync_and_force(java: JavaPeer, other: JavaPeer, note: Note, wire: int) -> None:
    ledger_id = await created(java, 0, deferred_sync=True)
    if wire == 2:
        note("refused")
        with pytest.raises(JavaError) as illegal:
            await java("append", ledger_id, count=1)
        assert illegal.value.code == -100  # version 2 has no write flags
        return

    appended = await java("append", ledger_id, count=10)
    forced = await java("force", ledger_id)
    await java("close", ledger_id)

    assert (appended["last"], appended["lac"], forced["lac"]) == (9, -1, 9)
    await other("open", ledger_id)
    assert await other.payloads(ledger_id) == patterns(10)


@pytest.mark.matrix("batch read")
async def test_batch_reads(java: JavaPeer, other: JavaPeer, note: Note, wire: int) -> None:
    ledger_id = await created(java, 100, ensemble=2, write_quorum=2, ack_quorum=2)
    await java("close", ledger_id)
    await other("open", ledger_id)
    if wire == 3:
        note("refused by Java")
        with pytest.raises(JavaError):  # the Java client does not fall back where version 3 lacks the message
            await other("read", ledger_id, how="batch")
        return

    assert await other.payloads(ledger_id, how="batch") == patterns(100)
    assert await other.payloads(ledger_id, how="batch", bytes=300) == patterns(100)


@pytest.mark.matrix("given entry ids, chosen ledger id above 2^31")
async def test_a_ledger_with_a_chosen_id_and_given_entry_ids(
    java: JavaPeer, other: JavaPeer, build: Build, wire: int
) -> None:
    chosen = 2**33 + wire
    await java("create", ledger_id=chosen)
    writes = [
        asyncio.create_task(java("append_at", chosen, entry=entry, payload=pattern(entry))) for entry in (2, 1, 0, 3)
    ]
    await asyncio.gather(*writes)
    await java("close", chosen)

    await other("open", chosen)

    assert await other.payloads(chosen) == patterns(4)
    if build.lists_large_ids:
        assert chosen in (await other("list"))["ledgers"]
    await other("delete", chosen)
    assert chosen not in (await java("list"))["ledgers"]


@pytest.mark.matrix("ensemble change, bookie killed")
async def test_a_bookie_killed_in_mid_write_is_replaced(
    new_peer: PeerFactory, mortal: ProcessCluster, wire: int
) -> None:
    java, other = (new_peer(mortal.metadata_uri, wire, own=True) for _ in range(2))
    ledger_id = await created(java, 50, ensemble=3, write_quorum=3, ack_quorum=2)
    victim = (await java("info", ledger_id))["fragments"]["0"][1]
    appending = asyncio.create_task(java("append", ledger_id, count=400, pause_ms=1))
    await asyncio.sleep(0.1)
    await asyncio.to_thread(mortal.bookie(victim).kill)

    appended = await appending

    assert appended["last"] == 449
    await java("close", ledger_id)
    fragments = (await java("info", ledger_id))["fragments"]
    assert victim not in fragments[max(fragments, key=int)]
    await other("open", ledger_id)
    assert await other.payloads(ledger_id) == patterns(450)


@pytest.mark.matrix("ensemble change, bookie stood still")
async def test_a_bookie_that_stands_still_is_replaced(
    new_peer: PeerFactory, other: JavaPeer, simulated: ProcessCluster, wire: int
) -> None:
    java = new_peer(simulated.metadata_uri, wire, addEntryTimeoutSec=1)
    ledger_id = await created(java, 50, ensemble=3, write_quorum=3, ack_quorum=3)
    victim = simulated.bookie((await java("info", ledger_id))["fragments"]["0"][0])
    victim.pause()
    try:
        appended = await java("append", ledger_id, count=10)
        assert appended["last"] == 59
    finally:
        victim.resume()

    await java("close", ledger_id)
    fragments = (await java("info", ledger_id))["fragments"]
    assert victim.bookie_id not in fragments[max(fragments, key=int)]
    await other("open", ledger_id)
    assert await other.payloads(ledger_id) == patterns(60)


@pytest.mark.matrix("bookie recovery")
async def test_java_moves_a_ledger_away_from_a_killed_bookie(
    new_peer: PeerFactory, mortal: ProcessCluster, wire: int
) -> None:
    java, other = (new_peer(mortal.metadata_uri, wire, own=True) for _ in range(2))
    ledger_id = await created(java, 40, ensemble=3, write_quorum=2, ack_quorum=2)
    await java("close", ledger_id)
    victim = (await java("info", ledger_id))["fragments"]["0"][0]
    await asyncio.to_thread(mortal.bookie(victim).kill)
    async with asyncio.timeout(30):  # until its session has expired, Java takes it for alive
        while victim in (await _writable(mortal)):  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.1)

    await other("recover_bookie", bookie=victim)

    assert victim not in (await java("info", ledger_id))["fragments"]["0"]
    await other("open", ledger_id)
    assert await other.payloads(ledger_id) == patterns(40)


async def _writable(cluster: ProcessCluster) -> tuple[str, ...]:
    store = await open_store(cluster.metadata_uri, rng=Random(1))
    try:
        return (await store.bookies()).writable
    finally:
        await store.aclose()


@pytest.mark.matrix("list of entries, bookie info")
async def test_java_asks_what_a_bookie_has(
    java: JavaPeer, build: Build, simulated: ProcessCluster, scratch: Path, note: Note, wire: int
) -> None:
    ledger_id = await created(java, 30, ensemble=3, write_quorum=3, ack_quorum=3)
    bookie = (await java("info", ledger_id))["fragments"]["0"][0]

    assert (await java("bookie_info"))["bookies"] == BOOKIES
    tools = RealCluster(build, scratch, simulated.metadata_uri)
    tools.add(1, wait=False)  # for its configuration
    done = await asyncio.to_thread(tools.shell, "bookieinfo")
    shown = done.stdout + done.stderr
    free, total = (re.findall(rf"\b{what}\W{{1,3}}(\d+)", shown, re.IGNORECASE) for what in ("free", "total"))
    assert len(free) >= BOOKIES, shown
    used = [int(everything) - int(some) for some, everything in zip(free, total, strict=True)]
    assert min(used) >= 0 < max(used), (free, total)
    if wire == 2:
        note("Java breaks its connection")
        # The Java client sends this request in version 3 over its version 2 connection, which bookies must close.
        with pytest.raises(JavaError) as closed:
            await java("entries_on", ledger_id, bookie=bookie)
        assert closed.value.code == -8
    else:
        assert (await java("entries_on", ledger_id, bookie=bookie))["entries"] == 30


@pytest.fixture
def by_default(build: Build, zookeeper: ZooKeeperServer) -> Iterator[ProcessCluster | None]:
    """A cluster for the load tool, where there is one, at the only root it can work on."""
    if not build.has_load_tool:
        yield None
        return
    cluster = start_cluster(zookeeper, "/ledgers")
    yield cluster
    cluster.close()


@pytest.mark.matrix("load tool, 25,000 entries")
async def test_the_load_tool_of_bookkeeper(
    build: Build,
    by_default: ProcessCluster | None,
    zookeeper: ZooKeeperServer,
    new_client: ClientFactory,
    scratch: Path,
    note: Note,
    wire: int,
) -> None:
    if by_default is None:
        note("not published")
        return
    options = (
        f"-entrysize 100 -sendlimit 25000 -throttle 5000 -time 15 -skipwarmup -latencyFile {scratch / 'latencies'}"
    )
    done = await asyncio.to_thread(
        subprocess.run,
        build.command(
            "org.apache.bookkeeper.benchmark.BenchThroughputLatency",
            *("-zookeeper", zookeeper.address, *options.split()),
            *(["-useV2"] if wire == 2 else []),
            log_level="INFO",
        ),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    said = done.stdout + done.stderr
    sent = re.search(r"Sent: (\d+)", said)
    assert sent is not None, said
    completed = re.search(r"(\d+) completions in", said)
    assert completed is not None, said
    assert "BKException" not in said

    python: BookKeeper = await new_client(by_default.metadata_uri)
    ledger_id = max([each async for each in python.list_ledgers()])
    reader = await python.open_ledger(ledger_id, password=b"benchPasswd", recover=True)

    # It may be interrupted between an entry and its count.
    assert 20_000 <= int(completed[1]) <= int(sent[1]) <= reader.last_add_confirmed + 2
    read = 0
    async for entry in reader:
        assert len(entry.payload) == 100
        read += 1
    assert read == reader.last_add_confirmed + 1

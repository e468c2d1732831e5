"""What administrators and those who watch ledgers call, on real bookies and a ZooKeeper that nobody else uses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from bkclient import BookKeeper, ClientConfig, LedgerMetadata, LedgerReader, LedgerState
from bkclient.errors import (
    BookieNotAvailable,
    IllegalOperation,
    MetadataStoreError,
    NoSuchLedger,
    NoSuchLedgerOnBookie,
)
from bkclient.metadata.tree import tree_of
from bkclient.metadata.uri import ZooKeeperUri, parse_metadata_uri
from bkclient.metadata.zookeeper import connect_zookeeper
from bkclient.protocol.quorum import QuorumSizes
from bkclient.repair import RepairAdmin
from bkclient.repair.admin import core_of
from bkclient.repair.events import EventKind, RepairEvent
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from simbookie.zookeeper import ZooKeeperServer
from tests.interop.builds import Build
from tests.interop.conftest import PATIENT, ClientFactory, PeerFactory
from tests.interop.java_peer import JavaError, JavaPeer, pattern
from tests.interop.real_bookie import RealCluster
from tests.interop.test_python_client import payloads_of, written
from tests.interop.test_repair import auditor_is_there, java_auto_recovery, names, until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

COUNT = 60
FENCED, CLOSED = -101, -11
LONG_DELAY_S = 3600
#: What precedes the payload of an entry protected by CRC32C.
HEADER_SIZE = 36


def patterns(count: int = COUNT) -> list[bytes]:
    return [pattern(entry_id) for entry_id in range(count)]


@pytest.fixture(scope="module")
def own_zookeeper() -> Iterator[ZooKeeperServer]:
    """A ZooKeeper that may be stopped."""
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture(scope="module")
def governed(
    build: Build, own_zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealCluster]:
    """Real bookies registered there, whose sessions outlive an absence of it."""
    # An auditor that checks all ledgers as soon as it is there would find what it is to be asked for later.
    settings = {"zkTimeout": "30000", "auditorPeriodicCheckInterval": "0"}
    with RealCluster.on(own_zookeeper, build, tmp_path_factory.mktemp("governed"), settings) as cluster:
        yield cluster.start(4)


@pytest.fixture
async def python(new_client: ClientFactory, governed: RealCluster, wire: int) -> BookKeeper:
    """The Python client on these bookies."""
    client: BookKeeper = await new_client(
        governed.metadata_uri, connections={"protocol_version": wire}, timeouts=PATIENT
    )
    return client


@pytest.fixture
def java(new_peer: PeerFactory, governed: RealCluster, wire: int) -> JavaPeer:
    """The Java client on these bookies."""
    return new_peer(governed.metadata_uri, wire)


async def by_java(java: JavaPeer, count: int = COUNT, *, close: bool = True, digest: str = "CRC32C") -> int:
    """A ledger of Java's, two copies of each entry on three bookies."""
    created = await java("create", ensemble=3, write_quorum=2, ack_quorum=2, password=b"secret", digest=digest)
    ledger_id: int = created["ledger"]
    await java("append", ledger_id, count=count)
    if close:
        await java("close", ledger_id)
    return ledger_id


@asynccontextmanager
async def without(python: BookKeeper, cluster: RealCluster, bookie_id: str) -> AsyncIterator[None]:
    """Kill a bookie, and start it again in the end.

    Its session would last for half a minute more, so what its end brings about is done by hand.
    """
    victim = cluster.bookie(bookie_id)
    victim.kill()
    try:
        await tree_of(core_of(python).metadata).delete(f"available/{bookie_id}")
        await until(lambda: _is_registered(python, bookie_id, False))
        yield
    finally:
        victim.spawn()
        await asyncio.to_thread(cluster.wait_registered, bookie_id)
        await until(lambda: _is_registered(python, bookie_id, True))


async def _is_registered(python: BookKeeper, bookie_id: str, wanted: bool) -> bool:
    return (bookie_id in (await python.bookies()).writable) is wanted


@pytest.mark.matrix("watching Java's ledger: ensemble change, close, deletion")
async def test_what_java_does_to_a_ledger_is_watched(python: BookKeeper, java: JavaPeer, governed: RealCluster) -> None:
    ledger_id = (await java("create", ensemble=3, write_quorum=3, ack_quorum=3))["ledger"]
    await java("append", ledger_id, count=10)
    reader = await python.open_ledger(ledger_id, recover=False)
    seen: list[LedgerMetadata] = []

    async def watch() -> None:
        async for metadata in python.watch_metadata(ledger_id):
            seen.append(metadata)  # noqa: PERF401 - the test looks at it meanwhile

    watching = asyncio.create_task(watch())
    ending = asyncio.create_task(reader.wait_closed())
    await until(lambda: _is(bool(seen)))
    assert (reader.is_following, reader.is_deleted, reader.is_closed) == (True, False, False)
    assert not await python.is_closed(ledger_id)
    before = reader.metadata_version
    victim = reader.metadata.last_fragment.ensemble[1]
    async with without(python, governed, victim):
        assert (await java("append", ledger_id, count=10))["last"] == 19
        await until(lambda: _is(len(seen[-1].fragments) == 2))
        await until(lambda: _is(reader.metadata_version > before))
        changed = reader.metadata.last_fragment
        assert (seen[0].state, len(seen[0].fragments)) == (LedgerState.OPEN, 1)
        assert (changed.first_entry_id, victim in changed.ensemble) == (10, False)
        assert seen[-1].last_fragment == changed
        assert not ending.done()

        await java("close", ledger_id)
        async with asyncio.timeout(20):
            await ending
        await until(lambda: _is(seen[-1].is_closed))
        assert (reader.is_closed, reader.last_add_confirmed, seen[-1].last_entry_id) == (True, 19, 19)
        assert await python.is_closed(ledger_id)
        fragments = (await java("info", ledger_id))["fragments"]
        assert {str(each.first_entry_id): [*each.ensemble] for each in seen[-1].fragments} == fragments
        assert await payloads_of(reader) == patterns(20)

        await java("delete", ledger_id)
        async with asyncio.timeout(20):
            await watching
        await until(lambda: _is(reader.is_deleted))
        with pytest.raises(NoSuchLedger):
            await anext(python.watch_metadata(ledger_id))
        with pytest.raises(NoSuchLedger):
            await python.is_closed(ledger_id)
        await reader.aclose()
        assert not reader.is_following


async def _is(condition: bool) -> bool:
    return condition


@pytest.mark.matrix("waiting for the end of Java's ledger that is deleted, and by a reader that is closed")
async def test_the_end_of_a_ledger_never_comes(python: BookKeeper, java: JavaPeer) -> None:
    ledger_id = await by_java(java, close=False)
    deleted = await python.open_ledger(ledger_id, password=b"secret", recover=False)
    left = await python.open_ledger(ledger_id, password=b"secret", recover=False)
    waits = [asyncio.create_task(reader.wait_closed()) for reader in (deleted, left)]
    await asyncio.sleep(0.05)

    await left.aclose()
    with pytest.raises(IllegalOperation):
        await waits[1]
    assert (left.is_following, left.is_deleted) == (False, False)
    await java("delete", ledger_id)

    async with asyncio.timeout(20):
        with pytest.raises(NoSuchLedger):
            await waits[0]
    assert deleted.is_deleted


@asynccontextmanager
async def impatient(uri: str, wire: int) -> AsyncIterator[BookKeeper]:
    """A client that waits a second for ZooKeeper, and not half a minute."""
    target = parse_metadata_uri(uri)
    assert isinstance(target, ZooKeeperUri)
    store = await connect_zookeeper(
        target, rng=Random(7), session_timeout_s=20.0, connect_timeout_s=20.0, operation_timeout_s=1.0
    )
    config = ClientConfig.of({"connections": {"protocol_version": wire}, "timeouts": PATIENT})

    try:
        transport = TcpTransport(store.bookie_address, TcpTransportConfig.of_client(config), rng=Random(8))
        async with BookKeeper(store, transport, config=config, rng=Random(9)) as client:
            yield client
    finally:
        await store.aclose()


@pytest.mark.matrix("ZooKeeper away and back: entries flow, metadata is not available")
async def test_zookeeper_is_away_for_a_while(
    governed: RealCluster, own_zookeeper: ZooKeeperServer, java: JavaPeer, wire: int
) -> None:
    async with impatient(governed.metadata_uri, wire) as client:
        assert await client.is_metadata_available()
        writer = await client.create_ledger(password=b"secret")
        for entry_id in range(COUNT // 2):
            await writer.append(pattern(entry_id))
        reader = await client.open_ledger(writer.ledger_id, password=b"secret", recover=False)
        await asyncio.to_thread(own_zookeeper.stop)
        try:
            assert not await client.is_metadata_available()
            for entry_id in range(COUNT // 2, COUNT):
                await writer.append(pattern(entry_id))
            assert await reader.read_last_add_confirmed() == COUNT - 2
            assert await payloads_of(reader) == patterns(COUNT - 1)
            for refused in (client.create_ledger(), client.ledger_metadata(writer.ledger_id)):
                with pytest.raises(MetadataStoreError):
                    await refused
        finally:
            await asyncio.to_thread(own_zookeeper.start)
        await until(client.is_metadata_available)
        await asyncio.to_thread(governed.wait_registered, *(bookie.bookie_id for bookie in governed.bookies))
        await writer.close()
        assert (await client.ledger_metadata(writer.ledger_id)).last_entry_id == COUNT - 1
        await until(lambda: _is(reader.is_closed))
        assert await payloads_of(reader) == patterns()
        assert await payloads_of(await client.open_ledger(await written(client, 10), recover=True)) == patterns(10)

    async def java_opens() -> bool:
        try:
            await java("open", writer.ledger_id, password=b"secret")
        except JavaError:  # its session may just be coming back
            return False
        return True

    await until(java_opens, within_s=30)
    assert await java.payloads(writer.ledger_id) == patterns()


@pytest.mark.matrix("opening Java's ledgers as administrator, without password or digest type")
@pytest.mark.parametrize("digest", ["CRC32", "MAC", "CRC32C", "DUMMY"])
async def test_an_administrator_opens_anything(python: BookKeeper, java: JavaPeer, digest: str) -> None:
    closed = await by_java(java, digest=digest)
    reader = await python.open_ledger_as_administrator(closed, keep_metadata_updated=True, recover=True)
    assert reader.is_following
    assert await payloads_of(reader) == patterns()

    still_open = await by_java(java, close=False, digest=digest)
    follower = await python.open_ledger_as_administrator(still_open, recover=False)
    assert not follower.is_closed
    last = follower.last_add_confirmed
    assert await payloads_of(follower) == patterns(last + 1)
    assert (await java("append", still_open, count=1))["last"] == COUNT

    taken_over = await python.open_ledger_as_administrator(still_open, recover=True)

    assert (taken_over.is_closed, taken_over.last_add_confirmed) == (True, COUNT)
    assert await payloads_of(taken_over) == patterns(COUNT + 1)
    with pytest.raises(JavaError) as fenced:
        await java("append", still_open, count=1)
    assert fenced.value.code in (FENCED, CLOSED)
    with pytest.raises(NoSuchLedger):
        await python.open_ledger_as_administrator(2**33, recover=True)


def stored_by(metadata: LedgerMetadata, bookie_id: str) -> list[int]:
    """The entries that a bookie of a closed ledger should have."""
    sizes = QuorumSizes.of(metadata)
    return [
        entry_id
        for entry_id in range(metadata.last_entry_id + 1)
        if any(metadata.ensemble_at(entry_id)[position] == bookie_id for position in sizes.write_set(entry_id))
    ]


async def every_copy_is_listed(python: BookKeeper, ledger_id: int) -> None:
    """By the bookies' own lists."""
    metadata = await python.ledger_metadata(ledger_id)
    for bookie_id in metadata.last_fragment.ensemble:
        listed = await RepairAdmin(python).entries_on(bookie_id, ledger_id)
        assert list(listed) == stored_by(metadata, bookie_id)


@pytest.mark.matrix("ours: entries by the bookies' own lists, over version 3 in any case")
async def test_what_bookies_list(
    python: BookKeeper, new_peer: PeerFactory, java: JavaPeer, governed: RealCluster
) -> None:
    admin = RepairAdmin(python)
    ledger_id = await by_java(java)
    metadata = await python.ledger_metadata(ledger_id)
    members = metadata.last_fragment.ensemble
    await every_copy_is_listed(python, ledger_id)
    for bookie_id in members:
        told_to_java = await new_peer(governed.metadata_uri, 3)("entries_on", ledger_id, bookie=bookie_id)
        assert told_to_java["entries"] == len(stored_by(metadata, bookie_id))
    report = await admin.check_replicas(ledger_id)
    assert (report.is_sound, report.entries, report.silent, report.short_bookies) == (True, COUNT, {}, {})
    (other,) = [bookie.bookie_id for bookie in governed.bookies if bookie.bookie_id not in members]
    with pytest.raises(NoSuchLedgerOnBookie):
        await admin.entries_on(other, ledger_id)
    assert (await admin.check_replicas(await by_java(java, 0))).entries == 0
    with pytest.raises(NoSuchLedger):
        await admin.check_replicas(2**33)


@pytest.mark.matrix("ours: check replicas of and repair a ledger of Java's after SIGKILL of a bookie")
async def test_a_ledger_is_repaired_after_a_bookie_was_killed(
    python: BookKeeper, java: JavaPeer, governed: RealCluster, wire: int
) -> None:
    admin = RepairAdmin(python)
    ledger_id = await by_java(java)
    before = await python.ledger_metadata(ledger_id)
    follower = await python.open_ledger(ledger_id, password=b"secret", keep_metadata_updated=True, recover=True)
    forgetful = await python.open_ledger(ledger_id, password=b"secret", recover=True)
    assert (follower.is_following, forgetful.is_following) == (True, False)
    victim = before.last_fragment.ensemble[wire % 3]
    lost = stored_by(before, victim)
    async with without(python, governed, victim):
        with pytest.raises(BookieNotAvailable):
            await admin.entries_on(victim, ledger_id)
        shown = await admin.check_replicas(ledger_id)
        assert [*shown.silent] == [victim], shown.silent
        assert (shown.without_replica.count, shown.below_ack_quorum.count) == (0, len(lost))
        assert shown.below_ack_quorum.entry_ids == lost[:16]
        assert shown.short_bookies == {victim: len(lost)}
        steps: list[RepairEvent] = []

        report = await admin.repair_ledger(ledger_id, thorough=True, on_progress=steps.append)

        assert report.is_sound
        after = await python.ledger_metadata(ledger_id)
        assert [(step.kind, step.ledger_id) for step in steps] == [(EventKind.REPLACED, ledger_id)]
        assert steps[0].size == sum(HEADER_SIZE + len(pattern(entry_id)) for entry_id in lost)
        assert victim not in after.last_fragment.ensemble
        assert set(after.last_fragment.ensemble) > set(before.last_fragment.ensemble) - {victim}
        assert (after.last_entry_id, after.length) == (before.last_entry_id, before.length)
        await every_copy_is_listed(python, ledger_id)
        assert (await admin.check_replicas(ledger_id)).is_sound
        await until(lambda: _is(follower.metadata == after))
        assert forgetful.metadata == before
        reader: LedgerReader
        for reader in (follower, await python.open_ledger_as_administrator(ledger_id, recover=True)):
            assert await payloads_of(reader) == patterns()
        await java("open", ledger_id, password=b"secret")
        assert await java.payloads(ledger_id) == patterns()
        assert (await admin.repair_ledger(ledger_id, thorough=True)).is_sound
    assert (await python.ledger_metadata(ledger_id)) == after, "what is sound is left alone"
    # The bookie that came back still has what nobody asks it for any more.
    assert list(await admin.entries_on(victim, ledger_id)) == lost


@pytest.mark.matrix("an audit triggered by ours, done by Java's auditor")
async def test_java_s_auditor_audits_when_we_ask_it_to(
    build: Build, governed: RealCluster, new_client: ClientFactory, new_peer: PeerFactory
) -> None:
    python: BookKeeper = await new_client(governed.metadata_uri, timeouts=PATIENT)
    java = new_peer(governed.metadata_uri, 3)
    admin = RepairAdmin(python)
    marks = admin.under_replication(name="127.0.0.1:7777", wall_clock_ms=lambda: int(time.time() * 1000))
    await marks.open()
    await marks.set_lost_bookie_recovery_delay_s(LONG_DELAY_S)
    ledger_id = await by_java(java)
    victim = (await python.ledger_metadata(ledger_id)).last_fragment.ensemble[0]
    spared = next(bookie for bookie in governed.bookies if bookie.bookie_id != victim)

    async def is_moved() -> bool:
        return not await names(python, ledger_id, victim)

    try:
        with java_auto_recovery(build, spared.configuration):
            await auditor_is_there(python)
            log = spared.configuration.with_name("autorecovery.log")
            await until(lambda: _is("Completed auditBookies" in log.read_text()))
            async with without(python, governed, victim):
                await asyncio.sleep(1.0)
                assert await names(python, ledger_id, victim), "the auditor waits for an hour"
                assert [mark async for mark in marks.marks()] == []

                await admin.trigger_audit()

                await until(is_moved)
                assert await marks.lost_bookie_recovery_delay_s() == LONG_DELAY_S
                assert (await admin.check_ledger(ledger_id, thorough=True)).is_sound
                metadata = await python.ledger_metadata(ledger_id)
                for (
                    bookie_id
                ) in metadata.last_fragment.ensemble:  # Java's worker copies every entry of a striped fragment
                    listed = await admin.entries_on(bookie_id, ledger_id)
                    assert set(listed) >= set(stored_by(metadata, bookie_id))
                reader = await python.open_ledger(ledger_id, password=b"secret", recover=True)
                assert await payloads_of(reader) == patterns()
    finally:
        await marks.set_lost_bookie_recovery_delay_s(0)

"""The znodes of the real thing, which ``tests/bkclient/metadata/golden`` keeps for machines without Maven.

With ``REWRITE_GOLDEN=1`` in the environment the files are written anew; otherwise what is found has to be what they hold.
Ledgers whose entries do not matter are made on bookies that only are registered: their metadata is Java's all the same, and
names the same bookies in every run.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from bkclient import BookKeeper
from bkclient.errors import MetadataVersionConflict
from bkclient.ledger import Fragment, LedgerState
from bkclient.metadata.base import BookieAddress, MetadataStore
from bkclient.metadata.codec import decode_ledger_metadata, encode_ledger_metadata
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.metadata.opening import open_store
from bkclient.repair.underreplication.formats import decode_mark
from simbookie.cluster import LocalCluster
from simbookie.zookeeper import ZooKeeperServer
from tests.bkclient.metadata.golden_files import PORT, Golden, Scene, capture, golden_files
from tests.interop.builds import Build
from tests.interop.conftest import PATIENT, ClientFactory, PeerFactory
from tests.interop.java_peer import JavaError
from tests.interop.real_bookie import RealBookie, RealCluster
from tests.interop.test_python_client import payloads_of
from tests.interop.test_repair import java_auto_recovery
from tests.interop.test_tools import shell

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

REWRITES = "REWRITE_GOLDEN" in os.environ
LAYOUTS = ["flat", "hierarchical", "longhierarchical"]
LEDGERS: Final = r"/(L\d|\d|idgen|ID-).*"
IDS = [0, 1, 12345, 2147483646, 2147483647, 12345678901, 9223372036854775807]
ONE = {"ensemble": 1, "write_quorum": 1, "ack_quorum": 1}
THREE = {"ensemble": 3, "write_quorum": 2, "ack_quorum": 2}
#: Whatever a text format might write in a way of its own.
RAW: Final = bytes(range(7, 14)) + b"\x00\x1b\"'\\? caf\xc3\xa9 \x7f\x80\xff"
PASSWORD: Final = b"secret " + RAW
BEFORE: Final = [b"hello", b"world!!"]
AFTER: Final = [b"after the change"]


def hold(build: Build, name: str, scene: Scene) -> None:
    """Keep a scene, or hold it to what was kept."""
    golden = next((each for each in golden_files() if each.version == build.version), Golden(build.version, {}))
    if REWRITES:
        golden.with_scene(name, scene).save()
    else:
        assert scene == golden.scenes[name]


class Newborn:
    """A cluster that Java has made."""

    def __init__(self, tools: RealCluster, zookeeper: ZooKeeperServer, *, is_made: bool = False) -> None:
        self.tools = tools
        self.uri = tools.metadata_uri
        self.root = re.sub(r"^[^:]*://[^/]*", "", self.uri)
        self._zookeeper = zookeeper.address
        if not is_made:
            tools.add(1, wait=False)
            tools.shell("initnewcluster")

    async def capture(self, only: str = ".*", **names: str) -> Scene:
        return await asyncio.to_thread(capture, self._zookeeper, self.root, only=only, names=names)

    def marks_with_their_times(self) -> dict[int, int]:
        scene = capture(self._zookeeper, self.root, only="/underreplication/ledgers/.*urL.*", with_chance=True)
        return {int(path.partition("urL")[2]): decode_mark(znode.data)[1] or 0 for path, znode in scene.items()}

    @contextmanager
    def meddle(self) -> Iterator[KazooClient]:
        """Another client of ZooKeeper."""
        client = KazooClient(self._zookeeper)
        client.start(timeout=20)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    @asynccontextmanager
    async def registered(self, *bookies: BookieAddress) -> AsyncIterator[MetadataStore]:
        """Bookies of the ids that the captures have, wherever they listen."""
        store = await open_store(self.uri, rng=Random(1))
        try:
            for number, address in enumerate(bookies):
                await store.register_bookie(f"127.0.0.1:{PORT + number}", address)
            yield store
        finally:
            await store.aclose()


NewCluster = Callable[..., Newborn]
_NUMBERS = itertools.count(1)


@pytest.fixture
def new_cluster(build: Build, zookeeper: ZooKeeperServer, scratch: Path) -> NewCluster:
    """Makes clusters: the layout."""

    def make(layout: str = "hierarchical") -> Newborn:
        uri = zookeeper.metadata_uri(f"/znodes-{next(_NUMBERS)}-{build.version}", manager=layout)
        return Newborn(RealCluster(build, scratch / layout, uri), zookeeper)

    return make


@pytest.mark.matrix("a new cluster, znode by znode")
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_cluster_that_java_has_made(build: Build, new_cluster: NewCluster, layout: str) -> None:
    hold(build, f"new cluster, {layout}", await new_cluster(layout).capture())


NOWHERE = BookieAddress("127.0.0.1", 1)


@pytest.mark.matrix("paths of ledgers up to 2^63 - 1, and of their marks, in every layout")
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_where_java_puts_ledgers(
    build: Build, new_cluster: NewCluster, new_peer: PeerFactory, layout: str
) -> None:
    cluster = new_cluster(layout)
    async with cluster.registered(NOWHERE):
        java = new_peer(cluster.uri, 3, own=True)
        for ledger_id in IDS:
            await java("create", ledger_id=ledger_id, **ONE)
            await java("mark", ledger_id, bookie="10.0.0.1:3181")
        await java("mark", 12345678901, bookie="10.0.0.2:3181")
        locked = await java("lock_marked")
        hold(build, f"ledgers, {layout}", await cluster.capture(LEDGERS))
        if layout == "hierarchical":
            marks = await cluster.capture("/underreplication.*")
            hold(build, "marks", {path: znode for path, znode in marks.items() if "/locks/" not in path})
            raw = await asyncio.to_thread(cluster.marks_with_their_times)
            assert raw[12345678901] >= raw[IDS[-1]], "the second bookie renewed the time of the first one's mark"
            (lock,) = [znode for path, znode in marks.items() if path.endswith(f"locks/urL{locked['ledger']:010d}")]
            hold(build, "lock", {"/underreplication/locks/urL": lock})
        for ledger_id in IDS:
            await java("delete", ledger_id)
        hold(build, f"ledgers deleted, {layout}", await cluster.capture(LEDGERS))


@contextmanager
def undeletable(cluster: Newborn, path: str) -> Iterator[None]:
    """Let nobody delete below this znode: generators of ids make znodes and delete them at once."""
    with cluster.meddle() as client:
        client.set_acls(
            cluster.root + path, [make_acl("world", "anyone", read=True, write=True, create=True, admin=True)]
        )
    yield


@pytest.mark.matrix("ids given out, by both generators")
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_how_java_gives_out_ids(
    build: Build, new_cluster: NewCluster, new_peer: PeerFactory, layout: str
) -> None:
    cluster = new_cluster(layout)
    directory = "" if layout == "flat" else "/idgen"
    async with cluster.registered(NOWHERE):
        java = new_peer(cluster.uri, 3, own=True)
        await java("create", **ONE)
        with undeletable(cluster, directory):
            await java("create", **ONE)
            await java("create", **ONE)
            hold(build, f"short ids, {layout}", await cluster.capture(LEDGERS))
        if layout != "flat":
            with cluster.meddle() as client:
                client.create(f"{cluster.root}/idgen-long")
            later = new_peer(cluster.uri, 3, own=True)
            await later("create", **ONE)
            with undeletable(cluster, "/idgen-long/HOB-0000000001"):
                await later("create", **ONE)
                await java("create", **ONE)  # looked for long ids when it was new, and not again
                hold(build, f"long ids, {layout}", await cluster.capture(LEDGERS))


OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "CRC32": {"digest": "CRC32"},
    "MAC and a password": {"digest": "MAC", "password": b"secret"},
    "DUMMY and a password that is no text": {"digest": "DUMMY", "password": PASSWORD},
    "custom metadata": {"custom": {"app": b"py", "caf\u00e9 \"'\\\n": RAW, "": b""}},
}


@pytest.mark.matrix("metadata of formats 1, 2 and 3, byte by byte")
@pytest.mark.parametrize("version", [1, 2, 3])
async def test_what_java_writes_about_a_ledger(
    build: Build, new_cluster: NewCluster, new_peer: PeerFactory, version: int
) -> None:
    """Open, closed, and in recovery: bookies that do not answer let a recovery go no further than that."""
    cluster = new_cluster()
    async with cluster.registered(*[NOWHERE] * 3):
        java = new_peer(cluster.uri, 3, own=True, ledgerMetadataVersion=version)
        timing = new_peer(
            cluster.uri, 3, own=True, ledgerMetadataVersion=version, storeSystemTimeAsLedgerCreationTime=True
        )

        async def keep(name: str, ledger_id: int) -> None:
            only = rf"/00/0000/L{ledger_id:04d}"
            hold(build, f"metadata {version}, {name}", await cluster.capture(only))

        await java("create", ledger_id=1, **THREE)
        await keep("open", 1)
        for number, (name, options) in enumerate(OPTIONS.items(), 2):
            await java("create", ledger_id=number, **THREE, **options)
            await keep(name, number)
        await timing("create", ledger_id=8, **THREE)
        await keep("creation time", 8)
        await timing("close", 8)
        await keep("creation time, closed", 8)
        await java("create", ledger_id=9, **THREE)
        with pytest.raises(JavaError):
            await timing("open", 9)
        await keep("in recovery", 9)
        await java("close", 1)
        await keep("closed and empty", 1)


UNAUTHORIZED: Final = -102


@pytest.mark.matrix("format 2 as either version and we spell it")
async def test_java_reads_every_spelling_of_the_text_format(new_cluster: NewCluster, new_peer: PeerFactory) -> None:
    """Some characters have names in 4.17, fewer in 4.18, and none with us; a password that was misread would be refused."""
    cluster = new_cluster()

    def spellings(name: str) -> list[bytes]:
        found = [next(iter(golden.scenes[f"metadata 2, {name}"].values())).data for golden in golden_files()]
        return [*found, encode_ledger_metadata(decode_ledger_metadata(0, found[0]))]

    custom, secret = spellings("custom metadata"), spellings("DUMMY and a password that is no text")
    assert len(set(custom)) == len(set(secret)) == 3
    with cluster.meddle() as client:
        for ledger_id, data in enumerate([*custom, *secret]):
            client.create(f"{cluster.root}/00/0000/L{ledger_id:04d}", data, makepath=True)
    async with cluster.registered(*[NOWHERE] * 3):
        java = new_peer(cluster.uri, 3, own=True)
        for ledger_id in range(3):
            read = (await java("info", ledger_id))["custom"]
            assert {key: base64.b64decode(value) for key, value in read.items()} == OPTIONS["custom metadata"]["custom"]
        for ledger_id in range(3, 6):
            with pytest.raises(JavaError) as refused:
                await java("open", ledger_id, digest="DUMMY", password=PASSWORD + b"x")
            assert refused.value.code == UNAUTHORIZED
            with pytest.raises(JavaError) as stopped:
                await java("open", ledger_id, digest="DUMMY", password=PASSWORD)
            assert stopped.value.code != UNAUTHORIZED, "it goes on to bookies that do not answer"


@asynccontextmanager
async def simulated(cluster: Newborn, count: int) -> AsyncIterator[tuple[LocalCluster, MetadataStore]]:
    """Simulated bookies, registered under the ids that the captures have."""
    name = cluster.root
    inside = MemoryMetadataService.named(name).session(rng=Random(2))
    try:
        async with LocalCluster(inside, count) as bookies:
            addresses = [BookieAddress("127.0.0.1", bookies.server(each).port) for each in bookies.bookie_ids]
            async with cluster.registered(*addresses) as store:
                yield bookies, store
    finally:
        await inside.aclose()
        MemoryMetadataService.forget(name)


async def stop_one(bookies: LocalCluster, store: MetadataStore, ledger_id: int) -> None:
    """Stop the first bookie of a ledger's last ensemble."""
    victim = (await store.read_ledger(ledger_id)).metadata.last_fragment.ensemble[0]
    await bookies.stop(bookies.bookie_ids[int(victim.rpartition(":")[2]) - PORT])
    await store.unregister_bookie(victim)


@pytest.mark.matrix("metadata of formats 1, 2 and 3, byte by byte")
@pytest.mark.parametrize("version", [1, 2, 3])
async def test_what_java_writes_about_a_ledger_with_entries(
    build: Build, new_cluster: NewCluster, new_peer: PeerFactory, version: int
) -> None:
    cluster = new_cluster()
    async with simulated(cluster, 4) as (bookies, store):
        java, other = (new_peer(cluster.uri, 3, own=True, ledgerMetadataVersion=version) for _ in range(2))

        async def keep(name: str, ledger_id: int) -> None:
            only = rf"/00/0000/L{ledger_id:04d}"
            hold(build, f"metadata {version}, {name}", await cluster.capture(only))

        for ledger_id in range(3):
            await java("create", **THREE)
            await java("append", ledger_id, payloads=BEFORE)
        await java("close", 0)
        await keep("closed", 0)
        await other("open", 1)
        await keep("recovered", 1)
        await stop_one(bookies, store, 2)
        await java("append", 2, payloads=AFTER)
        await keep("another ensemble", 2)
        await java("close", 2)
        await keep("another ensemble, closed", 2)


@pytest.fixture
def pair(
    build: Build, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RealCluster, Newborn]]:
    """Two real bookies."""
    directory = tmp_path_factory.mktemp("pair")
    real = RealCluster(build, directory, zookeeper.metadata_uri(f"/{directory.name}-{build.version}"))
    try:
        yield real.start(2), Newborn(real, zookeeper, is_made=True)
    finally:
        real.close()


def names_of(real: RealCluster) -> dict[str, str]:
    """What this run chose, and what stands for it."""
    names = {}
    for number, bookie in enumerate(real.bookies):
        names[bookie.bookie_id] = f"127.0.0.1:{PORT + number}"
        names[str(bookie.configuration.parent)] = f"/bookie-{number}"
    return names


@pytest.mark.matrix("a bookie's registration and cookie, byte by byte")
async def test_what_a_real_bookie_writes_about_itself(build: Build, pair: tuple[RealCluster, Newborn]) -> None:
    """The one that is read-only finds no directory for itself."""
    real, cluster = pair
    with cluster.meddle() as client:
        client.delete(f"{cluster.root}/available/readonly")
    (reader,) = real.add(1, wait=False)
    with reader.configuration.open("a") as lines:
        lines.write("forceReadOnlyBookie=true\n")
    reader.spawn()
    async with asyncio.timeout(60):
        while f"/available/readonly/{reader.bookie_id}" not in await cluster.capture():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.2)

    hold(build, "bookies", await cluster.capture(**names_of(real)))


TIMES: Final = ["checkallledgersctime", "placementpolicycheckctime", "replicascheckctime"]
AUDITOR: Final = {
    "auditorPeriodicPlacementPolicyCheckInterval": "86400",
    "auditorReplicasCheckInterval": "86400",
    "storeSystemTimeAsLedgerUnderreplicatedMarkTime": "true",
}


def auditors_configuration(bookie: RealBookie, name: str, **settings: str) -> Path:
    path = bookie.configuration.with_name(name)
    lines = "".join(f"{key}={value}\n" for key, value in {**AUDITOR, **settings}.items())
    path.write_text(bookie.configuration.read_text() + lines)
    return path


@pytest.mark.matrix("what the auditor and a worker leave, byte by byte")
async def test_what_java_s_auto_recovery_leaves(
    build: Build, pair: tuple[RealCluster, Newborn], new_peer: PeerFactory
) -> None:
    """A ledger on both bookies, one of which dies: nobody can take its place, so the mark and the worker's lock stay."""
    real, cluster = pair
    java = new_peer(cluster.uri, 3, own=True)
    ledger_id = (await java("create", ensemble=2, write_quorum=2, ack_quorum=2))["ledger"]
    await java("append", ledger_id, payloads=[b"hello"])
    await java("close", ledger_id)
    base, only = "/underreplication", "/underreplication.*"
    mark, lock = f"{base}/ledgers/0000/0000/0000/0000/urL0000000000", f"{base}/locks/urL0000000000"

    async def until(*paths: str) -> Scene:
        async with asyncio.timeout(90):
            while not set(paths) <= set(scene := await cluster.capture(only, **names_of(real))):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        return scene

    with java_auto_recovery(build, auditors_configuration(real.bookies[0], "with.conf")):
        await until(*(f"{base}/{each}" for each in TIMES), f"{base}/auditorelection/V_0000000000")
        real.bookies[1].kill()
        await until(mark, lock)
        await shell(real, "lostbookierecoverydelay", "-s", "44")
        await shell(real, "autorecovery", "-disable")
        hold(build, "auto-recovery", await until(f"{base}/disable"))
    await shell(real, "autorecovery", "-enable")
    with cluster.meddle() as client:
        client.set(f"{cluster.root}{base}/lostBookieRecoveryDelay", b"0")  # the shell takes 0 for nothing
        client.delete(cluster.root + mark)
    setting = {"storeSystemTimeAsLedgerUnderreplicatedMarkTime": "false"}
    with java_auto_recovery(build, auditors_configuration(real.bookies[0], "without.conf", **setting)):
        hold(build, "a mark without its time", {mark: (await until(mark))[mark]})


OURS: Final[dict[str, Any]] = {"ensemble_size": 3, "write_quorum_size": 2, "ack_quorum_size": 2}


async def history_of(store: MetadataStore, ledger_id: int) -> tuple[int, int, LedgerState, int]:
    """The version of a ledger's metadata, how many fragments they have, the state, and the last entry."""
    stored = await store.read_ledger(ledger_id)
    metadata = stored.metadata
    return stored.version, len(metadata.fragments), metadata.state, metadata.last_entry_id


@pytest.mark.matrix("metadata that both change in turn")
async def test_python_ends_a_ledger_whose_ensemble_java_changed(
    new_cluster: NewCluster, new_client: ClientFactory, new_peer: PeerFactory
) -> None:
    cluster = new_cluster()
    async with simulated(cluster, 4) as (bookies, store):
        java = new_peer(cluster.uri, 3, own=True)
        python: BookKeeper = await new_client(cluster.uri, timeouts=PATIENT)
        ledger_id = (await java("create", **THREE))["ledger"]
        await java("append", ledger_id, payloads=BEFORE)
        await stop_one(bookies, store, ledger_id)
        await java("append", ledger_id, payloads=AFTER)
        assert await history_of(store, ledger_id) == (1, 2, LedgerState.OPEN, -1)

        reader = await python.open_ledger(ledger_id, recover=True)

        assert await payloads_of(reader) == BEFORE + AFTER
        assert await history_of(store, ledger_id) == (3, 2, LedgerState.CLOSED, 2)
        await java("close", ledger_id)  # agrees, so nothing is to be written
        assert await history_of(store, ledger_id) == (3, 2, LedgerState.CLOSED, 2)


@pytest.mark.matrix("metadata that both change in turn")
async def test_java_ends_a_ledger_whose_ensemble_python_changed(
    new_cluster: NewCluster, new_client: ClientFactory, new_peer: PeerFactory
) -> None:
    cluster = new_cluster()
    async with simulated(cluster, 4) as (bookies, store):
        java = new_peer(cluster.uri, 3, own=True)
        python: BookKeeper = await new_client(cluster.uri, timeouts=PATIENT)
        writer = await python.create_ledger(**OURS)
        for payload in BEFORE:
            await writer.append(payload)
        await stop_one(bookies, store, writer.ledger_id)
        for payload in AFTER:
            await writer.append(payload)
        assert await history_of(store, writer.ledger_id) == (1, 2, LedgerState.OPEN, -1)

        await java("open", writer.ledger_id)

        assert await java.payloads(writer.ledger_id) == BEFORE + AFTER
        assert await history_of(store, writer.ledger_id) == (3, 2, LedgerState.CLOSED, 2)
        await writer.close()
        assert await history_of(store, writer.ledger_id) == (3, 2, LedgerState.CLOSED, 2)


@pytest.mark.matrix("metadata that both change in turn")
async def test_each_update_takes_the_version_that_the_other_left(
    new_cluster: NewCluster, new_client: ClientFactory, new_peer: PeerFactory
) -> None:
    """A bookie of an earlier fragment is replaced under an open writer, as a repair does: Java's next update is on top of it."""
    cluster = new_cluster()
    async with simulated(cluster, 4) as (bookies, store):
        java, other = (new_peer(cluster.uri, 3, own=True) for _ in range(2))
        ledger_id = (await java("create", custom={"app": b"java"}, **THREE))["ledger"]
        await java("append", ledger_id, payloads=BEFORE)
        await stop_one(bookies, store, ledger_id)
        await java("append", ledger_id, payloads=AFTER)
        by_java = await store.read_ledger(ledger_id)
        first, last = by_java.metadata.fragments
        repaired = replace(by_java.metadata, fragments=(Fragment(0, last.ensemble), last))

        written = await store.write_ledger(repaired, by_java.version)

        assert (by_java.version, written.version) == (1, 2)
        assert first.ensemble != last.ensemble
        await java("close", ledger_id)
        closed = await store.read_ledger(ledger_id)
        assert (closed.version, closed.metadata) == (3, repaired.closed(2, 28))
        with pytest.raises(MetadataVersionConflict):
            await store.write_ledger(repaired, written.version)
        await store.write_ledger(closed.metadata, closed.version)
        info = await other("info", ledger_id)
        assert (info["state"], info["last_entry"], info["length"]) == ("CLOSED", 2, 28)
        assert list(info["fragments"].values()) == [list(last.ensemble)] * 2
        assert base64.b64decode(info["custom"]["app"]) == b"java"

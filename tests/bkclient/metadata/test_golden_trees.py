"""Our driver for ZooKeeper does what Java did, and leaves the same znodes: data, versions, and who is ephemeral."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

import bkclient
from bkclient import ClientConfig, MetadataSettings
from bkclient.ledger import DigestType, LedgerMetadata
from bkclient.metadata.base import BookieAddress, MetadataStore
from bkclient.metadata.codec import decode_ledger_metadata, encode_ledger_metadata
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.metadata.opening import open_store
from bkclient.metadata.paths import LedgerManager, parse_ledger_path
from bkclient.metadata.tree import tree_of
from bkclient.repair.underreplication.election import AuditorElection
from bkclient.repair.underreplication.marks import CheckKind, UnderReplication
from simbookie.cluster import LocalCluster
from simbookie.cookies import NOWHERE, leave_cookie
from tests.bkclient.metadata.golden_files import (
    PORT,
    TIME_MS,
    Golden,
    Scene,
    capture,
    golden_files,
    without_chance,
)
from tests.zookeepers import AnyZooKeeper

#: The newest: the other ones' spelling of two characters is the only difference, which the codecs' tests are about.
GOLDEN: Golden = golden_files()[-1]
LAYOUTS = [LedgerManager.FLAT, LedgerManager.HIERARCHICAL, LedgerManager.LONG_HIERARCHICAL]
LEDGERS = r"/(L\d|\d|idgen|ID-).*"

each_layout = pytest.mark.parametrize("manager", LAYOUTS, ids=lambda manager: manager.value)


class Root:
    """A place in ZooKeeper where nothing is yet."""

    def __init__(self, server: AnyZooKeeper, path: str) -> None:
        self.server, self.path = server, path
        self._stores: list[MetadataStore] = []

    def uri(self, manager: LedgerManager = LedgerManager.HIERARCHICAL) -> str:
        return self.server.metadata_uri(self.path, manager=manager.value)

    async def store(self, manager: LedgerManager = LedgerManager.HIERARCHICAL) -> MetadataStore:
        """A session with the cluster here, which is made if there is none."""
        store = await open_store(
            self.uri(manager), rng=Random(7), session_timeout_s=5.0, connect_timeout_s=20.0, initialise=True
        )
        self._stores.append(store)
        return store

    async def capture(self, only: str = ".*", **names: str) -> Scene:
        return await asyncio.to_thread(capture, self.server.address, self.path, only=only, names=names)

    async def aclose(self) -> None:
        for store in self._stores:
            await store.aclose()


@pytest.fixture
async def root(zookeeper_server: AnyZooKeeper, zookeeper_root: str) -> AsyncIterator[Root]:
    """One for this test."""
    root = Root(zookeeper_server, zookeeper_root)
    yield root
    await root.aclose()


def ledgers_of(scene: Scene) -> Iterator[LedgerMetadata]:
    """What we can name of a scene's ledgers, as the metadata they have there."""
    for path, znode in scene.items():
        try:
            ledger_id = parse_ledger_path("", path)
        except ValueError:
            continue
        yield decode_ledger_metadata(ledger_id, znode.data)


@each_layout
async def test_a_cluster_of_ours_is_one_of_java_s(root: Root, manager: LedgerManager) -> None:
    await root.store(manager)

    assert await root.capture() == GOLDEN.scenes[f"new cluster, {manager.value}"]


@each_layout
async def test_ledgers_of_ours_lie_as_java_s_do(root: Root, manager: LedgerManager) -> None:
    store = await root.store(manager)
    scene = GOLDEN.scenes[f"ledgers, {manager.value}"]
    if manager is LedgerManager.FLAT:  # longer names than we, and programs that list ledgers, know
        scene = {path: znode for path, znode in scene.items() if len(path) <= len("/L0000000000")}
    ledgers = list(ledgers_of(scene))

    for metadata in ledgers:
        await store.create_ledger(metadata)

    assert len(ledgers) == 5 if manager is LedgerManager.FLAT else 7
    assert await root.capture(LEDGERS) == scene
    assert [ledger_id async for ledger_id in store.list_ledgers()] == sorted(each.ledger_id for each in ledgers)
    for metadata in ledgers:
        await store.delete_ledger(metadata.ledger_id)
    assert await root.capture(LEDGERS) == GOLDEN.scenes[f"ledgers deleted, {manager.value}"]


def keep_all_below(zk: KazooClient, path: str) -> None:
    """Let nobody delete there: generators of ids make znodes and delete them at once."""
    zk.set_acls(path, [make_acl("world", "anyone", read=True, write=True, create=True, admin=True)])


@each_layout
async def test_ids_of_ours_are_given_out_as_java_s_are(root: Root, zk: KazooClient, manager: LedgerManager) -> None:
    store = await root.store(manager)
    scene = GOLDEN.scenes[f"short ids, {manager.value}"]
    pattern = next(ledgers_of(scene))

    async def create() -> None:
        await store.create_ledger(replace(pattern, ledger_id=await store.generate_ledger_id()))

    await create()
    keep_all_below(zk, root.path if manager is LedgerManager.FLAT else f"{root.path}/idgen")
    await create()
    await create()
    assert await root.capture(LEDGERS) == scene

    if manager is not LedgerManager.FLAT:
        zk.create(f"{root.path}/idgen-long")
        await create()
        keep_all_below(zk, f"{root.path}/idgen-long/HOB-0000000001")
        await create()
        # One client of Java's had looked for long ids before there were any, and went on with short ones.
        by_java = GOLDEN.scenes[f"long ids, {manager.value}"]
        late = {path: znode for path, znode in by_java.items() if path.endswith(("L0003", "/ID-0000000003"))}
        assert len(late) == 2
        assert await root.capture(LEDGERS) == {path: znode for path, znode in by_java.items() if path not in late}


@pytest.mark.rule("MD-1")
@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_client_of_ours_writes_about_a_ledger_what_java_does(root: Root, version: int) -> None:
    """The creator token apart, which Java's rewrites lose and ours do not."""
    async with _served(root) as (bookies, store):
        config = ClientConfig(metadata=MetadataSettings(format_version=version))
        async with bkclient.connect(root.uri(), config=config, rng=Random(1)) as one:
            digest = DigestType.CRC32 if version == 1 else DigestType.CRC32C
            writers = [
                await one.create_ledger(ensemble_size=3, write_quorum_size=2, ack_quorum_size=2, digest_type=digest)
                for _ in range(4)
            ]
            assert [writer.ledger_id for writer in writers] == [0, 1, 2, 3]
            await _holds(root, version, "open", 3)
            for writer in writers[:3]:
                for payload in (b"hello", b"world!!"):
                    await writer.append(payload)
            await writers[0].close()
            await _holds(root, version, "closed", 0)
            await one.open_ledger(1, recover=True)
            await _holds(root, version, "recovered", 1)
            victim = (await store.read_ledger(2)).metadata.last_fragment.ensemble[0]
            await bookies.stop(bookies.bookie_ids[int(victim.rpartition(":")[2]) - PORT])
            await store.unregister_bookie(victim)
            await writers[2].append(b"after the change")
            await _holds(root, version, "another ensemble", 2)
            await writers[2].close()
            await _holds(root, version, "another ensemble, closed", 2)
            await writers[3].close()
            await _holds(root, version, "closed and empty", 3)


@asynccontextmanager
async def _served(root: Root) -> AsyncIterator[tuple[LocalCluster, MetadataStore]]:
    """Four bookies, registered under the ids that the captures have."""
    store = await root.store()
    inside = MemoryMetadataService.named(root.path).session(rng=Random(2))
    try:
        async with LocalCluster(inside, 4) as bookies:
            for number, each in enumerate(bookies.bookie_ids):
                address = BookieAddress("127.0.0.1", bookies.server(each).port)
                await store.register_bookie(f"127.0.0.1:{PORT + number}", address)
            yield bookies, store
    finally:
        await inside.aclose()
        MemoryMetadataService.forget(root.path)


async def _holds(root: Root, version: int, name: str, ledger_id: int) -> None:
    ((path, java_s),) = GOLDEN.scenes[f"metadata {version}, {name}"].items()
    (ours,) = (await root.capture(rf"/00/0000/L{ledger_id:04d}")).values()
    metadata = decode_ledger_metadata(parse_ledger_path("", path), java_s.data)
    token = 42 if version == 3 else 0
    expected = encode_ledger_metadata(replace(metadata, creator_token=token))
    assert ours == replace(java_s, data=expected), name


async def test_registrations_and_cookies_of_ours_are_those_of_real_bookies(root: Root) -> None:
    store = await root.store()
    for number, is_read_only in enumerate((False, False, True)):
        bookie_id = f"127.0.0.1:{PORT + number}"
        await store.register_bookie(bookie_id, BookieAddress("127.0.0.1", 40_000 + number), read_only=is_read_only)
        await leave_cookie(store, bookie_id)

    folders = {f"/bookie-{number}/{what}": NOWHERE[0] for number in range(3) for what in ("journal", "ledgers")}
    assert await root.capture() == without_chance(GOLDEN.scenes["bookies"], folders)


async def test_marks_of_ours_are_those_of_java_s(root: Root) -> None:
    marks = UnderReplication(
        tree_of(await root.store()), name="anybody", wall_clock_ms=lambda: TIME_MS + 5, rng=Random(1)
    )
    scene = GOLDEN.scenes["marks"]
    await marks.open()
    for path in scene:
        if "urL" in path:
            await marks.mark(int(path.partition("urL")[2]), ["10.0.0.1:3181"])
    await marks.mark(12345678901, ["10.0.0.2:3181"])

    assert await root.capture("/underreplication.*") == scene


async def test_auto_recovery_of_ours_leaves_what_java_s_does(root: Root) -> None:
    tree = tree_of(await root.store())
    marks = UnderReplication(tree, name="somebody", wall_clock_ms=lambda: TIME_MS + 5, rng=Random(1))
    election = AuditorElection(tree, "127.0.0.1:3181")
    await marks.open()
    async with asyncio.timeout(10.0):
        await election.until_elected()
    await marks.set_lost_bookie_recovery_delay_s(0, only_first=True)
    for kind in CheckKind:
        await marks.set_checked_ms(kind, TIME_MS + 6)
    await marks.mark(0, ["127.0.0.1:3182"])
    assert await marks.acquire() is not None
    await marks.set_lost_bookie_recovery_delay_s(44)
    await marks.disable()

    assert await root.capture("/underreplication.*") == GOLDEN.scenes["auto-recovery"]


def test_scenes_that_nobody_plays_again_are_about_codecs_alone() -> None:
    played = {"bookies", "marks", "auto-recovery"}
    rest = {
        name for name in GOLDEN.scenes if name not in played and not name.startswith(("metadata", "new", "ledgers"))
    }

    assert rest == {
        "a mark without its time",
        "lock",
        *(f"short ids, {manager.value}" for manager in LAYOUTS),
        *(f"long ids, {manager.value}" for manager in LAYOUTS[1:]),
    }

"""What the ZooKeeper driver leaves in ZooKeeper, znode by znode, and what it makes of what others left there."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from kazoo.client import KazooClient

from bkclient.errors import (
    ArgumentError,
    BookieNotAvailable,
    MetadataSerializationError,
    MetadataStoreError,
)
from bkclient.ledger import Fragment, LedgerMetadata, Versioned
from bkclient.metadata.base import BookieAddress, BookieSets
from bkclient.metadata.codec import encode_ledger_metadata
from bkclient.metadata.paths import LedgerManager
from bkclient.metadata.records import BookieServiceInfo, Endpoint, encode_layout, encode_service_info
from bkclient.metadata.uri import parse_metadata_uri
from bkclient.metadata.zookeeper import ZooKeeperMetadataStore, connect_zookeeper
from tests.bkclient.metadata.zookeeper_inside import session_of
from tests.zookeepers import AnyZooKeeper

Connect = Callable[..., Awaitable[ZooKeeperMetadataStore]]

LEDGER = LedgerMetadata(
    5, 3, 2, 2, (Fragment(0, ("127.0.0.1:3181", "127.0.0.1:3182", "127.0.0.1:3183")),), creator_token=42
)
LEDGER_BYTES = bytes.fromhex(
    "426f6f6b69654d65746164617461466f726d617456657273696f6e09330a4f08021003180020ffffffffffffffffff01280132320a0e3132372e302e"
    "302e313a333138310a0e3132372e302e302e313a333138320a0e3132372e302e302e313a333138331000380342004802602a"
)
SERVICE_INFO = bytes.fromhex("32220a06626f6f6b696510ed181a093132372e302e302e31220a626f6f6b69652d727063")
HIERARCHICAL_LAYOUT = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"


@pytest.fixture
async def connect(zookeeper_server: AnyZooKeeper, zookeeper_root: str) -> AsyncIterator[Connect]:
    """Opens sessions with the cluster at the test's root; all are closed after the test."""
    stores: list[ZooKeeperMetadataStore] = []

    async def open_one(scheme: str = "zk", **options: Any) -> ZooKeeperMetadataStore:
        target = parse_metadata_uri(f"{scheme}://{zookeeper_server.address}{zookeeper_root}")
        assert not hasattr(target, "name")
        options = {"session_timeout_s": 5.0, "connect_timeout_s": 20.0, "initialise": True, **options}
        store = await connect_zookeeper(target, rng=Random(7), **options)
        stores.append(store)
        return store

    yield open_one
    for store in stores:
        await store.aclose()


def tree(zk: KazooClient, path: str) -> list[str]:
    """All znodes below ``path``, relative to it."""
    found: list[str] = []
    for name in sorted(zk.get_children(path)):
        found += [name, *(f"{name}/{rest}" for rest in tree(zk, f"{path}/{name}"))]
    return found


async def test_a_new_cluster_has_the_znodes_of_bookkeepers_own(
    connect: Connect, zk: KazooClient, zookeeper_root: str
) -> None:
    store = await connect()
    assert store.manager is LedgerManager.HIERARCHICAL
    assert tree(zk, zookeeper_root) == ["INSTANCEID", "LAYOUT", "available", "available/readonly"]
    for name in ("", "/available", "/available/readonly"):
        data, stat = zk.get(zookeeper_root + name)
        assert (data, stat.ephemeralOwner) == (b"", 0)
    assert zk.get(f"{zookeeper_root}/LAYOUT")[0] == HIERARCHICAL_LAYOUT
    instance_id = zk.get(f"{zookeeper_root}/INSTANCEID")[0].decode()
    assert str(uuid.UUID(instance_id)) == instance_id
    created = [
        zk.exists(f"{zookeeper_root}/{name}").czxid for name in ("available", "available/readonly", "INSTANCEID")
    ]
    assert len({*created}) == 1, "not made in one transaction"


async def test_initialising_a_cluster_again_changes_nothing(
    connect: Connect, zk: KazooClient, zookeeper_root: str
) -> None:
    await asyncio.gather(*[connect() for _ in range(3)])
    before = [(name, zk.get(f"{zookeeper_root}/{name}")) for name in tree(zk, zookeeper_root)]
    await connect("zk+hierarchical")
    assert [(name, zk.get(f"{zookeeper_root}/{name}")) for name in tree(zk, zookeeper_root)] == before


async def test_without_a_cluster_a_client_is_refused_and_makes_none(
    connect: Connect, zk: KazooClient, zookeeper_root: str
) -> None:
    with pytest.raises(MetadataStoreError, match=f"no BookKeeper cluster at zk://.*{zookeeper_root}"):
        await connect(initialise=False)
    assert zk.exists(zookeeper_root) is None


async def test_a_root_that_exists_is_made_a_cluster(connect: Connect, zk: KazooClient, zookeeper_root: str) -> None:
    zk.ensure_path(zookeeper_root)
    await connect()
    assert "INSTANCEID" in tree(zk, zookeeper_root)


async def test_a_client_completes_a_cluster_of_bookies_that_nobody_initialised(
    connect: Connect, zk: KazooClient, zookeeper_root: str
) -> None:
    zk.ensure_path(f"{zookeeper_root}/available")
    await connect("zk+longhierarchical", initialise=False)
    assert tree(zk, zookeeper_root) == ["LAYOUT", "available", "available/readonly"]
    assert zk.get(f"{zookeeper_root}/LAYOUT")[0] == encode_layout(LedgerManager.LONG_HIERARCHICAL)


@pytest.mark.parametrize(
    ("scheme", "manager"),
    [
        ("zk+flat", LedgerManager.FLAT),
        ("zk+longhierarchical", LedgerManager.LONG_HIERARCHICAL),
        ("zk+null", LedgerManager.HIERARCHICAL),
    ],
)
async def test_the_layout_decides_and_a_uri_that_disagrees_is_refused(
    connect: Connect, scheme: str, manager: LedgerManager
) -> None:
    assert (await connect(scheme)).manager is manager
    assert (await connect("zk", initialise=False)).manager is manager
    for other in {"zk+flat", "zk+hierarchical", "zk+longhierarchical"} - {scheme, f"zk+{manager.value}"}:
        with pytest.raises(
            ArgumentError, match=f"disagrees with the LAYOUT of the cluster, which is zk.{manager.value}"
        ):
            await connect(other, initialise=False)


async def test_a_layout_that_is_not_known_is_refused(connect: Connect, zk: KazooClient, zookeeper_root: str) -> None:
    await connect()
    zk.set(f"{zookeeper_root}/LAYOUT", b"2\norg.apache.bookkeeper.meta.MSLedgerManagerFactory:1")
    with pytest.raises(MetadataSerializationError, match="MSLedgerManagerFactory"):
        await connect()


PLACES = [
    ("zk", 5, "00/0000/L0005"),
    ("zk", 2**31 - 1, "000/0000/0021/4748/L3647"),
    ("zk+longhierarchical", 5, "000/0000/0000/0000/L0005"),
    ("zk+flat", 5, "L0000000005"),
]


@pytest.mark.rule("MD-2")
@pytest.mark.parametrize(("scheme", "ledger_id", "name"), PLACES)
async def test_a_ledger_is_one_znode_whose_version_is_the_ledgers(
    connect: Connect, zk: KazooClient, zookeeper_root: str, scheme: str, ledger_id: int, name: str
) -> None:
    store = await connect(scheme)
    created = await store.create_ledger(replace(LEDGER, ledger_id=ledger_id))
    data, stat = zk.get(f"{zookeeper_root}/{name}")
    assert (data, stat.version, stat.ephemeralOwner) == (LEDGER_BYTES, 0, 0)
    assert created.created_ms == stat.ctime
    closed = await store.write_ledger(created.metadata.closed(1, 12), 0)
    data, stat = zk.get(f"{zookeeper_root}/{name}")
    assert (data, stat.version) == (encode_ledger_metadata(closed.metadata), closed.version)
    assert [found async for found in store.list_ledgers()] == [ledger_id]


@pytest.mark.rule("DEL-5")
@pytest.mark.parametrize(("scheme", "ledger_id", "name"), PLACES)
async def test_deleting_a_ledger_removes_the_directories_it_leaves_empty(
    connect: Connect, zk: KazooClient, zookeeper_root: str, scheme: str, ledger_id: int, name: str
) -> None:
    store = await connect(scheme)
    empty = tree(zk, zookeeper_root)
    await store.create_ledger(replace(LEDGER, ledger_id=ledger_id))
    await store.delete_ledger(ledger_id)
    assert tree(zk, zookeeper_root) == empty


@pytest.mark.rule("DEL-5")
async def test_directories_that_hold_other_ledgers_stay(connect: Connect, zk: KazooClient, zookeeper_root: str) -> None:
    store = await connect()
    for ledger_id in (1, 10001, 10002):
        await store.create_ledger(replace(LEDGER, ledger_id=ledger_id))
    await store.delete_ledger(10001)
    assert {"00/0000/L0001", "00/0001/L0002"} < {*tree(zk, zookeeper_root)}
    await store.delete_ledger(10002)
    assert {"00", "00/0000", "00/0000/L0001"} == {name for name in tree(zk, zookeeper_root) if name.startswith("0")}
    zk.delete(f"{zookeeper_root}/00/0000/L0001")
    await store.delete_ledger(1)
    assert not [name for name in tree(zk, zookeeper_root) if name.startswith("0")]


@pytest.mark.rule("DEL-5")
async def test_ledgers_of_one_directory_may_be_created_and_deleted_at_once(connect: Connect) -> None:
    one, two = await connect(), await connect()

    async def churn(store: ZooKeeperMetadataStore, ledger_id: int) -> None:
        for _ in range(10):
            await store.create_ledger(replace(LEDGER, ledger_id=ledger_id))
            await store.delete_ledger(ledger_id)

    await asyncio.gather(*[churn([one, two][number % 2], number) for number in range(6)])
    assert [found async for found in one.list_ledgers()] == []


@pytest.mark.rule("DEL-6")
async def test_only_what_the_manager_names_is_listed(connect: Connect, zk: KazooClient, zookeeper_root: str) -> None:
    store = await connect()
    await store.create_ledger(LEDGER)
    for stranger in (
        "cookies/00/L0001",
        "idgen/ID-0000000001",
        "00/0000/X0001",
        "00/0000/L001",
        "0/0000/L0001",
        "L0000000009",
    ):
        zk.ensure_path(f"{zookeeper_root}/{stranger}")
    zk.ensure_path(f"{zookeeper_root}/00/00a0/L0001")
    assert [found async for found in store.list_ledgers()] == [5]


async def test_a_root_that_disappears_is_not_made_again(connect: Connect, zk: KazooClient, zookeeper_root: str) -> None:
    store = await connect()
    zk.delete(zookeeper_root, recursive=True)
    with pytest.raises(MetadataStoreError, match=f"ledger 5: the cluster's root {zookeeper_root} is gone"):
        await store.create_ledger(LEDGER)
    assert zk.exists(zookeeper_root) is None
    assert await store.bookies() == BookieSets()


@pytest.mark.rule("MD-3")
async def test_a_znode_that_holds_no_metadata_is_a_serialization_error(
    connect: Connect, zk: KazooClient, zookeeper_root: str
) -> None:
    store = await connect()
    zk.create(f"{zookeeper_root}/00/0000/L0005", b"rubbish", makepath=True)
    with pytest.raises(MetadataSerializationError, match="ledger 5"):
        await store.read_ledger(5)
    with pytest.raises(MetadataSerializationError, match="ledger 5"):
        await store.create_ledger(LEDGER)


@pytest.mark.rule("NR-7")
async def test_a_watch_outlives_metadata_that_cannot_be_read(
    connect: Connect, zk: KazooClient, zookeeper_root: str
) -> None:
    store = await connect()
    path = f"{zookeeper_root}/00/0000/L0005"
    created = await store.create_ledger(LEDGER)
    heard: asyncio.Queue[Versioned | None] = asyncio.Queue()
    store.watch_ledger(5, heard.put_nowait)
    async with asyncio.timeout(20):
        assert await heard.get() == created
        zk.set(path, b"rubbish")
        # An answer of the same session comes after the watch that fired before it.
        with pytest.raises(MetadataSerializationError):
            await store.read_ledger(5)
        zk.set(path, LEDGER_BYTES)
        repaired = await heard.get()
    assert repaired is not None
    assert (repaired.metadata, repaired.version) == (LEDGER, 2)


async def test_a_znode_version_that_zookeeper_cannot_hold_is_a_conflict(connect: Connect) -> None:
    store = await connect()
    created = await store.create_ledger(LEDGER)
    for version in (-1, 2**31, 2**40):
        with pytest.raises(Exception, match="METADATA_VERSION"):
            await store.write_ledger(LEDGER, version)
    assert await store.read_ledger(5) == created


async def test_a_bookie_is_an_ephemeral_znode_that_lists_its_endpoint(
    connect: Connect, zk: KazooClient, zookeeper_root: str
) -> None:
    store = await connect()
    for read_only, directory in ((False, "available"), (True, "available/readonly"), (False, "available")):
        await store.register_bookie("name-1", BookieAddress("127.0.0.1", 3181), read_only=read_only)
        data, stat = zk.get(f"{zookeeper_root}/{directory}/name-1")
        assert data == SERVICE_INFO
        assert stat.ephemeralOwner == session_of(store).session_id != 0
        assert len([name for name in tree(zk, zookeeper_root) if name.endswith("name-1")]) == 1


async def test_registrations_of_other_clients_are_understood(
    connect: Connect, zk: KazooClient, zookeeper_root: str
) -> None:
    store = await connect()
    web_only = encode_service_info(BookieServiceInfo((Endpoint("httpserver", "h", 8080, "http"),)))
    for name, data in (
        ("available/10.0.0.1:3181", b""),
        ("available/readonly/name-1", SERVICE_INFO),
        ("available/name-2", b""),
        ("available/name-3", b"\xff\xff"),
        ("available/name-4", web_only),
    ):
        zk.create(f"{zookeeper_root}/{name}", data, ephemeral=True)
    assert await store.bookie_address("10.0.0.1:3181") == BookieAddress("10.0.0.1", 3181)
    assert await store.bookie_address("name-1") == BookieAddress("127.0.0.1", 3181)
    for bookie_id in ("name-2", "name-3"):
        with pytest.raises(MetadataSerializationError, match=f"bookie {bookie_id}"):
            await store.bookie_address(bookie_id)
    with pytest.raises(BookieNotAvailable, match="no endpoint"):
        await store.bookie_address("name-4")


@pytest.mark.rule("PL-1")
async def test_a_bookie_in_both_directories_counts_as_read_only(
    connect: Connect, zk: KazooClient, zookeeper_root: str
) -> None:
    store = await connect()
    for directory in ("available", "available/readonly"):
        zk.create(f"{zookeeper_root}/{directory}/a:1", b"", ephemeral=True)
    assert await store.bookies() == BookieSets((), ("a:1",))


@pytest.mark.rule("PL-1")
async def test_bookies_are_followed_though_their_directories_are_made_later(
    connect: Connect, zk: KazooClient, zookeeper_root: str
) -> None:
    store = await connect()
    zk.delete(f"{zookeeper_root}/available", recursive=True)
    heard: asyncio.Queue[BookieSets] = asyncio.Queue()
    store.watch_bookies(heard.put_nowait)
    async with asyncio.timeout(20):
        assert await heard.get() == BookieSets()
        zk.ensure_path(f"{zookeeper_root}/available/readonly")
        zk.create(f"{zookeeper_root}/available/readonly/a:1", b"", ephemeral=True)
        assert await heard.get() == BookieSets((), ("a:1",))


async def test_cookies_are_left_alone(connect: Connect, zk: KazooClient, zookeeper_root: str) -> None:
    store = await connect()
    zk.create(f"{zookeeper_root}/cookies/a:1", b"cookie", makepath=True)
    await store.register_bookie("a:1", BookieAddress("h", 1))
    await store.unregister_bookie("a:1")
    assert zk.get(f"{zookeeper_root}/cookies/a:1")[0] == b"cookie"
    assert zk.exists(f"{zookeeper_root}/cookies").version == 0


@pytest.mark.parametrize(
    ("scheme", "directory"), [("zk", "/idgen"), ("zk+longhierarchical", "/idgen"), ("zk+flat", "")]
)
async def test_ids_come_from_the_sequence_counter_that_all_clients_share(
    connect: Connect, zk: KazooClient, zookeeper_root: str, scheme: str, directory: str
) -> None:
    store = await connect(scheme)
    first = await store.generate_ledger_id()
    other = zk.create(f"{zookeeper_root}{directory}/ID-", b"", ephemeral=True, sequence=True)
    zk.delete(other)
    second = await store.generate_ledger_id()
    assert first < int(other[-10:]) < second
    await store.aclose()
    assert not [name for name in tree(zk, zookeeper_root) if "ID-" in name]


@pytest.mark.parametrize("scheme", ["zk", "zk+longhierarchical"])
async def test_long_ids_are_generated_once_their_directory_exists(
    connect: Connect, zk: KazooClient, zookeeper_root: str, scheme: str
) -> None:
    store = await connect(scheme)
    zk.create(f"{zookeeper_root}/idgen-long")
    first, second = await store.generate_ledger_id(), await store.generate_ledger_id()
    assert (first >> 32, second >> 32) == (1, 1)
    assert first < second
    assert zk.get_children(f"{zookeeper_root}/idgen-long") == ["HOB-0000000001"]
    zk.create(f"{zookeeper_root}/idgen-long/HOB-0000000007")
    third = await store.generate_ledger_id()
    assert third >> 32 == 7
    await store.create_ledger(replace(LEDGER, ledger_id=third))
    assert [found async for found in store.list_ledgers()] == [third]

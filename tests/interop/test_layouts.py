"""What lies in ZooKeeper beside the entries: layouts that Java made, large ledger ids, and what a client must not touch."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from bkclient import BookKeeper
from bkclient.repair import RepairAdmin
from simbookie.zookeeper import ZooKeeperServer
from tests.bkclient.metadata.golden_files import znodes_below
from tests.interop.builds import Build
from tests.interop.conftest import PATIENT, ClientFactory, PeerFactory
from tests.interop.java_peer import JavaPeer, pattern
from tests.interop.real_bookie import RealCluster
from tests.interop.test_python_client import payloads_of, written

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SIZES = {"ensemble_size": 2, "write_quorum_size": 2, "ack_quorum_size": 2}
JAVA_SIZES = {"ensemble": 2, "write_quorum": 2, "ack_quorum": 2}
CLASSES = {
    "flat": "org.apache.bookkeeper.meta.FlatLedgerManagerFactory",
    "hierarchical": "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory",
    "longhierarchical": "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory",
}


def patterns(count: int) -> list[bytes]:
    return [pattern(entry_id) for entry_id in range(count)]


@pytest.fixture(scope="module", params=["flat", "longhierarchical"])
def laid_out(
    request: pytest.FixtureRequest,
    build: Build,
    zookeeper: ZooKeeperServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, RealCluster]]:
    """Real bookies in a cluster of this layout, initialised by Java."""
    manager: str = request.param
    with RealCluster.on(zookeeper, build, tmp_path_factory.mktemp(manager), manager=manager) as cluster:
        yield manager, cluster.start(2)


async def each_reads_the_other(python: BookKeeper, java: JavaPeer) -> list[int]:
    """A ledger of either, read by the other; both are listed by both."""
    ours = await written(python, 30, **SIZES)
    theirs: int = (await java("create", **JAVA_SIZES))["ledger"]
    await java("append", theirs, count=30)
    assert ours != theirs
    assert await payloads_of(await python.open_ledger(theirs, recover=True)) == patterns(30)
    await java("open", ours)
    assert await java.payloads(ours) == patterns(30)
    return [ours, theirs]


async def lists_of_both(python: BookKeeper, java: JavaPeer) -> tuple[set[int], set[int]]:
    return {ledger_id async for ledger_id in python.list_ledgers()}, set((await java("list"))["ledgers"])


@pytest.mark.matrix("flat and long hierarchical layouts, initialised by Java")
async def test_both_clients_on_a_layout_of_java_s(
    build: Build,
    laid_out: tuple[str, RealCluster],
    zookeeper: ZooKeeperServer,
    new_client: ClientFactory,
    new_peer: PeerFactory,
    wire: int,
) -> None:
    manager, cluster = laid_out
    largest_listed = 2**63 if build.lists_large_ids else 2**31
    assert CLASSES[manager].encode() in znodes_of(zookeeper, cluster)["/LAYOUT"][0]
    # A client that is not told the layout finds it out.
    uri = re.sub(r"^zk\+\w+", "zk", cluster.metadata_uri)
    python: BookKeeper = await new_client(uri, connections={"protocol_version": wire}, timeouts=PATIENT)
    java = new_peer(cluster.metadata_uri, wire)
    made = await each_reads_the_other(python, java)
    if manager == "longhierarchical":
        large = 2**62 + wire
        async with await python.create_ledger(ledger_id=large, ensemble_size=2, write_quorum_size=2) as writer:
            await writer.append(pattern(1))
        await java("open", large)
        assert await java.payloads(large) == [pattern(1)]
        made.append(large)

    by_python, by_java = await lists_of_both(python, java)

    assert set(made) <= by_python
    if (
        manager == "flat"
    ):  # its counter lies beside the ledgers; with another one, clients would ask for ids that are taken
        assert "idgen" not in await asyncio.to_thread(names_in, zookeeper, cluster)
    assert by_java == {ledger_id for ledger_id in by_python if ledger_id < largest_listed}


def root_of(cluster: RealCluster) -> str:
    return re.sub(r"^[^:]*://[^/]*", "", cluster.metadata_uri)


def names_in(zookeeper: ZooKeeperServer, cluster: RealCluster) -> list[str]:
    """The znodes right below the root of a cluster."""
    paths = [path for path, _, _ in znodes_below(zookeeper.address, root_of(cluster), passing_over="/.*/.*")]
    return [path.removeprefix("/") for path in paths if path]


@pytest.mark.matrix("ids above 2^31 in the hierarchical layout")
async def test_large_ids_in_the_hierarchical_layout(
    python: BookKeeper, java: JavaPeer, build: Build, wire: int
) -> None:
    ours, theirs = 2**31 + 10 + wire, 2**45 + 10 + wire
    async with await python.create_ledger(ledger_id=ours) as writer:
        await writer.append(pattern(1))
    for edge in (2**31 - 2, 2**31 - 1):  # the last of the short names, and the first of the long ones
        async with await python.create_ledger(ledger_id=edge) as writer:
            await writer.append(pattern(1))
        await java("open", edge)
        assert await java.payloads(edge) == [pattern(1)]
        await java("delete", edge)
    await java("create", ledger_id=theirs)
    await java("append_at", theirs, entry=0, payload=pattern(1))
    await java("close", theirs)

    await java("open", ours)
    assert await java.payloads(ours) == [pattern(1)]
    assert await payloads_of(await python.open_ledger(theirs, recover=True)) == [pattern(1)]
    by_python, by_java = await lists_of_both(python, java)
    assert {ours, theirs} <= by_python
    if build.lists_large_ids:
        assert by_java == by_python
    else:
        assert not {ours, theirs} & by_java, "it stops after the small ones"
    await python.delete_ledger(theirs)
    await java("delete", ours)


#: What holds ledgers, ids to give away, and the state of repairs.
LEDGERS = re.compile(r"/(\d+|idgen.*|underreplication)")


def znodes_of(zookeeper: ZooKeeperServer, cluster: RealCluster) -> dict[str, tuple[bytes, int, int, int]]:
    """Data, who made it when, when it was changed and whose it is, of every znode of a cluster but its ledgers."""
    return {
        path: (data, stat.czxid, stat.mzxid, stat.ephemeralOwner)
        for path, data, stat in znodes_below(zookeeper.address, root_of(cluster), passing_over=LEDGERS.pattern)
        if path
    }


@pytest.mark.matrix("cookies and registrations untouched by the Python client")
async def test_a_client_touches_nothing_but_ledgers(
    real: RealCluster, zookeeper: ZooKeeperServer, new_client: ClientFactory, wire: int
) -> None:
    before = await asyncio.to_thread(znodes_of, zookeeper, real)
    python: BookKeeper = await new_client(real.metadata_uri, connections={"protocol_version": wire}, timeouts=PATIENT)
    ledger_id = await written(python, 30, custom_metadata={"k": b"v"})
    open_one = await python.create_ledger()
    await open_one.append(pattern(0))
    assert await payloads_of(await python.open_ledger(open_one.ledger_id, recover=True)) == [pattern(0)]
    await python.bookies()
    assert [each async for each in python.list_ledgers()]
    admin: Any = RepairAdmin(python)
    assert (await admin.check_ledger(ledger_id, thorough=True)).is_sound
    await admin.recover_bookie([real.bookies[0].bookie_id], ledger_ids=[ledger_id])
    for each in (ledger_id, open_one.ledger_id):
        await python.delete_ledger(each)

    after = await asyncio.to_thread(znodes_of, zookeeper, real)

    assert after == before
    kinds = {path.split("/")[1] for path in before}
    assert kinds >= {"LAYOUT", "INSTANCEID", "available", "cookies"}
    assert len([path for path in before if path.startswith("/cookies/")]) == len(real.bookies)

"""Apache BookKeeper's own bookies, shell and client on the embedded ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.builds import Build
from tests.interop.conftest import PATIENT, ClientFactory, PeerFactory
from tests.interop.java_peer import pattern, sha256_of
from tests.interop.real_bookie import RealCluster
from tests.zookeepers import EmbeddedInThread

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

ENTRIES = 50


@pytest.fixture
def cluster(build: Build, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three real bookies that registered in an embedded ZooKeeper, in a cluster that BookKeeper's shell made."""
    with (
        EmbeddedInThread() as zookeeper,
        RealCluster.on(zookeeper, build, tmp_path_factory.mktemp("embedded")) as cluster,
    ):
        yield cluster.start(3)


async def test_real_bookies_and_both_clients_work_with_it(
    cluster: RealCluster, new_peer: PeerFactory, new_client: ClientFactory
) -> None:
    java = new_peer(cluster.metadata_uri, 3, own=True)
    python = await new_client(cluster.metadata_uri, timeouts=PATIENT)

    by_java: int = (await java("create"))["ledger"]
    await java("append", by_java, count=ENTRIES)
    reader = await python.open_ledger(by_java, recover=True)  # which fences it, because its writer has not closed it
    assert [entry.payload async for entry in reader] == [pattern(entry_id) for entry_id in range(ENTRIES)]

    writer = await python.create_ledger()
    for entry_id in range(ENTRIES):
        await writer.append(pattern(entry_id))
    await writer.close()
    await java("open", writer.ledger_id)
    read = await java("read", writer.ledger_id, payloads=False)
    assert read["sha256"] == sha256_of([pattern(entry_id) for entry_id in range(ENTRIES)])
    assert {by_java, writer.ledger_id} <= set((await java("list"))["ledgers"])


def test_real_bookies_that_die_are_missed_and_come_back(cluster: RealCluster) -> None:
    victim = cluster.bookies[0]
    victim.kill()
    cluster.wait_unregistered(victim.bookie_id)
    victim.spawn()
    cluster.wait_registered(victim.bookie_id)

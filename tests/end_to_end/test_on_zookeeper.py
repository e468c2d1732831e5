"""The whole thing for real: ZooKeeper, bookie processes, TCP, SIGKILL, SIGSTOP.

All stories share one ZooKeeper server and one cluster of processes; each kills or stops bookies and brings them back, so that
the next one finds as many as it needs. A bookie that was killed comes back empty.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
from kazoo.client import KazooClient

import bkclient
from bkclient import BookKeeper, ClientConfig, LedgerState, LedgerWriter, TimeoutSettings
from bkclient.errors import LedgerFenced, MetadataStoreError, NoSuchLedger
from simbookie.processes import ProcessCluster
from tests.zookeepers import AnyZooKeeper

ROOT = "/end-to-end/ledgers"
BOOKIES = 5


@pytest.fixture(scope="module")
def cluster(zookeeper_server: AnyZooKeeper) -> Iterator[ProcessCluster]:
    with ProcessCluster(zookeeper_server.metadata_uri(ROOT), BOOKIES, session_timeout_s=1.0) as running:
        yield running


async def append_many(writer: LedgerWriter, first: int, last: int) -> None:
    for entry_id in range(first, last):
        await writer.wait_for_room()
        writer.append_nowait(b"line %d" % entry_id)


async def contents(client: BookKeeper, ledger_id: int) -> list[bytes]:
    reader = await client.open_ledger(ledger_id, recover=True)
    return [entry.payload async for entry in reader]


async def until_registered(client: BookKeeper, count: int) -> None:
    async with asyncio.timeout(30):
        while len((await client.bookies()).writable) < count:  # noqa: ASYNC110  another process registers
            await asyncio.sleep(0.02)


async def test_a_ledger_survives_a_killed_bookie_and_a_takeover(cluster: ProcessCluster) -> None:
    async with bkclient.connect(cluster.metadata_uri) as first, bkclient.connect(cluster.metadata_uri) as second:
        await until_registered(first, BOOKIES)
        writer = await first.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        await append_many(writer, 0, 250)
        await writer.flush()
        await append_many(writer, 250, 500)  # in flight
        victim = cluster.bookie(writer.metadata.last_fragment.ensemble[0])
        await asyncio.to_thread(victim.kill)
        await append_many(writer, 500, 1000)
        await writer.flush()
        await writer.append(b"line 1000")
        assert [250 <= fragment.first_entry_id <= 1000 for fragment in writer.metadata.fragments] == [False, True]
        assert victim.bookie_id not in writer.metadata.last_fragment.ensemble

        reader = await second.open_ledger(writer.ledger_id, recover=True)
        with pytest.raises(LedgerFenced) as fenced:
            await writer.append(b"I am still here")
        assert fenced.value.ledger_id == writer.ledger_id
        assert reader.metadata.state is LedgerState.CLOSED
        assert reader.last_add_confirmed == 1000
        assert [entry.payload async for entry in reader] == [b"line %d" % entry_id for entry_id in range(1001)]
        await asyncio.to_thread(victim.restart)


async def test_a_bookie_that_stands_still_is_replaced_after_the_add_timeout(cluster: ProcessCluster) -> None:
    config = ClientConfig(timeouts=TimeoutSettings(add_s=0.5, read_s=0.5))
    async with bkclient.connect(cluster.metadata_uri, config=config) as client:
        await until_registered(client, BOOKIES)
        writer = await client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3)
        await writer.append(b"line 0")
        stopped = cluster.bookie(writer.metadata.last_fragment.ensemble[1])
        stopped.pause()
        try:
            began = asyncio.get_running_loop().time()
            assert await writer.append(b"line 1") == 1
            assert asyncio.get_running_loop().time() - began >= 0.5
            assert stopped.bookie_id not in writer.metadata.last_fragment.ensemble
            await writer.close()
            # readers ask the bookie that stands still first or not at all, and get everything either way
            assert await contents(client, writer.ledger_id) == [b"line 0", b"line 1"]
        finally:
            stopped.resume()


async def test_a_recovery_does_not_wait_for_a_bookie_that_stands_still_but_has_it_fenced(
    cluster: ProcessCluster,
) -> None:
    timeout_s = 10.0
    config = ClientConfig(timeouts=TimeoutSettings(add_s=timeout_s, read_s=timeout_s))
    async with bkclient.connect(cluster.metadata_uri, config=config) as client:
        await until_registered(client, BOOKIES)
        writer = await client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        await append_many(writer, 0, 100)
        await writer.flush()
        stopped = cluster.bookie(writer.metadata.last_fragment.ensemble[2])
        stopped.pause()
        try:
            async with asyncio.timeout(timeout_s):
                reader = await client.open_ledger(writer.ledger_id, recover=True)
        finally:
            stopped.resume()
        assert [entry.payload async for entry in reader] == [b"line %d" % entry_id for entry_id in range(100)]
        with pytest.raises(LedgerFenced):
            await writer.append(b"line 100")


async def test_writes_go_on_while_zookeeper_is_away(own_zookeeper: AnyZooKeeper) -> None:
    with ProcessCluster(own_zookeeper.metadata_uri(), 3, session_timeout_s=20.0) as cluster:
        config = ClientConfig(timeouts=TimeoutSettings(metadata_session_s=20.0))
        async with bkclient.connect(cluster.metadata_uri, config=config) as client:
            writer = await client.create_ledger()
            await append_many(writer, 0, 100)
            await writer.flush()
            await asyncio.to_thread(own_zookeeper.stop)
            await append_many(writer, 100, 1000)
            await writer.flush()
            assert writer.last_add_confirmed == 999
            closing_ledger = asyncio.create_task(writer.close())
            await asyncio.sleep(0)
            assert not closing_ledger.done()
            await asyncio.to_thread(own_zookeeper.start)
            await closing_ledger
            assert await contents(client, writer.ledger_id) == [b"line %d" % entry_id for entry_id in range(1000)]


async def test_the_metadata_is_laid_out_as_bookkeeper_does(
    cluster: ProcessCluster, zookeeper_server: AnyZooKeeper
) -> None:
    async with bkclient.connect(cluster.metadata_uri) as client:
        await until_registered(client, BOOKIES)
        async with await client.create_ledger(custom_metadata={"application": b"test"}) as writer:
            await writer.append(b"one")
        ids = [ledger_id async for ledger_id in client.list_ledgers()]
        assert writer.ledger_id in ids
        assert ids == sorted(ids)

        def look() -> tuple[bytes, bytes, list[str]]:
            zookeeper = KazooClient(zookeeper_server.address)
            zookeeper.start(10)
            with closing(zookeeper):
                try:
                    padded = f"{writer.ledger_id:010d}"
                    path = f"{ROOT}/{padded[:2]}/{padded[2:6]}/L{padded[6:]}"
                    return (
                        zookeeper.get(f"{ROOT}/LAYOUT")[0],
                        zookeeper.get(path)[0],
                        sorted(zookeeper.get_children(f"{ROOT}/available")),
                    )
                finally:
                    zookeeper.stop()

        layout, stored, registered = await asyncio.to_thread(look)
        assert layout.startswith(b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:")
        assert stored.startswith(b"BookieMetadataFormatVersion\t3\n")
        assert registered == sorted((*cluster.bookie_ids, "readonly"))

        await client.delete_ledger(writer.ledger_id)
        with pytest.raises(NoSuchLedger):
            await client.open_ledger(writer.ledger_id, recover=True)


@pytest.mark.behaviour("T-34")
async def test_clients_learn_of_a_wrong_root_and_of_a_missing_zookeeper(zookeeper_server: AnyZooKeeper) -> None:
    with pytest.raises(MetadataStoreError):
        async with bkclient.connect(zookeeper_server.metadata_uri("/nothing/here")):
            pass
    with pytest.raises(MetadataStoreError):
        async with bkclient.connect(
            "zk://127.0.0.1:1/ledgers", config=ClientConfig(timeouts=TimeoutSettings(metadata_session_s=0.5))
        ):
            pass


async def test_a_client_process_that_dies_leaves_its_ledger_to_others(cluster: ProcessCluster) -> None:
    program = (
        "import asyncio, json, sys, bkclient\n"
        "async def main():\n"
        "    async with bkclient.connect(sys.argv[1]) as client:\n"
        "        writer = await client.create_ledger()\n"
        "        for i in range(100):\n"
        "            await writer.append(b'line %d' % i)\n"
        "        print(json.dumps({'ledger': writer.ledger_id}), flush=True)\n"
        "        while True:\n"
        "            await writer.append(b'line %d' % (writer.last_add_pushed + 1))\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cluster.metadata_uri, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            ledger_id = json.loads(await process.stdout.readline())["ledger"]
    finally:
        process.kill()
        await process.wait()
    async with bkclient.connect(cluster.metadata_uri) as client:
        payloads = await contents(client, ledger_id)
    assert len(payloads) >= 100
    assert payloads == [b"line %d" % entry_id for entry_id in range(len(payloads))]

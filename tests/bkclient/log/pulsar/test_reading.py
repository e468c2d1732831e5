"""A Pulsar topic read from bookies and ZooKeeper, as a class and as a command; what is in both is what Pulsar wrote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import bkclient
from bkclient import BookKeeper
from bkclient.errors import ArgumentError, DigestMismatch, NoSuchLedger
from bkclient.log import MessageId, NoSuchLog
from bkclient.log.pulsar import PulsarReader
from bkclient.log.pulsar.pulsar_pb2 import StoredManagedLedger
from simbookie.cluster import memory_cluster
from simbookie.processes import ProcessCluster
from tests.bkclient.cli.invoking import Outcome, invoke
from tests.bkclient.log.pulsar.recorded import ENTRIES
from tests.zookeepers import AnyZooKeeper

NAMES = ["plain", "batch-NONE", "chunk-0", "encrypted", "marker", "by-broker", "unchecked"]


@pytest.fixture
async def client(zookeeper_server: AnyZooKeeper, zookeeper_root: str) -> AsyncIterator[BookKeeper]:
    uri = zookeeper_server.metadata_uri(zookeeper_root)
    with ProcessCluster(uri, 1) as _:
        async with bkclient.connect(uri) as client:
            yield client


async def write(client: BookKeeper, topic: str, entries: list[list[bytes]]) -> list[int]:
    """A topic with one ledger for each list; the last one stays open."""
    stored, ids = StoredManagedLedger(), []
    for number, payloads in enumerate(entries):
        writer = await client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
        for payload in payloads:
            await writer.append(payload)
        if number < len(entries) - 1:
            await writer.close()
        stored.ledgerInfo.add(ledgerId=writer.ledger_id)
        ids.append(writer.ledger_id)
    await client.parent_tree().create(f"managed-ledgers/{topic}", stored.SerializeToString())
    return ids


async def bk(uri: str, *arguments: str) -> Outcome:
    return await asyncio.to_thread(invoke, *arguments, "--metadata", uri)


async def test_what_a_topic_holds_is_read_across_its_ledgers(
    client: BookKeeper, zookeeper_server: AnyZooKeeper, zookeeper_root: str
) -> None:
    payloads = [ENTRIES[name] for name in NAMES]
    first, second = await write(client, "shop/eu/persistent/orders-partition-2", [payloads[:3], payloads[3:]])
    reader = PulsarReader(client, "persistent://shop/eu/orders-partition-2")

    assert [ledger.ledger_id for ledger in (await reader.topic()).ledgers] == [first, second]
    found = [message async for message in reader.messages()]
    # The last entry of a ledger that is written to is not confirmed by another one; its idle writer may have told bookies.
    places = [(first, 0, -1), (first, 1, 0), (first, 1, 1), (first, 1, 2), (first, 2, -1)]
    places += [(second, 0, -1), (second, 1, -1), (second, 2, -1)]
    last = [(second, 3, -1)][: len(found) - len(places)]
    assert [message.id for message in found] == [MessageId(ledger, entry, 2, i) for ledger, entry, i in places + last]
    for number, message in enumerate(found):
        for start in (message.id, message.id._replace(partition=-1)):
            assert [each async for each in reader.messages(start)] == found[number:]
            assert [each async for each in reader.messages(start, inclusive=False)] == found[number + 1 :]
    assert [each async for each in reader.messages(MessageId.LATEST)] == []

    uri, topic = zookeeper_server.metadata_uri(zookeeper_root), "shop/eu/orders-partition-2"
    printed = await bk(uri, "log", "read", topic, "--pulsar")
    assert (printed.code, printed.text.splitlines()[:8]) == (
        0,
        [
            "plain",
            *("message 0", "", "message 2"),
            f"({first}:2:2:-1: chunk 0 of 2 of message p-7)",
            f"({second}:0:2:-1: encrypted by app.key)",
            f"({second}:1:2:-1: marker 10 of a broker)",
            "indexed",
        ],
    )
    some = await bk(uri, "log", "read", topic, "--pulsar", "--json", "--start", f"{first}:1:-1:1", "--count", "3")
    assert some.code == 0
    assert [(each["id"], each.get("isNull")) for each in some.objects] == [
        (f"{first}:1:2:1", True),
        (f"{first}:1:2:2", None),
        (f"{first}:2:2:-1", None),
    ]
    assert some.objects[0] | {"publishMs": 0} == {
        "id": f"{first}:1:2:1",
        "payload": "",
        "key": "key",
        "properties": {"n": "1"},
        "eventMs": 6,
        "publishMs": 0,
        "producer": "producer",
        "sequenceId": 7,
        "isNull": True,
    }
    assert some.objects[2]["chunk"] == {"number": 0, "of": 2, "message": "p-7"}
    assert (await bk(uri, "log", "read", topic, "--pulsar", "--count", "0")).stdout == b""
    missing = await bk(uri, "log", "read", "nothing", "--pulsar")
    assert (missing.code, missing.stderr) == (1, "bk: there is no Pulsar topic 'nothing'\n")
    for wrong in (["--compacted"], ["--start-ms", "1"], ["--start", "1:1", "--start", "2:2"]):
        assert (await bk(uri, "log", "read", topic, "--pulsar", *wrong)).code == 2


async def test_what_cannot_be_read_is_told_with_its_place(
    client: BookKeeper, zookeeper_server: AnyZooKeeper, zookeeper_root: str
) -> None:
    with pytest.raises(NoSuchLog, match="no Pulsar topic 'orders'"):
        await PulsarReader(client, "orders").topic()
    (ledger_id,) = await write(client, "public/default/persistent/broken", [[ENTRIES["plain"], b"junk", b"more"]])
    with pytest.raises(DigestMismatch, match=f"ledger {ledger_id}, entry 1: it is no entry of a Pulsar topic"):
        _ = [message async for message in PulsarReader(client, "broken").messages()]
    printed = await bk(zookeeper_server.metadata_uri(zookeeper_root), "log", "read", "broken", "--pulsar")
    assert printed.code == 4
    assert printed.text == "plain\n"
    assert f"ledger {ledger_id}, entry 1" in printed.stderr

    stored = StoredManagedLedger()
    stored.ledgerInfo.add(ledgerId=5).offloadContext.bookkeeperDeleted = True
    await client.parent_tree().create("managed-ledgers/public/default/persistent/cold", stored.SerializeToString())
    with pytest.raises(NoSuchLedger, match="ledger 5: it was moved to tiered storage"):
        _ = [message async for message in PulsarReader(client, "cold").messages()]


async def test_a_cluster_whose_metadata_is_in_memory_has_no_topics() -> None:
    async with memory_cluster() as uri, bkclient.connect(uri) as client:
        with pytest.raises(ArgumentError, match="no access to nodes beside those of BookKeeper"):
            await PulsarReader(client, "orders").topic()

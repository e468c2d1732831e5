"""A topic that Apache Pulsar's own classes write to our bookies, through BookKeeper's client, and that we read."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import bkclient
from bkclient.log import MessageId
from bkclient.log.pulsar import PulsarMessage, PulsarReader
from bkclient.log.pulsar.entry import decode_pulsar_entry
from simbookie.java import find_java
from simbookie.processes import ProcessCluster
from simbookie.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

BUILD = Path(__file__).resolve().parents[2] / "build" / "interop" / "pulsar"
LEDGER_ENTRIES = 6


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperServer) -> Iterator[ProcessCluster]:
    """Three bookies of ours, where Pulsar looks for them."""
    with ProcessCluster(zookeeper.metadata_uri("/ledgers"), 3) as running:
        yield running


def written(zookeeper: ZooKeeperServer, topic: str, info: str, ways: str) -> dict[str, tuple[int, int, bytes]]:
    """Have Pulsar write a topic; ledger, entry and bytes by what was written, in order."""
    classes = f"{Path(__file__).parent / 'peer' / 'resources'}:{BUILD / 'classes'}:{BUILD / 'lib' / '*'}"
    java = [str(find_java().executable), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    logging = ["-Dlog4j.configurationFile=log4j2-interop.xml", "-Dinterop.log.level=ERROR"]
    command = [*java, *logging, "-cp", classes, "PulsarTopicWriter", zookeeper.address, topic, info, ways]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = {}
    for line in done.stdout.splitlines():
        match line.split():
            case [name, place, data] if ":" in place:
                ledger_id, _, entry_id = place.partition(":")
                found[name] = (int(ledger_id), int(entry_id), bytes.fromhex(data))
    return found


@pytest.mark.parametrize("info", ["NONE", "ZSTD"])
async def test_what_pulsar_writes_is_read(cluster: ProcessCluster, zookeeper: ZooKeeperServer, info: str) -> None:
    name = f"orders-{info.lower()}-partition-3"
    entries = written(zookeeper, f"shop/eu/persistent/{name}", info, "NONE,LZ4,ZLIB,ZSTD")
    assert len(entries) == 22

    async with bkclient.connect(cluster.metadata_uri) as client:
        reader = PulsarReader(client, f"persistent://shop/eu/{name}")
        topic = await reader.topic()
        found = [message async for message in reader.messages()]

    assert [ledger.entries for ledger in topic.ledgers[:-1]] == [LEDGER_ENTRIES] * 3
    expected: list[PulsarMessage] = []
    for ledger_id, entry_id, data in list(entries.values())[:-1]:  # the last one is not confirmed by another yet
        expected += decode_pulsar_entry(data, ledger_id, entry_id, 3)
    assert found == expected
    assert {message.id.ledger_id for message in found} == {ledger.ledger_id for ledger in topic.ledgers}
    by_place = {message.id: message.payload for message in found}
    for way in ("NONE", "LZ4", "ZLIB", "ZSTD"):
        ledger_id, entry_id, _ = entries[f"batch-{way}"]
        assert by_place[MessageId(ledger_id, entry_id, 3, 2)] == b"message 2"
        ledger_id, entry_id, _ = entries[f"compressed-{way}"]
        assert by_place[MessageId(ledger_id, entry_id, 3)] == b"text that compresses, " * 40

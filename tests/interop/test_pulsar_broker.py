"""A Pulsar broker with our bookies: what Pulsar's client publishes is acknowledged, and is what we read from the ledgers."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

import bkclient
from bkclient.log.pulsar import PulsarMessage, PulsarReader
from simbookie.processes import ProcessCluster
from simbookie.zookeeper import ZooKeeperServer
from tests.interop.pulsar_broker import PulsarBroker, pulsar_build

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

TOPIC = "persistent://public/default/orders"
SPLIT = "persistent://public/default/split"
SETTINGS = {
    "managedLedgerDefaultEnsembleSize": "3",
    "managedLedgerDefaultWriteQuorum": "3",
    "managedLedgerDefaultAckQuorum": "2",
    "managedLedgerInfoCompressionType": "ZSTD",
    "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
    "defaultRetentionTimeInMinutes": "-1",  # otherwise a ledger without a subscription is deleted once it is closed
    "defaultRetentionSizeInMB": "-1",
}


class Told(NamedTuple):
    """What Pulsar's client says of one message."""

    id: str
    key: str | None
    payload: bytes


class Published(NamedTuple):
    """What was published to the topics of a broker that has ended."""

    uri: str
    by_topic: dict[str, list[Told]]


@pytest.fixture(scope="module", params=[2, 3], ids=["v2", "v3"])
def published(
    request: pytest.FixtureRequest, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Published]:
    """Everything that ``PulsarProducer`` publishes, on bookies of ours."""
    build, reason = pulsar_build()
    assert build is not None, reason
    root = f"/broker-v{request.param}"
    settings = {**SETTINGS, "bookkeeperUseV2WireProtocol": str(request.param == 2).lower()}
    with ProcessCluster(zookeeper.metadata_uri(f"{root}/ledgers"), 3) as bookies:
        with PulsarBroker(
            build, tmp_path_factory.mktemp("pulsar") / "broker", bookies.metadata_uri, root, settings
        ) as broker:
            command = build.command("PulsarProducer", broker.url, broker.admin_url, log_level="ERROR")
            done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
            assert done.returncode == 0, done.stderr[-3000:]
        found: dict[str, list[Told]] = {}
        for line in done.stdout.splitlines():
            topic, place, key, payload = line.split(" ")
            partition = place.split(":")[2]
            of = topic if partition == "-1" else f"{topic}-partition-{partition}"
            told = Told(place, None if key == "-" else key, bytes.fromhex(payload[1:]))
            found.setdefault(of, []).append(told)
        yield Published(bookies.metadata_uri, found)


async def read(uri: str, topic: str) -> list[PulsarMessage]:
    async with bkclient.connect(uri) as client:
        return [message async for message in PulsarReader(client, topic).messages()]


def joined(messages: Sequence[PulsarMessage]) -> list[Told]:
    """As a consumer gets them: a message that was split is one, and has the id of its last part."""
    parts: dict[str, bytes] = {}
    whole = []
    for message in messages:
        payload = parts.pop(message.chunked_id, b"") + message.payload
        if message.chunk + 1 < message.chunks:
            parts[message.chunked_id] = payload
        else:
            whole.append(Told(str(message.id), message.key, payload))
    assert not parts
    return whole


async def test_messages_that_a_broker_stored_are_read(published: Published) -> None:
    messages = await read(published.uri, TOPIC)

    assert len(published.by_topic[TOPIC]) == 3 + 5 * 20 + 2
    assert joined(messages) == published.by_topic[TOPIC]
    assert len({message.id.ledger_id for message in messages}) == 2
    assert [message.index for message in messages] == list(range(len(messages)))
    assert {message.batch_size for message in messages} == {1, 6, 7}
    assert sum(message.chunks == 3 for message in messages) == 3
    with_all, gone = messages[1:3]
    assert (with_all.event_ms, with_all.ordering_key) == (1_600_000_000_123, b"order")
    assert dict(with_all.properties) == {"colour": "blau, größer"}
    assert [message.id for message in messages if message.is_null] == [gone.id]


async def test_partitions_that_a_broker_stored_are_read(published: Published) -> None:
    for partition in range(2):
        topic = f"{SPLIT}-partition-{partition}"
        assert joined(await read(published.uri, topic)) == published.by_topic[topic]
    assert sum(map(len, published.by_topic.values())) - len(published.by_topic[TOPIC]) == 10


def test_the_command_shows_them(published: Published) -> None:
    bk = Path(sys.executable).with_name("bk")
    command = [str(bk), "log", "read", TOPIC, "--pulsar", "--json", "-m", published.uri]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [base64.b64decode(each["payload"]) for each in told if "chunk" not in each] == [
        each.payload for each in published.by_topic[TOPIC] if len(each.payload) != 2_500
    ]

"""Changes of the ensemble whose write gets no answer from ZooKeeper: what the writer does, and what is stored in the end.

A writer that found its change not stored, and has no bookie for another one, first writes the metadata as they are: then the
lost write would come too late (W-48). Simulated worlds have the same stories with a store of their own; here the ZooKeeper
library, its sessions and a service are between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from random import Random

import pytest

import bkclient
from bkclient import BookKeeper, ClientConfig, LedgerMetadata, LedgerState, TimeoutSettings
from bkclient.errors import MetadataVersionConflict, NotEnoughBookies
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.opening import open_store
from simbookie.processes import ProcessCluster
from tests.doubtful_zookeeper import Doubt, DoubtfulZooKeeper, OffersWhile
from tests.zookeepers import AnyZooKeeper

pytestmark = pytest.mark.rule("W-48")

PATIENCE_S = 30
CONFIG = ClientConfig(timeouts=TimeoutSettings(add_s=0.3, metadata_session_s=2.0))


@pytest.fixture(scope="module")
def cluster(zookeeper_server: AnyZooKeeper) -> Iterator[ProcessCluster]:
    with ProcessCluster(zookeeper_server.metadata_uri("/in-doubt/ledgers"), 4, session_timeout_s=20.0) as running:
        yield running


@dataclass(frozen=True, slots=True)
class Story:
    """What becomes of the first writes; until how many there is a bookie to take the other's place; and what that comes to.

    ``changes`` has an item for each write until the writer goes on: whether it would replace the bookie. All of them expect the
    version that the ledger was made with.
    """

    doubts: Sequence[Doubt]
    offers_until: int
    changes: Sequence[bool]
    is_changed: bool


LOST, UNANSWERED, STALLED = Doubt
STORIES = {
    "not stored, and there is another bookie": Story([LOST], 2, [True, True], True),
    "not stored, and there is no other bookie": Story([LOST], 1, [True, False], False),
    "not stored, and what makes sure gets no answer": Story([LOST, UNANSWERED], 1, [True, False], False),
    "not stored, and what makes sure is lost too": Story([LOST, LOST], 1, [True, False, False], False),
    "stored, and the connection is reset": Story([UNANSWERED], 1, [True], True),
    "stored, and the connection falls silent": Story([STALLED], 1, [True], True),
}


@asynccontextmanager
async def in_doubt(
    cluster: ProcessCluster, zookeeper: AnyZooKeeper, doubts: Sequence[Doubt], offers_until: int
) -> AsyncIterator[tuple[BookKeeper, DoubtfulZooKeeper]]:
    async with (
        asyncio.timeout(PATIENCE_S),
        DoubtfulZooKeeper(BookieAddress("127.0.0.1", zookeeper.port), doubts) as proxy,
    ):
        uri = proxy.uri(cluster.metadata_uri, zookeeper.address)
        placement = OffersWhile(lambda: len(proxy.writes) < offers_until)
        async with bkclient.connect(uri, config=CONFIG, placement=placement, rng=Random(3)) as client:
            yield client, proxy


@contextmanager
def standing_still(cluster: ProcessCluster, bookie_id: str) -> Iterator[None]:
    bookie = cluster.bookie(bookie_id)
    bookie.pause()
    try:
        yield
    finally:
        bookie.resume()


async def stored_at_last(cluster: ProcessCluster, first: LedgerMetadata) -> LedgerMetadata:
    """What is stored; where ``first``, the write that met the first doubt, would be refused if it came now."""
    async with aclosing(await open_store(cluster.metadata_uri, rng=Random(4))) as store:
        with pytest.raises(MetadataVersionConflict):
            await store.write_ledger(first, 0)
        return (await store.read_ledger(first.ledger_id)).metadata


async def entries_of(cluster: ProcessCluster, ledger_id: int) -> list[int]:
    async with bkclient.connect(cluster.metadata_uri) as client:
        reader = await client.open_ledger(ledger_id, recover=False)
        return [entry.entry_id async for entry in reader]


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_a_change_without_an_answer(
    cluster: ProcessCluster, zookeeper_server: AnyZooKeeper, story: Story
) -> None:
    async with in_doubt(cluster, zookeeper_server, story.doubts, story.offers_until) as (client, proxy):
        writer = await client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        assert await writer.append(b"before") == 0
        still = writer.metadata.last_fragment.ensemble[1]
        with standing_still(cluster, still):
            # The third answer fails after the ack quorum, and no append follows: the writer can do without a replacement.
            assert await writer.append(b"in time") == 1
            while not proxy.writes:  # noqa: ASYNC110  it tells nobody
                await asyncio.sleep(0.02)
            assert [await writer.append(b"after") for _ in range(10)] == [*range(2, 12)]
            changed, writes = writer.metadata, proxy.changes_of(writer.ledger_id)
        await writer.close()
    assert [(still not in asked.last_fragment.ensemble, version) for asked, version in writes] == [
        (is_change, 0) for is_change in story.changes
    ]
    assert (still not in changed.last_fragment.ensemble) is story.is_changed
    stored = await stored_at_last(cluster, writes[0][0])
    assert (stored.fragments, stored.last_entry_id) == (changed.fragments, 11)
    assert await entries_of(cluster, writer.ledger_id) == [*range(12)]


async def test_a_writer_that_ends_without_an_answer_closes_its_ledger_for_good(
    cluster: ProcessCluster, zookeeper_server: AnyZooKeeper
) -> None:
    async with in_doubt(cluster, zookeeper_server, [Doubt.REQUEST_LOST], 1) as (client, proxy):
        writer = await client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3)
        assert await writer.append(b"before") == 0
        with standing_still(cluster, writer.metadata.last_fragment.ensemble[1]):
            with pytest.raises(NotEnoughBookies):
                await writer.append(b"needs the bookie that stands still")
            await writer.close()
        writes = proxy.changes_of(writer.ledger_id)
    assert [(len(asked.fragments), asked.state, version) for asked, version in writes] == [
        (2, LedgerState.OPEN, 0),
        (1, LedgerState.OPEN, 0),
        (1, LedgerState.CLOSED, 1),
    ]
    assert (await stored_at_last(cluster, writes[0][0])).last_entry_id == 0
    assert await entries_of(cluster, writer.ledger_id) == [0]

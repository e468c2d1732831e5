"""A change of the ensemble whose write gets no answer, with Apache BookKeeper's bookies: its client reads what came of it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from random import Random

import pytest

import bkclient
from bkclient import ClientConfig
from bkclient.metadata.base import BookieAddress
from simbookie.zookeeper import ZooKeeperServer
from tests.doubtful_zookeeper import Doubt, DoubtfulZooKeeper, OffersWhile
from tests.interop.java_peer import JavaPeer, pattern
from tests.interop.real_bookie import RealCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.mark.rule("W-48")
@pytest.mark.parametrize(
    ("doubts", "is_changed"),
    [
        ([Doubt.REQUEST_LOST], False),
        ([Doubt.REQUEST_LOST, Doubt.ANSWER_LOST], False),
        ([Doubt.ANSWER_LOST], True),
        ([Doubt.ANSWERS_STALL], True),
    ],
    ids=[
        "not stored",
        "not stored, and what makes sure gets no answer",
        "stored",
        "stored, and the connection is silent",
    ],
)
async def test_the_java_client_reads_what_a_change_in_doubt_came_to(
    real: RealCluster, zookeeper: ZooKeeperServer, java: JavaPeer, wire: int, doubts: Sequence[Doubt], is_changed: bool
) -> None:
    config = ClientConfig().with_changes(
        connections={"protocol_version": wire}, timeouts={"add_s": 2.0, "read_s": 20.0, "metadata_session_s": 8.0}
    )
    async with DoubtfulZooKeeper(BookieAddress("127.0.0.1", zookeeper.port), doubts) as proxy:
        uri = proxy.uri(real.metadata_uri, zookeeper.address)
        placement = OffersWhile(lambda: not proxy.writes)
        async with bkclient.connect(uri, config=config, placement=placement, rng=Random(5)) as python:
            writer = await python.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
            await writer.append(pattern(0))
            still = real.bookie(writer.metadata.last_fragment.ensemble[1])
            still.signal(signal.SIGSTOP)
            try:
                await writer.append(pattern(1))
                while not proxy.writes:  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.05)
                for entry_id in range(2, 50):
                    await writer.append(pattern(entry_id))
                assert (still.bookie_id not in writer.metadata.last_fragment.ensemble) is is_changed
                assert len(writer.metadata.fragments) == 1 + is_changed
                # Open still: the Java client finds the end by what bookies have, each asked where the metadata say.
                await java("open", writer.ledger_id)
                assert await java.payloads(writer.ledger_id) == [pattern(entry_id) for entry_id in range(50)]
            finally:
                still.signal(signal.SIGCONT)
                await asyncio.to_thread(real.wait_registered, still.bookie_id)

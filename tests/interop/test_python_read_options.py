"""Options that change which bookies the Python client asks for entries, and how, on Apache BookKeeper's own bookies."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

import bkclient
from bkclient import BookKeeper, ClientConfig
from bkclient.errors import ArgumentError, DigestMismatch, UnauthorizedAccess
from bkclient.ledger import DigestType
from bkclient.observability.memory_stats import MemoryStats
from bkclient.observability.stats import OUTSTANDING_READS, REQUESTS, SPECULATIVE_READS
from tests.interop.conftest import PATIENT, ClientFactory
from tests.interop.java_peer import JavaPeer, pattern
from tests.interop.real_bookie import RealCluster
from tests.interop.test_python_client import payloads_of, written
from tests.interop.test_python_reads import STRIPED, UNSTRIPED, Shown, shown, whole

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

COUNT = 20
READ_ENTRY = REQUESTS["READ_ENTRY"][0]


@asynccontextmanager
async def counting(real: RealCluster, stats: MemoryStats, wire: int, **options: Any) -> AsyncIterator[BookKeeper]:
    """A client of whose requests one knows how many go where."""
    config = ClientConfig.of({"connections": {"protocol_version": wire}, "timeouts": PATIENT}).with_changes(**options)
    async with bkclient.connect(real.metadata_uri, config=config, rng=Random(5), stats=stats) as client:
        yield client


def read_by(stats: MemoryStats, bookies: tuple[str, ...]) -> list[int]:
    """How many reads each bookie answered."""
    return [stats.operations_of(READ_ENTRY, bookie_id).succeeded.count for bookie_id in bookies]


@pytest.mark.matrix("speculative reads")
async def test_a_speculative_read_does_not_wait_for_the_first_replica(
    python: BookKeeper, real: RealCluster, wire: int
) -> None:
    ledger_id = await written(python, COUNT, **UNSTRIPED)
    eager, faithful = MemoryStats(), MemoryStats()
    loop = asyncio.get_running_loop()
    async with (
        counting(real, eager, wire, reading={"speculative_first_s": 0.1}) as speculating,
        counting(real, faithful, wire, reading={"speculative_first_s": 0.0}, timeouts={"read_s": 1.5}) as waiting,
    ):
        readers = [await client.open_ledger(ledger_id, recover=True) for client in (speculating, waiting)]
        bookie = real.bookie(readers[0].metadata.last_fragment.ensemble[0])
        for reader in readers:
            assert (await reader.read(0)).payload == pattern(0)  # connections stand
        in_vain = eager.total_of(SPECULATIVE_READS)
        bookie.signal(signal.SIGSTOP)
        try:
            began = loop.time()
            assert (await readers[0].read(2)).payload == pattern(2)
            assert 0.1 <= loop.time() - began < 10, "it did not wait for the timeout of 20 s"
            began = loop.time()
            assert (await readers[1].read(2)).payload == pattern(2)
            assert loop.time() - began >= 1.4, "it did wait for the timeout"
        finally:
            bookie.signal(signal.SIGCONT)
            await asyncio.to_thread(real.wait_registered, bookie.bookie_id)
        assert eager.total_of(SPECULATIVE_READS) == in_vain + 1
        assert faithful.total_of(SPECULATIVE_READS) == 0


@pytest.mark.matrix("sticky reads")
async def test_sticky_reads_keep_to_one_bookie(python: BookKeeper, real: RealCluster, wire: int) -> None:
    ledger_id = await written(python, 60, ensemble_size=3, write_quorum_size=3, ack_quorum_size=3)
    ensemble = (await python.ledger_metadata(ledger_id)).last_fragment.ensemble
    everything = whole(ledger_id, 60)
    spread, stuck = MemoryStats(), MemoryStats()
    async with (
        counting(real, spread, wire, reading={"batch": False}) as client,
        counting(real, stuck, wire, reading={"batch": False, "sticky": True, "speculative_first_s": 0.5}) as sticky,
    ):
        assert [shown(entry) async for entry in await client.open_ledger(ledger_id, recover=True)] == everything
        assert read_by(spread, ensemble) == [20, 20, 20]
        reader = await sticky.open_ledger(ledger_id, recover=True)
        assert [shown(entry) async for entry in reader] == everything
        counts = read_by(stuck, ensemble)
        assert sorted(counts) == [0, 0, 60]
        bookie = real.bookie(ensemble[counts.index(60)])
        bookie.signal(signal.SIGSTOP)
        try:
            assert shown(await reader.read(3)) == everything[3]  # finds out
            before = read_by(stuck, ensemble)
            assert [shown(entry) async for entry in reader.read_range(10, 39)] == everything[10:40]
            assert sorted(now - then for now, then in zip(read_by(stuck, ensemble), before, strict=True)) == [0, 0, 30]
        finally:
            bookie.signal(signal.SIGCONT)
            await asyncio.to_thread(real.wait_registered, bookie.bookie_id)


@pytest.mark.matrix("read ahead")
@pytest.mark.parametrize("window", [1, 4, 1000])
async def test_reads_go_ahead_as_far_as_configured(
    python: BookKeeper, real: RealCluster, wire: int, window: int
) -> None:
    ledger_id = await written(python, 50, **STRIPED)
    ensemble = (await python.ledger_metadata(ledger_id)).last_fragment.ensemble
    stats = MemoryStats()
    async with counting(real, stats, wire, reading={"read_ahead_entries": window}) as client:
        reader = await client.open_ledger(ledger_id, recover=True)
        found: list[Shown] = []
        ahead = 0
        async for entry in reader.read_range(0, 49):
            found.append(shown(entry))
            asked = sum(read_by(stats, ensemble)) + sum(stats.level_of(OUTSTANDING_READS, each) for each in ensemble)
            ahead = max(ahead, asked - len(found))
        assert found == whole(ledger_id, 50)
        assert ahead <= window
        assert ahead >= min(window, 50) - 1


@pytest.mark.matrix("digest types found out, or to be told")
async def test_the_digest_type_is_found_out_unless_that_is_off(
    python: BookKeeper, new_client: ClientFactory, java: JavaPeer, real: RealCluster, wire: int
) -> None:
    strict: BookKeeper = await new_client(
        real.metadata_uri,
        connections={"protocol_version": wire},
        metadata={"digest_type_autodetection": False},
        timeouts=PATIENT,
    )
    for digest_type, java_name in ((DigestType.HMAC, "MAC"), (DigestType.DUMMY, "DUMMY"), (DigestType.CRC32, "CRC32")):
        ledger_id = (await java("create", digest=java_name, password=b"secret"))["ledger"]
        await java("append", ledger_id, count=COUNT)
        await java("close", ledger_id)
        expected = [pattern(entry_id) for entry_id in range(COUNT)]
        wrong = DigestType.CRC32C
        assert await payloads_of(await python.open_ledger(ledger_id, password=b"secret", recover=True)) == expected
        named = await python.open_ledger(ledger_id, password=b"secret", digest_type=wrong, recover=True)
        assert await payloads_of(named) == expected, "what the metadata say counts"
        with pytest.raises(ArgumentError):
            await strict.open_ledger(ledger_id, password=b"secret", recover=True)
        with pytest.raises(DigestMismatch):
            await strict.open_ledger(ledger_id, password=b"secret", digest_type=wrong, recover=True)
        with pytest.raises(UnauthorizedAccess):
            await strict.open_ledger(ledger_id, password=b"guess", digest_type=digest_type, recover=True)
        told = await strict.open_ledger(ledger_id, password=b"secret", digest_type=digest_type, recover=True)
        assert await payloads_of(told) == expected

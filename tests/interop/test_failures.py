"""Real bookies that die and stand still while the Python client, or both clients, use them."""

from __future__ import annotations

import asyncio
import signal

import pytest

from bkclient import BookKeeper
from bkclient.errors import LedgerFenced
from bkclient.repair import RepairAdmin
from tests.interop.conftest import ClientFactory
from tests.interop.java_peer import JavaPeer, pattern
from tests.interop.real_bookie import RealCluster
from tests.interop.test_python_client import payloads_of

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def patterns(count: int) -> list[bytes]:
    return [pattern(entry_id) for entry_id in range(count)]


@pytest.mark.matrix("ensemble change, bookie killed")
async def test_a_bookie_killed_in_mid_write_is_replaced_and_returns(
    python: BookKeeper, new_client: ClientFactory, java: JavaPeer, real: RealCluster, wire: int
) -> None:
    writer = await python.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
    victim = real.bookie(writer.metadata.last_fragment.ensemble[1])
    for entry_id in range(3000):
        await writer.wait_for_room()
        writer.append_nowait(pattern(entry_id))
        if entry_id == 1500:
            await writer.flush()
            victim.kill()
    await writer.flush()
    try:
        assert victim.bookie_id not in writer.metadata.last_fragment.ensemble
        # The ledger is open and a replica is gone for the time being: another client recovers it all the same.
        other: BookKeeper = await new_client(real.metadata_uri, connections={"protocol_version": wire})
        reader = await other.open_ledger(writer.ledger_id, recover=True)
        assert reader.last_add_confirmed == 2999
        assert await payloads_of(reader) == patterns(3000)
        with pytest.raises(LedgerFenced):
            await writer.append(b"too late")
    finally:
        await asyncio.to_thread(real.restart, victim)
    await java("open", writer.ledger_id)
    assert await java.payloads(writer.ledger_id) == patterns(3000)


@pytest.mark.matrix("ensemble change, bookie stood still")
async def test_a_bookie_that_stands_still_is_replaced(
    new_client: ClientFactory, java: JavaPeer, real: RealCluster, wire: int
) -> None:
    python: BookKeeper = await new_client(
        real.metadata_uri, connections={"protocol_version": wire}, timeouts={"add_s": 1.0}
    )
    writer = await python.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3)
    await writer.append(pattern(0))
    victim = real.bookie(writer.metadata.last_fragment.ensemble[2])
    victim.signal(signal.SIGSTOP)
    try:
        for entry_id in range(1, 50):
            await writer.append(pattern(entry_id))
        assert victim.bookie_id not in writer.metadata.last_fragment.ensemble
        await writer.close()
    finally:
        victim.signal(signal.SIGCONT)
        await asyncio.to_thread(real.wait_registered, victim.bookie_id)
    await java("open", writer.ledger_id)
    assert await java.payloads(writer.ledger_id) == patterns(50)
    # All three had to acknowledge each entry, so every bookie in the metadata has it.
    report = await RepairAdmin(python).check_ledger(writer.ledger_id, thorough=True)
    assert report.is_sound, report


@pytest.mark.matrix("Python follows an ensemble change of Java's writer")
async def test_a_python_reader_follows_java_s_ensemble_change(
    python: BookKeeper, java: JavaPeer, real: RealCluster
) -> None:
    ledger_id = (await java("create", ensemble=3, write_quorum=3, ack_quorum=2))["ledger"]
    await java("append", ledger_id, count=100)
    reader = await python.open_ledger(ledger_id, recover=False)
    victim = real.bookie(reader.metadata.last_fragment.ensemble[0])
    appending = asyncio.create_task(java("append", ledger_id, count=300, pause_ms=1))
    await asyncio.sleep(0.1)
    victim.kill()
    try:
        assert (await appending)["last"] == 399
        async with asyncio.timeout(20):
            while await reader.read_last_add_confirmed() < 398:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.05)
        assert await payloads_of(reader) == patterns(reader.last_add_confirmed + 1)
        assert len(reader.metadata.fragments) >= 2
        recovered = await python.open_ledger(ledger_id, recover=True)
        assert await payloads_of(recovered) == patterns(400)
    finally:
        await asyncio.to_thread(real.restart, victim)


@pytest.mark.matrix("data survive SIGKILL of every bookie")
async def test_what_was_acknowledged_survives_the_death_of_every_bookie(
    python: BookKeeper, new_client: ClientFactory, real: RealCluster, wire: int
) -> None:
    writer = await python.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3)
    for entry_id in range(100):
        await writer.append(pattern(entry_id))
    for bookie in real.bookies:
        bookie.kill()

    def restart_all() -> None:
        real.wait_unregistered(*(bookie.bookie_id for bookie in real.bookies))
        for bookie in real.bookies:
            bookie.spawn()
        real.wait_registered(*(bookie.bookie_id for bookie in real.bookies))

    await asyncio.to_thread(restart_all)

    other: BookKeeper = await new_client(real.metadata_uri, connections={"protocol_version": wire})
    reader = await other.open_ledger(writer.ledger_id, recover=True)
    assert await payloads_of(reader) == patterns(100)

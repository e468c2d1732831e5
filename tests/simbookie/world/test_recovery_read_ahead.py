"""How long the shipped client takes to recover a long tail over links with a latency: the reason for reading ahead."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest

from bkclient import BookKeeper, ClientConfig, LimitSettings
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.memory import MemoryStorage, MemoryStorageConfig, RecordLog
from simbookie.world.bookie_host import BookieHost
from simbookie.world.hosts import Host, World
from simbookie.world.links import NetworkConfig
from simbookie.world.metadata import SimulatedMetadataStore
from simbookie.world.transport import SimulatedTransport

NETWORK = NetworkConfig(latency_s=0.001, jitter_s=0.0)
JOURNAL = JournalConfig(sync_latency_s=0.001)


class Recovered(NamedTuple):
    last_entry_id: int
    seconds: float
    messages: int


def recover_a_tail(entries: int, **options: Any) -> Recovered:
    """Append ``entries`` at once, so that none of them tells of a LAC; crash the writer; recover. ``options`` configure that."""
    with World(1, network=NETWORK) as world:
        storages = [MemoryStorage(MemoryStorageConfig(journal=JOURNAL), RecordLog()) for _ in range(3)]
        bookies = [BookieHost(world, f"b{number}", storage=storage) for number, storage in enumerate(storages)]
        writer, recoverer = Host(world, "writer"), Host(world, "recoverer")

        def client(host: Host, config: ClientConfig) -> BookKeeper:
            store, transport = SimulatedMetadataStore(world, host), SimulatedTransport(world, host)
            return BookKeeper(store, transport, config=config, rng=world.rng(host.name))

        async def write(written: asyncio.Future[int]) -> None:
            async with client(writer, ClientConfig(limits=LimitSettings(max_in_flight_entries=entries + 1))) as bk:
                handle = await bk.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
                for _ in range(entries):
                    handle.append_nowait(b"x" * 100)
                await handle.flush()
                written.set_result(handle.ledger_id)
                await asyncio.Event().wait()

        async def recover(ledger_id: int) -> Recovered:
            async with client(recoverer, ClientConfig().with_changes(**options)) as bk:
                started_s, sent = world.loop.time(), world.network.counters.sent
                reader = await bk.open_ledger(ledger_id, recover=True)
                return Recovered(
                    reader.last_add_confirmed, world.loop.time() - started_s, world.network.counters.sent - sent
                )

        async def main() -> Recovered:
            for bookie in bookies:
                await bookie.registered()
            written: asyncio.Future[int] = world.loop.create_future()
            writer.spawn(write, written)
            ledger_id = await written
            writer.crash()
            recovery = recoverer.spawn(recover, ledger_id)
            await world.join(recovery)
            return recovery.result()

        return world.run(main)


@pytest.mark.rule("REC-16")
def test_a_long_tail_is_recovered_in_a_fraction_of_a_round_trip_for_each_entry() -> None:
    one_by_one = recover_a_tail(1000, reading={"recovery_read_ahead_entries": 1})
    by_default = recover_a_tail(1000)

    assert one_by_one.last_entry_id == by_default.last_entry_id == 999
    assert one_by_one.seconds > 1000 * 2 * NETWORK.latency_s
    assert by_default.seconds < one_by_one.seconds / 20
    assert by_default.messages < one_by_one.messages * 1.1


@pytest.mark.rule("REC-16")
def test_a_short_tail_costs_no_more_reads_beyond_its_end_than_it_has_entries() -> None:
    entries, bookies = 10, 3
    one_by_one = recover_a_tail(entries, reading={"recovery_read_ahead_entries": 1})
    by_default = recover_a_tail(entries)

    assert by_default.seconds < one_by_one.seconds
    assert by_default.messages - one_by_one.messages <= entries * bookies * 2  # questions and answers


@pytest.mark.rule("REC-16")
def test_an_empty_ledger_is_recovered_with_the_same_messages_whatever_may_be_read_ahead() -> None:
    assert recover_a_tail(0, reading={"recovery_read_ahead_entries": 1}) == recover_a_tail(0)

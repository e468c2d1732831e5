"""What a client knows of its bookies outlives its session with the metadata service."""

from __future__ import annotations

import asyncio

import pytest

from bkclient import BookKeeper
from bkclient.placement import LedgerShape
from simbookie.world.bookie_host import BookieHost
from simbookie.world.hosts import Host, World
from simbookie.world.metadata import SimulatedMetadataStore
from simbookie.world.transport import SimulatedTransport


@pytest.mark.rule("PL-1")
@pytest.mark.behaviour("T-218")
def test_a_client_goes_on_placing_during_a_lost_session_and_hears_of_changes_after_it() -> None:
    with World(1) as world:
        bookies = [BookieHost(world, f"b{number}") for number in range(3)]
        client = Host(world, "client")

        async def ensemble_of(bk: BookKeeper, size: int) -> set[str]:
            writer = await bk.create_ledger(ensemble_size=size, write_quorum_size=2, ack_quorum_size=2)
            return set(writer.metadata.last_fragment.ensemble)

        async def use() -> None:
            store, transport = SimulatedMetadataStore(world, client), SimulatedTransport(world, client)
            async with BookKeeper(store, transport, rng=world.rng("client")) as bk:
                watcher = bk._placement.watcher
                assert await ensemble_of(bk, 3) == {"b0", "b1", "b2"}
                assert world.metadata.lose_sessions("client", outage_s=5.0) == 1
                assert watcher.is_available("b0")
                newcomer = BookieHost(world, "b3")
                await newcomer.registered()
                assert not watcher.is_available("b3")  # nobody can tell the client yet
                assert watcher.new_ensemble(LedgerShape(3, 2, 2)) is not None
                await asyncio.sleep(10)
                assert watcher.is_available("b3")
                assert await ensemble_of(bk, 4) == {"b0", "b1", "b2", "b3"}

        async def main() -> None:
            for bookie in bookies:
                await bookie.registered()
            await world.join(client.spawn(use))

        world.run(main)

"""A schedule kills a bookie of the simulated world at a step of its storage; the world goes on."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from bkclient.errors import Code
from bkclient.wire.messages import AddRequest, ReadRequest, Request
from simbookie.garbage import GarbageConfig
from simbookie.storage.base import CrashMode
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.sorted import SortedLedgerStore
from simbookie.storage.steps import CrashSchedule
from simbookie.world.bookie_host import BookieHost
from simbookie.world.hosts import Host, World
from simbookie.world.transport import SimulatedTransport


def add(entry_id: int) -> AddRequest:
    header = b"".join(value.to_bytes(8, "big", signed=True) for value in (1, entry_id, -1, 0))
    return AddRequest(1, entry_id, b"k" * 20, header, b"payload")


@pytest.mark.parametrize("step", ["journal.sync", "journal.acknowledge", "index.remove"])
@pytest.mark.parametrize("mode", list(CrashMode))
def test_a_bookie_is_killed_at_a_step_and_starts_again(step: str, mode: CrashMode) -> None:
    schedule = CrashSchedule()
    disk = SimulatedDisk(Random(1), costs=DiskCosts(sync_s=0.001))
    ledgers = Folder(disk, "ledgers/current")
    store = SortedLedgerStore(Folders([ledgers], Random(1)), on_step=schedule)
    storage = JournaledStorage([Folder(disk, "journal/current")], [ledgers], store, on_step=schedule)
    with World(1) as world:
        host = BookieHost(world, "b0", storage=storage, garbage=GarbageConfig(300.0))
        client = Host(world, "client")
        transport = SimulatedTransport(world, client)

        async def ask(request: Request) -> int:
            answer = world.loop.create_future()
            transport.submit("b0", request, lambda _b, _r, code, _response: answer.set_result(code))
            code: int = await answer
            return code

        async def story() -> None:
            await host.registered()
            assert await ask(add(0)) == Code.OK
            host.crash()
            host.restart()  # what was replayed has a file
            await host.registered()
            schedule.arm(lambda: host.crash(mode), before=step)
            if step == "index.remove":
                await asyncio.sleep(301)  # no metadata: the ledger is garbage
            else:
                assert await ask(add(1)) != Code.OK
            assert not host.is_alive
            host.restart()
            await host.registered()
            found: int = Code.BOOKIE_NOT_AVAILABLE
            for _ in range(20):  # a client that lost a connection does not connect anew at once
                await asyncio.sleep(5)
                found = await ask(ReadRequest(1, 0))
                if found == Code.OK:
                    break
            assert found == Code.OK
            assert await ask(add(2)) == Code.OK

        world.run(story)


def test_a_schedule_counts_from_one() -> None:
    with pytest.raises(ValueError, match="number"):
        CrashSchedule().arm(lambda: None, number=0)

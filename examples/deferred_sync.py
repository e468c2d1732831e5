"""Writing faster than disks sync: entries are acknowledged at once, and made durable by the hundred.

A ledger with deferred sync trades safety for latency, and says when the trade ends: what was forced is as safe as in any ledger,
and what was not may be lost if bookies lose power. Three bookies in this process, whose disks take 5 ms for a sync.

python examples/deferred_sync.py
"""

from __future__ import annotations

import asyncio
import time

import bkclient
from simbookie.cluster import memory_cluster
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.memory import MemoryStorageConfig

ENTRIES = 200


async def write(client: bkclient.BookKeeper, *, deferred_sync: bool) -> float:
    """Append entries one after the other, as a program does that needs each answer; returns the seconds it took."""
    began = time.perf_counter()
    async with await client.create_ledger(write_quorum_size=3, deferred_sync=deferred_sync) as writer:
        for number in range(ENTRIES):
            await writer.append(b"entry %d" % number)
            if deferred_sync and number % 100 == 99:
                await writer.force()  # from here on, everything up to this entry is durable
    # Leaving the block forced what was left, and closed the ledger.
    reader = await client.open_ledger(writer.ledger_id)
    assert reader.last_add_confirmed == ENTRIES - 1, "everything is there"
    return time.perf_counter() - began


async def main() -> None:
    """The same writes with a sync for each, and with a sync for every hundred."""
    slow_disk = MemoryStorageConfig(journal=JournalConfig(sync_latency_s=0.005))
    async with memory_cluster(storage=slow_disk) as uri, bkclient.connect(uri) as client:
        for deferred_sync in (False, True):
            seconds = await write(client, deferred_sync=deferred_sync)
            kind = "deferred sync, forced every 100" if deferred_sync else "each entry durable when acknowledged"
            print(f"{kind}: {ENTRIES} entries, {1000 * seconds / ENTRIES:.2f} ms each")


if __name__ == "__main__":
    asyncio.run(main())

"""The client in a minute: three bookies in this process, over TCP, and a ledger on them. No Java, no ZooKeeper.

python examples/quickstart.py
"""

from __future__ import annotations

import asyncio

import bkclient
from bkclient.errors import LedgerFenced
from simbookie.cluster import memory_cluster


async def main() -> None:
    """Write, take over, be refused, read."""
    async with memory_cluster() as uri, bkclient.connect(uri) as writer_client:
        writer = await writer_client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        first = await writer.append(b"durable on two of three bookies when this returns")
        for number in range(1, 1000):  # many in flight
            await writer.submit(b"entry %d" % number)
        await writer.flush()
        print(f"ledger {writer.ledger_id}: entries {first} to {writer.last_add_confirmed}, {writer.length} bytes")

        async with bkclient.connect(uri) as other_client:
            reader = await other_client.open_ledger(
                writer.ledger_id, recover=True
            )  # fences the writer and closes the ledger
            try:
                await writer.append(b"too late")
            except LedgerFenced as error:
                print(f"the writer is refused: {error}")
            async for entry in reader.read_range(0, 2):
                print(entry.entry_id, entry.payload.decode())
            print(f"the last of {reader.last_add_confirmed + 1}:", (await reader.read_last_entry()).payload.decode())


if __name__ == "__main__":
    asyncio.run(main())

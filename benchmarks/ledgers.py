"""Many open ledgers: appends to a thousand of them in turn, and what a writer that does nothing holds.

``append-many-ledgers`` writes to 1,000 ledgers round robin with 1,000 entries in flight, beside the same entries to one
ledger. ``idle-writer`` is memory for each of 10,000 open writers, 100,000 at full scale: of ours the growth of resident
memory, of the Java client that of its heap after a collection. Metadata of ours is in memory for this, and not counted.

    python -m benchmarks.ledgers
"""

from __future__ import annotations

import gc
import os
import random
from functools import partial
from typing import Any

from benchmarks.cluster import Bench, Bookies, a_writer, command, config_of, connected
from benchmarks.java_client import values_of
from benchmarks.measuring import OURS, Contender, Meter, Result, Values, compared, in_turn, run_on
from benchmarks.processes import taken_by
from bkclient import BookKeeper, LedgerWriter
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig

LEDGERS = 1000
ENTRIES = 30_000
WINDOW = 1000
#: Every so many entries it is seen to that no more than the window are in flight: each writer has a window of its own.
_STEP = 250
IDLE = 10_000
#: The Java client makes a ledger in ZooKeeper for each.
IDLE_JAVA = 1000


async def append_in_turn(bookies: Bookies, ledgers: int, entries: int) -> Values:
    """To some ledgers, round robin."""
    # The Java client does not tell bookies of the last confirmed entry by itself, by default.
    async with connected(bookies, 3, WINDOW, writing={"explicit_lac_interval_s": 0}) as client:
        payload = bytes(100)
        # Its connections stand when the ledgers are created, as those of the Java client do, which stays for all rounds.
        async with await client.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=3) as first:
            await first.append(payload)
        writers = [await a_writer(client) for _ in range(ledgers)]
        for writer in writers:
            await writer.append(payload)  # so that bookies know the ledger, which costs them far more than an entry
        futures = []
        with Meter() as meter:
            for number in range(entries):
                futures.append(await writers[number % ledgers].submit(payload))
                if number >= WINDOW and not number % _STEP:
                    await futures[number - WINDOW + _STEP]
            for writer in writers:
                await writer.flush()
        for writer in writers:
            await writer.close()
        return meter.per_entry(entries)


def resident_bytes() -> int:
    """Memory of this process now; Linux only."""
    gc.collect()
    return taken_by(os.getpid()).resident_bytes


async def idle_writers(bookies: Bookies, count: int) -> Values:
    """Resident memory for each."""
    rng = random.Random(1)
    config = config_of(3)
    async with MemoryMetadataService().session(rng=rng) as store:
        for address in bookies.addresses:
            await store.register_bookie(f"{address.host}:{address.port}", address)
        transport = TcpTransport(store.bookie_address, TcpTransportConfig.of_client(config), rng=rng)
        async with BookKeeper(store, transport, config=config, rng=rng) as client:
            first = await a_writer(client)
            await first.append(bytes(100))
            # What the store keeps of a ledger is measured, and taken off.
            before = resident_bytes()
            for _ in range(count):
                await a_writer(client)
            stored = resident_bytes()
            writers: list[LedgerWriter] = [await a_writer(client) for _ in range(count)]
            held = resident_bytes()
            assert len(writers) == count
            return {"memory": (held - stored - (stored - before)) / count}


def measure(bench: Bench) -> list[Result]:
    """All of it."""
    results = []
    for kind in bench.kinds:
        with bench.bookies(kind) as bookies:
            bench.warm(bookies, 3)
            for ledgers in (1, LEDGERS):
                results += _in_turn(bench, bookies, kind, ledgers)
    with bench.bookies("ours") as bookies:
        results += _idle(bench, bookies)
    return results


def _in_turn(bench: Bench, bookies: Bookies, kind: str, ledgers: int) -> list[Result]:
    entries = bench.scaled(ENTRIES, 20 * LEDGERS)

    def ours(way: str) -> Values:
        return run_on(way, append_in_turn(bookies, ledgers, entries))

    def java() -> Values:
        request: dict[str, Any] = {"ledgers": ledgers, "size": 100, "entries": entries, "window": WINDOW}
        return values_of(bench.java_call("append", bookies, 3, **request), entries)

    contenders: dict[str, Contender] = {f"ours-{way}": partial(ours, way) for way in OURS}
    if bench.java is not None:
        contenders["java-client"] = java
    params = {"bookies": kind, "protocol": 3, "payload_bytes": 100, "ledgers": ledgers, "entries": entries}
    return compared("append-many-ledgers", params, in_turn(contenders, min(3, bench.rounds)))


def _idle(bench: Bench, bookies: Bookies) -> list[Result]:
    count = 10 * IDLE if bench.scale > 1 else IDLE

    def java() -> Values:
        return {"memory": bench.java_call("handles", bookies, 3, count=IDLE_JAVA)["bytes"]}

    contenders: dict[str, Contender] = {"ours-asyncio": lambda: run_on("asyncio", idle_writers(bookies, count))}
    if bench.java is not None:
        contenders["java-client"] = java
    # Freed memory is used again by the next sample, so only the first one tells: there is one round, and none before it.
    samples = in_turn(contenders, rounds=1, uncounted=0)
    return compared("idle-writer", {"bookies": "ours", "protocol": 3, "writers": count}, samples)


if __name__ == "__main__":
    command(measure, "Many open ledgers beside the Java client.")

"""Tails: how soon a reader that follows a writer has an entry.

A writer appends an entry every few milliseconds. A bookie tells readers of an entry when the next one arrives, which says
that it is confirmed; so what is measured begins with the append of the next entry and ends when the reader has this one.
Writer and reader share a client and its process.

    python -m benchmarks.tail
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from benchmarks.cluster import Bench, Bookies, a_writer, command, connected
from benchmarks.java_client import values_of
from benchmarks.measuring import OURS, Contender, Result, Values, compared, in_turn, percentiles, run_on

ENTRIES = 300
PAUSE_S = 0.005


async def follow(bookies: Bookies, entries: int) -> Values:
    """By our client."""
    # The writer does not tell of its last entry by itself meanwhile; the Java client's does not, by default.
    async with connected(bookies, 3, writing={"explicit_lac_interval_s": 0}) as client:
        writer = await a_writer(client)
        reader = await client.open_ledger(writer.ledger_id, recover=False)
        appended: list[float] = []

        async def append() -> None:
            for _ in range(entries + 1):
                appended.append(time.perf_counter())
                await writer.append(bytes(100))
                await asyncio.sleep(PAUSE_S)

        appending = asyncio.create_task(append())
        took: list[float] = []
        async for entry in reader.tail():
            took.append(time.perf_counter() - appended[entry.entry_id + 1])
            if len(took) == entries:
                break
        await appending
        await writer.close()
    return percentiles(took)


def measure(bench: Bench) -> list[Result]:
    """Version 2 has no long polls, and is left out."""
    results = []
    entries = bench.scaled(ENTRIES, 100)
    for kind in bench.kinds:
        with bench.bookies(kind) as bookies:

            def ours(way: str, bookies: Bookies = bookies) -> Values:
                return run_on(way, follow(bookies, entries))

            def java(bookies: Bookies = bookies) -> Values:
                pause_ms = int(PAUSE_S * 1e3)
                return values_of(bench.java_call("tail", bookies, 3, entries=entries, pause_ms=pause_ms))

            contenders: dict[str, Contender] = {f"ours-{way}": partial(ours, way) for way in OURS}
            if bench.java is not None:
                contenders["java-client"] = java
            params = {"bookies": kind, "protocol": 3, "payload_bytes": 100, "entries": entries}
            results += compared("tail", params, in_turn(contenders, bench.rounds))
    return results


if __name__ == "__main__":
    command(measure, "The delay of a tail beside the Java client.")

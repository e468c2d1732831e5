"""The pause of an ensemble change: the longest append of a writer while one of its bookies is killed.

Appends are made one at a time. In the middle of them a bookie of the ensemble is killed; a fourth one is there to take its
place. Each sample has fresh bookies.

    python -m benchmarks.change
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from benchmarks.cluster import Bench, Bookies, a_writer, command, connected
from benchmarks.measuring import LOOPS, OURS, Contender, Result, Values, compared, in_turn, run_on

SECONDS = 3.0
#: By then the ensemble has to have been changed, however busy the machine is.
LONGEST_S = 20.0


async def disturbed(bookies: Bookies) -> Values:
    """By our client."""
    async with connected(bookies, 3) as client:
        writer = await a_writer(client)
        victim = writer.metadata.last_fragment.ensemble[0]
        killing = asyncio.create_task(_kill_later(bookies, victim))
        took: list[float] = []
        began = now = time.perf_counter()
        while now < began + SECONDS or (len(writer.metadata.fragments) == 1 and now < began + LONGEST_S):
            await writer.append(bytes(100))
            sent, now = now, time.perf_counter()
            took.append(now - sent)
        await killing
        assert len(writer.metadata.fragments) > 1, "the ensemble was changed"
        await writer.close()
    return {"longest": max(took) * 1e3}


async def _kill_later(bookies: Bookies, victim: str) -> None:
    await asyncio.sleep(SECONDS / 2)
    await asyncio.to_thread(bookies.kill, victim)  # which waits for its end


async def an_ensemble(bookies: Bookies) -> tuple[str, ...]:
    """That of the one ledger there is."""
    async with connected(bookies, 3) as client:
        while True:
            async for ledger_id in client.list_ledgers():
                return (await client.ledger_metadata(ledger_id)).last_fragment.ensemble
            await asyncio.sleep(0.02)


def measure(bench: Bench) -> list[Result]:
    """For both kinds of bookies."""
    results = []
    for kind in bench.kinds:

        def ours(way: str, kind: str = kind) -> Values:
            with bench.bookies(kind, 4) as bookies:
                return run_on(way, disturbed(bookies))

        def java(kind: str = kind) -> Values:
            assert bench.java is not None
            with bench.bookies(kind, 4) as bookies:
                bench.java_begin("disturbed", bookies, 3, seconds=SECONDS)
                victim = run_on(LOOPS[0], an_ensemble(bookies))[0]
                time.sleep(SECONDS / 2)
                bookies.kill(victim)
                answer = bench.java.finish()
            assert answer["ensembles"] > 1, "the ensemble was changed"
            return {"longest": answer["max_us"] / 1e3}

        contenders: dict[str, Contender] = {f"ours-{way}": partial(ours, way) for way in OURS}
        if bench.java is not None:
            contenders["java-client"] = java
        params = {"bookies": kind, "protocol": 3, "payload_bytes": 100}
        results += compared("ensemble-change", params, in_turn(contenders, min(3, bench.rounds)))
    return results


if __name__ == "__main__":
    command(measure, "The pause of an ensemble change beside the Java client.")

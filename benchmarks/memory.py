"""Memory: what an entry in flight holds besides its payload, and whether a client grows with the entries it has written.

``in-flight-entry`` is the growth of resident memory by entries that no bookie has answered, for each of them, without its
payload. ``memory-peak`` and ``memory-growth`` come from one long run of appends: the largest resident memory of the client's
process, and by how much it grew after the first tenth of the entries.

    python -m benchmarks.memory
"""

from __future__ import annotations

import gc
from pathlib import Path

from benchmarks.cluster import Bench, Bookies, a_writer, command, connected
from benchmarks.ledgers import resident_bytes
from benchmarks.measuring import LOOPS, Result, Values, compared, in_turn, run_on

HELD = 20_000
WRITTEN = 1_000_000
SIZE = 100


async def entries_in_flight(bookies: Bookies) -> Values:
    """Entries that are handed to the transport, and not sent yet: all within one turn of the event loop."""
    async with connected(bookies, 3, HELD) as client:
        writer = await a_writer(client)
        await writer.append(bytes(SIZE))
        gc.collect()
        before = resident_bytes()
        futures = [writer.append_nowait(bytes(SIZE)) for _ in range(HELD)]
        held = resident_bytes() - before
        for future in futures:
            await future
        await writer.close()
    return {"memory": held / HELD - SIZE}


def peak_kib() -> int:
    """Largest resident memory of this process; what getrusage() tells includes that of the process it was started by."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


async def many_entries(bookies: Bookies, entries: int) -> Values:
    """Whether memory grows with them."""
    sizes = []
    async with connected(bookies, 3) as client:
        writer = await a_writer(client)
        payload = bytes(SIZE)
        for number in range(entries):
            await writer.submit(payload)
            if number % (entries // 10) == 0:
                sizes.append(resident_bytes())
        await writer.flush()
        await writer.close()
        sizes.append(resident_bytes())
    # The first size is from before anything was allocated for the window, so growth counts from the second on.
    return {"peak": peak_kib() / 1024, "growth": (max(sizes[1:]) - sizes[1]) / 2**20}


def measure(bench: Bench) -> list[Result]:
    """To be run in a process of its own, for its peak is that of the whole process."""
    entries = bench.scaled(WRITTEN, 50_000)
    params = {"bookies": "ours", "protocol": 3, "payload_bytes": SIZE}
    results = []
    with bench.bookies("ours") as bookies:
        samples = in_turn({f"ours-{LOOPS[0]}": lambda: run_on(LOOPS[0], entries_in_flight(bookies))}, 1, uncounted=0)
        results += compared("in-flight-entry", {**params, "entries": HELD}, samples)
        samples = in_turn(
            {f"ours-{LOOPS[0]}": lambda: run_on(LOOPS[0], many_entries(bookies, entries))}, 1, uncounted=0
        )
        results += compared("memory", {**params, "entries": entries}, samples)
    return results


if __name__ == "__main__":
    command(measure, "What entries hold.")

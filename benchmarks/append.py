"""Appends: how many a second, what each costs the client's CPU, and how long it takes.

``append`` has 1,000 entries in flight (fewer of 64 KiB), so a ratio to the ceiling tells what the protocol costs. Client and
bookies share the machine's processors: on few of them throughput is a matter of what is left for the bookies, and CPU time
tells more; so does that of all bookies together, which bounds what any client can reach. ``append-all`` is the same by one
call for all entries, beside the Java client, which has no such call. ``append-alone`` waits for each entry before it sends the
next. Connections stand before anything is measured.

    python -m benchmarks.append
    python -m benchmarks.append --rounds 3 --scale 0.3 --bookies ours --protocol 3
"""

from __future__ import annotations

import time
from functools import partial
from itertools import repeat
from typing import Any

from benchmarks.ceiling import append_bare
from benchmarks.cluster import Bench, Bookies, Metadata, a_writer, command, connected
from benchmarks.java_client import values_of
from benchmarks.measuring import LOOPS, OURS, Contender, Meter, Result, Values, compared, in_turn, percentiles, run_on
from benchmarks.processes import CpuOf

#: Payload, entries of a round, entries in flight.
LOADS = ((100, 30_000, 1000), (1024, 30_000, 1000), (65_536, 1_000, 1000))
ALONE = (100, 2_000)
#: Bytes of the largest payload that is appended by one call: what that saves is small beside what larger ones cost.
TOGETHER_MAX = 1024


async def append_many(bookies: Metadata, protocol: int, size: int, entries: int, window: int, **groups: Any) -> Values:
    """Through our client, pipelined; ``groups`` are of its configuration."""
    async with connected(bookies, protocol, window, **groups) as client:
        writer, payload = await a_writer(client), bytes(size)
        await writer.append(payload)  # so that connections stand, as the Java client's and the ceilings' do
        with Meter() as meter:
            for _ in range(entries):
                await writer.submit(payload)
            await writer.flush()
        await writer.close()
        return meter.per_entry(entries)


async def append_together(bookies: Metadata, protocol: int, size: int, entries: int, window: int) -> Values:
    """Through our client, all entries by one call."""
    async with connected(bookies, protocol, window) as client:
        writer, payload = await a_writer(client), bytes(size)
        await writer.append(payload)  # so that connections stand, as the Java client's and the ceilings' do
        with Meter() as meter:
            await writer.append_all(repeat(payload, entries))
        await writer.close()
        return meter.per_entry(entries)


async def append_alone(bookies: Bookies, protocol: int, size: int, entries: int) -> Values:
    """Through our client, one at a time."""
    async with connected(bookies, protocol) as client:
        writer, payload = await a_writer(client), bytes(size)
        await writer.append(payload)  # so that connections stand, as the Java client's and the ceilings' do
        took = []
        with Meter() as meter:
            for _ in range(entries):
                began = time.perf_counter()
                await writer.append(payload)
                took.append(time.perf_counter() - began)
        await writer.close()
        return percentiles(took) | {"cpu": meter.per_entry(entries)["cpu"]}


def measure(bench: Bench) -> list[Result]:
    """All of it."""
    results = []
    for kind in bench.kinds:
        for protocol in bench.protocols:
            for size, most, window in LOADS:
                # Each with bookies of its own: what all contenders append in all rounds has to fit into memory.
                with bench.bookies(kind) as bookies:
                    bench.warm(bookies, protocol)
                    results += _appends(bench, bookies, kind, protocol, size, bench.scaled(most, window), window)
                    if size == ALONE[0]:
                        results += _alone(bench, bookies, kind, protocol)
                if size <= TOGETHER_MAX:
                    with bench.bookies(kind) as bookies:
                        bench.warm(bookies, protocol)
                        results += _together(bench, bookies, kind, protocol, size, bench.scaled(most, window), window)
    return results


def _appends(
    bench: Bench, bookies: Bookies, kind: str, protocol: int, size: int, entries: int, window: int
) -> list[Result]:
    contenders: dict[str, Contender] = {}
    load = (protocol, size, entries, window)

    def ours(way: str) -> Values:
        return run_on(way, append_many(bookies, *load))

    def bare(loop: str) -> Values:
        return run_on(loop, append_bare(bookies.addresses, *load))

    for way in OURS:
        contenders[f"ours-{way}"] = partial(ours, way)
    for loop in LOOPS:
        contenders[f"{loop}-ceiling"] = partial(bare, loop)
    if bench.java is not None:
        request: dict[str, Any] = {"size": size, "entries": entries, "window": window}
        contenders["java-client"] = lambda: values_of(bench.java_call("append", bookies, protocol, **request), entries)
    params = {"bookies": kind, "protocol": protocol, "payload_bytes": size, "window": window, "entries": entries}
    counted = {name: partial(_with_bookies, bookies, entries, each) for name, each in contenders.items()}
    return compared("append", params, in_turn(counted, bench.rounds))


def _together(
    bench: Bench, bookies: Bookies, kind: str, protocol: int, size: int, entries: int, window: int
) -> list[Result]:
    def ours(way: str) -> Values:
        return run_on(way, append_together(bookies, protocol, size, entries, window))

    contenders: dict[str, Contender] = {f"ours-{way}": partial(ours, way) for way in OURS}
    if bench.java is not None:
        request: dict[str, Any] = {"size": size, "entries": entries, "window": window}
        contenders["java-client"] = lambda: values_of(bench.java_call("append", bookies, protocol, **request), entries)
    params = {"bookies": kind, "protocol": protocol, "payload_bytes": size, "window": window, "entries": entries}
    return compared("append-all", params, in_turn(contenders, bench.rounds))


def _with_bookies(bookies: Bookies, entries: int, contender: Contender) -> Values:
    """What a contender measures, and what all bookies together took of the CPU meanwhile."""
    with CpuOf(bookies.pids) as taken:
        values = contender()
    return {**values, "bookies-cpu": taken.cpu_s / entries * 1e6}


def _alone(bench: Bench, bookies: Bookies, kind: str, protocol: int) -> list[Result]:
    size, most = ALONE
    entries = bench.scaled(most, 200)

    def ours(way: str) -> Values:
        return run_on(way, append_alone(bookies, protocol, size, entries))

    contenders: dict[str, Contender] = {f"ours-{way}": partial(ours, way) for way in OURS}
    if bench.java is not None:
        request: dict[str, Any] = {"size": size, "entries": entries, "window": 1, "latencies": True}

        def java() -> Values:
            values = values_of(bench.java_call("append", bookies, protocol, **request), entries)
            del values["throughput"]  # the inverse of the latency
            return values

        contenders["java-client"] = java
    params = {"bookies": kind, "protocol": protocol, "payload_bytes": size, "window": 1, "entries": entries}
    return compared("append-alone", params, in_turn(contenders, bench.rounds))


if __name__ == "__main__":
    command(measure, "Appends beside the Java client and bare ceilings.")

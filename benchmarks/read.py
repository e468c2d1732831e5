"""Reads of a closed ledger: ranges, batches, and one entry after the other.

``read-range`` reads the ledger by iteration, with the client's default read-ahead of 256 entries; the Java client reads ranges
of 1,000 entries, one after the other. ``read-striped`` is the same of a ledger whose entries are on two of three bookies, so
that there are no batches in protocol version 2 either. ``read-batch`` calls for 1,000 entries at a time (version 2 has
requests for them). ``read-single`` waits for one entry after the other. The ceiling asks for entries one by one, 64 of them
at a time.

    python -m benchmarks.read
    python -m benchmarks.read --rounds 3 --scale 0.3 --bookies ours --protocol 2
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from benchmarks.ceiling import read_bare
from benchmarks.cluster import Bench, Bookies, a_writer, command, connected
from benchmarks.java_client import values_of
from benchmarks.measuring import LOOPS, OURS, Contender, Meter, Result, Values, compared, in_turn, percentiles, run_on
from bkclient import LedgerReader

SIZE = 1024
ENTRIES = 20_000
AHEAD = 64
PIECE = 1000

Read = Callable[[LedgerReader, int], Awaitable[Values]]


async def read_range(reader: LedgerReader, entries: int) -> Values:
    """In order, as an application does."""
    count = 0
    with Meter() as meter:
        async for _ in reader.read_range(0, entries - 1):
            count += 1
    assert count == entries
    return meter.per_entry(entries)


async def read_batches(reader: LedgerReader, entries: int) -> Values:
    """Many with one call."""
    count = 0
    with Meter() as meter:
        while count < entries:
            count += len(await reader.read_batch(count, PIECE))
    return meter.per_entry(entries)


async def read_single(reader: LedgerReader, entries: int) -> Values:
    """One call after the other."""
    took = []
    with Meter() as meter:
        for entry_id in range(entries):
            began = time.perf_counter()
            await reader.read(entry_id)
            took.append(time.perf_counter() - began)
    return percentiles(took) | {"cpu": meter.per_entry(entries)["cpu"]}


async def _by_ours(bookies: Bookies, protocol: int, ledger_id: int, entries: int, read: Read) -> Values:
    async with connected(bookies, protocol) as client:
        reader = await client.open_ledger(ledger_id)
        for entry_id in range(reader.metadata.ensemble_size):  # each has another first bookie: so all connections stand
            await reader.read(entry_id)
        return await read(reader, entries)


def measure(bench: Bench) -> list[Result]:
    """All of it."""
    results = []
    for kind in bench.kinds:
        for protocol in bench.protocols:
            with bench.bookies(kind) as bookies:
                bench.warm(bookies, protocol)
                results += _reads(bench, bookies, kind, protocol)
    return results


def _reads(bench: Bench, bookies: Bookies, kind: str, protocol: int) -> list[Result]:
    entries = bench.scaled(ENTRIES, PIECE)

    async def prepared(write_quorum: int) -> int:
        async with connected(bookies, protocol) as client:
            writer = await a_writer(client, write_quorum)
            for _ in range(entries):
                await writer.submit(bytes(SIZE))
            await writer.flush()
            await writer.close()
            return writer.ledger_id

    everywhere = run_on(LOOPS[0], prepared(3))
    striped = run_on(LOOPS[0], prepared(2))
    results = []
    for name, ledger_id, read, count, piece, batch in (
        ("read-range", everywhere, read_range, entries, PIECE, False),
        ("read-striped", striped, read_range, entries, PIECE, False),
        ("read-batch", everywhere, read_batches, entries, PIECE, True),
        ("read-single", everywhere, read_single, entries // 10, 1, False),
    ):
        if batch and protocol != 2:
            continue
        contenders = _contenders(bookies, protocol, ledger_id, count, read)
        if name != "read-range":
            contenders = {each: run for each, run in contenders.items() if not each.endswith("-ceiling")}
        if bench.java is not None:
            request: dict[str, Any] = {"ledger": ledger_id, "entries": count, "piece": piece, "batch": batch}
            contenders["java-client"] = partial(_by_java, bench, bookies, protocol, request)
        params = {"bookies": kind, "protocol": protocol, "payload_bytes": SIZE, "entries": count}
        results += compared(name, params, in_turn(contenders, bench.rounds))
    return results


def _contenders(bookies: Bookies, protocol: int, ledger_id: int, entries: int, read: Read) -> dict[str, Contender]:
    def ours(way: str) -> Values:
        return run_on(way, _by_ours(bookies, protocol, ledger_id, entries, read))

    def bare(loop: str) -> Values:
        return run_on(loop, read_bare(bookies.addresses, ledger_id, protocol, entries, AHEAD))

    contenders: dict[str, Contender] = {}
    for way in OURS:
        contenders[f"ours-{way}"] = partial(ours, way)
    for loop in LOOPS:
        contenders[f"{loop}-ceiling"] = partial(bare, loop)
    return contenders


def _by_java(bench: Bench, bookies: Bookies, protocol: int, request: dict[str, Any]) -> Values:
    answer = bench.java_call("read", bookies, protocol, **request)
    assert answer["bytes"] == request["entries"] * SIZE
    values = values_of(answer, request["entries"])
    if request["piece"] == 1:
        del values["throughput"]  # the inverse of the latency
    return values


if __name__ == "__main__":
    command(measure, "Reads beside the Java client and bare ceilings.")

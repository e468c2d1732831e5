"""Entries read per second, side by side with a bare asyncio program that asks the same bookies for the same entries.

The ceiling has no protocol: no digests, no replicas, no order, no late answers. It pushes requests that were encoded beforehand
over three connections, in the largest batches the window allows, and counts answers. What it reaches is what asyncio and the
bookies allow; the ratio is what the client's reading costs. Both read the same closed ledger in turn, round by round, because
machines drift.

``read-range`` reads the whole ledger with the client's own read-ahead; ``read-single`` awaits one entry after the other, so it
compares latencies. CPU time per entry is that of this process alone.

    python -m benchmarks.read                       # both payload sizes
    python -m benchmarks.read --sizes 100 --rounds 3
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import random
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.append import WRITE_QUORUM, BareConnection, Cost, Load, bookie_processes, measured
from bkclient import BookKeeper, ClientConfig, LedgerReader
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from bkclient.wire.connection import ClientConnection
from bkclient.wire.messages import ReadRequest


async def ask_bare(connections: list[BareConnection], load: Load, ledger_id: int) -> Cost:
    """Read the whole ledger with at most ``load.window`` requests not answered, each entry from the first that stores it."""
    done = asyncio.get_running_loop().create_future()
    encoder: ClientConnection[None] = ClientConnection(load.protocol)
    frames = [b"".join(encoder.send(ReadRequest(ledger_id, entry_id), None)) for entry_id in range(load.entries)]
    before = sum(connection.answers for connection in connections)
    sent = 0

    def push() -> None:
        nonlocal sent
        answered = sum(connection.answers for connection in connections) - before
        if answered >= load.entries:
            if not done.done():
                done.set_result(None)
            return
        upto = min(load.entries, answered + load.window)
        # In batches, as bookies serve them best: half a window at a time, unless nothing else is under way.
        if upto - sent >= max(1, load.window // 2) or answered == sent or upto == load.entries:
            for first, connection in enumerate(connections):
                data = b"".join(frames[sent + (first - sent) % len(connections) : upto : len(connections)])
                if data:
                    assert connection.transport is not None
                    connection.transport.write(data)
            sent = upto

    for connection in connections:
        connection.on_answers = push

    async def work() -> None:
        push()
        await done

    return await measured(load, work())


async def read_range(reader: LedgerReader, load: Load) -> Cost:
    """The whole ledger, in order."""

    async def work() -> None:
        count = 0
        async for entry in reader.read_range(0, load.entries - 1):
            count += 1
            assert len(entry.payload) == load.payload_bytes
        assert count == load.entries

    return await measured(load, work())


async def read_single(reader: LedgerReader, load: Load) -> Cost:
    """The same, one call after the other."""

    async def work() -> None:
        for entry_id in range(load.entries):
            await reader.read(entry_id)

    return await measured(load, work())


@asynccontextmanager
async def a_client(addresses: list[BookieAddress], load: Load) -> AsyncIterator[BookKeeper]:
    """A client of the bookies with a metadata service of its own."""
    async with AsyncExitStack() as stack:
        rng = random.Random(1)
        store = MemoryMetadataService().session(rng=rng)
        stack.push_async_callback(store.aclose)
        for index, address in enumerate(addresses):
            await store.register_bookie(f"bookie-{index}", address)
        transport = TcpTransport(store.bookie_address, TcpTransportConfig(protocol_version=load.protocol), rng=rng)
        config = ClientConfig(wire_protocol_version=load.protocol, read_ahead_entries=load.window)
        yield await stack.enter_async_context(BookKeeper(store, transport, config=config, rng=rng))


async def a_ledger(client: BookKeeper, load: Load) -> LedgerReader:
    """A closed ledger with ``load.entries`` entries."""
    writer = await client.create_ledger(
        ensemble_size=WRITE_QUORUM, write_quorum_size=WRITE_QUORUM, ack_quorum_size=WRITE_QUORUM
    )
    payload = bytes(load.payload_bytes)
    for _ in range(load.entries):
        await writer.wait_for_room()
        writer.append_nowait(payload)
    await writer.flush()
    await writer.close()
    return await client.open_ledger(writer.ledger_id)


async def compare(
    name: str, read: Callable[[LedgerReader, Load], Awaitable[Cost]], load: Load, rounds: int, *, uvloop: bool
) -> list[dict[str, Any]]:
    """Both in turn, ``rounds`` times after one that is not counted."""
    ours: list[Cost] = []
    bare: list[Cost] = []
    async with bookie_processes(WRITE_QUORUM, uvloop=uvloop) as addresses, a_client(addresses, load) as client:
        reader = await a_ledger(client, load)
        connections: list[BareConnection] = []
        by_id = {f"bookie-{index}": address for index, address in enumerate(addresses)}
        for bookie_id in reader.metadata.last_fragment.ensemble:
            address = by_id[bookie_id]
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: BareConnection(lambda: None), address.host, address.port
            )
            connections.append(connection)
        for round_number in range(rounds + 1):
            bare_cost = await ask_bare(connections, load, reader.ledger_id)
            our_cost = await read(reader, load)
            if round_number > 0:
                bare.append(bare_cost)
                ours.append(our_cost)
        for connection in connections:
            assert connection.transport is not None
            connection.transport.close()
    params = {
        "payload_bytes": load.payload_bytes,
        "window": load.window,
        "write_quorum": WRITE_QUORUM,
        "protocol": load.protocol,
        "entries": load.entries,
        "rounds": rounds,
        "loop": "uvloop" if uvloop else "asyncio",
    }
    rates = [(a.entries_per_second, b.entries_per_second) for a, b in zip(ours, bare, strict=True)]
    cpus = [(b.cpu_us_per_entry, a.cpu_us_per_entry) for a, b in zip(ours, bare, strict=True)]
    return [
        _result(name, params, "entries/s", [a for a, _ in rates], [b for _, b in rates], rates),
        _result(f"{name}-cpu", params, "us/entry", [a for _, a in cpus], [b for b, _ in cpus], cpus),
    ]


def _result(
    name: str,
    params: dict[str, Any],
    unit: str,
    values: list[float],
    reference_values: list[float],
    ratios: list[tuple[float, float]],
) -> dict[str, Any]:
    return {
        "name": name,
        "params": params,
        "value": round(statistics.median(values), 2),
        "unit": unit,
        "reference": "asyncio-ceiling",
        "reference_value": round(statistics.median(reference_values), 2),
        "ratio": round(statistics.median(over / under for over, under in ratios), 3),
    }


def main(
    entries: Annotated[int, typer.Option(help="entries of the ledger")] = 20_000,
    rounds: Annotated[int, typer.Option(help="rounds counted, after one that is not")] = 5,
    sizes: Annotated[list[int] | None, typer.Option(help="payload sizes in bytes; may be given again")] = None,
    window: Annotated[int, typer.Option(help="entries read ahead")] = 64,
    protocol: Annotated[int, typer.Option(help="wire protocol version, 3 or 2")] = 3,
    uvloop: Annotated[  # noqa: FBT002 - a switch of the command line
        bool, typer.Option(help="use uvloop for bookies and clients, ceiling included")
    ] = True,
    json_output: Annotated[  # noqa: FBT002
        bool, typer.Option("--json", help="one JSON object on stdout")
    ] = False,
) -> None:
    """Entries read per second and CPU per entry against a bare asyncio ceiling, in ranges and one by one."""
    run: Callable[[Any], Any] = asyncio.run
    if uvloop:
        try:
            import uvloop as uvloop_module  # noqa: PLC0415 - an optional accelerator
        except ImportError:
            uvloop = False
        else:
            run = uvloop_module.run
    results: list[dict[str, Any]] = []
    for size in sizes or [100, 1024]:
        results += run(compare("read-range", read_range, Load(entries, size, window, protocol), rounds, uvloop=uvloop))
        one_by_one = Load(max(1, entries // 10), size, 1, protocol)
        results += run(compare("read-single", read_single, one_by_one, rounds, uvloop=uvloop))
    machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "system": platform.platform(terse=True)}
    if json_output:
        json.dump({"results": results, "machine": machine}, sys.stdout)
        print()
        return
    table = Table("what", "payload", "ours", "ceiling", "ratio (above 1 is better)")
    for result in results:
        table.add_row(
            result["name"],
            f"{result['params']['payload_bytes']} B",
            f"{result['value']:,.1f} {result['unit']}",
            f"{result['reference_value']:,.1f} {result['unit']}",
            f"{result['ratio']:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)

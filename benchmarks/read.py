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
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from benchmarks.measuring import (
    DEFAULT_SIZES,
    WRITE_QUORUM,
    AsJson,
    BareConnection,
    Cost,
    Load,
    Protocol,
    Result,
    Rounds,
    Sizes,
    UseUvloop,
    a_client,
    bookie_processes,
    compared,
    connected,
    measured,
    params_of,
    report,
    runner,
)
from bkclient import BookKeeper, ClientConfig, ConnectionSettings, LedgerReader, ReadingSettings
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


async def a_ledger(client: BookKeeper, load: Load) -> LedgerReader:
    """A closed ledger with ``load.entries`` entries."""
    writer = await client.create_ledger(
        ensemble_size=WRITE_QUORUM, write_quorum_size=WRITE_QUORUM, ack_quorum_size=WRITE_QUORUM
    )
    payload = bytes(load.payload_bytes)
    for _ in range(load.entries):
        await writer.submit(payload)
    await writer.flush()
    await writer.close()
    return await client.open_ledger(writer.ledger_id, recover=True)


async def compare(
    name: str, read: Callable[[LedgerReader, Load], Awaitable[Cost]], load: Load, rounds: int, *, uvloop: bool
) -> list[Result]:
    """Both in turn, ``rounds`` times after one that is not counted."""
    ours: list[Cost] = []
    bare: list[Cost] = []
    config = ClientConfig(
        connections=ConnectionSettings(protocol_version=load.protocol),
        reading=ReadingSettings(read_ahead_entries=load.window),
    )
    async with bookie_processes(WRITE_QUORUM, uvloop=uvloop) as addresses, a_client(addresses, config) as client:
        reader = await a_ledger(client, load)
        by_id = {f"bookie-{index}": address for index, address in enumerate(addresses)}
        connections = [
            await connected(by_id[bookie_id], lambda: None) for bookie_id in reader.metadata.last_fragment.ensemble
        ]
        for round_number in range(rounds + 1):
            bare_cost = await ask_bare(connections, load, reader.ledger_id)
            our_cost = await read(reader, load)
            if round_number > 0:
                bare.append(bare_cost)
                ours.append(our_cost)
        for connection in connections:
            assert connection.transport is not None
            connection.transport.close()
    return compared(name, params_of(load, rounds, uvloop=uvloop), ours, bare)


def main(
    entries: Annotated[int, typer.Option(help="entries of the ledger")] = 20_000,
    rounds: Rounds = 5,
    sizes: Sizes = None,
    window: Annotated[int, typer.Option(help="entries read ahead")] = 64,
    protocol: Protocol = 3,
    uvloop: UseUvloop = True,  # noqa: FBT002 - a switch of the command line
    json_output: AsJson = False,  # noqa: FBT002
) -> None:
    """Entries read per second and CPU per entry against a bare asyncio ceiling, in ranges and one by one."""
    run, uvloop = runner(uvloop=uvloop)
    results: list[Result] = []
    for size in sizes or DEFAULT_SIZES:
        results += run(compare("read-range", read_range, Load(entries, size, window, protocol), rounds, uvloop=uvloop))
        one_by_one = Load(max(1, entries // 10), size, 1, protocol)
        results += run(compare("read-single", read_single, one_by_one, rounds, uvloop=uvloop))
    report(results, as_json=json_output)


if __name__ == "__main__":
    typer.run(main)

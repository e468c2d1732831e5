"""Appends per second, side by side with a bare asyncio program that sends the same frames to the same bookies.

The ceiling has no protocol: no entry ids, no digests, no quorums, no errors. It pushes frames that were encoded beforehand over
three connections and counts answers. What it reaches is what asyncio and the bookies allow; the ratio is what the client's
protocol costs. Both run in turn, round by round, because machines drift; medians are compared.

CPU time per entry is that of this process alone, without the bookies, and so is less a matter of how the machine's cores
are shared.

    python -m benchmarks.append                     # both payload sizes, then memory over a million appends
    python -m benchmarks.append --sizes 100 --rounds 3 --memory-entries 0
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable
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
    result,
    runner,
)
from bkclient import ClientConfig, ConnectionSettings, LimitSettings
from bkclient.ledger import DigestType
from bkclient.metadata.base import BookieAddress
from bkclient.wire.connection import ClientConnection
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import AddRequest

ACK_QUORUM = 2


async def run_ceiling(addresses: list[BookieAddress], frames: list[bytes], load: Load) -> Cost:
    """Push ``frames`` to all bookies with at most ``load.window`` not answered by an ack quorum."""
    done = asyncio.get_running_loop().create_future()
    connections: list[BareConnection] = []
    sent = 0

    def push() -> None:
        nonlocal sent
        confirmed = sorted(connection.answers for connection in connections)[-ACK_QUORUM]
        if confirmed >= load.entries:
            if not done.done():
                done.set_result(None)
            return
        upto = min(load.entries, confirmed + load.window)
        if upto > sent:
            data = b"".join(frames[sent:upto])
            for connection in connections:
                assert connection.transport is not None
                connection.transport.write(data)
            sent = upto

    connections += [await connected(address, push) for address in addresses]

    async def work() -> None:
        push()
        await done

    cost = await measured(load, work())
    for connection in connections:
        assert connection.transport is not None
        connection.transport.close()
    return cost


def encoded_frames(load: Load, ledger_id: int) -> list[bytes]:
    """The frames of a whole round, as the client would send them."""
    codec = EntryCodec(ledger_id, DigestType.CRC32C, b"")
    connection: ClientConnection[None] = ClientConnection(load.protocol)
    payload = bytes(load.payload_bytes)
    frames = []
    for entry_id in range(load.entries):
        header = codec.encode_header(entry_id, entry_id - 1, (entry_id + 1) * len(payload), payload)
        frames.append(
            b"".join(connection.send(AddRequest(ledger_id, entry_id, codec.master_key, header, payload), None))
        )
    return frames


async def run_client(addresses: list[BookieAddress], load: Load, progress: Callable[[int], None] | None = None) -> Cost:
    """Append ``load.entries`` entries through the client, pipelined."""
    config = ClientConfig(
        connections=ConnectionSettings(protocol_version=load.protocol),
        limits=LimitSettings(max_in_flight_entries=load.window),
    )
    async with a_client(addresses, config) as client:
        writer = await client.create_ledger(
            ensemble_size=WRITE_QUORUM, write_quorum_size=WRITE_QUORUM, ack_quorum_size=ACK_QUORUM
        )
        payload = bytes(load.payload_bytes)

        async def work() -> None:
            for entry_id in range(load.entries):
                await writer.submit(payload)
                if progress is not None and entry_id % 100_000 == 0:
                    progress(entry_id)
            await writer.flush()

        cost = await measured(load, work())
        await writer.close()
    return cost


async def compare(load: Load, rounds: int, *, uvloop: bool) -> list[Result]:
    """Both in turn, ``rounds`` times after one that is not counted; each round on fresh bookies."""
    ours: list[Cost] = []
    bare: list[Cost] = []
    for round_number in range(rounds + 1):
        async with bookie_processes(WRITE_QUORUM, uvloop=uvloop) as addresses:
            bare_cost = await run_ceiling(addresses, encoded_frames(load, ledger_id=10**9), load)
            our_cost = await run_client(addresses, load)
        if round_number > 0:
            bare.append(bare_cost)
            ours.append(our_cost)
    return compared("append", params_of(load, rounds, uvloop=uvloop, ack_quorum=ACK_QUORUM), ours, bare)


def resident_mib() -> float:
    """Memory of this process now, where the system tells; else its peak."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        return peak_mib()


def peak_mib() -> float:
    """Largest memory this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def memory(load: Load, *, uvloop: bool) -> list[Result]:
    """Append ``load.entries`` entries and see whether memory grows with them."""
    samples: list[float] = []
    async with bookie_processes(WRITE_QUORUM, uvloop=uvloop) as addresses:
        await run_client(addresses, load, lambda _: samples.append(resident_mib()))
    samples.append(resident_mib())
    params = {"payload_bytes": load.payload_bytes, "window": load.window, "entries": load.entries}
    # The first sample is taken before anything was allocated for the window, so growth counts from the second on.
    growth = max(samples[1:]) - samples[1]
    return [
        result("memory-peak", params, peak_mib(), "MiB"),
        result("memory-growth", params, growth, "MiB"),
    ]


def main(
    entries: Annotated[int, typer.Option(help="entries per round")] = 50_000,
    rounds: Rounds = 5,
    sizes: Sizes = None,
    window: Annotated[int, typer.Option(help="entries in flight")] = 1000,
    protocol: Protocol = 3,
    memory_entries: Annotated[int, typer.Option(help="entries of the memory run; 0 leaves it out")] = 1_000_000,
    uvloop: UseUvloop = True,  # noqa: FBT002 - a switch of the command line
    json_output: AsJson = False,  # noqa: FBT002
) -> None:
    """Appends per second and CPU per append against a bare asyncio ceiling; memory over many appends."""
    run, uvloop = runner(uvloop=uvloop)
    results: list[Result] = []
    if memory_entries:
        # First, so that the peak is that of the client alone.
        results += run(memory(Load(memory_entries, 100, 1000, protocol), uvloop=uvloop))
    for size in sizes or DEFAULT_SIZES:
        results += run(compare(Load(entries, size, window, protocol), rounds, uvloop=uvloop))
    report(results, as_json=json_output)


if __name__ == "__main__":
    typer.run(main)

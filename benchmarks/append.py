"""Appends per second, side by side with a bare asyncio program that sends the same frames to the same bookies.

The ceiling has no protocol: no entry ids, no digests, no quorums, no errors. It pushes frames that were encoded beforehand over
three connections and counts answers. What it reaches is what asyncio and the bookies allow; the ratio is what the client's
protocol costs. Both run in turn, round by round, because machines drift; medians are compared.

CPU time per entry is that of this process alone, without the bookies, and so is less a matter of how the machine's cores
are shared.

    python benchmarks/append.py                     # both payload sizes, then memory over a million appends
    python benchmarks/append.py --sizes 100 --rounds 3 --memory-entries 0
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import platform
import random
import resource
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table

from bkclient import BookKeeper, ClientConfig
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.metadata.model import DigestType
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from bkclient.wire.connection import ClientConnection
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import AddRequest
from simbookie.bookie import Bookie
from simbookie.server import BookieServer
from simbookie.storage.memory import MemoryStorage, MemoryStorageConfig

WRITE_QUORUM = 3
ACK_QUORUM = 2
LENGTH_PREFIX = 4


@dataclass(frozen=True, slots=True)
class Load:
    """What is written in one round."""

    entries: int
    payload_bytes: int
    window: int
    protocol: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What one round took."""

    entries_per_second: float
    cpu_us_per_entry: float


async def measured(load: Load, work: Awaitable[None]) -> Cost:
    """Run ``work`` and divide its time by the entries."""
    wall, cpu = time.perf_counter(), time.process_time()
    await work
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Cost(load.entries / wall, cpu / load.entries * 1e6)


class BareConnection(asyncio.BufferedProtocol):
    """Counts the frames that come back and tells when one did."""

    def __init__(self, on_answers: Callable[[], None]) -> None:
        self.answers = 0
        self.transport: asyncio.Transport | None = None
        self.on_answers = on_answers
        self._buffer = bytearray(256 * 1024)
        self._filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are no subclasses

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """The free part of the buffer."""
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Count whole frames; keep the rest."""
        end, at, buffer = self._filled + nbytes, 0, self._buffer
        while end - at >= LENGTH_PREFIX:
            size = LENGTH_PREFIX + int.from_bytes(buffer[at : at + LENGTH_PREFIX], "big")
            if end - at < size:
                break
            self.answers += 1
            at += size
        buffer[: end - at] = buffer[at:end]
        self._filled = end - at
        self.on_answers()


async def run_ceiling(addresses: list[BookieAddress], frames: list[bytes], load: Load) -> Cost:
    """Push ``frames`` to all bookies with at most ``load.window`` not answered by an ack quorum."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
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

    for address in addresses:
        _, connection = await loop.create_connection(lambda: BareConnection(push), address.host, address.port)
        connections.append(connection)

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
    async with AsyncExitStack() as stack:
        rng = random.Random(1)
        store = MemoryMetadataService().session(rng=rng)
        stack.push_async_callback(store.aclose)
        for index, address in enumerate(addresses):
            await store.register_bookie(f"bookie-{index}", address)
        transport = TcpTransport(
            store.bookie_address, TcpTransportConfig(protocol_version=load.protocol, add_timeout_s=60), rng=rng
        )
        config = ClientConfig(wire_protocol_version=load.protocol, max_in_flight_entries=load.window)
        client = await stack.enter_async_context(BookKeeper(store, transport, config=config, rng=rng))
        writer = await client.create_ledger(
            ensemble_size=WRITE_QUORUM, write_quorum_size=WRITE_QUORUM, ack_quorum_size=ACK_QUORUM
        )
        payload = bytes(load.payload_bytes)

        async def work() -> None:
            for entry_id in range(load.entries):
                await writer.wait_for_room()
                writer.append_nowait(payload)
                if progress is not None and entry_id % 100_000 == 0:
                    progress(entry_id)
            await writer.flush()

        cost = await measured(load, work())
        await writer.close()
    return cost


async def _serve(index: int, pipe: Connection) -> None:
    bookie = Bookie(f"bookie-{index}", MemoryStorage(MemoryStorageConfig(capacity_bytes=8 << 30)))
    server = BookieServer(bookie, "127.0.0.1", 0)
    await server.start()
    pipe.send(server.port)
    # The parent closes its end, or dies, when it has had enough.
    await asyncio.get_running_loop().run_in_executor(None, pipe.poll, None)


def _run(index: int, pipe: Connection, uvloop: bool) -> None:  # noqa: FBT001 - the target of a process
    run: Callable[[Any], Any] = asyncio.run
    if uvloop:
        import uvloop as uvloop_module  # noqa: PLC0415 - an optional accelerator

        run = uvloop_module.run
    run(_serve(index, pipe))


@asynccontextmanager
async def bookie_processes(count: int, *, uvloop: bool) -> AsyncIterator[list[BookieAddress]]:
    """``count`` bookies in processes of their own for as long as the block lasts."""
    context = multiprocessing.get_context("spawn")
    processes, pipes = [], []
    for index in range(count):
        ours, theirs = context.Pipe()
        process = context.Process(target=_run, args=(index, theirs, uvloop), daemon=True)
        process.start()
        processes.append(process)
        pipes.append(ours)
    try:
        yield [BookieAddress("127.0.0.1", pipe.recv()) for pipe in pipes]
    finally:
        for process in processes:
            process.kill()
            process.join()


async def compare(load: Load, rounds: int, *, uvloop: bool) -> list[dict[str, Any]]:
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
    params = {
        "payload_bytes": load.payload_bytes,
        "window": load.window,
        "write_quorum": WRITE_QUORUM,
        "ack_quorum": ACK_QUORUM,
        "protocol": load.protocol,
        "entries": load.entries,
        "rounds": rounds,
        "loop": "uvloop" if uvloop else "asyncio",
    }
    rate, bare_rate = (statistics.median(cost.entries_per_second for cost in costs) for costs in (ours, bare))
    cpu, bare_cpu = (statistics.median(cost.cpu_us_per_entry for cost in costs) for costs in (ours, bare))
    rate_ratio = statistics.median(a.entries_per_second / b.entries_per_second for a, b in zip(ours, bare, strict=True))
    cpu_ratio = statistics.median(b.cpu_us_per_entry / a.cpu_us_per_entry for a, b in zip(ours, bare, strict=True))
    return [
        _result("append", params, rate, "entries/s", bare_rate, rate_ratio),
        _result("append-cpu", params, cpu, "us/entry", bare_cpu, cpu_ratio),
    ]


def _result(
    name: str, params: dict[str, Any], value: float, unit: str, reference_value: float | None, ratio: float | None
) -> dict[str, Any]:
    return {
        "name": name,
        "params": params,
        "value": round(value, 2),
        "unit": unit,
        "reference": "asyncio-ceiling" if reference_value is not None else None,
        "reference_value": None if reference_value is None else round(reference_value, 2),
        "ratio": None if ratio is None else round(ratio, 3),
    }


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


async def memory(load: Load, *, uvloop: bool) -> list[dict[str, Any]]:
    """Append ``load.entries`` entries and see whether memory grows with them."""
    samples: list[float] = []
    async with bookie_processes(WRITE_QUORUM, uvloop=uvloop) as addresses:
        await run_client(addresses, load, lambda _: samples.append(resident_mib()))
    samples.append(resident_mib())
    params = {"payload_bytes": load.payload_bytes, "window": load.window, "entries": load.entries}
    # The first sample is taken before anything was allocated for the window, so growth counts from the second on.
    growth = max(samples[1:]) - samples[1]
    return [
        _result("memory-peak", params, peak_mib(), "MiB", None, None),
        _result("memory-growth", params, growth, "MiB", None, None),
    ]


def main(
    entries: Annotated[int, typer.Option(help="entries per round")] = 50_000,
    rounds: Annotated[int, typer.Option(help="rounds counted, after one that is not")] = 5,
    sizes: Annotated[list[int] | None, typer.Option(help="payload sizes in bytes; may be given again")] = None,
    window: Annotated[int, typer.Option(help="entries in flight")] = 1000,
    protocol: Annotated[int, typer.Option(help="wire protocol version, 3 or 2")] = 3,
    memory_entries: Annotated[int, typer.Option(help="entries of the memory run; 0 leaves it out")] = 1_000_000,
    uvloop: Annotated[  # noqa: FBT002 - a switch of the command line
        bool, typer.Option(help="use uvloop for bookies and clients, ceiling included")
    ] = True,
    json_output: Annotated[  # noqa: FBT002
        bool, typer.Option("--json", help="one JSON object on stdout")
    ] = False,
) -> None:
    """Appends per second and CPU per append against a bare asyncio ceiling; memory over many appends."""
    run: Callable[[Any], Any] = asyncio.run
    if uvloop:
        try:
            import uvloop as uvloop_module  # noqa: PLC0415 - an optional accelerator
        except ImportError:
            uvloop = False
        else:
            run = uvloop_module.run
    results: list[dict[str, Any]] = []
    if memory_entries:
        # First, so that the peak is that of the client alone.
        results += run(memory(Load(memory_entries, 100, 1000, protocol), uvloop=uvloop))
    for size in sizes or [100, 1024]:
        results += run(compare(Load(entries, size, window, protocol), rounds, uvloop=uvloop))
    machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "system": platform.platform(terse=True)}
    if json_output:
        json.dump({"results": results, "machine": machine}, sys.stdout)
        print()
        return
    table = Table("what", "payload", "ours", "ceiling", "ratio (above 1 is better)")
    for result in results:
        reference = "" if result["reference_value"] is None else f"{result['reference_value']:,.1f} {result['unit']}"
        table.add_row(
            result["name"],
            f"{result['params']['payload_bytes']} B",
            f"{result['value']:,.1f} {result['unit']}",
            reference,
            "" if result["ratio"] is None else f"{result['ratio']:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)

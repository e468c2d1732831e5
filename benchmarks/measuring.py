"""What the benchmarks share: loads and costs, bookies in processes of their own, a client of them, options, and results.

A benchmark compares the client with a *ceiling*, a bare asyncio program that sends frames encoded beforehand and counts the
answers. Both run in turn, round by round, because machines drift; what is told is the median of each and the median of the
rounds' ratios, above 1 meaning better than the ceiling. CPU time is that of this process alone, without the bookies.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import platform
import random
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
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from simbookie.bookie import Bookie
from simbookie.server import BookieServer
from simbookie.storage.memory import MemoryStorage, MemoryStorageConfig

WRITE_QUORUM = 3
LENGTH_PREFIX = 4
#: A busy machine is no failed bookie.
_ADD_TIMEOUT_S = 60.0

Run = Callable[[Any], Any]
Result = dict[str, Any]

# Options of all benchmarks; how many entries, and what the window is, each tells itself.
Rounds = Annotated[int, typer.Option(help="rounds counted, after one that is not")]
Sizes = Annotated[list[int] | None, typer.Option(help="payload sizes in bytes; may be given again")]
Protocol = Annotated[int, typer.Option(help="wire protocol version, 3 or 2")]
UseUvloop = Annotated[bool, typer.Option(help="use uvloop for bookies and clients, ceiling included")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object on stdout")]

DEFAULT_SIZES = [100, 1024]


# Measuring -----------------------------------------------------------------------------------------------------------


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


async def connected(address: BookieAddress, on_answers: Callable[[], None]) -> BareConnection:
    """A connection of the ceiling."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: BareConnection(on_answers), address.host, address.port)
    return connection


# Around it -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def a_client(addresses: list[BookieAddress], config: ClientConfig) -> AsyncIterator[BookKeeper]:
    """A client of the bookies with a metadata service of its own."""
    async with AsyncExitStack() as stack:
        rng = random.Random(1)
        store = MemoryMetadataService().session(rng=rng)
        stack.push_async_callback(store.aclose)
        for index, address in enumerate(addresses):
            await store.register_bookie(f"bookie-{index}", address)
        settings = TcpTransportConfig(
            protocol_version=config.connections.protocol_version, add_timeout_s=_ADD_TIMEOUT_S
        )
        transport = TcpTransport(store.bookie_address, settings, rng=rng)
        yield await stack.enter_async_context(BookKeeper(store, transport, config=config, rng=rng))


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


def runner(*, uvloop: bool) -> tuple[Run, bool]:
    """What runs a coroutine, and whether that is uvloop, which is used if it is wanted and installed."""
    if uvloop:
        try:
            import uvloop as uvloop_module  # noqa: PLC0415 - an optional accelerator
        except ImportError:
            return asyncio.run, False
        return uvloop_module.run, True
    return asyncio.run, False


# Results -------------------------------------------------------------------------------------------------------------


def params_of(load: Load, rounds: int, *, uvloop: bool, **more: int) -> dict[str, Any]:
    """What a comparison was made with; ``more`` stands behind the write quorum."""
    return {
        "payload_bytes": load.payload_bytes,
        "window": load.window,
        "write_quorum": WRITE_QUORUM,
        **more,
        "protocol": load.protocol,
        "entries": load.entries,
        "rounds": rounds,
        "loop": "uvloop" if uvloop else "asyncio",
    }


def compared(name: str, params: dict[str, Any], ours: list[Cost], bare: list[Cost]) -> list[Result]:
    """Throughput and CPU time, round by round."""
    rates = [(a.entries_per_second, b.entries_per_second) for a, b in zip(ours, bare, strict=True)]
    cpus = [(a.cpu_us_per_entry, b.cpu_us_per_entry) for a, b in zip(ours, bare, strict=True)]
    median = statistics.median
    return [
        result(name, params, median(a for a, _ in rates), "entries/s", median(b for _, b in rates))
        | {"ratio": round(median(a / b for a, b in rates), 3)},
        result(f"{name}-cpu", params, median(a for a, _ in cpus), "us/entry", median(b for _, b in cpus))
        | {"ratio": round(median(b / a for a, b in cpus), 3)},
    ]


def result(name: str, params: dict[str, Any], value: float, unit: str, reference_value: float | None = None) -> Result:
    """One line of a report, without a ratio."""
    return {
        "name": name,
        "params": params,
        "value": round(value, 2),
        "unit": unit,
        "reference": None if reference_value is None else "asyncio-ceiling",
        "reference_value": None if reference_value is None else round(reference_value, 2),
        "ratio": None,
    }


def report(results: list[Result], *, as_json: bool) -> None:
    """Print everything, as a table or as one JSON object."""
    machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "system": platform.platform(terse=True)}
    if as_json:
        json.dump({"results": results, "machine": machine}, sys.stdout)
        print()
        return
    table = Table("what", "payload", "ours", "ceiling", "ratio (above 1 is better)")
    for each in results:
        table.add_row(
            each["name"],
            f"{each['params']['payload_bytes']} B",
            f"{each['value']:,.1f} {each['unit']}",
            "" if each["reference_value"] is None else f"{each['reference_value']:,.1f} {each['unit']}",
            "" if each["ratio"] is None else f"{each['ratio']:.2f}",
        )
    Console().print(table)

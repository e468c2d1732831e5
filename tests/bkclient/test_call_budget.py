"""How many Python calls of ours an append and a read make: exact, because time on a busy machine tells nothing.

The shipped client works over the shipped wire protocol in virtual time, so every run makes the same calls. ``call_budget.toml``
says how many each operation may make; a change that needs more, or fewer, edits it.
"""

from __future__ import annotations

import functools
import gc
import sys
import tomllib
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum, auto
from pathlib import Path
from types import CodeType, FrameType
from typing import Protocol, Self, cast

import pytest

import bkclient
import simbookie
from bkclient import BookKeeper, ClientConfig, ConnectionSettings, LedgerWriter
from bkclient._core import using_core
from bkclient.observability.memory_stats import MemoryStats
from bkclient.transport.base import BookieTransport
from bkclient.transport.measured import MeasuredTransport
from bkclient.transport.tcp import TcpTransport, TcpTransportConfig
from simbookie.server import ServerConfig
from simbookie.world.bookie_host import BookieHost
from simbookie.world.hosts import Host, World
from simbookie.world.metadata import SimulatedMetadataStore
from tests.bkclient.core.both_cores import needs_compiled_core

BUDGETS: dict[str, dict[str, float]] = tomllib.loads(Path(__file__).with_name("call_budget.toml").read_text())
ENTRIES = 2_000
#: How many of them are read one by one.
READS = 400
#: A change that saves more than this has to say so; comprehensions are calls up to CPython 3.11.
SLACK = 0.5

OURS = str(Path(bkclient.__file__).parent)
BOOKIES = str(Path(simbookie.__file__).parent)
WORLD = str(Path(simbookie.__file__).parent / "world")


_CACHED = type(functools.cache(len))


class CallCounter:
    """Counts calls of functions of ours while a block runs: those of the client, and those that bookies make."""

    def __init__(self) -> None:
        self.of_client = 0
        self.of_bookies = 0
        self._bookie_depth = 0  # calls under way since a bookie's function was called

    def __enter__(self) -> Self:
        for cached in caches():
            cached.cache_clear()  # which would save calls to the second run in a process
        gc.disable()  # what other tests left behind makes calls of ours when it is collected
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        gc.enable()

    def _on_event(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            side = side_of(frame.f_code)
            if self._bookie_depth or side is Side.BOOKIE:
                self._bookie_depth += 1
                self.of_bookies += side is not Side.OTHER
            else:
                self.of_client += side is Side.CLIENT
        elif event == "return" and self._bookie_depth:
            self._bookie_depth -= 1


class Side(Enum):
    CLIENT = auto()
    BOOKIE = auto()
    OTHER = auto()


@functools.cache
def side_of(code: CodeType) -> Side:
    """Who runs a function: the client, a bookie, or anything else (libraries, the simulated world)."""
    path = code.co_filename
    if path.startswith(OURS):
        return Side.CLIENT
    return Side.BOOKIE if path.startswith(BOOKIES) and not path.startswith(WORLD) else Side.OTHER


class Cached(Protocol):
    """What ``functools.cache`` makes of a function."""

    __name__: str

    def cache_clear(self) -> None: ...


def caches() -> Iterator[Cached]:
    """The caches of the client's and the bookies' functions."""
    for name, module in sys.modules.copy().items():
        if name.partition(".")[0] in {bkclient.__name__, simbookie.__name__}:
            for value in vars(module).values():
                if isinstance(value, _CACHED):
                    yield cast("Cached", value)


async def appends(writer: LedgerWriter, payload: bytes, entries: int = ENTRIES) -> None:
    for _ in range(entries):
        await writer.submit(payload)
    await writer.flush()


async def appends_together(writer: LedgerWriter, payload: bytes) -> None:
    await writer.append_all(payload for _ in range(ENTRIES))


async def single_reads(writer: LedgerWriter, _: bytes) -> None:
    for entry_id in range(READS):
        await writer.reader.read(entry_id)


async def a_range_read(writer: LedgerWriter, _: bytes) -> None:
    assert [entry.entry_id async for entry in writer.reader.read_range(0, ENTRIES - 1)] == list(range(ENTRIES))


Operation = Callable[[LedgerWriter, bytes], Awaitable[None]]
OPERATIONS: dict[str, Operation] = {
    "append": appends,
    "append_all": appends_together,
    "unstriped_append_all": appends_together,
    "unstriped_append": appends,
    "read": single_reads,
    "range_read": a_range_read,
    "unstriped_range_read": a_range_read,
}


def calls_of(
    operation: Operation,
    version: int,
    payload: bytes,
    stats: MemoryStats | None = None,
    *,
    ensemble_size: int = 3,
    write_quorum_size: int = 2,
) -> CallCounter:
    """The Python calls that ``operation`` makes for its entries, which two bookies store if nothing else is said."""
    world = World(1)
    for name in ("b0", "b1", "b2"):
        BookieHost(world, name, server=ServerConfig())
    counter = CallCounter()

    async def program() -> None:
        store = SimulatedMetadataStore(world, world.hosts["client"])
        config = ClientConfig(connections=ConnectionSettings(protocol_version=version))
        transport: BookieTransport = TcpTransport(
            store.bookie_address, TcpTransportConfig.of_client(config), rng=world.rng("transport"), stats=stats
        )
        if stats is not None:
            transport = MeasuredTransport(transport, stats)
        async with BookKeeper(store, transport, config=config, stats=stats, rng=world.rng("client")) as bk:
            writer = await bk.create_ledger(
                ensemble_size=ensemble_size, write_quorum_size=write_quorum_size, ack_quorum_size=2
            )
            await appends(writer, payload, READS if operation is single_reads else ENTRIES)  # so that connections stand
            with counter:
                await operation(writer, payload)

    async def main() -> None:
        for host in world.hosts.values():
            if isinstance(host, BookieHost):
                await host.registered()
        await world.join(client.spawn(program))

    client = Host(world, "client")
    with world:
        world.run(main)
    return counter


def test_calls_are_the_same_whatever_ran_before() -> None:
    first, second = (calls_of(single_reads, 3, bytes(1024)).of_client for _ in range(2))
    assert first == second


def test_caches_are_found() -> None:
    assert {cached.__name__ for cached in caches()} >= {"max_lac_in", "varint"}


@pytest.mark.parametrize("name", BUDGETS["python"])
def test_an_operation_makes_the_calls_it_may(name: str) -> None:
    is_within_budget("python", name)


@needs_compiled_core
@pytest.mark.parametrize("name", BUDGETS["cython"])
def test_an_operation_with_the_compiled_core_makes_the_calls_it_may(name: str) -> None:
    is_within_budget("cython", name)


def is_within_budget(core: str, name: str) -> None:
    operation, version, size, *measured = name.split(" ")
    stats = MemoryStats() if measured else None
    bookies = 2 if operation in {"unstriped_append_all", "unstriped_range_read"} else 3
    replicas = 3 if operation == "unstriped_append" else 2
    with using_core(core):
        counted = calls_of(
            OPERATIONS[operation],
            int(version[1:]),
            bytes(int(size)),
            stats,
            ensemble_size=bookies,
            write_quorum_size=replicas,
        )
    calls = counted.of_client / (READS if operation == "read" else ENTRIES)
    assert calls <= BUDGETS[core][name], "more calls than before; if they are worth it, raise the budget"
    if sys.version_info < (3, 12):
        assert calls > BUDGETS[core][name] - SLACK, "fewer calls than before; lower the budget, so that it stays so"

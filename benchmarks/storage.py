"""What an add costs one bookie, by its storage: in memory, in files that are in memory, in files on disk, and Apache's.

One client of this process appends to a ledger of one bookie, over TCP, with many entries in flight. Counted are entries a second
and the CPU time of the bookie's process. All bookies run at the same time and are used in turn, so that what else the machine
does meets all of them. Files "in memory" are in ``/dev/shm``, where a sync costs a system call and no device; Apache's bookies
have theirs there too.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import typer

import bkclient
from benchmarks.cluster import config_of
from benchmarks.java_client import build_to_run
from benchmarks.measuring import machine, run_on
from benchmarks.processes import taken_by
from simbookie.processes import BookieProcess
from tests.interop.real_bookie import RealCluster
from tests.zookeepers import EmbeddedInThread

__all__ = ["measure_round"]

_MEMORY: Final = Path("/dev/shm")
_PAYLOAD: Final = 1024
_WINDOW: Final = 1000
_STORES: Final = ("sorted", "interleaved", "db")
_DB: Final = {
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": "128",
    "dbStorage_readAheadCacheMaxSizeMb": "64",
}


@dataclass(frozen=True)
class Contender:
    """A bookie that runs, in a cluster of its own."""

    name: str
    uri: str
    pid: int


async def append(uri: str, entries: int) -> None:
    """So many entries to a ledger of one bookie."""
    client = await bkclient.connect(uri, config=config_of(3, _WINDOW))
    try:
        async with await client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1) as writer:
            payload = bytes(_PAYLOAD)
            for _ in range(entries):
                await writer.submit(payload)
            await writer.flush()
    finally:
        await client.aclose()


def measure_round(contender: Contender, entries: int) -> tuple[float, float]:
    """Entries a second, and microseconds of the bookie's CPU time for one."""
    cpu, began = taken_by(contender.pid).cpu_s, time.perf_counter()
    run_on("asyncio", append(contender.uri, entries))
    took = time.perf_counter() - began
    return entries / took, (taken_by(contender.pid).cpu_s - cpu) / entries * 1e6


@contextmanager
def contenders(folder: Path, zookeeper: str) -> Iterator[tuple[list[Contender], str]]:
    """Every kind of bookie, and what was left out."""
    with ExitStack() as stack:
        found: list[Contender] = []

        def ours(name: str, *options: str) -> None:
            uri = f"zk+hierarchical://{zookeeper}/{name}"
            process = BookieProcess(name, uri, folder, bookie_id=name, options=options)
            process.start()
            stack.callback(process.kill)
            assert process.pid is not None, "it was started"
            found.append(Contender(name, uri, process.pid))

        ours("in-memory", "--capacity-mib", "4096")
        for place, root in (("shm", Path(tempfile.mkdtemp(dir=_MEMORY))), ("disk", folder)):
            stack.callback(shutil.rmtree, root, ignore_errors=True)
            for kind in _STORES:
                ours(f"{kind}-{place}", "--data", str(root / f"{kind}-{place}"), "--storage", kind)
        build, without = build_to_run()
        if build is not None:
            for name, settings in (("apache-sorted", {}), ("apache-db", _DB)):
                root = Path(tempfile.mkdtemp(dir=_MEMORY))
                stack.callback(shutil.rmtree, root, ignore_errors=True)
                uri = f"zk+hierarchical://{zookeeper}/{name}"
                cluster = RealCluster(
                    build, root / "data", uri, {**settings, "dbStorage_rocksDB_blockCacheSize": "16777216"}
                )
                stack.callback(cluster.close)
                pid = cluster.start(1).bookies[0].pid
                assert pid is not None, "it was started"
                found.append(Contender(name, uri, pid))
        yield found, without


def main(
    *,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    entries: Annotated[int, typer.Option(min=1000, help="Of 1 KiB, in a round.")] = 20_000,
) -> None:
    """Measure, and print a table; the last line is JSON."""
    folder = Path(tempfile.mkdtemp())
    try:
        with EmbeddedInThread() as zookeeper:
            _compare(folder, zookeeper.address, rounds, entries)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _compare(folder: Path, zookeeper: str, rounds: int, entries: int) -> None:
    with contenders(folder, zookeeper) as (found, without):
        samples: dict[str, list[tuple[float, float]]] = {each.name: [] for each in found}
        for number in range(rounds + 1):
            for each in found:
                sample = measure_round(each, entries)
                if number:  # the first warms up
                    samples[each.name].append(sample)
        rows = {}
        typer.echo(f"{'bookie':18} {'adds/s':>9}   {'(least to greatest)':22} {'CPU us/add':>10}   (least to greatest)")
        for name, taken in samples.items():
            rates, costs = zip(*taken, strict=True)
            rows[name] = {"adds_per_s": median(rates), "cpu_us": median(costs)}
            spread = f"({min(rates):.0f} to {max(rates):.0f})"
            typer.echo(
                f"{name:18} {median(rates):9.0f}   {spread:22} {median(costs):10.1f}   ({min(costs):.1f} to {max(costs):.1f})"
            )
        if without:
            typer.echo(without)
        typer.echo(json.dumps({"results": rows, "machine": machine(rounds=str(rounds), entries=str(entries))}))


if __name__ == "__main__":
    typer.run(main)

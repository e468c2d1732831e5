"""A long run of whole ledger lives under disturbances, and whether the client's process stays as large as it was.

Two clients in this process share a real ZooKeeper and bookies in processes of their own. Workers make ledgers, write, close,
tail, take over, abandon (drop a writer without closing it), cancel, read back and delete, one life after the other. Meanwhile
bookies are stopped for seconds and killed (a new one takes the place), and ZooKeeper is restarted and stopped until sessions
expire.

    python -m benchmarks.soak                     # an hour
    python -m benchmarks.soak --seconds 120 --calm

Ends with 1 if acknowledged entries are missing or wrong, if an operation takes longer than 100 s or fails with anything but a
BookKeeperError, or if resident memory, threads or descriptors at the end exceed those after the first tenth of the run.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import statistics
import threading
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Final, TypeVar

import anyio
import typer

import bkclient
from benchmarks.processes import taken_by
from bkclient import BookKeeper, LedgerWriter
from bkclient.errors import BookKeeperError
from simbookie.processes import ProcessCluster
from simbookie.zookeeper import ZooKeeperServer

BOOKIES: Final = 5
WORKERS: Final = 8
HANG_S: Final = 100.0
SAMPLE_S: Final = 10.0
SESSION_TIMEOUT_S: Final = 6.0
#: Resident memory may end this much above where it was after the warm-up: allocators never give everything back.
GROWTH_MAX_MIB: Final = 12.0

T = TypeVar("T")


class SoakError(Exception):
    """A promise was broken: the run has failed."""


@dataclass
class Sample:
    """What the process holds at one moment, after a garbage collection."""

    seconds: float
    rss_mib: float
    threads: int
    descriptors: int
    tasks: int
    objects: int


@dataclass
class Tally:
    """What happened so far."""

    lives: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    disturbances: Counter[str] = field(default_factory=Counter)
    appends: int = 0
    reads: int = 0
    unhandled: list[str] = field(default_factory=list)
    slowest_s: float = 0.0


def take_sample(began: float) -> Sample:
    """Look at this process."""
    gc.collect()
    return Sample(
        seconds=round(time.monotonic() - began, 1),
        rss_mib=round(taken_by(os.getpid()).resident_bytes / 2**20, 1),
        threads=threading.active_count(),
        descriptors=len(list(Path("/proc/self/fd").iterdir())),
        tasks=len(asyncio.all_tasks()),
        objects=len(gc.get_objects()),
    )


class Lives:
    """Whole lives of ledgers, one kind a method, on two clients."""

    def __init__(self, owner: BookKeeper, other: BookKeeper, tally: Tally, rng: random.Random) -> None:
        self.owner = owner
        self.other = other
        self.tally = tally
        self.rng = rng
        self.kinds: dict[str, Callable[[], Awaitable[int]]] = {
            "closed": self.closed,
            "tailed": self.tailed,
            "taken over": self.taken_over,
            "abandoned": self.abandoned,
            "cancelled": self.cancelled,
        }

    async def run(self, until: float) -> None:
        """One life after the other, until the time is up."""
        while time.monotonic() < until:
            kind = self.rng.choice(list(self.kinds))
            try:
                ledger_id = await self.bounded(self.kinds[kind](), kind)
                await self.bounded(self.owner.delete_ledger(ledger_id), "delete")
                self.tally.lives[kind] += 1
            except BookKeeperError as error:
                self.tally.errors[type(error).__name__] += 1
                await asyncio.sleep(0.2)

    async def bounded(self, operation: Awaitable[T], name: str) -> T:
        """What ``operation`` returns; :class:`SoakError` if it takes too long."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(HANG_S):
                return await operation
        except TimeoutError as error:
            raise SoakError(f"{name!r} took longer than {HANG_S:g} s") from error
        finally:
            self.tally.slowest_s = max(self.tally.slowest_s, time.monotonic() - began)

    async def written(self) -> tuple[LedgerWriter, list[bytes]]:
        """A new ledger with some entries, all acknowledged."""
        writer = await self.owner.create_ledger(ensemble_size=3, write_quorum_size=3, ack_quorum_size=2)
        payloads = [self.rng.randbytes(self.rng.randint(0, 2000)) for _ in range(self.rng.randint(1, 60))]
        for payload in payloads:
            await writer.submit(payload)
        await writer.flush()
        self.tally.appends += len(payloads)
        return writer, payloads

    async def check(self, ledger_id: int, acknowledged: list[bytes], *, may_have_more: bool = False) -> None:
        """Open and recover the ledger with the other client and compare what is in it."""
        async with await self.other.open_ledger(ledger_id, recover=True) as reader:
            found = [entry.payload async for entry in reader]
        self.tally.reads += len(found)
        if found[: len(acknowledged)] != acknowledged or (len(found) > len(acknowledged) and not may_have_more):
            raise SoakError(
                f"ledger {ledger_id}: {len(acknowledged)} entries were acknowledged, {len(found)} were read"
            )

    async def closed(self) -> int:
        """Written, closed, read."""
        writer, payloads = await self.written()
        await writer.close()
        await self.check(writer.ledger_id, payloads)
        return writer.ledger_id

    async def tailed(self) -> int:
        """Followed by the other client while it is written."""
        writer, payloads = await self.written()
        reader = await self.other.open_ledger(writer.ledger_id, recover=False)
        async with reader, reader.tail() as tail, anyio.create_task_group() as tasks:
            tasks.start_soon(writer.close)
            found = [entry.payload async for entry in tail]
        self.tally.reads += len(found)
        if found != payloads:
            raise SoakError(f"ledger {writer.ledger_id}: a tail read {len(found)} of {len(payloads)} entries")
        return writer.ledger_id

    async def taken_over(self) -> int:
        """Taken over by the other client; its writer is refused."""
        writer, payloads = await self.written()
        await self.check(writer.ledger_id, payloads)
        try:
            await writer.append(b"too late")
        except BookKeeperError:
            return writer.ledger_id
        raise SoakError(f"ledger {writer.ledger_id}: an entry was acknowledged after the ledger was taken over")

    async def abandoned(self) -> int:
        """Dropped by its writer, which never closes it; recovered by the other client."""
        writer, payloads = await self.written()
        ledger_id = writer.ledger_id
        del writer
        await self.check(ledger_id, payloads)
        return ledger_id

    async def cancelled(self) -> int:
        """Written by callers that go away while their entries are in flight."""
        writer, payloads = await self.written()
        late = [writer.append_nowait(b"nobody waits for this") for _ in range(5)]
        for future in late:
            future.cancel()
        await writer.close()
        await self.check(writer.ledger_id, payloads, may_have_more=True)
        return writer.ledger_id


class Disturber:
    """Breaks one thing after the other, and lets everything recover in between."""

    def __init__(self, cluster: ProcessCluster, zookeeper: ZooKeeperServer, tally: Tally, rng: random.Random) -> None:
        self.cluster = cluster
        self.zookeeper = zookeeper
        self.tally = tally
        self.rng = rng

    async def run(self, until: float) -> None:
        """Until a quarter of a minute before the time is up."""
        kinds = (self.pause_bookie, self.replace_bookie, self.restart_zookeeper, self.expire_sessions)
        while time.monotonic() < until - 30:
            await asyncio.sleep(self.rng.uniform(8, 16))
            kind = self.rng.choice(kinds)
            await kind()
            self.tally.disturbances[kind.__name__.replace("_", " ")] += 1

    async def pause_bookie(self) -> None:
        """One bookie stands still for some seconds."""
        bookie = self.rng.choice([bookie for bookie in self.cluster.bookies if bookie.is_running])
        bookie.pause()
        await asyncio.sleep(self.rng.uniform(1, 8))
        bookie.resume()

    async def replace_bookie(self) -> None:
        """One bookie is killed for good and another one added; ledgers live too short to lose a second copy so."""
        await asyncio.to_thread(self.cluster.add)
        self.rng.choice([bookie for bookie in self.cluster.bookies if bookie.is_running]).kill()
        await asyncio.sleep(10)

    async def restart_zookeeper(self) -> None:
        """ZooKeeper ends and comes back with its data."""
        await asyncio.to_thread(self.zookeeper.stop)
        await asyncio.sleep(self.rng.uniform(0, 2))
        await asyncio.to_thread(self.zookeeper.start)

    async def expire_sessions(self) -> None:
        """ZooKeeper stands still for longer than sessions last."""
        self.zookeeper.pause()
        await asyncio.sleep(SESSION_TIMEOUT_S * 2)
        self.zookeeper.resume()


def growth(samples: list[Sample]) -> list[str]:
    """What is larger at the end than after the warm-up, in words; medians of a tenth of the samples each."""
    tenth = len(samples) // 10
    early, late = (samples[tenth : 2 * tenth], samples[-tenth:]) if tenth else (samples[:1], samples[-1:])
    bounds = {"rss_mib": GROWTH_MAX_MIB, "threads": 0.0, "descriptors": 4.0}
    found = []
    for name, allowed in bounds.items():
        before, after = (statistics.median(getattr(sample, name) for sample in part) for part in (early, late))
        if after > before + allowed:
            found.append(f"{name} grew from {before:g} to {after:g}, by more than {allowed:g}")
    return found


async def sampled(tally: Tally, samples: list[Sample], began: float, until: float, *, is_quiet: bool) -> None:
    """Take samples until the time is up."""
    while time.monotonic() < until:
        await asyncio.sleep(SAMPLE_S)
        samples.append(take_sample(began))
        if not is_quiet:
            typer.echo(f"{asdict(samples[-1])} {tally.lives.total()} ledgers, {tally.errors.total()} errors", err=True)


async def soak(seconds: float, seed: int, *, calm: bool, is_quiet: bool) -> tuple[Tally, list[Sample], str | None]:
    """The whole run: what happened, the samples, and what ended it early if anything did."""
    tally, samples, broken = Tally(), list[Sample](), None
    asyncio.get_running_loop().set_exception_handler(lambda _, context: tally.unhandled.append(str(context)))
    rng = random.Random(seed)
    with ZooKeeperServer() as zookeeper, ProcessCluster(zookeeper.metadata_uri(), BOOKIES) as cluster:
        config = bkclient.ClientConfig(timeouts=bkclient.TimeoutSettings(metadata_session_s=SESSION_TIMEOUT_S))
        uri = zookeeper.metadata_uri()
        async with bkclient.connect(uri, config=config) as owner, bkclient.connect(uri, config=config) as other:
            began = time.monotonic()
            until = began + seconds
            try:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(WORKERS):
                        tasks.create_task(Lives(owner, other, tally, random.Random(rng.random())).run(until))
                    tasks.create_task(sampled(tally, samples, began, until, is_quiet=is_quiet))
                    if not calm:
                        tasks.create_task(Disturber(cluster, zookeeper, tally, rng).run(until))
            except* SoakError as errors:
                broken = "; ".join(str(error) for error in errors.exceptions)
    return tally, samples, broken


def main(
    seconds: Annotated[float, typer.Option(help="How long to run.")] = 3600.0,
    seed: Annotated[int, typer.Option(help="Chooses lives and disturbances; timing is not reproducible.")] = 1,
    *,
    calm: Annotated[bool, typer.Option("--calm", help="No disturbances.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Run, print the samples and what happened, and judge."""
    warnings.simplefilter("ignore", ResourceWarning)  # abandoned writers are part of this
    tally, samples, broken = asyncio.run(soak(seconds, seed, calm=calm, is_quiet=as_json))
    problems = ([broken] if broken else []) + growth(samples) + tally.unhandled
    result = {**asdict(tally), "samples": [asdict(sample) for sample in samples], "problems": problems}
    if as_json:
        typer.echo(json.dumps(result))
    else:
        typer.echo(f"{tally.lives.total()} ledgers {dict(tally.lives)}, {tally.appends} appends, {tally.reads} reads")
        typer.echo(
            f"disturbances {dict(tally.disturbances)}; errors {dict(tally.errors)}; slowest {tally.slowest_s:.1f} s"
        )
        for problem in problems:
            typer.echo(f"PROBLEM: {problem}")
        typer.echo("not flat, or worse" if problems else "all promises kept; memory, threads and descriptors flat")
    raise typer.Exit(1 if problems else 0)


if __name__ == "__main__":
    typer.run(main)

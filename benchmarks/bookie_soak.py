"""Whether the memory of a bookie on disk stays as it is while ledgers are written, read, deleted, collected and compacted.

One bookie is a process of its own, with a folder on disk and every part of its storage at work: a journal that rolls,
checkpoints, entry logs that fill up, garbage collection, minor and major compaction. One client writes at a fixed rate, over
TCP. Of every four ledgers written in turns three are deleted at once, and one is kept for a while, so that compaction has
entries to move; before it is deleted, every entry of it is read and compared.

    python -m benchmarks.bookie_soak                                   # an hour
    python -m benchmarks.bookie_soak --seconds 600 --store sorted --adds-per-s 500

    python -m benchmarks.bookie_soak --seconds 180 --leak-bytes-per-add 200   # has to end with 1

Prints one JSON object for each sample, and one with the verdict. Ends with 1 if an entry is missing or wrong, if nothing was
collected or compacted, or if in the second half resident memory grows, or what the files take: see :func:`trend_of`. What
RocksDB may gather in memory is made small, because its buffer of 64 MiB fills up and is emptied a few times in an hour, and a
leak hides in that.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import struct
import tempfile
import time
import urllib.request
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Annotated, Final

import typer

import bkclient
from benchmarks.leaking_bookie import LEAK_VARIABLE, LeakingBookie
from benchmarks.processes import taken_by
from bkclient import BookKeeper
from bkclient.errors import BookKeeperError
from simbookie.processes import BookieProcess
from tests.zookeepers import EmbeddedInThread

__all__ = ["Sample", "SoakError", "Trend", "problems_of", "trend_of"]

#: Ledgers that are written in turns; all but one of them are deleted when they are closed.
LEDGERS: Final = 4
#: Of those that are kept, so many at a time.
KEPT: Final = 12
#: The part of the run that does not count: caches fill, modules are loaded, the first logs are compacted, memory comes to pieces.
WARM_UP: Final = 1 / 2
#: The rest is cut into so many parts, and each counts by its median: neighbouring samples depend on each other, parts hardly do.
PARTS: Final = 12
#: Standard errors of the slope that are granted to chance.
STANDARD_ERRORS: Final = 2.0
#: In a run, unless said otherwise: every five seconds in an hour.
SAMPLES: Final = 720
#: Growth in MiB over the part of the run that counts, beyond chance, that is still no growth.
GROWTH_MAX_MIB: Final = 2.0
#: And growth of the files, as a share of what they take: live entries are as many at any time, and garbage goes in waves.
FILES_GROWTH_MAX: Final = 0.25
_BURST: Final = 50
_SESSION_S: Final = 60.0
#: A busy machine is no reason to fail.
_START_S: Final = 600.0
_NOISE: Final = Random(1).randbytes(4096)
_HEAD: Final = struct.Struct(">qq")
_CONF: Final = """\
gcWaitTime=10000
minorCompactionInterval=30
majorCompactionInterval=120
minorCompactionThreshold=0.3
majorCompactionThreshold=0.8
logSizeLimit=16777216
journalMaxSizeMB=16
journalMaxBackups=1
skipListSizeLimit=8388608
dbStorage_writeCacheMaxSizeMb=16
dbStorage_readAheadCacheMaxSizeMb=16
dbStorage_rocksDB_writeBufferSizeMB=1
dbStorage_rocksDB_blockCacheSize=1048576
"""
#: Counters of the bookie's by which one sees that what is to be shown to leave nothing behind has happened.
_COUNTERS: Final = {
    "deleted_ledgers": "DELETED_LEDGER_TOTAL",
    "minor_compactions": "MINOR_COMPACTION_TOTAL",
    "major_compactions": "MAJOR_COMPACTION_TOTAL",
    "reclaimed_by_deletion": "RECLAIMED_DELETION_SPACE_BYTES",
    "reclaimed_by_compaction": "RECLAIMED_COMPACTION_SPACE_BYTES",
}
#: And those by which one sees that something went wrong, with their labels.
_FAILURES: Final = {"failed_checkpoints": 'bookie_CHECKPOINTS{success="false"}'}


class SoakError(Exception):
    """An entry that was acknowledged is missing, or is another one."""


@dataclass(frozen=True)
class Sample:
    """What the bookie's process has, and has done, at one moment."""

    seconds: float
    rss_mib: float
    cpu_s: float
    descriptors: int
    files_mib: float
    adds: int
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Trend:
    """How something went after the warm-up: MiB an hour, the standard error of that, and over how many hours."""

    slope_mib_per_h: float
    error_mib_per_h: float
    hours: float
    least_mib: float
    median_mib: float
    most_mib: float

    @property
    def growth_mib(self) -> float:
        """Growth over the time that counts which chance does not explain; 0 if there is none."""
        return max(0.0, (self.slope_mib_per_h - STANDARD_ERRORS * self.error_mib_per_h) * self.hours)


def trend_of(samples: Sequence[Sample], of: Callable[[Sample], float] = lambda sample: sample.rss_mib) -> Trend:
    """The line through the medians of the parts after the warm-up; :class:`ValueError` if there are too few samples for it.

    ``of`` says what of a sample goes up or down: resident memory, or what the files take.
    """
    counted = [sample for sample in samples if sample.seconds >= samples[-1].seconds * WARM_UP]
    if len(counted) < 2 * PARTS:
        raise ValueError(f"a trend needs {2 * PARTS} samples after the warm-up, got {len(counted)}")
    edges = [round(part * len(counted) / PARTS) for part in range(PARTS + 1)]
    parts = [counted[first:end] for first, end in pairwise(edges)]
    hours = [fmean(sample.seconds for sample in part) / 3600 for part in parts]
    levels = [median(map(of, part)) for part in parts]
    middle, level = fmean(hours), fmean(levels)
    spread = sum((hour - middle) ** 2 for hour in hours)
    slope = sum((h - middle) * (m - level) for h, m in zip(hours, levels, strict=True)) / spread
    rest = sum((m - level - slope * (h - middle)) ** 2 for h, m in zip(hours, levels, strict=True))
    counted_mib = list(map(of, counted))
    return Trend(
        slope_mib_per_h=round(slope, 3),
        error_mib_per_h=round(math.sqrt(rest / (PARTS - 2) / spread), 3),
        hours=round((counted[-1].seconds - counted[0].seconds) / 3600, 3),
        least_mib=min(counted_mib),
        median_mib=median(counted_mib),
        most_mib=max(counted_mib),
    )


def problems_of(samples: Sequence[Sample], trend: Trend) -> list[str]:
    """Why this run does not show a bookie whose memory stays as it is, in words."""
    found = []
    if trend.growth_mib > GROWTH_MAX_MIB:
        found.append(f"memory grew by {trend.growth_mib:.1f} MiB in {trend.hours:g} h, beyond chance")
    files = trend_of(samples, lambda sample: sample.files_mib)
    if files.growth_mib > FILES_GROWTH_MAX * files.median_mib:
        found.append(f"files grew by {files.growth_mib:.0f} MiB in {files.hours:g} h, beyond chance")
    failures = ((name, samples[-1].counters.get(name, 0)) for name in _FAILURES)
    found += [f"{name} is {count}: the log of the bookie says why" for name, count in failures if count]
    found += [f"{name} is 0: the run shows nothing of it" for name in _COUNTERS if not samples[-1].counters.get(name)]
    return found


def payload_of(ledger_id: int, entry_id: int) -> bytes:
    """What is written as this entry: 16 to 2015 bytes that no other entry has."""
    number = ledger_id * 104_729 + entry_id * 7_919
    return _HEAD.pack(ledger_id, entry_id) + _NOISE[number % 2096 :][: number % 2000]


class Load:
    """Whole lives of ledgers at a fixed rate, on one client."""

    def __init__(self, client: BookKeeper, adds_per_s: float, entries: int) -> None:
        self._client = client
        self._adds_per_s = adds_per_s
        self._entries = entries
        self._kept: deque[int] = deque()
        self.adds = 0
        self.reads = 0
        self.errors: Counter[str] = Counter()

    async def run(self, until: float) -> None:
        """One round after the other; an error of the client's ends a round and is counted."""
        while time.monotonic() < until:
            try:
                await self._round()
            except BookKeeperError as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(1.0)

    async def _round(self) -> None:
        ledgers = await self._written()
        kept, *others = ledgers
        for ledger_id in others:
            await self._client.delete_ledger(ledger_id)
        self._kept.append(kept)
        if len(self._kept) > KEPT:
            oldest = self._kept.popleft()
            await self._check(oldest)
            await self._client.delete_ledger(oldest)

    async def _written(self) -> list[int]:
        writers = [
            await self._client.create_ledger(ensemble_size=1, write_quorum_size=1, ack_quorum_size=1)
            for _ in range(LEDGERS)
        ]
        began, adds = time.monotonic(), 0
        for entry_id in range(self._entries):
            for writer in writers:
                await writer.submit(payload_of(writer.ledger_id, entry_id))
            adds += LEDGERS
            if entry_id % _BURST == _BURST - 1:
                await asyncio.sleep(max(0.0, began + adds / self._adds_per_s - time.monotonic()))
        for writer in writers:
            await writer.aclose()
        self.adds += adds
        return [writer.ledger_id for writer in writers]

    async def _check(self, ledger_id: int) -> None:
        read: list[int] = []
        async with await self._client.open_ledger(ledger_id) as reader:
            async for entry in reader:
                if entry.payload != payload_of(ledger_id, entry.entry_id):
                    raise SoakError(f"ledger {ledger_id}, entry {entry.entry_id}: not what was written")
                read.append(entry.entry_id)
        if read != list(range(self._entries)):
            missing = sorted(set(range(self._entries)) - set(read))
            raise SoakError(
                f"ledger {ledger_id}: {self._entries} entries were acknowledged, {len(read)} were read, the last add confirmed "
                f"is {reader.last_add_confirmed}, and the first that are missing are {missing[:20]}"
            )
        self.reads += len(read)


def counters_of(metrics: str) -> dict[str, int]:
    """The counters above in what a bookie tells Prometheus, all folders and scopes together."""
    found = dict.fromkeys((*_COUNTERS, *_FAILURES), 0)
    for line in metrics.splitlines():
        metric, _, value = line.rpartition(" ")
        name = metric.partition("{")[0]
        found |= {failure: int(float(value)) for failure, labelled in _FAILURES.items() if metric == labelled}
        for counter, suffix in _COUNTERS.items():
            if name in (f"bookie_{suffix}", f"bookie_gc_{suffix}"):
                found[counter] += int(float(value))
    return found


def _sample(bookie: BookieProcess, folder: Path, seconds: float, adds: int) -> Sample:
    assert bookie.pid is not None, "it was started"
    taken = taken_by(bookie.pid)
    with urllib.request.urlopen(f"http://127.0.0.1:{bookie.admin_port}/metrics", timeout=60) as answer:
        counters = counters_of(answer.read().decode())
    return Sample(
        seconds=round(seconds, 1),
        rss_mib=round(taken.resident_bytes / 2**20, 2),
        cpu_s=taken.cpu_s,
        descriptors=len(list(Path(f"/proc/{bookie.pid}/fd").iterdir())),
        files_mib=round(sum(map(_size, _files_in(folder))) / 2**20, 1),
        adds=adds,
        counters=counters,
    )


def _files_in(folder: Path) -> list[Path]:
    """Folders that go meanwhile are passed over."""
    return [Path(root, name) for root, _, names in os.walk(folder) for name in names]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0  # collected meanwhile


async def _soak(bookie: BookieProcess, uri: str, folder: Path, options: Options) -> tuple[list[Sample], Load]:
    timeouts = bkclient.TimeoutSettings(add_s=_SESSION_S, read_s=_SESSION_S, metadata_session_s=_SESSION_S)
    samples: list[Sample] = []
    async with bkclient.connect(uri, config=bkclient.ClientConfig(timeouts=timeouts)) as client:
        load = Load(client, options.adds_per_s, options.entries)
        began = time.monotonic()

        async def sampled() -> None:
            while True:
                await asyncio.sleep(options.sample_s)
                seconds = time.monotonic() - began
                samples.append(await asyncio.to_thread(_sample, bookie, folder, seconds, load.adds))
                typer.echo(json.dumps(asdict(samples[-1])))

        sampling = asyncio.create_task(sampled())
        try:
            await load.run(began + options.seconds)
        finally:
            sampling.cancel()
            (outcome,) = await asyncio.gather(sampling, return_exceptions=True)
    if isinstance(outcome, Exception):
        raise outcome  # it ended before its time, and what is there of samples tells too little
    return samples, load


@dataclass(frozen=True)
class Options:
    """How long, how much, on what."""

    seconds: float
    store: str
    adds_per_s: float
    entries: int
    sample_s: float
    leak_bytes_per_add: int


def main(
    *,
    seconds: Annotated[float, typer.Option(help="How long to run.")] = 3600.0,
    store: Annotated[str, typer.Option(help="The ledger store: sorted, interleaved or db.")] = "db",
    adds_per_s: Annotated[float, typer.Option(help="Entries a second, of 1 KiB on average.")] = 2000.0,
    entries: Annotated[int, typer.Option(min=_BURST, help="Of a ledger.")] = 5000,
    sample_s: Annotated[
        float | None, typer.Option(help="Seconds between two samples.  [default: 1/720 of the run]", show_default=False)
    ] = None,
    leak_bytes_per_add: Annotated[int, typer.Option(min=0, help="A leak that is planted, to see it told.")] = 0,
) -> None:
    """Run, print the samples, and judge."""
    options = Options(
        seconds, store, adds_per_s, entries, sample_s if sample_s is not None else seconds / SAMPLES, leak_bytes_per_add
    )
    folder = Path(tempfile.mkdtemp(prefix="bookie-soak-"))
    try:
        conf = folder / "bk_server.conf"
        conf.write_text(_CONF)
        with EmbeddedInThread() as zookeeper:
            uri = f"zk+hierarchical://{zookeeper.address}/soak"
            places = ("--data", str(folder / "data"), "--storage", store, "--conf", str(conf))
            serving = ("--session-timeout-s", str(_SESSION_S), "--admin-port", "0")
            os.environ[LEAK_VARIABLE] = str(leak_bytes_per_add)
            bookie = (LeakingBookie if leak_bytes_per_add else BookieProcess)(
                "soak", uri, folder, bookie_id="soak", options=(*places, *serving), start_timeout_s=_START_S
            )
            bookie.start()
            try:
                samples, load = asyncio.run(_soak(bookie, uri, folder / "data", options))
            finally:
                bookie.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    trend = trend_of(samples)
    problems = problems_of(samples, trend)
    facts = {"options": asdict(options), "adds": load.adds, "entries_read": load.reads, "errors": dict(load.errors)}
    typer.echo(json.dumps({**facts, "trend": asdict(trend), "problems": problems}))
    raise typer.Exit(1 if problems else 0)


if __name__ == "__main__":
    typer.run(main)

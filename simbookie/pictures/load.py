"""A bookie under load in virtual time, and the picture of it: back-pressure sets in, and lets go again.

Clients offer entries at a rate that the disk can follow, then for a while at one that it cannot, then less. A bookie that has too
many adds under way leaves the others with the clients, as one that is served over TCP leaves connections unread. Ledgers are
deleted now and then, and their space is collected.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from random import Random
from struct import Struct
from typing import Any, Final

from bkclient.ledger import Fragment, LedgerMetadata
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.wire.messages import AddRequest, Status
from simbookie.config import BookieConfig
from simbookie.garbage import GarbageCollector, GarbageConfig
from simbookie.measured import MeasuredBookie
from simbookie.pictures.chart import Curve, Panel, chart
from simbookie.pictures.sampling import Sampler, Samples
from simbookie.storage.conf import StorageConf
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk
from simbookie.storage.kinds import StoreKind
from simbookie.storage.volume import storage_on_disk
from simbookie.world.loop import VirtualTimeLoop

__all__ = ["OfferedLoad", "load_picture", "sampled_load"]

_HEADER: Final = Struct(">qqqq")
_KEY: Final = b"key of every ledger!"
_TICK_S: Final = 0.01
_LEDGERS: Final = 8
_BOOKIE: Final = "b0"
#: Rates are over so many samples, that is half a second.
_MOMENTS: Final = 5


@dataclass(frozen=True, slots=True)
class OfferedLoad:
    """What is offered: entries of ``entry_bytes``, ``usual`` a second, ``peak`` between ``peak_from_s`` and ``peak_to_s``."""

    seconds: float = 16.0
    usual: int = 500
    peak: int = 4_000
    peak_from_s: float = 3.0
    peak_to_s: float = 7.0
    entry_bytes: int = 4_096
    #: A ledger is given up, and deleted, after so many seconds.
    ledger_age_s: float = 2.0

    def __post_init__(self) -> None:
        if not (0 < self.usual <= self.peak and 0 <= self.peak_from_s <= self.peak_to_s <= self.seconds):
            raise ValueError(
                f"load: 0 < usual <= peak and 0 <= peak_from_s <= peak_to_s <= seconds must hold, got {self}"
            )
        if not (self.entry_bytes >= _HEADER.size and self.ledger_age_s > 0):
            raise ValueError(f"load: entry_bytes must be >= {_HEADER.size} and ledger_age_s > 0, got {self}")

    def rate(self, at: float) -> int:
        """Entries offered in a second."""
        return self.peak if self.peak_from_s <= at < self.peak_to_s else self.usual


class _Clients:
    """Everything that is offered to a bookie, and what came of it."""

    def __init__(self, load: OfferedLoad, bookie: MeasuredBookie, store: Any) -> None:
        self._load = load
        self._bookie = bookie
        self._store = store
        self._payload = bytes(load.entry_bytes - _HEADER.size)
        self._next_ledger = 0
        self._ledgers: list[list[int]] = []
        self._turn = 0
        self.offered = self.acknowledged = self.refused = self.waiting = 0

    def values(self) -> dict[str, float]:
        """For the sampler."""
        return {
            "offered": self.offered,
            "acknowledged": self.acknowledged,
            "refused": self.refused,
            "with clients": self.waiting,
        }

    async def run(self) -> None:
        """Offer entries until the load ends."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        owed = 0.0
        next_ledger_at = 0.0
        while (at := loop.time() - began) < self._load.seconds:
            if at >= next_ledger_at:
                await self._begin_ledger()
                next_ledger_at += self._load.ledger_age_s / _LEDGERS
            owed += self._load.rate(at) * _TICK_S
            new, owed = int(owed), owed - int(owed)
            self.offered += new
            self.waiting += new
            self._send()
            await asyncio.sleep(_TICK_S)

    async def _begin_ledger(self) -> None:
        self._next_ledger += 1
        fragments = (Fragment(0, (_BOOKIE,)),)
        await self._store.create_ledger(LedgerMetadata(self._next_ledger, 1, 1, 1, fragments))
        self._ledgers.append([self._next_ledger, 0])
        if len(self._ledgers) > _LEDGERS:
            ledger_id, _ = self._ledgers.pop(0)
            await self._store.delete_ledger(ledger_id)

    def _send(self) -> None:
        """As much as the bookie has room for; the rest stays with the clients."""
        while self.waiting and self._bookie.add_room.left > 0:
            self.waiting -= 1
            self._turn += 1
            ledger = self._ledgers[self._turn % len(self._ledgers)]
            ledger_id, entry_id = ledger
            ledger[1] += 1
            header = _HEADER.pack(ledger_id, entry_id, entry_id - 1, 0)
            self._bookie.submit(AddRequest(ledger_id, entry_id, _KEY, header, self._payload), self._answered)

    def _answered(self, response: Any) -> None:
        if response.status is Status.OK:
            self.acknowledged += 1
        else:
            self.refused += 1
            self.waiting += 1


def _conf(kind: StoreKind) -> StorageConf:
    """Small caches and logs and short intervals, so that some seconds show what takes a real bookie hours."""
    return StorageConf.from_conf(
        {
            "ledgerStorageClass": kind.class_name,
            "skipListSizeLimit": str(8 << 20),
            "dbStorage_writeCacheMaxSizeMb": "16",
            "logSizeLimit": str(4 << 20),
            "journalMaxSizeMB": "16",
            "journalQueueSize": "100",
            "journalMaxGroupWaitMSec": "2",
            "gcWaitTime": "1000",
            "minorCompactionInterval": "2",
            "majorCompactionInterval": "6",
            "compactionRateByEntries": "20000",
            "flushInterval": "1000",
        }
    )


async def _played(kind: StoreKind, load: OfferedLoad, seed: int) -> Samples:
    rng = Random(seed)  # noqa: S311  where new logs go
    costs = DiskCosts(sync_s=0.004, write_bandwidth=10e6, at_a_time=2)
    disk = SimulatedDisk(rng, costs=costs, capacity_bytes=4 << 30)
    conf = _conf(kind)
    storage = storage_on_disk(disk, conf, clock_ms=lambda: 0, rng=rng)
    bookie = MeasuredBookie(_BOOKIE, storage, BookieConfig(pending_adds_max=500, add_wait_max_s=10.0))
    store = MemoryMetadataService().session(rng=rng)
    collector = GarbageCollector(bookie, store, GarbageConfig(conf.compaction.gc_interval_s, 0.0))
    started = asyncio.Event()
    bookie.start(started.set)
    await started.wait()
    clients = _Clients(load, bookie, store)
    sampler = Sampler(bookie, collector, more=clients.values)
    collecting = asyncio.create_task(collector.run())
    sampler.start()
    await clients.run()
    sampler.stop()
    collecting.cancel()
    await asyncio.gather(collecting, return_exceptions=True)
    bookie.crash()
    await store.aclose()
    return sampler.samples


def sampled_load(kind: StoreKind, load: OfferedLoad | None = None, seed: int = 0) -> Samples:
    """Samples of a bookie with a store of ``kind`` under ``load``; of the same arguments, the same ones."""
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(_played(kind, load if load is not None else OfferedLoad(), seed))
    finally:
        loop.close()


def load_picture(kind: StoreKind, samples: Samples) -> str:
    """The picture of such samples."""
    of, rate, gc = samples.of, partial(samples.rate, moments=_MOMENTS), partial(_garbage, samples)
    panels = [
        Panel("entries a second", [Curve("offered", rate("offered")), Curve("acknowledged", rate("acknowledged"))]),
        Panel("adds that wait", [Curve("with clients", of("with clients")), Curve("in the bookie", _pending(samples))]),
        Panel(
            "journal: records that wait",
            [Curve("queued", of("bookie_journal_JOURNAL_QUEUE_SIZE")), Curve("in line", _line(samples))],
        ),
        Panel(
            "write cache, bytes",
            [
                Curve("waiting for a flush", of("bookie_write_cache_size")),
                Curve("limit", of("bookie_write_cache_max_size"), is_limit=True),
            ],
        ),
        Panel(
            "journal, a second",
            [Curve("syncs", rate("bookie_journal_JOURNAL_SYNCS")), Curve("groups", _groups(samples))],
        ),
        Panel("store, a second", [Curve("flushes", rate(_flushes(samples)))]),
        Panel(
            "entry logs, bytes",
            [
                Curve("all", gc("ENTRY_LOG_SPACE_BYTES")),
                Curve("of ledgers that exist", gc("ACTIVE_ENTRY_LOG_SPACE_BYTES")),
            ],
        ),
        Panel(
            "bytes given back by garbage collection",
            [
                Curve("whole logs", gc("RECLAIMED_DELETION_SPACE_BYTES")),
                Curve("compaction", gc("RECLAIMED_COMPACTION_SPACE_BYTES")),
            ],
        ),
    ]
    return chart(f"A bookie with a store of kind {kind.value} under load, in virtual time", samples.times, panels)


def _pending(samples: Samples) -> list[float]:
    return samples.of("bookkeeper_server_ADD_ENTRY_IN_PROGRESS")


def _line(samples: Samples) -> list[float]:
    return samples.of("bookie_journal_JOURNAL_QUEUE_LINE")


def _garbage(samples: Samples, name: str) -> list[float]:
    """What a collector counts, which a store with a database files elsewhere."""
    scope = "bookie_gc" if f"bookie_gc_{name}" in samples.series else "bookie"
    return samples.of(f"{scope}_{name}")


def _flushes(samples: Samples) -> str:
    """A store without a counter of flushes has one for each checkpoint."""
    return "bookie_flushes" if "bookie_flushes" in samples.series else "bookie_CHECKPOINTS"


def _groups(samples: Samples) -> list[float]:
    causes = ("MAX_WAIT", "MAX_OUTSTANDING_BYTES", "EMPTY_QUEUE")
    rates = [samples.rate(f"bookie_journal_JOURNAL_NUM_FLUSH_{cause}", _MOMENTS) for cause in causes]
    return [sum(each) for each in zip(*rates, strict=True)]

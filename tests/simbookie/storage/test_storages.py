"""What every storage promises a bookie: the same stories over the one in memory and over journals with each ledger store."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from simbookie.bookie import Bookie
from simbookie.storage.base import CrashMode, CrashReport, LedgerInfo, LedgerStorage, StorageError
from simbookie.storage.db.store import DbLedgerStore
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.interleaved import InterleavedLedgerStore
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.journaled_config import JournaledConfig
from simbookie.storage.memory import MemoryStorage, MemoryStorageConfig, RecordLog
from simbookie.storage.sorted import SortedLedgerStore
from tests.simbookie.storage.journals import journal_settings
from tests.simbookie.storage.stores import entry, read_by

Virtually = Callable[[Callable[[], Any]], None]
WAIT_S = 0.001
SYNC_S = 0.010


def in_memory(wait_s: float) -> LedgerStorage:
    journal = JournalConfig(group_wait_max_s=wait_s, sync_latency_s=SYNC_S)
    return MemoryStorage(MemoryStorageConfig(journal=journal, ledger_bytes=0), RecordLog())


def on_disk(kind: type[InterleavedLedgerStore | SortedLedgerStore | DbLedgerStore], wait_s: float) -> LedgerStorage:
    disk = SimulatedDisk(costs=DiskCosts(sync_s=SYNC_S))
    ledgers = Folder(disk, "ledgers/current")
    settings = JournaledConfig(journal=journal_settings(group_wait_max_s=wait_s))
    return JournaledStorage([Folder(disk, "journal/current")], [ledgers], kind(Folders([ledgers], Random(1))), settings)


Make = Callable[[float], LedgerStorage]
MAKERS: dict[str, Make] = {
    "memory": in_memory,
    "interleaved": partial(on_disk, InterleavedLedgerStore),
    "sorted": partial(on_disk, SortedLedgerStore),
    "db": partial(on_disk, DbLedgerStore),
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Make:
    return MAKERS[request.param]


async def opened(storage: LedgerStorage) -> LedgerStorage:
    done = asyncio.get_running_loop().create_future()
    storage.open(lambda: done.set_result(None), lambda _: None)
    await done
    await asyncio.sleep(1)
    return storage


def read(storage: LedgerStorage, ledger_id: int, entry_id: int) -> Any:
    return read_by(partial(storage.read_entry, ledger_id, entry_id))


def ignore(_token: object, _error: object) -> None:
    pass


def test_an_entry_is_readable_at_once_and_the_last_one_is_that_with_the_highest_id(
    virtually: Virtually, make: Make
) -> None:
    async def story() -> None:
        storage = await opened(make(WAIT_S))
        assert storage.acks_are_durable
        storage.set_master_key(1, b"key")
        assert await read(storage, 1, -1) is None
        storage.add_entry(1, 5, entry(1, 5), None, None)
        storage.add_entry(1, 2, entry(1, 2), None, None)
        assert await read(storage, 1, -1) == await read(storage, 1, 5) == entry(1, 5)
        assert await read(storage, 1, 3) is None
        assert storage.entry_ids(1) == [2, 5]
        assert [list(ids) for ids in storage.entry_runs(1)] == [[2, 5], [2, 5]]
        assert storage.count_runs(1) >= 2

    virtually(story)


@pytest.mark.rule("BK-23")
@pytest.mark.parametrize("mode", list(CrashMode))
def test_everything_synced_survives_a_crash(virtually: Virtually, make: Make, mode: CrashMode) -> None:
    packet = struct.pack(">qq", 1, 7) + b"digest"

    async def story() -> None:
        storage = await opened(make(WAIT_S))
        storage.set_master_key(1, b"key")
        storage.add_entry(1, 0, entry(1, 0), None, None)
        storage.add_entry(1, 1, entry(1, 1, lac=0), None, None)
        storage.set_explicit_lac(1, 7, packet, ignore, None)
        storage.fence(1, ignore, None)
        await asyncio.sleep(1)
        assert storage.crash(mode) == CrashReport()
        await opened(storage)
        assert storage.ledger_ids() == [1]
        assert storage.ledger(1) == LedgerInfo(b"key", fenced=True, in_limbo=False, lac=7)
        assert storage.explicit_lac(1) == packet
        assert [await read(storage, 1, 0), await read(storage, 1, -1)] == [entry(1, 0), entry(1, 1, lac=0)]

    virtually(story)


@pytest.mark.rule("BK-23")
def test_a_crash_reports_what_it_destroyed_for_good(virtually: Virtually, make: Make) -> None:
    async def story() -> None:
        storage = await opened(make(WAIT_S))
        storage.set_master_key(1, b"key")
        storage.add_entry(1, 0, entry(1, 0, b"first copy"), None, None)
        await asyncio.sleep(1)
        storage.add_entry(1, 0, entry(1, 0, b"second copy"), None, None)
        storage.add_entry(1, 1, entry(1, 1), None, None)
        storage.fence(1, ignore, None)
        assert storage.crash(CrashMode.PROCESS) == CrashReport(entries_lost=((1, 1),), fences_lost=(1,))
        await opened(storage)
        assert await read(storage, 1, 0) == entry(1, 0, b"first copy")
        assert storage.ledger(1) == LedgerInfo(b"key", lac=-1)

    virtually(story)


def test_callbacks_come_in_order_after_the_sync_and_never_after_a_crash(virtually: Virtually, make: Make) -> None:
    async def story() -> None:
        storage = await opened(make(WAIT_S))
        calls: list[tuple[object, bool]] = []

        def note(token: object, error: StorageError | None) -> None:
            assert error is None
            calls.append((token, asyncio.get_running_loop().time() >= began + SYNC_S))

        began = asyncio.get_running_loop().time()
        storage.set_master_key(1, b"key")
        storage.add_entry(1, 0, entry(1, 0), note, "entry")
        storage.add_entry(1, 1, entry(1, 1), None, "written", note)
        storage.fence(1, note, "fence")
        storage.force(1, note, "force")
        assert calls == []
        await asyncio.sleep(1)
        assert calls == [("written", False), ("entry", True), ("fence", True), ("force", True)]
        storage.add_entry(1, 2, entry(1, 2), note, "late")
        storage.crash(CrashMode.PROCESS)
        await asyncio.sleep(1)
        assert len(calls) == 4

    virtually(story)


def test_shutdown_runs_the_callbacks_that_wait_and_makes_everything_durable(virtually: Virtually, make: Make) -> None:
    async def story() -> None:
        storage = await opened(make(60.0))
        order: list[str] = []
        storage.set_master_key(1, b"key")
        storage.set_limbo(2, in_limbo=True)
        storage.add_entry(1, 0, entry(1, 0), lambda *_: order.append("entry"), None)
        storage.shutdown(lambda: order.append("closed"))
        assert order == []
        await asyncio.sleep(1)
        assert order == ["entry", "closed"]
        await opened(storage)
        storage.crash(CrashMode.POWER_LOSS)
        await opened(storage)
        assert await read(storage, 1, 0) == entry(1, 0)
        assert storage.ledger(2) == LedgerInfo(None, in_limbo=True)

    virtually(story)


def test_a_deleted_ledger_is_gone_and_stays_so_after_an_orderly_end(virtually: Virtually, make: Make) -> None:
    async def story() -> None:
        storage = await opened(make(WAIT_S))
        for ledger_id in (1, 2):
            storage.set_master_key(ledger_id, b"key")
            storage.add_entry(ledger_id, 0, entry(ledger_id, 0), None, None)
        await asyncio.sleep(1)
        storage.delete_ledger(1)
        assert (storage.ledger(1), storage.ledger_ids()) == (None, [2])
        storage.shutdown(lambda: None)
        await asyncio.sleep(1)
        await opened(storage)
        assert (storage.ledger(1), storage.ledger_ids()) == (None, [2])
        storage.set_master_key(1, b"other")
        assert (storage.entry_ids(1), storage.ledger(1)) == ([], LedgerInfo(b"other"))

    virtually(story)


def test_a_bookie_serves_from_it_and_forgets_nothing_that_it_acknowledged(
    virtually: Virtually, make: Make, kit: Any
) -> None:
    async def story() -> None:
        storage = make(WAIT_S)
        bookie = Bookie("b0", storage)
        bookie.start()
        await asyncio.sleep(1)
        answers = kit.Answers()
        for number in range(5):
            bookie.submit(kit.add(1, number, lac=number - 1), answers)
        bookie.submit(kit.fencing_read(1), answers)
        await asyncio.sleep(1)
        bookie.submit(kit.add(1, 5), answers)
        assert [status.name for status in answers.statuses] == [*["OK"] * 6, "FENCED"]
        bookie.crash(CrashMode.POWER_LOSS)
        bookie.start()
        await asyncio.sleep(1)
        answers.clear()
        bookie.submit(kit.add(1, 5), answers)
        bookie.submit(kit.fencing_read(1), answers)
        await asyncio.sleep(1)
        assert [status.name for status in answers.statuses] == ["FENCED", "OK"]

    virtually(story)

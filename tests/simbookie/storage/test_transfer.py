"""Disks as folders and back: what is exported is what a real folder would hold, and what is imported is served."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bkclient.wire.messages import AddRequest, ReadRequest, Request, Status
from simbookie.bookie import Bookie
from simbookie.storage.base import CrashMode, StorageIOError
from simbookie.storage.conf import StorageConf
from simbookie.storage.data_folder import DataPlaces, data_folder
from simbookie.storage.disk.base import Disk
from simbookie.storage.disk.directory import DirectoryDisk
from simbookie.storage.disk.simulated import SimulatedDisk
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.journaled import JournaledStorage
from simbookie.storage.kinds import StoreKind
from simbookie.storage.transfer import TransferError, export_disk, import_disk
from simbookie.storage.volume import storage_on_disk
from tests.simbookie.storage.stores import entry

Virtually = Callable[[Callable[[], Any]], None]
KEY = b"k" * 20
#: Small, so that logs and journals are rolled.
CONF = {
    "logSizeLimit": "3000",
    "skipListSizeLimit": "2000",
    "journalMaxSizeMB": "1",
    "journalPreAllocSizeMB": "1",
    "dbStorage_writeCacheMaxSizeMb": "1",
}
LEDGERS, ENTRIES = (1, 2), 40


def conf(kind: StoreKind) -> StorageConf:
    return StorageConf.from_conf({**CONF, "ledgerStorageClass": kind.class_name})


async def started(storage: JournaledStorage) -> Bookie:
    bookie, running = Bookie("b0", storage), asyncio.Event()
    bookie.start(running.set)
    await running.wait()
    return bookie


async def asked(bookie: Bookie, request: Request) -> Any:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    bookie.submit(request, done.set_result)
    return await done


async def written(bookie: Bookie) -> None:
    for entry_id in range(ENTRIES):
        for ledger_id in LEDGERS:
            body = entry(ledger_id, entry_id, b"%d/%d " % (ledger_id, entry_id) * 20, lac=entry_id - 1)
            answer = await asked(bookie, AddRequest(ledger_id, entry_id, KEY, body[:32], body[32:]))
            assert answer.status is Status.OK
    assert (await asked(bookie, ReadRequest(1, 0, fence_key=KEY))).status is Status.OK


async def is_all_there(bookie: Bookie) -> bool:
    for entry_id in range(ENTRIES):
        for ledger_id in LEDGERS:
            answer = await asked(bookie, ReadRequest(ledger_id, entry_id))
            if answer.body != entry(ledger_id, entry_id, b"%d/%d " % (ledger_id, entry_id) * 20, lac=entry_id - 1):
                return False
    body = entry(1, ENTRIES)
    fenced = await asked(bookie, AddRequest(1, ENTRIES, KEY, body[:32], body[32:]))
    return bool(fenced.status is Status.FENCED)


async def stopped(bookie: Bookie) -> None:
    done = asyncio.Event()
    bookie.shutdown(done.set)
    await done.wait()


def storage_on(disk: Disk, kind: StoreKind) -> JournaledStorage:
    return storage_on_disk(disk, conf(kind), clock_ms=lambda: 7, rng=Random(1))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def played(
    virtually: Virtually, disk: SimulatedDisk, kind: StoreKind, end: Callable[[Bookie], Coroutine[Any, Any, None]]
) -> None:
    async def story() -> None:
        bookie = await started(storage_on(disk, kind))
        await written(bookie)
        await end(bookie)

    virtually(story)


async def killed(bookie: Bookie) -> None:
    bookie.crash(CrashMode.PROCESS)


@pytest.mark.parametrize("kind", [StoreKind.SORTED, StoreKind.INTERLEAVED])
def test_an_exported_disk_is_the_folder_that_the_same_bookie_leaves(
    kind: StoreKind, tmp_path: Path, virtually: Virtually
) -> None:
    disk = SimulatedDisk(Random(1))
    played(virtually, disk, kind, stopped)
    paths = export_disk(disk, tmp_path / "exported")

    async def really() -> None:
        bookie = await started(storage_on(DirectoryDisk(tmp_path / "real"), kind))
        await written(bookie)
        await stopped(bookie)

    asyncio.run(really())
    real, exported = contents(tmp_path / "real"), contents(tmp_path / "exported")
    assert paths == sorted(real) == sorted(exported)
    assert len(paths) > 8
    # how records are grouped, and so padded, is the loop's time to decide
    assert {path: data for path, data in real.items() if not path.startswith("journal")} == {
        path: data for path, data in exported.items() if not path.startswith("journal")
    }


@pytest.mark.parametrize("end", [stopped, killed])
@pytest.mark.parametrize("kind", StoreKind)
def test_a_bookie_on_a_real_folder_goes_on_from_what_was_exported(
    kind: StoreKind, end: Callable[[Bookie], Coroutine[Any, Any, None]], tmp_path: Path, virtually: Virtually
) -> None:
    disk = SimulatedDisk(Random(1))
    played(virtually, disk, kind, end)
    before = disk.image()
    export_disk(disk, tmp_path)
    assert disk.image() == before

    async def go_on() -> None:
        with data_folder(
            DataPlaces.inside(tmp_path),
            conf(kind),
            clock_ms=lambda: 8,
            rng=Random(2),
            on_fatal=lambda error: pytest.fail(str(error)),
        ) as storage:
            bookie = await started(storage)
            assert await is_all_there(bookie)
            await stopped(bookie)

    asyncio.run(go_on())


@pytest.mark.parametrize("end", [stopped, killed])
@pytest.mark.parametrize("kind", StoreKind)
def test_what_is_imported_is_served_and_the_folder_stays_as_it_is(
    kind: StoreKind, end: Callable[[Bookie], Coroutine[Any, Any, None]], tmp_path: Path, virtually: Virtually
) -> None:
    async def really() -> None:
        with data_folder(
            DataPlaces.inside(tmp_path),
            conf(kind),
            clock_ms=lambda: 7,
            rng=Random(1),
            on_fatal=lambda error: pytest.fail(str(error)),
        ) as storage:
            bookie = await started(storage)
            await written(bookie)
            await end(bookie)

    asyncio.run(really())
    before = {path: hashlib.sha256(data).digest() for path, data in contents(tmp_path).items()}

    async def serve() -> None:
        disk = await import_disk(tmp_path)
        for _ in range(2):
            bookie = await started(storage_on(disk, kind))
            assert await is_all_there(bookie)
            bookie.crash(CrashMode.POWER_LOSS)  # what came from the folder is durable

    virtually(serve)
    assert {path: hashlib.sha256(data).digest() for path, data in contents(tmp_path).items()} == before


def test_there_and_back_is_the_same(tmp_path: Path, virtually: Virtually) -> None:
    disk = SimulatedDisk(Random(1))
    played(virtually, disk, StoreKind.SORTED, killed)
    export_disk(disk, tmp_path)

    async def back() -> None:
        again = await import_disk(tmp_path)
        assert again.image() == disk.image()

    virtually(back)


def test_only_an_empty_folder_is_written_to(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    (tmp_path / "file").write_text("mine")
    for target in (tmp_path, tmp_path / "file"):
        with pytest.raises(TransferError, match="is not an empty folder"):
            export_disk(disk, target)
    assert export_disk(disk, tmp_path / "new") == []
    assert (tmp_path / "new").is_dir()


def test_what_is_no_folder_of_files_or_too_large_is_not_read(tmp_path: Path, virtually: Virtually) -> None:
    async def story() -> None:
        with pytest.raises(TransferError, match="is no folder"):
            await import_disk(tmp_path / "missing")
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "file").write_bytes(bytes(8192))
        for capacity in (4096, 8191):
            with pytest.raises(TransferError, match=f"more than {capacity} bytes"):
                await import_disk(tmp_path, capacity_bytes=capacity)
        assert (await import_disk(tmp_path, capacity_bytes=8192)).capacity().free == 0
        (tmp_path / "a" / "link").symlink_to("/etc/passwd")
        with pytest.raises(TransferError, match=r"a/link is neither a file nor a folder"):
            await import_disk(tmp_path)

    virtually(story)


def test_a_damaged_database_is_told(tmp_path: Path, virtually: Virtually) -> None:
    (tmp_path / "locations").mkdir()
    (tmp_path / "locations" / "CURRENT").write_text("MANIFEST-000001\n")

    async def story() -> None:
        with pytest.raises(StorageIOError):
            await import_disk(tmp_path)

    virtually(story)


def test_what_was_put_on_a_disk_survives_a_power_loss(virtually: Virtually) -> None:
    disk = SimulatedDisk(Random(1))
    disk.put("a/b", b"x" * 5000)
    disk.crash(CrashMode.POWER_LOSS)
    assert disk.image() == {"a/b": b"x" * 5000}
    assert Folder(disk, "a").names() == ["b"]
    assert Folders([Folder(disk, "a")], Random(1)).find("b") is not None

"""A simulated disk as a folder of the real file system, and back.

What a bookie left on a simulated disk can so be looked at with every tool for folders, BookKeeper's own among them, and a copy of
any bookie's folder can be started, crashed and damaged in virtual time, while the folder stays as it is.

Files are the same on both, but for databases: on a simulated disk these are logs (:mod:`simbookie.storage.db.log_database`), in a
folder they are RocksDB's. So the rows of one are written as the other.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from stat import S_ISDIR, S_ISREG
from typing import Final

from simbookie.storage.base import NoSpace, StorageError
from simbookie.storage.data_folder import DataPlaces
from simbookie.storage.db.log_database import LogDatabase, is_log_database
from simbookie.storage.db.rocks import RocksDatabase, is_rocks_database
from simbookie.storage.disk.simulated import DiskCosts, SimulatedDisk
from simbookie.storage.folders import Folder

__all__ = ["TransferError", "export_disk", "import_disk", "import_places"]

#: The file that keeps other processes out of a folder; nothing on a simulated disk needs it.
_LOCK: Final = "lock"
_MIB: Final = 1 << 20


class TransferError(StorageError):
    """A disk or a folder cannot be copied; the message says what stands in the way."""


def export_disk(disk: SimulatedDisk, target: Path) -> list[str]:
    """Write every file of ``disk``, as reads see it, below ``target``; returns the paths of files and databases, ascending.

    ``target`` is made, or is empty: :class:`TransferError` otherwise. ``OSError`` if the file system refuses.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise TransferError(f"{target} is not an empty folder")
    target.mkdir(parents=True, exist_ok=True)
    databases = {path for path in _folders(disk, "") if is_log_database(disk, path)}
    exported = sorted(databases)
    for path, content in disk.image().items():
        if path.rpartition("/")[0] in databases:
            continue
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        exported.append(path)
    for path in databases:
        rows = LogDatabase(Folder(disk, path))
        database = RocksDatabase(target / path, many_rows=path.endswith("/locations"))
        for key, value in rows.items():
            database.put(key, value)
        rows.close()
        database.close()
    return sorted(exported)


def _folders(disk: SimulatedDisk, path: str) -> Iterator[str]:
    for name in disk.folders(path):
        inner = f"{path}/{name}" if path else name
        yield inner
        yield from _folders(disk, inner)


async def import_disk(
    source: Path,
    *,
    rng: Random | None = None,
    costs: DiskCosts | None = None,
    capacity_bytes: int = 1024 * _MIB,
) -> SimulatedDisk:
    """A simulated disk with every file below ``source``, durably, on whatever loop runs; ``source`` is only read.

    :class:`TransferError` if it is no folder, holds anything but files and folders, or more than ``capacity_bytes``;
    :class:`~simbookie.storage.base.StorageIOError` for a database that cannot be read. ``OSError`` if the file system refuses.
    """
    disk = SimulatedDisk(rng, costs=costs, capacity_bytes=capacity_bytes)
    for place in _places(source):
        path = place.relative_to(source).as_posix()
        if place.is_dir():
            await _import_database(place, Folder(disk, path))
        elif path != _LOCK:
            if place.stat().st_size > disk.capacity().free:
                raise TransferError(f"{source} holds more than {capacity_bytes} bytes")
            try:
                disk.put(path, place.read_bytes())
            except NoSpace:
                raise TransferError(f"{source} holds more than {capacity_bytes} bytes") from None
    return disk


async def import_places(
    places: DataPlaces,
    *,
    rng: Random | None = None,
    costs: DiskCosts | None = None,
    capacity_bytes: int = 1024 * _MIB,
) -> tuple[list[Folder], list[Folder], list[Folder]]:
    """The folders of a bookie on simulated disks, one disk for each: of journals, of ledgers, and of indexes if these are others.

    ``capacity_bytes`` are divided among the disks. Raises as :func:`import_disk`, and :class:`TransferError` if one folder is to
    have everything and has not.
    """
    sources = places.locked
    share = capacity_bytes // len(sources)
    disks = {source: await import_disk(source, rng=rng, costs=costs, capacity_bytes=share) for source in sources}
    journals, ledgers, indexes = places.folders(disks.__getitem__)
    if places.root is not None:
        for folder in (*journals, *ledgers):
            if not folder.names():
                raise TransferError(
                    f"{places.root} has no data of a bookie in {folder.path}; where its folders have other names, --conf tells "
                    f"these"
                )
    return journals, ledgers, indexes


def _places(source: Path) -> list[Path]:
    """Files, and folders that are databases, ascending."""
    if not source.is_dir():
        raise TransferError(f"{source} is no folder")
    found: list[Path] = []
    for root, folders, files in os.walk(source):
        here = Path(root)
        if is_rocks_database(here):
            found.append(here)
            folders.clear()
            continue
        for name in (*folders, *files):
            mode = (here / name).lstat().st_mode
            if not (S_ISREG(mode) or S_ISDIR(mode)):
                raise TransferError(f"{here / name} is neither a file nor a folder")
        found += [here / name for name in files]
    return sorted(found)


async def _import_database(place: Path, folder: Folder) -> None:
    rows = RocksDatabase(place, is_read_only=True)
    database = LogDatabase(folder)
    try:
        for key, value in rows.items():
            database.put(key, value)
        synced: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
        database.sync(lambda _token, error: synced.set_result(error), None)
        error = await synced
        if error is not None:
            raise TransferError(f"{place} does not fit: {error}")
    finally:
        database.close()
        rows.close()

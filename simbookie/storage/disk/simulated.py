"""A disk in memory that costs time and fails as real ones do.

Files are :class:`~simbookie.storage.disk.pages.Pages`. Names are kept twice, as they are and as they are durable; changes of
names that are not durable yet form a log, of which a power loss keeps a beginning, as the journal of a file system does.

The device carries out operations in the order asked, one at a time unless said otherwise: what a sync or a read of a cold page
costs is :class:`DiskCosts`, and what waits behind it waits. Writing costs nothing until it is synced, and reading what the page
cache has costs nothing. After a power loss the page cache is empty.

Not modelled: a bounded page cache, writing back before a sync asks for it (a power loss may find any of it on the device all the
same), and older versions of pages written more than once between two syncs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from random import Random
from typing import Final

from simbookie.storage.base import Capacity, CrashMode, DurableCallback, NoSpace, ReadCallback, StorageIOError
from simbookie.storage.disk.base import AnyBytes, FileExists, NoSuchFile, checked_path, folder_of
from simbookie.storage.disk.faults import DiskFault, DiskFaultKind, DiskFaults, DiskOperation
from simbookie.storage.disk.pages import PAGE_SIZE, Pages
from simbookie.storage.filled import FilledCapacity

__all__ = ["DiskCosts", "SimulatedDisk", "SimulatedFile"]

_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class DiskCosts:
    """What the device takes its time for. Times in seconds, bandwidths in bytes a second (``None``: unlimited).

    It carries out ``at_a_time`` operations at a time, but no two of the same file.
    """

    sync_s: float = 0.0
    read_s: float = 0.0
    write_bandwidth: float | None = None
    read_bandwidth: float | None = None
    at_a_time: int = 1

    def __post_init__(self) -> None:
        if not (self.sync_s >= 0 and self.read_s >= 0):
            raise ValueError(f"disk: costs must be >= 0, got {self}")
        if any(
            bandwidth is not None and not bandwidth > 0 for bandwidth in (self.write_bandwidth, self.read_bandwidth)
        ):
            raise ValueError(f"disk: bandwidths must be > 0, got {self}")
        if self.at_a_time < 1:
            raise ValueError(f"disk: at_a_time must be >= 1, got {self.at_a_time}")

    def of_sync(self, size: int) -> float:
        """Seconds to make ``size`` bytes durable."""
        return self.sync_s + (size / self.write_bandwidth if self.write_bandwidth is not None else 0.0)

    def of_read(self, size: int) -> float:
        """Seconds to read ``size`` bytes from the device."""
        return self.read_s + (size / self.read_bandwidth if self.read_bandwidth is not None else 0.0)


#: One change of names: the name that goes, the name that comes, and what it names.
_NameChange = tuple[str | None, str | None, Pages | None]


class SimulatedDisk:
    """Implements :class:`simbookie.storage.disk.base.Disk`.

    ``rng`` decides what of the unsynced survives a power loss; without one, nothing does. With ``sync_covers_names`` a sync of
    any file makes the changes of names before it durable too, as ext4, XFS and Btrfs do; POSIX promises that of
    :meth:`sync_folder` alone.
    """

    def __init__(
        self,
        rng: Random | None = None,
        *,
        costs: DiskCosts | None = None,
        capacity_bytes: int = _GIB,
        sync_covers_names: bool = True,
    ) -> None:
        if capacity_bytes < 0:
            raise ValueError(f"disk: capacity_bytes must be >= 0, got {capacity_bytes}")
        self.costs = costs if costs is not None else DiskCosts()
        self.faults = DiskFaults()
        #: What every sync, and every read of a cold page, takes beyond its costs, in seconds; may be changed at any time.
        self.stall_s = 0.0
        self._rng = rng
        self._set_capacity(capacity_bytes)
        self._filled = FilledCapacity(capacity_bytes, self._set_capacity)
        self._sync_covers_names = sync_covers_names
        self._names: dict[str, Pages] = {}
        self._durable_names: dict[str, Pages] = {}
        #: Those not durable yet, numbered in their order.
        self._name_changes: dict[int, _NameChange] = {}
        self._changes_made = 0
        #: Counts up with every crash; a file is dead in any life but the one it was opened in.
        self.life = 0
        self._queue: deque[tuple[str, float, Callable[[], None]]] = deque()
        self._running: dict[str, asyncio.Handle] = {}

    # -------------------------------------------------------------------------------------------------------- names

    def create(self, path: str) -> SimulatedFile:
        """A new, empty file."""
        self.strike(DiskOperation.CREATE, path)
        if checked_path(path) in self._names:
            raise FileExists(f"{path} exists")
        pages = self._names[path] = Pages()
        self._note((None, path, pages))
        return SimulatedFile(self, path, pages)

    def open(self, path: str) -> SimulatedFile:
        """An existing file."""
        self.strike(DiskOperation.OPEN, path)
        return SimulatedFile(self, path, self._named(path))

    def exists(self, path: str) -> bool:
        """Whether there is a file of this name."""
        return checked_path(path) in self._names

    def names(self, folder: str) -> list[str]:
        """The files in a folder."""
        return sorted(path.rpartition("/")[2] for path in self._names if folder_of(path) == folder)

    def folders(self, folder: str) -> list[str]:
        """The folders in a folder."""
        prefix = f"{folder}/" if folder else ""
        below = (path[len(prefix) :] for path in self._names if path.startswith(prefix))
        return sorted({rest.partition("/")[0] for rest in below if "/" in rest})

    def rename(self, path: str, new: str) -> None:
        """Give a file another name."""
        self.strike(DiskOperation.RENAME, path)
        pages = self._named(path)
        if self._names.get(checked_path(new)) is pages:
            return  # two names of one file: POSIX keeps both
        del self._names[path]
        self._names[new] = pages
        self._note((path, new, pages))

    def link(self, path: str, new: str) -> None:
        """Give a file a second name."""
        self.strike(DiskOperation.LINK, path)
        pages = self._named(path)
        if checked_path(new) in self._names:
            raise FileExists(f"{new} exists")
        self._names[new] = pages
        self._note((None, new, pages))

    def _files(self) -> list[Pages]:
        """All files, each once, however many names it has."""
        return list(dict.fromkeys(self._names.values()))

    def remove(self, path: str) -> None:
        """Remove a file."""
        self.strike(DiskOperation.REMOVE, path)
        self._named(path)
        del self._names[path]
        self._note((path, None, None))

    def _note(self, change: _NameChange) -> None:
        self._changes_made += 1
        self._name_changes[self._changes_made] = change

    def _named(self, path: str) -> Pages:
        pages = self._names.get(checked_path(path))
        if pages is None:
            raise NoSuchFile(f"{path} does not exist")
        return pages

    def sync_folder(self, folder: str, on_done: DurableCallback, token: object) -> None:
        """Make the names in a folder durable."""
        fault = self.faults.strike(DiskOperation.SYNC_FOLDER, folder)
        changes = [number for number, change in self._name_changes.items() if _is_in(change, folder)]

        def finish() -> None:
            if fault is not None and fault.kind is DiskFaultKind.ERROR:
                on_done(token, StorageIOError(f"could not sync the folder {folder or '.'}"))
                return
            self._make_names_durable(changes)
            on_done(token, None)

        self.run(folder, self.costs.of_sync(0) + _stall(fault), finish)

    def _make_names_durable(self, changes: list[int]) -> None:
        for number in changes:
            change = self._name_changes.pop(number, None)
            if change is not None:
                _apply(change, self._durable_names)

    def copy(self, rng: Random | None = None) -> SimulatedDisk:
        """A disk with the same content, durable and not, that costs nothing; what is under way has not happened to it."""
        twin = SimulatedDisk(rng, capacity_bytes=self._capacity, sync_covers_names=self._sync_covers_names)
        named = (
            self._names.values(),
            self._durable_names.values(),
            (change[2] for change in self._name_changes.values()),
        )
        twins = {pages: pages.copy() for pages in chain.from_iterable(named) if pages is not None}
        twin._names = {path: twins[pages] for path, pages in self._names.items()}
        twin._durable_names = {path: twins[pages] for path, pages in self._durable_names.items()}
        twin._name_changes = {
            number: (gone, come, twins[pages] if pages is not None else None)
            for number, (gone, come, pages) in self._name_changes.items()
        }
        twin._changes_made = self._changes_made
        return twin

    def put(self, path: str, content: bytes) -> None:
        """Have a file that was there all along: durable, by name too. No file of this name may exist.

        :class:`~simbookie.storage.base.NoSpace` if it does not fit.
        """
        if checked_path(path) in self._names:
            raise FileExists(f"{path} exists")
        pages = Pages()
        self.reserve(pages.new_pages(0, len(content)))
        pages.write(0, content)
        pages.end_sync(pages.begin_sync())
        self._names[path] = self._durable_names[path] = pages

    def image(self) -> dict[str, bytes]:
        """All files as reads see them, by their paths, ascending."""
        return {path: self._names[path].read(0, self._names[path].size) for path in sorted(self._names)}

    # --------------------------------------------------------------------------------------------- space and damage

    def capacity(self) -> Capacity:
        """What was configured, and what is left of it."""
        return Capacity(self._capacity, max(0, self._capacity - self._used()))

    def _used(self) -> int:
        return sum(map(len, self._files())) * PAGE_SIZE

    def fill(self, left: int) -> Callable[[], None]:
        """Have other data fill the disk up to ``left`` bytes; returns what removes that."""
        return self._filled.fill(self._used() + left)

    def _set_capacity(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes

    def wipe(self) -> None:
        """Lose everything, as a replaced disk does. Only while no storage has it open."""
        self.life += 1
        self._names.clear()
        self._durable_names.clear()
        self._name_changes.clear()

    def reserve(self, pages: int) -> None:
        """:class:`~simbookie.storage.base.NoSpace` unless so many pages fit."""
        if pages and self._used() + pages * PAGE_SIZE > self._capacity:
            raise NoSpace(f"{pages} pages do not fit: {self._used()} of {self._capacity} bytes are in use")

    def flip(self, path: str, offset: int) -> None:
        """Change one bit of a stored byte, durably: the medium rots."""
        self._named(path).flip(offset)

    def strike(self, operation: DiskOperation, path: str) -> DiskFault | None:
        """Ask the faults; those that make an operation fail outright are raised."""
        fault = self.faults.strike(operation, path)
        if fault is not None and fault.kind is DiskFaultKind.ERROR:
            raise StorageIOError(f"could not {operation.name.lower()} {path}")
        if fault is not None and fault.kind is DiskFaultKind.FULL:
            raise NoSpace(f"could not {operation.name.lower()} {path}: no space is left")
        return fault

    # --------------------------------------------------------------------------------------------------- the device

    def run(self, path: str, cost: float, finish: Callable[[], None]) -> None:
        """Have the device work on a file or folder for ``cost`` seconds once it is free, then call ``finish``."""
        self._queue.append((path, cost + self.stall_s, finish))
        self._start_what_can()

    def _start_what_can(self) -> None:
        loop = asyncio.get_running_loop()
        taken = set(self._running)
        waiting, self._queue = self._queue, deque()
        for operation in waiting:
            path, cost, finish = operation
            if path in taken or len(self._running) >= self.costs.at_a_time:
                taken.add(path)
                self._queue.append(operation)
                continue
            taken.add(path)
            finished = partial(self._finish, path, finish)
            self._running[path] = loop.call_later(cost, finished) if cost > 0 else loop.call_soon(finished)

    def _finish(self, path: str, finish: Callable[[], None]) -> None:
        del self._running[path]
        if self._queue:
            self._start_what_can()
        finish()

    def sync_pages(self, path: str, pages: Pages, on_done: DurableCallback, token: object) -> None:
        """What :meth:`SimulatedFile.sync` asks for."""
        fault = self.faults.strike(DiskOperation.SYNC, path)
        cost = self.costs.of_sync(pages.dirty_bytes) + _stall(fault)
        snapshot = pages.begin_sync()
        changes = list(self._name_changes) if self._sync_covers_names else []

        def finish() -> None:
            kind = fault.kind if fault is not None else None
            if kind in (DiskFaultKind.ERROR, DiskFaultKind.LIE):
                pages.fail_sync(snapshot)
                on_done(token, StorageIOError(f"could not sync {path}") if kind is DiskFaultKind.ERROR else None)
                return
            pages.end_sync(snapshot)
            self._make_names_durable(changes)
            on_done(token, None)

        self.run(path, cost, finish)

    def crash(self, mode: CrashMode) -> None:
        """Keep what survives."""
        self.life += 1
        self._queue.clear()
        for handle in self._running.values():
            handle.cancel()
        self._running.clear()
        if mode is CrashMode.PROCESS:
            for pages in self._files():
                pages.interrupt()
            return
        kept = self._rng.randint(0, len(self._name_changes)) if self._rng is not None else 0
        self._make_names_durable(list(self._name_changes)[:kept])
        self._name_changes.clear()
        self._names = dict(self._durable_names)
        for pages in self._files():
            pages.lose_power(self._rng)


class SimulatedFile:
    """Implements :class:`simbookie.storage.disk.base.DiskFile`."""

    __slots__ = ("_disk", "_is_closed", "_life", "_pages", "path")

    def __init__(self, disk: SimulatedDisk, path: str, pages: Pages) -> None:
        self.path = path
        self._disk = disk
        self._pages = pages
        self._life = disk.life
        self._is_closed = False

    def _content(self) -> Pages:
        assert not self._is_closed, f"{self.path} is closed"
        assert self._life == self._disk.life, f"{self.path} was opened before a crash"
        return self._pages

    @property
    def size(self) -> int:
        """Where the file ends."""
        return self._content().size

    def write(self, offset: int, data: AnyBytes) -> None:
        """Write into the page cache."""
        pages, disk = self._content(), self._disk
        fault = disk.strike(DiskOperation.WRITE, self.path)
        if fault is not None:
            offset, data = _damaged(fault, offset, data)
        disk.reserve(pages.new_pages(offset, len(data)))
        pages.write(offset, data)
        if fault is not None and fault.kind is DiskFaultKind.PARTIAL:
            raise StorageIOError(f"wrote {len(data)} bytes of {self.path} at {offset} only")

    def read(self, offset: int, size: int, on_read: ReadCallback, token: object) -> None:
        """Read, from the page cache if it has everything."""
        pages, disk = self._content(), self._disk
        fault = disk.faults.strike(DiskOperation.READ, self.path)
        cold = pages.cold_pages(offset, size)
        if not cold and fault is None:
            on_read(token, pages.read(offset, size), None)
            return

        def finish() -> None:
            pages.cold.difference_update(cold)
            if fault is not None and fault.kind is DiskFaultKind.ERROR:
                on_read(token, None, StorageIOError(f"could not read {self.path} at {offset}"))
            else:
                on_read(token, self._read(offset, size, fault), None)

        disk.run(self.path, disk.costs.of_read(len(cold) * PAGE_SIZE) + _stall(fault), finish)

    def read_now(self, offset: int, size: int) -> bytes:
        """Read at once."""
        self._content()
        return self._read(offset, size, self._disk.strike(DiskOperation.READ, self.path))

    def _read(self, offset: int, size: int, fault: DiskFault | None) -> bytes:
        data = self._pages.read(offset, size)
        if fault is not None and fault.kind is DiskFaultKind.FLIP and data:
            place = int(fault.amount) % len(data)
            self._pages.flip(offset + place)
            data = self._pages.read(offset, size)
        return data

    def sync(self, on_done: DurableCallback, token: object) -> None:
        """Make durable what was written."""
        self._disk.sync_pages(self.path, self._content(), on_done, token)

    def pass_by_cache(self) -> bool:
        """No: writing costs nothing before a sync here."""
        return False

    def truncate(self, size: int) -> None:
        """Cut or extend the file."""
        pages = self._content()
        self._disk.strike(DiskOperation.TRUNCATE, self.path)
        pages.truncate(size)

    def close(self) -> None:
        """Let go."""
        self._is_closed = True


def _stall(fault: DiskFault | None) -> float:
    return fault.amount if fault is not None and fault.kind is DiskFaultKind.STALL else 0.0


def _damaged(fault: DiskFault, offset: int, data: AnyBytes) -> tuple[int, AnyBytes]:
    """Where a write lands that ``fault`` strikes, and what of it."""
    amount = int(fault.amount)
    if fault.kind is DiskFaultKind.MISDIRECTED:
        return offset + amount, data
    if fault.kind is DiskFaultKind.FLIP and len(data):
        wrong = bytearray(data)
        wrong[amount % len(wrong)] ^= 1
        return offset, wrong
    return offset, data[:amount] if fault.kind in (DiskFaultKind.PARTIAL, DiskFaultKind.TORN) else data


def _apply(change: _NameChange, names: dict[str, Pages]) -> None:
    gone, come, pages = change
    if gone is not None:
        names.pop(gone, None)
    if come is not None and pages is not None:
        names[come] = pages


def _is_in(change: _NameChange, folder: str) -> bool:
    return any(path is not None and folder_of(path) == folder for path in change[:2])

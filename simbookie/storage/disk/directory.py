"""A folder of the real file system as a disk.

Writes and reads are system calls on the loop's thread: they meet the page cache, except for reads of what has left it, and for
files that are to pass by it (:mod:`simbookie.storage.disk.past_cache`): those hold up the loop for as long as the device takes.
Syncs run on threads of the loop's executor, one at a time for each file, so that a slow device holds up nobody but who waits for
it.

A killed process leaves its page cache to the operating system, so :meth:`DirectoryDisk.crash` has nothing to undo; a power loss
cannot be had here.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from simbookie.storage.base import (
    Capacity,
    CrashMode,
    DurableCallback,
    NoSpace,
    ReadCallback,
    StorageError,
    StorageIOError,
)
from simbookie.storage.disk.base import AnyBytes, FileExists, NoSuchFile, checked_path
from simbookie.storage.disk.past_cache import AlignedBuffer, PastCache, is_whole_blocks

__all__ = ["DirectoryDisk", "DirectoryFile"]

_log: Final = logging.getLogger(__name__)


class DirectoryDisk:
    """Implements :class:`simbookie.storage.disk.base.Disk` over ``root``, which is made if it is missing."""

    def __init__(self, root: Path) -> None:
        with _errors(f"could not make {root}"):
            root.mkdir(parents=True, exist_ok=True)
        self.root = root
        #: Counts up with every crash; a file is dead in any life but the one it was opened in.
        self.life = 0
        #: Files that are open, or that a sync still holds open.
        self.open_files: dict[DirectoryFile, None] = {}
        self._folder_syncs: dict[str, _Syncs] = {}
        #: Folders that were made, and whose own names are not known to be durable.
        self._new_folders: set[Path] = set()
        self._buffer: AlignedBuffer | None = None
        self._keeps_to_cache = False

    def create(self, path: str) -> DirectoryFile:
        """A new, empty file."""
        target = self.root / checked_path(path)
        with _errors(f"could not create {path}"):
            self._make(target.parent)
            return DirectoryFile(self, path, os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))

    def open(self, path: str) -> DirectoryFile:
        """An existing file."""
        with _errors(f"could not open {path}"):
            return DirectoryFile(self, path, os.open(self.root / checked_path(path), os.O_RDWR | os.O_CLOEXEC))

    def exists(self, path: str) -> bool:
        """Whether there is a file of this name."""
        return (self.root / checked_path(path)).is_file()

    def names(self, folder: str) -> list[str]:
        """The files in a folder."""
        return sorted(child.name for child in self._children(folder) if child.is_file())

    def folders(self, folder: str) -> list[str]:
        """The folders in a folder that hold files."""
        return sorted(child.name for child in self._children(folder) if child.is_dir() and _holds_files(child))

    def _children(self, folder: str) -> list[Path]:
        parent = self.root / checked_path(folder) if folder else self.root
        with _errors(f"could not list {folder or '.'}"):
            return list(parent.iterdir()) if parent.is_dir() else []

    def rename(self, path: str, new: str) -> None:
        """Give a file another name."""
        source, target = self.root / checked_path(path), self.root / checked_path(new)
        with _errors(f"could not rename {path} to {new}"):
            if not source.is_file():
                raise NoSuchFile(f"{path} does not exist")
            self._make(target.parent)
            source.replace(target)
            self._prune(source.parent)

    def link(self, path: str, new: str) -> None:
        """Give a file a second name."""
        source, target = self.root / checked_path(path), self.root / checked_path(new)
        with _errors(f"could not link {path} to {new}"):
            if not source.is_file():
                raise NoSuchFile(f"{path} does not exist")
            self._make(target.parent)
            target.hardlink_to(source)

    def remove(self, path: str) -> None:
        """Remove a file."""
        target = self.root / checked_path(path)
        with _errors(f"could not remove {path}"):
            target.unlink()
            self._prune(target.parent)

    def _prune(self, folder: Path) -> None:
        """Remove folders that have become empty."""
        while folder != self.root:
            try:
                folder.rmdir()
            except OSError:  # not empty
                return
            self._new_folders.discard(folder)
            folder = folder.parent

    def _make(self, folder: Path) -> None:
        """Have a folder, and those that it is in."""
        missing = folder
        while missing != self.root and not missing.is_dir():
            self._new_folders.add(missing)
            missing = missing.parent
        folder.mkdir(parents=True, exist_ok=True)

    def sync_folder(self, folder: str, on_done: DurableCallback, token: object) -> None:
        """Make the names in a folder durable, and its own, and those of new folders that it is in."""
        syncs = self._folder_syncs.get(folder)
        if syncs is None:
            syncs = self._folder_syncs[folder] = _Syncs(self, partial(self._forget_idle, folder))
        target = self.root / checked_path(folder) if folder else self.root
        chain = [target]
        while chain[-1] in self._new_folders:
            chain.append(chain[-1].parent)

        def work() -> None:
            for each in chain:
                _sync_folder(each, self.root)

        def synced(_token: object, error: StorageError | None) -> None:
            if error is None:
                self._new_folders.difference_update(chain)
            on_done(token, error)

        syncs.ask(work, f"could not sync the folder {folder or '.'}", synced, None)

    def _forget_idle(self, folder: str) -> None:
        """There are as many folders as ledgers, over time."""
        syncs = self._folder_syncs.get(folder)
        if syncs is not None and not syncs.waiting:
            del self._folder_syncs[folder]

    def capacity(self) -> Capacity:
        """What the file system has."""
        with _errors("could not learn of the space left"):
            usage = shutil.disk_usage(self.root)
        return Capacity(usage.total, usage.free)

    def past_cache(self, path: str) -> PastCache | None:
        """A file for reads and writes past the page cache; None where that cannot be, which is logged the first time."""
        if self._keeps_to_cache:
            return None
        if self._buffer is None:
            self._buffer = AlignedBuffer()
        try:
            return PastCache(self.root / checked_path(path), self._buffer)
        except OSError as error:
            self.keep_to_cache(error)
            return None

    def keep_to_cache(self, error: OSError) -> None:
        """Try no more to pass by the page cache."""
        if not self._keeps_to_cache:
            self._keeps_to_cache = True
            _log.warning("%s: files cannot pass by the page cache here, and go through it: %s", self.root, error)

    def crash(self, mode: CrashMode) -> None:
        """Let go of all files, as the operating system does for a killed process."""
        if mode is not CrashMode.PROCESS:
            raise ValueError(f"a folder cannot suffer a {mode.name}")
        self.life += 1
        self._folder_syncs.clear()
        for file in list(self.open_files):
            file.close()


class DirectoryFile:
    """Implements :class:`simbookie.storage.disk.base.DiskFile`."""

    __slots__ = ("_descriptor", "_disk", "_is_closed", "_life", "_past", "_syncs", "path")

    def __init__(self, disk: DirectoryDisk, path: str, descriptor: int) -> None:
        self.path = path
        self._disk = disk
        self._descriptor = descriptor
        self._life = disk.life
        self._is_closed = False
        self._past: PastCache | None = None
        self._syncs = _Syncs(disk, self._release_if_idle)
        disk.open_files[self] = None

    def _opened(self) -> int:
        assert not self._is_closed, f"{self.path} is closed"
        assert self._life == self._disk.life, f"{self.path} was opened before a crash"
        return self._descriptor

    @property
    def size(self) -> int:
        """Where the file ends."""
        with _errors(f"could not learn the size of {self.path}"):
            return os.fstat(self._opened()).st_size

    def write(self, offset: int, data: AnyBytes) -> None:
        """Write into the page cache, or past it."""
        descriptor, written = self._opened(), 0
        # Views are released although others, a profiler say, may refer to them: the caller may change the size of its buffer.
        with _errors(f"could not write {self.path} at {offset}"), memoryview(data) as view:
            if self._past is not None and is_whole_blocks(offset, len(view)) and self._wrote_past(offset, view):
                return
            while written < len(view):
                with view[written:] as rest:
                    written += os.pwrite(descriptor, rest, offset + written)

    def _wrote_past(self, offset: int, view: memoryview) -> bool:
        assert self._past is not None, "it passes by the cache"
        try:
            self._past.write(offset, view)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._keep_to_cache(error)  # opened, and refused after all: all of it is written again
            return False
        return True

    @property
    def passes_by_cache(self) -> bool:
        """Whether whole blocks pass by the page cache."""
        return self._past is not None

    def pass_by_cache(self) -> bool:
        """Have whole blocks pass by the page cache, if the file system lets them."""
        self._opened()
        if self._past is None:
            self._past = self._disk.past_cache(self.path)
        return self._past is not None

    def _keep_to_cache(self, error: OSError) -> None:
        assert self._past is not None, "it passes by the cache"
        self._past.close()
        self._past = None
        self._disk.keep_to_cache(error)

    def read(self, offset: int, size: int, on_read: ReadCallback, token: object) -> None:
        """Read, and call back at once."""
        try:
            data = self.read_now(offset, size)
        except StorageError as error:
            on_read(token, None, error)
        else:
            on_read(token, data, None)

    def read_now(self, offset: int, size: int) -> bytes:
        """Read at once."""
        descriptor, parts = self._opened(), list[bytes]()
        with _errors(f"could not read {self.path} at {offset}"):
            if self._past is not None and is_whole_blocks(offset, size):
                try:
                    return self._past.read(offset, size)
                except OSError as error:
                    if error.errno != errno.EINVAL:
                        raise
                    self._keep_to_cache(error)
            while size > 0 and (part := os.pread(descriptor, size, offset)):
                parts.append(part)
                offset, size = offset + len(part), size - len(part)
        return b"".join(parts) if len(parts) != 1 else parts[0]

    def sync(self, on_done: DurableCallback, token: object) -> None:
        """Make durable what was written."""
        self._syncs.ask(partial(os.fsync, self._opened()), f"could not sync {self.path}", on_done, token)

    def truncate(self, size: int) -> None:
        """Cut or extend the file."""
        with _errors(f"could not truncate {self.path} to {size}"):
            os.ftruncate(self._opened(), size)

    def close(self) -> None:
        """Let go; the descriptor stays until the last sync is done."""
        self._is_closed = True
        self._release_if_idle()

    def _release_if_idle(self) -> None:
        if self._is_closed and not self._syncs.waiting and self in self._disk.open_files:
            del self._disk.open_files[self]
            past, self._past = self._past, None
            if past is not None:
                past.close()
            with suppress(OSError):
                os.close(self._descriptor)


class _Syncs:
    """Syncs of one file or folder, one at a time on a thread."""

    __slots__ = ("_disk", "_life", "_on_idle", "waiting")

    def __init__(self, disk: DirectoryDisk, on_idle: Callable[[], None] | None = None) -> None:
        self._disk = disk
        self._life = disk.life
        self._on_idle = on_idle
        self.waiting: deque[tuple[Callable[[], None], str, DurableCallback, object]] = deque()

    def ask(self, work: Callable[[], None], on_failure: str, on_done: DurableCallback, token: object) -> None:
        """Run ``work`` after what was asked before, then ``on_done``."""
        self.waiting.append((work, on_failure, on_done, token))
        if len(self.waiting) == 1:
            self._start()

    def _start(self) -> None:
        asyncio.get_running_loop().run_in_executor(None, self.waiting[0][0]).add_done_callback(self._finish)

    def _finish(self, outcome: asyncio.Future[None]) -> None:
        _, on_failure, on_done, token = self.waiting.popleft()
        error = outcome.exception()
        is_dead = self._life != self._disk.life
        if is_dead:
            self.waiting.clear()
        elif self.waiting:
            self._start()
        if self._on_idle is not None:
            self._on_idle()
        if not is_dead:
            on_done(token, _storage_error(error, on_failure) if isinstance(error, OSError) else None)


def _sync_folder(folder: Path, root: Path) -> None:
    """Sync a folder, or, if it went with its last file, the one that it was in: what is durable then is that it is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if folder == root:
            raise
        _sync_folder(folder.parent, root)
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _holds_files(folder: Path) -> bool:
    return any(files for _, _, files in os.walk(folder))


@contextmanager
def _errors(what: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise _storage_error(error, what) from error


def _storage_error(error: OSError, what: str) -> StorageIOError:
    message = f"{what}: {error.strerror}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpace(message)
    kinds = {errno.ENOENT: NoSuchFile, errno.EEXIST: FileExists}
    return kinds.get(error.errno or 0, StorageIOError)(message)

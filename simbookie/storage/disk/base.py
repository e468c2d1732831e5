"""The interface between what a bookie stores and the file system it is stored in.

A path is relative, with ``/`` between its parts; folders come and go with the files in them, and the callers see to it that no
name is both a file's and a folder's. The model is that of a POSIX file system over a page cache:

* **Written is not durable.** :meth:`DiskFile.write` and :meth:`DiskFile.truncate` change the page cache at once, and every
  read sees that. A crash of the process keeps it; a power loss keeps what was synced, and any part of the rest.
* **A name is not its file.** :meth:`Disk.create`, :meth:`Disk.rename`, :meth:`Disk.link` and :meth:`Disk.remove` change a
  folder at once; :meth:`Disk.sync_folder` makes the change durable. Whether :meth:`DiskFile.sync` does that too depends on the
  file system.
* **Callbacks, not awaitables.** What may take time takes a callback and a ``token`` that is handed back to it. Callbacks run on
  the running loop, must not raise, may call the disk again, and may close, crash or reopen it.
* **A crash is silence.** After :meth:`Disk.crash` no callback of an earlier call runs, and files opened before are dead.

Failures are :class:`~simbookie.storage.base.StorageIOError`, raised by calls that return at once and handed to the others.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from simbookie.storage.base import Capacity, CrashMode, DurableCallback, ReadCallback, StorageIOError

__all__ = ["AnyBytes", "Disk", "DiskFile", "FileExists", "NoSuchFile", "checked_path", "folder_of"]

AnyBytes: TypeAlias = bytes | bytearray | memoryview


class NoSuchFile(StorageIOError):
    """No file has this name."""


class FileExists(StorageIOError):
    """A file has this name already."""


def checked_path(path: str) -> str:
    """``path``, if it is relative and without empty, ``.`` or ``..`` parts; :class:`ValueError` otherwise."""
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"a path on a disk is relative, without empty parts, '.' and '..', got {path!r}")
    return path


def folder_of(path: str) -> str:
    """The folder that a file is in; ``""`` for those on top."""
    return path.rpartition("/")[0]


class DiskFile(Protocol):
    """One open file. Several may be open on the same file at a time, and see the same bytes."""

    @property
    def path(self) -> str:
        """The name it was opened by."""
        ...

    @property
    def size(self) -> int:
        """Bytes up to the end of what was written."""
        ...

    def write(self, offset: int, data: AnyBytes) -> None:
        """Put ``data`` into the page cache; a gap before it reads as zeros.

        :class:`~simbookie.storage.base.NoSpace` if it does not fit, :class:`~simbookie.storage.base.StorageIOError` if it
        failed; then any part of it may have been written.
        """
        ...

    def read(self, offset: int, size: int, on_read: ReadCallback, token: object) -> None:
        """Up to ``size`` bytes from ``offset`` on, fewer at the end of the file; may call back before it returns."""
        ...

    def read_now(self, offset: int, size: int) -> bytes:
        """What :meth:`read` would bring, at once and free of charge: for start-up and tools."""
        ...

    def sync(self, on_done: DurableCallback, token: object) -> None:
        """Make durable what was written before the call. Never calls back before it returns; in the order of the file's syncs."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it by zeros."""
        ...

    def pass_by_cache(self) -> bool:
        """Have whole blocks of 4096 bytes pass by the page cache from now on, where that can be; returns whether it can.

        It changes what calls cost, and nothing that they do. What is not whole blocks goes through the page cache.
        """
        ...

    def close(self) -> None:
        """Let go of the file. Syncs nothing; reads and syncs under way still call back."""
        ...


class Disk(Protocol):
    """One file system."""

    def create(self, path: str) -> DiskFile:
        """A new, empty file; :class:`FileExists` if there is one."""
        ...

    def open(self, path: str) -> DiskFile:
        """An existing file; :class:`NoSuchFile` if there is none."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file of this name."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names of the files in ``folder`` (``""`` is the top), without the folder, ascending; empty if there is none."""
        ...

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in ``folder`` in which, or below which, there is a file; ascending."""
        ...

    def rename(self, path: str, new: str) -> None:
        """Give a file another name, in place of a file that has it; :class:`NoSuchFile` if there is none."""
        ...

    def link(self, path: str, new: str) -> None:
        """Give a file a second name, which is :class:`FileExists` if taken; :class:`NoSuchFile` if there is no file."""
        ...

    def remove(self, path: str) -> None:
        """Remove a name, and the file with its last one; those who have it open keep it. :class:`NoSuchFile` if there is none."""
        ...

    def sync_folder(self, folder: str, on_done: DurableCallback, token: object) -> None:
        """Make the names in ``folder`` durable as they are now, or that there are none. Never calls back before it returns."""
        ...

    def capacity(self) -> Capacity:
        """Space in total and left, in bytes."""
        ...

    def crash(self, mode: CrashMode) -> None:
        """The process or the machine dies, and the disk with what survived is there again. Idempotent.

        :class:`ValueError` for a kind of crash that the disk cannot suffer.
        """
        ...

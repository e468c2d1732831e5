"""The folders that entry logs and index files are spread over, each on a disk of its own or sharing one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from simbookie.storage.base import DurableCallback, NoSpace
from simbookie.storage.disk.base import Disk, DiskFile

__all__ = ["Folder", "Folders"]


@dataclass(frozen=True, slots=True, eq=False)
class Folder:
    """A folder of a disk."""

    disk: Disk
    path: str

    def file(self, name: str) -> str:
        """The path on the disk of a file in this folder."""
        return f"{self.path}/{name}"

    def names(self) -> list[str]:
        """The names of the files in it, ascending."""
        return self.disk.names(self.path)

    def exists(self, name: str) -> bool:
        """Whether it has a file of this name."""
        return self.disk.exists(self.file(name))

    def create(self, name: str) -> DiskFile:
        """A new, empty file."""
        return self.disk.create(self.file(name))

    def open(self, name: str) -> DiskFile:
        """An existing file."""
        return self.disk.open(self.file(name))

    def open_or_create(self, name: str) -> DiskFile:
        """The file of this name, or a new, empty one."""
        return self.open(name) if self.exists(name) else self.create(name)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self.disk.remove(self.file(name))

    def rename(self, name: str, new: str) -> None:
        """Give a file another name, in place of a file that has it."""
        self.disk.rename(self.file(name), self.file(new))

    def link(self, name: str, new: str) -> None:
        """Give a file a second name, unless there is a file of that name."""
        if not self.exists(new):
            self.disk.link(self.file(name), self.file(new))

    def discard(self, name: str) -> None:
        """Remove a file if it exists."""
        if self.exists(name):
            self.remove(name)

    def write_small(self, name: str, data: bytes) -> None:
        """Replace the content of a small file, which need not exist, without syncing it; neither is it replaced as a whole."""
        file = self.open_or_create(name)
        file.truncate(0)
        file.write(0, data)
        file.close()

    def read_small(self, name: str) -> bytes | None:
        """The content of a small file; ``None`` if it does not exist."""
        if not self.exists(name):
            return None
        file = self.open(name)
        data = file.read_now(0, file.size)
        file.close()
        return data

    def sync(self, on_done: DurableCallback, token: object = None) -> None:
        """Make the names durable as they are now."""
        self.disk.sync_folder(self.path, on_done, token)


@dataclass(frozen=True, slots=True)
class Room:
    """Which folders may get a new file: those of disks that are not used above ``full_above``, or with ``bytes_min`` left."""

    full_above: float = 1.0
    bytes_min: int = 0

    def is_in(self, folder: Folder) -> bool:
        """Whether there is some in a folder."""
        capacity = folder.disk.capacity()
        used = capacity.total - capacity.free
        return used <= self.full_above * capacity.total or capacity.free >= self.bytes_min


class Folders:
    """Several folders; what is new goes to any of those with room, chosen by ``rng``."""

    def __init__(self, folders: Sequence[Folder], rng: Random) -> None:
        if not folders:
            raise ValueError("storage: at least one folder is needed")
        self.all = tuple(folders)
        self._rng = rng

    def each_alone(self) -> list[Folders]:
        """Every folder by itself."""
        return [Folders([folder], self._rng) for folder in self.all]

    def choose(self, crowd: Callable[[Folder], int] | None = None, room: Room | None = None) -> Folder:
        """One for a new file, with ``crowd`` the one of which that is least; :class:`NoSpace` if none has ``room``."""
        candidates = self.all if room is None else tuple(folder for folder in self.all if room.is_in(folder))
        if not candidates:
            assert room is not None, "there are folders"
            raise NoSpace(
                f"every disk is used above {room.full_above:.0%}, and none has {room.bytes_min} bytes left for a new file"
            )
        if crowd is not None:
            return min(candidates, key=crowd)
        return candidates[0] if len(candidates) == 1 else self._rng.choice(candidates)

    def find(self, name: str) -> Folder | None:
        """The first folder that has a file of this name."""
        return next((folder for folder in self.all if folder.exists(name)), None)

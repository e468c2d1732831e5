"""The bytes of one file on a simulated disk: what reads see, what is durable, and what a power loss makes of the difference.

A file is a table of pages; pages that were never written are holes of zeros and cost nothing. There are two tables. The *cached*
one is what reads see. The *durable* one is what survives a power loss for certain. A page between the two is *dirty* (a sync has
still to be asked for it) or *under way* (a sync is running). After a failed sync it is neither that nor durable: the operating
system takes it for clean and never writes it again. That is what Linux does.

A power loss is decided by chance, sector by sector: every page that is not durable stays away, arrives whole, or arrives in
part. The end of the file follows the pages that arrived, and a cut that was not synced may or may not have happened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from simbookie.storage.disk.base import AnyBytes

__all__ = ["PAGE_SIZE", "SECTOR_SIZE", "Pages", "Snapshot"]

PAGE_SIZE: Final = 4_096
#: What a device writes in one piece.
SECTOR_SIZE: Final = 512

_ZEROS: Final = bytes(PAGE_SIZE)
_SECTORS: Final = range(0, PAGE_SIZE, SECTOR_SIZE)


@dataclass(slots=True, eq=False)
class Snapshot:
    """What a sync is about to make durable."""

    pages: dict[int, bytes] = field(repr=False)
    size: int
    #: The file was cut to this size since the sync before, and then the pages were written.
    cut_to: int | None


class Pages:
    """One file's content. A page is ``bytes`` while both tables share it, and a ``bytearray`` while it is being written."""

    __slots__ = ("_cached", "_cut_to", "_dirty", "_durable", "_durable_size", "_under_way", "cold", "size")

    def __init__(self) -> None:
        self.size = 0
        self._cached: dict[int, bytes | bytearray] = {}
        self._durable: dict[int, bytes] = {}
        self._durable_size = 0
        self._dirty: dict[int, None] = {}
        self._under_way: list[Snapshot] = []
        self._cut_to: int | None = None
        #: Pages that a read has to fetch from the device.
        self.cold: set[int] = set()

    def copy(self) -> Pages:
        """Another file with the same content, durable and not; syncs that are under way have not happened to it."""
        twin = Pages()
        twin.size, twin._durable_size, twin._cut_to = self.size, self._durable_size, self._cut_to
        twin._cached = {page: bytes(content) for page, content in self._cached.items()}
        twin._durable, twin._dirty, twin.cold = dict(self._durable), dict(self._dirty), set(self.cold)
        twin._under_way = list(self._under_way)
        twin.interrupt()
        return twin

    def __len__(self) -> int:
        """Pages that take up space."""
        return len(self._cached)

    @property
    def dirty_bytes(self) -> int:
        """What a sync would have to write."""
        return len(self._dirty) * PAGE_SIZE

    def new_pages(self, offset: int, size: int) -> int:
        """How many pages a write would have to allocate."""
        return sum(1 for page in _pages_of(offset, size) if page not in self._cached)

    def write(self, offset: int, data: AnyBytes) -> None:
        """Change what reads see; nothing to write is nothing written, wherever that would be."""
        size, done = len(data), 0
        if size == 0:
            return
        view = memoryview(data)
        while done < size:
            page, start = divmod(offset + done, PAGE_SIZE)
            length = min(PAGE_SIZE - start, size - done)
            self._writable(page)[start : start + length] = view[done : done + length]
            self.cold.discard(page)
            done += length
        self.size = max(self.size, offset + size)

    def _writable(self, page: int) -> bytearray:
        content = self._cached.get(page, _ZEROS)
        if not isinstance(content, bytearray):
            content = self._cached[page] = bytearray(content)
        self._dirty[page] = None
        return content

    def read(self, offset: int, size: int) -> bytes:
        """What reads see; short at the end of the file."""
        size = max(0, min(size, self.size - offset))
        parts: list[memoryview] = []
        done = 0
        while done < size:
            page, start = divmod(offset + done, PAGE_SIZE)
            length = min(PAGE_SIZE - start, size - done)
            parts.append(memoryview(self._cached.get(page, _ZEROS))[start : start + length])
            done += length
        return b"".join(parts)

    def cold_pages(self, offset: int, size: int) -> list[int]:
        """The pages that a read would have to fetch from the device."""
        if not self.cold:
            return []
        size = max(0, min(size, self.size - offset))
        return [page for page in _pages_of(offset, size) if page in self.cold]

    def truncate(self, size: int) -> None:
        """Cut the file or extend it."""
        if size < self.size:
            self._cut_to = size if self._cut_to is None else min(size, self._cut_to)
            _cut(self._cached, size)
            if size % PAGE_SIZE and size // PAGE_SIZE in self._cached:
                self._writable(size // PAGE_SIZE)[size % PAGE_SIZE :] = bytes(PAGE_SIZE - size % PAGE_SIZE)
            for gone in [page for page in self._dirty if page not in self._cached]:
                del self._dirty[gone]
            self.cold = {page for page in self.cold if page in self._cached}
        self.size = size

    def flip(self, offset: int) -> None:
        """Change one bit of a byte, in the page cache and on the device: the medium rots."""
        page, start = divmod(offset, PAGE_SIZE)
        for table in (self._cached, self._durable):
            if page in table:
                content = bytearray(table[page])
                content[start] ^= 1
                table[page] = bytes(content)

    # --------------------------------------------------------------------------------------------------- durability

    def begin_sync(self) -> Snapshot:
        """Freeze what is to become durable."""
        frozen: dict[int, bytes] = {}
        for page in self._dirty:
            frozen[page] = self._cached[page] = bytes(self._cached[page])
        snapshot = Snapshot(frozen, self.size, self._cut_to)
        self._dirty, self._cut_to = {}, None
        self._under_way.append(snapshot)
        return snapshot

    def end_sync(self, snapshot: Snapshot) -> None:
        """The device has it."""
        self._under_way.remove(snapshot)
        if snapshot.cut_to is not None:
            _cut_durable(self._durable, snapshot.cut_to)
        self._durable.update(snapshot.pages)
        self._durable_size = snapshot.size

    def fail_sync(self, snapshot: Snapshot) -> None:
        """The device has none of it, and the operating system will not try again."""
        self._under_way.remove(snapshot)

    def interrupt(self) -> None:
        """The process died: what was under way is dirty again, for the next sync."""
        for snapshot in self._under_way:
            self._dirty.update(dict.fromkeys(page for page in snapshot.pages if page in self._cached))
            if snapshot.cut_to is not None:
                self._cut_to = snapshot.cut_to if self._cut_to is None else min(self._cut_to, snapshot.cut_to)
        self._under_way.clear()

    def lose_power(self, rng: Random | None) -> None:
        """Keep what is durable and, decided by ``rng``, parts of the rest; without ``rng`` nothing of the rest."""
        self.interrupt()
        size = self._durable_size
        if rng is not None:
            if self._cut_to is not None and rng.random() < 0.5:
                _cut_durable(self._durable, self._cut_to)
                size = min(size, self._cut_to)
            for page in sorted(self._dirty):
                arrived = [start for start in _what_arrives(rng) if page * PAGE_SIZE + start < self.size]
                if arrived:
                    self._take_over(page, arrived)
                    size = max(size, min(self.size, page * PAGE_SIZE + arrived[-1] + SECTOR_SIZE))
        self.size = self._durable_size = size
        self._cached = dict(self._durable)
        self._dirty, self._cut_to = {}, None
        self.cold = set(self._cached)

    def _take_over(self, page: int, sectors: list[int]) -> None:
        content = bytearray(self._durable.get(page, _ZEROS))
        for start in sectors:
            content[start : start + SECTOR_SIZE] = self._cached[page][start : start + SECTOR_SIZE]
        self._durable[page] = bytes(content)


def _pages_of(offset: int, size: int) -> range:
    return range(offset // PAGE_SIZE, (offset + size + PAGE_SIZE - 1) // PAGE_SIZE if size else offset // PAGE_SIZE)


def _what_arrives(rng: Random) -> list[int]:
    """The sectors of a page that reached the device, by where they start."""
    fate = rng.randrange(3)
    if fate == 0:
        return []
    return list(_SECTORS) if fate == 1 else [start for start in _SECTORS if rng.random() < 0.5]


def _cut(table: dict[int, bytes | bytearray], size: int) -> None:
    pages = (size + PAGE_SIZE - 1) // PAGE_SIZE
    for page in [page for page in table if page >= pages]:
        del table[page]


def _cut_durable(table: dict[int, bytes], size: int) -> None:
    pages = (size + PAGE_SIZE - 1) // PAGE_SIZE
    for page in [page for page in table if page >= pages]:
        del table[page]
    page, start = divmod(size, PAGE_SIZE)
    if start and page in table:
        table[page] = table[page][:start] + bytes(PAGE_SIZE - start)

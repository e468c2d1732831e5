"""Pages of index files in memory: a bounded number, of which the clean ones are given up when others are needed.

A page is *dirty* from a change to the write that covers it, and stays in memory that long. Clean pages are kept in the order of
their last use; the oldest is taken first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from struct import Struct
from typing import Final

from simbookie.storage.indexes.index_file import PAGE_SIZE, PAGE_SLOTS, SLOT_BYTES

__all__ = ["IndexPage", "PageCollection", "neighbours"]

_SLOT: Final = Struct(">q")


class IndexPage:
    """The locations of 1024 entries of a ledger, from entry ``first`` on; in the layout of the file."""

    __slots__ = ("data", "first", "is_dirty", "ledger_id")

    def __init__(self, ledger_id: int, first: int, data: bytearray) -> None:
        self.ledger_id = ledger_id
        self.first = first
        self.data = data
        self.is_dirty = False

    def __getitem__(self, slot: int) -> int:
        location: int = _SLOT.unpack_from(self.data, slot * SLOT_BYTES)[0]
        return location

    def __setitem__(self, slot: int, location: int) -> None:
        _SLOT.pack_into(self.data, slot * SLOT_BYTES, location)

    @property
    def last(self) -> int:
        """The highest entry that has a location; -1 without one."""
        used = len(self.data.rstrip(b"\0"))
        return self.first + (used - 1) // SLOT_BYTES if used else -1


class PageCollection:
    """At most ``pages_max`` pages of all ledgers."""

    def __init__(self, pages_max: int) -> None:
        if pages_max < 1:
            raise ValueError(f"index: pages_max must be >= 1, got {pages_max}")
        self._pages_max = pages_max
        self._pages: dict[int, dict[int, IndexPage]] = {}
        self._clean: OrderedDict[tuple[int, int], IndexPage] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_exhausted(self) -> bool:
        """Whether there is no page left for another part of an index before one is written."""
        return self._count >= self._pages_max and not self._clean

    def ledgers(self) -> list[int]:
        """The ledgers that have pages, in the order of their first."""
        return list(self._pages)

    def find(self, ledger_id: int, entry_id: int) -> IndexPage | None:
        """The page of an entry if it is in memory; it was used last now."""
        pages = self._pages.get(ledger_id)
        page = pages.get(entry_id - entry_id % PAGE_SLOTS) if pages is not None else None
        if page is not None and not page.is_dirty:
            self._clean.move_to_end((ledger_id, page.first))
        return page

    def of(self, ledger_id: int) -> list[IndexPage]:
        """All pages of a ledger that are in memory, by their first entry."""
        pages = self._pages.get(ledger_id, {})
        return [pages[first] for first in sorted(pages)]

    def dirty(self, ledger_id: int) -> list[IndexPage]:
        """Those of them that are dirty."""
        return [page for page in self.of(ledger_id) if page.is_dirty]

    def take(self, ledger_id: int, first: int, content: bytes) -> IndexPage:
        """A page for a part of an index that has ``content``, clean; not while the collection is exhausted."""
        if self._count >= self._pages_max:
            _, oldest = self._clean.popitem(last=False)
            self._remove(oldest)
        page = IndexPage(ledger_id, first, bytearray(content.ljust(PAGE_SIZE, b"\0")))
        self._pages.setdefault(ledger_id, {})[first] = page
        self._clean[ledger_id, first] = page
        self._count += 1
        return page

    def _remove(self, page: IndexPage) -> None:
        pages = self._pages[page.ledger_id]
        del pages[page.first]
        if not pages:
            del self._pages[page.ledger_id]
        self._count -= 1

    def set_dirty(self, page: IndexPage) -> None:
        """The page was changed; it stays in memory."""
        if not page.is_dirty:
            page.is_dirty = True
            del self._clean[page.ledger_id, page.first]

    def set_clean(self, page: IndexPage) -> None:
        """The page was written."""
        page.is_dirty = False
        self._clean[page.ledger_id, page.first] = page

    def drop(self, ledger_id: int) -> None:
        """Forget the pages of a ledger, dirty or not."""
        for page in self.of(ledger_id):
            self._clean.pop((ledger_id, page.first), None)
            self._remove(page)


def neighbours(pages: list[IndexPage]) -> Iterator[list[IndexPage]]:
    """``pages``, which ascend, in runs of neighbours."""
    run: list[IndexPage] = []
    for page in pages:
        if run and page.first != run[-1].first + PAGE_SLOTS:
            yield run
            run = []
        run.append(page)
    if run:
        yield run

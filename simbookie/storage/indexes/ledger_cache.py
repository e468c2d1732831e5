"""Where in the entry logs each entry is, and what is known of ledgers: a file for each ledger, and a cache over all of them.

Locations are looked up and set in pages (:mod:`simbookie.storage.indexes.pages`). When no page is left, the caller writes
those of one ledger itself. What is known of a ledger, its header, is held by a *handle*, of which there are so many as files
may be open; one that has to go writes its header first. A file is created when something of its ledger is first written.

A flush writes header and pages of one ledger after the other, and syncs each file. Reading a page costs no time here.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from simbookie.storage.base import DurableCallback, StorageError, StorageIOError
from simbookie.storage.disk.base import DiskFile
from simbookie.storage.entry_logs.format import log_id_of
from simbookie.storage.folders import Folder, Folders
from simbookie.storage.indexes.index_file import (
    HEADER_SIZE,
    PAGE_SIZE,
    PAGE_SLOTS,
    SLOT_BYTES,
    IndexHeader,
    index_folder,
    index_name,
    page_position,
)
from simbookie.storage.indexes.index_files import index_files
from simbookie.storage.indexes.pages import IndexPage, PageCollection, neighbours
from simbookie.storage.ledger_store import OnStep, no_step
from simbookie.storage.quirks import REPAIRED, Quirk
from simbookie.storage.sequence import Sequence, WaitingStep, ignore_outcome

__all__ = ["IndexConfig", "LedgerCache"]

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class IndexConfig:
    """Limits of a :class:`LedgerCache`."""

    #: Pages in memory, of 8 KiB each (``pageLimit``).
    pages_max: int = 8192
    #: Index files that are open (``openFileLimit``).
    open_files_max: int = 20_000
    #: Bytes of an index file; an entry with an id beyond that is refused.
    file_bytes_max: int = 1 << 30

    def __post_init__(self) -> None:
        for name, least in (("pages_max", 1), ("open_files_max", 1), ("file_bytes_max", page_position(1))):
            if getattr(self, name) < least:
                raise ValueError(f"index: {name} must be >= {least}, got {getattr(self, name)}")


@dataclass(slots=True, eq=False)
class _Handle:
    """The header of a ledger's index, and its file, once there is one."""

    header: IndexHeader
    folder: Folder | None = None
    file: DiskFile | None = None
    is_dirty: bool = False


class LedgerCache:
    """The indexes in ``folders``. Errors of files are :class:`~simbookie.storage.base.StorageIOError`."""

    def __init__(
        self,
        folders: Folders,
        config: IndexConfig | None = None,
        *,
        on_step: OnStep = no_step,
        quirks: frozenset[Quirk] = REPAIRED,
    ) -> None:
        self.config = config if config is not None else IndexConfig()
        self._folders = folders
        self._step = on_step
        self._quirks = quirks
        self._flushing: Sequence | None = None
        self._forget()

    def _forget(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
        self._flushing = None
        #: All ledgers, with the folder of the file of each; ``None`` as long as it has none.
        self._ledgers: dict[int, Folder | None] = {}
        self._handles: OrderedDict[int, _Handle] = OrderedDict()
        self.pages = PageCollection(self.config.pages_max)
        #: Ledgers with something that is not written; and with something written that is not synced, with the number of the
        #: write.
        self._dirty: dict[int, None] = {}
        self._unsynced: dict[int, int] = {}
        self._writes = 0
        #: Ledgers whose files were made, or written again, since the store was opened; those that the next flush has to write
        #: again; and those whose header was written since then.
        self._written_anew: set[int] = set()
        self._doubted: set[int] = set()
        self._headers_written: set[int] = set()
        self._new_names: dict[tuple[Folder, str], Folder] = {}
        #: By ledger, entries that were stored again, with the place of the new copy, which is not known to be durable.
        self._unsettled: dict[int, dict[int, int]] = {}
        #: With the quirk EXPLICIT_LAC_REPLACED, the explicit LACs in files that BookKeeper would not have opened yet.
        self._unopened: dict[int, bytes | None] = {}
        self._failed: StorageError | None = None
        self.hits = 0
        self.misses = 0

    def open(self) -> None:
        """Find all index files."""
        self._forget()
        for ledger_id, folder, below in index_files(self._folders):
            self._ledgers.setdefault(ledger_id, folder)
            # The process that made it may have been killed before its name was durable.
            self._note_name(folder, below)

    def close(self) -> None:
        """Close all files. What was not flushed is lost."""
        for handle in self._handles.values():
            if handle.file is not None:
                handle.file.close()
        self._forget()

    def crash(self) -> None:
        """Forget everything in memory; the files died with the disk."""
        self._forget()

    # ------------------------------------------------------------------------------------------------------- headers

    def __contains__(self, ledger_id: int) -> bool:
        return ledger_id in self._ledgers

    def ledger_ids(self) -> list[int]:
        """All ledgers, ascending."""
        return sorted(self._ledgers)

    def header(self, ledger_id: int) -> IndexHeader:
        """What is known of a ledger that exists; not to be changed."""
        return self._handle(ledger_id).header

    def create(self, ledger_id: int, master_key: bytes | None) -> None:
        """Add a ledger, or give one another key; :class:`~simbookie.storage.indexes.index_file.HeaderFull` if it is too long."""
        IndexHeader(master_key).encode()
        if ledger_id not in self._ledgers:
            self._add_handle(ledger_id, _Handle(IndexHeader(master_key)))  # for which there may be no room
            self._ledgers[ledger_id] = None
        handle = self._handle(ledger_id)
        handle.header.master_key = master_key
        self._set_header_dirty(ledger_id, handle)

    def set_fenced(self, ledger_id: int) -> bool:
        """Fence the ledger; returns whether it was not fenced before."""
        self.needs_file(ledger_id)
        handle = self._handle(ledger_id)
        if handle.header.fenced:
            if ledger_id not in self._headers_written:  # one that was killed may have written it, and not synced it
                self._set_header_dirty(ledger_id, handle)
            return False
        handle.header.fenced = True
        self._set_header_dirty(ledger_id, handle)
        return True

    def set_limbo(self, ledger_id: int, *, in_limbo: bool) -> None:
        """Note whether the ledger's content is uncertain."""
        self.needs_file(ledger_id)
        handle = self._handle(ledger_id)
        handle.header.in_limbo = in_limbo
        self._set_header_dirty(ledger_id, handle)

    def set_explicit_lac(self, ledger_id: int, body: bytes) -> None:
        """Keep an explicit LAC; :class:`~simbookie.storage.indexes.index_file.HeaderFull` if it is too long."""
        handle = self._handle(ledger_id)
        IndexHeader(handle.header.master_key, explicit_lac=body).encode()
        handle.header.explicit_lac = body
        self._set_header_dirty(ledger_id, handle)

    def needs_file(self, ledger_id: int) -> None:
        """Something is done for which BookKeeper opens the ledger's file, and reads the header if it is not open."""
        if Quirk.EXPLICIT_LAC_REPLACED in self._quirks:
            header = self._handle(ledger_id).header
            header.explicit_lac = self._unopened.pop(ledger_id, header.explicit_lac)

    def _set_header_dirty(self, ledger_id: int, handle: _Handle) -> None:
        handle.is_dirty = True
        self._dirty[ledger_id] = None

    def _handle(self, ledger_id: int) -> _Handle:
        handle = self._handles.get(ledger_id)
        if handle is not None:
            self._handles.move_to_end(ledger_id)
            return handle
        folder = self._ledgers[ledger_id]
        if folder is None:
            raise AssertionError(f"ledger {ledger_id} has neither a handle nor a file")
        file = folder.open(index_name(ledger_id))
        data = file.read_now(0, HEADER_SIZE)
        # A power loss may leave a file whose header never arrived. Then the journal has the key, and what else was in it.
        header = IndexHeader.decode(data) if any(data) else IndexHeader()
        handle = _Handle(header, folder, file)
        self._add_handle(ledger_id, handle)
        if Quirk.EXPLICIT_LAC_REPLACED in self._quirks:
            self._unopened[ledger_id] = header.explicit_lac
        return handle

    def _add_handle(self, ledger_id: int, handle: _Handle) -> None:
        while len(self._handles) >= self.config.open_files_max:
            oldest_id, oldest = next(iter(self._handles.items()))
            self.needs_file(oldest_id)
            self._write_header(oldest_id, oldest)  # or its fence would be lost
            del self._handles[oldest_id]
            if oldest.file is not None:
                oldest.file.close()
        self._handles[ledger_id] = handle

    def _file(self, ledger_id: int, handle: _Handle) -> DiskFile:
        """The file of a ledger, which is created now if it is needed for the first time."""
        if handle.file is None:
            folder = handle.folder = self._folders.choose()
            self._step("index.create")
            handle.file = folder.create(index_name(ledger_id))
            self._ledgers[ledger_id] = folder
            self._note_name(folder, index_folder(ledger_id))
            self._written_anew.add(ledger_id)
            handle.is_dirty = True
        return handle.file

    def _write_header(self, ledger_id: int, handle: _Handle) -> None:
        file = self._file(ledger_id, handle)
        if handle.is_dirty:
            self._step("index.header")
            file.write(0, handle.header.encode())
            self._headers_written.add(ledger_id)
            handle.is_dirty = False
            if Quirk.HEADERS_UNSYNCED not in self._quirks:
                self._note_write(ledger_id)

    def _note_write(self, ledger_id: int) -> None:
        self._writes += 1
        self._unsynced[ledger_id] = self._writes

    # ------------------------------------------------------------------------------------------------------ locations

    def put(self, ledger_id: int, entry_id: int, location: int) -> None:
        """Set the location of an entry; one without room in an index file is refused.

        The location of one that has a location waits for :meth:`settle`: the index on disk must not exchange a copy that is
        durable for one that is not.
        """
        if page_position(entry_id + 1) > self.config.file_bytes_max:
            raise StorageIOError(f"entry {entry_id} of ledger {ledger_id} is beyond what an index file may hold")
        self.needs_file(ledger_id)
        page = self._page(ledger_id, entry_id)
        if page[entry_id % PAGE_SLOTS] and Quirk.COPIES_REPLACED_EARLY not in self._quirks:
            self._unsettled.setdefault(ledger_id, {})[entry_id] = location
        else:
            self._set(page, entry_id, location)

    def _set(self, page: IndexPage, entry_id: int, location: int) -> None:
        page[entry_id % PAGE_SLOTS] = location
        self.pages.set_dirty(page)
        self._dirty[page.ledger_id] = None

    def unsettled(self) -> list[tuple[int, int, int]]:
        """``(ledger id, entry id, location)`` of copies that wait to be durable."""
        return [
            (ledger_id, entry_id, location)
            for ledger_id, locations in self._unsettled.items()
            for entry_id, location in locations.items()
        ]

    def settle(self, copies: list[tuple[int, int, int]]) -> None:
        """These, of :meth:`unsettled`, are durable: let the index lead to them, unless there is a newer copy."""
        for ledger_id, entry_id, location in copies:
            if self._unsettled.get(ledger_id, {}).get(entry_id) == location:
                self._set(self._page(ledger_id, entry_id), entry_id, location)
                self._settled(ledger_id, entry_id)

    def _settled(self, ledger_id: int, entry_id: int) -> None:
        waiting = self._unsettled[ledger_id]
        del waiting[entry_id]
        if not waiting:
            del self._unsettled[ledger_id]

    def move(self, ledger_id: int, entry_id: int, log_id: int, location: int) -> None:
        """An entry of a log is at ``location`` now, durably; nothing happens if no location leads to that log."""
        newer = self._unsettled.get(ledger_id, {}).get(entry_id, 0)
        page = self._page(ledger_id, entry_id)
        settled = page[entry_id % PAGE_SLOTS]
        if newer and log_id_of(newer) == log_id:
            self._settled(ledger_id, entry_id)
        elif not settled or log_id_of(settled) != log_id:
            return
        self._set(page, entry_id, location)

    def locations(self, ledger_id: int, entry_id: int) -> tuple[int, ...]:
        """Where copies of an entry are: the one that the index on disk leads to, and one that waits."""
        settled = self._page(ledger_id, entry_id)[entry_id % PAGE_SLOTS]
        newer = self._unsettled.get(ledger_id, {}).get(entry_id, 0)
        return tuple(location for location in (settled, newer) if location)

    def get(self, ledger_id: int, entry_id: int) -> int:
        """The location of an entry, 0 if it is not stored."""
        if page_position(entry_id + 1) > self.config.file_bytes_max:
            return 0
        newer = self._unsettled.get(ledger_id)
        if newer is not None and entry_id in newer:
            return newer[entry_id]
        return self._page(ledger_id, entry_id)[entry_id % PAGE_SLOTS]

    def _page(self, ledger_id: int, entry_id: int) -> IndexPage:
        page = self.pages.find(ledger_id, entry_id)
        if page is not None:
            self.hits += 1
            return page
        self.misses += 1
        while self.pages.is_exhausted:
            self._write_one_ledger()
        first = entry_id - entry_id % PAGE_SLOTS
        return self.pages.take(ledger_id, first, self._read_page(ledger_id, first))

    def _read_page(self, ledger_id: int, first: int) -> bytes:
        file = self._handle(ledger_id).file
        if file is None or page_position(first) >= file.size:
            return b""
        data = file.read_now(page_position(first), PAGE_SIZE)
        return data[: len(data) - len(data) % SLOT_BYTES]  # a file may end within a location

    def _write_one_ledger(self) -> None:
        ledger_id = next(ledger_id for ledger_id in self.pages.ledgers() if self.pages.dirty(ledger_id))
        self._write(ledger_id)
        self._start_sync(ledger_id, ignore_outcome)  # its end is not waited for; a flush waits for one of its own

    def last_entry(self, ledger_id: int) -> int:
        """The highest entry that has a location; -1 without one."""
        last = max((page.last for page in self.pages.of(ledger_id)), default=-1)
        file = self._handle(ledger_id).file
        end = file.size if file is not None else 0
        while file is not None and end > page_position(last + 1):
            start = max(end - _MIB, page_position(last + 1))
            used = len(file.read_now(start, end - start).rstrip(b"\0"))
            if used:
                return max(last, (start + used - 1 - HEADER_SIZE) // SLOT_BYTES)
            end = start
        return last

    def entries(self, ledger_id: int) -> Iterator[tuple[int, int]]:
        """``(entry id, location)`` of all entries of a ledger, ascending; not while entries are added."""
        newer = self._unsettled.get(ledger_id, {})
        in_memory = {page.first: page for page in self.pages.of(ledger_id)}
        file = self._handle(ledger_id).file
        written = -(-(file.size - HEADER_SIZE) // PAGE_SIZE) * PAGE_SLOTS if file is not None else 0
        beyond = [first + PAGE_SLOTS for first in in_memory]
        for first in range(0, max([written, *beyond]), PAGE_SLOTS):
            page = in_memory.get(first)
            data = bytes(page.data) if page is not None else self._read_page(ledger_id, first)
            if data.count(0) == len(data):
                continue
            for offset in range(0, len(data), SLOT_BYTES):
                location = int.from_bytes(data[offset : offset + SLOT_BYTES])
                if location:
                    entry_id = first + offset // SLOT_BYTES
                    yield entry_id, newer.get(entry_id, location)

    def size(self, ledger_id: int) -> int:
        """Bytes of the locations in the file of a ledger."""
        file = self._handle(ledger_id).file
        return max(0, file.size - HEADER_SIZE) if file is not None else 0

    def delete(self, ledger_id: int) -> None:
        """Forget a ledger, and remove its file."""
        self.pages.drop(ledger_id)
        handle = self._handles.pop(ledger_id, None)
        if handle is not None and handle.file is not None:
            handle.file.close()
        self._dirty.pop(ledger_id, None)
        self._unsynced.pop(ledger_id, None)
        self._unsettled.pop(ledger_id, None)
        self._unopened.pop(ledger_id, None)
        for known in (self._written_anew, self._doubted, self._headers_written):
            known.discard(ledger_id)
        folder = self._ledgers.pop(ledger_id)
        if folder is not None:
            self._step("index.remove")
            folder.remove(index_name(ledger_id))

    # ------------------------------------------------------------------------------------------------------ flushing

    def doubt(self, ledger_ids: Iterable[int]) -> None:
        """Have the next flush write the files of these ledgers again, and sync them, though they did not change since the start.

        A bookie that was killed may have written a file and not synced it, or in vain: an operating system whose sync failed
        keeps what it could not write, and counts it as written. What is read from the file is in the page cache then, a sync
        alone may do nothing, and nothing may be removed on the strength of it.
        """
        for ledger_id in ledger_ids:
            if self._ledgers.get(ledger_id) is not None and ledger_id not in self._written_anew:
                self._doubted.add(ledger_id)
                self._dirty[ledger_id] = None

    @property
    def is_dirty(self) -> bool:
        """Whether a flush would have anything to do."""
        return bool(self._dirty or self._unsynced or self._unsettled)

    def flush(self, on_done: DurableCallback, token: object) -> None:
        """Make durable what was put before the call."""
        if self._failed is not None:
            asyncio.get_running_loop().call_soon(on_done, token, self._failed)
            return
        with_pages_only = Quirk.HEADERS_WITH_PAGES_ONLY in self._quirks
        ledgers = self.pages.ledgers() if with_pages_only else [*self._dirty, *self._unsynced]
        self._flushing = Sequence(self._steps(ledgers), on_done, token)

    def _steps(self, ledgers: list[int]) -> Iterator[WaitingStep]:
        for ledger_id in ledgers:
            if (
                ledger_id in self._dirty or ledger_id in self._unsynced
            ):  # it may have been deleted, or written meanwhile
                yield partial(self._flush_ledger, ledger_id)
        if Quirk.FOLDERS_UNSYNCED not in self._quirks:
            for key in list(self._new_names):
                yield partial(self._sync_names, key)

    def _sync_names(self, key: tuple[Folder, str], on_done: DurableCallback) -> None:
        folder = self._new_names.pop(key)

        def synced(_token: object, error: StorageError | None) -> None:
            if error is not None:
                self._new_names[key] = folder
            on_done(None, error)

        folder.sync(synced)

    def _note_name(self, folder: Folder, below: str) -> None:
        """A file in this folder has a name that is not durable."""
        self._new_names[folder, below] = Folder(folder.disk, folder.file(below))

    def _flush_ledger(self, ledger_id: int, on_done: DurableCallback) -> None:
        try:
            self._write(ledger_id)
        except StorageError as error:
            on_done(None, error)
            return
        if ledger_id in self._unsynced:
            self._start_sync(ledger_id, on_done)
        else:
            on_done(None, None)

    def _write(self, ledger_id: int) -> None:
        """Write what is dirty: the header, then the pages, those next to each other at once."""
        self.needs_file(ledger_id)
        handle = self._handle(ledger_id)
        if ledger_id in self._doubted:
            self._write_again(ledger_id, self._file(ledger_id, handle))
        dirty = self.pages.dirty(ledger_id)
        self._write_header(ledger_id, handle)
        for run in neighbours(dirty):
            self._step("index.pages")
            self._file(ledger_id, handle).write(page_position(run[0].first), b"".join(page.data for page in run))
            self._note_write(ledger_id)
            for page in run:
                self.pages.set_clean(page)
        self._dirty.pop(ledger_id, None)

    def _write_again(self, ledger_id: int, file: DiskFile) -> None:
        """Write what the file has, header and pages, so that the next sync has it to do."""
        self._step("index.pages")
        for offset in (0, *range(page_position(0), file.size, PAGE_SIZE)):
            content = file.read_now(offset, PAGE_SIZE if offset else page_position(0))
            if content.strip(b"\0"):
                file.write(offset, content)
        self._note_write(ledger_id)
        self._doubted.discard(ledger_id)
        self._written_anew.add(ledger_id)

    def _start_sync(self, ledger_id: int, on_done: DurableCallback) -> None:
        self._step("index.sync")
        file = self._handle(ledger_id).file
        assert file is not None, "it was written"
        file.sync(self._synced, (ledger_id, self._unsynced[ledger_id], on_done))

    def _synced(self, token: tuple[int, int, DurableCallback], error: StorageError | None) -> None:
        ledger_id, write, on_done = token
        if error is None:
            if self._unsynced.get(ledger_id) == write:
                del self._unsynced[ledger_id]
        elif Quirk.FAILED_SYNC_RETRIED not in self._quirks:
            self._failed = error
        elif ledger_id in self._ledgers:
            for page in self.pages.of(ledger_id):
                self.pages.set_dirty(page)
            self._dirty[ledger_id] = None
        on_done(None, error)

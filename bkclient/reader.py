"""Reading a ledger."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from bkclient.core import ClientCore, entry_codec_for
from bkclient.entry import Entry, start_entry_read
from bkclient.errors import ArgumentError, ClientClosed, NoSuchEntry, ReadFailed
from bkclient.lac import read_last_add_confirmed
from bkclient.metadata.base import Cancel
from bkclient.metadata.model import LedgerMetadata, Versioned

__all__ = ["LedgerReader"]


class LedgerReader:
    """Reads a ledger, from :meth:`bkclient.BookKeeper.open_ledger`.

    Entries up to :attr:`last_add_confirmed` can be read; they are acknowledged and stay. On a closed ledger that is its
    last entry. On an open one it advances with :meth:`read_last_add_confirmed`, with what bookies tell in passing
    (LAC-3), and when the ledger is closed. ``async for entry in reader`` yields everything up to it.
    """

    def __init__(self, core: ClientCore, metadata: Versioned, last_add_confirmed: int) -> None:
        self._core = core
        self._value = metadata
        self._codec = entry_codec_for(metadata.metadata)
        self._last_add_confirmed = last_add_confirmed
        self._length = metadata.metadata.length
        self._stop_watching: Cancel | None = None

    @property
    def ledger_id(self) -> int:
        """The ledger's id."""
        return self._value.metadata.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as this reader knows it."""
        return self._value.metadata

    @property
    def metadata_version(self) -> int:
        """The version of :attr:`metadata` in the store."""
        return self._value.version

    @property
    def is_closed(self) -> bool:
        """Whether the end of the ledger is final."""
        return self._value.metadata.is_closed

    @property
    def last_add_confirmed(self) -> int:
        """The highest entry id this reader may read; -1 for none. Never decreases."""
        return self._last_add_confirmed

    @property
    def length(self) -> int:
        """Payload bytes of the closed ledger; 0 while it is open (NR-5)."""
        return self._length

    # Reading -----------------------------------------------------------------------------------------------------

    async def read(self, entry_id: int) -> Entry:
        """One entry.

        Raises :class:`~bkclient.errors.ReadFailed` for an id above :attr:`last_add_confirmed` (R-19),
        :class:`~bkclient.errors.NoSuchEntry` when every replica denies it, else the most telling error of its replicas (R-13).
        """
        self._check_range(entry_id, entry_id)
        return await self._start_read(entry_id)

    def read_range(self, first: int, last: int) -> AsyncIterator[Entry]:
        """The entries ``first`` to ``last``, both inclusive, in order, read ahead as far as the configuration allows.

        Raises as :meth:`read`, at the first entry that cannot be read; arguments are checked before anything is sent.
        """
        self._check_range(first, last)
        return self._iterate(first, last)

    def __aiter__(self) -> AsyncIterator[Entry]:
        if self._last_add_confirmed < 0:
            return _nothing()
        return self._iterate(0, self._last_add_confirmed)

    async def read_last_entry(self) -> Entry:
        """The entry at :attr:`last_add_confirmed`; :class:`~bkclient.errors.NoSuchEntry` on an empty ledger (R-22)."""
        if not self.is_closed:
            await self.read_last_add_confirmed()
        if self._last_add_confirmed < 0:
            raise NoSuchEntry("the ledger has no confirmed entry", ledger_id=self.ledger_id)
        return await self.read(self._last_add_confirmed)

    async def read_last_add_confirmed(self) -> int:
        """Ask the ensemble how far the ledger is confirmed and advance to it (R-34); a closed ledger answers locally.

        Returns :attr:`last_add_confirmed`. Raises :class:`~bkclient.errors.RequestTimeout` and other errors of the bookies when
        too few of them answer.
        """
        self._check_open()
        if not self.is_closed:
            self._on_max_lac(await read_last_add_confirmed(self._core, self.metadata, self._codec))
        return self._last_add_confirmed

    async def _iterate(self, first: int, last: int) -> AsyncIterator[Entry]:
        window: deque[asyncio.Future[Entry]] = deque()
        next_id = first
        try:
            while next_id <= last or window:
                while next_id <= last and len(window) < self._core.config.read_ahead_entries:
                    window.append(self._start_read(next_id))
                    next_id += 1
                yield await window.popleft()
        finally:
            for future in window:
                future.cancel()

    def _start_read(self, entry_id: int) -> asyncio.Future[Entry]:
        self._check_open()
        return start_entry_read(self._core.transport, self._codec, self.metadata, entry_id, self._on_max_lac)

    def _check_range(self, first: int, last: int) -> None:
        for value in (first, last):
            if isinstance(value, bool) or not isinstance(value, int):
                raise ArgumentError(f"an entry id is an int, not {type(value).__name__}", ledger_id=self.ledger_id)
        if first < 0 or first > last:
            raise ArgumentError(f"entries {first} to {last} are no range", ledger_id=self.ledger_id)
        if last > self._last_add_confirmed:
            raise ReadFailed(
                f"the last add confirmed known here is {self._last_add_confirmed}",
                ledger_id=self.ledger_id,
                entry_id=last,
            )

    def _check_open(self) -> None:
        if self._core.is_closed:
            raise ClientClosed(ledger_id=self.ledger_id)

    def _on_max_lac(self, last_add_confirmed: int) -> None:
        """LAC-4: it never goes back; and on a closed ledger the end is the end, whatever a bookie stores beyond it."""
        if not self.is_closed:
            self._last_add_confirmed = max(self._last_add_confirmed, last_add_confirmed)

    # Following the metadata --------------------------------------------------------------------------------------

    def follow_metadata(self) -> None:
        """Follow ensemble changes and the closing of an open ledger (NR-7). Called once, by the client."""
        assert self._stop_watching is None, "one watch per reader"
        self._stop_watching = self._core.metadata.watch_ledger(self.ledger_id, self._on_metadata)

    def _on_metadata(self, value: Versioned | None) -> None:
        if value is None or value.version <= self._value.version:
            return
        self._value = value
        if value.metadata.is_closed:
            self._last_add_confirmed = value.metadata.last_entry_id
            self._length = value.metadata.length

    async def close(self) -> None:
        """Stop following the metadata. The ledger itself is not touched. Idempotent."""
        if self._stop_watching is not None:
            self._stop_watching()
            self._stop_watching = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


async def _nothing() -> AsyncIterator[Entry]:
    return
    yield

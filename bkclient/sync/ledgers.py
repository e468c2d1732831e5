"""Writers and readers of ledgers whose calls wait."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

from bkclient import AdvancedLedgerWriter, Entry, LedgerMetadata, LedgerReader, LedgerWriter
from bkclient.sync.bridge import SyncBlock, blocking, iterating, passed_on

__all__ = ["SyncAdvancedLedgerWriter", "SyncLedgerReader", "SyncLedgerWriter"]

AnyHandle = TypeVar("AnyHandle", LedgerWriter, AdvancedLedgerWriter, LedgerReader)

Payload = bytes | bytearray | memoryview

#: How many entries cross from the loop at a time.
_ENTRIES_AT_ONCE = 100


async def _submit(writer: LedgerWriter, payload: Payload) -> Future[int]:
    """Append one entry without waiting until it is acknowledged; returns a :class:`concurrent.futures.Future` of its id.

    Waits while the in-flight window of the writer or of the client is full. Futures complete in the order of entry ids; they need
    not be waited for, because ``flush()`` raises a failure too.
    """
    return passed_on(await writer.submit(payload))


async def _submit_at(writer: AdvancedLedgerWriter, entry_id: int, payload: Payload) -> Future[int]:
    """Append one entry under ``entry_id`` without waiting until it is acknowledged; returns a future as other writers do."""
    return passed_on(await writer.submit(entry_id, payload))


class _SyncLedger(SyncBlock[AnyHandle], Generic[AnyHandle]):
    """What writers and readers have in common."""

    @property
    def ledger_id(self) -> int:
        """The ledger that is written or read."""
        return self._handle.ledger_id

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as this handle knows it."""
        return self._handle.metadata

    @property
    def last_add_confirmed(self) -> int:
        """The highest entry id that is known to be acknowledged, with all before it; -1 for none."""
        return self._handle.last_add_confirmed

    @property
    def is_closed(self) -> bool:
        """Whether the writer has ended; of a reader, whether the end of the ledger is final."""
        return self._handle.is_closed


class SyncLedgerWriter(_SyncLedger[LedgerWriter]):
    """The single writer of a ledger, from ``create_ledger``; see :class:`bkclient.LedgerWriter`."""

    append = blocking(LedgerWriter.append)
    append_all = blocking(LedgerWriter.append_all)
    submit = blocking(_submit)
    flush = blocking(LedgerWriter.flush)
    force = blocking(LedgerWriter.force)
    close = blocking(LedgerWriter.close)
    aclose = blocking(LedgerWriter.aclose)


class SyncAdvancedLedgerWriter(_SyncLedger[AdvancedLedgerWriter]):
    """The single writer of a ledger whose entry ids come from outside; see :class:`bkclient.AdvancedLedgerWriter`."""

    append = blocking(AdvancedLedgerWriter.append)
    submit = blocking(_submit_at)
    flush = blocking(AdvancedLedgerWriter.flush)
    force = blocking(AdvancedLedgerWriter.force)
    close = blocking(AdvancedLedgerWriter.close)
    aclose = blocking(AdvancedLedgerWriter.aclose)


class SyncLedgerReader(_SyncLedger[LedgerReader]):
    """Reads a ledger, from ``open_ledger``; see :class:`bkclient.LedgerReader`."""

    read = blocking(LedgerReader.read)
    read_range = iterating(LedgerReader.read_range, _ENTRIES_AT_ONCE)
    read_entries = blocking(LedgerReader.read_entries)
    read_batch = blocking(LedgerReader.read_batch)
    read_last_entry = blocking(LedgerReader.read_last_entry)
    read_last_add_confirmed = blocking(LedgerReader.read_last_add_confirmed)
    tail = iterating(LedgerReader.tail)
    wait_closed = blocking(LedgerReader.wait_closed)
    aclose = blocking(LedgerReader.aclose)

    _all = iterating(LedgerReader.__aiter__, _ENTRIES_AT_ONCE)

    def __iter__(self) -> Iterator[Entry]:
        return self._all()

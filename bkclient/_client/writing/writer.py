"""The writer of a ledger whose entry ids count up from 0."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from bkclient._client.core import ClientCore
from bkclient._client.create import CreatedLedger
from bkclient._client.writing.admission import WriterAdmission
from bkclient._client.writing.base import BaseWriter
from bkclient._client.writing.outcomes import AppendFuture
from bkclient._client.writing.payloads import Payload
from bkclient.errors import ArgumentError

__all__ = ["LedgerWriter"]

#: After so many entries, or bytes of payload, a producer that waits for nothing else passes control to the loop. What it appended
#: leaves then, and a system call for each bookie costs as much as some ten appends.
_YIELD_EVERY_ENTRIES: Final = 256
_YIELD_EVERY_BYTES: Final = 1024 * 1024
#: How many payloads are taken from their source before it is known how large they are.
_FIRST_AT_ONCE: Final = 16


class LedgerWriter(BaseWriter):
    """The single writer of a ledger, from :meth:`bkclient.BookKeeper.create_ledger`.

    ``await writer.append(payload)`` returns the entry's id once an ack quorum of bookies has stored it and everything before
    it. For throughput, keep many appends in flight::

        await writer.append_all(payloads)  # a list, or a generator of any length

        for payload in payloads:
            await writer.submit(payload)  # waits only while the window is full
        await writer.flush()

    Leaving ``async with writer:`` flushes and closes the ledger, and forces it first if it has deferred sync; leaving it by an
    exception closes it at the last confirmed entry. After the first failed append the writer accepts no more entries: every
    later append, and :meth:`flush`, raise the first error again. Go on in a new ledger.

    A failed or cancelled append is *ambiguous*: the entry may or may not be part of the ledger. All readers of the closed
    ledger agree on which.
    """

    __module__ = "bkclient"
    __slots__ = ("_adds", "_window", "_yield_at", "_yield_at_length")

    def __init__(self, core: ClientCore, created: CreatedLedger, *, deferred_sync: bool = False) -> None:
        super().__init__(core, created, deferred_sync=deferred_sync, entry_ids_given=False)
        self._window = self._shell.window
        self._adds = self._machine.adds
        self._yield_at = _YIELD_EVERY_ENTRIES
        self._yield_at_length = _YIELD_EVERY_BYTES

    async def append(self, payload: Payload) -> int:
        """Append one entry and wait until it is acknowledged; returns its id.

        Waits first while the in-flight window of the writer or of the client is full. Raises
        :class:`~bkclient.errors.LedgerFenced` when another client has taken over, :class:`~bkclient.errors.LedgerClosed` on a
        closed handle, :class:`~bkclient.errors.NotEnoughBookies` when a failed bookie cannot be replaced,
        :class:`~bkclient.errors.QuorumTimeout` when too few bookies stored it in time,
        :class:`~bkclient.errors.LedgerTruncated` when another client closed the ledger below what was acknowledged, and
        :class:`~bkclient.errors.ArgumentError` for a payload that is not bytes-like or larger than a frame can carry.
        Cancellation leaves the writer intact and the entry ambiguous.
        """
        return await (await self.submit(payload))

    async def submit(self, payload: Payload) -> AppendFuture:
        """Append one entry without waiting until it is acknowledged; returns a future of its id.

        Waits while the in-flight window of the writer or of the client is full. Futures complete in the order of entry ids,
        and raise as :meth:`append`. They need not be awaited: :meth:`flush` raises a failure too.
        """
        # Most entries are spared a coroutine: there is nothing to wait for.
        adds = self._adds
        if (
            adds.last_add_pushed >= self._yield_at
            or adds.length >= self._yield_at_length
            or self._shell.admission is not None
        ):
            await self.wait_for_room()
        while (future := self._shell.try_append(payload)) is None:
            await self.wait_for_room()
        return future

    async def append_all(self, payloads: Iterable[Payload]) -> list[int]:
        """Append entries, many under way at a time, and wait until all of them are acknowledged; returns their ids.

        The fastest way to append. The payloads are taken from their source as the in-flight windows have room, so those of a
        generator need not fit into memory together. Entries are in the order of ``payloads``, and their ids follow each other
        unless something else appends to this writer meanwhile.

        Raises as :meth:`append` does, by the first entry that failed; :attr:`last_add_acknowledged` tells how far it got. An
        exception of ``payloads`` ends it, too. What was appended before an exception or a cancellation is under way, and
        ambiguous until :meth:`flush`.
        """
        if isinstance(payloads, (bytes, bytearray, memoryview, str)) or not isinstance(payloads, Iterable):
            kind = type(payloads).__name__
            raise ArgumentError(
                f"payloads must be an iterable of bytes-like objects, got {kind}", ledger_id=self.ledger_id
            )
        source, adds = iter(payloads), self._adds
        ids: list[int] = []
        at_once = _FIRST_AT_ONCE
        while waiting := list(islice(source, at_once)):
            count, length = len(waiting), adds.length
            while waiting:
                await self.wait_for_room()
                appended = self._append_some(waiting)
                ids += appended
                del waiting[: len(appended)]
            size = (adds.length - length) // count
            at_once = max(1, min(_YIELD_EVERY_ENTRIES, _YIELD_EVERY_BYTES // max(1, size)))
        await self._shell.flush(ids[-1] if ids else -1)
        return ids

    def _append_some(self, payloads: Sequence[Payload]) -> range:
        """Append the first of these, as many as there is room for; returns the ids that they got."""
        return self._shell.append_some(payloads)

    def append_nowait(self, payload: Payload) -> AppendFuture:
        """As :meth:`submit`, for callers that cannot wait: raises :class:`~bkclient.errors.TooManyRequests` without room."""
        return self._shell.append(payload)

    async def wait_for_room(self) -> None:
        """Wait until the in-flight windows, and the rate if one is configured, take another entry.

        Returns at once on a writer that accepts no more. Now and then it passes control to the loop even with room, so
        that a producer which never waits for anything else does not keep what it appended from leaving.
        """
        adds = self._adds
        if adds.last_add_pushed >= self._yield_at or adds.length >= self._yield_at_length:
            self._yield_at = adds.last_add_pushed + _YIELD_EVERY_ENTRIES
            self._yield_at_length = adds.length + _YIELD_EVERY_BYTES
            await asyncio.sleep(0)
        window, admission = self._window, self._shell.admission
        if not window.is_open:
            await window.wait()
        if admission is not None:
            await self._wait_for_admission(admission)

    async def _wait_for_admission(self, admission: WriterAdmission) -> None:
        await admission.wait()
        while not self._window.is_open:  # others went first meanwhile
            await self._window.wait()
            await admission.wait()

"""Writing a ledger, under entry ids that the application chooses."""

from __future__ import annotations

import asyncio

from bkclient._client.arguments import LARGEST_ID
from bkclient._client.core import ClientCore
from bkclient._client.create import CreatedLedger
from bkclient._client.writing.base import BaseWriter
from bkclient._client.writing.outcomes import AppendFuture
from bkclient._client.writing.payloads import Payload
from bkclient.errors import ArgumentError, LedgerClosed, TooManyRequests

__all__ = ["AdvancedLedgerWriter"]


class AdvancedLedgerWriter(BaseWriter):
    """The single writer of a ledger whose entry ids come from outside, from :meth:`bkclient.BookKeeper.create_advanced_ledger`.

    Ids start at 0 and must, in the end, leave no gap; within that they may be appended in any order, by as many tasks as one
    likes. An entry is acknowledged when all entries with smaller ids are. So a gap holds up everything above it, and
    what is still above one when the ledger is closed fails and is not part of it.

    Everything else is as for :class:`~bkclient.LedgerWriter`. The in-flight windows hold back any entry but the
    next one in order: that one must get through for the others to become done, however many there are. Entries above a gap,
    which stay in flight until it is filled, may take at most half of the client's window, so that the other writers go on; those
    held back go on when all smaller ids were appended, or when there is room.
    """

    __module__ = "bkclient"
    __slots__ = ()

    def __init__(self, core: ClientCore, created: CreatedLedger, *, deferred_sync: bool = False) -> None:
        super().__init__(core, created, deferred_sync=deferred_sync, entry_ids_given=True)

    async def append(self, entry_id: int, payload: Payload) -> int:
        """Append one entry under ``entry_id`` and wait until it and all below are acknowledged; returns the id.

        Raises :class:`~bkclient.errors.DuplicateEntryId` for an id that was appended before, or is negative; the
        writer goes on. Other errors and cancellation as :meth:`bkclient.LedgerWriter.append`.
        """
        return await (await self.submit(entry_id, payload))

    async def submit(self, entry_id: int, payload: Payload) -> AppendFuture:
        """Append one entry under ``entry_id`` without waiting until it is acknowledged; returns a future of the id.

        Waits as :meth:`append` does for room. Futures complete in the order of entry ids, and need not be awaited:
        :meth:`flush` raises a failure too.
        """
        while True:
            await self.wait_for_room(entry_id)
            try:
                return self.append_nowait(entry_id, payload)
            except TooManyRequests:
                continue  # others went first

    def append_nowait(self, entry_id: int, payload: Payload) -> AppendFuture:
        """As :meth:`submit`, for callers that cannot wait: raises :class:`~bkclient.errors.TooManyRequests` without room."""
        self._check_entry_id(entry_id)
        return self._shell.append_at(entry_id, payload)

    async def wait_for_room(self, entry_id: int) -> None:
        """Wait until the in-flight windows, and the rate if one is configured, take ``entry_id``.

        Returns at once on a writer that accepts no more. The next entry in order needs no room in the windows, and one whose
        id is taken gets none.
        """
        self._check_entry_id(entry_id)
        shell = self._shell
        while True:
            while self._is_held_back(entry_id):
                await self._wait_in_line(entry_id)
            if shell.admission is not None:
                await shell.admission.wait(entry_id)
            if not self._is_held_back(entry_id):
                return

    def _is_held_back(self, entry_id: int) -> bool:
        shell = self._shell
        return (
            entry_id != self._machine.last_add_acknowledged + 1
            and not shell.window.has_room_for(is_above_gap=shell.gaps.is_above(entry_id))
            and self._machine.is_writable
            and not self._machine.is_taken(entry_id)
        )

    async def _wait_in_line(self, entry_id: int) -> None:
        """Wait for a place in the windows, or until everything below was appended or is done, whichever comes first."""
        shell, turns = self._shell, self._shell.turns
        waiter: asyncio.Future[None] = shell.loop.create_future()
        is_first = turns.setdefault(entry_id, waiter) is waiter
        try:
            await shell.window.wait_in_line(waiter, is_above_gap=shell.gaps.is_above(entry_id))
        finally:
            if is_first:
                del turns[entry_id]

    async def flush(self) -> None:
        """Wait until everything appended so far that has no gap below it is acknowledged; errors as ever."""
        await self._shell.flush(self._shell.gaps.last_without_gap)

    async def _flush_at_exit(self) -> None:
        await self.flush()
        gaps = self._shell.gaps
        if gaps.above and self._machine.is_writable:
            raise LedgerClosed(
                f"entry {gaps.last_without_gap + 1} was never appended, so the ledger ends before it and {len(gaps.above)} "
                f"entries beyond are cut off",
                ledger_id=self.ledger_id,
                entry_id=min(gaps.above),
            )

    def _check_entry_id(self, entry_id: int) -> None:
        if isinstance(entry_id, bool) or not isinstance(entry_id, int):
            raise ArgumentError(f"entry_id must be an int, got {type(entry_id).__name__}", ledger_id=self.ledger_id)
        if entry_id > LARGEST_ID:
            raise ArgumentError(
                f"entry_id must be < 2**63, got {entry_id}", ledger_id=self.ledger_id, entry_id=entry_id
            )

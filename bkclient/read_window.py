"""Several consecutive entries being read at a time, and taken in order."""

from __future__ import annotations

import asyncio
from collections import deque

from bkclient.entry import Entry
from bkclient.entry_reads import EntryReads, Operation
from bkclient.errors import IllegalOperation

__all__ = ["ReadWindow"]


class ReadWindow:
    """Reads from ``first_entry_id`` on, up to ``limit`` entries at a time; one reading task at a time may use it.

    The permit for the first request is the operation's (R-2). Call :meth:`clear` in the end.
    """

    __slots__ = ("_futures", "_is_cleared", "_is_prepaid", "_operation", "_room", "limit", "next_entry_id")

    def __init__(self, room: EntryReads, operation: Operation, first_entry_id: int, limit: int) -> None:
        self._room = room
        self._operation = operation
        self._futures: deque[asyncio.Future[Entry]] = deque()
        self._is_prepaid = True
        self._is_cleared = False
        self.limit = limit
        #: The entry to be asked for next.
        self.next_entry_id = first_entry_id

    def fill(self, last_entry_id: int) -> deque[asyncio.Future[Entry]]:
        """Ask for entries up to ``last_entry_id`` as limit and rate allow; returns those on their way."""
        room, futures = self._room, self._futures
        while self.next_entry_id <= last_entry_id and len(futures) < self.limit and not self._is_cleared:
            if room.throttle is not None and not self._is_prepaid and not room.throttle.try_take():
                break
            self._is_prepaid = False
            futures.append(room.start(self.next_entry_id, self._operation))
            self.next_entry_id += 1
        return futures

    async def take(self, last_entry_id: int) -> Entry:
        """The next entry, not above ``last_entry_id``, having asked for others after it.

        Raises its error if it cannot be read, and :class:`~bkclient.errors.IllegalOperation` if the window is cleared. A caller
        that is cancelled loses nothing: the next call is for the same entry.
        """
        room, futures = self._room, self.fill(last_entry_id)
        if not futures and not self._is_cleared:
            assert room.throttle is not None, "nothing else keeps a request back"
            await room.throttle.acquire()
            self._is_prepaid = True
            self.fill(last_entry_id)
        if not futures:
            raise self._cleared()
        front = futures[0]
        if not front.done():
            await asyncio.wait((front,))  # not awaited itself: a caller that is cancelled would cancel it
        if front.cancelled():
            raise self._cleared()
        entry = front.result()
        futures.popleft()
        return entry

    def clear(self) -> None:
        """Forget what was not taken, and ask for nothing more; no further replica is asked either."""
        self._is_cleared = True
        for future in self._futures:
            future.cancel()
        self._futures.clear()

    def _cleared(self) -> IllegalOperation:
        return IllegalOperation(
            "another task ended this reading", ledger_id=self._room.codec.ledger_id, entry_id=self.next_entry_id
        )

    def skip(self) -> None:
        """Go on after the next entry, which :meth:`take` could not read."""
        self._futures.popleft()

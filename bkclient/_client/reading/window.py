"""Several consecutive entries being read at a time, and taken in order.

How many is configured, and limited by their size: entries may be as large as a frame, and a window of the largest would take
hundreds of megabytes. Sizes are known when entries arrive, so a window expects those to come to be as large as the largest
that came, or before any did as large as those of a closed ledger are on average; in an open one it begins with a few.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from bkclient._client.reading.entry_reads import EntryReads, ReadOperation
from bkclient.entry import Entry
from bkclient.errors import IllegalOperation

__all__ = ["ReadWindow"]


#: What the entries of one window are expected to take at most; one entry is always read.
_LIMIT_BYTES: Final = 16 * 1024 * 1024
#: How many entries are asked for as long as nothing is known of their size.
_BLIND_ENTRIES: Final = 8


class ReadWindow:
    """Reads from ``first_entry_id`` on, up to ``limit`` entries and about 16 MiB at a time.

    One reading task at a time may use it, and calls :meth:`clear` in the end. The permit for the first request is the
    operation's (R-2).
    """

    __slots__ = (
        "_affordable",
        "_futures",
        "_is_cleared",
        "_is_prepaid",
        "_largest_bytes",
        "_operation",
        "_reads",
        "limit",
        "next_entry_id",
    )

    def __init__(self, reads: EntryReads, operation: ReadOperation, first_entry_id: int, limit: int) -> None:
        self._reads = reads
        self._operation = operation
        self._futures: deque[asyncio.Future[Entry]] = deque()
        self._is_prepaid = True
        self._is_cleared = False
        #: The largest entry so far, negative before there was one; and how many such fit.
        self._largest_bytes = -1
        metadata = reads.view.metadata
        average = metadata.length // max(1, metadata.last_entry_id + 1)
        self._affordable = max(1, _LIMIT_BYTES // average) if average else _BLIND_ENTRIES
        self.limit = limit
        #: The entry to be asked for next.
        self.next_entry_id = first_entry_id

    def fill(self, last_entry_id: int) -> deque[asyncio.Future[Entry]]:
        """Ask for entries up to ``last_entry_id`` as limits and rate allow; returns those on their way."""
        reads, futures = self._reads, self._futures
        limit = min(self.limit, self._affordable)
        while self.next_entry_id <= last_entry_id and len(futures) < limit and not self._is_cleared:
            if reads.throttle is not None and not self._is_prepaid and not reads.throttle.try_take():
                break
            self._is_prepaid = False
            futures.append(reads.start(self.next_entry_id, self._operation))
            self.next_entry_id += 1
        return futures

    def on_taken(self, entry: Entry) -> Entry:
        """An entry arrived and is handed on: others may be as large."""
        size = len(entry.payload)
        if size > self._largest_bytes:
            self._largest_bytes = size
            self._affordable = max(1, _LIMIT_BYTES // max(1, size))
        return entry

    async def take(self, last_entry_id: int) -> Entry:
        """The next entry, not above ``last_entry_id``, having asked for others after it.

        Raises its error if it cannot be read, and :class:`~bkclient.errors.IllegalOperation` if the window is cleared. A caller
        that is cancelled loses nothing: the next call is for the same entry.
        """
        reads, futures = self._reads, self.fill(last_entry_id)
        if not futures and not self._is_cleared:
            assert reads.throttle is not None, "nothing else keeps a request back"
            await reads.throttle.acquire()
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
        return self.on_taken(entry)

    def clear(self) -> None:
        """Forget what was not taken, and ask for nothing more; no further replica is asked either."""
        self._is_cleared = True
        for future in self._futures:
            future.cancel()
        self._futures.clear()

    def _cleared(self) -> IllegalOperation:
        return IllegalOperation(
            "another task ended this reading", ledger_id=self._reads.codec.ledger_id, entry_id=self.next_entry_id
        )

    def skip(self) -> None:
        """Go on after the next entry, which :meth:`take` could not read."""
        self._futures.popleft()

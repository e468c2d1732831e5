"""Several consecutive entries being read at a time, and taken in order.

How many is configured, and limited by their size: entries may be as large as a frame, and a window of the largest would take
hundreds of megabytes. Sizes are known when entries arrive, so a window expects those to come to be as large as the largest
that came, or before any did as large as those of a closed ledger are on average; in an open one it begins with a few.

Entries are asked for many at a time: those to come once half of what the window holds was taken, in batches of half a window
where protocol and bookies have them, else in runs of single reads. Whatever a batch does not bring is read by runs or by the next
batch, so a window gives the same entries, and ends with the same errors, whichever way they are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from bkclient._client.defects import defect, ends_operation
from bkclient._client.reading.batch_call import BatchCall
from bkclient._client.reading.entry_reads import EntryReads, ReadOperation
from bkclient._client.reading.runs import RunCall
from bkclient._fresh import fresh
from bkclient.entry import Entry
from bkclient.errors import BookKeeperError, ClientClosed, IllegalOperation, UnexpectedCondition

__all__ = ["ReadWindow"]


#: What the entries of one window are expected to take at most; one entry is always read.
_LIMIT_BYTES: Final = 16 * 1024 * 1024
#: How many entries are asked for as long as nothing is known of their size.
_BLIND_ENTRIES: Final = 8


class ReadWindow:
    """Reads from ``first_entry_id`` on, up to ``limit`` entries and about 16 MiB at a time; in ``batches`` where there are any.

    One reading task at a time may use it, and calls :meth:`clear` in the end. The permit for the first request is the
    operation's (R-2).
    """

    __slots__ = (
        "_affordable",
        "_batches",
        "_front",
        "_has_batches",
        "_is_prepaid",
        "_largest_bytes",
        "_next",
        "_operation",
        "_outcomes",
        "_pieces",
        "_reads",
        "_waiter",
        "is_cleared",
        "limit",
    )

    def __init__(
        self, reads: EntryReads, operation: ReadOperation, first_entry_id: int, limit: int, *, batches: bool = False
    ) -> None:
        self._reads = reads
        self._operation = operation
        #: What became of entries that were not taken yet: found, or being read by a call of their own.
        self._outcomes: dict[int, Entry | asyncio.Future[Entry]] = {}
        #: What batches brought and was not taken yet, by the first entry of each.
        self._pieces: dict[int, list[Entry]] = {}
        #: Batches under way.
        self._batches: set[BatchCall] = set()
        self._has_batches = batches and reads.has_batches and not operation.parallel and not operation.fails_fast
        self._waiter: asyncio.Future[None] | None = None
        self._is_prepaid = True
        #: Whether nothing more is asked for, and nothing wanted.
        self.is_cleared = False
        #: The largest entry so far, negative before there was one; and how many such fit.
        self._largest_bytes = -1
        metadata = reads.view.metadata
        average = metadata.length // max(1, metadata.last_entry_id + 1)
        self._affordable = max(1, _LIMIT_BYTES // average) if average else _BLIND_ENTRIES
        self.limit = limit
        #: The entry to be taken next, and the one to be asked for next.
        self._front = self._next = first_entry_id

    @property
    def next_entry_id(self) -> int:
        """The entry to be taken next."""
        return self._front

    def fill(self, last_entry_id: int) -> int:
        """Ask for entries up to ``last_entry_id`` as limits and rate allow; returns how many are on their way or have come."""
        while not self.is_cleared and self._next <= last_entry_id:
            limit = min(self.limit, self._affordable)
            room, left = limit - (self._next - self._front), last_entry_id + 1 - self._next
            count = self._permitted(min(room, left))
            if count <= 0:
                break
            if self._has_batches:
                piece = self._piece(limit)
                if count < piece and count < left and self._next > self._front:
                    break  # it is part of the next batch
                count = min(count, piece)
            first = self._next
            self._next += count
            self._start(first, count)
        return self._next - self._front

    def _permitted(self, count: int) -> int:
        """How many requests of ``count`` the rate allows."""
        throttle = self._reads.throttle
        if throttle is None or count <= 0:
            return count
        permitted = int(self._is_prepaid)
        self._is_prepaid = False
        while permitted < count and throttle.try_take():
            permitted += 1
        return permitted

    def _piece(self, limit: int) -> int:
        """How many entries a batch has: about half a window, so that consecutive batches begin at consecutive replicas."""
        half = max(1, limit // 2)
        return half - (half - 1) % self._reads.view.metadata.ensemble_size

    def _start(self, first_entry_id: int, count: int) -> None:
        """Ask for these entries; those that cannot be asked for end with the reason."""
        while count > 0:
            here = self._reads.run_length(first_entry_id, count) if self._has_batches else count
            try:
                self._start_batch(first_entry_id, here)
            except BookKeeperError as error:
                self._fail(first_entry_id, here, error)
            first_entry_id += here
            count -= here

    def _start_batch(self, first_entry_id: int, count: int) -> None:
        """With one request, if there is a bookie to send it to; all of the entries have the same replicas then."""
        reads = self._reads
        usable = reads.batch_replicas(first_entry_id) if self._has_batches and count > 1 else ()
        if not usable:
            self._start_singly(first_entry_id, count)
            return
        reads.check_open()
        size, operation = reads.max_frame_size_bytes, self._operation
        batch = BatchCall(reads, usable, first_entry_id, count, size, self._on_batch, operation)
        self._batches.add(batch)
        batch.start()

    def _start_singly(self, first_entry_id: int, count: int) -> None:
        reads, operation = self._reads, self._operation
        if operation.parallel or operation.fails_fast:
            for entry_id in range(first_entry_id, first_entry_id + count):
                self.put(entry_id, reads.start(entry_id, operation))
        else:
            reads.check_open()
            RunCall(reads, operation, self, first_entry_id, count).ask()

    @ends_operation
    def _on_batch(self, batch: BatchCall) -> None:
        """A batch has ended. What it did not bring is asked for again: after an error by single reads, whose outcome counts."""
        self._batches.discard(batch)
        if self.is_cleared:
            return
        if batch.entries:
            self._put_piece(batch.entries)
        first, count = batch.entry_id + len(batch.entries), batch.count - len(batch.entries)
        if batch.error is None:
            self._start(first, count)
        elif isinstance(batch.error, ClientClosed | UnexpectedCondition):
            self._fail(first, count, batch.error)
        else:
            try:
                self._start_singly(first, count)
            except BookKeeperError as error:
                self._fail(first, count, error)

    def _fail(self, first_entry_id: int, count: int, error: BookKeeperError) -> None:
        for entry_id in range(first_entry_id, first_entry_id + count):
            if entry_id in self._outcomes:
                continue
            failed: asyncio.Future[Entry] = self._reads.loop.create_future()
            failed.set_exception(fresh(error, entry_id=entry_id))
            failed.exception()  # raised where the entry is taken; nobody else needs a report
            self.put(entry_id, failed)

    def put(self, entry_id: int, outcome: asyncio.Future[Entry]) -> None:
        """See :class:`~bkclient._client.reading.runs.Outcomes`."""
        if self.is_cleared or entry_id < self._front:
            return
        self._outcomes[entry_id] = outcome
        if entry_id == self._front:
            self._wake()

    def put_entries(self, entries: Sequence[Entry]) -> None:
        """See :class:`~bkclient._client.reading.runs.Outcomes`."""
        if self.is_cleared:
            return
        front = self._front
        self._outcomes.update([(entry.entry_id, entry) for entry in entries if entry.entry_id >= front])
        if front in self._outcomes:
            self._wake()

    def _put_piece(self, entries: Sequence[Entry]) -> None:
        """As :meth:`put_entries`, for entries that follow each other; they are kept, and handed on, together."""
        first = entries[0].entry_id
        if first < self._front:
            self.put_entries(entries)
            return
        self._pieces[first] = list(entries)
        if first == self._front:
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self, last_entry_id: int) -> Entry:
        """The next entry, not above ``last_entry_id``, having asked for others after it.

        Raises its error if it cannot be read, and :class:`~bkclient.errors.IllegalOperation` if the window is cleared. A caller
        that is cancelled loses nothing: the next call is for the same entry.
        """
        await self._known(last_entry_id)
        piece = self._pieces.pop(self._front, None)
        if piece is not None:
            self._keep(piece)
        outcome = self._outcomes[self._front]
        if not isinstance(outcome, Entry):
            if not outcome.done():
                await asyncio.wait((outcome,))  # not awaited itself: a caller that is cancelled would cancel it
            if outcome.cancelled():
                raise self._cleared()
            outcome = outcome.result()
        self.skip()
        self._note_size(len(outcome.payload))
        return outcome

    async def take_several(self, last_entry_id: int) -> list[Entry]:
        """As :meth:`take`, with those after it that have come as well, half a window at most.

        A caller that is cancelled loses nothing if it was waiting.
        """
        await self._known(last_entry_id)
        outcomes = self._outcomes
        entries = self._pieces.pop(self._front, [])
        if not entries:
            for entry_id in range(self._front, self._front + max(1, self.limit // 2)):
                outcome = outcomes.get(entry_id)
                if not isinstance(outcome, Entry):
                    break
                del outcomes[entry_id]
                entries.append(outcome)
        if not entries:
            return [await self.take(last_entry_id)]
        self._front += len(entries)
        self._note_size(max([len(entry.payload) for entry in entries]))
        return entries

    def _keep(self, piece: list[Entry]) -> None:
        """Keep each entry by itself."""
        self._outcomes.update([(entry.entry_id, entry) for entry in piece])

    async def _known(self, last_entry_id: int) -> None:
        """Return once it is known what became of the next entry, having asked for others."""
        if 2 * (self._next - self._front) <= min(self.limit, self._affordable):
            self.fill(last_entry_id)
        if self._next == self._front and not self.is_cleared:
            assert self._reads.throttle is not None, "nothing else keeps a request back"
            await self._reads.throttle.acquire()
            self._is_prepaid = True
            self.fill(last_entry_id)
        while not self.is_cleared and self._next > self._front:
            if self._front in self._pieces or self._front in self._outcomes:
                return
            self._waiter = self._reads.loop.create_future()
            await self._waiter
        raise self._cleared()

    def _note_size(self, size: int) -> None:
        """An entry of ``size`` bytes is handed on: others may be as large."""
        if size > self._largest_bytes:
            self._largest_bytes = size
            self._affordable = max(1, _LIMIT_BYTES // max(1, size))

    def skip(self) -> None:
        """Go on after the next entry, which :meth:`take` could not read."""
        self._outcomes.pop(self._front, None)
        self._front += 1

    def clear(self) -> None:
        """Forget what was not taken, and ask for nothing more; no further replica is asked either."""
        self.is_cleared = True
        for outcome in self._outcomes.values():
            if not isinstance(outcome, Entry) and not outcome.cancel() and not outcome.cancelled():
                outcome.exception()  # of an entry that nobody wants
        self._outcomes.clear()
        self._pieces.clear()
        for batch in self._batches:
            batch.abandon()
        self._batches.clear()
        self._wake()

    def _cleared(self) -> IllegalOperation:
        return IllegalOperation(
            "another task ended this reading", ledger_id=self._reads.codec.ledger_id, entry_id=self._front
        )

    def on_defect(self, error: Exception) -> None:
        """A handler raised; see :func:`~bkclient._client.defects.ends_operation`."""
        failure = defect(error, "a read", ledger_id=self._reads.codec.ledger_id, entry_id=self._front)
        for piece in self._pieces.values():
            self._keep(piece)
        self._pieces.clear()
        for entry_id in range(self._front, self._next):
            if entry_id not in self._outcomes:
                self._fail(entry_id, 1, failure)

"""Following a ledger that is being written, entry by entry, until it is closed."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from bkclient._client.reading.entry_reads import EntryReads
from bkclient._client.reading.followed import FollowedLedger
from bkclient._client.reading.lac import ToldLac, start_lac_read
from bkclient._client.reading.polls import Poll, Polls, note_outcome
from bkclient._client.reading.window import ReadWindow
from bkclient.entry import Entry, LastConfirmedAndEntry
from bkclient.errors import BookKeeperError, IllegalOperation, NoSuchLedger, UnexpectedCondition
from bkclient.protocol.quorum import EXPLICIT_NEGATIVES
from bkclient.protocol.tail import TailRead, TailStep

__all__ = ["LedgerTail"]


class LedgerTail:
    """The entries of a ledger, each once and in order, as they are confirmed; from :meth:`bkclient.LedgerReader.tail`.

    ::

        async for entry in reader.tail():
            ...

    ends when the ledger is closed and read to its end. The last entry before a pause of the writer comes 0.1 to 0.2 seconds
    late, or what that writer's ``writing.explicit_lac_interval_s`` says; from a writer without explicit LACs, as BookKeeper's
    own client is by default, it comes with the next entry or at the close.

    A call of ``anext`` that is cancelled, by a timeout for example, loses nothing: the next call goes on where it was. One task
    at a time may use it. Leaving ``async with reader.tail() as tail:`` or :meth:`aclose`, which any task may call, ends what it
    has under way: a waiter for the next entry is told that there is none.
    """

    __module__ = "bkclient"

    def __init__(
        self, ledger: FollowedLedger, reads: EntryReads, polls: Polls, first_entry_id: int, patience_s: float
    ) -> None:
        self._ledger = ledger
        self._reads = reads
        self._polls = polls
        self._plan = TailRead(first_entry_id, patience_s)
        self._window: ReadWindow | None = None
        #: Entries that were read and not delivered yet, the next one last.
        self._ready: list[Entry] = []
        self._poll: Poll | None = None
        self._poll_began = self._poll_s = 0.0
        self._lac_read: asyncio.Future[ToldLac] | None = None
        self._is_running = False
        self._closed: asyncio.Future[None] = self._reads.loop.create_future()

    def __repr__(self) -> str:
        state = "ended" if self._closed.done() else self._reads.view.metadata.state.name.lower()
        return (
            f"<LedgerTail ledger_id={self._reads.codec.ledger_id} {state} next_entry_id={self._plan.next_entry_id} "
            f"last_add_confirmed={self._reads.view.last_add_confirmed}>"
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry:
        if self._is_running:
            raise IllegalOperation("another task waits for the next entry", ledger_id=self._reads.codec.ledger_id)
        self._is_running = True
        try:
            entry = await self._next()
        finally:
            self._is_running = False
        if entry is None:
            self._drop()
            raise StopAsyncIteration
        return entry

    async def _next(self) -> Entry | None:
        plan, view = self._plan, self._reads.view
        while not self._closed.done():
            step = plan.step(view.last_add_confirmed, is_closed=view.metadata.is_closed)
            if step is TailStep.END:
                return None
            if step is TailStep.LOST:
                raise self._lost()
            if self._ready and step is TailStep.READ:
                plan.on_entry()
                return self._ready.pop()
            try:
                entry = await (self._read() if step is TailStep.READ else self._wait())
            except BookKeeperError as error:
                self._drop()
                if self._closed.done():
                    return None
                pause_s = self._pause_after(error, step)
                if pause_s is None:
                    raise
                await self._pause(pause_s)
            else:
                if entry is not None:
                    plan.on_entry()
                    return entry
        return None

    def _pause_after(self, error: BookKeeperError, step: TailStep) -> float | None:
        if self._ledger.is_deleted or not (error.retriable or error.code in EXPLICIT_NEGATIVES):
            return None
        if step is TailStep.WAIT and error.code in EXPLICIT_NEGATIVES:
            return self._plan.on_nothing()  # bookies do not know a ledger without entries
        pause_s = self._plan.on_failed(self._reads.loop.time())
        return None if pause_s is None else pause_s * self._reads.core.rng.uniform(0.5, 1.0)

    def _lost(self) -> UnexpectedCondition:
        last_entry_id = self._reads.view.last_add_confirmed
        return UnexpectedCondition(
            f"the ledger was closed at entry {last_entry_id}, although entries beyond it were confirmed and delivered",
            ledger_id=self._reads.codec.ledger_id,
            entry_id=self._plan.next_entry_id - 1,
        )

    async def _read(self) -> Entry | None:
        """The next entry, which is confirmed; None if the tail was closed meanwhile."""
        reads, next_entry_id = self._reads, self._plan.next_entry_id
        if self._window is None:
            operation = await reads.begin(next_entry_id)
            if self._closed.done():
                return None
            self._window = ReadWindow(reads, operation, next_entry_id, reads.read_ahead_entries, batches=True)
        self._ready = (await self._window.take_several(reads.view.last_add_confirmed))[::-1]
        return self._ready.pop()

    async def _wait(self) -> Entry | None:
        """Wait for the next entry to be confirmed; it may come along."""
        reads, ledger, plan = self._reads, self._ledger, self._plan
        # A bookie forgets a poll for an entry further on when it hears of one before it.
        entry_id = reads.view.last_add_confirmed + 1
        self._ready = []
        if self._window is not None:
            self._window.clear()
            self._window = None
        if ledger.is_deleted:
            raise NoSuchLedger("it was deleted while it was followed", ledger_id=reads.codec.ledger_id)
        if not ledger.is_following:
            raise IllegalOperation(
                "the reader is closed, so the end cannot be learned", ledger_id=reads.codec.ledger_id
            )
        if reads.protocol_version == 2:
            await self._look()
            return None
        if self._poll is not None and self._poll.entry_id != entry_id:
            self._drop()  # begun before others learned more
        if self._poll is None:
            # In a striped ledger the entry and the news that it is confirmed come to different bookies.
            is_told = ledger.told_by in reads.view.metadata.last_fragment.ensemble
            self._poll_s = plan.poll_s(entry_id - 1, is_told=is_told)
            self._poll = self._polls.start(entry_id, self._poll_s, parallel=reads.is_striped)
            self._poll_began = reads.loop.time()
        poll = self._poll
        while not poll.future.done():
            # Not awaited itself: a cancelled caller comes back to the same poll.
            await asyncio.wait((poll.future, ledger.changed()), return_when=asyncio.FIRST_COMPLETED)
            if not poll.future.done() and self._is_over():
                self._drop()  # bookies would not tell for as long as the poll lasts
        if poll.future.cancelled():
            return None
        self._poll = None
        self._polls.end(poll)
        result: LastConfirmedAndEntry = poll.future.result()
        plan.on_answer()
        if result.last_add_confirmed < entry_id:
            if reads.loop.time() - self._poll_began < self._poll_s / 2:
                await self._pause(plan.on_nothing())  # bookies that do not wait are not asked without a pause
            else:
                plan.on_no_news()
        return result.entry if entry_id == plan.next_entry_id else None

    def _is_over(self) -> bool:
        """Whether nothing will be learned of the ledger any more."""
        return self._ledger.is_deleted or not self._ledger.is_following

    async def _look(self) -> None:
        """Ask for the LAC, and pause if there is nothing new: there are no long polls."""
        view = self._reads.view
        if self._lac_read is None:
            self._lac_read = start_lac_read(self._reads.core, view.metadata, self._reads.codec)
            self._lac_read.add_done_callback(note_outcome)
        reading = self._lac_read
        await asyncio.wait((reading,))
        if reading.cancelled():
            return
        self._lac_read = None
        view.on_last_add_confirmed(*reading.result())
        self._plan.on_answer()
        if view.last_add_confirmed < self._plan.next_entry_id:
            await self._pause(self._plan.on_nothing())

    async def _pause(self, pause_s: float) -> None:
        # Not awaited itself: other tails of the reader may wait for the same change.
        await asyncio.wait((self._ledger.changed(), self._closed), timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)

    def _drop(self) -> None:
        self._ready = []
        if self._window is not None:
            self._window.clear()
            self._window = None
        if self._poll is not None:
            self._polls.end(self._poll)
            self._poll = None
        if self._lac_read is not None:
            self._lac_read.cancel()
            self._lac_read = None

    async def aclose(self) -> None:
        """End what is under way; a task that waits for the next entry gets StopAsyncIteration. Idempotent."""
        self._drop()
        if not self._closed.done():
            self._closed.set_result(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        """A caller that just stops iterating leaves reads behind."""
        if not self._reads.loop.is_closed():
            self._drop()

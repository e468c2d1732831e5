"""Waiting for entries of a ledger that is still being written.

A :class:`Poll` is one :class:`~bkclient.protocol.long_poll.LongPollRead`, its requests and its clock. It follows the ledger
while it waits: when the metadata says that the ledger was closed, it ends with the end; when it names another ensemble, the
poll goes on there. The caller may go away; the answers of the bookies are dropped then.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from bkclient._backoff import Backoff
from bkclient._client.defects import defect, ends_operation
from bkclient._client.exchange import answers
from bkclient._client.reading.entry_reads import EntryReads
from bkclient._client.reading.lac import least_lac
from bkclient._client.reading.late import LateTimer
from bkclient.entry import Entry, LastConfirmedAndEntry
from bkclient.errors import BookKeeperError, Code, DigestMismatch, error_for
from bkclient.ledger import BookieId
from bkclient.observability.stats import READ_LAC_AND_ENTRY
from bkclient.protocol.long_poll import LongPollRead, PollOutcome
from bkclient.protocol.quorum import EXPLICIT_NEGATIVES, QuorumSizes
from bkclient.wire.messages import LAST_ENTRY, LongPoll, ReadRequest, ReadResponse, Request, Response

__all__ = ["Poll", "note_outcome"]


class Polls:
    """The polls that one handle has under way."""

    def __init__(self, reads: EntryReads) -> None:
        self._reads = reads
        self._polls: dict[Poll, None] = {}

    def __len__(self) -> int:
        return len(self._polls)

    def start(self, entry_id: int, timeout_s: float, *, parallel: bool) -> Poll:
        """Wait at the bookies; the poll is to be ended by :meth:`end` whatever comes of it."""
        self._reads.check_open()
        poll = Poll(self._reads, entry_id, timeout_s, parallel=parallel)
        self._polls[poll] = None
        return poll

    def end(self, poll: Poll) -> None:
        """Wait no more."""
        self._polls.pop(poll, None)
        poll.abandon()

    def on_metadata(self) -> None:
        """The ledger's metadata changed: polls follow."""
        for poll in list(self._polls):
            poll.on_metadata()


class Poll:
    """Waits up to ``timeout_s`` for entry ``entry_id``, which is above the LAC, to be confirmed.

    ``future`` fails with the most telling error if no bookie answers. What bookies tell of the LAC goes to the view, also
    after the end. Call :meth:`on_metadata` when the metadata changed, and :meth:`abandon` in the end.
    """

    def __init__(self, reads: EntryReads, entry_id: int, timeout_s: float, *, parallel: bool) -> None:
        self.reads: Final = reads
        self.entry_id: Final = entry_id
        self.deadline: Final = reads.loop.time() + timeout_s
        self.is_parallel: Final = parallel
        #: With the ensemble that is asked now.
        self._round: _Round | None = None
        self._began = 0.0 if reads.stats is None else reads.stats.now()
        self.future: asyncio.Future[LastConfirmedAndEntry] = reads.loop.create_future()
        self.future.add_done_callback(note_outcome)  # the waiter may have gone
        self._begin()

    @ends_operation
    def on_metadata(self) -> None:
        """The ledger's metadata changed."""
        if self.future.done():
            return
        metadata = self.reads.view.metadata
        if metadata.is_closed or least_lac(metadata) >= self.entry_id:
            self._finish(None)
        elif self._round is None or metadata.last_fragment.ensemble != self._round.ensemble:
            try:
                self._begin()
            except BookKeeperError as error:  # a placement policy that cannot order them
                self._end(error.code)
                self.future.set_exception(error)

    def on_defect(self, error: Exception) -> None:
        """A handler raised; see :func:`~bkclient._client.defects.ends_operation`."""
        failure = defect(error, "a long poll", ledger_id=self.reads.codec.ledger_id, entry_id=self.entry_id)
        self._stop_timer()
        if not self.future.done():
            self.future.set_exception(failure)

    def abandon(self) -> None:
        """There is no waiter any more."""
        self.future.cancel()
        self._stop_timer()

    def _begin(self) -> None:
        following = _Round(self)
        self._stop_timer()
        self._round = following
        following.begin()

    def on_outcome(self, poll_round: _Round, outcome: PollOutcome, entry: Entry | None) -> None:
        """What came of an answer to ``poll_round``; does nothing after the end, or if the poll has gone on to other bookies."""
        if self.future.done() or poll_round is not self._round:
            return
        if outcome is PollOutcome.WAITING:
            poll_round.ask()
        elif outcome is PollOutcome.ENDED:
            self._finish(entry)
        else:
            self._fail(poll_round.machine)

    def _finish(self, entry: Entry | None) -> None:
        self._end(Code.OK)
        lac = self.reads.view.last_add_confirmed
        if entry is not None and entry.entry_id > lac:
            entry = None  # the owner of the view knows better than a bookie what is confirmed: it is the writer, say
        self.future.set_result(LastConfirmedAndEntry(lac, entry))

    def _fail(self, machine: LongPollRead) -> None:
        self._end(machine.code)
        self.future.set_exception(
            error_for(
                machine.code,
                "no bookie answered the long poll",
                ledger_id=self.reads.codec.ledger_id,
                entry_id=self.entry_id,
                bookie_id=machine.code_from,
            )
        )

    def _end(self, code: int) -> None:
        self._stop_timer()
        stats = self.reads.stats
        if stats is not None:
            stats.operation(READ_LAC_AND_ENTRY, stats.now() - self._began, code)

    def _stop_timer(self) -> None:
        if self._round is not None:
            self._round.late.stop()


class _Round:
    """A poll at the bookies of one ensemble: from where the entry is stored first, around (DS-3, R-41).

    A bookie of the write set that has told the LAC comes before all others, because Apache BookKeeper's bookies lose polls: one
    that waits for an entry behind a LAC that the bookie has not heard of yet is taken from the list of waiters when it hears of
    it, and not answered before its time is over.
    """

    def __init__(self, poll: Poll) -> None:
        self._poll: Final = poll
        self._reads: Final = poll.reads
        reads, entry_id = poll.reads, poll.entry_id
        settings, metadata = reads.core.config.reading, reads.view.metadata
        self.ensemble: Final = metadata.last_fragment.ensemble
        ensemble, first = self.ensemble, entry_id % len(self.ensemble)
        sizes = QuorumSizes.of(metadata)
        # RO-1: the write set is reordered; who else may have heard comes after it.
        self._storing: Final = reads.reordered(tuple(ensemble[p] for p in sizes.write_set(entry_id)), entry_id)
        told_by = reads.view.told_by
        if told_by in self._storing and entry_id == reads.view.last_add_confirmed + 1:
            # H-47: one that has yet to hear of the LAC that the poll names may forget the poll when it does
            first_asked: tuple[BookieId, ...] = (told_by,)
        else:
            first_asked = ()
        self.machine: Final = LongPollRead(
            sizes,
            entry_id,
            (*first_asked, *self._storing, *ensemble[first:], *ensemble[:first]),
            last_add_confirmed=reads.view.last_add_confirmed,
            parallel=poll.is_parallel,
        )
        delays = Backoff(
            settings.speculative_lac_first_s,
            settings.speculative_lac_max_s,
            settings.speculative_lac_backoff,
        )
        self.late: Final = LateTimer(self, delays, reads.loop, reads.stats)

    def begin(self) -> None:
        """Ask the first bookie, or all of them."""
        if not self._poll.is_parallel:
            self.late.start()
        self.ask()

    def ask(self) -> None:
        """Ask those whose turn it is."""
        reads, poll = self._reads, self._poll
        bookies = self.machine.to_ask()
        if not bookies:
            return
        reads.take_permits(len(bookies))
        # A bookie that is asked later has less time left: the wait is that of the whole poll.
        left_ms = max(0, round((poll.deadline - reads.loop.time()) * 1000))
        request = ReadRequest(
            reads.codec.ledger_id, LAST_ENTRY, long_poll=LongPoll(poll.entry_id - 1, left_ms, piggyback=True)
        )
        for bookie_id in bookies:
            reads.submit(bookie_id, request, self._on_reply)

    def ask_another(self) -> bool:
        """See :class:`~bkclient._client.reading.late.LateTimer`."""
        if not self.machine.on_late():
            return False
        self.ask()
        return True

    def note_failure(self, bookie_id: BookieId, code: int) -> None:
        """See :class:`~bkclient._client.exchange.Requester`."""
        # To be asked for what one does not store, or for a ledger without entries yet, is no failure (RO-7).
        if code in EXPLICIT_NEGATIVES and bookie_id not in self._storing:
            self._reads.core.watcher.on_request_failed(bookie_id, code)
        else:
            self._reads.on_request_failed(bookie_id, self._poll.entry_id, code)

    def on_defect(self, error: Exception) -> None:
        """See :class:`~bkclient._client.exchange.Requester`."""
        self._poll.on_defect(error)

    def _decode(self, _request: Request, response: Response | None) -> tuple[int, Entry | None]:
        assert isinstance(response, ReadResponse), "a long poll is answered by a read response"
        ledger_id = self._reads.codec.ledger_id
        # An answer without an entry has no digest either; that it is about this ledger is all that can be told.
        if response.ledger_id != ledger_id:
            raise DigestMismatch(f"the bookie told of ledger {response.ledger_id}", ledger_id=ledger_id)
        lac = -1 if response.max_lac is None else response.max_lac
        entry: Entry | None = None
        if response.body is not None:
            entry = self._reads.codec.decode(response.body, self._poll.entry_id)
        return lac, entry

    @answers(_decode)
    def _on_reply(
        self, bookie_id: BookieId, _request: Request, code: int, news: tuple[int, Entry | None] | None
    ) -> None:
        lac, entry = (-1, None) if news is None else news
        if news is not None:
            view = self._reads.view
            if entry is not None:
                view.on_entries_read((entry,), (lac,), bookie_id)
            view.on_last_add_confirmed(lac, bookie_id)
        machine = self.machine
        outcome = machine.on_reply(bookie_id, code, lac, has_entry=entry is not None)
        self._poll.on_outcome(self, outcome, entry if machine.found_by is not None else None)


def note_outcome(future: asyncio.Future[Any]) -> None:
    """A done callback for futures whose waiter may be gone: an error that is never collected is not reported."""
    if not future.cancelled():
        future.exception()

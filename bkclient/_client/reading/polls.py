"""Waiting for entries of a ledger that is still being written.

A :class:`Poll` is one :class:`~bkclient.protocol.long_poll.LongPollRead`, its requests and its clock. It follows the ledger
while it waits: when the metadata says that the ledger was closed, it ends with the end; when it names another ensemble, the
poll goes on there. Whoever waits may go away; the bookies asked then answer nobody.
"""

from __future__ import annotations

import asyncio
from typing import Any

from bkclient._backoff import Backoff
from bkclient._client.defects import defect, ends_operation
from bkclient._client.reading.entry_reads import EntryReads
from bkclient._client.reading.lac import least_lac
from bkclient.entry import Entry, LastConfirmedAndEntry
from bkclient.errors import BookKeeperError, Code, DigestMismatch, error_for
from bkclient.ledger import BookieId, Ensemble
from bkclient.observability.stats import READ_LAC_AND_ENTRY, SPECULATIVE_READS
from bkclient.protocol.long_poll import LongPollRead, PollOutcome
from bkclient.protocol.quorum import EXPLICIT_NEGATIVES, QuorumSizes
from bkclient.wire.messages import LAST_ENTRY, LongPoll, ReadRequest, ReadResponse, Request, Response

__all__ = ["Poll", "note_outcome"]


class Polls:
    """The polls that one handle has under way."""

    def __init__(self, room: EntryReads) -> None:
        self._room = room
        self._polls: dict[Poll, None] = {}

    def __len__(self) -> int:
        return len(self._polls)

    def start(self, entry_id: int, timeout_s: float, *, parallel: bool) -> Poll:
        """Wait at the bookies; the poll is to be ended by :meth:`end` whatever comes of it."""
        self._room.check_open()
        poll = Poll(self._room, entry_id, timeout_s, parallel=parallel)
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

    ``future`` fails with the most telling error if nobody answers. What bookies tell of the LAC goes to the view, also
    after the end. Call :meth:`on_metadata` when the metadata changed, and :meth:`abandon` in the end.
    """

    def __init__(self, room: EntryReads, entry_id: int, timeout_s: float, *, parallel: bool) -> None:
        config = room.core.config
        self._room = room
        self._entry_id = entry_id
        self._deadline = room.loop.time() + timeout_s
        self._is_parallel = parallel
        self._speculation = Backoff(
            config.speculative_lac_read_first_s,
            config.speculative_lac_read_max_s,
            config.speculative_lac_read_backoff,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._ensemble: Ensemble = ()
        self._storing: tuple[BookieId, ...] = ()
        self._machine: LongPollRead | None = None
        self._began = 0.0 if room.stats is None else room.stats.now()
        self.future: asyncio.Future[LastConfirmedAndEntry] = room.loop.create_future()
        self.future.add_done_callback(note_outcome)  # whoever waited may have gone
        self._begin()

    @ends_operation
    def on_metadata(self) -> None:
        """The ledger's metadata changed."""
        if self.future.done():
            return
        metadata = self._room.view.metadata
        if metadata.is_closed or least_lac(metadata) >= self._entry_id:
            self._finish(None)
        elif metadata.last_fragment.ensemble != self._ensemble:
            try:
                self._begin()
            except BookKeeperError as error:  # a placement policy that cannot order them
                self._end(error.code)
                self.future.set_exception(error)

    def on_defect(self, error: Exception) -> None:
        """A handler raised; see :func:`~bkclient._client.defects.ends_operation`."""
        failure = defect(error, "a long poll", ledger_id=self._room.codec.ledger_id, entry_id=self._entry_id)
        self._stop_timer()
        if not self.future.done():
            self.future.set_exception(failure)

    def abandon(self) -> None:
        """Nobody waits any more."""
        self.future.cancel()
        self._stop_timer()

    def _begin(self) -> None:
        """Ask the last ensemble, from where the entry is stored first, around (DS-3, R-41)."""
        room, entry_id = self._room, self._entry_id
        metadata = room.view.metadata
        self._ensemble = ensemble = metadata.last_fragment.ensemble
        first = entry_id % len(ensemble)
        sizes = QuorumSizes.of(metadata)
        # RO-1: the write set is reordered; who else may have heard comes after it.
        self._storing = storing = room.reordered(
            tuple(ensemble[position] for position in sizes.write_set(entry_id)), entry_id
        )
        others = (*ensemble[first:], *ensemble[:first])
        self._machine = LongPollRead(
            sizes,
            entry_id,
            (*storing, *others),
            last_add_confirmed=room.view.last_add_confirmed,
            parallel=self._is_parallel,
        )
        self._stop_timer()
        if self._speculation.first_s > 0 and not self._is_parallel:
            delay_s = self._speculation.first_s
            self._timer = room.loop.call_later(delay_s, self._on_late, self._machine, delay_s)
        self._ask(self._machine)

    def _ask(self, machine: LongPollRead) -> None:
        room = self._room
        bookies = machine.to_ask()
        if not bookies:
            return
        if room.throttle is not None:
            room.throttle.take(len(bookies))
        # Whoever is asked later has less time left: the wait is that of the whole poll.
        left_ms = max(0, round((self._deadline - room.loop.time()) * 1000))
        request = ReadRequest(
            room.codec.ledger_id, LAST_ENTRY, long_poll=LongPoll(self._entry_id - 1, left_ms, piggyback=True)
        )

        def on_reply(bookie_id: str, _request: Request, code: int, response: Response | None) -> None:
            self._on_reply(machine, bookie_id, code, response)

        for bookie_id in bookies:
            room.submit(bookie_id, request, on_reply)

    @ends_operation
    def _on_late(self, machine: LongPollRead, delay_s: float) -> None:
        self._timer = None
        if not machine.on_late():
            return
        room = self._room
        if room.stats is not None:
            room.stats.event(SPECULATIVE_READS)
        self._ask(machine)
        delay_s = self._speculation.after(delay_s)
        self._timer = room.loop.call_later(delay_s, self._on_late, machine, delay_s)

    @ends_operation
    def _on_reply(self, machine: LongPollRead, bookie_id: str, code: int, response: Response | None) -> None:
        room = self._room
        lac, entry = -1, None
        if code == Code.OK:
            assert isinstance(response, ReadResponse), "a long poll is answered by a read response"
            lac = -1 if response.max_lac is None else response.max_lac
            try:
                self._check_ledger(response)
                entry = self._entry_in(response, lac)
            except DigestMismatch:
                code = Code.DIGEST_MATCH
            else:
                room.view.on_last_add_confirmed(lac)
        if code != Code.OK:
            self._on_error(bookie_id, code)
        outcome = machine.on_reply(bookie_id, code, lac, has_entry=entry is not None)
        if self.future.done() or machine is not self._machine:
            return
        if outcome is PollOutcome.WAITING:
            self._ask(machine)
        elif outcome is PollOutcome.ENDED:
            self._finish(entry if machine.found_by is not None else None)
        else:
            self._fail(machine)

    def _on_error(self, bookie_id: str, code: int) -> None:
        # To be asked for what one does not store, or for a ledger nobody has written to yet, is no failure (RO-7).
        if code in EXPLICIT_NEGATIVES and bookie_id not in self._storing:
            self._room.core.watcher.on_request_failed(bookie_id, code)
        else:
            self._room.on_request_failed(bookie_id, self._entry_id, code)

    def _check_ledger(self, response: ReadResponse) -> None:
        """An answer without an entry has no digest either; that it is about this ledger is all that can be told."""
        ledger_id = self._room.codec.ledger_id
        if response.ledger_id != ledger_id:
            raise DigestMismatch(f"the bookie told of ledger {response.ledger_id}", ledger_id=ledger_id)

    def _entry_in(self, response: ReadResponse, lac: int) -> Entry | None:
        if response.body is None:
            return None
        decoded = self._room.codec.decode(response.body, self._entry_id)
        self._room.view.on_entry_read(decoded.entry_id, decoded.length, lac)
        return Entry.of(decoded)

    def _finish(self, entry: Entry | None) -> None:
        self._end(Code.OK)
        lac = self._room.view.last_add_confirmed
        if entry is not None and entry.entry_id > lac:
            entry = None  # the owner of the view knows better than a bookie what is confirmed: it is the writer, say
        self.future.set_result(LastConfirmedAndEntry(lac, entry))

    def _fail(self, machine: LongPollRead) -> None:
        self._end(machine.code)
        self.future.set_exception(
            error_for(
                machine.code,
                "no bookie answered the long poll",
                ledger_id=self._room.codec.ledger_id,
                entry_id=self._entry_id,
                bookie_id=machine.code_from,
            )
        )

    def _end(self, code: int) -> None:
        self._stop_timer()
        stats = self._room.stats
        if stats is not None:
            stats.operation(READ_LAC_AND_ENTRY, stats.now() - self._began, code)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def note_outcome(future: asyncio.Future[Any]) -> None:
    """A done callback for futures whose waiter may be gone: an error that nobody collects is no complaint."""
    if not future.cancelled():
        future.exception()

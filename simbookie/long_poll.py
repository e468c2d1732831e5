"""Long polls: reads that wait until a bookie's LAC passes the one they name.

A poll waits until the known LAC is higher, the ledger is fenced or deleted, or its time is up, and is then answered from
what is there; its time being up is no error. With *piggyback* the answer carries the entry after the LAC named, where this
bookie has it; otherwise the poll ends in an ordinary read. A poll without a timeout does not wait.

Polls are bounded: by source, in all, and in time. When there are as many as there may be, the source with most of them gives
way to one that holds less: its oldest poll is answered at once, as if its time were up. When their source goes, so do its polls.
Many polls of one ledger are answered over several turns of the loop.

A poll that an update not above its LAC reaches goes on waiting. BookKeeper's own bookie drops its waiters at every update,
those too that the update has nothing to tell: such a poll is answered when its time is up. ``long_polls_wait_on=False``
imitates that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from bkclient.wire.messages import LAST_ENTRY, LongPoll, ReadRequest, ReadResponse, Status
from simbookie.config import BookieConfig
from simbookie.ledgers import LedgerHandle, LedgerTable
from simbookie.reads import Respond, status_of_read
from simbookie.shares import Shares
from simbookie.storage.base import LedgerStorage, StorageError

__all__ = ["LongPollDesk"]

#: Polls that one event answers in one turn of the loop.
_WAKES_PER_TURN: Final = 256


class _Poll:
    """One long poll; ``updated_at_ms`` is set when a higher LAC woke it."""

    __slots__ = ("handle", "poll", "request", "respond", "source", "timer", "updated_at_ms")

    def __init__(
        self, request: ReadRequest, poll: LongPoll, respond: Respond, handle: LedgerHandle, source: str
    ) -> None:
        self.request = request
        self.poll = poll
        self.respond = respond
        self.handle = handle
        self.source = source
        self.timer: asyncio.TimerHandle | None = None
        self.updated_at_ms: int | None = None


class LongPollDesk:
    """Answers the long polls of one run of a bookie. ``wall_clock_ms`` gives the update time that answers carry."""

    def __init__(
        self,
        table: LedgerTable,
        storage: LedgerStorage,
        config: BookieConfig,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._table = table
        self._storage = storage
        self._config = config
        self._wall_clock_ms = wall_clock_ms
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[_Poll, None] = {}
        self._of_source: dict[str, dict[_Poll, None]] = {}
        self._shares = Shares()
        #: Polls to answer in later turns, because there were too many for one.
        self._due: deque[_Poll] = deque()

    @property
    def waiting(self) -> int:
        """How many polls wait."""
        return len(self._waiting)

    def read(self, request: ReadRequest, poll: LongPoll, respond: Respond, source: str) -> None:
        """Answer at once if there is something to tell, else when there is or when the time is up."""
        handle = self._table.find(request.ledger_id)
        status = self._refusal(request, poll, handle)
        if status is not None:
            respond(ReadResponse(status, request.ledger_id, request.entry_id))
            return
        assert handle is not None
        waiting = _Poll(request, poll, respond, handle, source)
        if poll.timeout_ms is None or handle.lac > poll.previous_lac:
            self._answer(waiting)
        elif not self._make_room(source):
            if self._table.is_alive:
                respond(ReadResponse(Status.TOO_MANY_REQUESTS, request.ledger_id, request.entry_id))
        else:
            wait_s = min(max(0, poll.timeout_ms) / 1000, self._config.long_poll_wait_max_s)
            waiting.timer = self._loop.call_later(wait_s, self._finish, waiting)
            self._waiting[waiting] = None
            self._of_source.setdefault(source, {})[waiting] = None
            self._shares.add(source)
            handle.polls[waiting] = None

    def _make_room(self, source: str) -> bool:
        """Whether one more poll of ``source`` may wait; the source with most polls may have to give way."""
        count = self._shares.count(source)
        if count >= self._config.long_polls_per_source_max:
            return False
        if len(self._waiting) >= self._config.long_polls_max:
            if count + 1 >= self._shares.largest:
                return False
            self._finish(next(iter(self._of_source[self._shares.greediest()])))
        return self._table.is_alive  # answering one may have crashed the bookie

    def _refusal(self, request: ReadRequest, poll: LongPoll, handle: LedgerHandle | None) -> Status | None:
        if handle is None:
            return Status.NO_LEDGER
        if poll.piggyback and request.entry_id != LAST_ENTRY:
            return Status.BAD_REQUEST
        if handle.in_limbo:
            return Status.UNKNOWN_LEDGER_STATE
        return None

    def wake(self, handle: LedgerHandle, everyone: bool) -> None:  # noqa: FBT001  a callback
        """Answer the polls of a ledger whose LAC rose, or all of them because it was fenced or deleted."""
        count = 0
        for waiting in list(handle.polls):
            if handle.lac > waiting.poll.previous_lac:
                waiting.updated_at_ms = self._wall_clock_ms()
            elif not everyone:
                if not self._config.long_polls_wait_on:
                    del handle.polls[waiting]
                continue
            count += 1
            if count > _WAKES_PER_TURN:
                if not self._due:
                    self._loop.call_soon(self._wake_due)
                self._due.append(waiting)
                continue
            self._finish(waiting)
            if not self._table.is_alive:  # answering it crashed the bookie
                return

    def _wake_due(self) -> None:
        for _ in range(min(_WAKES_PER_TURN, len(self._due))):
            self._finish(self._due.popleft())
            if not self._table.is_alive:
                return
        if self._due:
            self._loop.call_soon(self._wake_due)

    def forget(self, source: str) -> None:
        """Drop the polls of a source that has gone, unanswered."""
        for waiting in self._of_source.pop(source, {}):
            self._drop(waiting)

    def finish_all(self) -> None:
        """Answer every poll from what is there now."""
        for waiting in list(self._waiting):
            if self._table.is_alive:
                self._finish(waiting)

    def crash(self) -> None:
        """Drop every poll unanswered."""
        for waiting in self._waiting:
            if waiting.timer is not None:
                waiting.timer.cancel()
        self._waiting.clear()
        self._due.clear()

    def _finish(self, waiting: _Poll) -> None:
        if waiting not in self._waiting:
            return  # answered meanwhile, by what answering another one caused
        polls = self._of_source[waiting.source]
        del polls[waiting]
        if not polls:
            del self._of_source[waiting.source]
        self._drop(waiting)
        self._answer(waiting)

    def _drop(self, waiting: _Poll) -> None:
        assert waiting.timer is not None
        waiting.timer.cancel()
        del self._waiting[waiting]
        self._shares.remove(waiting.source)
        waiting.handle.polls.pop(waiting, None)

    def _answer(self, waiting: _Poll) -> None:
        request, poll, handle = waiting.request, waiting.poll, waiting.handle
        if self._table.handles.get(handle.ledger_id) is not handle:
            waiting.respond(ReadResponse(Status.NO_LEDGER, request.ledger_id, request.entry_id))
        elif not poll.piggyback:
            self._storage.read_entry(request.ledger_id, request.entry_id, self._entry_read, waiting)
        elif handle.lac > poll.previous_lac >= LAST_ENTRY:
            self._storage.read_entry(request.ledger_id, poll.previous_lac + 1, self._next_entry_read, waiting)
        else:
            self._next_entry_read(waiting, None, None)

    def _entry_read(self, waiting: _Poll, body: bytes | None, error: StorageError | None) -> None:
        request, handle = waiting.request, waiting.handle
        status = status_of_read(handle, body, error)
        if status is Status.OK:
            waiting.respond(ReadResponse(status, request.ledger_id, request.entry_id, body, handle.lac))
        else:
            waiting.respond(ReadResponse(status, request.ledger_id, request.entry_id))

    def _next_entry_read(self, waiting: _Poll, body: bytes | None, error: StorageError | None) -> None:
        request, handle = waiting.request, waiting.handle
        if error is not None:
            waiting.respond(ReadResponse(status_of_read(handle, None, error), request.ledger_id, request.entry_id))
            return
        entry_id = LAST_ENTRY if body is None else waiting.poll.previous_lac + 1
        waiting.respond(ReadResponse(Status.OK, request.ledger_id, entry_id, body, handle.lac, waiting.updated_at_ms))

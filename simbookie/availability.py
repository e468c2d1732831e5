"""Lists of the entries that a bookie stores of a ledger, made a piece at a time.

A storage keeps the ids of a ledger as runs of consecutive ones, so a list costs what its answer is long, not what the ledger
is. A ledger whose entries are striped over bookies may still have as many runs as entries here. So long lists are made one after
the other, a piece in each turn of the loop; requests for the same ledger that wait share one.
"""

from __future__ import annotations

import asyncio
from array import array
from itertools import islice
from typing import Final

from bkclient.wire.availability import encode_header, encode_runs
from bkclient.wire.messages import EntryListRequest, EntryListResponse, Status
from simbookie.config import BookieConfig
from simbookie.ledgers import LedgerHandle, LedgerTable, status_of
from simbookie.reads import Respond
from simbookie.storage.base import LedgerStorage, StorageError

__all__ = ["EntryListDesk"]

#: Runs that are encoded in one turn of the loop.
_PIECE: Final = 1_024


class EntryListDesk:
    """Answers the requests for lists of entries of one run of a bookie."""

    def __init__(self, table: LedgerTable, storage: LedgerStorage, config: BookieConfig) -> None:
        self._table = table
        self._storage = storage
        self._waiting_max = config.pending_reads_max
        self._loop = asyncio.get_running_loop()
        self._queue: dict[LedgerHandle, list[Respond]] = {}
        #: Requests that wait for a long list.
        self.waiting = 0
        self._is_working = False

    def answer(self, request: EntryListRequest, respond: Respond) -> None:
        """Answer a request, at once if the list is short."""
        ledger_id = request.ledger_id
        handle = self._table.find(ledger_id)
        if handle is None:
            respond(EntryListResponse(Status.NO_LEDGER, ledger_id))
        elif handle.in_limbo:
            respond(EntryListResponse(Status.UNKNOWN_LEDGER_STATE, ledger_id))
        elif self._storage.count_runs(ledger_id) <= _PIECE:
            firsts, lasts = self._storage.entry_runs(ledger_id)
            data = encode_header(len(firsts)) + encode_runs(zip(firsts, lasts, strict=True))
            respond(EntryListResponse(Status.OK, ledger_id, data))
        elif self.waiting >= self._waiting_max:
            respond(EntryListResponse(Status.TOO_MANY_REQUESTS, ledger_id))
        else:
            self.waiting += 1
            self._queue.setdefault(handle, []).append(respond)
            self._work()

    def finish_all(self) -> None:
        """Answer every request now."""
        while self._queue and self._table.is_alive:
            handle = next(iter(self._queue))
            responds = self._queue.pop(handle)
            try:
                firsts, lasts = self._runs(handle)
            except StorageError as error:
                self._fail(handle, responds, error)
            else:
                self._respond(handle, responds, [encode_runs(zip(firsts, lasts, strict=True))], len(firsts))

    def _work(self) -> None:
        if not self._is_working and self._queue:
            self._is_working = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._is_working = False
        if not self._queue or not self._table.is_alive:
            return
        self._is_working = True
        handle = next(iter(self._queue))
        responds = self._queue.pop(handle)  # requests from now on must see what is stored from now on
        try:
            firsts, lasts = self._runs(handle)
        except StorageError as error:
            self._is_working = False
            self._fail(handle, responds, error)
            self._work()
        else:
            self._go_on(handle, responds, zip(firsts, lasts, strict=True), [], len(firsts))

    def _go_on(
        self, handle: LedgerHandle, responds: list[Respond], runs: zip[tuple[int, int]], pieces: list[bytes], count: int
    ) -> None:
        if not self._table.is_alive:
            return
        piece = encode_runs(islice(runs, _PIECE))
        if piece:
            pieces.append(piece)
            self._loop.call_soon(self._go_on, handle, responds, runs, pieces, count)
            return
        self._is_working = False
        self._respond(handle, responds, pieces, count)
        self._work()

    def _runs(self, handle: LedgerHandle) -> tuple[array[int], array[int]]:
        if self._table.handles.get(handle.ledger_id) is handle:
            return self._storage.entry_runs(handle.ledger_id)
        return array("q"), array("q")

    def _fail(self, handle: LedgerHandle, responds: list[Respond], error: StorageError) -> None:
        for respond in responds:
            self.waiting -= 1
            if self._table.is_alive:
                respond(EntryListResponse(status_of(error), handle.ledger_id))

    def _respond(self, handle: LedgerHandle, responds: list[Respond], pieces: list[bytes], count: int) -> None:
        is_there = self._table.handles.get(handle.ledger_id) is handle
        data = encode_header(count) + b"".join(pieces) if is_there else None
        status = Status.OK if is_there else Status.NO_LEDGER
        for respond in responds:
            self.waiting -= 1
            if self._table.is_alive:
                respond(EntryListResponse(status, handle.ledger_id, data))

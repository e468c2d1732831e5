"""A bookie that counts its requests: how often each kind came, how long it took, and with which status it was answered.

Measuring costs a class of its own and nothing where it is not asked for: a plain :class:`~simbookie.bookie.Bookie` makes no call
more. Times are those of the running loop's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from bkclient.observability.latencies import Latencies
from bkclient.wire.messages import (
    LAST_ENTRY,
    AddRequest,
    BatchReadRequest,
    BatchReadResponse,
    BookieInfoRequest,
    EntryListRequest,
    ForceLedgerRequest,
    ReadLacRequest,
    ReadRequest,
    ReadResponse,
    Request,
    Status,
    WriteLacRequest,
)
from simbookie.bookie import Bookie, Respond
from simbookie.ledgers import status_of
from simbookie.storage.base import StorageError
from simbookie.storage.journal.queue import QueuedRecord
from simbookie.storage.journaled import JournaledStorage

__all__ = ["JournalTimes", "MeasuredBookie", "RequestOutcomes"]

ADD: Final = "ADD_ENTRY_REQUEST"
READ: Final = "READ_ENTRY_REQUEST"
FENCING_READ: Final = "READ_ENTRY_FENCE_REQUEST"
LONG_POLL: Final = "READ_ENTRY_LONG_POLL_REQUEST"
FORCE: Final = "FORCE_LEDGER_REQUEST"
_NAMES: Final[dict[type, str]] = {
    AddRequest: ADD,
    BatchReadRequest: READ,
    WriteLacRequest: "WRITE_LAC_REQUEST",
    ReadLacRequest: "READ_LAC_REQUEST",
    ForceLedgerRequest: FORCE,
    BookieInfoRequest: "GET_BOOKIE_INFO_REQUEST",
    EntryListRequest: "GET_LIST_OF_ENTRIES_OF_LEDGER_REQUEST",
}
#: Names of BookKeeper's statistics, by which requests are counted.
REQUEST_NAMES: Final = tuple(dict.fromkeys((*_NAMES.values(), READ, FENCING_READ, LONG_POLL)))


class RequestOutcomes:
    """Durations of the requests of one kind, and how many were answered with each status but OK."""

    __slots__ = ("failed", "statuses", "succeeded")

    def __init__(self) -> None:
        self.succeeded = Latencies()
        self.failed = Latencies()
        self.statuses: dict[Status, int] = {}

    def add(self, status: Status, seconds: float) -> None:
        """One more."""
        if status is Status.OK:
            self.succeeded.add(seconds)
        else:
            self.failed.add(seconds)
            self.statuses[status] = self.statuses.get(status, 0) + 1


class JournalTimes:
    """A :class:`~simbookie.storage.journal.journal.JournalWatcher` that counts durations."""

    def __init__(self) -> None:
        #: From the queue to the acknowledgement [JOURNAL_ADD_ENTRY].
        self.adds = Latencies()
        #: One sync of a file [JOURNAL_SYNC].
        self.syncs = Latencies()
        #: How many groups were synced together, and the records in them [JOURNAL_FORCE_WRITE_BATCH_ENTRIES].
        self.groups = self.records = 0

    def synced(self, seconds: float) -> None:
        """A sync took so long."""
        self.syncs.add(seconds)

    def acknowledged(self, records: list[QueuedRecord], now: float) -> None:
        """The records of one group are durable."""
        self.groups += 1
        self.records += len(records)
        for record in records:
            if record.entry_id >= 0:
                self.adds.add(now - record.enqueued)


class MeasuredBookie(Bookie):
    """A bookie whose requests, and whose journals if it has some, are measured from its first start on."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: By the names of BookKeeper's statistics.
        self.outcomes = {name: RequestOutcomes() for name in REQUEST_NAMES}
        self.bytes_written = self.bytes_read = self.last_entries_denied = 0
        self.journal_times: list[JournalTimes] = []
        self._adds = self.outcomes[ADD]
        if isinstance(self.storage, JournaledStorage):
            self.journal_times = [JournalTimes() for _ in self.storage.journal_folders]
            self.storage.journal_watchers = self.journal_times

    def submit(self, request: Request, respond: Respond, *, source: str = "") -> None:
        """As a bookie does, and count it."""
        if isinstance(request, ReadRequest):
            name = FENCING_READ if request.fence_key is not None else LONG_POLL if request.long_poll else READ
        else:
            name = _NAMES.get(type(request), "")
        if name:
            outcomes, began = self.outcomes[name], asyncio.get_running_loop().time()
            respond = partial(self._answered, request, respond, outcomes, began)
        super().submit(request, respond, source=source)

    def _answered(
        self, request: Request, respond: Respond, outcomes: RequestOutcomes, began: float, response: Any
    ) -> None:
        status: Status = response.status
        outcomes.add(status, asyncio.get_running_loop().time() - began)
        if status is Status.NO_ENTRY and isinstance(request, ReadRequest) and request.entry_id == LAST_ENTRY:
            self.last_entries_denied += 1
        if status is Status.OK:
            if isinstance(request, AddRequest):
                self.bytes_written += len(request.header) + len(request.payload)
            elif isinstance(response, ReadResponse):
                self.bytes_read += len(response.body or b"")
            elif isinstance(response, BatchReadResponse):
                self.bytes_read += sum(map(len, response.bodies))
        respond(response)

    def add(
        self, request: AddRequest, added: Callable[[Any, StorageError | None], None], token: Any, source: str
    ) -> bool:
        """As a bookie does, and count it."""
        measured = (added, token, asyncio.get_running_loop().time(), len(request.header) + len(request.payload))
        return super().add(request, self._measured_add, measured, source)

    def _measured_add(
        self,
        token: tuple[Callable[[Any, StorageError | None], None], Any, float, int],
        error: StorageError | None,
    ) -> None:
        added, inner, began, size = token
        status = Status.OK if error is None else status_of(error)
        self._adds.add(status, asyncio.get_running_loop().time() - began)
        if error is None:
            self.bytes_written += size
        added(inner, error)

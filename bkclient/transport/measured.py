"""A transport that tells how long bookies take, around any other; a client without statistics has none.

What is measured begins with the request, before a connection is made or the socket takes it, and ends with the outcome, so it
is what the protocol had to wait for, whatever the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bkclient.errors import Code
from bkclient.observability.stats import OUTSTANDING_ADDS, OUTSTANDING_READS, REQUESTS, BookieStats
from bkclient.transport.adds import AddReplies, AddSender
from bkclient.transport.base import BookieTransport, ReplyHandler
from bkclient.transport.reads import ReadReplies, ReadSender
from bkclient.transport.wrapping import WatchedAdds, WatchedReads, WrappingTransport
from bkclient.wire.connection import FoundBody
from bkclient.wire.messages import AddTemplate, Operation, Request, Response

__all__ = ["MeasuredTransport"]

#: As what an operation is counted, and as what in addition when it times out; those about the connection itself are not.
_NAMES: Final = {
    Operation.ADD_ENTRY: REQUESTS["ADD_ENTRY"],
    Operation.READ_ENTRY: REQUESTS["READ_ENTRY"],
    Operation.BATCH_READ_ENTRY: REQUESTS["READ_ENTRY"],
    Operation.READ_LAC: REQUESTS["READ_LAC"],
    Operation.WRITE_LAC: REQUESTS["WRITE_LAC"],
    Operation.FORCE_LEDGER: REQUESTS["FORCE"],
    Operation.GET_BOOKIE_INFO: REQUESTS["GET_BOOKIE_INFO"],
    Operation.GET_LIST_OF_ENTRIES_OF_LEDGER: REQUESTS["GET_LIST_OF_ENTRIES_OF_LEDGER"],
}
_LEVELS: Final = {
    Operation.ADD_ENTRY: OUTSTANDING_ADDS,
    Operation.READ_ENTRY: OUTSTANDING_READS,
    Operation.BATCH_READ_ENTRY: OUTSTANDING_READS,
}


class MeasuredTransport(WrappingTransport):
    """A :class:`~bkclient.transport.base.BookieTransport` that reports every request to ``stats``."""

    def __init__(self, transport: BookieTransport, stats: BookieStats) -> None:
        super().__init__(transport)
        self._stats = stats

    def submit(self, bookie_id: str, request: Request, reply_to: ReplyHandler) -> None:
        """See :class:`~bkclient.transport.base.BookieTransport`."""
        names = _NAMES.get(request.operation)
        if names is None:
            self.inner.submit(bookie_id, request, reply_to)
            return
        level = _LEVELS.get(request.operation)
        if level is not None:
            self._stats.bookie_level(bookie_id, level, 1)
        self.inner.submit(bookie_id, request, _Measured(self._stats, reply_to, names, level))

    def add_sender(self, template: AddTemplate, replies: AddReplies) -> AddSender:
        """See :class:`~bkclient.transport.adds.SendsAdds`."""
        return _MeasuredAdds(self.inner, template, replies, self._stats)

    def read_sender(self, ledger_id: int) -> ReadSender:
        """See :class:`~bkclient.transport.reads.SendsReads`."""
        return _MeasuredReads(self.inner, ledger_id, self._stats)


class _Measured:
    """The handler of one request: reports, then hands on."""

    __slots__ = ("_began", "_level", "_names", "_reply_to", "_stats")

    def __init__(self, stats: BookieStats, reply_to: ReplyHandler, names: tuple[str, str], level: str | None) -> None:
        self._stats = stats
        self._reply_to = reply_to
        self._names = names
        self._level = level
        self._began = stats.now()

    def __call__(self, bookie_id: str, request: Request, code: int, response: Response | None) -> None:
        _report(self._stats, bookie_id, self._names, self._level, self._began, code)
        self._reply_to(bookie_id, request, code, response)


class _MeasuredAdds(WatchedAdds):
    """The adds of one writer: reports, then hands on."""

    def __init__(self, inner: BookieTransport, template: AddTemplate, replies: AddReplies, stats: BookieStats) -> None:
        super().__init__(inner, template, replies)
        self._stats = stats
        # When those to each bookie began that have no outcome, oldest first: an entry may be sent to a bookie again.
        self._began: dict[tuple[str, int], list[float]] = {}

    def send(self, bookies: tuple[str, ...], entry_id: int, header: bytes, payload: bytes) -> None:
        """Note when it begins, for each bookie, and hand it on."""
        began = self._stats.now()
        for bookie_id in bookies:
            self._stats.bookie_level(bookie_id, OUTSTANDING_ADDS, 1)
            self._began.setdefault((bookie_id, entry_id), []).append(began)
        super().send(bookies, entry_id, header, payload)

    def on_outcome(self, bookie_id: str, entry_id: int, code: int) -> None:
        """Report it."""
        key = (bookie_id, entry_id)
        times = self._began[key]
        _report(self._stats, bookie_id, _NAMES[Operation.ADD_ENTRY], OUTSTANDING_ADDS, times.pop(0), code)
        if not times:
            del self._began[key]


class _MeasuredReads(WatchedReads):
    """The reads of one ledger: reports, then hands on."""

    def __init__(self, inner: BookieTransport, ledger_id: int, stats: BookieStats) -> None:
        super().__init__(inner, ledger_id)
        self._stats = stats

    def _watched(self, bookie_id: str, entry_ids: Sequence[int], replies: ReadReplies) -> ReadReplies:
        """Note when they begin, all at once."""
        self._stats.bookie_level(bookie_id, OUTSTANDING_READS, len(entry_ids))
        return _MeasuredReplies(self._stats, replies)


class _MeasuredReplies:
    """The handler of reads that were sent together: reports, then hands on."""

    __slots__ = ("_began", "_replies", "_stats")

    def __init__(self, stats: BookieStats, replies: ReadReplies) -> None:
        self._stats = stats
        self._replies = replies
        self._began = stats.now()

    def on_found(self, bookie_id: str, found: Sequence[FoundBody]) -> None:
        """See :class:`~bkclient.transport.reads.ReadReplies`."""
        stats, (name, _) = self._stats, _NAMES[Operation.READ_ENTRY]
        seconds = stats.now() - self._began
        for _ in found:
            stats.request(bookie_id, name, seconds, Code.OK)
        stats.bookie_level(bookie_id, OUTSTANDING_READS, -len(found))
        self._replies.on_found(bookie_id, found)

    def __call__(self, bookie_id: str, request: Request, code: int, response: Response | None) -> None:
        """See :class:`~bkclient.transport.reads.ReadReplies`."""
        _report(self._stats, bookie_id, _NAMES[Operation.READ_ENTRY], OUTSTANDING_READS, self._began, code)
        self._replies(bookie_id, request, code, response)


def _report(
    stats: BookieStats, bookie_id: str, names: tuple[str, str], level: str | None, began: float, code: int
) -> None:
    name, timeout_name = names
    seconds = stats.now() - began
    stats.request(bookie_id, name, seconds, code)
    if code == Code.TIMEOUT:
        stats.request(bookie_id, timeout_name, seconds, Code.OK)
    if level is not None:
        stats.bookie_level(bookie_id, level, -1)
